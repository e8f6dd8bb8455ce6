"""Claiming runs: one that is named, or those whose turn it is. Apart from the tables, as only workers ask."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from everstep.engine import leases
from everstep.engine.claims import ClaimTurns, Lane, Room, choose
from everstep.errors import LeaseConflict, StateCorrupted
from everstep.model.leases import KeyLimit, Lease, Process, Quota
from everstep.on_demand import on_demand
from everstep.ports.store import RunRow, no_such_run
from everstep.stores.columns import EPOCH, process_text, span_to_int, to_int, to_time
from everstep.stores.postgres.columns import array, held_lease, read_text, run_row, text
from everstep.stores.postgres.connections import Connection, in_few_trips, rows
from everstep.stores.tables import FoundRun, Held

if TYPE_CHECKING:
    from everstep.stores.postgres.limits import PostgresLimits
else:
    PostgresLimits = on_demand("everstep.stores.postgres.limits:PostgresLimits")

Claims = list[tuple[RunRow, Lease]]
Row = tuple[Any, ...]
LaneKey = tuple[int, str, str, bool]
"""Priority, flow and group, and whether the runs were never claimed and have limits."""
Found = tuple[int, int, "Candidate"]
"""Since when a run is due, its key, by which equals are ordered, and the run."""
SPARE = 32
"""How many more runs are chosen than are wanted: other workers may be about to take the first ones."""
_QUOTA_LOCK = 0x65766573
_NONE: Mapping[str, Collection[str]] = {}


class DueWish(NamedTuple):
    """What a worker would like to drive, and how it would hold it."""

    now: int | None
    flows: Collection[tuple[str, str]]
    apart_from: Collection[str]
    limit: int
    quotas: Mapping[str, Quota]
    new_owner: Callable[[], str]
    ttl: timedelta
    process: Process | None


class Candidate(NamedTuple):
    """A run that a claimant would like to have, as the engine judges it."""

    key: int
    run_id: str
    held: Held
    newest: int | None
    """Where its newest record is; not looked up if the run has no owner."""
    at: int
    """The store's time."""

    @classmethod
    def of(cls, row: Row) -> Candidate:
        """Take a row of runs that the store's time ends."""
        found, run = FoundRun.of(row), run_row(row)
        return cls(found.key, run.run_id, found.held, found.newest, row[-1])

    def judge(self, owner: str, ttl: timedelta, process: Process | None, void_epoch: int | None) -> Lease:
        """Return the lease that a claimant gets, or raise `LeaseConflict`."""
        return leases.claim(
            held_lease(self.run_id, self.held),
            run_id=self.run_id,
            owner=owner,
            process=process,
            now=to_time(self.at) or EPOCH,
            ttl=ttl,
            newest_epoch=self.held.epoch,
            has_progressed=(self.newest or 0) > self.held.claimed_sequence,
            void_epoch=void_epoch,
        )

    def claim_values(self, granted: Lease) -> Row:
        """Return what the query `claim` takes to grant a lease on the run as it was judged."""
        expires_at, process = to_int(granted.expires_at), process_text(granted.process)
        lease = (granted.epoch, text(granted.owner), expires_at, process, granted.takeovers)
        return (self.key, *lease, self.newest, self.held.epoch, self.held.owner, self.held.expires_at)


