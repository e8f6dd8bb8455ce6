"""Which runs of a bucket are due, and who owns the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from everstep.engine.claims import ClaimTurns, Lane, Room, choose
from everstep.errors import LeaseConflict, StateCorrupted, StoreUnavailable
from everstep.model.enums import Status
from everstep.model.leases import KeyLimit, KeyState, Lease, Process, Quota
from everstep.model.waits import WaitStatus
from everstep.on_demand import on_demand
from everstep.ports.store import Backlog, RunRow, no_such_run
from everstep.stores.columns import to_int
from everstep.stores.objects import names
from everstep.stores.objects.drafts import Draft
from everstep.stores.objects.entries import Standing, opened, read, sealed
from everstep.stores.objects.lines import Lines
from everstep.stores.objects.logs import RunLine

if TYPE_CHECKING:
    from everstep.engine.limits.keys import KeyRoom, next_open
    from everstep.engine.limits.rates import micros_at
    from everstep.ports.limits import LimitChange
else:
    KeyRoom = on_demand("everstep.engine.limits.keys:KeyRoom")
    micros_at = on_demand("everstep.engine.limits.rates:micros_at")
    next_open = on_demand("everstep.engine.limits.keys:next_open")

EARLIEST = datetime.min.replace(tzinfo=UTC)
_PENDING = timedelta(seconds=30)
_TRIES = 50
Flows = Collection[tuple[str, str]]


class ObjectsWish(msgspec.Struct, frozen=True):
    """What a claimant wants, and for how long."""

    new_owner: Callable[[], str]
    ttl: timedelta
    process: Process | None


class Due(NamedTuple):
    """A run that is due: since when, and the order in which it came in."""

    since: datetime
    order: int
    row: RunRow
    starts: bool
    """True if it was never claimed."""


class Pending(msgspec.Struct, frozen=True, array_like=True):
    """A claim that is about to be made, counted before it is."""

    run_id: str
    place: int
    """Where the log of the run stood."""
    group: str
    until: int
    owner: str


class Noted(msgspec.Struct, frozen=True, array_like=True):
    """The claims of a flow that are about to be made."""

    writes: int
    """So that no two ledgers are the same."""
    claims: list[Pending] = []
    states: dict[str, KeyState] = {}
    """What counts for the keys of its limits, by their names."""


_ledgers = msgspec.msgpack.Decoder(Noted)


class Claims:
    """The runs that are due."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._turns = ClaimTurns()
        self._full: dict[str, int] = {}
        """Keys of limits, and until when they are known to be full."""

    def claim_due(
        self,
        flows: Flows,
        wish: ObjectsWish,
        limit: int,
        apart_from: Collection[str],
        quotas: Mapping[str, Quota],
    ) -> list[tuple[RunRow, Lease]]:
        """Claim runs that are due."""
        wanted = set(flows)
        claimed: list[tuple[RunRow, Lease]] = []
        passed = set(apart_from)
        while len(claimed) < limit and wanted:
            now = self._lines.now()
            # First the ledger: what is struck out of it the logs already tell.
            ledger = ClaimLedger(self._lines, {flow for flow, _ in wanted} & quotas.keys())
            lines = self._candidates(now)
            limited = {name for name, quota in quotas.items() if quota.limits}
            # A start that is written down counts, so no run is written down by two.
            due = list(
                self._due(lines, now, wanted, passed | ledger.pending(now).keys() if limited else passed)
            )
            if not due:
                break
            live = self._live(lines, now, ledger) if quotas else {}
            keys = self._keys(quotas, live, ledger, now)
            room = Room(quotas, live, keys)
            left = limit - len(claimed)
            chosen = list(choose(_lanes(due, limited), limit=left, room=room, turns=self._turns))
            if not chosen:
                break
            for run_id, lane in chosen:
                if keys is not None:
                    keys.started(lane.flow_id, lane.group, run_id, starts=lane.starts)
            made = [wish.new_owner() for _ in chosen]
            runs = [self._lines.known(run_id) for run_id, _ in chosen]
            if not ledger.note(list(zip(runs, made, strict=True)), now, keys):
                continue
            granted = self._lines.each(
                lambda item: self._claim(item[0], item[1], wish), list(zip(runs, made, strict=True))
            )
            ledger.strike()
            for (run_id, lane), got in zip(chosen, granted, strict=True):
                self._turns.note(lane)
                passed.add(run_id)
                if got is not None:
                    claimed.append(got)
            if all(got is not None for got in granted):
                break
        return claimed

    def _keys(
        self,
        quotas: Mapping[str, Quota],
        live: Mapping[tuple[str, str], int],
        ledger: ClaimLedger,
        now: datetime,
    ) -> KeyRoom | None:
        """Return what limits leave room for; none if there are none."""
        if not any(quota.limits for quota in quotas.values()):
            return None
        known: dict[str, bool] = {}

        def is_under_way(run_id: str) -> bool:
            if run_id not in known:  # each look is a call, and this claim is judged by one
                known[run_id] = self._is_under_way(run_id, ledger, now)
            return known[run_id]

        return KeyRoom(quotas, live, ledger.state, micros_at(now), self._full, is_under_way)

    def _is_under_way(self, run_id: str, ledger: ClaimLedger, now: datetime) -> bool:
        """True if a run has begun, or is about to, and has not ended."""
        is_pending = run_id in ledger.pending(now)  # first: once it is not, its log tells
        standing = self._lines.fresh(run_id).standing
        if standing is None or standing.row.status.is_final:
            return False
        return is_pending or standing.epoch > 0

    def lease_within(
        self, run_id: str, wish: ObjectsWish, limits: Sequence[KeyLimit], void_epoch: int | None
    ) -> Lease:
        """Claim a run that is named, if its limits leave room for it.

        The claim is written down before it is made, as others are: all who claim count it.
        """
        while True:
            now = self._lines.now()
            line = self._lines.fresh(run_id)
            standing = line.standing
            if standing is None:
                raise no_such_run(run_id)
            flow_id, group, starts = standing.row.flow_id, standing.row.group or "", standing.epoch == 0
            ledger = ClaimLedger(self._lines, [flow_id])
            live = self._live(self._candidates(now), now, ledger)
            if (held := self._lines.held(line, standing)) is not None and held.expires_at > now:
                live[flow_id, group] -= 1  # its own, which is to be taken over or refused
            keys = self._keys({flow_id: Quota(limits=tuple(limits))}, live, ledger, now)
            if keys is not None and not keys.has(flow_id, group, starts=starts, run_id=run_id):
                raise keys.refusal(run_id, flow_id, group, starts=starts)
            if keys is not None:
                keys.started(flow_id, group, run_id, starts=starts)
            owner = wish.new_owner()
            if not ledger.note([(line, owner)], now, keys):
                continue
            try:
                return self._lines.write(run_id, _claiming(owner, wish, void_epoch))
            finally:
                ledger.strike()

    def change_limit(self, key: str, change: LimitChange) -> Any:
        """Change what is kept under a key."""
        name, bucket = names.limit_name(key), self._lines.bucket
        for _ in range(_TRIES):
            found = bucket.get(name)
            was = None if found is None else opened(found.data, name) or None
            body, said = change(was, self._lines.now())
            data = sealed(body or b"")
            if body == was or (
                bucket.create(name, data) if found is None else bucket.swap(name, data, found.tag)
            ):
                return said
        raise StoreUnavailable(f"limit {key!r} is written to by many at once.")

    def limit_states(self, prefix: str, limit: int, after: str) -> dict[str, bytes]:
        """Return what is kept under keys that begin with a text, and come behind another."""
        found: dict[str, bytes] = {}
        for name in self._lines.bucket.names(names.LIMITS):
            key, kept = names.read_limit(name), self._lines.bucket.get(name)
            if key.startswith(prefix) and kept is not None and (body := opened(kept.data, name)):
                found[key] = body
        for name in self._lines.bucket.names(names.QUOTAS):
            kept = self._lines.bucket.get(name)
            states = {} if kept is None else read(_ledgers, kept.data, name).states
            for key, state in states.items():
                if key.startswith(prefix) and (told := state.body()) is not None:
                    found[key] = told
        return {key: found[key] for key in sorted(key for key in found if key > after)[:limit]}

    def _claim(self, line: RunLine, owner: str, wish: ObjectsWish) -> tuple[RunRow, Lease] | None:
        def work(draft: Draft) -> Lease | None:
            if not draft.exists or self._since(line, draft.standing, draft.now, looks=True) is None:
                return None
            lease = draft.claim(owner, wish.ttl, wish.process, None)
            draft.fire()
            return lease

        try:
            lease = self._lines.write(line.run_id, work)
        except LeaseConflict:
            return None
        if lease is None or line.standing is None:
            return None
        return line.standing.row, lease

    # -- who is due --------------------------------------------------------------

    def _candidates(self, now: datetime | None) -> list[RunLine]:
        """Return the runs that are marked, as they stand; with a time, of those with waits only what is due.

        What is known of a run is enough unless a mark is newer: everything that makes a run due marks it.
        """
        bucket = self._lines.bucket
        markers = [names.read_live(name) for name in bucket.names(names.LIVE)]
        waiting = bucket.names(names.WAITING)
        if now is not None:
            bound = names.waiting_bound(now)
            waiting = [name for name in waiting if name < bound]
        markers += [names.read_waiting(name) for name in waiting]
        newest: dict[str, int] = {}
        for marker in markers:
            if marker.place > newest.get(marker.run_id, 0):
                newest[marker.run_id] = marker.place
        found = {run_id: self._lines.seen(run_id, place) for run_id, place in newest.items()}
        unseen = [(run_id, newest[run_id]) for run_id, line in found.items() if line is None]
        for line in self._lines.each(lambda item: self._readable(*item), unseen):
            if line is not None:
                found[line.run_id] = line
        self._clean(found, markers)
        return [line for line in found.values() if line is not None and line.standing is not None]

    def _readable(self, run_id: str, place: int) -> RunLine | None:
        """Return a run as it stands; none if nothing can be read of it, which must not stop others."""
        try:
            return self._seen(run_id, place)
        except StateCorrupted:
            return None

    def _seen(self, run_id: str, place: int) -> RunLine:
        line = self._lines.known(run_id)
        if line.head is None or line.head.place < place:
            self._lines.look(line)
        return line

    def _clean(self, found: Mapping[str, RunLine | None], markers: Sequence[names.Marker]) -> None:
        """Remove marks that stand for nothing any more."""
        stale = []
        for marker in markers:
            line = found.get(marker.run_id)
            head = None if line is None else line.head
            if head is None or marker.place > head.place:
                continue
            is_live = marker.name.startswith(names.LIVE)
            current = head.standing.live if is_live else head.standing.waiting
            if marker.name != current:
                stale.append(marker.name)
        if stale:
            self._lines.bucket.delete(stale)

    def backlog(self) -> list[Backlog]:
        """Count the runs that are due, by version of their flow."""
        now = self._lines.now()
        found: dict[tuple[str, str], list[datetime]] = {}
        for line in self._candidates(now):
            standing = line.standing
            since = self._since(line, standing, now, looks=False) if standing is not None else None
            if standing is not None and since is not None:
                key = standing.row.flow_id, standing.row.flow_hash
                found.setdefault(key, []).append(now if since == EARLIEST else since)
        return [
            Backlog(flow_id=flow_id, flow_hash=flow_hash, many=len(times), since=min(times))
            for (flow_id, flow_hash), times in found.items()
        ]

    def _due(
        self, lines: Sequence[RunLine], now: datetime, flows: Flows, passed: Collection[str]
    ) -> Iterator[Due]:
        """Yield the runs of these flows that are due, apart from some."""
        for line in lines:
            standing = line.standing
            if standing is None or line.run_id in passed:
                continue
            if (standing.row.flow_id, standing.row.flow_hash) not in flows:
                continue
            since = self._since(line, standing, now, looks=False)
            if since is not None:
                yield Due(since, standing.order, standing.row, standing.epoch == 0)

    def _since(self, line: RunLine, standing: Standing, now: datetime, *, looks: bool) -> datetime | None:
        """Return since when a run is due; none if it is not, or has an owner."""
        row = standing.row
        if row.status.is_final or row.needs_repair is not None:
            return None
        if row.status is Status.HALTED and row.stop_request is None and not _ripe(standing, now):
            return None
        lease = self._lines.lease_seen(line, standing)
        if lease is not None and (looks or lease.expires_at <= now):
            lease = self._lines.held(line, standing)
        if lease is not None and lease.expires_at > now:
            return None
        if row.stop_request is not None:
            return EARLIEST
        if row.status is Status.HALTED:
            return min(_ripe(standing, now))
        return row.created_at if lease is None else lease.expires_at

    def _live(self, lines: Sequence[RunLine], now: datetime, ledger: ClaimLedger) -> Counter[tuple[str, str]]:
        pending = ledger.pending(now)
        decided = [line for line in lines if line.run_id not in pending]
        live = Counter((row.flow_id, row.group or "") for row in self._held(decided, now))
        return live + Counter(pending.values())

    def _held(self, lines: Sequence[RunLine], now: datetime) -> list[RunRow]:
        def held(line: RunLine) -> RunRow | None:
            standing = line.standing
            if standing is None or standing.row.lease is None:
                return None
            lease = self._lines.lease_seen(line, standing)
            if lease is None or lease.expires_at <= now:
                lease = self._lines.held(line, standing)
            if lease is None or lease.expires_at <= now:
                return None
            return msgspec.structs.replace(standing.row, lease=lease)

        return [row for row in self._lines.each(held, lines) if row is not None]

    def leased(self, owners: Collection[str] | None) -> list[RunRow]:
        """Return the runs whose lease holds."""
        now = self._lines.now()
        markers = {names.read_live(name).run_id for name in self._lines.bucket.names(names.LIVE)}
        rows = self._lines.each(self._row, sorted(markers))
        return [
            row
            for row in rows
            if row is not None
            and row.lease is not None
            and row.lease.expires_at > now
            and (owners is None or row.lease.owner in owners)
        ]

    def _row(self, run_id: str) -> RunRow | None:
        try:
            return self._lines.row(self._lines.fresh(run_id))
        except StateCorrupted:
            return None

    def unfinished(self) -> list[RunLine]:
        """Return all runs that have an owner, are due, or have waits."""
        return self._candidates(None)

    def next_due(self, after: datetime | None) -> datetime | None:
        """Return when the next wait of a halted run is due."""
        bound = "" if after is None else names.waiting_bound(after)
        earliest = next_open(self._full, after) if self._full and after is not None else None
        for name in self._lines.bucket.names(names.WAITING, after=bound):
            due = names.waiting_due(name)
            if due is None or (earliest is not None and due > (to_int(earliest) or 0)):
                break
            times = self._times(name)
            later = [at for at in times if after is None or at > after]
            earliest = min([*later, *([] if earliest is None else [earliest])], default=None)
        if after is None:
            return earliest
        return self._next_behind(after, earliest)

    def _next_behind(self, after: datetime, earliest: datetime | None) -> datetime | None:
        """Also look at runs whose first wait is due already, and another later."""
        for name in self._lines.bucket.names(names.WAITING):
            if name >= names.waiting_bound(after):
                break
            for at in self._times(name):
                if at > after and (earliest is None or at < earliest):
                    earliest = at
        return earliest

    def _times(self, name: str) -> list[datetime]:
        """Return when open waits of a halted run are due, by the name under which it is marked."""
        marker = names.read_waiting(name)
        line = self._seen(marker.run_id, marker.place)
        if line.standing is None or line.standing.waiting != name:
            self._lines.look(line)
        standing = line.standing
        if standing is None or standing.waiting != name or standing.row.status is not Status.HALTED:
            return []
        return [mark.due_at for mark in standing.waits if mark.due_at is not None]


