"""Whether a run can go on with another plan than its own. Pure: nothing is read, nothing stays changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from everstep.engine.keyframe import restore, snapshot
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.engine.translate import differs, is_fresh, shown_scopes, translate, wake
from everstep.errors import FlowChanged, TaskGone
from everstep.graph.compile.plan import Plan
from everstep.graph.compile.renaming import RenamedScope, Renaming, edges_of, plain_path
from everstep.model.compat import Compat, Compatibility
from everstep.model.enums import Status
from everstep.model.records import Counters, NodeState, SerializedState

_SHOWN = 5
_KNOWN = 1000
"""How many verdicts are kept, for runs that stand alike."""


class Obstacle(NamedTuple):
    """One thing that stands in a run's way."""

    node: str
    message: str
    fix: str
    values: tuple[str, ...] = ()
    is_final: bool = False
    """True if no rule would help."""
    code: str = FlowChanged.code


class Judge:
    """Judges runs that go by one plan for another; those that stand alike are judged once."""

    def __init__(self, names: Renaming) -> None:
        self.names = names
        self._known: dict[str, Compat] = {}

    def __call__(self, state: RunState) -> Compat:
        """Say whether a run goes on with the new plan, needs rules first, or cannot go on."""
        kept = snapshot(state, ())
        place = _place_of(kept, state)
        told = self._known.get(place)
        if told is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            told = self._known[place] = _judge(state, kept, self.names)
        return told


def _place_of(kept: SerializedState, state: RunState) -> str:
    """Return the same text for runs that stand alike: without times, keys and ids."""
    nodes = [
        (
            (path, n.visits, n.status, n.attempts, n.reads, n.chosen, n.is_due, n.round, n.arrived),
            (n.won, n.lost, n.has_fired, n.winners, n.begun, n.wait is not None, n.task is not None),
        )
        for path, n in kept.nodes.items()
    ]
    opened = [
        (path, v.visit, v.reads, v.items, v.done, v.failed, v.task is not None)
        for path, v in kept.opened.items()
    ]
    scopes = [(path, scope.ended, scope.error is not None) for path, scope in kept.scopes.items()]
    tasks = [(task.node, task.arguments, task.asked_by) for task in kept.tasks]
    versions = [(scope.prefix, scope.versions) for scope in state.scopes()]
    rest = (kept.has_ended, kept.error is not None)
    return repr((nodes, opened, scopes, tasks, versions, rest))


def judge(state: RunState, names: Renaming) -> Compat:
    """Say whether a run goes on with the new plan, needs rules first, or cannot go on."""
    return _judge(state, snapshot(state, ()), names)


def _judge(state: RunState, kept: SerializedState, names: Renaming) -> Compat:
    findings = [
        Obstacle("", f"{clash}.", "Drop the rule, or drop the other name.", is_final=True)
        for clash in names.clashes
    ]
    findings += _judge_nodes(kept, names)
    started: list[str] = []
    if not any(f.is_final for f in findings):
        versions = _versions(state, names)
        moved = RunState(names.new)
        restore(moved, versions, translate(kept, names, key_run="", bumps={}), Counters(state.total))
        was_due = {scope.prefix: set(scope.due) for scope in moved.scopes()}
        started = wake(moved, names)
        for scope, place, path in shown_scopes(moved, names):
            findings += _judge_wiring(scope, place, path, names, was_due[scope.prefix])
    return _compat(findings, names, started)


def _versions(state: RunState, names: Renaming) -> dict[str, int]:
    found: dict[str, int] = {}
    for scope in state.scopes():
        prefix = names.prefix(scope.prefix)
        if prefix is None:
            continue
        found.update(dict.fromkeys((prefix + name for name in names.gifts_at(prefix)), 1))
        for name, version in scope.versions.items():
            place = names.value(scope.prefix, name)
            if place is not None:
                found["".join(place)] = version
    return found


