"""`memory:` passes the whole suite."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import Counter

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import Opened
from everstep.stores.memory import MemoryData, MemoryLogs, MemoryStore
from everstep.stores.objects.logs import RunLine
from everstep.stores.objects.store import ObjectStore
from everstep.testing import ManualClock, StoreConformance, StoreKit
from everstep.testing.conformance import GROUPS
from everstep.testing.conformance.kit import TTL, Chain


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
            Capabilities(
                durable=False,
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
                has_events=True,
                audits=True,
                live=True,
            ),
        )


def test_every_call_is_that_of_the_store_of_objects() -> None:
    own = [name for name, value in vars(MemoryStore).items() if callable(value)]
    assert own == ["__init__", "erase", "live"] and issubclass(MemoryStore, ObjectStore)
    source = inspect.getsource(sys.modules[MemoryStore.__module__])
    assert "everstep.engine" not in source, "what is legal is decided above the place where things lie"


def test_a_plain_step_is_kept_as_it_came() -> None:
    clock = ManualClock()
    store, chain = MemoryStore(clock), Chain("run", clock)
    chain.head = chain.admission()
    step = chain.following()
    assert store.put_blocking([chain.head]) == store.put_blocking([step]) == ["accepted"]
    kept = store.data.logs["run"].places[-1]
    assert isinstance(kept, tuple) and [record.body is step.body for record in kept] == [True]


def test_how_a_run_stood_after_each_step_is_known_to_who_looks_late() -> None:
    clock = ManualClock()
    store, chain = MemoryStore(clock), Chain("run", clock)
    chain.head = chain.admission()
    assert store.put_blocking([chain.head]) == ["accepted"]
    stood = [store.data.logs["run"].standing]
    for number in range(1, 12):
        if number % 5 == 0:
            lease = asyncio.run(store.lease("run", owner="it", ttl=TTL, process=None, void_epoch=chain.epoch))
            chain.epoch = lease.epoch
            stood.append(store.data.logs["run"].standing)
        chain.head = chain.following(keyframe=number % 3 == 0)
        assert store.put_blocking([chain.head]) == ["accepted"]
        stood.append(store.data.logs["run"].standing)
    logs = MemoryLogs(store.data)
    entries = [logs.at(RunLine("run"), place, anew=True) for place in range(1, len(stood) + 1)]
    assert [entry and entry.standing for entry in entries] == stood


def test_no_part_of_the_suite_hides_a_test_of_another() -> None:
    names = Counter(name for group in GROUPS for name in vars(group) if name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []
    assert all(issubclass(StoreConformance, group) for group in GROUPS)
