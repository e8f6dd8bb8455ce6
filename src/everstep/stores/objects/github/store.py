"""Runs in a repository: few calls an hour, so that they are saved, and nobody waits for them who need not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from everstep.model.fleet import WorkerRow
from everstep.model.leases import Lease
from everstep.ports.store import Commit, Verdict
from everstep.ports.system import Clock
from everstep.stores.objects.github.api import hurries
from everstep.stores.objects.github.bucket import GithubBucket
from everstep.stores.objects.store import ObjectStore

POLL = 10.0
"""Seconds between two looks at what others write."""


class GithubStore(ObjectStore):
    """The store of objects on a place with a quota."""

    def __init__(self, bucket: GithubBucket, clock: Clock, *, poll: float = POLL) -> None:
        super().__init__(bucket, clock, poll=poll)
        self.capabilities = msgspec.structs.replace(self.capabilities, rationed=True)
        self._repository = bucket

    def is_short(self) -> bool:
        return self._repository.is_rationed

    def _put_run(self, item: tuple[str, list[Commit], range]) -> list[Verdict]:
        with _hurry(all(commit.hurries for commit in item[1])):
            return super()._put_run(item)

    def _renew_one(self, lease: Lease, ttl: timedelta) -> Lease | Verdict:
        with _hurry():
            return super()._renew_one(lease, ttl)

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        with _hurry():
            super().report_blocking(worker, ttl)


@contextmanager
def _hurry(is_hurried: bool = True) -> Iterator[None]:
    """Rather fail than wait for the quota, in this thread."""
    token = hurries.set(is_hurried)
    try:
        yield
    finally:
        hurries.reset(token)
