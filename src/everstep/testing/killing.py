"""Kill the process at a chosen point of a run, to see that the run survives it.

A point is the moment before or after something lasts: a write that reaches the store, or the body of a node.
Run a flow once with a `Killer` that kills nothing and it has noted every point; then run it again for each of
them, in a child process that dies there, and once more to resume:

    host = Host(killing(open_store(url, SystemClock()), at=7))
    host.run(flow, inputs, run_id="a")  # SIGKILL at the seventh point

Points have names as well, `before put 3` or `after blob 1`, which stay the same when threads are quicker or
slower than the last time.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from everstep.errors import StoreUnavailable
from everstep.model.acts import AuditRow
from everstep.model.commits import MOST_LABELS, Labels, NoticeRow, Tag, Tagging, Told
from everstep.model.leases import Held, KeyLimit, LanePause, Lease, Process, Quota, WorkerRow
from everstep.model.records import ArtifactRef
from everstep.model.removal import Erasure, Removal, StoredBlob, Tombstone
from everstep.model.waits import MOST_UNTAKEN, HadEvent, Sending, SettledBy, SignalRow, WaitChange, WaitRow
from everstep.ports.audit import AuditFilter, AuditStore
from everstep.ports.events import EventRow, EventStore
from everstep.ports.inbox import InboxStore
from everstep.ports.labels import LabelStore, Search, SearchingStore, SearchPage
from everstep.ports.limits import LimitChange, LimitingStore
from everstep.ports.live import KeptLog, LiveBatch, LiveRing, LiveStore, Offset, RecodedBatch, RecodedLog
from everstep.ports.notices import NoticeFilter, NoticeStore
from everstep.ports.pausing import BlockingPauses, PausingStore
from everstep.ports.restoring import FencingStore, Restored, RestoringBlobs, RestoringStore, WholeRun
from everstep.ports.retention import RetainingBlobStore, RetainingStore, TombstoneFilter
from everstep.ports.store import (
    BlockingStore,
    Capabilities,
    CheckpointBlobStore,
    CheckpointStore,
    Commit,
    Counts,
    Recoded,
    RecodedSignal,
    RecodedWait,
    RecodingStore,
    RunFilter,
    RunRow,
    StopRequest,
    StoredRecord,
    TimedStore,
    Verdict,
    WaitFilter,
)
from everstep.registry import Opened
from everstep.runtime.outage.spool import Spool


class Points(Protocol):
    """What is asked at every write."""

    def write(self, kind: str) -> AbstractContextManager[None]:
        """Surround a write of this kind."""


class Crashed(Exception):
    """Stands in for the death of the process where a test has only one."""


def _told(audit: AuditRow | None) -> dict[str, Any]:
    """Return who acts as a store is told it: one that keeps no audit log takes nothing of the kind."""
    return {} if audit is None else {"audit": audit}


def _at(head: int | None) -> dict[str, Any]:
    """Return the sequence that a run is expected at: a store that takes none is given none."""
    return {} if head is None else {"head": head}


def die(point: str) -> NoReturn:
    """End this process as `kill -9` would."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(f"outlived SIGKILL at {point}")


def crash(point: str) -> NoReturn:
    """Raise `Crashed` in place of dying; from then on nothing gets past the killer."""
    raise Crashed(point)


def lose_reply(point: str) -> NoReturn:
    """Say that the store cannot be reached, whatever it has done."""
    raise StoreUnavailable(f"the reply was lost: {point}.", fix="Put the same record again.")


