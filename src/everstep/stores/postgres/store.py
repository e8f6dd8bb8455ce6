"""The store on PostgreSQL. A put is one round trip, of one run or of many."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from everstep.codec.records import digest_of
from everstep.engine.trimming import check_trim, judge_erasure
from everstep.model.acts import AuditRow
from everstep.model.commits import MOST_LABELS, Labels, NoticeRow, Tag, Tagging, Told
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process, Quota, WorkerRow
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.model.waits import (
    MOST_UNTAKEN,
    HadEvent,
    Sending,
    SettledBy,
    SignalRow,
    WaitChange,
    WaitRow,
)
from everstep.on_demand import on_demand
from everstep.ports.events import EventRow
from everstep.ports.health import Health
from everstep.ports.restoring import Restored, WholeRun
from everstep.ports.retention import TombstoneFilter
from everstep.ports.store import (
    MOST_DUE,
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
from everstep.ports.system import Clock, time_for_store
from everstep.stores.columns import EPOCH, read_removal, read_worker, span_to_int, to_int, to_time
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.artifacts import ArtifactTable
from everstep.stores.postgres.calls import BINARY, TEXT, PreparedCall, flag, number
from everstep.stores.postgres.claims import Candidate, Claims, DueWish, PostgresDueRuns, Row
from everstep.stores.postgres.columns import (
    array,
    group,
    read_text,
    rounds,
    run_row,
    signal_row,
    some_text,
    stored,
    text,
    tombstone,
)
from everstep.stores.postgres.connections import Connection, Connections, at_once, rows
from everstep.stores.postgres.events import keep_event
from everstep.stores.postgres.health import look_at
from everstep.stores.postgres.restoring import restore
from everstep.stores.postgres.schema import prepare, read_queries
from everstep.stores.postgres.waits import PostgresWaits
from everstep.stores.postgres.watch import PostgresWatch, channel_of
from everstep.stores.threads import Gathered, Threads

if TYPE_CHECKING:
    from everstep.engine.limits.keys import next_open
    from everstep.model.leases import Held, KeyLimit, LanePause
    from everstep.ports.audit import AuditFilter
    from everstep.ports.labels import Search, SearchPage
    from everstep.ports.limits import LimitChange
    from everstep.ports.live import LiveRing
    from everstep.ports.notices import NoticeFilter
    from everstep.stores.postgres.audit import add_audit, add_first, list_audit, was_told
    from everstep.stores.postgres.labels import PostgresLabels
    from everstep.stores.postgres.live import PostgresRing
    from everstep.stores.postgres.notices import PostgresNotices
    from everstep.stores.postgres.pausing import PostgresPauses
else:
    add_audit = on_demand("everstep.stores.postgres.audit:add_audit")
    add_first = on_demand("everstep.stores.postgres.audit:add_first")
    was_told = on_demand("everstep.stores.postgres.audit:was_told")
    list_audit = on_demand("everstep.stores.postgres.audit:list_audit")
    PostgresLabels = on_demand("everstep.stores.postgres.labels:PostgresLabels")
    PostgresRing = on_demand("everstep.stores.postgres.live:PostgresRing")
    next_open = on_demand("everstep.engine.limits.keys:next_open")
    PostgresNotices = on_demand("everstep.stores.postgres.notices:PostgresNotices")
    PostgresPauses = on_demand("everstep.stores.postgres.pausing:PostgresPauses")

T = TypeVar("T")
Hashes = list[str]
Names = list[str]
Notices = list[NoticeRow]
Runs = list[RunRow]
Signals = list[SignalRow]
Workers = list[WorkerRow]
Range = tuple[str, int, int]
"""A run, and the first and the last sequence of some of its records."""
MOST_AT_ONCE = 2000
"""Waits that are settled in one transaction."""
LAST = 2**62
"""Behind every sequence."""
_sequence = attrgetter("sequence")
_NO_ONES = -1
"""The epoch of a commit that is to be refused, unless it is there already."""
_VERDICTS = {verdict.value.encode(): verdict for verdict in Verdict} | {b"new": Verdict.ACCEPTED}


class PostgresStore:
    """Many clients on many machines may use one schema; leases run by the server's clock."""

    capabilities = Capabilities(
        durable=True,
        single_writer=True,
        remote=True,
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
        has_notices=True,
        undoes=True,
        searches=True,
        limits=True,
    )
    looks_every = 0.5
    tells_pauses = True

    def __init__(self, at: PostgresAddress, clock: Clock, *, create: bool = True) -> None:
        self._at = at
        self._clock = clock
        self._sql = read_queries(at)
        self._put_step = PreparedCall("everstep_step", self._sql["put_step"], [*[TEXT] * 6, BINARY, TEXT])
        self._put_group = PreparedCall("everstep_group", self._sql["put_group"], [TEXT, BINARY, TEXT, TEXT])
        self._put_more = PreparedCall("everstep_more", self._sql["put_more"], [TEXT, BINARY, TEXT, TEXT])
        self._channel = channel_of(at)
        self._connections = Connections(at, at.pool)
        self._renewals = Connections(at, 1)
        try:
            self._connections.use(lambda db: prepare(db, at, create=create))
        except BaseException:
            self._connections.close()
            raise
        self._waits = PostgresWaits(self._sql, self._channel)
        self._due = PostgresDueRuns(self._sql, at.schema)
        self._watch = PostgresWatch(at, self._sql)
        self._threads = Threads(at.pool, "everstep-postgres")
        self._records = Gathered(self._read_records)
        self._tails = Gathered(self._read_tails)
        self._blueprints = Gathered(self._read_blueprints)
        self._forked = Gathered(self._read_forked)
        self._erasures = Gathered(self._erase_some)
        self._known_flows: set[str] = set()
        """Structures that this client brought to the database."""
        self.artifacts = ArtifactTable(at, self._connections, self._sql, clock)

    def _now(self) -> int | None:
        """Return the time that a test has set; none lets the server's clock count."""
        return to_int(time_for_store(self._clock))

    def live(self) -> LiveRing:
        return PostgresRing(self._at, self._sql, self._clock)

    async def _aside(self, work: Callable[[Connection], T], *, repeats: bool = True) -> T:
        """Do some work on a thread, so that no other task waits for the network."""
        return await self._threads.run(partial(self._connections.use, work, repeats=repeats))

    async def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return await self._aside(lambda db: rows(db, self._sql[query], values))

    async def _acted(
        self,
        audit: AuditRow | None,
        work: Callable[[Connection], T],
        is_done: Callable[[T], object] = bool,
        *,
        repeats: bool = True,
        otherwise: Any = False,
    ) -> T:
        """Do some work, and keep who did it in the same transaction unless there was nothing to do.

        What is to be done once is not if its row is there; that is said by `otherwise`.
        """
        if audit is None:
            return await self._aside(work, repeats=repeats)
        row, now = audit, self._now()

        def both(db: Connection) -> T:
            with db.transaction():
                if row.once and was_told(db, self._sql, row):
                    told: T = otherwise
                    return told
                done = work(db)
                if is_done(done):
                    add_audit(db, self._sql, row, now)
                return done

        return await self._aside(both, repeats=repeats)

    async def note_audit(self, row: AuditRow) -> None:
        now = self._now()
        add = partial(add_first if row.once else add_audit, sql=self._sql, row=row, now=now)
        await self._aside(lambda db: add(db))

    async def audit(self, wanted: AuditFilter) -> list[AuditRow]:
        found: list[AuditRow] = await self._aside(lambda db: list_audit(db, self._sql, wanted))
        return found

    async def forget_audit(self, *, before: datetime, limit: int = 1000) -> int:
        return len(await self._rows("forget_audit", to_int(before), limit))

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        return await self._threads.run(partial(self.put_blocking, commits))

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        if len(commits) == 1 and commits[0].is_plain:
            return [self._put_one(commits[0])]
        verdicts: dict[int, Verdict] = {}
        for places in rounds(commits):
            found = self._put_many([commits[place] for place in places])
            verdicts |= zip(places, found, strict=True)
        return [verdicts[place] for place in range(len(commits))]

    def _put_one(self, commit: Commit) -> Verdict:
        values = (
            text(commit.run_id).encode(),
            number(commit.sequence),
            commit.checkpoint_id.encode(),
            commit.base.encode() if commit.base is not None else None,
            number(commit.epoch),
            flag(commit.keyframe),
            commit.body,
            flag(commit.answers_stop),
        )
        return _VERDICTS[self._connections.use(lambda db: self._put_step(db, values))]

    def _put_apart(self, commits: Sequence[Commit]) -> list[Verdict]:
        """Put commits one by one, as of some it is asked first whether they are late."""
        verdicts = []
        for commit in commits:
            row = commit.audit
            if row is not None and row.once:
                put = partial(self._put_once, commit=commit, row=row)
                verdicts.append(self._connections.use(put))
            else:
                verdicts += self._put_many([commit])
        return verdicts

    def _put_once(self, db: Connection, commit: Commit, row: AuditRow) -> Verdict:
        """Put a commit for an act that is not to be done if its row is there."""
        with db.transaction():
            if was_told(db, self._sql, row):
                commit = msgspec.structs.replace(commit, epoch=_NO_ONES)
            is_new = commit.tells != () and self._is_new(db, commit)
            said, bodies = group([commit], self._known_flows)
            channel = self._channel if _makes_due(commit) else None
            [[[verdict]]] = rows(db, self._sql["put_more"], (said.decode(), bodies, self._now(), channel))
            self._keep_more(db, commit, _VERDICTS[verdict.encode()])
            if is_new and verdict == Verdict.ACCEPTED:
                self._notices.tell(db, commit.run_id, commit.tells, self._now())
            return _VERDICTS[verdict.encode()]

    def _put_many(self, commits: Sequence[Commit]) -> list[Verdict]:
        said, bodies = group(commits, self._known_flows)
        channel = self._channel.encode() if any(map(_makes_due, commits)) else None
        values = (said, bodies, number(self._now()), channel)
        call, is_apart = self._put_group, False
        for commit in commits:
            if (
                commit.taken
                or commit.pairs
                or commit.audit is not None
                or commit.attributes
                or commit.tells
                or (commit.admission is not None and (commit.admission.tags or commit.admission.had))
            ):
                call = self._put_more
                is_apart = is_apart or bool(
                    commit.tells or (commit.admission is not None and commit.admission.had)
                )
                if commit.audit is not None and commit.audit.once:
                    return self._put_apart(commits)
            if commit.undoing is not None:
                is_apart = True
        if is_apart:
            found = self._connections.use(
                partial(self._put_and_keep, commits=commits, call=call, values=values)
            )
        else:
            found = self._connections.use(lambda db: call(db, values))
        verdicts = [_VERDICTS[verdict] for verdict in found[1:-1].split(b",")]
        for commit, verdict in zip(commits, verdicts, strict=True):
            if commit.admission is not None and verdict is Verdict.ACCEPTED:
                self._known_flows.add(commit.admission.flow_hash)
        return verdicts

    def _put_and_keep(
        self, db: Connection, commits: Sequence[Commit], call: PreparedCall, values: Sequence[Any]
    ) -> bytes:
        """Put commits of which some bring what no function of the schema takes."""
        with db.transaction():
            new = [commit.tells != () and self._is_new(db, commit) for commit in commits]
            found = call(db, values)
            for commit, is_new, verdict in zip(commits, new, found[1:-1].split(b","), strict=True):
                self._keep_more(db, commit, _VERDICTS[verdict])
                if is_new and _VERDICTS[verdict] is Verdict.ACCEPTED:
                    self._notices.tell(db, commit.run_id, commit.tells, self._now())
            return found

    def _is_new(self, db: Connection, commit: Commit) -> bool:
        """True unless the record is there: its put was accepted, and the reply was lost."""
        given = (text(commit.run_id), commit.sequence, commit.checkpoint_id)
        return not rows(db, self._sql["has_record"], given)

    def _keep_more(self, db: Connection, commit: Commit, verdict: Verdict) -> None:
        """Keep the events that a fork had, and what a run says of undoing."""
        if verdict is not Verdict.ACCEPTED:
            return
        if commit.admission is not None:
            for had in commit.admission.had:
                db.execute(self._sql["admit_had"], (text(commit.run_id), *map(text, had)))
        if commit.undoing is not None:
            said = (text(commit.run_id), text(commit.undoing), commit.sequence)
            db.execute(self._sql["set_undoing"], said)

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        return await self._records.get((text(run_id), first, LAST if last is None else last))

    async def _read_records(self, asked: list[Range]) -> dict[Range, list[StoredRecord]]:
        found: dict[Range, list[StoredRecord]] = {one: [] for one in asked}
        for place, *record in await self._rows("records", *map(list, zip(*asked, strict=True))):
            found[asked[place - 1]].append(stored(*record))
        return _in_order(found)

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        if at is None:
            return await self._tails.get(text(run_id))
        return [stored(*row) for row in await self._rows("tail", text(run_id), at)]

    async def _read_tails(self, run_ids: list[str]) -> dict[str, list[StoredRecord]]:
        """Return the tails of runs that a worker has claimed together."""
        tails: dict[str, list[StoredRecord]] = {run_id: [] for run_id in run_ids}
        for run_id, *record in await self._rows("tails", array(run_ids)):
            tails[run_id].append(stored(*record))
        return _in_order(tails)

    async def trim(self, run_id: str, *, before: int) -> int:
        return await self._aside(lambda db: self._trim(db, run_id, before))

    def _trim(self, db: Connection, run_id: str, before: int) -> int:
        with db.transaction():
            found = rows(db, self._sql["lock_run"], (text(run_id),))
            if not found:
                raise no_such_run(run_id)
            key, since, pinned = found[0]
            is_keyframe, oldest_fork = rows(db, self._sql["trimmable"], (key, text(run_id), before))[0]
            check_trim(
                run_id,
                before=before,
                is_keyframe=is_keyframe,
                oldest_fork=oldest_fork,
                pinned=None if pinned is None else read_text(pinned),
            )
            whole = rows(db, self._sql["to_trim"], (key, since, before))
            if whole:
                digests = [digest_of(body) for _, body in whole]
                db.execute(self._sql["trim"], (key, [sequence for sequence, _ in whole], digests))
                db.execute(self._sql["note_trim"], (key, before))
            return len(whole)

    async def recode(self, run_id: str, records: Sequence[Recoded], waits: Sequence[RecodedWait] = ()) -> int:
        return await self._aside(lambda db: self._recode(db, run_id, records, waits))

    def _recode(
        self, db: Connection, run_id: str, records: Sequence[Recoded], waits: Sequence[RecodedWait]
    ) -> int:
        with db.transaction():
            found = rows(db, self._sql["lock_run"], (text(run_id),))  # it is not trimmed meanwhile
            if not found:
                raise no_such_run(run_id)
            key, since, _ = found[0]
            replaced = 0
            for new in records:
                there = rows(db, self._sql["to_recode"], (key, new.sequence, text(new.checkpoint_id)))
                if new.sequence >= since and there and digest_of(there[0][0]) == digest_of(new.body):
                    db.execute(self._sql["recode"], (key, new.sequence, new.body))
                    replaced += 1
            for wait in waits:
                new_notes = (text(wait.wait_id), *wait.was, wait.details, wait.answer)
                replaced += db.execute(self._sql["recode_wait"], new_notes).rowcount
            return replaced

    async def restore(self, run: WholeRun) -> Restored:
        ask = partial(restore, sql=self._sql, run=run, channel=self._channel, more=self._restore_more)
        return await self._acted(run.audit, ask, lambda verdict: verdict is Restored.RESTORED)

    def _restore_more(self, db: Connection, run: WholeRun) -> None:
        if run.told or run.notices:
            self._notices.restore(db, run)

    async def lease(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> Lease:
        how = (owner, ttl, process, void_epoch)
        return (await self._aside(lambda db: self._claim(db, run_id, how, ()))).lease

    async def take_up(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> TakenUp:
        how = (owner, ttl, process, void_epoch)
        reads = (("run", (text(run_id),)), ("tail", (text(run_id), None)))
        return await self._aside(lambda db: self._claim(db, run_id, how, reads))

    def _claim(self, db: Connection, run_id: str, how: Row, reads: Sequence[tuple[str, Row]]) -> TakenUp:
        """Claim a run, and send the queries for its row and its tail along with that."""
        while True:
            found = rows(db, self._sql["run_now"], (text(run_id), self._now()))
            if not found:
                raise no_such_run(run_id)
            candidate = Candidate.of(found[0])
            granted = candidate.judge(*how)
            queries = [("claim", candidate.claim_values(granted)), *reads]
            claimed, *more = at_once(db, [(self._sql[name], values) for name, values in queries])
            if claimed and more:
                [row], tail = more
                return TakenUp(granted, run_row(row), [stored(*record) for record in tail])
            if claimed:
                return TakenUp(granted)

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
        wanted = (tuple(flows), tuple(apart_from), limit, quotas or {})
        wish = DueWish(self._now(), *wanted, new_owner, ttl, process)
        # A second claim would get others; what the first one got is found again by its owners.
        return await self._aside(lambda db: self._due.claim(db, wish), repeats=False)

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
        how = (owner, ttl, process, void_epoch)
        return await self._aside(
            lambda db: self._due.claim_within(db, run_id, how, limits, self._now()), repeats=False
        )

    async def change_limit(self, key: str, change: LimitChange) -> Any:
        return await self._aside(lambda db: self._due.limits.change(db, key, change, self._now()))

    async def limit_states(self, prefix: str, *, limit: int = 1000, after: str = "") -> dict[str, bytes]:
        return await self._aside(lambda db: self._due.limits.states(db, prefix, limit, after))

    async def renew(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        return await self._threads.run(partial(self.renew_blocking, held, ttl))

    def renew_blocking(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        """Prolong leases on a connection of their own, so that a busy writer does not delay them."""
        return self._renewals.use(lambda db: self._renew(db, held, ttl))

    def release_blocking(self, lease: Lease) -> None:
        self._renewals.use(lambda db: self._release(db, lease))

    def _renew(self, db: Connection, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        # A run may be there twice: the first drive has lost it and still ends.
        names, epochs = [text(lease.run_id) for lease in held], [lease.epoch for lease in held]
        given = (names, epochs, [text(lease.owner) for lease in held], span_to_int(ttl), self._now())
        until = {row[:2]: row[2] for row in rows(db, self._sql["renew"], given)}
        found = rows(db, self._sql["still_held"], (names, epochs)) if len(until) < len(held) else []
        verdicts = dict.fromkeys(found, Verdict.STOP_REQUESTED)
        return [
            msgspec.structs.replace(lease, expires_at=to_time(until[key]))
            if key in until
            else verdicts.get(key, Verdict.FENCED)
            for lease, key in zip(held, zip(names, epochs, strict=True), strict=True)
        ]

    async def release_lease(self, lease: Lease) -> None:
        await self._aside(lambda db: self._release(db, lease))

    def _release(self, db: Connection, lease: Lease) -> None:
        db.execute(self._sql["release"], (text(lease.run_id), lease.epoch, self._channel))

    async def leased(self, owners: Collection[str] | None = None) -> Runs:
        wanted = None if owners is None else [text(owner) for owner in owners]
        return [run_row(row) for row in await self._rows("leased", self._now(), wanted)]

    async def set_aside(self, run_id: str, *, epoch: int, reason: str, occasion: str = "") -> bool:
        given = (text(run_id), epoch, text(reason))
        if not occasion:
            return bool(await self._rows("set_aside", *given))
        now = self._now()

        def aside(db: Connection) -> bool:
            with db.transaction():
                is_marked = bool(rows(db, self._sql["set_aside"], given))
                if is_marked:
                    self._notices.tell(db, run_id, (NoticeRow(occasion=occasion),), now)
                return is_marked

        return await self._aside(aside)

    @cached_property
    def _notices(self) -> PostgresNotices:
        return PostgresNotices(self._at)

    async def notices(self, wanted: NoticeFilter) -> Notices:
        return await self._aside(lambda db: self._notices.listed(db, wanted))

    async def told_of(self, run_id: str) -> Told:
        return await self._aside(lambda db: self._notices.told_of(db, run_id))

    async def take_notices(
        self, notifiers: Collection[str], *, hold: timedelta, limit: int, run_id: str | None = None
    ) -> Notices:
        now = self._now()
        return await self._aside(lambda db: self._notices.take(db, notifiers, hold, limit, run_id, now))

    async def change_notice(
        self, row: NoticeRow, to: NoticeRow | None, *, audit: AuditRow | None = None
    ) -> bool:
        return await self._acted(audit, lambda db: self._notices.change(db, row, to))

    @cached_property
    def _pauses(self) -> PostgresPauses:
        return PostgresPauses(self._at, self._channel)

    async def mark(
        self, run_id: str, *, was: str | None, mark: str | None, audit: AuditRow | None = None
    ) -> bool:
        return await self._acted(audit, lambda db: self._pauses.mark(db, run_id, was, mark))

    async def pause_lane(self, lane: LanePause, *, audit: AuditRow | None = None) -> bool:
        return await self._acted(audit, lambda db: self._pauses.pause(db, lane))

    async def unpause_lane(self, flow_id: str, group: str, *, audit: AuditRow | None = None) -> bool:
        return await self._acted(audit, lambda db: self._pauses.unpause(db, flow_id, group))

    async def held(self, run_ids: Collection[str]) -> Held:
        return await self._aside(lambda db: self._pauses.held(db, run_ids))

    def held_blocking(self, run_ids: Collection[str]) -> Held:
        return self._renewals.use(lambda db: self._pauses.held(db, run_ids))

    async def fence(self, run_id: str, by: int) -> bool:
        return bool(await self._rows("fence", text(run_id), by))

    async def report(self, worker: WorkerRow, ttl: timedelta) -> None:
        await self._threads.run(partial(self.report_blocking, worker, ttl))

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        started, details = to_int(worker.started_at), msgspec.json.encode(worker)
        said = (self._now(), text(worker.worker_id), started, span_to_int(ttl), details)

        def report(db: Connection) -> None:
            # Those that said nothing for too long are forgotten on the way.
            db.execute(self._sql["forget_workers"], said[:2])
            db.execute(self._sql["report"], said)

        self._renewals.use(report)

    async def leave(self, worker_id: str) -> None:
        await self._aside(lambda db: db.execute(self._sql["leave"], (text(worker_id),)))

    async def workers(self) -> Workers:
        return [read_worker(*row) for row in await self._rows("workers", self._now())]

    async def run(self, run_id: str) -> RunRow | None:
        found = await self._rows("run", text(run_id))
        return run_row(found[0]) if found else None

    async def blueprint(self, flow_hash: str) -> bytes | None:
        return await self._blueprints.get(text(flow_hash))

    async def _read_blueprints(self, hashes: Hashes) -> dict[str, bytes | None]:
        return dict.fromkeys(hashes) | dict(await self._rows("blueprints", hashes))

    async def introduce(self, flow_id: str, flow_hash: str, blueprint: bytes) -> Hashes:
        def introduce(db: Connection) -> Hashes:
            if flow_hash not in self._known_flows:
                db.execute(self._sql["keep_blueprint"], (text(flow_hash), blueprint))
                self._known_flows.add(flow_hash)
            older = rows(db, self._sql["older_structures"], (text(flow_id), text(flow_hash)))
            return [read_text(found) for (found,) in older]

        return await self._aside(introduce)

    async def request_stop(
        self,
        run_id: str,
        wanted: StopRequest,
        note: bytes | None = None,
        *,
        head: int | None = None,
        audit: AuditRow | None = None,
    ) -> bool:
        given = (text(run_id), wanted.value, self._channel, note)
        ask = self._only_at(run_id, head, lambda db: bool(rows(db, self._sql["request_stop"], given)), False)
        return await self._acted(audit, ask)

    def _only_at(
        self, run_id: str, head: int | None, work: Callable[[Connection], T], refused: T
    ) -> Callable[[Connection], T]:
        """Return work that is not done to a run whose newest record has another sequence."""
        if head is None:
            return work

        def ask(db: Connection) -> T:
            with db.transaction():
                # Locked first, and read by the next statement: what others wrote until then is seen.
                rows(db, self._sql["lock_to_erase"], ([text(run_id)],))
                found = rows(db, self._sql["run"], (text(run_id),))
                return refused if found and run_row(found[0]).checkpoints != head else work(db)

        return ask

    async def stop_note(self, run_id: str) -> bytes | None:
        found = await self._rows("stop_note", text(run_id))
        return bytes(found[0][0]) if found and found[0][0] is not None else None

    async def waits(self, wanted: WaitFilter) -> list[WaitRow]:
        return await self._aside(lambda db: self._waits.list(db, wanted))

    async def wait(self, wait_id: str) -> WaitRow | None:
        return await self._aside(lambda db: self._waits.get(db, wait_id))

    async def wait_of_token(self, token_hash: bytes) -> WaitRow | None:
        return await self._aside(lambda db: self._waits.of_token(db, token_hash))

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
        now = self._now() if at is None else to_int(at)
        given = (wait_id, by, answer, token_hash, now, details)

        def settle(db: Connection) -> tuple[bool, WaitRow | None]:
            if was is not None:
                return self._waits.settle_if(db, was, *given)
            return self._waits.settle(db, *given)

        # If the reply were lost, a second try would say that another answer had come first.
        return await self._acted(audit, settle, lambda settled: settled[0], repeats=False)

    async def send(
        self, run_id: str, signal: SignalRow, *, most: int = MOST_UNTAKEN, audit: AuditRow | None = None
    ) -> Sending:
        about = (text(signal.signal_id), text(signal.name), signal.value, most)
        given = (text(run_id), *about, self._now(), self._channel)

        def send(db: Connection) -> Sending:
            [(verdict,)] = rows(db, self._sql["send"], given)
            return Sending(verdict)

        return await self._acted(audit, send, lambda verdict: verdict is Sending.SENT)

    async def inbox(
        self,
        run_id: str,
        *,
        name: str | None = None,
        after: int = 0,
        limit: int = 100,
        is_taken: bool = False,
    ) -> Signals:
        query = "taken_signals" if is_taken else "inbox"
        return [
            signal_row(row) for row in await self._rows(query, text(run_id), some_text(name), after, limit)
        ]

    async def recode_signals(self, run_id: str, signals: Sequence[RecodedSignal]) -> int:
        numbers, was = [new.number for new in signals], [new.was for new in signals]
        values = [new.value for new in signals]
        return len(await self._rows("recode_signal", text(run_id), numbers, was, values))

    @cached_property
    def _labels(self) -> PostgresLabels:
        return PostgresLabels(self._at)

    async def labels(self, run_ids: Sequence[str]) -> dict[str, Labels]:
        return await self._aside(lambda db: self._labels.labels(db, run_ids))

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
        ask = partial(self._labels.tag, run_id=run_id, add=add, remove=remove, most=most)
        asked = self._only_at(run_id, head, ask, Tagging.MOVED)
        return await self._acted(
            audit, asked, lambda tagged: tagged is Tagging.TAGGED, otherwise=Tagging.MOVED
        )

    async def search(self, wanted: RunFilter, by: Search) -> SearchPage:
        return await self._aside(lambda db: self._labels.search(db, wanted, by))

    async def tally(self, field: str) -> dict[str, int]:
        return await self._aside(lambda db: self._labels.tally(db, field))

    async def keep_event(self, event: EventRow, *, audit: AuditRow | None = None) -> Names:
        now = self._now()
        return await self._acted(audit, lambda db: keep_event(db, self._sql, event, now), lambda _: True)

    async def had_events(self, run_id: str) -> list[HadEvent]:
        found = await self._rows("had_events", text(run_id))
        return sorted(HadEvent(*map(read_text, row)) for row in found)

    async def settle_event(
        self, event: EventRow, topics: Collection[str], *, audit: AuditRow | None = None
    ) -> int:
        named = (text(event.name), text(event.event_id))
        about = (*named, event.value, MOST_AT_ONCE, self._now(), self._channel)
        given = ([text(topic) for topic in topics], *about)
        [(settled,)] = await self._acted(
            audit, lambda db: rows(db, self._sql["settle_event"], given), lambda _: True
        )
        return int(settled)

    async def fire(self, run_id: str) -> list[WaitRow]:
        now = self._now()
        return await self._aside(lambda db: self._waits.fire(db, run_id, now))

    async def change_wait(
        self, wait_id: str, change: WaitChange, *, was: bytes | None = None, audit: AuditRow | None = None
    ) -> WaitRow | None:
        _, now = await self._acted(
            audit, lambda db: self._waits.change(db, wait_id, change, was), lambda changed: changed[0]
        )
        return now

    async def now(self) -> datetime | None:
        return to_time((await self._rows("now"))[0][0])

    async def next_due(self, *, after: datetime | None = None) -> datetime | None:
        due = to_time((await self._rows("next_due", to_int(after) or 0))[0][0])
        if after is not None and self._due.has_full_keys:
            due = min(filter(None, (due, next_open(self._due.limits.full, after))), default=None)
        return due

    def changes(self) -> int:
        return self._watch.count()

    async def written(self) -> int:
        return int((await self._rows("written"))[0][0])

    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._watch.on_change(wake)

    async def counts(self) -> Counts:
        sums = await self._rows("sums")
        return Counts(
            runs={name: many for what, name, many in sums if what == "run"},
            waits={read_text(name): many for what, name, many in sums if what == "wait"},
        )

    async def backlog(self) -> list[Backlog]:
        return [
            Backlog(flow_id=read_text(flow_id), flow_hash=read_text(flow_hash), many=many, since=at)
            for flow_id, flow_hash, many, since in await self._rows("backlog", self._now(), MOST_DUE)
            if (at := to_time(since)) is not None
        ]

    async def run_at(self, checkpoint_id: str) -> str | None:
        found = await self._rows("run_at", checkpoint_id)
        return read_text(found[0][0]) if found else None

    async def ack(self, run_id: str, *, audit: AuditRow | None = None) -> None:
        now = self._now()
        await self._acted(audit, lambda db: db.execute(self._sql["ack"], (text(run_id), now)), lambda _: True)

    async def erase(
        self,
        run_id: str,
        *,
        head: int,
        reason: str,
        summary: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> Erasure:
        return await self._erasures.get(ToErase(text(run_id), head, text(reason), summary, audit))

    async def _erase_some(self, asked: list[ToErase]) -> dict[ToErase, Erasure]:
        verdicts: dict[ToErase, Erasure] = await self._aside(lambda db: self._erase(db, asked))
        return verdicts

    def _erase(self, db: Connection, asked: Sequence[ToErase]) -> dict[ToErase, Erasure]:
        sql, run_ids = self._sql, sorted({one.run_id for one in asked})
        with db.transaction():
            # Locked first, and read by the next statement: what others wrote until then is seen.
            rows(db, sql["lock_to_erase"], (run_ids,))
            there = {row[1]: row for row in rows(db, sql["to_erase"], (self._now(), run_ids))}
            verdicts: dict[ToErase, Erasure] = {}
            gone: dict[str, ToErase] = {}
            for one in asked:
                row = there.get(one.run_id) if one.run_id not in gone else None
                verdicts[one] = _judge_erasure(one, row)
                if verdicts[one] is Erasure.ERASED:
                    gone[one.run_id] = one
            if gone:
                keys = [there[run_id][0] for run_id in gone]
                at = [there[run_id][-1] for run_id in gone]
                told = [one.reason for one in gone.values()], [one.summary for one in gone.values()]
                db.execute(sql["bury"], (keys, at, *told))
                for query in ("erase_waits", "erase_records", "erase_runs"):
                    db.execute(sql[query], (keys,))
                for one in gone.values():
                    if one.audit is not None:
                        add_audit(db, sql, one.audit, self._now())
            return verdicts

    async def tombstone(self, run_id: str) -> Tombstone | None:
        found = await self._rows("tombstone", text(run_id))
        return tombstone(found[0]) if found else None

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        narrowed = (some_text(wanted.flow_id), some_text(wanted.before), wanted.limit)
        return [tombstone(row) for row in await self._rows("tombstones", *narrowed)]

    async def forget(self, run_ids: Sequence[str]) -> int:
        return len(await self._rows("forget", [text(run_id) for run_id in run_ids]))

    async def pin(
        self, run_id: str, reason: str | None, *, head: int | None = None, audit: AuditRow | None = None
    ) -> bool:
        given = (text(run_id), some_text(reason))
        ask = self._only_at(run_id, head, lambda db: bool(rows(db, self._sql["pin"], given)), False)
        return await self._acted(audit, ask)

    async def note(self, removal: Removal) -> None:
        said = msgspec.json.encode(removal)
        await self._aside(lambda db: db.execute(self._sql["note_removal"], (said,)))

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        return [(number, read_removal(said)) for number, said in await self._rows("removals", before, limit)]

    async def tidy(self, *, limit: int = 1000) -> int:
        return 0

    async def _read_forked(self, run_ids: Names) -> dict[str, bool]:
        forked = {run_id for (run_id,) in await self._rows("forked", run_ids)}
        return {run_id: run_id in forked for run_id in run_ids}

    async def list(self, wanted: RunFilter) -> list[RunRow]:
        parent = wanted.parent_run_id
        if parent is not None and not await self._forked.get(text(parent)):
            return []  # as of nearly all; clean-up asks of many at once
        starter = () if wanted.started_by is None else (text(wanted.started_by),)
        found = await self._rows(
            "started_runs" if starter else "runs",
            some_text(wanted.flow_id),
            some_text(wanted.run_id),
            wanted.status.value if wanted.status is not None else None,
            some_text(wanted.before),
            wanted.limit,
            some_text(wanted.parent_run_id),
            wanted.marked,
            wanted.pinned,
            *starter,
        )
        return [run_row(row) for row in found]

    async def health(self) -> Health:
        return await self._aside(lambda db: look_at(db, self._sql, self._at))

    async def write_probe(self) -> None:
        await self._rows("probe")
        await self.leave("everstep doctor")

    async def close(self) -> None:
        self._threads.close(wait=True)
        self._watch.close()
        self._connections.close()
        self._renewals.close()


def _makes_due(commit: Commit) -> bool:
    """True if the run is due, now or at a time it names."""
    return commit.status is Status.HALTED or (commit.admission is not None and commit.admission.owner is None)


def _in_order(found: dict[T, list[StoredRecord]]) -> dict[T, list[StoredRecord]]:
    """Return the records of runs, those of each one after the other: the server gives them in any order."""
    for records in found.values():
        records.sort(key=_sequence)
    return found


class ToErase(msgspec.Struct, frozen=True, eq=False):
    """A run that is to be erased as it was looked at. Two that ask for the same are two: one erases it."""

    run_id: str
    head: int
    reason: str
    summary: bytes | None
    audit: AuditRow | None = None


def _judge_erasure(asked: ToErase, found: Row | None) -> Erasure:
    row = run_row(found) if found is not None else None
    return judge_erasure(
        is_there=row is not None,
        checkpoints=row.checkpoints if row is not None else 0,
        head=asked.head,
        lease=row.lease if row is not None else None,
        now=(to_time(found[-1]) if found is not None else None) or EPOCH,
        has_forks=found is not None and found[-2],
        pinned=row.pinned if row is not None else None,
    )
