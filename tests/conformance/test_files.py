"""`file:` passes the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.testing import ManualClock, StoreConformance, StoreKit


class TestFiles(StoreConformance):
    @pytest.fixture
    def store_kit(self, tmp_path: Path) -> StoreKit:
        clock = ManualClock()
        url = f"file://{tmp_path}/runs"
        return StoreKit(
            lambda: open_store(url, clock),
            clock,
            Capabilities(durable=True, single_writer=True, recodes=True, retains=True, restores=True),
        )
