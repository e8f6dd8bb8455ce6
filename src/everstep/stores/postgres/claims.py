"""Claiming runs: one that is named, or those whose turn it is. Apart from the tables, as only workers ask."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from everstep.engine import leases
from everstep.engine.claims import ClaimTurns, Lane, Room, choose
from everstep.errors import LeaseConflict, StateCorrupted
from everstep.model.leases import Lease, Process, Quota
from everstep.ports.store import RunRow
from everstep.stores.columns import EPOCH, process_text, span_to_int, to_int, to_time
from everstep.stores.postgres.columns import array, held_lease, read_text, run_row, text
from everstep.stores.postgres.connections import Connection, in_few_trips, rows
from everstep.stores.tables import FoundRun, Held

Claims = list[tuple[RunRow, Lease]]
Row = tuple[Any, ...]
LaneKey = tuple[int, str, str]
Found = tuple[int, int, "Candidate"]
"""Since when a run is due, its key, by which equals are ordered, and the run."""
SPARE = 32
"""How many more runs are chosen than are wanted: other workers may be about to take the first ones."""
_QUOTA_LOCK = 0x65766573


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

    def claim(self, db: Connection, wish: DueWish) -> Claims:
        """Claim up to so many; those that others are about to take are passed over."""
        if wish.limit <= 0 or not wish.flows:
            return []
        # Looking locks nothing, so idle workers disturb no writer.
        chosen = self._choose(db, wish)
        if not chosen or not wish.quotas:
            return self._give(db, wish, chosen)
        with in_few_trips(db), db.transaction():
            names = [f"{self._schema} {flow_id}" for flow_id in sorted(wish.quotas)]
            db.execute(self._sql["lock_quota"], (_QUOTA_LOCK, names))
            return self._give(db, wish, self._choose(db, wish))

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
        live = rows(db, self._sql["live_leases"], (wish.now, list(map(text, names)))) if names else []
        room = Room(
            wish.quotas,
            {(read_text(flow_id), read_text(group)): count for flow_id, group, count in live},
        )
        candidates: dict[str, Candidate] = {}
        found = self._lanes(db, wish, room)
        lanes = [Lane(*key, _ids(heapq.merge(*parts), candidates)) for key, parts in found.items()]
        most = wish.limit + SPARE
        return [
            (candidates[run_id], lane)
            for run_id, lane in choose(lanes, limit=most, room=room, turns=self._turns)
        ]

    def _lanes(self, db: Connection, wish: DueWish, room: Room) -> dict[LaneKey, list[list[Found]]]:
        flows = [key for key in wish.flows if room.has(key[0])]
        names = array([text(name) for name, _ in flows])
        hashes = array([text(flow_hash) for _, flow_hash in flows])
        apart = array([text(run_id) for run_id in wish.apart_from])
        last = array([self._last(name) for name, _ in flows])
        full = [dict.fromkeys(map(text, room.full_groups(name)), 1) for name, _ in flows]
        told = msgspec.json.encode(full).decode()
        asked = (wish.now, names, hashes, apart, wish.limit + SPARE, last, told)
        kinds: dict[int, list[Row]] = {}
        for kind, *row in rows(db, self._sql["due"], asked):
            kinds.setdefault(kind, []).append(tuple(row))
        lanes: dict[LaneKey, list[list[Found]]] = {}
        for part in kinds.values():
            split: dict[LaneKey, list[Found]] = {}
            for key, run_id, since, priority, flow_id, group, *held, newest, at in part:
                lane = (priority, read_text(flow_id), read_text(group))
                candidate = Candidate(key, read_text(run_id), Held._make(held), newest, at)
                split.setdefault(lane, []).append((since, key, candidate))
            for lane, runs in split.items():
                lanes.setdefault(lane, []).append(sorted(runs))
        return lanes

    def _last(self, flow_id: str) -> str | None:
        last = self._turns.last(flow_id)
        return None if last is None else text(last)


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
