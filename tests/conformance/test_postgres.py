"""`postgresql:` passes the whole suite."""

from __future__ import annotations

import os

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.testing import ManualClock, StoreConformance, StoreKit


class TestPostgres(StoreConformance):
    @pytest.fixture
    def store_kit(self, postgres_url: str) -> StoreKit:
        clock = ManualClock()
        return StoreKit(
            lambda: open_store(postgres_url, clock),
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
                searches=True,
                has_events=True,
                audits=True,
                live=True,
            ),
            open_at=lambda other: open_store(postgres_url, other),
            most=10_000 if os.environ.get("EVERSTEP_SOAK") == "1" else 1_000,
        )
