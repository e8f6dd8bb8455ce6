"""`s3:` passes both suites, on SeaweedFS or what EVERSTEP_TEST_S3 names."""

from __future__ import annotations

from functools import partial

import pytest

from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.stores.objects.cloud.address import read_address
from everstep.stores.objects.cloud.bucket import Cloud
from everstep.testing import BucketConformance, ManualClock, StoreConformance, StoreKit
from everstep.testing.conformance.buckets import Open


class TestBucketOfS3(BucketConformance):
    @pytest.fixture
    def buckets(self, s3_url: str) -> Open:
        return partial(Cloud, read_address(s3_url), SystemClock())


class TestS3(StoreConformance):
    @pytest.fixture
    def store_kit(self, s3_url: str) -> StoreKit:
        clock = ManualClock()
        return StoreKit(
            lambda: open_store(s3_url, clock),
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
            ),
            open_at=lambda other: open_store(s3_url, other),
        )
