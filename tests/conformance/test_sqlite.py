"""`sqlite:` passes the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.testing import ManualClock, StoreConformance, StoreKit


class TestSqlite(StoreConformance):
    @pytest.fixture
    def store_kit(self, tmp_path: Path) -> StoreKit:
        clock = ManualClock()
        url = f"sqlite:///{tmp_path}/runs.db"
        capabilities = Capabilities(
            durable=True,
            single_writer=True,
            recodes=True,
            compares=True,
            takes_head=True,
            retains=True,
            restores=True,
            fences=True,
            has_inbox=True,
            has_labels=True,
            has_notices=True,
            pauses=True,
            has_children=True,
            limits=True,
            undoes=True,
            searches=True,
            has_events=True,
            audits=True,
            live=True,
        )
        return StoreKit(lambda: open_store(url, clock), clock, capabilities)
