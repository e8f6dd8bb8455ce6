"""How far a run made of phases has come, told when it is resumed."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from everstep.codec.plain_json import jsonable
from everstep.engine.state import RunState
from everstep.errors import EverstepError
from everstep.frontends.phases.nodes import lessons_differ
from everstep.graph.author.flow import Flow
from everstep.model.ledger import BreakerState
from everstep.model.phases import COST_KEYS, LESSONS_GIVEN, MONEY, PhasePlace
from everstep.model.records import CHANNEL
from everstep.runtime.drive.values import ValueSpace

log = logging.getLogger("everstep")
HUMAN_REVIEW = "human_review"


class PhaseProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run made of phases goes on, what lies behind it, and what it has cost."""

    point: str
    """A phase such as `phase_2_synthesis`, its gate as `phase_2_synthesis_gate`, or `human_review`."""
    completed: tuple[str, ...]
    """The phases whose work is done."""
    cost: float
    warnings: tuple[str, ...] = ()
    """What has changed since the run was begun."""


def progress_of(
    flow: Flow, state: RunState, space: ValueSpace, start: str | None = None
) -> PhaseProgress | None:
    """Say how far a run has come; none if its flow is not made of phases."""
    places = [node.phase for node in state.plan.nodes]
    if not any(place is not None for place in places):
        return None
    due = next((i for i in state.due if places[i] is not None), None)
    if start is not None:
        due = state.plan.index[start]
    here = places[due] if due is not None else None
    is_asked = any(scope is not state or i == due for scope, i in state.waits.values())
    is_asked = is_asked or (due is not None and _is_stopped(flow, state, due))
    warnings = tuple(_warnings(flow, state, space))
    for warning in warnings:
        log.warning("%s", warning)
    return PhaseProgress(
        point="end" if here is None or due is None else _point(state, due, here, is_asked=is_asked),
        completed=tuple(completed_phases(state, here)),
        cost=_cost(state, space),
        warnings=warnings,
    )


def _point(state: RunState, due: int, here: PhasePlace, *, is_asked: bool) -> str:
    if here.role == "review" or is_asked:
        return HUMAN_REVIEW
    if here.role == "gate":
        return f"{here.label}_gate"
    if here.role == "next":
        target = state.plan.nodes[state.plan.index[_only_target(state, due)]].phase
        return target.label if target is not None else here.label
    return here.label


def _is_stopped(flow: Flow, state: RunState, i: int) -> bool:
    """True if a breaker is open that keeps this node from starting until a person lets it."""
    name, known = state.plan.paths[i], state.books.breakers
    return any(
        known[breaker.name].state is BreakerState.OPEN
        for breaker in flow.breakers
        if breaker.name in known and (breaker.nodes is None or name in breaker.nodes)
    )


def _only_target(state: RunState, i: int) -> str:
    targets: tuple[str, ...] = getattr(state.plan.nodes[i], "targets", ())
    return targets[0]


def completed_phases(state: RunState, here: PhasePlace | None = None) -> list[str]:
    """Return the phases whose last node has run, without one that is being done again."""
    done: dict[str, bool] = {}
    for i, node in enumerate(state.plan.nodes):
        if node.phase is not None and node.phase.role in ("phase", "done"):
            done[node.phase.label] = bool(state.visits[i])
    if here is not None and here.role in ("phase", "check", "done", "again"):
        done[here.label] = False
    return [label for label, is_done in done.items() if is_done]


def _cost(state: RunState, space: ValueSpace) -> float:
    if MONEY in state.books.spent:
        return float(state.books.spent[MONEY])
    for name in COST_KEYS:
        value = _read(space, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return 0


def _warnings(flow: Flow, state: RunState, space: ValueSpace) -> list[str]:
    known = _read(space, LESSONS_GIVEN)
    given = jsonable(list(flow.lessons)) if flow.lessons is not None else None
    if known is None or given is None or known == given:
        return []
    return [lessons_differ(known, given)]


def _read(space: ValueSpace, key: str) -> Any:
    """Return what the channel holds under a key; none if that is nothing, or cannot be read."""
    if key not in space.areas.get(CHANNEL, {}):
        return None
    try:
        return space.peek(key, CHANNEL)
    except EverstepError:
        return None
