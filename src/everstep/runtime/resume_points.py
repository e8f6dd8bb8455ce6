"""Whether a run may be taken up, and where, if its flow has rules for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.graph.flow import Flow
from everstep.graph.pipelines.layers import LAYER
from everstep.graph.plan import deep_nodes
from everstep.graph.subflow import Subflow
from everstep.model.address import plain_of
from everstep.model.enums import Status
from everstep.model.records import CHANNEL
from everstep.ports.store import RunRow
from everstep.runtime.values import ValueSpace


def resume_point(
    row: RunRow, flow: Flow, state: RunState, space: ValueSpace, start: str | None
) -> str | None:
    """Return the node at which a run begins again; none to go on where it stands. Raises if it may not."""
    if flow.accepts is not None:
        flow.accepts(_reader(space))
    if flow.plan.children:
        _check_inside(flow, state, _reader(space))
    return start if start is not None else begins_again_at(row, flow, state, space)


def begins_again_at(row: RunRow, flow: Flow, state: RunState, space: ValueSpace) -> str | None:
    """Return the node at which a run that failed begins again by the rule of its flow, if that says so."""
    if flow.resumes_at is None or row.status is not Status.FAILED:
        return None
    failed = [flow.nodes[i].name for i in state.due if state.statuses[i] is Status.FAILED]
    found = flow.resumes_at(failed[0], _reader(space)) if failed else None
    return found if found is not None and found in flow.plan.index and found != failed[0] else None


def start_marks(flow: Flow, start: str, *, is_told: bool) -> dict[str, Any]:
    """Return what the channel is told when a run begins again at a node, which a person named or its rule."""
    marks = dict(flow.start_marks)
    return marks | {flow.start_key: "" if is_told else start} if flow.start_key else marks


def only_chooses(
    flow: Flow, scope: Scope, i: int, visit: int, space: ValueSpace, start: str | None = None
) -> bool:
    """True if a resume does not call what this visit works with, as it is done, and only lets it choose."""
    read = _reader(space)
    if flow.only_chooses is None or not scope.plan.nodes[i].is_gate:
        return False
    begins = {flow.start_key: start}
    return flow.only_chooses(scope.path_of(i), visit, lambda key: begins[key] if key in begins else read(key))


def _reader(space: ValueSpace) -> Callable[[str], Any]:
    area = space.areas.get(CHANNEL, {})
    return lambda key: space.peek(key, CHANNEL) if key in area else None


def _check_inside(flow: Flow, state: RunState, read: Callable[[str], Any]) -> None:
    """Ask the pipelines inside a flow that are under way whether they may go on."""
    inside = {path: n.flow.accepts for path, n in deep_nodes(flow.plan) if isinstance(n, Subflow)}
    for scope in state.scopes():
        accepts = inside.get(plain_of(scope.prefix[:-1]))
        if accepts is not None:
            layer = f"{LAYER}{scope.prefix}:"
            accepts(lambda key, layer=layer: read(layer + key))
