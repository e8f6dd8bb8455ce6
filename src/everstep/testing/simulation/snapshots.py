"""What many worlds begin with, and is had only once: a world as it stood at one of its points, to go on from
there, and the records that were written up to there, as they were verified.

A process that dies leaves nothing behind but what others can see. So a schedule whose first fault is a death
needs what came before only once, however many deaths are tried. The records of that are the same bytes in
each; to walk along them again would find what was found.
"""

from __future__ import annotations

import random
from datetime import datetime
from enum import Enum
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from everstep.engine.books import Books
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.model.records import CheckpointRecord
from everstep.ports.store import StoredRecord
from everstep.runtime.integrity.chain_check import ChainBase, Walk
from everstep.runtime.rehydrate import Rehydrated
from everstep.testing.simulation.ledger import Ledger

_LISTS = ("released", "trace", "story", "bodies", "ended", "settled", "spends", "spooled", "claims", "sent")
"""What a ledger has in order."""


class Snapshot(NamedTuple):
    """What outlives a death of the only process of a world, at one point."""

    label: str
    point: str
    now: int
    turns: int
    order: int
    lengths: tuple[int, ...]
    """How much of each list of the ledger was there."""
    puts: int
    accepted: int
    data: Any
    """A copy of what the store kept."""
    spooled: dict[str, list[Any]]
    dice: Any


def taken(
    label: str, point: str, now: int, turns: int, ledger: Ledger, data: Any, spooled: dict[str, list[Any]]
) -> Snapshot:
    """Return the world as it stands."""
    return Snapshot(
        label,
        point,
        now,
        turns,
        ledger.order,
        tuple(len(vars(ledger)[name]) for name in _LISTS),
        len(ledger.puts),
        len(ledger.accepted),
        data,
        {run_id: list(commits) for run_id, commits in spooled.items()},
        random.getstate(),
    )


def fill(ledger: Ledger, whole: Ledger, snapshot: Snapshot) -> None:
    """Give a ledger what another one had seen by then."""
    ledger.order = snapshot.order
    had, has = vars(whole), vars(ledger)
    for name, length in zip(_LISTS, snapshot.lengths, strict=True):
        has[name] = had[name][:length]
    ledger.puts = dict(islice(whole.puts.items(), snapshot.puts))
    ledger.accepted = dict(islice(whole.accepted.items(), snapshot.accepted))


class Milestone(NamedTuple):
    """Where a walk along a run's records stood after one of them, with nothing found wrong."""

    stored: StoredRecord
    record: CheckpointRecord
    digest: bytes
    folded: Rehydrated
    moved: tuple[tuple[str, Any], ...]
    """In what its state is not one that has just begun: the names of fields, and what they are."""


class Route:
    """The records of a run of the uninterrupted world, as far as they can be gone on from."""

    def __init__(self) -> None:
        self.milestones: list[Milestone] = []
        self.is_open = True
        """True while it is walked along for the first time."""


Routes = dict[tuple[str, str], Route]
"""By run and flow."""


