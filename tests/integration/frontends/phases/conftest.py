"""A host on SQLite, and the events it told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep import Host
from everstep.results import Event
from everstep.testing import ManualClock
from tests.integration.runtime.bundles.carried import START


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def host(tmp_path: Path, events: list[Event]) -> Iterator[Host]:
    url, clock = f"sqlite:///{tmp_path}/runs.db", ManualClock(START, auto=True)
    with Host(url, clock=clock, on_event=events.append) as opened:
        yield opened
