"""`memory:` passes the whole suite."""

from __future__ import annotations

from collections import Counter

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import Opened
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing import ManualClock, StoreConformance, StoreKit
from everstep.testing.conformance import GROUPS


class TestMemory(StoreConformance):
    @pytest.fixture
    def store_kit(self) -> StoreKit:
        clock, data = ManualClock(), MemoryData()

        def open_client() -> Opened:
            store = MemoryStore(clock, data)
            return Opened(store, store.artifacts, "memory:")

        return StoreKit(
            open_client,
            clock,
            Capabilities(durable=False, single_writer=True, recodes=True, retains=True, restores=True),
        )


def test_no_part_of_the_suite_hides_a_test_of_another() -> None:
    names = Counter(name for group in GROUPS for name in vars(group) if name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []
    assert all(issubclass(StoreConformance, group) for group in GROUPS)
