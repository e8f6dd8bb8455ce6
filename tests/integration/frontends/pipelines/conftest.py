"""A host in memory whose retries and timers take no time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everstep import Host
from everstep.testing import ManualClock


@pytest.fixture
def host() -> Iterator[Host]:
    with Host("memory:", clock=ManualClock(auto=True)) as opened:
        yield opened
