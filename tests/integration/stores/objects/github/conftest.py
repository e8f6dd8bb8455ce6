"""Buckets of a test, closed in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everstep.ports.system import Clock
from tests.integration.stores.objects.github.meddling import Opener, Pair, Rule, pair_at


@pytest.fixture
def open_bucket(github_url: str, github_token: str) -> Iterator[Opener]:
    """Opens a bucket in the test's repository, through rules."""
    opened: list[Pair] = []

    def open_one(*rules: Rule, clock: Clock | None = None, url: str | None = None) -> Pair:
        opened.append(pair_at(url or github_url, github_token, *rules, clock=clock))
        return opened[-1]

    yield open_one
    for bucket, meddler in opened:
        bucket.close()
        meddler.close()
