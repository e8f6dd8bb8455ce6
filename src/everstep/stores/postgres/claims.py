"""Claiming runs: one that is named, or those whose turn it is. Apart from the tables, as only workers ask."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from everstep.engine import leases
from everstep.engine.claims import ClaimTurns, Lane, Room, choose
from everstep.model.leases import Lease, Process, Quota
from everstep.ports.store import RunRow
from everstep.stores.columns import EPOCH, process_text, to_int, to_time
from everstep.stores.postgres.columns import read_text, run_row, text
from everstep.stores.postgres.connections import Connection, rows
from everstep.stores.postgres.waits import PostgresWaits
from everstep.stores.tables import FoundRun

Claims = list[tuple[RunRow, Lease]]
Row = tuple[Any, ...]
LaneKey = tuple[int, str, str]
Found = tuple[int, int, str]
"""Since when a run is due, its key and its id."""
SPARE = 32
"""How many more runs are chosen than are wanted: other workers may be about to take the first ones."""
_QUOTA_LOCK = 0x65766573


class DueWish(NamedTuple):
    """What a worker would like to drive."""

    now: int | None
    flows: Collection[tuple[str, str]]
    apart_from: Collection[str]
    limit: int
    quotas: Mapping[str, Quota]


def judge(row: Row, owner: str, ttl: timedelta, process: Process | None, void_epoch: int | None) -> Lease:
    """Return the lease that a claimant gets, or raise `LeaseConflict`; the store's time ends the row."""
    run, held = run_row(row), FoundRun.of(row).held
    return leases.claim(
        run.lease,
        run_id=run.run_id,
        owner=owner,
        process=process,
        now=to_time(row[-1]) or EPOCH,
        ttl=ttl,
        newest_epoch=held.epoch,
        has_progressed=run.checkpoints > held.claimed_sequence,
        void_epoch=void_epoch,
    )


def claim_values(row: Row, granted: Lease) -> Row:
    """Return what the query `claim` takes to grant a lease on the run as it was judged."""
    lease = (granted.epoch, text(granted.owner), to_int(granted.expires_at), process_text(granted.process))
    found = FoundRun.of(row)
    judged = (found.held.epoch, found.held.owner, found.held.expires_at)
    return (found.key, *lease, granted.takeovers, found.newest, *judged)


class PostgresDueRuns:
    """The runs that are due, and whose turn it is.

    As long as few runs are due, all of them are looked at. Where there are more than a claim can use, an
    index leads from lane to lane. Runs of other flows are never met.
    """

    def __init__(self, sql: dict[str, str], waits: PostgresWaits, schema: str) -> None:
        self._sql = sql
        self._waits = waits
        self._schema = schema
        self._turns = ClaimTurns()

    def claim(self, db: Connection, wish: DueWish, grant: Callable[[Row], Lease]) -> Claims:
        """Claim up to so many; those that others are about to take are passed over."""
        if wish.limit <= 0 or not wish.flows:
            return []
        # Looking locks nothing, so idle workers disturb no writer.
        chosen = self._choose(db, wish)
        if not chosen:
            return []
        with db.transaction():
            if wish.quotas:
                names = [f"{self._schema} {flow_id}" for flow_id in sorted(wish.quotas)]
                rows(db, self._sql["lock_quota"], (_QUOTA_LOCK, names))
                chosen = self._choose(db, wish)
            # By now another may have driven a run, and taken it over to a version that we do not know.
            found = rows(db, self._sql["lock_due"], (wish.now, list(chosen), wish.limit, _named(wish.flows)))
            claimed = [(row, grant(row)) for row in found]
            if claimed:
                self._grant(db, claimed)
                self._waits.settle_due(db, [lease.run_id for _, lease in claimed], wish.now)
        for row, _ in claimed:
            self._turns.note(chosen[row[0]])
        return [
            (msgspec.structs.replace(run_row(row), lease=lease, needs_repair=None), lease)
            for row, lease in claimed
        ]

    def _choose(self, db: Connection, wish: DueWish) -> dict[int, Lane]:
        """Return the keys of the runs whose turn it is, in order, with their lanes."""
        names = sorted({flow_id for flow_id, _ in wish.flows} & wish.quotas.keys())
        live = rows(db, self._sql["live_leases"], (wish.now, list(map(text, names)))) if names else []
        room = Room(
            wish.quotas,
            {(read_text(flow_id), read_text(group)): count for flow_id, group, count in live},
        )
        keys: dict[str, int] = {}
        found = self._lanes(db, wish, room)
        lanes = [Lane(*key, _ids(heapq.merge(*parts), keys)) for key, parts in found.items()]
        most = wish.limit + SPARE
        return {
            keys[run_id]: lane for run_id, lane in choose(lanes, limit=most, room=room, turns=self._turns)
        }

    def _lanes(self, db: Connection, wish: DueWish, room: Room) -> dict[LaneKey, list[list[Found]]]:
        flows = [key for key in wish.flows if room.has(key[0])]
        names = [text(name) for name, _ in flows]
        hashes = [text(flow_hash) for _, flow_hash in flows]
        apart = [text(run_id) for run_id in wish.apart_from]
        last = [self._last(name) for name, _ in flows]
        full = [dict.fromkeys(map(text, room.full_groups(name)), 1) for name, _ in flows]
        told = msgspec.json.encode(full).decode()
        asked = (wish.now, names, hashes, apart, wish.limit + SPARE, last, told)
        kinds: dict[int, list[Row]] = {}
        for kind, *row in rows(db, self._sql["due"], asked):
            kinds.setdefault(kind, []).append(tuple(row))
        lanes: dict[LaneKey, list[list[Found]]] = {}
        for part in kinds.values():
            split: dict[LaneKey, list[Found]] = {}
            for key, run_id, since, priority, flow_id, group in part:
                lane = (priority, read_text(flow_id), read_text(group))
                split.setdefault(lane, []).append((since, key, read_text(run_id)))
            for lane, runs in split.items():
                lanes.setdefault(lane, []).append(sorted(runs))
        return lanes

    def _last(self, flow_id: str) -> str | None:
        last = self._turns.last(flow_id)
        return None if last is None else text(last)

    def _grant(self, db: Connection, claimed: list[tuple[Row, Lease]]) -> None:
        db.execute(
            self._sql["claim_many"],
            (
                [row[0] for row, _ in claimed],
                [lease.epoch for _, lease in claimed],
                [text(lease.owner) for _, lease in claimed],
                [to_int(lease.expires_at) for _, lease in claimed],
                [lease.takeovers for _, lease in claimed],
                process_text(claimed[0][1].process),
                [FoundRun.of(row).newest for row, _ in claimed],
            ),
        )


def _named(flows: Collection[tuple[str, str]]) -> list[str]:
    return [f"{text(name)} {text(flow_hash)}" for name, flow_hash in flows]


def _ids(runs: Iterable[Found], keys: dict[str, int]) -> Iterable[str]:
    """Yield the ids of runs, and note their keys."""
    for _, key, run_id in runs:
        keys[run_id] = key
        yield run_id