class KnownWalk(Walk):
    """A walk that begins where a route goes on otherwise. What it passes by is there, byte for byte."""

    route: Route | None = None

    def along(self, routes: Routes, *, learns: bool) -> KnownWalk:
        """Let it use a route, or make one. What a fork shares and artifacts are always looked at."""
        row, self.found.records = self._row, []
        if self._before == ChainBase() and row.first == 1:
            key = row.run_id, row.flow_hash
            self.route = routes.setdefault(key, Route()) if learns else routes.get(key)
        return self

    async def _page(self, first: int, last: int) -> list[StoredRecord]:
        page = await super()._page(first, last)
        route = self.route
        if route is None or first != 1 or self._places.newest or self.found.flaws:
            return page
        if not route.milestones:
            return page
        route.is_open = False
        same = 0
        for stored, known in zip(page, route.milestones, strict=False):
            if stored != known.stored:
                break
            same += 1
        if same:
            self._begin_at(route.milestones[:same])
        return page[same:]

    def _begin_at(self, passed: list[Milestone]) -> None:
        last, found = passed[-1], self.found
        self._digest, self._last = last.digest, last.record.sequence
        self._places.newest = last.stored.sequence
        found.sound = [[1, last.stored.sequence]]
        found.folded = _twin(last.folded, last.moved, self)
        for known in passed:
            self._note(known.record, known.stored.sequence)
        if found.records is not None:
            found.records += [known.record for known in passed]

    async def _take(self, stored: StoredRecord) -> None:
        await super()._take(stored)
        route, found = self.route, self.found
        if route is None or not route.is_open:
            return
        folded, records = found.folded, found.records
        if folded is None or not records or not _is_simple(self, folded, records[-1]):
            route.is_open = False
            return
        moved = _moved(folded.state)
        twin = _twin(folded, moved, self)
        route.milestones.append(Milestone(stored, records[-1], self._digest or b"", twin, _moved(twin.state)))


_SHARED = frozenset({"books", "gone", "opened", "parent", "plan", "queue", "restless", "waits"})
"""What is the same in both, or empty."""
_SLOTS = tuple(name for kind in (Scope, RunState) for name in kind.__slots__ if name not in _SHARED)
_slots_of = attrgetter(*_SLOTS)
_COPIED = frozenset({dict, list, set})


def _is_simple(walk: Walk, folded: Rehydrated, record: CheckpointRecord) -> bool:
    """True if nothing is wrong, in artifacts, or open inside: then a copy takes little."""
    found, state, space = walk.found, folded.state, folded.space
    is_sound = not (found.flaws or found.locked or found.removed) and found.sound == [[1, record.sequence]]
    is_inline = all(write.artifact is None for write in record.writes())
    is_flat = not (state.opened or state.queue or state.restless or state.waits or state.gone)
    is_flat = is_flat and all(map(_is_flat, _slots_of(state)))
    is_whole = not any(s.parts or s.items or s.shadow for area in space.areas.values() for s in area.values())
    is_whole = is_whole and not (space.hidden or space.under_way or space.lists)
    return is_sound and is_inline and is_flat and is_whole


def _is_flat(value: object) -> bool:
    """True if no two copies of a value share what can change; of what a node has read another is made."""
    if isinstance(value, (list, set)):
        return all(isinstance(part, dict) or _is_lasting(part) for part in value)
    return all(map(_is_lasting, value.values())) if isinstance(value, dict) else _is_lasting(value)


def _is_lasting(value: object) -> bool:
    if isinstance(value, msgspec.Struct):
        return value.__struct_config__.frozen
    return value is None or isinstance(value, (int, str, bytes, datetime, Enum))


def _moved(state: RunState) -> tuple[tuple[str, Any], ...]:
    """Return in what a state is not one that has just begun."""
    both = zip(_SLOTS, _slots_of(state), _slots_of(RunState(state.plan)), strict=True)
    return tuple((name, value) for name, value, at_first in both if value != at_first)


def _twin(folded: Rehydrated, moved: tuple[tuple[str, Any], ...], walk: Walk) -> Rehydrated:
    """Return the same fold, which may go on by itself."""
    services, state, space = walk._services, folded.state, folded.space
    twin = Rehydrated(state.plan, services.values, services.blobs, 1 << 62)
    for name, value in moved:
        setattr(twin.state, name, value.copy() if type(value) in _COPIED else value)
    twin.state.books = Books(state.books.to_ledger())
    for prefix, area in space.areas.items():
        twin.space.area(prefix).update((name, msgspec.structs.replace(slot)) for name, slot in area.items())
    twin.space.size = space.size
    twin.status, twin.error, twin.record = folded.status, folded.error, folded.record
    head = twin.head
    head.sequence, head.checkpoint_id = folded.head.sequence, folded.head.checkpoint_id
    head.digest, head.tail_bytes = folded.head.digest, folded.head.tail_bytes
    return twin
