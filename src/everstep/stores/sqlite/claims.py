"""Which runs somebody should drive, and whose turn it is."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from datetime import datetime
from itertools import chain, islice
from typing import Any

import apsw
import msgspec

from everstep.engine.claims import Lane, Room, Turns, choose
from everstep.model.fleet import Quota
from everstep.stores.sqlite.columns import to_int
from everstep.stores.sqlite.database import rows

_KINDS = ("signalled_runs", "settled_runs", "due_runs", "expired_runs", "ownerless_runs")
_WALKS = {
    "settled_runs": ("waking", "settled_lane"),
    "due_runs": ("waking", "due_lane"),
    "ownerless_runs": ("ownerless", "ownerless_lane"),
}
"""The kinds of which there may be a crowd: how to go from lane to lane, and how to read one."""
_LOOK = 64
_TOP = 1 << 62

Bindings = tuple[Any, ...]
Found = Iterable[tuple[int, str]]
LaneKey = tuple[int, str, str]


class DueRuns:
    """Finds the runs to claim. Whoever calls it holds the connection.

    As long as few runs are due, all of them are looked at. Where there is a crowd, an index leads from lane
    to lane, so that a claim reads about as many rows as it claims runs.
    """

    def __init__(self, db: apsw.Connection, sql: dict[str, str]) -> None:
        self._db = db
        self._sql = sql
        self._turns = Turns()

    def choose(
        self,
        now: datetime,
        flows: Collection[tuple[str, str]],
        apart_from: Collection[str],
        limit: int,
        quotas: Mapping[str, Quota],
    ) -> list[tuple[str, Lane]]:
        """Return the runs to claim now, in order."""
        if limit <= 0:
            return []
        encode = msgspec.json.encode
        named = [f"{name} {flow_hash}" for name, flow_hash in flows]
        bindings = (to_int(now), encode(named).decode(), encode(list(apart_from)).decode())
        live = self._rows("live_leases", bindings[:1]) if quotas else []
        room = Room(quotas, Counter((flow_id, group) for flow_id, group in live))
        with ExitStack() as cursors:
            lanes = self._lanes(cursors, bindings, {name for name, _ in flows}, limit, room)
            return list(choose(lanes, limit=limit, room=room, turns=self._turns))

    def note(self, lane: Lane) -> None:
        """Remember whose turn it was."""
        self._turns.note(lane)

    def _lanes(
        self, cursors: ExitStack, bindings: Bindings, flows: Collection[str], limit: int, room: Room
    ) -> list[Lane]:
        found: dict[LaneKey, list[Found]] = {}
        for kind in _KINDS:
            most = 2 * limit + _LOOK
            first = self._first(kind, bindings, most + 1)
            if kind in _WALKS and len(first) > most:
                for flow_id in flows:
                    for key, runs in self._walk(cursors, kind, flow_id, bindings, limit, room):
                        found.setdefault(key, []).append(runs)
                continue
            by_lane: dict[LaneKey, list[tuple[int, str]]] = {}
            for run_id, since, priority, flow_id, group in first:
                by_lane.setdefault((priority, flow_id, group), []).append((since, run_id))
            for key, few in by_lane.items():
                found.setdefault(key, []).append(few)
        return [Lane(*key, (run_id for _, run_id in heapq.merge(*parts))) for key, parts in found.items()]

    def _first(self, kind: str, bindings: Bindings, most: int) -> list[tuple[Any, ...]]:
        with closing(self._db.cursor()) as cursor:
            return list(islice(cursor.execute(self._sql[kind], bindings), most))

    def _walk(
        self, cursors: ExitStack, kind: str, flow_id: str, bindings: Bindings, limit: int, room: Room
    ) -> Iterator[tuple[LaneKey, Found]]:
        """Yield the lanes of a flow in turn, no more than a claim can use."""
        walk, lane = _WALKS[kind]
        count, priority = 0, _TOP
        while (
            room.has(flow_id) and (priority := self._next(f"{walk}_priority", flow_id, priority)) is not None
        ):
            for group in self._groups(walk, flow_id, priority):
                if not room.has(flow_id, group):
                    continue
                cursor = cursors.enter_context(closing(self._db.cursor()))
                runs: Iterator[Any] = iter(
                    cursor.execute(self._sql[lane], (*bindings, flow_id, priority, group))
                )
                head = next(runs, None)
                if head is None:
                    continue
                yield (priority, flow_id, group), chain([head], runs)
                count += 1
                if count == limit:
                    return

    def _groups(self, walk: str, flow_id: str, priority: int) -> Iterator[str]:
        """Yield each group once, beginning after the one that was served last."""
        last = self._turns.last(flow_id)
        after = "" if last is None else _next_text(last)
        group = self._next(f"{walk}_group", flow_id, priority, after)
        while group is not None:
            yield group
            group = self._next(f"{walk}_group", flow_id, priority, _next_text(group))
        group = self._next(f"{walk}_group", flow_id, priority, "") if last is not None else None
        while group is not None and group < after:
            yield group
            group = self._next(f"{walk}_group", flow_id, priority, _next_text(group))

    def _next(self, query: str, *bindings: Any) -> Any:
        return self._rows(query, bindings)[0][0]

    def _rows(self, query: str, bindings: Bindings) -> list[tuple[Any, ...]]:
        return rows(self._db, self._sql[query], bindings)


def _next_text(text: str) -> str:
    """Return the smallest text that comes after this one."""
    return text + "\0"
