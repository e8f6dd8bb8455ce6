"""Two stores and the file that carries runs from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep import Host
from everstep.testing import ManualClock
from tests.integration.runtime.bundles.carried import START


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Host]:
    with Host(f"sqlite:///{tmp_path}/here.db", clock=ManualClock(START, auto=True)) as host:
        yield host


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Host]:
    with Host(f"sqlite:///{tmp_path}/there.db", clock=ManualClock(START, auto=True)) as host:
        yield host


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.everstep"
