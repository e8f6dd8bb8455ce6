"""How far a run made of phases has come, told when it is resumed. Apart, as the core finds it by name."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from everstep.codec.plain_json import jsonable
from everstep.engine.state import RunState
from everstep.errors import BadRequest, EverstepError
from everstep.frontends.phases.nodes import lessons_differ
from everstep.frontends.phases.places import COST_KEYS, LESSONS_GIVEN, MONEY, PhasePlace, place_of
from everstep.graph.author.extension import Extension, Read
from everstep.graph.author.flow import Flow
from everstep.model.ledger import BreakerState

log = logging.getLogger("everstep")
HUMAN_REVIEW: Final = "human_review"
_NUMBER: Final = re.compile(r"[0-9]+(_[0-9]+)?")
_ROLES: Final = ("phase", "check", "done", "gate", "review", "again", "next")


class PhaseProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run made of phases goes on, what lies behind it, and what it has cost."""

    point: str
    """A phase such as `phase_2_synthesis`, its gate as `phase_2_synthesis_gate`, or `human_review`."""
    completed: tuple[str, ...]
    """The phases whose work is done."""
    cost: float
    warnings: tuple[str, ...] = ()
    """What has changed since the run was begun."""


class Process(Extension):
    """What the runs of a process made of phases say of themselves."""

    def __init__(self, lessons: tuple[Any, ...] | None = None) -> None:
        self._lessons = lessons
        """What its runs are to heed; none if the flow was read back, and does not say."""

    def read(self, data: Any) -> list[str]:
        """Return the place of a node among phases: number, name and role, as a list or as an object."""
        said = [data.get(field) for field in PhasePlace._fields] if isinstance(data, Mapping) else data
        match said:
            case [str(number), str(name), str(role)] if _NUMBER.fullmatch(number) and name and role in _ROLES:
                return [number, name, role]
        raise BadRequest(
            f"its place among phases is {data!r:.80}.",
            fix=f"Give a number such as 1 or 0_5, a name, and one of {', '.join(_ROLES)}.",
        )

    def progress(
        self, flow: Flow, state: RunState, read: Read, start: str | None
    ) -> dict[str, PhaseProgress]:
        """Say where a run goes on, what lies behind it and what it has cost; log what has changed."""
        places = [place_of(node) for node in state.plan.nodes]
        due = next((i for i in state.due if places[i] is not None), None)
        if start is not None:
            due = state.plan.index[start]
        here = places[due] if due is not None else None
        is_asked = any(scope is not state or i == due for scope, i in state.waits.values())
        is_asked = is_asked or (due is not None and _is_stopped(flow, state, due))
        warnings = tuple(self._warnings(read))
        for warning in warnings:
            log.warning("%s", warning)
        found = PhaseProgress(
            point="end" if here is None or due is None else _point(state, due, here, is_asked=is_asked),
            completed=tuple(completed_phases(state, here)),
            cost=_cost(state, read),
            warnings=warnings,
        )
        return {"phases": found}

    def steps_done(self, state: RunState) -> int:
        """Count the phases whose work is done."""
        return len(completed_phases(state))

    def _warnings(self, read: Read) -> list[str]:
        known = _readable(read, LESSONS_GIVEN)
        given = jsonable(list(self._lessons)) if self._lessons is not None else None
        if known is None or given is None or known == given:
            return []
        return [lessons_differ(known, given)]


PROCESS: Final = Process()
"""That of a process which was read back."""


def _point(state: RunState, due: int, here: PhasePlace, *, is_asked: bool) -> str:
    if here.role == "review" or is_asked:
        return HUMAN_REVIEW
    if here.role == "gate":
        return f"{here.label}_gate"
    if here.role == "next":
        target = place_of(state.plan.nodes[state.plan.index[_only_target(state, due)]])
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
        place = place_of(node)
        if place is not None and place.role in ("phase", "done"):
            done[place.label] = bool(state.visits[i])
    if here is not None and here.role in ("phase", "check", "done", "again"):
        done[here.label] = False
    return [label for label, is_done in done.items() if is_done]


def _cost(state: RunState, read: Read) -> float:
    if MONEY in state.books.spent:
        return float(state.books.spent[MONEY])
    for name in COST_KEYS:
        value = _readable(read, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return 0


def _readable(read: Read, key: str) -> Any:
    """Return what the channel holds under a key; none if that is nothing, or cannot be read."""
    try:
        return read(key)
    except EverstepError:
        return None
