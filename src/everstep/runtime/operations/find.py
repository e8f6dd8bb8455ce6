"""Runs that a query asks for, in pages. Apart from the reader: most hosts never ask.

What a row says is judged first. Only where that leaves it open is more read of a run, of many at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import inf, nextafter
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from everstep.codec.records import header_of
from everstep.engine.query.judge import Facts, judged, matches, narrowed
from everstep.engine.query.tree import (
    OF_ATTRIBUTE,
    OF_ERRORS,
    OF_HEADS,
    OF_TAG,
    OF_UNDO,
    OF_WAITS,
    Compare,
    Every,
    Op,
    Query,
    comparisons_of,
    is_of_labels,
)
from everstep.errors import StateCorrupted
from everstep.graph.labels import number_of
from everstep.model.address import plain_of
from everstep.model.commits import NO_LABELS
from everstep.model.enums import Status
from everstep.model.records import ErrorInfo
from everstep.ports.labels import LabelRange, Search, SearchingStore, SearchPage
from everstep.ports.store import CheckpointStore, RunFilter, RunRow
from everstep.runtime.operations.labels import labels_of_runs
from everstep.runtime.reader import RunReader
from everstep.runtime.run_ids import RUN_ID
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import open_waits

T = TypeVar("T")
EXAMINED = 5000
"""How many runs a call looks at before it gives what it has found."""
_PAGE = 500
_READ = 100
"""Of how many runs more than their rows is read at once."""
_FAILED = (Status.FAILED, Status.ABANDONED)


class Found(NamedTuple):
    """A page of runs, newest first."""

    rows: list[RunRow]
    following: str | None
    """The run behind which the next page begins; none if there is no more."""
    changed: Mapping[str, datetime] = {}
    """When they last changed, if the query asks for it."""


async def find(services: Services, runs: RunReader, wanted: RunFilter, query: Query) -> Found:
    """Return runs that a query asks for: as many as are wanted, or fewer if too many were looked at."""
    narrow = _narrow(wanted, query)
    if narrow is None:
        return Found([], None)
    by = None
    if services.store.capabilities.searches:
        # A listing of a flow with a status would look for as many as are wanted, however far away they are.
        by = searched(query) or (Search() if narrow.flow_id is not None else None)
    found: list[RunRow] = []
    examined, before, size = 0, wanted.before, wanted.limit if by is not None else _PAGE
    while examined < EXAMINED:
        left = EXAMINED - examined
        asked = msgspec.structs.replace(narrow, limit=min(size, left), before=before)
        page = await _page(services.store, asked, by, left)
        for first in range(0, len(page.rows), _READ):
            for row in await _matching(services, runs, page.rows[first : first + _READ], query):
                found.append(row)
                if len(found) == wanted.limit:
                    return await _shown(services, Found(found, row.run_id), query)
        before, examined, size = page.following, examined + page.looked_at, _PAGE
        if before is None:
            break
    return await _shown(services, Found(found, before), query)


async def _matching(
    services: Services, runs: RunReader, rows: Sequence[RunRow], query: Query
) -> list[RunRow]:
    """Return which of these runs are asked for."""
    fields = {one.field for one in comparisons_of(query)}
    holds = {row.run_id: judged(query, Facts(row), unread_of(row, fields)) for row in rows}
    left = [row for row in rows if holds[row.run_id] is None]
    for facts in await facts_of(services, runs, left, fields):
        holds[facts.row.run_id] = matches(query, facts)
    return [row for row in rows if holds[row.run_id]]


async def _shown(services: Services, found: Found, query: Query) -> Found:
    """Return what was found, with when the runs last changed, if that is asked for."""
    if not any(one.field in OF_HEADS for one in comparisons_of(query)):
        return found
    ended = {row.run_id: row.ended_at for row in found.rows if row.ended_at is not None}
    begun = [row for row in found.rows if row.run_id not in ended]
    return found._replace(changed=ended | await heads_of(services.store, begun))


async def _page(store: CheckpointStore, wanted: RunFilter, by: Search | None, most: int) -> SearchPage:
    if by is not None:
        return await cast("SearchingStore", store).search(wanted, msgspec.structs.replace(by, most=most))
    rows = await store.list(wanted)
    return SearchPage(rows, len(rows), rows[-1].run_id if len(rows) == wanted.limit else None)


def searched(query: Query) -> Search | None:
    """Return what a store can look for by an index: of what must hold, a label and when runs began."""
    parts = query.parts if isinstance(query, Every) else (query,)
    tests = [part for part in parts if isinstance(part, Compare)]
    since, until = _window(tests)
    label = min(filter(_leads_to_runs, tests), key=_cost, default=None)
    if label is None:
        return None if since is None and until is None else Search(since=since, until=until)
    if label.field == "tag":
        return Search(tag=True, name=str(label.values[0]), since=since, until=until)
    is_tag = label.field.startswith(OF_TAG)
    name = label.field.removeprefix(OF_TAG if is_tag else OF_ATTRIBUTE)
    return Search(tag=is_tag, name=name, ranges=_ranges(label, tests), since=since, until=until)


_COSTS = {Op.IS: 0, Op.IN: 1, Op.BELOW: 2, Op.UP_TO: 2, Op.ABOVE: 2, Op.FROM: 2, Op.SET: 3}
_LOWS, _HIGHS = (Op.ABOVE, Op.FROM, Op.IS), (Op.BELOW, Op.UP_TO, Op.IS)


def _leads_to_runs(test: Compare) -> bool:
    """True if an index of labels has the runs of which this holds."""
    return test.is_of_labels and test.op in ((Op.IS,) if test.field == "tag" else _COSTS)


def _cost(test: Compare) -> int:
    """Say how many runs a label leads to, about: the lower, the fewer."""
    return _COSTS[test.op] * 2 + (test.field == "tag")


def _window(tests: Sequence[Compare]) -> tuple[datetime | None, datetime | None]:
    times = [(test.op, test.values[0]) for test in tests if test.field == "started" and test.values]
    lows = [at for op, at in times if op in _LOWS and isinstance(at, datetime)]
    highs = [at for op, at in times if op in _HIGHS and isinstance(at, datetime)]
    return max(lows, default=None), min(highs, default=None)


def _ranges(label: Compare, tests: Sequence[Compare]) -> tuple[LabelRange, ...]:
    """Return the values that a label may have; of a range without its ends, the next ones inside."""
    if label.op not in (Op.BELOW, Op.UP_TO, Op.ABOVE, Op.FROM):
        return tuple(_point(value) for value in label.values)
    same = [test for test in tests if test.field == label.field]
    ends = [(test.op, test.values[0]) for test in same if not isinstance(test.values[0], str)]
    lows = [number_of(end) for op, end in ends if op is Op.FROM]
    lows += [nextafter(number_of(end), inf) for op, end in ends if op is Op.ABOVE]
    highs = [number_of(end) for op, end in ends if op is Op.UP_TO]
    highs += [nextafter(number_of(end), -inf) for op, end in ends if op is Op.BELOW]
    return (LabelRange(low=max(lows, default=None), high=min(highs, default=None)),)


def _point(value: Any) -> LabelRange:
    if isinstance(value, str):
        return LabelRange(text=value)
    number = number_of(value)
    return LabelRange(low=number, high=number)


def _narrow(wanted: RunFilter, query: Query) -> RunFilter | None:
    """Let the store leave out what it can; none if nothing can match."""
    held = narrowed(query)
    if _waits(query) and held.setdefault("status", Status.HALTED) != Status.HALTED:
        return None
    more: dict[str, Any] = {
        "flow_id": held.get("flow"),
        "run_id": held.get("id"),
        "parent_run_id": held.get("parent"),
        "started_by": held.get("started_by"),
        "status": Status(held["status"]) if "status" in held else None,
    }
    for name, value in more.items():
        given = getattr(wanted, name)
        if value is not None and given is not None and given != value:
            return None
    changes = {name: value for name, value in more.items() if value is not None}
    names = [changes[name] for name in ("run_id", "parent_run_id", "started_by") if name in changes]
    if not all(RUN_ID.fullmatch(name) for name in names):
        return None  # no run is called that
    pinned = wanted.pinned or held.get("pinned") is True
    repair = wanted.needs_repair or held.get("needs_repair") is True
    paused = wanted.paused or held.get("paused") is True
    marks = {"pinned": pinned, "needs_repair": repair, "paused": paused}
    return msgspec.structs.replace(wanted, **marks, **changes)


def _waits(query: Query) -> bool:
    """True if only runs that wait for something are asked for."""
    parts = query.parts if isinstance(query, Every) else (query,)
    tests = [part for part in parts if isinstance(part, Compare)]
    return any(test.field in OF_WAITS and test.op is not Op.IS_NOT for test in tests)


def unread_of(row: RunRow, fields: Collection[str]) -> set[str]:
    """Return of which of these fields a run's row does not say what it has in them."""
    has = {
        **dict.fromkeys(OF_WAITS, row.status is Status.HALTED),
        **dict.fromkeys(OF_ERRORS, row.status in _FAILED),
        **dict.fromkeys(OF_HEADS, row.ended_at is None),
    }
    return {field for field in fields if has.get(field) or is_of_labels(field) or field in OF_UNDO}


