"""Which runs are due, and whose turn it is. Apart from the other tables, as only workers ask."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from itertools import chain, islice, product
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from everstep.engine.claims import ClaimTurns, Lane, Room, choose
from everstep.model.leases import KeyLimit, Lease, Quota
from everstep.ports.store import RunRow
from everstep.stores.columns import to_int
from everstep.stores.sqlite.database import rows

if TYPE_CHECKING:
    from everstep.engine.limits.keys import KeyRoom
    from everstep.stores.sqlite.limits import SqliteLimits

_KINDS = {
    "stopping_runs": None,
    "settled_runs": "waking",
    "due_runs": "waking",
    "expired_runs": None,
    "ownerless_runs": "ownerless",
}
"""Why a run may be due, and how to go from lane to lane where that makes a crowd."""
_LANES = {"waking": ("settled_lane", "due_lane"), "ownerless": ("ownerless_lane",)}
_LOOK = 200
"""So many runs of a kind are looked at one by one; more are a crowd."""
_DRY = 200
"""So many lanes without a due run are passed in one go; the next claim goes on from there."""
_FEW = 1000
"""So many runs of a lane are looked at one by one, where some have yet to begin."""
_TOP = 1 << 62

Bindings = tuple[Any, ...]
Found = Iterable[tuple[int, str]]
LaneKey = tuple[int, str, str, bool]
"""Priority, flow and group, and whether the runs were never claimed and have limits."""
Way = tuple[str, str, int]
"""The name of a walk, a flow and a priority."""


class SqliteDueRuns:
    """Finds the runs to claim. The caller holds the connection.

    As long as few runs are due, all of them are looked at. Where there is a crowd, of whichever flows, an
    index leads from lane to lane of those that are asked for: a claim reads about as many rows as it claims.
    """

    def __init__(self, db: apsw.Connection, sql: dict[str, str], limits: Callable[[], SqliteLimits]) -> None:
        self._db = db
        self._sql = sql
        self._limits = limits
        self._turns = ClaimTurns()
        self.keys: KeyRoom | None = None
        """What limits left room for when it was looked at last; none if no flow had any."""
        self._places: dict[Way, str] = {}
        """The groups that walks passed last, where they met too few due runs to come to an end."""

    def choose(
        self,
        now: datetime,
        flows: Collection[tuple[str, str]],
        apart_from: Collection[str],
        limit: int,
        quotas: Mapping[str, Quota],
        *,
        looks_only: bool = False,
    ) -> list[str]:
        """Return the runs to claim, in order. A look takes no turn."""
        self.keys = None
        if limit <= 0:
            return []
        encode = msgspec.json.encode
        named = [f"{name} {flow_hash}" for name, flow_hash in flows]
        bindings = (to_int(now), encode(named).decode(), encode(list(apart_from)).decode())
        live = (
            Counter((one, group) for one, group in self._rows("live_leases", bindings[:1])) if quotas else {}
        )
        limited = {flow_id for flow_id, quota in quotas.items() if quota.limits} if quotas else set[str]()
        if limited:
            self.keys = self._limits().room(quotas, live, now)
        room = Room(quotas, live, self.keys)
        with ExitStack() as cursors:
            walks: list[_Walk] = []
            lanes = self._lanes(cursors, bindings, {name for name, _ in flows}, limit, room, walks, limited)
            chosen = list(choose(lanes, limit=limit, room=room, turns=self._turns))
        if not looks_only:
            for _, lane in chosen:
                self._turns.note(lane)
            served = {(lane.priority, lane.flow_id, lane.group, lane.starts) for _, lane in chosen}
            for walk in walks:
                self._keep_place(walk, served)
        return [run_id for run_id, _ in chosen]

    def keep_starts(self, claimed: Iterable[tuple[RunRow, Lease]]) -> None:
        """Keep which runs began, and which have a key alone; in the transaction that gives them a lease."""
        assert self.keys is not None
        for row, lease in claimed:
            self.keys.started(row.flow_id, row.group or "", row.run_id, starts=lease.epoch == 1)
        self._limits().keep(self.keys.changed)

    def check_room(self, run_id: str, limits: Sequence[KeyLimit], now: datetime) -> None:
        """Raise `NoRoom` if a run that is named may not be driven now."""
        for flow_id, group, epoch, expires_at in self._rows("run_and_group", (run_id,)):
            live = Counter((one, other) for one, other in self._rows("live_leases", (to_int(now),)))
            if expires_at is not None and expires_at > (to_int(now) or 0):
                live[flow_id, group] -= 1  # its own, which is to be taken over or refused
            quotas = {flow_id: Quota(limits=tuple(limits))}
            self.keys = self._limits().room(quotas, live, now)
            if not self.keys.has(flow_id, group, starts=epoch == 0, run_id=run_id):
                raise self.keys.refusal(run_id, flow_id, group, starts=epoch == 0)

    def _lanes(
        self,
        cursors: ExitStack,
        bindings: Bindings,
        flows: Collection[str],
        limit: int,
        room: Room,
        walks: list[_Walk],
        limited: Collection[str],
    ) -> list[Lane]:
        found: dict[LaneKey, list[Found]] = {}
        crowds: set[str] = set()
        for kind, way in _KINDS.items():
            few: dict[LaneKey, list[tuple[int, str]]] = {}
            first = self._first(kind, bindings, _LOOK + limit)
            new = self._never_claimed(first, limited) if limited else ()
            for run_id, since, priority, flow_id, group, is_wanted in first:
                if not is_wanted:
                    continue
                at = since if type(since) is int else 0  # of a row that was altered
                few.setdefault((priority, flow_id, group, run_id in new), []).append((at, run_id))
            for key, runs in few.items():
                found.setdefault(key, []).append(runs)
            if way is not None and len(first) == _LOOK + limit:
                crowds.add(way)
        if crowds:
            for key, more in self._crowded(
                cursors, bindings, crowds, flows, limit, room, walks, not found, limited
            ):
                found.setdefault(key, []).extend(more)
        return [
            Lane(*key[:3], (run_id for _, run_id in heapq.merge(*parts)), starts=key[3])
            for key, parts in found.items()
        ]

    def _never_claimed(self, found: Iterable[tuple[Any, ...]], limited: Collection[str]) -> set[str]:
        """Return which of these runs, of flows with limits, were never claimed."""
        asked = [run_id for run_id, _, _, flow_id, *_ in found if flow_id in limited]
        told = msgspec.json.encode(asked).decode()
        return {run_id for (run_id,) in self._rows("never_claimed", (told,))} if asked else set()

    def _crowded(
        self,
        cursors: ExitStack,
        bindings: Bindings,
        crowds: set[str],
        flows: Collection[str],
        limit: int,
        room: Room,
        walks: list[_Walk],
        is_first: bool,
        limited: Collection[str],
    ) -> list[tuple[LaneKey, list[Found]]]:
        """Return the lanes with due runs that are met on the ways through crowds."""
        found: list[tuple[LaneKey, list[Found]]] = []
        # What is due may lie behind the lanes that were passed: to say that nothing is, pass them all.
        for gives_up in (True, False) if is_first else (True,):
            walks.clear()
            for way, flow_id in product(sorted(crowds), flows):
                for priority in self._priorities(way, flow_id):
                    # Of a crowd with limits, all that have no owner are taken for runs that begin.
                    starts = way == "ownerless" and flow_id in limited
                    walk = _Walk((way, flow_id, priority), limit, gives_up=gives_up, starts=starts)
                    walks.append(walk)
                    for group, more, is_new in self._walk(walk, cursors, bindings, room):
                        found.append(((priority, flow_id, group, is_new), more))
                    if len(walk.met) == limit:
                        break
            if found or not any(walk.is_dry for walk in walks):
                break
        return found

    def _first(self, kind: str, bindings: Bindings, most: int) -> list[tuple[Any, ...]]:
        with closing(self._db.cursor()) as cursor:
            return list(islice(cursor.execute(self._sql[kind], (*bindings, most)), most))

    def _priorities(self, way: str, flow_id: str) -> Iterator[int]:
        priority = _TOP
        while (priority := self._next(f"{way}_priority", flow_id, priority)) is not None:
            yield priority

    def _walk(
        self, walk: _Walk, cursors: ExitStack, bindings: Bindings, room: Room
    ) -> Iterator[tuple[str, list[Found], bool]]:
        """Yield the lanes with due runs in turn, no more than a claim can use, and whether those begin."""
        way, flow_id, priority = walk.way
        for group in self._groups(walk.way) if room.has(flow_id) else ():
            walk.passed.append(group)
            heads: list[Found] = []
            has_room = room.has(flow_id, group, starts=walk.starts)
            if not has_room and (holders := self._due_holders(bindings, flow_id, group)):
                yield group, [holders], False
            for query in _LANES[way] if has_room else ():
                cursor = self._db.cursor()
                runs: Iterator[Any] = iter(
                    cursor.execute(self._sql[query], (*bindings, flow_id, priority, group))
                )
                if (head := next(runs, None)) is not None:
                    cursors.callback(cursor.close)
                    heads.append(chain([head], runs))
            if heads:
                walk.met.append(group)
            if heads and way == "waking" and self.keys is not None:
                yield from self._split(flow_id, group, heads, room)
            elif heads:
                yield group, heads, walk.starts
            if len(walk.met) == walk.limit or walk.is_dry:
                return

    def _split(
        self, flow_id: str, group: str, heads: Iterable[Found], room: Room
    ) -> Iterator[tuple[str, list[Found], bool]]:
        """Yield what was due to go on of a lane, and, if they may begin, those that begin at a time."""
        few = [one for head in heads for one in islice(head, _FEW)]
        told = msgspec.json.encode([run_id for _, run_id in few]).decode()
        new = {run_id for (run_id,) in self._rows("never_claimed", (told,))}
        begun = [one for one in few if one[1] not in new]
        if begun:
            yield group, [sorted(begun)], False
        if new and room.has(flow_id, group, starts=True):
            yield group, [sorted(one for one in few if one[1] in new)], True

    def _due_holders(self, bindings: Bindings, flow_id: str, group: str) -> list[tuple[int, str]]:
        """Return what has the key of a group alone and is due: it may lie behind those that wait for it."""
        if self.keys is None:
            return []
        held = self.keys.holders.get((flow_id, group), ())
        return [one for run_id in held for one in self._rows("due_holder", (*bindings, run_id))]

    def _groups(self, way: Way) -> Iterator[str]:
        """Yield each group once, beginning after the one that was passed or served last."""
        name, flow_id, priority = way
        last = self._places.get(way, self._turns.last(flow_id))
        after = "" if last is None else _next_text(last)
        group = self._next(f"{name}_group", flow_id, priority, after)
        while group is not None:
            yield group
            group = self._next(f"{name}_group", flow_id, priority, _next_text(group))
        group = self._next(f"{name}_group", flow_id, priority, "") if after else None
        while group is not None and group < after:
            yield group
            group = self._next(f"{name}_group", flow_id, priority, _next_text(group))

    def _keep_place(self, walk: _Walk, served: Collection[LaneKey]) -> None:
        """Let the next walk go on where this one gave up, or at what it met and could not serve."""
        self._places.pop(walk.way, None)
        if not walk.is_dry:
            return
        _, flow_id, priority = walk.way
        kept = [group for group in walk.met if (priority, flow_id, group, walk.starts) not in served]
        end = walk.passed.index(kept[0]) if kept else len(walk.passed)
        if end:
            self._places[walk.way] = walk.passed[end - 1]

    def _next(self, query: str, *bindings: Any) -> Any:
        return self._rows(query, bindings)[0][0]

    def _rows(self, query: str, bindings: Bindings) -> list[tuple[Any, ...]]:
        return rows(self._db, self._sql[query], bindings)


class _Walk:
    """One way from group to group: what it passed, and where it met due runs."""

    def __init__(self, way: Way, limit: int, *, gives_up: bool = True, starts: bool = False) -> None:
        self.way = way
        self.starts = starts
        self.limit = limit
        self._gives_up = gives_up
        self.passed: list[str] = []
        self.met: list[str] = []

    @property
    def is_dry(self) -> bool:
        return len(self.passed) - len(self.met) >= (_DRY if self._gives_up or self.met else _TOP)


def _next_text(text: str) -> str:
    """Return the smallest text that comes after this one."""
    return text + "\0"
