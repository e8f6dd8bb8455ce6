"""A repository passes the suite for buckets."""

from __future__ import annotations

from functools import partial

import pytest

from everstep.runtime.system import SystemClock
from everstep.stores.objects.github.address import read_address
from everstep.stores.objects.github.bucket import GithubBucket
from everstep.testing import BucketConformance
from everstep.testing.conformance_buckets import Open


class TestGithub(BucketConformance):
    races = 10
    bumps = 4

    @pytest.fixture
    def buckets(self, github_url: str, github_token: str) -> Open:
        return partial(_open, github_url, github_token)


def _open(url: str, token: str) -> GithubBucket:
    return GithubBucket(read_address(url, {"GITHUB_TOKEN": token}), SystemClock())
