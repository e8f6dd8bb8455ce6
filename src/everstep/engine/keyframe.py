"""Where a run stands, as a keyframe holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep.engine.books import Books
from everstep.engine.fold import activate, enqueue, halt, take
from everstep.engine.scope import OpenUnits, Scope
from everstep.engine.state import RunState
from everstep.model.enums import Status
from everstep.model.records import (
    Counters,
    NodeState,
    OpenedState,
    QueuedTask,
    ScopeState,
    SerializedState,
    StepRecord,
    Written,
    mask_in,
    packed_mask,
)


def snapshot(state: RunState, values: tuple[Written, ...]) -> SerializedState:
    """Return where everything stands; nothing of what is inside an atomic flow."""
    nodes: dict[str, NodeState] = {}
    opened: dict[str, OpenedState] = {}
    scopes: dict[str, ScopeState] = {}
    tasks: list[QueuedTask] = []
    for scope in state.scopes():
        if scope.is_hidden:
            continue
        nodes.update(_nodes(scope))
        opened.update(_visits(scope))
        if scope is not state:
            scopes[scope.prefix[:-1]] = ScopeState(scope.steps, scope.ended, scope.error)
        tasks += [q.at(scope.prefix + q.node) for waiting in scope.queue.values() for q in waiting]
    return SerializedState(
        values,
        nodes,
        state.error,
        opened,
        scopes,
        tuple(tasks),
        state.task_count,
        state.ended,
        state.key_run,
        state.books.to_ledger(),
        None if state.undo is None else state.undo.kept(_hidden(state.undo.scope)),
        state.delay,
        state.deadline,
    )


def _hidden(scope: Scope | None) -> NodeState | None:
    """Return where the node stands that undoes something."""
    return None if scope is None else _node(scope, 0, scope.due)


def _visits(scope: Scope) -> dict[str, OpenedState]:
    """Return the visits to inner flows under way; an atomic one has nothing to go on from."""
    return {
        scope.prefix + scope.plan.paths[i]: OpenedState(
            visit.visit,
            visit.reads,
            visit.count if visit.is_map else None,
            tuple(sorted(visit.done)),
            tuple(sorted(visit.failed)),
            visit.started_at,
            visit.task,
            tuple(sorted(visit.begun)) if visit.begun else (),
        )
        for i, visit in scope.opened.items()
        if visit.is_map or not scope.plan.children[i].is_atomic
    }


def _nodes(scope: Scope) -> dict[str, NodeState]:
    """Return the standing of every node that has one."""
    due = scope.due
    if scope.ended:
        # A fold does not know what was running: of an ended flow only open visits go on.
        due = {i: round_ for i, round_ in due.items() if scope.prefix + scope.plan.paths[i] in _visits(scope)}
    waiting = {j for j, count in enumerate(scope.arrived) if count} | scope.won.keys() | scope.lost.keys()
    settled = [i for i, visits in enumerate(scope.visits) if (visits or i in waiting) and i not in due]
    path_of = scope.plan.paths.__getitem__ if scope.parent is None else scope.path_of
    pending = waiting.union(
        due, scope.retry_at, scope.keys, scope.begun, scope.streams, scope.units, scope.waiting
    )
    special = pending.union(scope.consumed, scope.fired, scope.winners)
    # Due nodes come last, in the order they became due: a resume starts them in the same order.
    return {
        path_of(i): _node(scope, i, due) if i in special else _plain_node(scope, i) for i in (*settled, *due)
    }


def _node(scope: Scope, i: int, due: Mapping[int, int]) -> NodeState:
    return NodeState(
        visits=scope.visits[i],
        status=scope.statuses[i],
        attempts=scope.attempts[i],
        reads=scope.reads[i],
        chosen=scope.chosen[i],
        retry_at=scope.retry_at.get(i),
        key=scope.keys.get(i),
        consumed=scope.consumed.get(i),
        is_due=i in due,
        round=due.get(i, 0),
        arrived=scope.arrived[i],
        won=packed_mask(scope.won.get(i, 0)),
        lost=packed_mask(scope.lost.get(i, 0)),
        has_fired=i in scope.fired,
        winners=packed_mask(scope.winners.get(i, 0)),
        begun=i in scope.begun,
        stream=scope.streams.get(i),
        **_units_of(scope.units[i]) if i in scope.units else {},
        **_wait_of(scope.waiting[i]) if i in scope.waiting else {},
    )


def _plain_node(scope: Scope, i: int) -> NodeState:
    return NodeState(scope.visits[i], scope.statuses[i], scope.attempts[i], scope.reads[i], scope.chosen[i])


def _wait_of(step: StepRecord) -> dict[str, Any]:
    return {"wait": step.wait, "since": step.started_at, "task": step.task}


def _units_of(units: OpenUnits) -> dict[str, Any]:
    return {"units": dict(units.at), "began_as": units.began_as}


def restore(state: RunState, versions: Mapping[str, int], kept: SerializedState, counters: Counters) -> None:
    """Become the state that a keyframe describes; versions are by whole name.

    If there is something to undo, the state has the stack of that already.
    """
    state.total, state.task_count, state.ended = counters.steps, kept.task_count, False
    state.steps = sum(n.visits for path, n in kept.nodes.items() if path in state.plan.index)
    by_scope: dict[str, dict[str, int]] = {"": {}}
    for name, version in versions.items():
        if name[0] != "@":
            head, _, local = name.rpartition("/")
            by_scope.setdefault(head, {})[local] = version
    _restore_versions(state, by_scope[""])
    given = {task.number: task.arguments for task in kept.tasks}
    for path, visit in kept.opened.items():  # outer ones come first
        _restore_visit(state, path, visit, given)
    for path, inner in kept.scopes.items():
        scope = state.scope_at(path)
        scope.due, scope.active = {}, 0
        scope.chosen = [0] * len(scope.chosen)
        _restore_versions(scope, by_scope.get(path, {}))
        scope.steps, scope.error = inner.steps, inner.error
    for path, node in kept.nodes.items():
        scope, i, _ = state.locate(path)
        _restore_node(scope, i, node)
        if node.wait is not None:
            state.waits[node.wait.wait_id] = (scope, i)
    for task in kept.tasks:
        place, _, local = task.node.rpartition("/")
        enqueue(state.scope_at(place) if place else state, task.at(local))
    for path, inner in kept.scopes.items():
        state.scope_at(path).ended = inner.ended
    if kept.undo is not None and state.undo is not None:
        _restore_hidden(state, state.undo.scope, kept.undo.at)
    state.ended, state.error, state.key_run = kept.has_ended, kept.error, kept.key_run
    state.delay, state.deadline = kept.delay, kept.deadline
    state.books = Books(kept.ledger)
    state.stir_all()


def _restore_hidden(state: RunState, scope: Scope | None, node: NodeState | None) -> None:
    if scope is not None and node is not None:
        _restore_node(scope, 0, node)
        if node.wait is not None:
            state.waits[node.wait.wait_id] = (scope, 0)


def _restore_versions(scope: Scope, versions: dict[str, int]) -> None:
    scope.versions = dict(versions)
    for i, required in enumerate(scope.plan.required):
        # Asked name by name: a set less the keys of a mapping goes over all of the mapping.
        scope.missing[i] = sum(name not in versions for name in required)


def _restore_visit(
    state: RunState, path: str, visit: OpenedState, given: Mapping[int, tuple[str, ...]]
) -> None:
    head, _, name = path.rpartition("/")
    scope = state.scope_at(head) if head else state
    i = scope.plan.index[name]
    step = StepRecord(
        path=path, visit=visit.visit, status=Status.RUNNING, reads=visit.reads, items=visit.items
    )
    take(scope, i, step)
    opened = scope.opened[i]
    opened.done, opened.failed = set(visit.done), set(visit.failed)
    opened.started_at, opened.task = visit.started_at, visit.task
    opened.given = given.get(visit.task or 0, ())
    opened.begun = frozenset(visit.begun)


def _restore_node(scope: Scope, i: int, node: NodeState) -> None:
    scope.visits[i] = node.visits
    scope.statuses[i] = node.status
    scope.attempts[i] = node.attempts
    scope.reads[i] = node.reads
    scope.chosen[i] = node.chosen
    scope.arrived[i] = node.arrived
    if node.key is not None:
        scope.keys[i] = node.key
    if node.consumed is not None:
        scope.consumed[i] = node.consumed
    if node.retry_at is not None:
        scope.retry_at[i] = node.retry_at
    if node.won:
        scope.won[i] = mask_in(node.won)
    if node.lost:
        scope.lost[i] = mask_in(node.lost)
    if node.has_fired:
        scope.fired.add(i)
    if node.begun:
        scope.begun.add(i)
    if node.stream is not None:
        scope.streams[i] = node.stream
    if node.units is not None or node.began_as:
        units = scope.units[i] = OpenUnits()
        units.at, units.began_as = dict(node.units or {}), node.began_as
    if node.winners:
        scope.winners[i] = mask_in(node.winners)
    if node.is_due:
        activate(scope, i, node.round)
    if node.wait is not None:
        step = StepRecord(
            path=scope.path_of(i),
            visit=node.visits + 1,
            status=Status.HALTED,
            attempts=node.attempts + 1,
            reads=node.reads,
            key=node.key,
            started_at=node.since,
            task=node.task,
            wait=node.wait,
        )
        halt(scope, i, step)