def _compat(findings: list[Obstacle], names: Renaming, started: list[str]) -> Compat:
    rules = tuple(map(str, names.applied))
    if not findings:
        return Compat(verdict=Compatibility.CONTINUES, migrations=rules, starts=tuple(started))
    final = [f for f in findings if f.is_final]
    told = final or findings
    fixes = list(dict.fromkeys(f.fix for f in told))
    more = f" And {len(told) - _SHOWN} more." if len(told) > _SHOWN else ""
    return Compat(
        verdict=Compatibility.REFUSED if final else Compatibility.NEEDS_MIGRATION,
        nodes=tuple(dict.fromkeys(f.node for f in told if f.node)),
        values=tuple(dict.fromkeys(v for f in told for v in f.values)),
        reason=" ".join(f.message for f in told[:_SHOWN]) + more,
        fix=" ".join(fixes[:_SHOWN]),
        migrations=rules,
        code=told[0].code,
    )


# -- nodes that the run has to do with --------------------------------------------------------------------


def _judge_nodes(kept: SerializedState, names: Renaming) -> Iterator[Obstacle]:
    queued: dict[str, list[tuple[str, ...]]] = {}
    for task in kept.tasks:
        queued.setdefault(task.node, []).append(task.arguments)
    for path, node in kept.nodes.items():
        head, _, last = path.rpartition("/")
        place = names.place(head)
        if "#" in last or place is None or place.new is None:
            continue  # an item belongs to its map, and of a flow that is gone the flow itself is told
        name = place.nodes.get(last)
        if name is None or name not in place.new.index:
            if name is not None or path in kept.opened or node.wait is not None or path in queued:
                yield _gone(path, node, is_open=path in kept.opened, is_queued=path in queued)
            continue
        now = place.new.nodes[place.new.index[name]]
        old, new = place.shape(last), now.describe()
        yield from _changed(path, node, old, new, names, is_open=path in kept.opened)
        params = {p.name for p in now.params}
        for unknown in sorted({a for given in queued.get(path, ()) for a in given} - params):
            message = f"A task brings {unknown!r} to {path!r}, which has no such parameter now."
            fix = f"Give {name!r} the parameter {unknown!r} back, or fork the run before the task was queued."
            yield Obstacle(path, message, fix, (unknown,), True, TaskGone.code)


def _gone(path: str, node: NodeState, *, is_open: bool, is_queued: bool) -> Obstacle:
    name = plain_path(path)
    if is_queued:
        message = f"A task is queued for {path!r}, which its flow no longer has."
        fix = f"Put it back: Flow(..., tasks=[{name}]), or fork the run before it was queued."
        return Obstacle(path, message, fix, is_final=True, code=TaskGone.code)
    if node.wait is not None or is_open:
        what = "waits for an answer" if node.wait is not None else "is a flow under way"
        message = f"{path!r} {what}, and is gone from the flow."
        fix = f"Put it back, or name it with rename_node({name!r}, ...), or finish the run with its own code."
        return Obstacle(path, message, fix, is_final=True)
    message = f"{path!r} is {_standing(node)}, and is gone from the flow."
    return Obstacle(
        path, message, f"Add drop_node({name!r}) or rename_node({name!r}, ...) to migrations=[...]."
    )


def _changed(
    path: str,
    node: NodeState,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    names: Renaming,
    *,
    is_open: bool,
) -> Iterator[Obstacle]:
    if not differs(old, _without_new_options(old, new), is_open=is_open):
        return
    name = plain_path(names.path(path) or path)
    what = _difference(old, new)
    if node.wait is not None and "halts" not in new:
        message = f"{path!r} waits for an answer, and is no longer a node that waits."
        yield Obstacle(path, message, "Answer it with the code it began with first.", is_final=True)
    elif is_open and any(old.get(k) != new.get(k) for k in ("kind", "over", "atomic")):
        message = f"{path!r} is under way, and is another kind of node now ({what})."
        yield Obstacle(path, message, "Finish it with the code it began with first.", is_final=True)
    elif old.get("group") != new.get("group"):
        message = (
            f"The group that meets at {path!r} is {_standing(node)}, and has other members or another policy."
        )
        yield Obstacle(path, message, "Finish it with the code it began with first.", is_final=True)
    elif name not in names.accepted:
        message = f"{path!r} is {_standing(node)}, and has changed: {what}."
        fix = f"Add accept({name!r}) to migrations=[...], or the renames of its values."
        yield Obstacle(path, message, fix, _moved_values(old, new))


