"""What may start: the one rule of readiness, the limits of a flow, and when it can go no further."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from everstep.engine import meetings
from everstep.engine.scope import Scope
from everstep.errors import EverstepError, InputMissing, LimitExceeded
from everstep.graph.compile.loops import bits

Place = tuple[Scope, int]
"""A node of a flow under way."""


def ready(scope: Scope, now: datetime | None = None) -> list[int]:
    """Return the nodes that may start: inputs there, no active node upstream, no pause left.

    Without `now`, pauses count as over.
    """
    if scope.error is not None:
        return []
    active, blockers, missing, running = scope.active, scope.plan.blockers, scope.missing, scope.running
    loops = scope.plan.loops
    if scope.retry_at and now is not None:
        # One that is over is forgotten even if its node waits for others, or the drive would wake up for it.
        scope.retry_at = _pauses_left(scope, now)
    found = []
    for i, round_ in scope.due.items():
        if i in running or (missing[i] and not is_fed(scope, i)):
            continue
        if conflict := active & blockers[i]:
            if scope.fired:
                conflict = meetings.still_in_the_way(scope, i, conflict)
            is_held = conflict and not (loops and _all_begin_later(scope, conflict, i, round_))
            if is_held and not (scope.won and meetings.may_go_on(scope, i)):
                continue
        if scope.queue and _awaits_task(scope, i):
            continue
        if i in loops and _is_round_under_way(scope, active & loops[i], i, round_):
            continue
        if now is not None and i in scope.retry_at:
            continue
        found.append(i)
    return _by_priority(scope, found) if scope.queue else found


def _pauses_left(scope: Scope, now: datetime) -> dict[int, datetime]:
    return {i: at for i, at in scope.retry_at.items() if at > now}


def _by_priority(scope: Scope, found: list[int]) -> list[int]:
    return sorted(found, key=lambda i: -(task.priority if (task := scope.task_of(i)) is not None else 0))


def _awaits_task(scope: Scope, i: int) -> bool:
    """True if a node before this one asked for a visit that is still to come."""
    plan = scope.plan
    return any(
        q.asked_by in plan.index and t != i and i in plan.graph[plan.index[q.asked_by]]
        for t, waiting in scope.queue.items()
        for q in waiting
    )


def is_fed(scope: Scope, i: int) -> bool:
    """True if a queued task brings what is missing."""
    task = scope.task_of(i)
    if task is None:
        return False
    given = {p.source for p in scope.plan.nodes[i].params if p.name in task.arguments}
    return scope.plan.required[i] <= given | scope.versions.keys()


def _all_begin_later(scope: Scope, conflict: int, i: int, round_: int) -> bool:
    """True if only heads of a later round of this node's own loop stand in its way: they wait for it."""
    loops, due = scope.plan.loops, scope.due
    return all(
        j in loops and loops[j] >> i & 1 and j not in scope.running and due[j] > round_
        for j in bits(conflict)
    )


def _is_round_under_way(scope: Scope, members: int, head: int, round_: int) -> bool:
    """True if some node of an earlier round is still active, or another head comes first in this one."""
    due, loops = scope.due, scope.plan.loops
    return any(due[j] < round_ or (due[j] == round_ and j < head and j in loops) for j in bits(members))


def oldest(scope: Scope) -> list[int]:
    """Return the node to run when every node waits for another, as in loops that overlap."""
    able = [
        i for i in scope.due if not (scope.missing[i] and not is_fed(scope, i)) and i not in scope.running
    ]
    if not able or scope.running or scope.error is not None:
        return []
    return [min(able, key=lambda i: (scope.due[i], i not in scope.plan.looping, i))]


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
                check_limits(scope, i)
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


def starving(scopes: Iterable[Scope]) -> tuple[Scope, EverstepError] | None:
    """Return a flow with a node that waits for a value in vain, and the error that says so."""
    for scope in scopes:
        starved = [
            (scope.path_of(i), sorted(scope.plan.required[i] - scope.versions.keys()))
            for i in scope.due
            if scope.missing[i] and not is_fed(scope, i)
        ]
        if starved and scope.error is None:
            parts = "; ".join(f"{path!r} waits for {', '.join(names)}" for path, names in starved)
            return scope, InputMissing(
                f"a node was reached, but waits for a value that can no longer come: {parts}.",
                fix="Give it a default, pass it as an input, or write it on every path to the node.",
            )
    return None


def check_limits(scope: Scope, i: int) -> None:
    """Raise `LimitExceeded` if the flow may not visit this node once more."""
    max_steps, max_visits, _ = scope.plan.limits
    if scope.steps >= max_steps:
        raise LimitExceeded(
            f"the run reached {max_steps} steps before {scope.path_of(i)!r}.",
            fix="Check the gate that should end the loop, or raise max_steps on the flow and resume.",
        )
    own = scope.plan.nodes[i].max_visits or max_visits
    if own is not None and scope.visits[i] >= own:
        raise LimitExceeded(
            f"node {scope.path_of(i)!r} was visited {own} times.",
            fix="Check the gate that should end the loop, or raise max_visits and resume.",
        )