class Killer:
    """Notes every point a process reaches, and acts at one of them.

    `at` is the point's number, from 1 on, or its name; none lets the process live. `act` is what happens
    there, by default death. `trace` names a file that gets one line of JSON per point before anything
    happens at it, so that the next process can read how far this one came.
    """

    def __init__(
        self,
        at: int | str | None = None,
        *,
        act: Callable[[str], object] = die,
        trace: Path | None = None,
    ) -> None:
        self.at = at
        self.act = act
        self.points: list[str] = []
        self._counts: Counter[str] = Counter()
        self._reached = threading.Condition()
        self._is_over = False
        self._trace = None
        if trace is not None:
            self._trace = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    @contextmanager
    def write(self, kind: str) -> Iterator[None]:
        """Surround a write. One that raises has no point after it."""
        what = self._next(kind)
        self._reach(f"before {what}", {})
        yield
        self._reach(f"after {what}", {})

    @contextmanager
    def body(self, name: str, **details: Any) -> Iterator[None]:
        """Surround the body of a node; what `details` say goes into the trace."""
        what = self._next(f"body {name}")
        told = {"node": name, **details}
        self._reach(f"before {what}", told)
        try:
            yield
        finally:
            self._reach(f"after {what}", told)

    def wait_for(self, point: str, seconds: float = 30.0) -> None:
        """Return once another thread has reached a point."""
        with self._reached:
            if not self._reached.wait_for(lambda: point in self.points, seconds):
                raise AssertionError(f"{point} was not reached; this process came to {self.points[-1:]}")

    def _next(self, kind: str) -> str:
        with self._reached:
            self._counts[kind] += 1
            return f"{kind} {self._counts[kind]}"

    def _reach(self, point: str, details: dict[str, Any]) -> None:
        with self._reached:
            if self._is_over:
                raise Crashed(point)
            self.points.append(point)
            is_here = self.at in (point, len(self.points))
            if self._trace is not None:
                line = {"pid": os.getpid(), "point": point, **details}
                os.write(self._trace, json.dumps(line).encode() + b"\n")
            self._reached.notify_all()
        if is_here:
            self._is_over = self.act is crash
            self.act(point)

    def close(self) -> None:
        """Close the trace."""
        if self._trace is not None:
            os.close(self._trace)
            self._trace = None


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Return the points that processes wrote to a trace, in order."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def killing(opened: Opened, *, at: int | str | None = None, by: Points | None = None) -> Opened:
    """Return the same store and artifacts with points around every write.

    Give a `Killer` of your own with `by` to read its points or to add those of node bodies.
    """
    killer = by or Killer(at)
    store = opened.store
    wrapped = (
        BlockingKillingStore(store, store, killer)
        if isinstance(store, BlockingStore)
        else KillingStore(store, killer)
    )
    blobs = KillingBlobs(opened.blobs, killer) if opened.blobs is not None else None
    return Opened(wrapped, blobs, opened.url)


class _KillingRing:
    """A ring whose bytes are replaced between points; what runs emit is written beside them, on a thread."""

    def __init__(self, ring: LiveRing, killer: Points) -> None:
        self._ring = ring
        self._killer = killer

    def append(self, batches: Sequence[LiveBatch]) -> None:
        self._ring.append(batches)

    def read(self, after: Mapping[str, Offset], seconds: float) -> list[LiveBatch]:
        return self._ring.read(after, seconds)

    def write_logs(self, logs: Sequence[KeptLog]) -> None:
        self._ring.write_logs(logs)

    def read_logs(self, run_id: str, path: str | None = None) -> list[KeptLog]:
        return self._ring.read_logs(run_id, path)

    def recode(self, batches: Sequence[RecodedBatch], logs: Sequence[RecodedLog]) -> int:
        with self._killer.write("recode"):
            return self._ring.recode(batches, logs)

    def close(self) -> None:
        self._ring.close()


