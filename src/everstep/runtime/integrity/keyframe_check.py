"""Whether a keyframe tells what the records before it fold to. Apart from the walk as a fold of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator
from typing import Any

import msgspec

from everstep.codec.values import Values
from everstep.engine.keyframe import snapshot
from everstep.engine.state import RunState
from everstep.errors import EverstepError
from everstep.model.enums import ValueForm
from everstep.model.records import (
    ArtifactRef,
    CheckpointRecord,
    FlowFrontier,
    FrontierEntry,
    NodeState,
    ScopeState,
)
from everstep.runtime.drive.values import Slot, ValueSpace
from everstep.runtime.rehydrate import Rehydrated

_FIELDS = ("nodes", "error", "opened", "scopes", "tasks", "has_ended", "key_run")


def difference(folded: Rehydrated, record: CheckpointRecord, values: Values) -> str:
    """Return in what a keyframe differs from a fold that has just taken its steps; empty if in nothing.

    What cannot be read here, for want of a key or a class, is not compared. Nor is what a fold need not know:
    in which order things became due in different flows, a pause that may be over, tasks of attempts that were
    never recorded, and what a flow inside begins with before anything is recorded in it.
    """
    kept = record.state
    if kept is None:
        return "the state"
    made = snapshot(folded.state, ())
    for name in _FIELDS:
        ours, theirs = getattr(made, name), getattr(kept, name)
        if ours == theirs:
            continue
        ours, theirs = _comparable(ours), _comparable(theirs)
        if name == "nodes":
            theirs = {k: v for k, v in theirs.items() if k in ours or not _has_only_begun(k, v, made.scopes)}
        if ours != theirs:
            return _where(name, ours, theirs)
    if kept.task_count < made.task_count:
        return "task_count"
    return _views(folded.state, record) or value_difference(folded.space, record, values)


def _views(state: RunState, record: CheckpointRecord) -> str:
    """Return which of the views of a state differs that a keyframe of version 1 holds.

    Later ones only say how many steps there were.
    """
    counters = state.counters()
    if record.version > 1:
        return "" if record.counters is not None and record.counters.steps == counters.steps else "counters"
    if record.idempotency != state.idempotency():
        return "idempotency"
    if record.counters != counters:
        return "counters"
    is_same = record.frontier is not None and _sets(record.frontier) == _sets(state.frontier())
    return "" if is_same else "frontier"


def _comparable(part: Any) -> Any:
    if isinstance(part, tuple):
        return sorted(part, key=lambda task: task.number)
    if not isinstance(part, dict):
        return part
    return {
        k: msgspec.structs.replace(v, retry_at=None) if isinstance(v, NodeState) else v
        for k, v in part.items()
        if not _is_untouched(k, v)
    }


def _is_inside(path: str) -> bool:
    return "/" in path or "#" in path or "@" in path


def _is_untouched(path: str, part: Any) -> bool:
    if isinstance(part, ScopeState):
        return part == ScopeState()
    return _is_inside(path) and part in (NodeState(), _DUE)


_DUE = NodeState(is_due=True)


def _has_only_begun(path: str, node: NodeState, folded: Container[str]) -> bool:
    """True of a node as a flow inside begins with it, if nothing is recorded in that flow yet.

    A fold learns of such a flow's nodes with the first step inside; its drive knows them before.
    """
    begins_with = NodeState(chosen=node.chosen, is_due=node.is_due, round=node.round)
    return _is_inside(path) and path.rpartition("/")[0] not in folded and node == begins_with


def _sets(frontier: FlowFrontier) -> tuple[set[FrontierEntry], set[str]]:
    return set(frontier.completed), {path for path in frontier.pending if not _is_inside(path)}


def _where(name: str, ours: object, theirs: object) -> str:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys([*ours, *theirs]):
            if ours.get(key) != theirs.get(key):
                return f"{name} {key!r}"
    return name


def value_difference(space: ValueSpace, record: CheckpointRecord, values: Values) -> str:
    """Return which value a keyframe has otherwise than the fold of what lies before it; empty if none."""
    assert record.state is not None
    kept = {w.name: w for w in record.state.values}
    ours = {
        prefix + name: (slot, name, prefix)
        for prefix, area in space.areas.items()
        if prefix not in space.hidden
        for name, slot in area.items()
    }
    for full in dict.fromkeys([*ours, *kept]):
        write = kept.get(full)
        if full not in ours or write is None:
            head, _, last = full.rpartition("/")
            is_item = "#" in last  # of a list that names each
            if full[:1] != "@" and (head or is_item):
                continue
            return f"value {full!r}"
        slot, name, prefix = ours[full]
        if write.version != slot.written.version:
            return f"value {full!r}"
        if write.form is ValueForm.LIFTED and not write.source:
            continue
        digest = _digest(space, slot, name, prefix, values)
        if digest is not None and digest != write.digest:
            return f"value {full!r}"
    return ""


def _digest(space: ValueSpace, slot: Slot, name: str, prefix: str, values: Values) -> bytes | None:
    """Return the digest that a value would have if it were written whole; none if that cannot be said."""
    if slot.parts is None and slot.items is None:
        return slot.written.digest
    try:
        return hashlib.sha256(values.encode(space.peek(name, prefix), name)).digest()
    except EverstepError:
        return None


def artifacts_of(space: ValueSpace) -> Iterator[ArtifactRef]:
    """Yield the artifacts that the values of a run are kept in."""
    for area in space.areas.values():
        for slot in area.values():
            for one in (slot, *(slot.items or ())):
                if one.artifact is not None:
                    yield one.artifact