class PostgresDueRuns:
    """The runs that are due, and whose turn it is.

    As long as few runs are due, all of them are looked at. Where there are more than a claim can use, an
    index leads from lane to lane. Runs of other flows are never met.
    """

    def __init__(self, sql: dict[str, str], schema: str) -> None:
        self._sql = sql
        self._schema = schema
        self._turns = ClaimTurns()

    @cached_property
    def limits(self) -> PostgresLimits:
        """What limits leave room for."""
        return PostgresLimits(self._sql, self._schema)

    @property
    def has_full_keys(self) -> bool:
        """True if this client knows keys of limits that are full."""
        return "limits" in vars(self) and bool(self.limits.full)

    def claim(self, db: Connection, wish: DueWish) -> Claims:
        """Claim up to so many; those that others are about to take are passed over."""
        if wish.limit <= 0 or not wish.flows:
            return []
        if wish.quotas and _limited(wish):
            with self.limits.lock:
                return self._claim(db, wish)
        return self._claim(db, wish)

    def _claim(self, db: Connection, wish: DueWish) -> Claims:
        # Looking locks nothing, so idle workers disturb no writer.
        chosen = self._choose(db, wish)
        if not chosen or not wish.quotas:
            return self._give(db, wish, chosen)
        with in_few_trips(db), db.transaction():
            names = [f"{self._schema} {flow_id}" for flow_id in sorted(wish.quotas)]
            db.execute(self._sql["lock_quota"], (_QUOTA_LOCK, names))
            claimed = self._give(db, wish, self._choose(db, wish))
            if _limited(wish):
                self.limits.keep_starts(db, claimed)
            return claimed

    def claim_within(
        self, db: Connection, run_id: str, how: Row, limits: Sequence[KeyLimit], now: int | None
    ) -> Lease:
        """Claim a run that is named, if its limits leave room for it."""
        with self.limits.lock:
            return self._claim_within(db, run_id, how, limits, now)

    def _claim_within(
        self, db: Connection, run_id: str, how: Row, limits: Sequence[KeyLimit], now: int | None
    ) -> Lease:
        while True:
            found = rows(db, self._sql["run_now"], (text(run_id), now))
            if not found:
                raise no_such_run(run_id)
            flow_id = run_row(found[0]).flow_id
            with db.transaction():
                db.execute(self._sql["lock_quota"], (_QUOTA_LOCK, [f"{self._schema} {flow_id}"]))
                found = rows(db, self._sql["run_now"], (text(run_id), now))
                if not found:
                    raise no_such_run(run_id)
                candidate, row = Candidate.of(found[0]), run_row(found[0])
                live = self._live(db, now, [flow_id])
                if row.lease is not None and (candidate.held.expires_at or 0) > candidate.at:
                    live[flow_id, row.group or ""] -= 1  # its own, which is to be taken over or refused
                starts = candidate.held.epoch == 0
                self.limits.check(db, row, limits, live, candidate.at, starts=starts)
                granted = candidate.judge(*how)
                if rows(db, self._sql["claim"], candidate.claim_values(granted)):
                    self.limits.keep_starts(db, [(row, granted)])
                    return granted

    def _live(self, db: Connection, now: int | None, names: Sequence[str]) -> Counter[tuple[str, str]]:
        found = rows(db, self._sql["live_leases"], (now, list(map(text, names)))) if names else []
        return Counter({(read_text(flow_id), read_text(group)): count for flow_id, group, count in found})

    def _give(self, db: Connection, wish: DueWish, chosen: Sequence[tuple[Candidate, Lane]]) -> Claims:
        """Claim the first of those that were chosen, if they still are as they were judged."""
        judged: list[tuple[int, int, str | None, int]] = []
        for one, _ in chosen:
            try:
                judged.append((one.key, one.held.epoch, one.held.owner, _deaths(one, wish)))
            except LeaseConflict:
                continue  # only the time was set ahead: its owner has renewed it since boot
            except StateCorrupted as error:
                self._set_aside(db, text(one.run_id), one.held.epoch, error)
        if not judged:
            return []
        owners = [text(wish.new_owner()) for _ in judged[: wish.limit]]
        held = (array(owners), span_to_int(wish.ttl), process_text(wish.process))
        given = (wish.now, *map(array, zip(*judged, strict=True)), array(_named(wish.flows)), *held)
        lanes = {one.key: lane for one, lane in chosen}
        claimed: Claims = []
        for row in rows(db, self._sql["claim_due"], given):
            self._turns.note(lanes[row[0]])
            try:
                run = run_row(row)
            except StateCorrupted as error:
                self._set_aside(db, row[1], FoundRun.of(row).held.epoch, error)
                continue
            assert run.lease is not None
            claimed.append((run, run.lease))
        return claimed

    def _set_aside(self, db: Connection, run_id: str, epoch: int, error: StateCorrupted) -> None:
        """Leave a run whose row was altered to a person: it keeps no others from being driven."""
        db.execute(self._sql["set_aside"], (run_id, epoch, text(error.message)))

    def _choose(self, db: Connection, wish: DueWish) -> list[tuple[Candidate, Lane]]:
        """Return the runs whose turn it is, in order, with their lanes."""
        names = sorted({flow_id for flow_id, _ in wish.flows} & wish.quotas.keys())
        live = self._live(db, wish.now, names)
        candidates: dict[str, Candidate] = {}
        if limited := _limited(wish):
            room = self.limits.room(db, wish.quotas, live, wish.now)
            found = self._limited_lanes(db, wish, room, limited)
        else:
            room = Room(wish.quotas, live)
            found = self._lanes(db, wish, room)
        lanes = [
            Lane(*key[:3], _ids(heapq.merge(*parts), candidates), starts=key[3])
            for key, parts in found.items()
        ]
        most = wish.limit + SPARE
        return [
            (candidates[run_id], lane)
            for run_id, lane in choose(lanes, limit=most, room=room, turns=self._turns)
        ]

    def _limited_lanes(
        self, db: Connection, wish: DueWish, room: Room, limited: Collection[str]
    ) -> dict[LaneKey, list[list[Found]]]:
        """Return lanes until there are enough with room: whose keys are full is known once a lane is met.

        The first look passes over none of them, as runs that began already need no room to start.
        """
        found: dict[LaneKey, list[list[Found]]] = {}
        full: dict[str, set[str]] = {}
        while True:
            met = self._lanes(db, wish, room, limited, full)
            self.limits.read_all(db, {(flow_id, group) for _, flow_id, group, _ in met})
            before = sum(map(len, full.values()))
            for key, parts in met.items():
                found.setdefault(key, parts)
                if key[1] in limited and not room.has(key[1], key[2], starts=key[3]):
                    full.setdefault(key[1], set()).add(key[2])
            has_more = sum(map(len, full.values())) > before
            some = [
                sum(map(len, parts))
                for key, parts in found.items()
                if room.has(key[1], key[2], starts=key[3])
            ]
            if not has_more or sum(some) >= wish.limit:
                self._add_holders(db, wish, found)
                return found
            for flow_id in limited:
                full.setdefault(flow_id, set()).update(self.limits.full_groups(flow_id))

    def _add_holders(self, db: Connection, wish: DueWish, found: dict[LaneKey, list[list[Found]]]) -> None:
        """Add what has a key alone and is due itself: it may lie behind those that wait for it."""
        asked = [text(run_id) for run_id in self.limits.holders() if run_id not in wish.apart_from]
        for row in rows(db, self._sql["due_holders"], (array(asked), wish.now)) if asked else ():
            run, candidate = run_row(row), Candidate.of(row)
            if (run.flow_id, run.flow_hash) in wish.flows:
                lane = (run.priority, run.flow_id, run.group or "", False)
                found.setdefault(lane, []).append([(0, candidate.key, candidate)])

    def _lanes(
        self,
        db: Connection,
        wish: DueWish,
        room: Room,
        limited: Collection[str] = (),
        without: Mapping[str, Collection[str]] = _NONE,
    ) -> dict[LaneKey, list[list[Found]]]:
        flows = [key for key in wish.flows if room.has(key[0])]
        names = array([text(name) for name, _ in flows])
        hashes = array([text(flow_hash) for _, flow_hash in flows])
        apart = array([text(run_id) for run_id in wish.apart_from])
        last = array([self._last(name) for name, _ in flows])
        full = [
            dict.fromkeys(map(text, (*room.full_groups(name), *without.get(name, ()))), 1)
            for name, _ in flows
        ]
        told = msgspec.json.encode(full).decode()
        asked = (wish.now, names, hashes, apart, wish.limit + SPARE, last, told)
        kinds: dict[int, list[Row]] = {}
        for kind, *row in rows(db, self._sql["due"], asked):
            kinds.setdefault(kind, []).append(tuple(row))
        lanes: dict[LaneKey, list[list[Found]]] = {}
        for part in kinds.values():
            split: dict[LaneKey, list[Found]] = {}
            for key, run_id, since, priority, flow_id, group, *held, newest, at in part:
                candidate = Candidate(key, read_text(run_id), Held._make(held), newest, at)
                flow_id = read_text(flow_id)
                starts = flow_id in limited and candidate.held.epoch == 0
                lane = (priority, flow_id, read_text(group), starts)
                split.setdefault(lane, []).append((since, key, candidate))
            for lane, runs in split.items():
                lanes.setdefault(lane, []).append(sorted(runs))
        return lanes

    def _last(self, flow_id: str) -> str | None:
        last = self._turns.last(flow_id)
        return None if last is None else text(last)


def _limited(wish: DueWish) -> set[str]:
    """Return the flows of a wish that have limits."""
    return {flow_id for flow_id, quota in wish.quotas.items() if quota.limits}


def _named(flows: Collection[tuple[str, str]]) -> list[str]:
    return [f"{text(name)} {text(flow_hash)}" for name, flow_hash in flows]


def _deaths(one: Candidate, wish: DueWish) -> int:
    """Return how many owners in a row a run may have killed. One that is not held was given back."""
    return one.judge("", wish.ttl, wish.process, None).takeovers if one.held.owner is not None else 0


def _ids(runs: Iterable[Found], candidates: dict[str, Candidate]) -> Iterable[str]:
    """Yield the ids of runs, and note what is known of them."""
    for _, _, one in runs:
        candidates[one.run_id] = one
        yield one.run_id
