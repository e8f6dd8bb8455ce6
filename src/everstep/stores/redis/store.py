"""The store on one Redis. A put is one script and one round trip, however many runs share it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from everstep.codec.records import digest_of
from everstep.engine.claims import ClaimTurns
from everstep.engine.trimming import check_trim, judge_erasure
from everstep.errors import IncompatibleVersion, StoreError, StoreMissing
from everstep.model.acts import AuditRow
from everstep.model.commits import MOST_LABELS, NO_LABELS, Labels, NoticeRow, Tag, Tagging, Told
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
    no_such_run,
)
from everstep.ports.system import Clock, time_for_store
from everstep.stores.columns import read_removal, read_worker
from everstep.stores.redis.claims import TRIES, chosen, decide, is_free, is_known, lease_arguments, longer
from everstep.stores.redis.fields import (
    KEYFRAME,
    STUB,
    WHOLE,
    Hash,
    audit_row,
    audit_told,
    commit_arguments,
    hash_of,
    labels,
    marked,
    micros,
    moment,
    packed,
    plain_arguments,
    quota_text,
    run_row,
    signal_row,
    span,
    tag_fields,
    tombstone,
    unpacked,
    wait_changes,
    wait_row,
)
from everstep.stores.redis.health import look_at
from everstep.stores.redis.link import Links
from everstep.stores.redis.restoring import restore
from everstep.stores.redis.watch import RedisWatch
from everstep.stores.redis.wire import Argument
from everstep.stores.threads import Gathered, Threads

if TYPE_CHECKING:
    from everstep.engine.limits.keys import next_open
    from everstep.model.leases import Held, KeyLimit, LanePause
    from everstep.ports.audit import AuditFilter
    from everstep.ports.limits import LimitChange
    from everstep.ports.live import LiveRing
    from everstep.ports.notices import NoticeFilter
    from everstep.stores.notice_rows import read_told
    from everstep.stores.redis.limits import RedisLimits, Wish
    from everstep.stores.redis.live import RedisRing
    from everstep.stores.redis.notices import notice_arguments, notice_row
    from everstep.stores.redis.pausing import lane_bytes, read_held
else:
    next_open = on_demand("everstep.engine.limits.keys:next_open")
    RedisLimits = on_demand("everstep.stores.redis.limits:RedisLimits")
    Wish = on_demand("everstep.stores.redis.limits:Wish")
    RedisRing = on_demand("everstep.stores.redis.live:RedisRing")
    read_told = on_demand("everstep.stores.notice_rows:read_told")
    notice_arguments = on_demand("everstep.stores.redis.notices:notice_arguments")
    notice_row = on_demand("everstep.stores.redis.notices:notice_row")
    lane_bytes = on_demand("everstep.stores.redis.pausing:lane_bytes")
    read_held = on_demand("everstep.stores.redis.pausing:read_held")

T = TypeVar("T")
Claims = list[tuple[RunRow, Lease]]
Hashes = list[str]
Notices = list[NoticeRow]
Runs = list[RunRow]
Signals = list[SignalRow]
Waits = list[WaitRow]
Workers = list[WorkerRow]
Range = tuple[str, int, int, int]
"""A run, the first and the last sequence of some of its records, and 1 to begin with the newest keyframe."""
FORMAT = 1
OLDEST_SERVER = 0x070000
NEWEST = 1 << 53
THREADS = 8
MOST_AT_ONCE = 1000
"""Waits that one script settles with an event."""
_PAGE = 1000
_MOST_DUE = 1000
"""So many runs of a kind are looked at when due ones are counted: a server does nothing else meanwhile."""
_VERDICTS = {verdict.value.encode(): verdict for verdict in Verdict} | {b"again": Verdict.ACCEPTED}
_CAN_GO_ON = (Status.RUNNING, Status.HALTED, Status.FAILED, Status.ABANDONED)


class RedisStore:
    """Many clients on many machines may share it; whatever must happen together is one script."""

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
        limits=True,
        has_notices=True,
        undoes=True,
    )
    looks_every = 0.5
    tells_pauses = True

    def __init__(self, links: Links, clock: Clock, *, create: bool = True) -> None:
        self._links = links
        self._clock = clock
        self._check_format(create)
        self._watch = RedisWatch(links, clock)
        self._turns = ClaimTurns()
        self._threads = Threads(THREADS, "everstep-redis")
        self._records = Gathered(self._read_records)
        self._blueprints = Gathered(self._read_blueprints)
        self._erasures = Gathered(self._erase_some)

    def _check_format(self, create: bool) -> None:
        at = self._links.address
        found, version = self._call("open", FORMAT, int(create))
        if version < OLDEST_SERVER:
            raise StoreError(f"the Redis at {at.shown} is too old.", fix="Use Redis 7 or newer, or Valkey.")
        if found is None:
            raise StoreMissing(
                f"there is nothing under the prefix {at.prefix!r} at {at.shown}.",
                fix="Check the URL, or start a run to make something.",
            )
        if int(found) > FORMAT:
            raise IncompatibleVersion(
                f"what lies under {at.prefix!r} at {at.shown} has format {int(found)}; "
                f"this everstep knows up to {FORMAT}.",
                fix="Use the newer everstep that wrote it.",
            )

    def _call(self, name: str, *arguments: Argument, once: bool = False) -> Any:
        """Run a script. It is told the time only by a clock that a test moves; else it asks the server's."""
        now = time_for_store(self._clock)
        told = b"" if now is None else str(micros(now))
        return self._links.call(name, told, *arguments, once=once)

    async def _aside(self, name: str, *arguments: Argument, once: bool = False) -> Any:
        """Run a script on a thread, so that a slow server holds no other task up."""
        return await self._on_thread(partial(self._call, name, *arguments, once=once))

    def live(self) -> LiveRing:
        return RedisRing(self._links)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await self._threads.run(work)

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        return await self._on_thread(partial(self.put_blocking, commits))

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        plain = plain_arguments(commits[0]) if len(commits) == 1 else None
        if plain is not None and self._links.call("step", *plain):
            return [Verdict.ACCEPTED]
        arguments = [part for commit in commits for part in commit_arguments(commit)]
        return [_VERDICTS[verdict] for verdict in self._call("put", *arguments)]

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        return await self._records.get((run_id, first, NEWEST if last is None else last, 0))

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        return await self._records.get((run_id, 1, NEWEST if at is None else at, 1))

    async def _read_records(self, asked: list[Range]) -> dict[Range, list[StoredRecord]]:
        found = await self._aside("records", *(part for one in asked for part in one))
        return {
            one: [unpacked(begins + k, item) for k, item in enumerate(items)]
            for one, (begins, items) in zip(asked, found, strict=True)
        }

    async def trim(self, run_id: str, *, before: int) -> int:
        while True:
            found = await self._aside("trimmable", run_id, before)
            if found is None:
                raise no_such_run(run_id)
            is_keyframe, pin, since, items, pinned = found
            check_trim(
                run_id,
                before=before,
                is_keyframe=bool(is_keyframe),
                oldest_fork=int(float(pin)) if pin else None,
                pinned=None if pinned is None else pinned.decode(),
            )
            whole = [unpacked(since + k, item) for k, item in enumerate(items)]
            stubs = [packed(STUB, r.checkpoint_id, digest_of(r.body)) for r in whole]
            # Records never change, so the digests hold; whether they may go is compared again.
            if not stubs or await self._aside("trim", run_id, before, pin, since, *stubs):
                return len(stubs)

    async def recode(self, run_id: str, records: Sequence[Recoded], waits: Sequence[RecodedWait] = ()) -> int:
        if await self.run(run_id) is None:
            raise no_such_run(run_id)
        told: list[Argument] = []
        for new in records:
            for old in await self.get(run_id, first=new.sequence, last=new.sequence):
                is_it = not old.is_stub and old.checkpoint_id == new.checkpoint_id
                if is_it and digest_of(old.body) == digest_of(new.body):
                    kind = KEYFRAME if old.keyframe else WHOLE
                    both = (packed(kind, old.checkpoint_id, body) for body in (old.body, new.body))
                    told += (new.sequence, *both)
        notes: list[Argument] = []
        for wait in waits:
            notes += (wait.wait_id, wait.was[0], marked(wait.was[1]), wait.details, marked(wait.answer))
        replaced: int = await self._aside("recode", run_id, len(told) // 3, *told, *notes)
        return replaced

    async def restore(self, run: WholeRun) -> Restored:
        return await self._on_thread(partial(restore, self._call, run))

    async def lease(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> Lease:
        while True:
            now, flat = await self._aside("run", run_id)
            if not flat:
                raise no_such_run(run_id)
            row = hash_of(flat)
            granted = decide(
                run_row(run_id, row),
                row,
                owner=owner,
                now=moment(now),
                ttl=ttl,
                process=process,
                void_epoch=void_epoch,
            )
            # Decided on what the row said; if it says something else by now, it is decided again.
            [given] = await self._aside("claim", 0, b"", *lease_arguments(row, granted))
            if given:
                return granted

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
        quotas = quotas or {}
        if limit > 0 and flows and any(quota.limits for quota in quotas.values()):
            return await self._claim_limited(flows, new_owner, ttl, process, limit, apart_from, quotas)
        named = [part for flow in flows for part in flow]
        asked: list[Argument] = [limit, len(flows), *named, quota_text(quotas), *apart_from]
        for _ in range(TRIES if limit > 0 and flows else 0):
            now, found, live = await self._aside("due", *asked)
            wanted = chosen(found, live, quotas, limit, self._turns) if found else []
            if not wanted:
                return []
            rows = await self._aside("rows", *(run_id for run_id, _ in wanted))
            judged: Claims = []
            told: list[Argument] = []
            for (run_id, _), fields in zip(wanted, map(hash_of, rows), strict=True):
                if is_free(fields, moment(now)) and is_known(fields, flows):
                    row = run_row(run_id, fields)
                    lease = decide(row, fields, owner=new_owner(), now=moment(now), ttl=ttl, process=process)
                    judged.append((row.changed(lease=lease, needs_repair=row.kept_mark), lease))
                    told += lease_arguments(fields, lease)
            given = await self._aside("claim", 1, quota_text(quotas), *told)
            lanes = dict(wanted)
            claimed = [one for one, is_given in zip(judged, given, strict=True) if is_given]
            for _, lease in claimed:
                self._turns.note(lanes[lease.run_id])
            if claimed:
                return claimed
        return []

    @cached_property
    def _limits(self) -> RedisLimits:
        return RedisLimits(self._aside)

    async def _claim_limited(
        self,
        flows: Collection[tuple[str, str]],
        new_owner: Callable[[], str],
        ttl: timedelta,
        process: Process | None,
        limit: int,
        apart_from: Collection[str],
        quotas: Mapping[str, Quota],
    ) -> Claims:
        def judge(row: RunRow, fields: Hash, now: int) -> tuple[Lease, tuple[Argument, ...]]:
            lease = decide(row, fields, owner=new_owner(), now=moment(now), ttl=ttl, process=process)
            return lease, lease_arguments(fields, lease)

        def is_fit(fields: Hash, now: int) -> bool:
            return bool(fields) and is_free(fields, moment(now)) and is_known(fields, flows)

        wish = Wish(flows, limit, apart_from, quotas)
        claimed = await self._limits.claim_due(wish, self._turns, judge, is_fit)
        for _, _, lane in claimed:
            self._turns.note(lane)
        return [(row, lease) for row, lease, _ in claimed]

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
        def judge(row: RunRow, fields: Hash, now: int) -> tuple[Lease, tuple[Argument, ...]]:
            lease = decide(
                row, fields, owner=owner, now=moment(now), ttl=ttl, process=process, void_epoch=void_epoch
            )
            return lease, lease_arguments(fields, lease)

        return await self._limits.lease_within(run_id, limits, judge)

    async def change_limit(self, key: str, change: LimitChange) -> Any:
        return await self._limits.change(key, change)

    async def limit_states(self, prefix: str, *, limit: int = 1000, after: str = "") -> dict[str, bytes]:
        return await self._limits.states(prefix, limit, after)

    async def renew(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        return await self._on_thread(partial(self.renew_blocking, held, ttl))

    def renew_blocking(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        told = [part for lease in held for part in (lease.run_id, lease.epoch, lease.owner)]
        now, verdicts = self._call("renew", span(ttl), *told)
        return [
            longer(lease, moment(now), ttl) if verdict == b"accepted" else _VERDICTS[verdict]
            for lease, verdict in zip(held, verdicts, strict=True)
        ]

    async def release_lease(self, lease: Lease) -> None:
        await self._aside("release", lease.run_id, lease.epoch)

    def release_blocking(self, lease: Lease) -> None:
        self._call("release", lease.run_id, lease.epoch)

    async def leased(self, owners: Collection[str] | None = None) -> Runs:
        rows = [run_row(name.decode(), hash_of(flat)) for name, flat in await self._aside("leased")]
        return [row for row in rows if owners is None or (row.lease and row.lease.owner in owners)]

    async def set_aside(self, run_id: str, *, epoch: int, reason: str, occasion: str = "") -> bool:
        return bool(await self._aside("set_aside", run_id, epoch, reason, occasion))

    async def notices(self, wanted: NoticeFilter) -> Notices:
        index, most = "" if wanted.state is None else f":{wanted.state}", wanted.limit
        if wanted.run_id is not None:
            index, most = f":run:{wanted.run_id}", -1
        before = "" if wanted.before is None else wanted.before
        found = map(notice_row, await self._aside("notices", index, before, most))
        return [row for row in found if wanted.matches(row)][: wanted.limit]

    async def told_of(self, run_id: str) -> Told:
        _, found = await self._aside("run", run_id)
        return read_told(hash_of(found).get(b"told") if found else None)

    async def take_notices(
        self, notifiers: Collection[str], *, hold: timedelta, limit: int, run_id: str | None = None
    ) -> Notices:
        found = await self._aside("take_notices", span(hold), limit, run_id or "", *notifiers)
        return [notice_row(row) for row in found]

    async def change_notice(
        self, row: NoticeRow, to: NoticeRow | None, *, audit: AuditRow | None = None
    ) -> bool:
        given: Sequence[Argument] = (*notice_arguments(row, to), *audit_told(audit))
        return bool(await self._aside("change_notice", *given))

    async def mark(
        self, run_id: str, *, was: str | None, mark: str | None, audit: AuditRow | None = None
    ) -> bool:
        told: Sequence[Argument] = (marked(was), marked(mark), *audit_told(audit))
        return bool(await self._aside("mark", run_id, *told))

    async def pause_lane(self, lane: LanePause, *, audit: AuditRow | None = None) -> bool:
        told: Sequence[Argument] = (lane.flow_id, lane.group, lane_bytes(lane), *audit_told(audit))
        return bool(await self._aside("pause_lane", *told))

    async def unpause_lane(self, flow_id: str, group: str, *, audit: AuditRow | None = None) -> bool:
        return bool(await self._aside("pause_lane", flow_id, group, b"", *audit_told(audit)))

    async def held(self, run_ids: Collection[str]) -> Held:
        return await self._on_thread(partial(self.held_blocking, run_ids))

    def held_blocking(self, run_ids: Collection[str]) -> Held:
        return read_held(*self._call("held", *run_ids))

    async def fence(self, run_id: str, by: int) -> bool:
        return bool(await self._aside("fence", run_id, by, once=True))

    async def report(self, worker: WorkerRow, ttl: timedelta) -> None:
        await self._on_thread(partial(self.report_blocking, worker, ttl))

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        self._call("report", worker.worker_id, span(ttl), msgspec.json.encode(worker))

    async def leave(self, worker_id: str) -> None:
        await self._aside("leave", worker_id)

    async def workers(self) -> Workers:
        said = [told.split(b" ", 1) for told in await self._aside("workers")]
        alive = [read_worker(details, int(seen_at)) for seen_at, details in said]
        return sorted(alive, key=lambda worker: (worker.started_at, worker.worker_id))

    async def run(self, run_id: str) -> RunRow | None:
        _, flat = await self._aside("run", run_id)
        return run_row(run_id, hash_of(flat)) if flat else None

    async def blueprint(self, flow_hash: str) -> bytes | None:
        return await self._blueprints.get(flow_hash)

    async def _read_blueprints(self, hashes: Hashes) -> dict[str, bytes | None]:
        found = await self._aside("structures", *hashes)
        return dict(zip(hashes, found, strict=True))

    async def introduce(self, flow_id: str, flow_hash: str, blueprint: bytes) -> Hashes:
        return [found.decode() for found in await self._aside("introduce", flow_id, flow_hash, blueprint)]

    async def request_stop(
        self,
        run_id: str,
        wanted: StopRequest,
        note: bytes | None = None,
        *,
        head: int | None = None,
        audit: AuditRow | None = None,
    ) -> bool:
        told: Sequence[Argument] = (wanted.value, note or b"", "" if head is None else head)
        return bool(await self._aside("request_stop", run_id, *told, *audit_told(audit)))

    async def note_audit(self, row: AuditRow) -> None:
        await self._aside("note_audit", *audit_told(row))

    async def audit(self, wanted: AuditFilter) -> list[AuditRow]:
        found: list[AuditRow] = []
        edge = "" if wanted.after is None else str(wanted.after)
        told = (_PAGE, int(wanted.after is not None))
        while page := await self._aside("audit", wanted.run_id or "", edge, *told):
            rows = [audit_row(number, said) for number, said in page]
            found += filter(wanted.matches, rows)
            if len(found) >= wanted.limit or len(page) < _PAGE:
                break
            edge = str(rows[-1].number)
        found = found[: wanted.limit]
        return found if wanted.after is not None else found[::-1]

    async def forget_audit(self, *, before: datetime, limit: int = 1000) -> int:
        return int(await self._aside("forget_audit", micros(before), limit))

    async def stop_note(self, run_id: str) -> bytes | None:
        _, flat = await self._aside("run", run_id)
        row = hash_of(flat) or {}
        return row.get(b"signal_note") if b"signal" in row else None

    async def waits(self, wanted: WaitFilter) -> Waits:
        status = wanted.status.value if wanted.status is not None else ""
        if wanted.is_untold:
            index = "waits:untold"
        elif wanted.run_id is not None:
            index = f"waits:{'unclosed' if wanted.leaves_out_closed else 'run'}:{wanted.run_id}"
        elif wanted.status in (WaitStatus.OPEN, WaitStatus.SETTLED) or wanted.flow_id is None:
            index = f"waits:{status}" if status else "waits"
        else:
            index = f"waits:flow:{wanted.flow_id}"
        narrowed = [marked(part) for part in (wanted.after, wanted.run_id, wanted.flow_id, wanted.kind)]
        return _waits(await self._aside("waits", index, wanted.limit, *narrowed, status))

    async def send(
        self, run_id: str, signal: SignalRow, *, most: int = MOST_UNTAKEN, audit: AuditRow | None = None
    ) -> Sending:
        message = (signal.signal_id, signal.name, signal.value or b"")
        about: Sequence[Argument] = (*message, most, *audit_told(audit))
        return Sending((await self._aside("send", run_id, *about)).decode())

    async def inbox(
        self,
        run_id: str,
        *,
        name: str | None = None,
        after: int = 0,
        limit: int = 100,
        is_taken: bool = False,
    ) -> Signals:
        found = await self._aside("inbox", run_id, marked(name), after, limit, int(is_taken))
        return [signal_row(hash_of(flat)) for flat in found]

    async def labels(self, run_ids: Sequence[str]) -> dict[str, Labels]:
        found = await self._aside("labels", *run_ids) if run_ids else []
        read = {run_id: labels(run_id, *kept) for run_id, kept in zip(run_ids, found, strict=True)}
        return {run_id: one for run_id, one in read.items() if one != NO_LABELS}

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
        [told_by] = audit_told(audit) or (b"",)
        at = "" if head is None else head
        told: list[Argument] = [run_id, most, told_by, at, len(add), *tag_fields(add), *remove]
        return Tagging((await self._aside("tag", *told)).decode())

    async def recode_signals(self, run_id: str, signals: Sequence[RecodedSignal]) -> int:
        told = (part for new in signals for part in (new.number, new.was, new.value))
        return int(await self._aside("recode_signals", run_id, *told))

    async def keep_event(self, event: EventRow, *, audit: AuditRow | None = None) -> Hashes:
        kept = 0 if event.expires_at is None else span(event.expires_at - event.published_at)
        about = (event.event_id, event.name, event.value, Wanted(event.name, {}).prefix, kept)
        fields = (part for pair in event.fields.items() for part in pair)
        [told] = audit_told(audit) or (b"",)
        topics = await self._aside("keep_event", *about, told, *fields)
        found = [Wanted.of(topic.decode()) for topic in topics]
        return [wanted.shape for wanted in found if wanted is not None]

    async def had_events(self, run_id: str) -> list[HadEvent]:
        found = await self._aside("had_events", run_id)
        return sorted(HadEvent(*(part.decode() for part in one)) for one in found)

    async def settle_event(
        self, event: EventRow, topics: Collection[str], *, audit: AuditRow | None = None
    ) -> int:
        [told] = audit_told(audit) or (b"",)
        about = (event.name, event.event_id, event.value, MOST_AT_ONCE, told)
        return int(await self._aside("settle_event", *about, *topics))

    async def wait(self, wait_id: str) -> WaitRow | None:
        return wait_row(hash_of(await self._aside("wait", wait_id)))

    async def wait_of_token(self, token_hash: bytes) -> WaitRow | None:
        return wait_row(hash_of(await self._aside("wait_of_token", token_hash)))

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
        told = audit_told(audit)
        if was is not None:
            told = (*(told or (b"",)), marked(was))
        # Called once: if the reply were lost, a second call would say that another answer had come first.
        done, flat = await self._aside(
            "settle",
            wait_id,
            by.value,
            marked(answer),
            marked(token_hash),
            "" if at is None else micros(at),
            marked(details),
            *told,
            once=True,
        )
        return bool(done), wait_row(hash_of(flat))

    async def fire(self, run_id: str) -> Waits:
        return _waits(await self._aside("fire", run_id))

    async def change_wait(
        self, wait_id: str, change: WaitChange, *, was: bytes | None = None, audit: AuditRow | None = None
    ) -> WaitRow | None:
        [told] = audit_told(audit) or (b"",)
        given = wait_changes(change) if was is None else ["was", marked(was), *wait_changes(change)]
        return wait_row(hash_of(await self._aside("change_wait", wait_id, told, *given)))

    async def now(self) -> datetime | None:
        return moment(await self._aside("now"))

    async def next_due(self, *, after: datetime | None = None) -> datetime | None:
        found = await self._aside("next_due", "-inf" if after is None else f"({micros(after)}")
        due = moment(found) if found is not None else None
        if after is not None and "_limits" in vars(self) and self._limits.full:
            due = min(filter(None, (due, next_open(self._limits.full, after))), default=None)
        return due

    def changes(self) -> int:
        return self._watch.count()

    async def counts(self) -> Counts:
        statuses = [status.value for status in Status]
        numbers, kinds = await self._aside("counts", *statuses)
        runs = {status: number for status, number in zip(statuses, numbers, strict=True) if number}
        return Counts(runs=runs, waits={kind.decode(): int(n) for kind, n in hash_of(kinds).items()})

    async def backlog(self) -> list[Backlog]:
        return [
            Backlog(flow_id=flow.decode(), flow_hash=flow_hash.decode(), many=many, since=moment(since))
            for flow, flow_hash, many, since in await self._aside("backlog", _MOST_DUE)
        ]

    async def run_at(self, checkpoint_id: str) -> str | None:
        # A status changes only with a put, which makes another checkpoint the newest: none is missed.
        for status in _CAN_GO_ON:
            seen = 0
            while True:
                found, many = await self._aside("run_at", status.value, checkpoint_id, seen, _PAGE)
                if found is not None:
                    return str(found.decode())
                if many < _PAGE:
                    break
                seen += many
        return None

    async def ack(self, run_id: str, *, audit: AuditRow | None = None) -> None:
        await self._aside("ack", run_id, *audit_told(audit))

    async def erase(
        self,
        run_id: str,
        *,
        head: int,
        reason: str,
        summary: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> Erasure:
        return await self._erasures.get(ToErase(run_id, head, reason, summary, audit, object()))

    async def _erase_some(self, asked: list[ToErase]) -> dict[ToErase, Erasure]:
        verdicts: dict[ToErase, Erasure] = {}
        while left := [one for one in asked if one not in verdicts]:
            now, found = await self._aside("erasable", *(one.run_id for one in left))
            told: list[Argument] = []
            judged: list[ToErase] = []
            for one, (flat, has_forks) in zip(left, found, strict=True):
                fields = hash_of(flat)
                verdict = one.judge(fields, moment(now), has_forks=bool(has_forks))
                if verdict is not Erasure.ERASED:
                    verdicts[one] = verdict
                    continue
                judged.append(one)
                seen = (one.head, marked(fields.get(b"expires")), marked(fields.get(b"pinned")))
                [row] = audit_told(one.audit) or (b"",)
                told += (one.run_id, *seen, one.reason, marked(one.summary), row)
            # Judged by what the rows said; one that says something else by now is judged again.
            gone = await self._aside("erase", *told) if told else []
            verdicts |= {one: Erasure.ERASED for one, is_gone in zip(judged, gone, strict=True) if is_gone}
        return verdicts

    async def tombstone(self, run_id: str) -> Tombstone | None:
        found = hash_of(await self._aside("tombstone", run_id))
        return tombstone(run_id, found) if found else None

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        told = (wanted.limit, marked(wanted.before), marked(wanted.flow_id))
        found = await self._aside("tombstones", *told)
        return [tombstone(name.decode(), hash_of(flat)) for name, flat in found]

    async def forget(self, run_ids: Sequence[str]) -> int:
        gone: int = await self._aside("forget", *run_ids)
        return gone

    async def pin(
        self, run_id: str, reason: str | None, *, head: int | None = None, audit: AuditRow | None = None
    ) -> bool:
        told: Sequence[Argument] = (marked(reason), "" if head is None else head)
        return bool(await self._aside("pin", run_id, *told, *audit_told(audit)))

    async def note(self, removal: Removal) -> None:
        await self._aside("note", msgspec.json.encode(removal))

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        first, lines = await self._aside("removals", limit, "" if before is None else before)
        return [(first + k, read_removal(said)) for k, said in enumerate(lines)][::-1]

    async def tidy(self, *, limit: int = 1000) -> int:
        return 0

    async def list(self, wanted: RunFilter) -> list[RunRow]:
        status = wanted.status.value if wanted.status is not None else ""
        if wanted.run_id is not None:
            row = await self.run(wanted.run_id)
            is_wanted = row is not None and wanted.limit > 0 and wanted.matches(row)
            is_there = is_wanted and await self._is_before(wanted.run_id, wanted.before)
            return [row] if row is not None and is_there else []
        has_origin = wanted.parent_run_id is not None or wanted.started_by is not None
        if wanted.marked and not has_origin:
            narrowed = ("repair", marked(wanted.flow_id), status)
        elif wanted.pinned and not has_origin:
            narrowed = ("kept", marked(wanted.flow_id), status)
        elif wanted.parent_run_id is not None:
            narrowed = (f"forks:{wanted.parent_run_id}", marked(wanted.flow_id), status)
        elif wanted.started_by is not None:
            narrowed = (f"started:{wanted.started_by}", marked(wanted.flow_id), status)
        elif wanted.flow_id is not None:
            narrowed = (f"status:{status}:{wanted.flow_id}" if status else f"flow:{wanted.flow_id}", b"", "")
        else:
            narrowed = (f"status:{status}" if status else "runs", b"", "")
        index, flow, of_status = narrowed
        told = (wanted.before or "", flow, of_status, wanted.marked)
        # An earlier release that erases a run leaves it in the index of its starter.
        fields = [*["pinned"] * wanted.pinned, *["started_by"] * (wanted.started_by is not None)]
        found = await self._aside("list", index, wanted.limit, *told, *fields)
        return [run_row(name.decode(), hash_of(flat)) for name, flat in found]

    async def _is_before(self, run_id: str, other: str | None) -> bool:
        """True if a run was admitted before another one, or there is none to compare it with."""
        if other is None:
            return True
        mine, its = [await self._aside("number_of", name) for name in (run_id, other)]
        return mine is not None and its is not None and int(mine) < int(its)

    async def health(self) -> Health:
        return await self._on_thread(partial(look_at, self._links))

    async def write_probe(self) -> None:
        await self._aside("probe")

    async def close(self) -> None:
        self._watch.close()
        self._threads.close(wait=False)
        self._links.close()


class ToErase(NamedTuple):
    """A run that is to be erased as it was looked at."""

    run_id: str
    head: int
    reason: str
    summary: bytes | None
    audit: AuditRow | None
    asked: object
    """Another one each time: of two that ask for the same, one erases the run."""

    def judge(self, fields: Hash, now: datetime, *, has_forks: bool) -> Erasure:
        """Return what becomes of the run, by what its row says."""
        row = run_row(self.run_id, fields) if fields else None
        return judge_erasure(
            is_there=row is not None,
            checkpoints=row.checkpoints if row is not None else 0,
            head=self.head,
            lease=row.lease if row is not None else None,
            now=now,
            has_forks=has_forks,
            pinned=row.pinned if row is not None else None,
        )


def _waits(found: Sequence[Sequence[bytes]]) -> Waits:
    rows = [wait_row(hash_of(flat)) for flat in found]
    return [row for row in rows if row is not None]