async def facts_of(
    services: Services, runs: RunReader, rows: Sequence[RunRow], fields: Collection[str]
) -> list[Facts]:
    """Return what these fields need to know of runs."""
    unread = {row.run_id: unread_of(row, fields) for row in rows}

    def of(these: Collection[str]) -> list[RunRow]:
        return [row for row in rows if unread[row.run_id].intersection(these)]

    has_labels = any(is_of_labels(field) or field in OF_UNDO for field in fields)
    labels = await labels_of_runs(services, rows) if has_labels else {}
    heads = await heads_of(services.store, of(OF_HEADS))
    failed = of(OF_ERRORS)
    errors = await _of_each(failed, lambda row: _error_of(runs, row))
    how = dict(zip((row.run_id for row in failed), errors, strict=True))
    halted = of(OF_WAITS)
    paths = await _of_each(halted, lambda row: _waits_of(services.store, row))
    waits = dict(zip((row.run_id for row in halted), paths, strict=True))
    return [
        Facts(
            row,
            waits.get(row.run_id, ()),
            how.get(row.run_id),
            labels.get(row.run_id, NO_LABELS),
            heads.get(row.run_id),
        )
        for row in rows
    ]


async def heads_of(store: CheckpointStore, rows: Sequence[RunRow]) -> dict[str, datetime]:
    """Return when the newest checkpoint of each of these runs was made; of a damaged one it is left out."""
    made = await _of_each(rows, lambda row: _head_of(store, row))
    return {row.run_id: at for row, at in zip(rows, made, strict=True) if at is not None}


