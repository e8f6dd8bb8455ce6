"""`github:` passes both suites. The whole of the second takes minutes; what is most at risk runs always."""

from __future__ import annotations

from functools import partial

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.stores.objects.github.address import read_address
from everstep.stores.objects.github.bucket import GithubBucket
from everstep.testing import BucketConformance, ManualClock, StoreConformance, StoreKit
from everstep.testing.conformance.buckets import Open
from everstep.testing.conformance.clients import TwoClients
from everstep.testing.conformance.leases import Fencing, Leases, StopRequests
from everstep.testing.conformance.records import Atomicity, LostReplies
from everstep.testing.conformance.waits import Settling


class TestBucketOfGithub(BucketConformance):
    races = 10
    bumps = 4

    @pytest.fixture
    def buckets(self, github_url: str, github_token: str) -> Open:
        return partial(_open, github_url, github_token)


def _open(url: str, token: str) -> GithubBucket:
    return GithubBucket(read_address(url, {"GITHUB_TOKEN": token}), SystemClock())


class Kit:
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
                rationed=True,
            ),
            open_at=lambda other: open_store(github_url, other),
            most=30,
        )


class TestGithub(Kit, Atomicity, LostReplies, Leases, Fencing, StopRequests, TwoClients, Settling):
    """Who may write, and what a lost reply does."""


@pytest.mark.soak
class TestWholeGithub(Kit, StoreConformance):
    """Everything."""
