"""`redis:` passes the whole suite, on Valkey or Redis."""

from __future__ import annotations

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.testing import ManualClock, StoreConformance, StoreKit


class TestRedis(StoreConformance):
    @pytest.fixture
    def store_kit(self, redis_url: str) -> StoreKit:
        clock = ManualClock()
        return StoreKit(
            lambda: open_store(redis_url, clock),
            clock,
            Capabilities(
                durable=True,
                single_writer=True,
                remote=True,
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
            open_at=lambda other: open_store(redis_url, other),
        )
