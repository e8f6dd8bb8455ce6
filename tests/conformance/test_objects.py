"""The store of objects passes the whole suite on a bucket in memory; folders and servers have their own."""

from __future__ import annotations

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import Opened
from everstep.stores.objects.store import ObjectStore
from everstep.testing import ManualClock, StoreConformance, StoreKit
from everstep.testing.dict_bucket import DictBucket, DictObjects


class TestObjects(StoreConformance):
    @pytest.fixture
    def store_kit(self) -> StoreKit:
        clock, objects = ManualClock(), DictObjects()

        def opened() -> Opened:
            store = ObjectStore(DictBucket(objects), clock)
            return Opened(store, store.artifacts)

        return StoreKit(
            opened,
            clock,
            Capabilities(
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
                has_events=True,
                audits=True,
            ),
        )
