"""How much may run at once, how far a flow may go, and when it can go no further."""

from __future__ import annotations

from everstep.engine import decide
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.errors import EverstepError, InputMissing

Place = tuple[Scope, int]


def within_limits(
    ready: list[Place], most: int | None, under_way: int
) -> tuple[list[Place], tuple[Scope, EverstepError] | None]:
    """Leave out what would be too much at once; the flow that has gone too far, if one has, and why."""
    started: dict[Scope, int] = {}
    allowed: list[Place] = []
    for place in ready:
        scope, i = place
        limits = scope.plan.limits
        started[scope] = started.get(scope, 0) + 1
        own_visits = scope.plan.nodes[i].max_visits or limits.max_visits
        if own_visits or scope.steps + started[scope] > limits.max_steps:
            try:
                decide.check_limits(scope, i)
            except EverstepError as error:
                return [], (scope, error)
        is_leaf = i not in scope.plan.children
        if is_leaf and most is not None and under_way + len(allowed) >= most:
            continue
        own = limits.max_concurrency
        if own is not None and len(scope.running) - len(scope.waiting) + started[scope] > own:
            continue
        allowed.append(place)
    return allowed, None


def starving(state: RunState) -> tuple[Scope, EverstepError] | None:
    """Return a flow with a node that waits for a value in vain, and the error that says so."""
    for scope in state.scopes():
        starved = [
            (scope.path_of(i), sorted(scope.plan.required[i] - scope.versions.keys()))
            for i in scope.due
            if scope.missing[i] and not scope.is_fed(i)
        ]
        if starved and scope.error is None:
            parts = "; ".join(f"{path!r} waits for {', '.join(names)}" for path, names in starved)
            return scope, InputMissing(
                f"a node was reached, but waits for a value that can no longer come: {parts}.",
                fix="Give it a default, pass it as an input, or write it on every path to the node.",
            )
    return None
