"""Hosts whose time the tests move."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everstep import Host
from everstep.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def host(url: str, clock: ManualClock) -> Iterator[Host]:
    with Host(url, clock=clock) as opened:
        yield opened
