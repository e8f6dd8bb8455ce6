"""Runs that a query asks for, in pages. Apart from the reader: most hosts never ask."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import inf, nextafter
from typing import Any, NamedTuple, cast

import msgspec

from everstep.engine.query.judge import Facts, matches, narrowed
from everstep.engine.query.tree import (
    OF_ATTRIBUTE,
    OF_ERRORS,
    OF_TAG,
    OF_WAITS,
    Compare,
    Every,
    Op,
    Query,
    comparisons_of,
)
from everstep.errors import StateCorrupted
from everstep.graph.labels import number_of
from everstep.model.address import plain_of
from everstep.model.commits import NO_LABELS
from everstep.model.enums import Status
from everstep.ports.labels import LabelRange, Search, SearchingStore, SearchPage
from everstep.ports.store import CheckpointStore, RunFilter, RunRow
from everstep.runtime.operations.labels import labels_of_runs
from everstep.runtime.reader import RunReader
from everstep.runtime.run_ids import RUN_ID
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import open_waits

EXAMINED = 5000
"""How many runs a call looks at before it gives what it has found."""
_PAGE = 500
_FAILED = (Status.FAILED, Status.ABANDONED)


class Found(NamedTuple):
    """A page of runs, newest first."""

    rows: list[RunRow]
    following: str | None
    """The run behind which the next page begins; none if there is no more."""


async def find(services: Services, runs: RunReader, wanted: RunFilter, query: Query) -> Found:
    """Return runs that a query asks for: as many as are wanted, or fewer if too many were looked at."""
    narrow = _narrow(wanted, query)
    if narrow is None:
        return Found([], None)
    tests = list(comparisons_of(query))
    fields, of_labels = {one.field for one in tests}, any(one.is_of_labels for one in tests)
    by = searched(query) if services.store.capabilities.searches else None
    found: list[RunRow] = []
    examined, before, size = 0, wanted.before, wanted.limit if by is not None else _PAGE
    while examined < EXAMINED:
        left = EXAMINED - examined
        asked = msgspec.structs.replace(narrow, limit=min(size, left), before=before)
        page = await _page(services.store, asked, by, left)
        labels = await labels_of_runs(services, page.rows) if of_labels else {}
        for row in page.rows:
            facts = await facts_of(services, runs, row, fields)
            if matches(query, facts._replace(labels=labels.get(row.run_id, NO_LABELS))):
                found.append(row)
                if len(found) == wanted.limit:
                    return Found(found, row.run_id)
        before, examined, size = page.following, examined + page.looked_at, _PAGE
        if before is None:
            break
    return Found(found, before)


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
    more: dict[str, Any] = {
        "flow_id": held.get("flow"),
        "run_id": held.get("id"),
        "parent_run_id": held.get("parent"),
        "status": Status(held["status"]) if "status" in held else None,
    }
    for name, value in more.items():
        given = getattr(wanted, name)
        if value is not None and given is not None and given != value:
            return None
    changes = {name: value for name, value in more.items() if value is not None}
    names = [changes[name] for name in ("run_id", "parent_run_id") if name in changes]
    if not all(RUN_ID.fullmatch(name) for name in names):
        return None  # no run is called that
    pinned = wanted.pinned or held.get("pinned") is True
    repair = wanted.needs_repair or held.get("needs_repair") is True
    return msgspec.structs.replace(wanted, pinned=pinned, needs_repair=repair, **changes)


async def facts_of(services: Services, runs: RunReader, row: RunRow, fields: set[str]) -> Facts:
    """Return what these fields need to know of a run, apart from its labels."""
    facts = Facts(row)
    if fields & OF_WAITS and row.status is Status.HALTED:
        waits = await open_waits(services.store, row.run_id)
        paths = [(wait.kind, wait.path) for wait in waits]
        facts = facts._replace(waits=[*paths, *((kind, plain_of(path)) for kind, path in paths)])
    if fields & OF_ERRORS and row.status in _FAILED:
        try:
            _, record = await runs.lineage.read(row, row.checkpoints, needs_values=False)
        except StateCorrupted:
            return facts  # nothing is known of how it failed
        facts = facts._replace(error=record.record.error)
    return facts
