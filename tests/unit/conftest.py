"""A host for the unit tests that drive a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everstep import Host


@pytest.fixture
def host() -> Iterator[Host]:
    with Host("memory:") as opened:
        yield opened
