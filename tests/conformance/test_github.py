"""`github:` passes the whole suite."""

from __future__ import annotations

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.testing import ManualClock, StoreConformance, StoreKit


class TestGithub(StoreConformance):
    @pytest.fixture
    def store_kit(self, github_url: str) -> StoreKit:
        clock = ManualClock()
        return StoreKit(
            lambda: open_store(github_url, clock),
            clock,
            Capabilities(
                durable=True,
                single_writer=True,
                remote=True,
                recodes=True,
                retains=True,
                restores=True,
                rationed=True,
            ),
            open_at=lambda other: open_store(github_url, other),
            most=30,
        )
