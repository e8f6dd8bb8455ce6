"""Runs in a repository: few calls an hour, so that calls are saved, and waited for only where needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from everstep.model.leases import Lease, WorkerRow
from everstep.ports.store import Commit, Verdict
from everstep.ports.system import Clock
from everstep.stores.objects import names
from everstep.stores.objects.blobs import ObjectBlobs
from everstep.stores.objects.claims import Claims
from everstep.stores.objects.github.api import hurries
from everstep.stores.objects.github.bucket import GithubBucket
from everstep.stores.objects.lines import Lines
from everstep.stores.objects.listing import Look, RunListing
from everstep.stores.objects.logs import RunLine
from everstep.stores.objects.store import ObjectStore
from everstep.stores.objects.watch import BucketWatch

POLL = 5.0
"""Seconds between two looks at what others write."""
_FEW = 4
"""Up to so many runs are looked at one by one."""


class GithubStore(ObjectStore):
    """The store of objects on a place with a quota."""

    def __init__(self, bucket: GithubBucket, clock: Clock, *, poll: float = POLL) -> None:
        super().__init__(bucket, clock, poll=poll)
        self.capabilities = msgspec.structs.replace(self.capabilities, rationed=True)
        self._repository = bucket
        self.artifacts = SparseBlobs(bucket, clock)
        self._watch = HeadWatch(self.lines, bucket, poll)
        self._listing = BulkListing(self.lines, self._claims, bucket)

    def is_short(self) -> bool:
        return self._repository.is_rationed

    @contextmanager
    def believing(self, run_id: str) -> Iterator[None]:
        with self.lines.believing(run_id):
            yield

    def _put_run(self, item: tuple[str, Sequence[Commit], Sequence[int]]) -> list[Verdict]:
        with _hurry(all(commit.hurries for commit in item[1])):
            return super()._put_run(item)

    def _renew_one(self, lease: Lease, ttl: timedelta) -> Lease | Verdict:
        with _hurry():
            return super()._renew_one(lease, ttl)

    async def tidy(self, *, limit: int = 1000) -> int:
        return await super().tidy(limit=limit) + await self._aside(self._tell_of_left)

    def _tell_of_left(self) -> int:
        """Write the files for people that owners did not come to write, because they were killed."""
        now = self.lines.now()
        heads: dict[str, int] = {}
        for line in self._listing.all():
            row = self.lines.row(line)
            if row is not None and (row.lease is None or row.lease.expires_at <= now):
                heads[row.run_id] = row.checkpoints
        return self._repository.tell_of(heads)

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        with _hurry():
            super().report_blocking(worker, ttl)


class SparseBlobs(ObjectBlobs):
    """Artifacts of which there are few: where none begin with some digits, no call is made."""

    def _parts(self) -> Iterable[str]:
        return sorted({name.split("/")[1] for name in self._bucket.names("blobs/")})


class HeadWatch(BucketWatch):
    """Sees writes of others by the newest commit: one call, which is free while there is no other."""

    def __init__(self, lines: Lines, bucket: GithubBucket, every: float) -> None:
        super().__init__(lines, every)
        self._repository = bucket
        self._head: str | None = None

    def look(self) -> None:
        head = self._repository.head()
        if head != self._head:  # the first time, too: another client may have written before it
            self._count += 1
        self._head = head


class BulkListing(RunListing):
    """Looks at many runs in two calls, and reads only those that have gone on since they were last seen."""

    def __init__(self, lines: Lines, claims: Claims, bucket: GithubBucket) -> None:
        super().__init__(lines, claims)
        self._repository = bucket

    def _looking(self, many: int) -> Look:
        if many <= _FEW:
            return super()._looking(many)
        ends = self._repository.ends()

        def look(run_id: str) -> RunLine:
            line, end = self._lines.known(run_id), ends.get(names.quoted(run_id), 0)
            if end and (line.head is None or line.head.place < end):
                self._lines.see(line, end)
            return line

        return look


@contextmanager
def _hurry(is_hurried: bool = True) -> Iterator[None]:
    """Rather fail than wait for the quota, in this thread."""
    token = hurries.set(is_hurried)
    try:
        yield
    finally:
        hurries.reset(token)
