"""The store on one SQLite file. A put of a step is one statement and one page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
import msgspec

from everstep.codec.records import digest_of
from everstep.engine import leases
from everstep.engine.commits import (
    ends_stop_request,
    first_row,
    gives_back,
    judge,
    judge_admission,
    judge_base,
)
from everstep.engine.trimming import judge_erasure
from everstep.errors import LeaseConflict, StateCorrupted
from everstep.model.acts import AuditRow
from everstep.model.commits import MOST_LABELS, NO_LABELS, Labels, NoticeRow, Tag, Tagging, Told
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process, Quota, WorkerRow
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.model.waits import (
    EVENT_KIND,
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
from everstep.ports.restoring import Restored, WholeRun
from everstep.ports.retention import TombstoneFilter
from everstep.ports.store import (
    MOST_DUE,
    Admission,
    Adoption,
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
    TakenUp,
    Verdict,
    WaitFilter,
    no_such_run,
)
from everstep.ports.system import Clock
from everstep.stores.columns import process_text, read_removal, read_worker, to_int
from everstep.stores.sqlite.columns import (
    MOST_RUNS,
    SPAN,
    due_time,
    packed_structure,
    read_structure,
    run_row,
    run_values,
    tombstone,
)
from everstep.stores.sqlite.database import (
    brief_patience,
    explain,
    open_database,
    plainly,
    read_queries,
    roll_back,
    rows,
    transact,
)
from everstep.stores.sqlite.records import RecordTable
from everstep.stores.sqlite.room import LogRoom
from everstep.stores.sqlite.waits import SqliteWaits
from everstep.stores.tables import FoundRun

if TYPE_CHECKING:
    from everstep.engine.limits.keys import next_open
    from everstep.model.leases import Held, KeyLimit, LanePause
    from everstep.ports.audit import AuditFilter
    from everstep.ports.events import EventRow
    from everstep.ports.health import Health
    from everstep.ports.labels import Search, SearchPage
    from everstep.ports.limits import LimitChange
    from everstep.ports.live import LiveRing
    from everstep.ports.notices import NoticeFilter
    from everstep.stores.sqlite.audit import SqliteAudit
    from everstep.stores.sqlite.claims import SqliteDueRuns
    from everstep.stores.sqlite.events import SqliteEvents
    from everstep.stores.sqlite.health import look_at, write_and_remove
    from everstep.stores.sqlite.inbox import SqliteInbox
    from everstep.stores.sqlite.labels import SqliteLabels
    from everstep.stores.sqlite.limits import SqliteLimits
    from everstep.stores.sqlite.listing import list_runs
    from everstep.stores.sqlite.live import SqliteRing
    from everstep.stores.sqlite.notices import SqliteNotices
    from everstep.stores.sqlite.pausing import held, pause_lane, unpause_lane
    from everstep.stores.sqlite.restoring import restore
    from everstep.stores.sqlite.side_tables import SideTables
else:
    SqliteAudit = on_demand("everstep.stores.sqlite.audit:SqliteAudit")
    SqliteDueRuns = on_demand("everstep.stores.sqlite.claims:SqliteDueRuns")
    SqliteEvents = on_demand("everstep.stores.sqlite.events:SqliteEvents")
    SqliteInbox = on_demand("everstep.stores.sqlite.inbox:SqliteInbox")
    SqliteLabels = on_demand("everstep.stores.sqlite.labels:SqliteLabels")
    list_runs = on_demand("everstep.stores.sqlite.listing:list_runs")
    SqliteLimits = on_demand("everstep.stores.sqlite.limits:SqliteLimits")
    next_open = on_demand("everstep.engine.limits.keys:next_open")
    look_at = on_demand("everstep.stores.sqlite.health:look_at")
    held = on_demand("everstep.stores.sqlite.pausing:held")
    pause_lane = on_demand("everstep.stores.sqlite.pausing:pause_lane")
    unpause_lane = on_demand("everstep.stores.sqlite.pausing:unpause_lane")
    restore = on_demand("everstep.stores.sqlite.restoring:restore")
    SqliteRing = on_demand("everstep.stores.sqlite.live:SqliteRing")
    SqliteNotices = on_demand("everstep.stores.sqlite.notices:SqliteNotices")
    SideTables = on_demand("everstep.stores.sqlite.side_tables:SideTables")
    write_and_remove = on_demand("everstep.stores.sqlite.health:write_and_remove")

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Hashes = list[str]
Names = list[str]
Notices = list[NoticeRow]
Claims = list[tuple[RunRow, Lease]]
Runs = list[RunRow]
Workers = list[WorkerRow]
_ACCEPTED = Verdict.ACCEPTED


class SqliteStore:
    """Many clients in many processes may use one file; writes are one transaction each."""

    capabilities = Capabilities(
        durable=True,
        single_writer=True,
        recodes=True,
        compares=True,
        takes_head=True,
        retains=True,
        restores=True,
        fences=True,
        live=True,
        has_inbox=True,
        has_events=True,
        audits=True,
        has_labels=True,
        pauses=True,
        has_children=True,
        undoes=True,
        searches=True,
        limits=True,
        has_notices=True,
    )
    looks_every = 0.25
    tells_pauses = True

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        synchronous: str = "FULL",
        create: bool = True,
        vfs: str | None = None,
    ) -> None:
        self.path = path
        self._clock = clock
        self._options = {"synchronous": synchronous, "create": create, "vfs": vfs}
        self._sql = read_queries()
        self._put_sql = self._sql["put"]
        self._lock = threading.Lock()
        self._db = open_database(path, synchronous=synchronous, create=create, vfs=vfs)
        self._put_record = self._db.cursor().execute  # one cursor for all of them
        self._db.create_scalar_function("digest_of", digest_of, 1)  # type: ignore[arg-type]  # called with blobs only
        syncs_each_commit = synchronous in ("FULL", "EXTRA") and vfs is None
        self._room = LogRoom(self._db, path) if syncs_each_commit else None
        self._waits = SqliteWaits(self._db, self._sql)
        self._records = RecordTable(self._db, self._sql, path)
        self._keys: dict[str, int] = {}
        self._heads: dict[str, tuple[int, str]] = {}
        """The newest record this client wrote to each run, so that its base need not be looked up."""
        self._waitless: set[str] = set()
        """Runs that this client admitted and of which it wrote every record, none of them with a wait."""
        self._known_flows: set[str] = set()
        self._renewals: apsw.Connection | None = None
        self._renewing = threading.Lock()
        self._counts: apsw.Connection | None = None
        self._counting = threading.Lock()
        self._watch: apsw.Connection | None = None
        self._watch_lock = threading.Lock()

    @cached_property
    def _due(self) -> SqliteDueRuns:
        return SqliteDueRuns(self._db, self._sql, lambda: self._limits)

    @cached_property
    def _limits(self) -> SqliteLimits:
        return SqliteLimits(self._db, self._sql, self._side)

    @cached_property
    def _side(self) -> SideTables:
        return SideTables(self._db, self.path)

    @cached_property
    def _inbox(self) -> SqliteInbox:
        return SqliteInbox(self._db, self._sql, self._side, self._waits)

    @cached_property
    def _events(self) -> SqliteEvents:
        return SqliteEvents(self._db, self._sql, self._side, self._waits)

    @cached_property
    def _audit(self) -> SqliteAudit:
        return SqliteAudit(self._db, self._sql, self._side)

    def _audited(self, row: AuditRow, work: Callable[[], T]) -> T:
        """Do some work, and keep who did it in the same transaction unless there was nothing to do."""

        def both() -> T:
            done = work()
            if done:
                self._audit.add(row, self._clock.now())
            return done

        return self._in_transaction(both)

    def _was_told(self, row: AuditRow | None) -> bool:
        """True of an act that is not to be done again, or at all, as its row is there."""
        return row is not None and row.once and self._audit.has(row.audit_id)

    async def note_audit(self, row: AuditRow) -> None:
        with self._lock, plainly(self.path):
            self._audited(row, lambda: True)

    async def audit(self, wanted: AuditFilter) -> list[AuditRow]:
        with self._lock, plainly(self.path):
            return self._audit.list(wanted)

    async def forget_audit(self, *, before: datetime, limit: int = 1000) -> int:
        with self._lock, plainly(self.path):
            return self._audit.forget(before, limit)

    @cached_property
    def _labels(self) -> SqliteLabels:
        return SqliteLabels(self._db, self._side)

    def _listen(self, commit: Commit, key: int) -> None:
        """Take the signals that a commit names, and bring its waits and what they listen for together."""
        now = self._clock.now()
        self._inbox.follow(key, commit, now)
        if any(wait.kind == EVENT_KIND for wait in commit.waits):
            self._events.pair(key, now)

    async def keep_event(self, event: EventRow, *, audit: AuditRow | None = None) -> Names:
        def keep() -> Names:
            if audit is not None:
                self._audit.add(audit, self._clock.now())
            return self._events.keep(event, self._clock.now())

        with self._lock, plainly(self.path):
            return self._in_transaction(keep)

    async def had_events(self, run_id: str) -> list[HadEvent]:
        with self._lock, plainly(self.path):
            return self._events.had(run_id)

    async def settle_event(
        self, event: EventRow, topics: Collection[str], *, audit: AuditRow | None = None
    ) -> int:
        def settle() -> int:
            if audit is not None:
                self._audit.add(audit, self._clock.now())
            return self._events.settle(event, topics, self._clock.now())

        with self._lock, plainly(self.path):
            return self._in_transaction(settle)

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        return self.put_blocking(commits)

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        with self._lock:
            if not (commits and commits[0].hurries and all(commit.hurries for commit in commits)):
                return self._put(commits)
            with brief_patience(self._db):
                return self._put(commits)

    def _put(self, commits: Sequence[Commit]) -> list[Verdict]:
        try:
            if self._db.in_transaction:
                roll_back(self._db)
            if len(commits) == 1 and commits[0].is_plain:
                verdicts = [self._put_one(commits[0])]
            else:
                verdicts = self._in_transaction(partial(self._put_each, commits))
            if self._room is not None and self._room.is_short:
                self._room.extend()
            return verdicts
        except BaseException as error:
            self._forget_everything()
            if isinstance(error, apsw.Error):
                raise explain(error, self.path) from error
            raise

    def _put_each(self, commits: Sequence[Commit]) -> list[Verdict]:
        return [self._put_one(commit) for commit in commits]

    def _put_one(self, commit: Commit) -> Verdict:
        if commit.admission is not None:
            return self._admit(commit)
        run_id, sequence = commit.run_id, commit.sequence
        key = self._keys.get(run_id) or self._key_of(run_id)
        if key is None:
            return Verdict.UNKNOWN_RUN
        position = key * SPAN + sequence
        if commit.audit is not None and self._was_told(commit.audit):
            return self._diagnose(commit, key, position, is_told=True)
        if self._heads.get(run_id) != (sequence - 1, commit.base):
            self._waitless.discard(run_id)
            if not self._is_at(position - 1, commit.base):
                return self._diagnose(commit, key, position)
        self._put_record(
            self._put_sql,
            (
                position,
                commit.checkpoint_id,
                commit.keyframe,
                commit.body,
                key,
                commit.epoch,
                commit.answers_stop,
            ),
        )
        if self._db.changes() != 1:
            return self._diagnose(commit, key, position)
        self._heads[run_id] = (sequence, commit.checkpoint_id)
        if commit.waits or commit.closed:
            self._waitless.discard(run_id)
            self._waits.take(key, commit)
        if commit.status is not None:
            self._change_status(commit, key, commit.status)
        if commit.adopts is not None:
            self._adopt(key, sequence, commit.adopts)
        if commit.taken or commit.pairs:
            self._listen(commit, key)
        if commit.audit is not None:
            self._audit.add(commit.audit, self._clock.now())
        if commit.attributes:
            self._labels.set(key, (), commit.attributes)
        if commit.tells:
            self._notices.tell(key, commit.tells, self._clock.now())
        if commit.undoing is not None:
            self._labels.set_undoing(key, commit.undoing)
            self._db.execute(self._sql["end_stop_request"], (key,))
        return _ACCEPTED

    def _adopt(self, key: int, sequence: int, to: Adoption) -> None:
        self._db.execute(self._sql["keep_blueprint"], (to.flow_hash, packed_structure(to.blueprint)))
        self._db.execute(self._sql["adopt"], (key, to.flow_version, to.flow_hash, sequence))

    def _change_status(self, commit: Commit, key: int, status: Status) -> None:
        is_over = gives_back(status)
        values = (key, str(status), to_int(commit.ended_at), is_over, ends_stop_request(commit))
        self._db.execute(self._sql["change_status"], values)
        if commit.run_id not in self._waitless:
            self._waits.follow(key, status)
        if is_over:
            self._forget(commit.run_id)

    def _is_at(self, position: int, checkpoint_id: str | None) -> bool:
        return rows(self._db, self._sql["checkpoint_id"], (position,)) == [(checkpoint_id,)]

    def _forget_everything(self) -> None:
        """Drop what this client remembers: it may have been rolled back."""
        self._keys.clear()
        self._heads.clear()
        self._waitless.clear()
        self._known_flows.clear()

    def _forget(self, run_id: str) -> None:
        self._heads.pop(run_id, None)
        self._keys.pop(run_id, None)
        self._waitless.discard(run_id)

    def _diagnose(self, commit: Commit, key: int, position: int, *, is_told: bool = False) -> Verdict:
        """Say why a put was refused. One that is already there was accepted; its reply was lost."""
        found = rows(self._db, self._sql["diagnose"], (key, position))
        if not found:
            return Verdict.UNKNOWN_RUN
        epoch, stop_request, here, before = found[0]
        verdict = judge(
            commit, epoch=epoch, stop_request=stop_request, before=before, here=here, is_told=is_told
        )
        return verdict or Verdict.MOVED  # as it was when it was written

    def _admit(self, commit: Commit) -> Verdict:
        a = commit.admission
        assert a is not None
        db, sql = self._db, self._sql
        if a.forked_at is not None:
            refused = self._taken(commit) or self._judge_base(commit, a)
            if refused is not None:
                return refused
        if a.started_by is not None:
            self._side.need()  # it has the index by which such runs are found
        db.execute(sql["insert_run"], run_values(first_row(commit, self._clock.now()), commit.epoch))
        if db.changes() != 1:
            return self._taken(commit) or Verdict.EXISTS
        key = db.last_insert_rowid()
        if key >= MOST_RUNS:
            raise StateCorrupted(f"{self.path} has no number left for a run: that of one was altered.")
        position = key * SPAN + commit.sequence
        db.execute(sql["first_put"], (position, commit.checkpoint_id, commit.keyframe, commit.body))
        if a.flow_hash not in self._known_flows:
            db.execute(sql["keep_blueprint"], (a.flow_hash, packed_structure(a.blueprint)))
            self._known_flows.add(a.flow_hash)
        self._remember(commit.run_id, key)
        self._heads[commit.run_id] = (commit.sequence, commit.checkpoint_id)
        if a.told:
            self._notices.admit(key, a.told)
        if commit.tells:
            self._notices.tell(key, commit.tells, self._clock.now())
        if commit.waits or commit.closed:
            self._waits.take(key, commit)
        else:
            self._waitless.add(commit.run_id)
        if commit.status not in (None, Status.RUNNING):
            self._change_status(commit, key, commit.status)
        if commit.pairs:
            self._listen(commit, key)
        if commit.audit is not None:
            self._audit.add(commit.audit, self._clock.now())
        if a.tags or commit.attributes:
            self._labels.set(key, a.tags, commit.attributes)
        if a.had:
            self._events.restore(commit.run_id, a.had)
        return Verdict.ACCEPTED

    def _taken(self, commit: Commit) -> Verdict | None:
        """Return the verdict on an admission whose id is taken; none if it is free."""
        found = rows(self._db, self._sql["first_id"], (commit.run_id,))
        first, is_erased = found[0]
        return judge_admission(commit, first=first, is_erased=bool(is_erased))

    def _judge_base(self, commit: Commit, admission: Admission) -> Verdict | None:
        """Return why a fork cannot be admitted; none if it can."""
        found = rows(self._db, self._sql["base"], (admission.parent_run_id, admission.forked_at))
        base, is_whole = found[0] if found else (None, False)
        return judge_base(commit, has_parent=bool(found), base=base if is_whole else None)

    def _key_of(self, run_id: str) -> int | None:
        key = self._keys.get(run_id)
        if key is None:
            found = rows(self._db, self._sql["run_key"], (run_id,))
            if not found:
                return None
            key = found[0][0]
            self._remember(run_id, key)
        return key

    def _remember(self, run_id: str, key: int) -> None:
        if len(self._keys) > 10_000:
            self._keys.clear()
            self._heads.clear()
            self._waitless.clear()
        self._keys[run_id] = key

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        with self._lock, plainly(self.path):
            return self._read(run_id, lambda key: self._records.between(key, first, last))

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        with self._lock, plainly(self.path):
            return self._read(run_id, lambda key: self._records.tail(key, at))

    def _read(self, run_id: str, read: Callable[[int], list[StoredRecord]]) -> list[StoredRecord]:
        is_remembered = run_id in self._keys
        key = self._key_of(run_id)
        found = [] if key is None else read(key)
        if found or not is_remembered:
            return found
        self._forget(run_id)  # it may have been erased, and its id be another run's by now
        key = self._key_of(run_id)
        return [] if key is None else read(key)

    async def trim(self, run_id: str, *, before: int) -> int:
        with self._lock, plainly(self.path):
            trimmed = self._in_transaction(lambda: self._records.trim(run_id, before))
        if trimmed is None:
            raise no_such_run(run_id)
        return trimmed

    async def recode(self, run_id: str, records: Sequence[Recoded], waits: Sequence[RecodedWait] = ()) -> int:
        with self._lock, plainly(self.path):
            key = self._key_of(run_id)
            if key is None:
                raise no_such_run(run_id)
            return self._in_transaction(
                lambda: self._records.recode(key, records) + self._waits.recode(waits)
            )

    async def restore(self, run: WholeRun) -> Restored:
        with self._lock, plainly(self.path):
            return self._in_transaction(lambda: self._restore(run))

    def _restore(self, run: WholeRun) -> Restored:
        if run.row.started_by is not None:
            self._side.need()
        restored: Restored = restore(self._db, self._sql, run, self._restore_more)
        if run.audit is not None and restored is Restored.RESTORED:
            self._audit.add(run.audit, self._clock.now())
        return restored

    def _restore_more(self, key: int, run: WholeRun) -> None:
        if run.inbox or run.had:
            self._inbox.restore(key, run.inbox)
            self._events.restore(run.row.run_id, run.had)
        if run.labels != NO_LABELS:
            self._labels.set(key, run.labels.tags, run.labels.attributes)
            if run.labels.undoing:
                self._labels.set_undoing(key, run.labels.undoing)
        if run.told:
            self._notices.admit(key, run.told)
        if run.notices:
            self._notices.tell(key, run.notices, self._clock.now())

    async def lease(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> Lease:
        with self._lock, plainly(self.path):
            now = self._clock.now()
            granted: Lease = self._in_transaction(
                lambda: self._claim(run_id, owner, now, ttl, process, void_epoch)[1]
            )
            return granted

    async def take_up(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> TakenUp:
        def claim() -> TakenUp:
            row, granted = self._claim(run_id, owner, self._clock.now(), ttl, process, void_epoch)
            return TakenUp(granted, row, self._records.tail(self._keys[run_id], None))

        with self._lock, plainly(self.path):
            taken: TakenUp = self._in_transaction(claim)
            return taken

    def _claim(
        self,
        run_id: str,
        owner: str,
        now: datetime,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> tuple[RunRow, Lease]:
        found = rows(self._db, self._sql["run"], (run_id,))
        if not found:
            raise no_such_run(run_id)
        row, held = run_row(found[0]), FoundRun.of(found[0]).held
        self._keys[run_id] = found[0][0]
        granted = leases.claim(
            row.lease,
            run_id=run_id,
            owner=owner,
            process=process,
            now=now,
            ttl=ttl,
            newest_epoch=held.epoch,
            has_progressed=row.checkpoints > held.claimed_sequence,
            void_epoch=void_epoch,
        )
        self._db.execute(
            self._sql["claim"],
            (
                found[0][0],
                granted.epoch,
                owner,
                to_int(granted.expires_at),
                process_text(process),
                granted.takeovers,
                row.checkpoints,
            ),
        )
        return msgspec.structs.replace(row, lease=granted), granted

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
    ) -> Claims:
        def claim() -> Claims:
            now = self._clock.now()
            claimed: Claims = []
            for run_id in self._due.choose(now, flows, apart_from, limit, quotas or {}):
                try:
                    claimed.append(self._claim(run_id, new_owner(), now, ttl, process))
                except LeaseConflict:
                    continue  # only the time was set ahead: its owner has renewed it since boot
                except StateCorrupted as error:  # one altered row keeps no others from being driven
                    self._db.execute(self._sql["spoil"], (run_id, error.message))
                    continue
                self._waits.settle_due(run_id, now)
            if self._due.keys is not None:
                self._due.keep_starts(claimed)
            return claimed

        with self._lock, plainly(self.path):
            # Looking needs no lock on the file, so idle workers disturb no writer.
            now = self._clock.now()
            if not self._due.choose(now, flows, apart_from, min(limit, 1), quotas or {}, looks_only=True):
                return []
            return self._in_transaction(claim)

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
        def claim() -> Lease:
            now = self._clock.now()
            self._due.check_room(run_id, limits, now)
            row, granted = self._claim(run_id, owner, now, ttl, process, void_epoch)
            self._due.keep_starts([(row, granted)])
            return granted

        with self._lock, plainly(self.path):
            return self._in_transaction(claim)

    async def change_limit(self, key: str, change: LimitChange) -> Any:
        with self._lock, plainly(self.path):
            return self._in_transaction(lambda: self._limits.change(key, change, self._clock.now()))

    async def limit_states(self, prefix: str, *, limit: int = 1000, after: str = "") -> dict[str, bytes]:
        with self._lock, plainly(self.path):
            return self._limits.states(prefix, limit, after)

    async def renew(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        return self.renew_blocking(held, ttl)

    def renew_blocking(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        """Prolong leases on a connection of their own, so that a busy writer does not delay them."""
        with self._renewing, plainly(self.path):
            return [self._renew_one(self._for_renewals(), lease, ttl) for lease in held]

    def release_blocking(self, lease: Lease) -> None:
        with self._renewing, plainly(self.path):
            self._for_renewals().execute(self._sql["release"], (lease.run_id, lease.epoch))

    def _for_renewals(self) -> apsw.Connection:
        if self._renewals is None:
            self._renewals = self._open_another()
        return self._renewals

    def _open_another(self) -> apsw.Connection:
        return open_database(self.path, **{**self._options, "create": False})  # type: ignore[arg-type]  # the options are those of __init__

    def _renew_one(self, db: apsw.Connection, lease: Lease, ttl: timedelta) -> Lease | Verdict:
        longer = leases.renewed(lease, lease, now=self._clock.now(), ttl=ttl)
        assert longer is not None
        process = process_text(longer.process)
        about = (lease.run_id, lease.epoch, lease.owner, to_int(longer.expires_at), process)
        db.execute(self._sql["renew"], about)
        if db.changes() == 1:
            return longer
        found = rows(db, self._sql["run"], (lease.run_id,))
        held = run_row(found[0]) if found else None
        is_ours = held is not None and held.lease is not None and held.lease.epoch == lease.epoch
        return Verdict.STOP_REQUESTED if is_ours else Verdict.FENCED

    async def release_lease(self, lease: Lease) -> None:
        self._execute("release", (lease.run_id, lease.epoch))

    async def leased(self, owners: Collection[str] | None = None) -> Runs:
        found = [run_row(row) for row in self._execute("leased_runs", (to_int(self._clock.now()),))]
        return [row for row in found if owners is None or (row.lease and row.lease.owner in owners)]

    async def set_aside(self, run_id: str, *, epoch: int, reason: str, occasion: str = "") -> bool:
        def aside() -> bool:
            self._db.execute(self._sql["set_aside"], (run_id, epoch, reason))
            is_marked = self._db.changes() == 1
            key = self._key_of(run_id) if is_marked and occasion and self._side.are_there() else None
            if key is not None:
                self._notices.tell(key, (NoticeRow(occasion=occasion),), self._clock.now())
            return is_marked

        with self._lock, plainly(self.path):
            return self._in_transaction(aside) if occasion else aside()

    @cached_property
    def _notices(self) -> SqliteNotices:
        return SqliteNotices(self._db, self._side)

    async def notices(self, wanted: NoticeFilter) -> Notices:
        with self._lock, plainly(self.path):
            return self._notices.listed(wanted)

    async def told_of(self, run_id: str) -> Told:
        with self._lock, plainly(self.path):
            return self._notices.told_of(run_id)

    async def take_notices(
        self, notifiers: Collection[str], *, hold: timedelta, limit: int, run_id: str | None = None
    ) -> Notices:
        now = self._clock.now()
        with self._lock, plainly(self.path):
            if not self._notices.has_due(now):
                return []
            return self._in_transaction(partial(self._notices.take, notifiers, hold, limit, run_id, now))

    async def change_notice(
        self, row: NoticeRow, to: NoticeRow | None, *, audit: AuditRow | None = None
    ) -> bool:
        return self._do(audit, partial(self._notices.change, row, to))

    async def mark(
        self, run_id: str, *, was: str | None, mark: str | None, audit: AuditRow | None = None
    ) -> bool:
        def change() -> bool:
            if self._was_told(audit):
                return False
            self._db.execute(self._sql["mark"], (run_id, was, mark))
            return self._db.changes() == 1

        return self._do(audit, change)

    async def pause_lane(self, lane: LanePause, *, audit: AuditRow | None = None) -> bool:
        return self._do(audit, partial(pause_lane, self._db, self._sql, self._side, lane))

    async def unpause_lane(self, flow_id: str, group: str, *, audit: AuditRow | None = None) -> bool:
        return self._do(audit, partial(unpause_lane, self._db, self._sql, self._side, flow_id, group))

    def _do(self, audit: AuditRow | None, work: Callable[[], bool]) -> bool:
        with self._lock, plainly(self.path):
            return self._in_transaction(work) if audit is None else self._audited(audit, work)

    async def held(self, run_ids: Collection[str]) -> Held:
        return self.held_blocking(run_ids)

    def held_blocking(self, run_ids: Collection[str]) -> Held:
        """Look on the connection for leases, so that a busy writer does not delay it."""
        with self._renewing, plainly(self.path):
            db = self._for_renewals()
            return held(db, self._sql, SideTables(db, self.path), run_ids)

    async def fence(self, run_id: str, by: int) -> bool:
        with self._lock, plainly(self.path):
            self._db.execute(self._sql["fence"], (run_id, by))
            return self._db.changes() == 1

    async def report(self, worker: WorkerRow, ttl: timedelta) -> None:
        self.report_blocking(worker, ttl)

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        now, details = self._clock.now(), msgspec.json.encode(worker)
        said = (to_int(worker.started_at), to_int(now), to_int(now + ttl), details)
        with self._renewing, plainly(self.path):
            db = self._for_renewals()
            # Those that said nothing for too long are forgotten on the way.
            db.execute(self._sql["forget_workers"], (to_int(now),))
            db.execute(self._sql["report"], (worker.worker_id, *said))

    async def leave(self, worker_id: str) -> None:
        self._execute("leave", (worker_id,))

    async def workers(self) -> Workers:
        return [read_worker(*row) for row in self._execute("workers", (to_int(self._clock.now()),))]

    async def run(self, run_id: str) -> RunRow | None:
        found = self._execute("run", (run_id,))
        return run_row(found[0]) if found else None

    async def blueprint(self, flow_hash: str) -> bytes | None:
        for (structure,) in self._execute("blueprint", (flow_hash,)):
            return read_structure(bytes(structure))
        return None

    async def request_stop(
        self,
        run_id: str,
        wanted: StopRequest,
        note: bytes | None = None,
        *,
        head: int | None = None,
        audit: AuditRow | None = None,
    ) -> bool:
        with self._lock, plainly(self.path):
            if audit is not None:
                ask = partial(self._request_stop, run_id, wanted, note, head)
                return self._audited(audit, lambda: not self._was_told(audit) and ask())
            return self._in_transaction(lambda: self._request_stop(run_id, wanted, note, head))

    def _has_head(self, run_id: str, head: int | None) -> bool:
        """True if the newest record of a run has this sequence, or none is asked for."""
        if head is None:
            return True
        found = rows(self._db, self._sql["run"], (run_id,))
        return bool(found) and run_row(found[0]).checkpoints == head

    def _request_stop(self, run_id: str, wanted: StopRequest, note: bytes | None, head: int | None) -> bool:
        if not self._has_head(run_id, head):
            return False
        self._db.execute(self._sql["request_stop"], (run_id, wanted.value))
        if self._db.changes() != 1:
            return False
        if note is not None:
            self._db.execute(self._sql["make_stop_notes"])
            self._db.execute(self._sql["note_stop"], (run_id, note))
        else:
            self._drop_stop_note(run_id)
        return True

    async def stop_note(self, run_id: str) -> bytes | None:
        if not self._execute("has_stop_notes", ()):
            return None
        found = self._execute("stop_note", (run_id,))
        return bytes(found[0][0]) if found else None

    def changes(self) -> int:
        """Ask on a connection of its own, so that a busy writer does not delay the answer."""
        with self._watch_lock, plainly(self.path):
            if self._watch is None:
                self._watch = self._open_another()
            return int(rows(self._watch, "PRAGMA data_version")[0][0])

    async def introduce(self, flow_id: str, flow_hash: str, blueprint: bytes) -> Hashes:
        with self._lock, plainly(self.path):
            self._db.execute(self._sql["keep_blueprint"], (flow_hash, packed_structure(blueprint)))
            return [h for (h,) in rows(self._db, self._sql["older_structures"], (flow_id, flow_hash))]

    async def counts(self) -> Counts:
        return Counts(runs=dict(self._count("runs_by_status")), waits=dict(self._count("open_waits_by_kind")))

    async def backlog(self) -> list[Backlog]:
        now = self._clock.now()
        return [
            Backlog(flow_id=flow_id, flow_hash=flow_hash, many=many, since=due_time(since) or now)
            for flow_id, flow_hash, many, since in self._count("backlog", (to_int(now), MOST_DUE))
        ]

    def _count(self, query: str, bindings: tuple[Any, ...] = ()) -> Rows:
        """Count on a connection of its own: what takes time holds up no commit."""
        with self._counting, plainly(self.path):
            if self._counts is None:
                self._counts = self._open_another()
            return rows(self._counts, self._sql[query], bindings)

    async def run_at(self, checkpoint_id: str) -> str | None:
        found = self._execute("run_at", (checkpoint_id,))
        return str(found[0][0]) if found else None

    async def ack(self, run_id: str, *, audit: AuditRow | None = None) -> None:
        def acknowledge() -> bool:
            self._db.execute(self._sql["ack"], (run_id, to_int(self._clock.now())))
            return True

        with self._lock, plainly(self.path):
            if audit is not None:
                self._audited(audit, acknowledge)
            else:
                acknowledge()

    def _execute(self, query: str, bindings: tuple[Any, ...]) -> Rows:
        with self._lock, plainly(self.path):
            return rows(self._db, self._sql[query], bindings)

    def _in_transaction(self, work: Callable[[], T]) -> T:
        try:
            return transact(self._db, work)
        except BaseException:
            if "_side" in vars(self):
                self._side.forget()
            raise

    async def waits(self, wanted: WaitFilter) -> list[WaitRow]:
        with self._lock, plainly(self.path):
            return self._waits.list(wanted)

    async def wait(self, wait_id: str) -> WaitRow | None:
        with self._lock, plainly(self.path):
            return self._waits.get(wait_id)

    async def wait_of_token(self, token_hash: bytes) -> WaitRow | None:
        with self._lock, plainly(self.path):
            return self._waits.of_token(token_hash)

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
        with self._lock, plainly(self.path):
            now = at or self._clock.now()
            given = (wait_id, by, answer, token_hash, now, details, was)
            if audit is not None:
                done = self._audited(audit, lambda: self._waits.settle(*given))
            else:
                done = self._in_transaction(lambda: self._waits.settle(*given))
            return done, self._waits.get(wait_id)

    async def send(
        self, run_id: str, signal: SignalRow, *, most: int = MOST_UNTAKEN, audit: AuditRow | None = None
    ) -> Sending:
        def send() -> Sending:
            verdict = self._inbox.send(run_id, signal, most, self._clock.now())
            if audit is not None and verdict is Sending.SENT:
                self._audit.add(audit, self._clock.now())
            return verdict

        with self._lock, plainly(self.path):
            return self._in_transaction(send)

    async def inbox(
        self,
        run_id: str,
        *,
        name: str | None = None,
        after: int = 0,
        limit: int = 100,
        is_taken: bool = False,
    ) -> list[SignalRow]:
        with self._lock, plainly(self.path):
            return self._inbox.list(run_id, name, after, limit, is_taken)

    async def recode_signals(self, run_id: str, signals: Sequence[RecodedSignal]) -> int:
        with self._lock, plainly(self.path):
            key = self._key_of(run_id)
            return 0 if key is None else self._in_transaction(lambda: self._inbox.recode(key, signals))

    async def labels(self, run_ids: Sequence[str]) -> dict[str, Labels]:
        with self._lock, plainly(self.path):
            return self._labels.labels(run_ids)

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
        def change() -> Tagging:
            found = rows(self._db, self._sql["run_key"], (run_id,))
            if not found:
                return Tagging.UNKNOWN_RUN
            if self._was_told(audit) or not self._has_head(run_id, head):
                return Tagging.MOVED
            tagged = self._labels.tag(found[0][0], add, remove, most)
            if audit is not None and tagged is Tagging.TAGGED:
                self._audit.add(audit, self._clock.now())
            return tagged

        with self._lock, plainly(self.path):
            return self._in_transaction(change)

    async def search(self, wanted: RunFilter, by: Search) -> SearchPage:
        with self._lock, plainly(self.path):
            return self._labels.search(wanted, by)

    async def tally(self, field: str) -> dict[str, int]:
        with self._lock, plainly(self.path):
            return self._labels.tally(field)

    async def fire(self, run_id: str) -> list[WaitRow]:
        with self._lock, plainly(self.path):
            now = self._clock.now()
            if self._waits.has_due(run_id, now):
                self._waits.settle_due(run_id, now)
            return self._waits.list(WaitFilter(run_id=run_id, status=WaitStatus.SETTLED, limit=-1))

    async def change_wait(
        self, wait_id: str, change: WaitChange, *, was: bytes | None = None, audit: AuditRow | None = None
    ) -> WaitRow | None:
        def change_it() -> WaitRow | None:
            is_done, now = self._waits.change(wait_id, change, was)
            if audit is not None and is_done:
                self._audit.add(audit, self._clock.now())
            return now

        with self._lock, plainly(self.path):
            return self._in_transaction(change_it)

    async def next_due(self, *, after: datetime | None = None) -> datetime | None:
        with self._lock, plainly(self.path):
            due = self._waits.next_due(after)
            if "_limits" in vars(self) and self._limits.full and after is not None:
                due = min(filter(None, (due, next_open(self._limits.full, after))), default=None)
            return due

    async def erase(
        self,
        run_id: str,
        *,
        head: int,
        reason: str,
        summary: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> Erasure:
        def erase() -> Erasure:
            verdict = self._erase(run_id, head, reason, summary)
            if audit is not None and verdict is Erasure.ERASED:
                self._audit.add(audit, self._clock.now())
            return verdict

        with self._lock, plainly(self.path):
            verdict: Erasure = self._in_transaction(erase)
            self._forget(run_id)
        if verdict is Erasure.ERASED and self.path.with_name(self.path.name + ".live").exists():
            ring = SqliteRing(self.path, self._clock)
            try:
                ring.forget(run_id)
            finally:
                ring.close()
        return verdict

    def _erase(self, run_id: str, head: int, reason: str, summary: bytes | None) -> Erasure:
        db, sql, now = self._db, self._sql, self._clock.now()
        found = rows(db, sql["run"], (run_id,))
        row = run_row(found[0]) if found else None
        verdict = judge_erasure(
            is_there=row is not None,
            checkpoints=row.checkpoints if row is not None else 0,
            head=head,
            lease=row.lease if row is not None else None,
            now=now,
            has_forks=bool(rows(db, sql["has_forks"], (run_id,))[0][0]),
            pinned=row.pinned if row is not None else None,
        )
        if verdict is Erasure.ERASED:
            key = found[0][0]
            self._drop_stop_note(run_id)
            db.execute(sql["bury"], (key, to_int(now), reason, summary))
            for query in ("note_key", "erase_waits", "erase_records", "erase_run"):
                db.execute(sql[query], (key,))
        return verdict

    def _drop_stop_note(self, run_id: str) -> None:
        if rows(self._db, self._sql["has_stop_notes"], ()):
            self._db.execute(self._sql["drop_stop_note"], (run_id,))

    async def tombstone(self, run_id: str) -> Tombstone | None:
        found = self._execute("tombstone", (run_id,))
        return tombstone(found[0]) if found else None

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        found = self._execute("tombstones", (wanted.flow_id, wanted.before, wanted.limit))
        return [tombstone(row) for row in found]

    async def forget(self, run_ids: Sequence[str]) -> int:
        with self._lock, plainly(self.path):
            self._db.execute(self._sql["forget"], (msgspec.json.encode(list(run_ids)).decode(),))
            return self._db.changes()

    async def pin(
        self, run_id: str, reason: str | None, *, head: int | None = None, audit: AuditRow | None = None
    ) -> bool:
        def pin() -> bool:
            if self._was_told(audit) or not self._has_head(run_id, head):
                return False
            self._db.execute(self._sql["pin"], (run_id, reason))
            return self._db.changes() == 1

        with self._lock, plainly(self.path):
            if audit is not None:
                return self._audited(audit, pin)
            return pin() if head is None else self._in_transaction(pin)

    async def note(self, removal: Removal) -> None:
        self._execute("note_removal", (msgspec.json.encode(removal),))

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        return [(number, read_removal(said)) for number, said in self._execute("removals", (before, limit))]

    async def tidy(self, *, limit: int = 1000) -> int:
        return 0

    async def list(self, wanted: RunFilter) -> list[RunRow]:
        with self._lock, plainly(self.path):
            if wanted.started_by is not None and not self._side.are_there():
                return []
            return list_runs(self._db, self._sql, wanted)

    def live(self) -> LiveRing:
        return SqliteRing(self.path, self._clock)

    async def health(self) -> Health:
        return look_at(self.path, str(self._options["synchronous"]))

    async def write_probe(self) -> None:
        with self._lock, plainly(self.path):
            write_and_remove(self._db)

    async def close(self) -> None:
        with self._lock, self._renewing, self._counting:
            if self._room is not None:
                self._room.close()
            for connection in (self._db, self._renewals, self._counts, self._watch):
                if connection is not None:
                    connection.close()
            self._counts = None
            self._renewals = None  # a node's thread may outlive the store; its lease is still prolonged
