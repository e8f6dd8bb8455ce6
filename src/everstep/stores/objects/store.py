"""The store on anything that keeps named bytes: a folder, a bucket, a repository."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import msgspec

from everstep.engine import leases
from everstep.engine.commits import judge_base
from everstep.errors import StoreError
from everstep.model.acts import AuditRow
from everstep.model.commits import MOST_LABELS, Labels, NoticeRow, Tag, Tagging, Told
from everstep.model.leases import KeyLimit, Lease, Process, Quota, WorkerRow
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.model.waits import (
    MOST_UNTAKEN,
    HadEvent,
    Sending,
    SettledBy,
    SignalRow,
    WaitChange,
    WaitRow,
    WaitStatus,
)
from everstep.on_demand import on_demand
from everstep.ports.events import EventRow, Wanted
from everstep.ports.health import Health
from everstep.ports.restoring import Restored, WholeRun
from everstep.ports.retention import TombstoneFilter
from everstep.ports.store import (
    Backlog,
    Capabilities,
    Commit,
    Counts,
    Recoded,
    RecodedSignal,
    RecodedWait,
    RunFilter,
    RunRow,
    StopRequest,
    StoredRecord,
    Verdict,
    WaitFilter,
)
from everstep.ports.system import Clock
from everstep.stores.objects import names
from everstep.stores.objects.blobs import ObjectBlobs
from everstep.stores.objects.bucket import Bucket
from everstep.stores.objects.claims import Claims, ObjectsWish
from everstep.stores.objects.drafts import Draft
from everstep.stores.objects.entries import read, sealed
from everstep.stores.objects.events import ObjectEvents
from everstep.stores.objects.keeping import RunKeeping, held, pause_lane, pin, take_notices, unpause_lane
from everstep.stores.objects.lines import Lines
from everstep.stores.objects.listing import RunListing
from everstep.stores.objects.logs import BucketLogs, Logs
from everstep.stores.objects.records import Records
from everstep.stores.objects.watch import BucketWatch
from everstep.stores.threads import Threads

if TYPE_CHECKING:
    from everstep.model.leases import Held, LanePause
    from everstep.ports.audit import AuditFilter
    from everstep.ports.limits import LimitChange
    from everstep.ports.notices import NoticeFilter
    from everstep.stores.objects.audit import ObjectAudit
else:
    ObjectAudit = on_demand("everstep.stores.objects.audit:ObjectAudit")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Backlogs = list[Backlog]
Hashes = list[str]
Notices = list[NoticeRow]
Runs = list[RunRow]
Workers = list[WorkerRow]
Waits = list[WaitRow]
Signals = list[SignalRow]
Settled = tuple[bool, WaitRow | None]


class Reported(msgspec.Struct, frozen=True):
    """What a worker said of itself, and until when that counts."""

    row: WorkerRow
    until: datetime


_reports = msgspec.msgpack.Decoder(Reported)


class ObjectStore:
    """Keeps each run as a log of objects, each written once; the slower writer looks and judges again."""

    capabilities = Capabilities(
        durable=True,
        single_writer=True,
        recodes=True,
        compares=True,
        takes_head=True,
        retains=True,
        restores=True,
        fences=True,
        has_inbox=True,
        has_events=True,
        audits=True,
        has_labels=True,
        pauses=True,
        has_children=True,
        limits=True,
        has_notices=True,
        undoes=True,
    )

    def __init__(self, bucket: Bucket, clock: Clock, *, poll: float = 1.0, logs: Logs | None = None) -> None:
        self.bucket = bucket
        if not bucket.is_local:
            self.capabilities = msgspec.structs.replace(self.capabilities, remote=True)
        self.lines = Lines(bucket, clock, logs or BucketLogs(bucket))
        self.records = Records(self.lines)
        self.keeping = RunKeeping(self.lines, self.records)
        self.artifacts = ObjectBlobs(bucket, clock)
        self._claims = Claims(self.lines)
        self._listing = RunListing(self.lines, self._claims)
        self._watch = BucketWatch(self.lines, poll)
        self._threads = Threads(16, "everstep-store")

    async def _aside(self, work: Callable[[*Ts], T], *given: *Ts) -> T:
        """Do some work here where it is short, else on a thread."""
        return work(*given) if self.bucket.is_local else await self._threads.run(partial(work, *given))

    # -- records ----------------------------------------------------------------

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        return await self._aside(self.put_blocking, commits)

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        if len(commits) == 1:
            return self._put_run((commits[0].run_id, commits, ()))
        by_run: dict[str, list[Commit]] = {}
        for commit in commits:
            by_run.setdefault(commit.run_id, []).append(commit)
        # Taken before any is written, so that runs and waits come in the order of the commits.
        each = [(run_id, found, self._numbers(found)) for run_id, found in by_run.items()]
        if any(_is_fork(commit) for commit in commits):
            judged = [self._put_run(item) for item in each]
        else:
            judged = self.lines.each(self._put_run, each)
        verdicts = {run_id: iter(found) for run_id, found in zip(by_run, judged, strict=True)}
        return [next(verdicts[commit.run_id]) for commit in commits]

    def _numbers(self, commits: Sequence[Commit]) -> Sequence[int]:
        needed = _needs(commits)
        return self.lines.logs.numbers(needed) if needed else ()

    def _put_steps(self, commits: Sequence[Commit]) -> bool:
        """Take in plain steps of one run in the quickest way; false if that cannot be."""
        return self.lines.put_steps(commits)

    def _put_run(self, item: tuple[str, Sequence[Commit], Sequence[int]]) -> list[Verdict]:
        run_id, commits, ticks = item
        if self._put_steps(commits):
            return [Verdict.ACCEPTED] * len(commits)

        def work(draft: Draft) -> list[Verdict]:
            verdicts = []
            for commit in commits:
                refused = self._judge_base(draft, commit) if _is_fork(commit) else None
                is_told, told = self._was_told(commit.audit), self._told_of_parent(commit)
                verdicts.append(refused or draft.put(commit, is_told=is_told, told=told))
            if draft.listening:
                self._events.hear(draft)
            return verdicts

        verdicts = self.lines.write(
            run_id, work, lambda sequence: self.records.checkpoint_at(run_id, sequence), ticks
        )
        if late := [wait.topic for c in commits if c.admission is not None and c.pairs for wait in c.waits]:
            self._events.hear_late(run_id, [one for one in map(Wanted.of, late) if one is not None])
        return verdicts

    def _told_of_parent(self, commit: Commit) -> Told | None:
        """Return who is told of the run that this commit forks, which was looked at just now."""
        if not _is_fork(commit) or commit.admission is None:
            return None
        parent = self.lines.known(commit.admission.parent_run_id or "").standing
        return None if parent is None else parent.told

    @cached_property
    def _events(self) -> ObjectEvents:
        return ObjectEvents(self.lines)

    @cached_property
    def _audit(self) -> ObjectAudit:
        return ObjectAudit(self.lines)

    async def note_audit(self, row: AuditRow) -> None:
        if not row.once or row.run_id is None:
            await self._aside(self._audit.add, row)
            return
        # In the log of the run, so that it comes before or after what it keeps from being done.
        if not await self._write(row.run_id, partial(self._told_first, row)):
            await self._aside(self._audit.add, row)

    def _told_first(self, row: AuditRow, draft: Draft) -> bool:
        if draft.exists and not self._audit.has(row):
            draft.tell(row)
        return draft.exists

    def _was_told(self, row: AuditRow | None) -> bool:
        """True of an act that is not to be done again, or at all, as its row is there."""
        return row is not None and row.once and self._audit.has(row)

    async def audit(self, wanted: AuditFilter) -> list[AuditRow]:
        return await self._aside(self._audit.list, wanted)

    async def forget_audit(self, *, before: datetime, limit: int = 1000) -> int:
        return await self._aside(self._audit.forget, before, limit)

    async def keep_event(self, event: EventRow, *, audit: AuditRow | None = None) -> Hashes:
        shapes = await self._aside(self._events.keep, event)
        if audit is not None:
            await self.note_audit(audit)
        return shapes

    async def had_events(self, run_id: str) -> list[HadEvent]:
        return await self._aside(lambda: self._listing.had_events(run_id))

    async def settle_event(
        self, event: EventRow, topics: Collection[str], *, audit: AuditRow | None = None
    ) -> int:
        settle = partial(self._events.settle, event, topics)
        # Many may wait, and each costs a write.
        settled = await self._threads.run(settle) if self.lines.logs.is_slow else settle()
        if audit is not None:
            await self.note_audit(audit)  # of no one run, so it rides in no log
        return settled

    def _judge_base(self, draft: Draft, commit: Commit) -> Verdict | None:
        """Return why a fork cannot be admitted; if it can, its base is pinned before it is."""
        admission = commit.admission
        assert admission is not None and admission.forked_at is not None
        if draft.judge_admission(commit) is not None:
            return None  # which the draft says
        parent_id = admission.parent_run_id or ""
        return self.keeping.pin_base(
            parent_id, commit.run_id, admission.forked_at, partial(judge_base, commit)
        )

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        return await self._aside(self.records.get, run_id, first, last)

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        return await self._aside(self.records.tail, run_id, at)

    async def trim(self, run_id: str, *, before: int) -> int:
        return await self._aside(self.records.trim, run_id, before)

    async def recode(self, run_id: str, records: Sequence[Recoded], waits: Sequence[RecodedWait] = ()) -> int:
        return await self._aside(self.records.recode, run_id, records, waits)

    # -- leases -----------------------------------------------------------------

    async def lease(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> Lease:
        return await self._write(run_id, lambda draft: draft.claim(owner, ttl, process, void_epoch))

    async def _write(self, run_id: str, work: Callable[[Draft], T]) -> T:
        return await self._aside(self.lines.write, run_id, work)

    async def _told_once(
        self,
        run_id: str,
        work: Callable[[Draft], T],
        done: T,
        audit: AuditRow | None,
        otherwise: Any = False,
    ) -> T:
        """Write, with a row of the audit log if it is done, and that once.

        What was so already may have been asked for by this very request, whose reply was lost: then the row
        is there.
        """
        left: AuditRow | None = None

        def told(draft: Draft) -> T:
            nonlocal left
            left = None
            if self._was_told(audit):
                moved: T = otherwise
                return moved
            outcome = work(draft)
            if outcome == done and (draft.is_changed or (audit is not None and audit.once)):
                draft.tell(audit)
            elif outcome == done:
                left = audit
            return outcome

        outcome = await self._write(run_id, told)
        if left is not None:
            await self.note_audit(left)
        return outcome

    async def renew(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        return await self._aside(self.renew_blocking, held, ttl)

    def renew_blocking(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        return self.lines.each(lambda lease: self._renew_one(lease, ttl), held)

    def _renew_one(self, lease: Lease, ttl: timedelta) -> Lease | Verdict:
        standing = self.lines.fresh(lease.run_id).standing
        longer = leases.renewed(
            standing.row.lease if standing is not None else None, lease, now=self.lines.now(), ttl=ttl
        )
        if standing is None or longer is None:
            return Verdict.FENCED
        if standing.row.stop_request is not None:
            return Verdict.STOP_REQUESTED
        self.lines.prolong(longer)
        return longer

    async def release_lease(self, lease: Lease) -> None:
        await self._aside(self.release_blocking, lease)

    def release_blocking(self, lease: Lease) -> None:
        self.lines.write(lease.run_id, lambda draft: draft.release(lease))

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
        wish = ObjectsWish(new_owner, ttl, process)
        return await self._aside(self._claims.claim_due, flows, wish, limit, apart_from, quotas or {})

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
        wish = ObjectsWish(lambda: owner, ttl, process)
        return await self._aside(self._claims.lease_within, run_id, wish, limits, void_epoch)

    async def change_limit(self, key: str, change: LimitChange) -> Any:
        return await self._aside(self._claims.change_limit, key, change)

    async def limit_states(self, prefix: str, *, limit: int = 1000, after: str = "") -> dict[str, bytes]:
        return await self._aside(self._claims.limit_states, prefix, limit, after)

    async def leased(self, owners: Collection[str] | None = None) -> Runs:
        return await self._aside(self._claims.leased, owners)

    async def set_aside(self, run_id: str, *, epoch: int, reason: str, occasion: str = "") -> bool:
        return await self._write(run_id, lambda draft: draft.set_aside(epoch, reason, occasion))

    async def notices(self, wanted: NoticeFilter) -> Notices:
        return await self._aside(self._listing.notices, wanted)

    async def told_of(self, run_id: str) -> Told:
        standing = (await self._aside(self.lines.fresh, run_id)).standing
        return {} if standing is None or standing.gone else standing.told or {}

    async def take_notices(
        self, notifiers: Collection[str], *, hold: timedelta, limit: int, run_id: str | None = None
    ) -> Notices:
        return await self._aside(take_notices, self.lines, notifiers, hold, limit, run_id)

    async def change_notice(
        self, row: NoticeRow, to: NoticeRow | None, *, audit: AuditRow | None = None
    ) -> bool:
        def work(draft: Draft) -> bool:
            is_changed = draft.change_notice(row, to)
            if is_changed:
                draft.tell(audit)
            return is_changed

        return await self._write(row.run_id, work)

    @property
    def looks_every(self) -> float:
        """Seconds between two looks at what is paused: a look elsewhere may be paid for."""
        return 0.25 if self.bucket.is_local else 60.0 if self.capabilities.rationed else 15.0

    @property
    def tells_pauses(self) -> bool:
        """True if the place counts its writes."""
        return self.bucket.is_local and self.bucket.changes() is not None

    async def mark(
        self, run_id: str, *, was: str | None, mark: str | None, audit: AuditRow | None = None
    ) -> bool:
        def work(draft: Draft) -> bool:
            is_marked = not self._was_told(audit) and draft.mark(was, mark)
            if is_marked:
                draft.tell(audit)
            return is_marked

        return await self._write(run_id, work)

    async def pause_lane(self, lane: LanePause, *, audit: AuditRow | None = None) -> bool:
        return await self._noted(await self._aside(pause_lane, self.lines, lane), audit)

    async def unpause_lane(self, flow_id: str, group: str, *, audit: AuditRow | None = None) -> bool:
        return await self._noted(await self._aside(unpause_lane, self.lines, flow_id, group), audit)

    async def _noted(self, is_done: bool, audit: AuditRow | None) -> bool:
        if audit is not None and is_done:
            await self.note_audit(audit)  # of no one run, so it rides in no log
        return is_done

    async def held(self, run_ids: Collection[str]) -> Held:
        return await self._aside(held, self.lines, run_ids)

    def held_blocking(self, run_ids: Collection[str]) -> Held:
        return held(self.lines, run_ids)

    async def fence(self, run_id: str, by: int) -> bool:
        return await self._write(run_id, lambda draft: draft.fence(by))

    async def request_stop(
        self,
        run_id: str,
        wanted: StopRequest,
        note: bytes | None = None,
        *,
        head: int | None = None,
        audit: AuditRow | None = None,
    ) -> bool:
        def work(draft: Draft) -> bool:
            return draft.request_stop(wanted, note or b"", head)

        return await self._told_once(run_id, work, True, audit)

    async def stop_note(self, run_id: str) -> bytes | None:
        standing = await self._aside(lambda: self.lines.fresh(run_id).standing)
        return standing.stop_note or None if standing is not None and standing.row.stop_request else None

    async def ack(self, run_id: str, *, audit: AuditRow | None = None) -> None:
        def work(draft: Draft) -> bool:
            draft.ack()
            return draft.exists

        await self._told_once(run_id, work, True, audit)

    # -- workers -----------------------------------------------------------------

    async def report(self, worker: WorkerRow, ttl: timedelta) -> None:
        await self._aside(self.report_blocking, worker, ttl)

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        now = self.lines.now()
        said = Reported(msgspec.structs.replace(worker, seen_at=now), now + ttl)
        self.bucket.put(names.worker_name(worker.worker_id), sealed(msgspec.msgpack.encode(said)))

    async def leave(self, worker_id: str) -> None:
        await self._aside(lambda: self.bucket.delete([names.worker_name(worker_id)]))

    async def workers(self) -> Workers:
        return await self._aside(self._workers)

    def _workers(self) -> Workers:
        now, alive, gone = self.lines.now(), [], []
        for name in self.bucket.names(names.WORKERS):
            found = self.bucket.get(name)
            said = None if found is None else read(_reports, found.data, name)
            if said is not None and said.until > now:
                alive.append(said.row)
            elif said is not None:
                gone.append(name)
        if gone:
            self.bucket.delete(gone)
        return sorted(alive, key=lambda worker: (worker.started_at, worker.worker_id))

    # -- runs and flows ------------------------------------------------------------

    async def run(self, run_id: str) -> RunRow | None:
        return await self._aside(self._seen, run_id)

    def _seen(self, run_id: str) -> RunRow | None:
        line = self.lines.fresh(run_id)
        self._watch.want(run_id, 0 if line.head is None else line.head.place)
        return self.lines.row(line)

    async def erase(
        self,
        run_id: str,
        *,
        head: int,
        reason: str,
        summary: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> Erasure:
        return await self._aside(self.keeping.erase, run_id, head, reason, summary, audit)

    async def tombstone(self, run_id: str) -> Tombstone | None:
        return await self._aside(self.keeping.tombstone, run_id)

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        return await self._aside(self.keeping.tombstones, wanted)

    async def forget(self, run_ids: Sequence[str]) -> int:
        return await self._aside(self.keeping.forget, run_ids)

    async def pin(
        self, run_id: str, reason: str | None, *, head: int | None = None, audit: AuditRow | None = None
    ) -> bool:
        return await self._told_once(run_id, partial(pin, reason=reason, head=head), True, audit)

    async def note(self, removal: Removal) -> None:
        await self._aside(self.keeping.note, removal)

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        return await self._aside(self.keeping.removals, limit, before)

    async def tidy(self, *, limit: int = 1000) -> int:
        return await self._aside(self.keeping.tidy, limit)

    async def restore(self, run: WholeRun) -> Restored:
        return await self._aside(self.keeping.restore, run)

    async def list(self, wanted: RunFilter) -> list[RunRow]:
        return await self._aside(self._listing.runs, wanted)

    async def counts(self) -> Counts:
        return await self._aside(self._listing.counts)

    async def backlog(self) -> Backlogs:
        return await self._aside(self._claims.backlog)

    async def run_at(self, checkpoint_id: str) -> str | None:
        return await self._aside(self._listing.run_at, checkpoint_id)

    async def blueprint(self, flow_hash: str) -> bytes | None:
        known = await self._aside(self.lines.flow, flow_hash)
        return None if known is None else known.blueprint

    async def introduce(self, flow_id: str, flow_hash: str, blueprint: bytes) -> Hashes:
        def work() -> Hashes:
            self.lines.keep_flow(flow_hash, blueprint)
            return self._listing.older_flows(flow_id, flow_hash)

        return await self._aside(work)

    # -- waits --------------------------------------------------------------------

    async def waits(self, wanted: WaitFilter) -> Waits:
        return await self._aside(self._listing.waits, wanted)

    async def wait(self, wait_id: str) -> WaitRow | None:
        return await self._aside(self._listing.wait, wait_id)

    async def wait_of_token(self, token_hash: bytes) -> WaitRow | None:
        return await self._aside(self._listing.wait_of_token, token_hash)

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
        def work(draft: Draft) -> Settled:
            is_ours = draft.settle(wait_id, by, answer, token_hash, at, details, was)
            if is_ours:
                draft.tell(audit)
            return is_ours, draft.wait(wait_id)

        missing: Settled = (False, None)
        return await self._aside(self._write_wait, wait_id, work, missing)

    async def change_wait(
        self, wait_id: str, change: WaitChange, *, was: bytes | None = None, audit: AuditRow | None = None
    ) -> WaitRow | None:
        def work(draft: Draft) -> WaitRow | None:
            is_done, now = draft.change_wait(wait_id, change, was)
            if is_done:
                draft.tell(audit)
            return now

        return await self._aside(lambda: self._write_wait(wait_id, work, None))

    def _write_wait(self, wait_id: str, work: Callable[[Draft], T], missing: T) -> T:
        line = self._listing.line_of_wait(wait_id)
        return missing if line is None else self.lines.write(line.run_id, work)

    async def send(
        self, run_id: str, signal: SignalRow, *, most: int = MOST_UNTAKEN, audit: AuditRow | None = None
    ) -> Sending:
        def work(draft: Draft) -> Sending:
            verdict = draft.send(signal, most)
            if verdict is Sending.SENT:
                draft.tell(audit)
            return verdict

        return await self._write(run_id, work)

    async def inbox(
        self,
        run_id: str,
        *,
        name: str | None = None,
        after: int = 0,
        limit: int = 100,
        is_taken: bool = False,
    ) -> Signals:
        return await self._aside(self._listing.inbox, run_id, name, after, limit, is_taken)

    async def labels(self, run_ids: Sequence[str]) -> dict[str, Labels]:
        return await self._aside(self._listing.labels, run_ids)

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
        def work(draft: Draft) -> Tagging:
            return draft.tag(add, remove, most, head)

        return await self._told_once(run_id, work, Tagging.TAGGED, audit, Tagging.MOVED)

    async def recode_signals(self, run_id: str, signals: Sequence[RecodedSignal]) -> int:
        return await self._write(run_id, lambda draft: draft.recode_signals(signals))

    async def fire(self, run_id: str) -> Waits:
        return await self._aside(self._fire, run_id)

    def _fire(self, run_id: str) -> Waits:
        self.lines.write(run_id, lambda draft: draft.fire())
        line = self.lines.known(run_id)
        marks = line.standing.waits if line.standing is not None else ()
        return [self.lines.wait(line, mark) for mark in marks if mark.status is WaitStatus.SETTLED]

    async def now(self) -> datetime | None:
        return await self._aside(self.lines.now)

    async def next_due(self, *, after: datetime | None = None) -> datetime | None:
        return await self._aside(self._claims.next_due, after)

    def changes(self) -> int:
        return self._watch.count()

    # -- the place -------------------------------------------------------------------

    async def health(self) -> Health:
        return await self._aside(self.bucket.health)

    async def write_probe(self) -> None:
        await self._aside(self._probe)

    def _probe(self) -> None:
        name = f"probes/{names.short(str(self.lines.tick()))}"
        if not self.bucket.create(name, b"probe"):
            raise StoreError(f"{self.bucket.place} refuses a name that is free.")
        self.bucket.delete([name])

    async def close(self) -> None:
        self._watch.close()
        self._threads.close(wait=False)
        self.lines.close()
        self.bucket.close()


def _is_fork(commit: Commit) -> bool:
    return commit.admission is not None and commit.admission.forked_at is not None


def _needs(commits: Sequence[Commit]) -> int:
    """Return how many ticks these take: one for a run that is admitted, and one for each wait."""
    return sum((commit.admission is not None) + len(commit.waits) for commit in commits)