async def _head_of(store: CheckpointStore, row: RunRow) -> datetime | None:
    records = await store.get(row.run_id, first=row.checkpoints)
    with suppress(StateCorrupted):
        if records and not records[-1].is_stub:
            return header_of(records[-1].body, f"the head of run {row.run_id!r}").created_at
    return None


async def _of_each(rows: Sequence[RunRow], read: Callable[[RunRow], Awaitable[T]]) -> list[T]:
    """Read something of each run, of many at once: a store behind a network makes one question of that."""
    found: list[T] = []
    for first in range(0, len(rows), _READ):
        found += await asyncio.gather(*map(read, rows[first : first + _READ]))
    return found


async def _waits_of(store: CheckpointStore, row: RunRow) -> list[tuple[str, str]]:
    """Return the kind and the node of all that a run waits for, of a node inside a visit also without it."""
    paths = [(wait.kind, wait.path) for wait in await open_waits(store, row.run_id)]
    return [*paths, *((kind, plain_of(path)) for kind, path in paths)]


async def _error_of(runs: RunReader, row: RunRow) -> ErrorInfo | None:
    """Return how a run failed; none if nothing is known of it."""
    try:
        _, record = await runs.lineage.read(row, row.checkpoints, needs_values=False)
    except StateCorrupted:
        return None
    return record.record.error
