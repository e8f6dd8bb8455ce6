"""What going on as another run does to where it stands."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from everstep.engine import meetings
from everstep.engine.fold import activate, write
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.graph.author.node import Gate
from everstep.model.enums import Status
from everstep.model.records import StepRecord


def fork(state: RunState, step: StepRecord) -> None:
    """Go on as another run: a failure is forgotten, and what was edited is newer than it was.

    Neither a time to begin at nor a deadline is taken along.
    """
    state.delay = state.deadline = None
    state.reopen()
    state.ask_again()
    if state.undo is not None:
        state.undo = state.undo.on_fork(step)
    if step.key is not None:
        state.key_run = step.key
        for scope in state.scopes():
            scope.keys.clear()
            scope.begun.clear()  # another key is another effect
            for visit in scope.opened.values():
                visit.begun = frozenset()
            for units in scope.units.values():
                units.at = {name: at for name, at in units.at.items() if at.status is not Status.RUNNING}
    for path, chosen in (step.again or {}).items():
        scope, i, _ = state.locate(path)
        if i in scope.opened:
            _begin_anew(state, scope, i)
        else:
            _choose_again(state, scope, i, chosen)
    edited: dict[Scope, list[str]] = {}
    for written in step.writes:
        if written.name[0] != "@":
            head, _, name = written.name.rpartition("/")
            edited.setdefault(state.scope_at(head) if head else state, []).append(name)
    if edited:
        state.ended = False
    for scope, names in edited.items():
        reached = _reached(scope, names)
        _withdraw_choices(scope, reached)
        meetings.meet_anew(scope, reached)
        for i in [i for i in scope.units if i in reached or _reads(scope, i, names)]:
            del scope.units[i]  # its calls were made with what was edited
        for name in names:
            write(scope, name, scope.versions.get(name, 0) + 1, 0)
            _wake_behind_joins(scope, name)
        state.stir(scope)


def _reads(scope: Scope, i: int, names: Collection[str]) -> bool:
    return any(p.source in names for p in scope.plan.nodes[i].params)


def outdated(scope: Scope, edited: Collection[str]) -> list[str]:
    """Return the paths of the inner flows under way that read what is edited, or what follows from it."""
    plan, reached = scope.plan, _reached(scope, edited)
    newer = {*edited, *(name for i in reached for name in plan.nodes[i].outputs)}
    return [
        scope.path_of(i) for i, visit in scope.opened.items() if i in reached or newer & visit.reads.keys()
    ]


def _begin_anew(state: RunState, scope: Scope, i: int) -> None:
    """Give up a visit to an inner flow; its node is due for another one, which reads the newest values."""
    visit = scope.opened.pop(i)
    for inside in visit.scopes.values():
        state.forget(inside)
    scope.visits[i] = visit.visit
    scope.attempts[i] = 0
    scope.running.discard(i)
    state.restless[scope] = None


def _choose_again(state: RunState, scope: Scope, g: int, chosen: Iterable[str]) -> None:
    """Take back what a gate chose, and let it choose once more."""
    round_ = 0
    for name in chosen:
        t = scope.plan.index[name]
        if scope.chosen[t] > _is_acted_on(scope, t):
            scope.chosen[t] -= 1
            if not scope.chosen[t]:
                round_ = max(round_, scope.due.pop(t, 0))
                scope.active &= ~(1 << t)
                scope.attempts[t] = 0
    scope.ended = False
    scope.chosen[g] += scope.plan.is_target[g]
    activate(scope, g, round_)
    state.stir(scope)


def _reached(scope: Scope, edited: Iterable[str]) -> set[int]:
    """Return the nodes that an edit makes run again, as far as that is known before they have run."""
    return _led_on(scope, (i for name in edited for i in scope.plan.readers.get(name, ())))


def run_again(scope: Scope) -> set[int]:
    """Return the nodes that are due or under way, and those that what they write makes run, as far as that
    is known before they have run."""
    plan = scope.plan
    written = (r for i in scope.due for name in plan.nodes[i].outputs for r in plan.readers.get(name, ()))
    return {*scope.due} | _led_on(scope, written)


def _led_on(scope: Scope, nodes: Iterable[int]) -> set[int]:
    """Return these nodes, apart from those that gates choose, and all that run because of them."""
    plan, todo = scope.plan, list(nodes)
    reached: set[int] = set()
    while todo:
        i = todo.pop()
        if i not in reached and not plan.is_target[i]:
            reached.add(i)
            todo.extend(plan.follows.get(i, ()))
            todo.extend(r for name in plan.nodes[i].outputs for r in plan.readers.get(name, ()))
    return reached


def _wake_behind_joins(scope: Scope, name: str) -> None:
    """Start the nodes behind early joins that read an edited value, which nothing but an edit does."""
    plan = scope.plan
    for i in sorted({*plan.readers.get(name, ())} - {*plan.wakes.get(name, ())}):
        if name in scope.reads[i] and not (plan.is_target[i] or meetings.has_lost(scope, i, name)):
            activate(scope, i, 0)


def _withdraw_choices(scope: Scope, reached: set[int]) -> None:
    """Take back what a gate chose and no node acted on, if an edit makes the gate choose again."""
    plan, visits = scope.plan, scope.visits
    gates = {i: node for i, node in enumerate(plan.nodes) if isinstance(node, Gate) and visits[i]}
    for g in reached & gates.keys() - scope.due.keys():
        for name in gates[g].targets:
            t = plan.index.get(name)
            if t is None or scope.chosen[t] <= _is_acted_on(scope, t):
                continue
            # Where another gate may have chosen the same node, that choice must stand.
            if any(name in gates[o].targets for o in gates if o != g):
                continue
            scope.chosen[t] -= 1
            if not scope.chosen[t]:
                scope.due.pop(t, None)
                scope.active &= ~(1 << t)


def _is_acted_on(scope: Scope, t: int) -> bool:
    """True if a node that was chosen is an inner flow under way: it ends as it began."""
    visit = scope.opened.get(t)
    return visit is not None and visit.task is None
