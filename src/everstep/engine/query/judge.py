"""Whether a run is one that a query asks for. Decided here for every store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from everstep.engine.query.tree import OF_ATTRIBUTE, OF_TAG, Compare, Every, Not, Op, Query, Some, Value
from everstep.graph.labels import value_of
from everstep.model.commits import NO_LABELS, Labels, RunRow
from everstep.model.leases import is_pause
from everstep.model.records import ErrorInfo

_ORDERS: dict[Op, Callable[[Any, Any], bool]] = {Op.BELOW: lt, Op.UP_TO: le, Op.ABOVE: gt, Op.FROM: ge}


class Facts(NamedTuple):
    """What is known of a run. What a query does not ask for need not be gathered."""

    row: RunRow
    waits: Sequence[tuple[str, str]] = ()
    """What it waits for: kind and path of each wait that is not closed."""
    error: ErrorInfo | None = None
    labels: Labels = NO_LABELS
    changed: datetime | None = None
    """When the newest checkpoint of an unfinished run was made."""


def matches(query: Query, facts: Facts) -> bool:
    """True if a run is one that is asked for."""
    return judged(query, facts) is True


def judged(query: Query, facts: Facts, unread: Collection[str] = ()) -> bool | None:
    """Say whether a run is one that is asked for; none if that depends on fields that were not read yet."""
    match query:
        case Compare():
            return None if query.field in unread else _holds(query, held_of(query.field, facts))
        case Not():
            found = judged(query.part, facts, unread)
            return None if found is None else not found
        case Every():
            decides = False
        case Some():
            decides = True
    parts = {judged(part, facts, unread) for part in query.parts}
    return decides if decides in parts else None if None in parts else not decides


def narrowed(query: Query | None) -> dict[str, Any]:
    """Return what a store can narrow its listing by: what must hold whatever else does, by field."""
    found: dict[str, Any] = {}
    parts = query.parts if isinstance(query, Every) else () if query is None else (query,)
    for part in parts:
        if isinstance(part, Compare) and part.op is Op.IS:
            found.setdefault(part.field, part.values[0])
    return found


def _holds(test: Compare, held: Collection[Value]) -> bool:
    match test.op:
        case Op.SET:
            return bool(held)
        case Op.IS | Op.IN:
            return any(_is_one_of(value, test.values) for value in held)
        case Op.IS_NOT:
            return not any(_is_one_of(value, test.values) for value in held)
        case Op.STARTS:
            return any(isinstance(v, str) and v.startswith(str(test.values[0])) for v in held)
        case Op.CONTAINS:
            return any(isinstance(v, str) and str(test.values[0]) in v for v in held)
    compare, limit = _ORDERS[test.op], test.values[0]
    return any(_sort(value) is _sort(limit) and compare(value, limit) for value in held)


def _is_one_of(value: Value, wanted: Collection[Value]) -> bool:
    return any(_sort(value) is _sort(one) and value == one for one in wanted)


def _sort(value: Value) -> type:
    """Return what a value can be compared with: a number is no text, and true is not 1."""
    kind = type(value)
    return float if kind is int else kind


def held_of(field: str, facts: Facts) -> Collection[Value]:
    """Return what a run has in a field."""
    if field.startswith(OF_TAG):
        return [tag.value for tag in facts.labels.tags if tag.name == field[len(OF_TAG) :]]
    if field.startswith(OF_ATTRIBUTE):
        name = field[len(OF_ATTRIBUTE) :]
        return [value_of(one) for one in facts.labels.attributes if one.name == name]
    return _OF[field](facts)


def _some(value: Value | None) -> tuple[Value, ...]:
    return () if value is None else (value,)


_OF: dict[str, Callable[[Facts], Collection[Value]]] = {
    "id": lambda facts: (facts.row.run_id,),
    "flow": lambda facts: (facts.row.flow_id,),
    "version": lambda facts: (facts.row.flow_version,),
    "status": lambda facts: (facts.row.status.value,),
    "group": lambda facts: _some(facts.row.group),
    "priority": lambda facts: (facts.row.priority,),
    "parent": lambda facts: _some(facts.row.parent_run_id),
    "started_by": lambda facts: _some(None if facts.row.started_by is None else facts.row.started_by.run),
    "owner": lambda facts: _some(facts.row.lease.owner if facts.row.lease is not None else None),
    "started": lambda facts: (facts.row.created_at,),
    "ended": lambda facts: _some(facts.row.ended_at),
    "changed": lambda facts: _some(facts.row.ended_at or facts.changed),
    "pinned": lambda facts: (facts.row.pinned is not None,),
    "needs_repair": lambda facts: (
        facts.row.needs_repair is not None and not is_pause(facts.row.needs_repair),
    ),
    "paused": lambda facts: (facts.row.is_paused,),
    "waiting": lambda facts: [kind for kind, _ in facts.waits],
    "waiting_at": lambda facts: [path for _, path in facts.waits],
    "error": lambda facts: _some(None if facts.error is None else facts.error.message),
    "undoing": lambda facts: _some(facts.labels.undoing or None),
    "tag": lambda facts: [tag.name for tag in facts.labels.tags],
    "error_code": lambda facts: _some(None if facts.error is None else facts.error.code),
}