class KillingStore:
    """A store whose every write is surrounded by points. Reads, and what workers report, pass through."""

    def __init__(self, store: CheckpointStore, killer: Points) -> None:
        self._store = store
        self._killer = killer

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        with self._killer.write("put"):
            return await self._store.put(commits)

    async def lease(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> Lease:
        with self._killer.write("lease"):
            return await self._store.lease(
                run_id, owner=owner, ttl=ttl, process=process, void_epoch=void_epoch
            )

    async def renew(self, leases: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        with self._killer.write("renew"):
            return await self._store.renew(leases, ttl)

    async def release_lease(self, lease: Lease) -> None:
        with self._killer.write("release_lease"):
            await self._store.release_lease(lease)

    async def request_stop(
        self,
        run_id: str,
        wanted: StopRequest,
        note: bytes | None = None,
        *,
        head: int | None = None,
        audit: AuditRow | None = None,
    ) -> bool:
        with self._killer.write("request_stop"):
            return await self._store.request_stop(run_id, wanted, note, **_told(audit), **_at(head))

    async def settle(
        self,
        wait_id: str,
        *,
        by: SettledBy,
        answer: bytes | None,
        token_hash: bytes | None = None,
        at: datetime | None = None,
        details: bytes | None = None,
        was: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> tuple[bool, WaitRow | None]:
        with self._killer.write("settle"):
            return await self._store.settle(
                wait_id,
                by=by,
                answer=answer,
                token_hash=token_hash,
                at=at,
                details=details,
                was=was,
                **_told(audit),
            )

    async def send(
        self, run_id: str, signal: SignalRow, *, most: int = MOST_UNTAKEN, audit: AuditRow | None = None
    ) -> Sending:
        with self._killer.write("send"):
            return await cast("InboxStore", self._store).send(run_id, signal, most=most, **_told(audit))

    async def labels(self, run_ids: Sequence[str]) -> Mapping[str, Labels]:
        return await cast("LabelStore", self._store).labels(run_ids)

    async def tag(
        self,
        run_id: str,
        *,
        add: Sequence[Tag] = (),
        remove: Collection[str] = (),
        most: int = MOST_LABELS,
        head: int | None = None,
        audit: AuditRow | None = None,
    ) -> Tagging:
        with self._killer.write("tag"):
            change = cast("LabelStore", self._store).tag
            return await change(run_id, add=add, remove=remove, most=most, **_told(audit), **_at(head))

    @property
    def looks_every(self) -> float:
        return cast("PausingStore", self._store).looks_every

    @property
    def tells_pauses(self) -> bool:
        return cast("PausingStore", self._store).tells_pauses

    async def mark(
        self, run_id: str, *, was: str | None, mark: str | None, audit: AuditRow | None = None
    ) -> bool:
        with self._killer.write("mark"):
            change = cast("PausingStore", self._store).mark
            return await change(run_id, was=was, mark=mark, **_told(audit))

    async def pause_lane(self, lane: LanePause, *, audit: AuditRow | None = None) -> bool:
        with self._killer.write("pause_lane"):
            return await cast("PausingStore", self._store).pause_lane(lane, **_told(audit))

    async def unpause_lane(self, flow_id: str, group: str, *, audit: AuditRow | None = None) -> bool:
        with self._killer.write("unpause_lane"):
            return await cast("PausingStore", self._store).unpause_lane(flow_id, group, **_told(audit))

    async def held(self, run_ids: Collection[str]) -> Held:
        return await cast("PausingStore", self._store).held(run_ids)

    async def search(self, wanted: RunFilter, by: Search) -> SearchPage:
        return await cast("SearchingStore", self._store).search(wanted, by)

    async def tally(self, field: str) -> dict[str, int]:
        return await cast("SearchingStore", self._store).tally(field)

    async def inbox(
        self,
        run_id: str,
        *,
        name: str | None = None,
        after: int = 0,
        limit: int = 100,
        is_taken: bool = False,
    ) -> list[SignalRow]:
        ask = cast("InboxStore", self._store).inbox
        return await ask(run_id, name=name, after=after, limit=limit, is_taken=is_taken)

    def live(self) -> LiveRing:
        return _KillingRing(cast("LiveStore", self._store).live(), self._killer)

    async def recode_signals(self, run_id: str, signals: Sequence[RecodedSignal]) -> int:
        with self._killer.write("recode"):
            return await cast("InboxStore", self._store).recode_signals(run_id, signals)

    async def keep_event(self, event: EventRow, *, audit: AuditRow | None = None) -> list[str]:
        with self._killer.write("keep_event"):
            return await cast("EventStore", self._store).keep_event(event, **_told(audit))

    async def had_events(self, run_id: str) -> list[HadEvent]:
        return await cast("EventStore", self._store).had_events(run_id)

    async def settle_event(
        self, event: EventRow, topics: Collection[str], *, audit: AuditRow | None = None
    ) -> int:
        with self._killer.write("settle_event"):
            return await cast("EventStore", self._store).settle_event(event, topics, **_told(audit))

    async def fire(self, run_id: str) -> list[WaitRow]:
        with self._killer.write("fire"):
            return await self._store.fire(run_id)

    async def change_wait(
        self, wait_id: str, change: WaitChange, *, was: bytes | None = None, audit: AuditRow | None = None
    ) -> WaitRow | None:
        with self._killer.write("change_wait"):
            return await self._store.change_wait(wait_id, change, was=was, **_told(audit))

    async def claim_due(
        self,
        *,
        flows: Collection[tuple[str, str]],
        new_owner: Callable[[], str],
        ttl: timedelta,
        process: Process | None,
        limit: int,
        apart_from: Collection[str] = (),
        quotas: Mapping[str, Quota] | None = None,
    ) -> list[tuple[RunRow, Lease]]:
        with self._killer.write("claim_due"):
            return await self._store.claim_due(
                flows=flows,
                new_owner=new_owner,
                ttl=ttl,
                process=process,
                limit=limit,
                apart_from=apart_from,
                quotas=quotas,
            )

    async def lease_within(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        limits: Sequence[KeyLimit],
        void_epoch: int | None = None,
    ) -> Lease:
        with self._killer.write("lease_within"):
            return await cast("LimitingStore", self._store).lease_within(
                run_id, owner=owner, ttl=ttl, process=process, limits=limits, void_epoch=void_epoch
            )

    async def change_limit(self, key: str, change: LimitChange) -> Any:
        with self._killer.write("change_limit"):
            return await cast("LimitingStore", self._store).change_limit(key, change)

    async def limit_states(self, prefix: str, *, limit: int = 1000, after: str = "") -> dict[str, bytes]:
        return await cast("LimitingStore", self._store).limit_states(prefix, limit=limit, after=after)

    async def set_aside(self, run_id: str, *, epoch: int, reason: str, occasion: str = "") -> bool:
        with self._killer.write("set_aside"):
            if not occasion:
                return await self._store.set_aside(run_id, epoch=epoch, reason=reason)
            store = cast("NoticeStore", self._store)
            return await store.set_aside(run_id, epoch=epoch, reason=reason, occasion=occasion)

    async def notices(self, wanted: NoticeFilter) -> list[NoticeRow]:
        return await cast("NoticeStore", self._store).notices(wanted)

    async def told_of(self, run_id: str) -> Told:
        return await cast("NoticeStore", self._store).told_of(run_id)

    async def take_notices(
        self, notifiers: Collection[str], *, hold: timedelta, limit: int, run_id: str | None = None
    ) -> list[NoticeRow]:
        with self._killer.write("take_notices"):
            store = cast("NoticeStore", self._store)
            return await store.take_notices(notifiers, hold=hold, limit=limit, run_id=run_id)

    async def change_notice(
        self, row: NoticeRow, to: NoticeRow | None, *, audit: AuditRow | None = None
    ) -> bool:
        with self._killer.write("change_notice"):
            return await cast("NoticeStore", self._store).change_notice(row, to, **_told(audit))

    async def fence(self, run_id: str, by: int) -> bool:
        assert isinstance(self._store, FencingStore)
        with self._killer.write("fence"):
            return await self._store.fence(run_id, by)

    async def report(self, worker: WorkerRow, ttl: timedelta) -> None:
        await self._store.report(worker, ttl)

    async def leave(self, worker_id: str) -> None:
        await self._store.leave(worker_id)

    async def workers(self) -> list[WorkerRow]:
        return await self._store.workers()

    async def leased(self, owners: Collection[str] | None = None) -> list[RunRow]:
        return await self._store.leased(owners)

    async def ack(self, run_id: str, *, audit: AuditRow | None = None) -> None:
        with self._killer.write("ack"):
            await self._store.ack(run_id, **_told(audit))

    async def note_audit(self, row: AuditRow) -> None:
        with self._killer.write("note_audit"):
            await cast("AuditStore", self._store).note_audit(row)

    async def audit(self, wanted: AuditFilter) -> list[AuditRow]:
        return await cast("AuditStore", self._store).audit(wanted)

    async def forget_audit(self, *, before: datetime, limit: int = 1000) -> int:
        with self._killer.write("forget_audit"):
            return await cast("AuditStore", self._store).forget_audit(before=before, limit=limit)

    async def trim(self, run_id: str, *, before: int) -> int:
        with self._killer.write("trim"):
            return await self._store.trim(run_id, before=before)

    async def recode(self, run_id: str, records: Sequence[Recoded], waits: Sequence[RecodedWait] = ()) -> int:
        assert isinstance(self._store, RecodingStore)
        with self._killer.write("recode"):
            return await self._store.recode(run_id, records, waits)

    async def erase(
        self,
        run_id: str,
        *,
        head: int,
        reason: str,
        summary: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> Erasure:
        with self._killer.write("erase"):
            erase = self._retaining.erase
            return await erase(run_id, head=head, reason=reason, summary=summary, **_told(audit))

    async def restore(self, run: WholeRun) -> Restored:
        assert isinstance(self._store, RestoringStore)
        with self._killer.write("restore"):
            return await self._store.restore(run)

    async def tombstone(self, run_id: str) -> Tombstone | None:
        return await self._retaining.tombstone(run_id)

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        return await self._retaining.tombstones(wanted)

    async def forget(self, run_ids: Sequence[str]) -> int:
        with self._killer.write("forget"):
            return await self._retaining.forget(run_ids)

    async def pin(
        self, run_id: str, reason: str | None, *, head: int | None = None, audit: AuditRow | None = None
    ) -> bool:
        with self._killer.write("pin"):
            return await self._retaining.pin(run_id, reason, **_told(audit), **_at(head))

    async def note(self, removal: Removal) -> None:
        with self._killer.write("note"):
            await self._retaining.note(removal)

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        return await self._retaining.removals(limit=limit, before=before)

    async def tidy(self, *, limit: int = 1000) -> int:
        with self._killer.write("tidy"):
            return await self._retaining.tidy(limit=limit)

    @property
    def _retaining(self) -> RetainingStore:
        assert isinstance(self._store, RetainingStore)
        return self._store

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        return await self._store.get(run_id, first=first, last=last)

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        return await self._store.tail(run_id, at=at)

    async def run(self, run_id: str) -> RunRow | None:
        return await self._store.run(run_id)

    async def blueprint(self, flow_hash: str) -> bytes | None:
        return await self._store.blueprint(flow_hash)

    async def introduce(self, flow_id: str, flow_hash: str, blueprint: bytes) -> list[str]:
        with self._killer.write("introduce"):
            return await self._store.introduce(flow_id, flow_hash, blueprint)

    async def waits(self, wanted: WaitFilter) -> list[WaitRow]:
        return await self._store.waits(wanted)

    async def wait(self, wait_id: str) -> WaitRow | None:
        return await self._store.wait(wait_id)

    async def wait_of_token(self, token_hash: bytes) -> WaitRow | None:
        return await self._store.wait_of_token(token_hash)

    async def stop_note(self, run_id: str) -> bytes | None:
        return await self._store.stop_note(run_id)

    async def now(self) -> datetime | None:
        return await self._store.now() if isinstance(self._store, TimedStore) else None

    async def next_due(self, *, after: datetime | None = None) -> datetime | None:
        return await self._store.next_due(after=after)

    async def counts(self) -> Counts:
        return await self._store.counts()

    async def run_at(self, checkpoint_id: str) -> str | None:
        return await self._store.run_at(checkpoint_id)

    def changes(self) -> int:
        return self._store.changes()

    async def close(self) -> None:
        await self._store.close()

    async def list(self, wanted: RunFilter) -> list[RunRow]:
        return await self._store.list(wanted)


class BlockingKillingStore(KillingStore):
    """The same around a store that the runtime may call without awaiting."""

    def __init__(self, store: CheckpointStore, blocking: BlockingStore, killer: Points) -> None:
        super().__init__(store, killer)
        self._blocking = blocking

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        with self._killer.write("put"):
            return self._blocking.put_blocking(commits)

    def renew_blocking(self, leases: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        try:
            if not getattr(self._killer, "_is_over", False):
                with self._killer.write("renew"):
                    return self._blocking.renew_blocking(leases, ttl)
        except Crashed:
            pass
        # It is the drive that crashes, at its next write. The thread that keeps its lease renews nothing
        # more, and must not be the one that stops it.
        return list(leases)

    def release_blocking(self, lease: Lease) -> None:
        with self._killer.write("release_lease"):
            self._blocking.release_blocking(lease)

    def held_blocking(self, run_ids: Collection[str]) -> Held:
        return cast("BlockingPauses", self._store).held_blocking(run_ids)

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        self._blocking.report_blocking(worker, ttl)


class KillingBlobs:
    """Artifacts whose every write is surrounded by points."""

    def __init__(self, blobs: CheckpointBlobStore, killer: Points) -> None:
        self._blobs = blobs
        self._killer = killer

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        with self._killer.write("blob"):
            return self._blobs.put_checkpoint_blob(header, data, content_type=content_type, plain=plain)

    def restore_checkpoint_blob(self, ref: ArtifactRef, stored: bytes) -> None:
        assert isinstance(self._blobs, RestoringBlobs)
        with self._killer.write("blob"):
            self._blobs.restore_checkpoint_blob(ref, stored)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        return self._blobs.get_checkpoint_blob(ref)

    def list_checkpoint_blobs(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        assert isinstance(self._blobs, RetainingBlobStore)
        return self._blobs.list_checkpoint_blobs(after=after, limit=limit)

    def delete_checkpoint_blobs(self, keys: Sequence[str], *, untouched_for: timedelta) -> list[str]:
        assert isinstance(self._blobs, RetainingBlobStore)
        with self._killer.write("unblob"):
            return self._blobs.delete_checkpoint_blobs(keys, untouched_for=untouched_for)


class KillingSpool(Spool):
    """A spool whose every write is surrounded by points: `Host(..., spool=KillingSpool(folder, killer))`."""

    def __init__(self, folder: Path, killer: Points) -> None:
        super().__init__(folder)
        self._killer = killer

    def add(self, commit: Commit) -> None:
        with self._killer.write("spool"):
            super().add(commit)

    def drop(self, run_id: str, checkpoint_ids: Collection[str]) -> None:
        with self._killer.write("unspool"):
            super().drop(run_id, checkpoint_ids)