class ClaimLedger:
    """The claims that are about to be made of flows with a quota, counted by everybody who claims."""

    def __init__(self, lines: Lines, flows: Collection[str]) -> None:
        self._lines = lines
        self._seen = {flow: self._read(flow) for flow in sorted(flows)}
        self._noted: dict[str, list[Pending]] = {}

    def _read(self, flow: str) -> tuple[Noted, str | None]:
        name = names.quota_name(flow)
        found = self._lines.bucket.get(name)
        return (Noted(0), None) if found is None else (read(_ledgers, found.data, name), found.tag)

    def _write(self, flow: str, wanted: Noted, tag: str | None) -> bool:
        name, bucket = names.quota_name(flow), self._lines.bucket
        data = sealed(msgspec.msgpack.encode(Noted(wanted.writes + 1, wanted.claims, wanted.states)))
        return bucket.create(name, data) if tag is None else bucket.swap(name, data, tag)

    def pending(self, now: datetime) -> dict[str, tuple[str, str]]:
        """Return the runs of which it is not decided yet whether they are claimed, with flow and group."""
        return {
            claim.run_id: (flow, claim.group)
            for flow, (ledger, _) in self._seen.items()
            for claim in ledger.claims
            if self._is_open(claim, now)
        }

    def _is_open(self, claim: Pending, now: datetime) -> bool:
        if claim.until <= (to_int(now) or 0):
            return False
        line = self._lines.known(claim.run_id)
        self._lines.look(line)
        return line.head is None or line.head.place <= claim.place

    def state(self, key: str) -> KeyState:
        """Return what counts for a key of a limit."""
        for ledger, _ in self._seen.values():
            if key in ledger.states:
                return ledger.states[key]
        return KeyState()

    def note(self, claims: Sequence[tuple[RunLine, str]], now: datetime, keys: KeyRoom | None = None) -> bool:
        """Write down what will be claimed; false if another did meanwhile: all is to be judged anew."""
        until = to_int(now + _PENDING) or 0
        for line, owner in claims:
            standing = line.standing
            if standing is not None and line.head is not None and standing.row.flow_id in self._seen:
                group = standing.row.group or ""
                pending = Pending(line.run_id, line.head.place, group, until, owner)
                self._noted.setdefault(standing.row.flow_id, []).append(pending)
        for flow in list(self._noted):
            ledger, tag = self._seen[flow]
            kept = [claim for claim in ledger.claims if self._is_open(claim, now)]
            states = ledger.states if keys is None else keys.merged(flow, ledger.states)
            if not self._write(flow, Noted(ledger.writes, kept + self._noted[flow], states), tag):
                del self._noted[flow]
                self.strike()
                return False
        return True

    def strike(self) -> None:
        """Take out what was written down: by now the logs themselves tell."""
        for flow, noted in self._noted.items():
            owners = {claim.owner for claim in noted}
            for _ in range(_TRIES):
                seen, tag = self._read(flow)
                left = [claim for claim in seen.claims if claim.owner not in owners]
                if len(left) == len(seen.claims) or self._write(
                    flow, Noted(seen.writes, left, seen.states), tag
                ):
                    break
            else:
                raise StoreUnavailable(f"the quota of flow {flow!r} is written to by many at once.")
        self._noted = {}


def _claiming(owner: str, wish: ObjectsWish, void_epoch: int | None) -> Callable[[Draft], Lease]:
    return lambda draft: draft.claim(owner, wish.ttl, wish.process, void_epoch)


def _lanes(due: Sequence[Due], limited: Collection[str]) -> Iterator[Lane]:
    lanes: dict[tuple[int, str, str, bool], list[str]] = {}
    for _, _, row, starts in sorted(due, key=lambda one: one[:2]):
        starts = starts and row.flow_id in limited
        lanes.setdefault((row.priority, row.flow_id, row.group or "", starts), []).append(row.run_id)
    return (Lane(*key[:3], run_ids, starts=key[3]) for key, run_ids in lanes.items())


def _ripe(standing: Standing, now: datetime) -> list[datetime]:
    """Return since when waits have their answer, or are due."""
    found = []
    for mark in standing.waits:
        if mark.status is WaitStatus.SETTLED:
            found.append(mark.settled_at or EARLIEST)
        elif mark.due_at is not None and mark.due_at <= now:
            found.append(mark.due_at)
    return found