def _without_new_options(old: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a shape without inputs that were added and need not be given: they ask nothing of a run."""
    known = {source for source, _ in old["inputs"]}
    inputs = [[source, required] for source, required in new["inputs"] if required or source in known]
    return {**new, "inputs": inputs}


def _standing(node: NodeState) -> str:
    if node.wait is not None:
        return "waiting"
    return "pending" if node.is_due else "finished" if node.visits else "under way"


def _moved_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    apart = {source for source, _ in old["inputs"]} ^ {source for source, _ in new["inputs"]}
    return tuple(sorted(apart | (set(old["outputs"]) ^ set(new["outputs"]))))


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for key, verb in (("inputs", "reads"), ("outputs", "writes"), ("targets", "leads to")):
        was, now = _listed(old.get(key, ())), _listed(new.get(key, ()))
        if sorted(was) != sorted(now):
            parts.append(f"it {verb} {', '.join(now) or 'nothing'} now, not {', '.join(was) or 'nothing'}")
    if not parts and old["inputs"] != new["inputs"]:
        parts.append("it needs other inputs than it did")
    return "; ".join(parts) or "it is another kind of node"


def _listed(entries: Iterable[Any]) -> list[str]:
    return [entry if isinstance(entry, str) else entry[0] for entry in entries]


# -- what the new wiring would do -------------------------------------------------------------------------


def _judge_wiring(
    scope: Scope, place: RenamedScope, path: str, names: Renaming, was_due: set[int]
) -> Iterator[Obstacle]:
    """Find finished nodes that new wiring would run again, and values that no node will ever write."""
    plan = scope.plan
    now, before = edges_of(plan), place.in_edges()
    may_run = _reached(plan, now, scope.due)
    as_before = _reached(plan, {k: e & before.get(k, set()) for k, e in now.items()}, was_due)
    for k, name in enumerate(plan.paths):
        whole = f"{path}/{name}" if path else name
        if scope.visits[k] and k not in scope.due and k not in as_before:
            news = now[name] - before.get(name, set())
            by = next((e for e in sorted(news) if plan.index[e[1]] in may_run), None)
            if by is not None and not names.accepted.get(whole):
                yield _again(scope.path_of(k), whole, by)
        elif k not in scope.opened and (not scope.visits[k] or k in scope.due):
            yield from _lacking(scope, place, names, k, whole, may_run)


def _reached(plan: Plan, edges: Mapping[str, set[tuple[str, str, str]]], seeds: Iterable[int]) -> set[int]:
    onward: dict[int, list[int]] = {}
    for to, sources in edges.items():
        for _, by, _ in sources:
            if by in plan.index:
                onward.setdefault(plan.index[by], []).append(plan.index[to])
    todo = list(seeds)
    if todo:
        todo += plan.tasks
    found: set[int] = set()
    while todo:
        i = todo.pop()
        if i not in found:
            found.add(i)
            todo += onward.get(i, ())
    return found


def _again(path: str, name: str, by: tuple[str, str, str]) -> Obstacle:
    _, source, value = by
    how = f"reads {value!r}, which {source!r} will write" if value else f"comes after {source!r} now"
    message = f"{path!r} is finished, and would run again: it {how}."
    fix = f"Add accept({name!r}, reruns=True), or skip({source!r}), to migrations=[...]."
    return Obstacle(path, message, fix, (value,) if value else ())


def _lacking(
    scope: Scope, place: RenamedScope, names: Renaming, k: int, whole: str, may_run: set[int]
) -> Iterator[Obstacle]:
    plan = scope.plan
    fresh = is_fresh(place, plan, k)
    starts_alone = not plan.is_led[k] and not plan.is_target[k] and whole not in names.skipped
    if k in plan.tasks or k in scope.queue or not (k in may_run or starts_alone):
        return
    for name in sorted(plan.required[k] - scope.versions.keys()):
        writers = plan.writers.get(name, ())
        had = {place.value(n) for n in place.plan.writers}
        is_new = fresh or (not writers and name in had)
        is_lost = all(w not in may_run and scope.statuses[w] is Status.COMPLETED for w in writers)
        if is_new and is_lost:
            value = f"{whole.rpartition('/')[0]}/{name}".lstrip("/")
            message = (
                f"{scope.path_of(k)!r} reads {name!r}, which the run does not have and nothing will write."
            )
            yield Obstacle(
                scope.path_of(k), message, f"Add add_value({value!r}, ...) to migrations=[...].", (value,)
            )
