"""Where a run stands, told in the words of another plan.

Pure, and the only place that knows what of a folded state depends on the plan: names, and the rounds of
loops, which are numbered by how many nodes a flow has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everstep.engine.fold import activate
from everstep.engine.keys import automatic_key, names_in, names_text
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.graph.author.node import Node
from everstep.graph.compile.blueprint import STRUCTURE
from everstep.graph.compile.plan import Plan
from everstep.graph.compile.renaming import RenamedScope, Renaming, plain_path
from everstep.model.records import (
    RESULT,
    NodeState,
    OpenedState,
    QueuedTask,
    SerializedState,
    Undoable,
    UndoState,
)

Bumps = Mapping[str, tuple[int, int]]
"""Values that get a new version on the way: by whole new name, the newest one before and the one after."""

_INSIDE = ("params", "exports", "select", "must_lift", "atomic", "inner_outputs")
"""What only matters while a visit to an inner flow is open."""


def translate(kept: SerializedState, names: Renaming, *, key_run: str, bumps: Bumps) -> SerializedState:
    """Return a state in the words of the new plan; what has no place there is left out."""
    return _Translator(names, key_run, bumps).run(kept)


class _Translator:
    def __init__(self, names: Renaming, key_run: str, bumps: Bumps) -> None:
        self._names = names
        self._key_run = key_run
        self._bumps = bumps

    def run(self, kept: SerializedState) -> SerializedState:
        return SerializedState(
            (),
            dict(self._nodes(kept)),
            kept.error,
            dict(self._opened(kept)),
            {new: scope for path, scope in kept.scopes.items() if (new := self._scope(path)) is not None},
            tuple(self._tasks(kept)),
            kept.task_count,
            kept.has_ended,
            kept.key_run,
            kept.ledger,
            None if kept.undo is None else self._undo(kept.undo),
            kept.delay,
            kept.deadline,
        )

    def _undo(self, kept: UndoState) -> UndoState:
        """Return what is to be undone, where it stands now; what has no place there is undone by hand."""
        moved: UndoState = _replace(kept, {"stack": tuple(map(self._undoable, kept.stack))})
        return moved

    def _undoable(self, entry: Undoable) -> Undoable:
        head, mark, unit = entry.path.partition(f"/{RESULT}")
        new = (self._names.path(head) or head) + mark + unit
        if new == entry.path:
            return entry
        renamed: Undoable = _replace(entry, {"path": new, "was": entry.was or entry.path})
        return renamed

    def _scope(self, path: str) -> str | None:
        place = self._names.place(path)
        return self._names.path(path) if place is not None and place.new is not None else None

    def _find(self, path: str) -> tuple[str, RenamedScope, Node] | None:
        """Return the new path of a node, the flow it is in, and the node as it is now."""
        new = self._names.path(path)
        place = self._names.place(path.rpartition("/")[0])
        if new is None or place is None or place.new is None:
            return None
        i = place.new.index.get(plain_path(new.rpartition("/")[2]))
        return None if i is None else (new, place, place.new.nodes[i])

    def _nodes(self, kept: SerializedState) -> Iterator[tuple[str, NodeState]]:
        for path, node in kept.nodes.items():
            found = self._find(path)
            if found is None:
                continue
            new, place, now = found
            scope, is_item = new.rpartition("/")[0], "#" in new.rpartition("/")[2]
            within = place.children.get(plain_path(path.rpartition("/")[2]), place) if is_item else place
            changes: dict[str, Any] = {
                "reads": self._reads(node.reads, within, new if is_item else scope),
                "round": node.round if is_item else _round(node.round, place),
            }
            if node.stream is not None:
                changes["stream"] = _replace(
                    node.stream, {"reads": self._reads(node.stream.reads, within, new if is_item else scope)}
                )
            if not scope and not is_item:
                changes["key"] = self._key(path, node, place, now)
                if node.units and new != path and not node.began_as:
                    changes["began_as"] = path
            yield new, _replace(node, changes)

    def _key(self, path: str, node: NodeState, place: RenamedScope, now: Node) -> str | None:
        """Return the key of a node of the outermost flow; one inside makes its own with the names kept here.

        What is due may have been tried under its old name; another key would do it to the world twice. Of an
        inner flow nothing need be recorded by then: which of its items have begun, only a dead process knew.
        """
        if path in place.children:
            is_flow = now.inner is not None or now.over is not None
            return names_text(_began_as(path, node, place)) if is_flow and node.is_due else None
        if node.key is None and node.is_due and now.name != path and now.idempotency_key == "auto":
            return automatic_key(self._key_run, path, node.visits + 1)
        return node.key

    def _opened(self, kept: SerializedState) -> Iterator[tuple[str, OpenedState]]:
        for path, visit in kept.opened.items():
            found = self._find(path)
            if found is not None:
                new, place, _ = found
                yield new, _replace(visit, {"reads": self._reads(visit.reads, place, new.rpartition("/")[0])})

    def _tasks(self, kept: SerializedState) -> Iterator[QueuedTask]:
        for task in kept.tasks:
            found = self._find(task.node)
            if found is not None:
                asked_by = found[1].nodes.get(task.asked_by) or task.asked_by
                yield _replace(task, {"node": found[0], "asked_by": asked_by})

    def _reads(self, reads: Mapping[str, int], place: RenamedScope, scope: str) -> dict[str, int]:
        told: dict[str, int] = {}
        for name, version in reads.items():
            new = place.value(name)
            before, after = self._bumps.get(f"{scope}/{new}" if scope else new, (0, 0))
            told[new] = after if version == before else version
        return told


def _began_as(path: str, node: NodeState, place: RenamedScope) -> dict[str, str]:
    """Return the nodes in an inner flow under way that had other names when it began, itself included."""
    before = names_in(node.key)
    names = ((new, before.get(old, old.rpartition("/")[2])) for old, new in place.paths_in(path))
    return {new: name for new, name in names if name != new.rpartition("/")[2]}


def _replace(struct: Any, changes: dict[str, Any]) -> Any:
    return type(struct)(**{name: getattr(struct, name) for name in struct.__struct_fields__} | changes)


def _round(round_: int, place: RenamedScope) -> int:
    """Number a round as the new plan does: rounds, then the gate that began this one."""
    assert place.new is not None
    old, new = len(place.plan.nodes) + 1, len(place.new.nodes) + 1
    rounds, gate = divmod(round_, old)
    if rounds and gate < len(place.plan.nodes):
        name = place.nodes[place.plan.paths[gate]]
        gate = place.new.index.get(name or "", gate)
    return rounds * new + min(gate, new - 1)


# -- what the new plan adds -------------------------------------------------------------------------------


def shown_scopes(state: RunState, names: Renaming) -> Iterator[tuple[Scope, RenamedScope, str]]:
    """Yield the open flows that are kept, each with its like in the old plan, and its path without visits."""
    for scope in state.scopes():
        is_leaf = scope.parent is not None and scope.parent.plan.children[scope.place].is_leaf
        path = plain_path(scope.prefix[:-1])
        if not scope.is_hidden and not is_leaf and path in names.places:
            yield scope, names.places[path], path


def is_fresh(place: RenamedScope, plan: Plan, k: int) -> bool:
    """True for a node that is new, or that is reached in another way than it was."""
    old = place.was.get(plan.paths[k])
    if old is None:
        return True
    i = place.plan.index[old]
    is_led = (place.plan.is_led[i], place.plan.is_target[i]) == (plan.is_led[k], plan.is_target[k])
    return not is_led or differs(place.shape(old), plan.nodes[k].describe())


def differs(old: Mapping[str, Any], new: Mapping[str, Any], *, is_open: bool = False) -> bool:
    """True if two shapes mean something else to a run; what is inside counts only while it is open."""
    apart = {"flow"} if is_open else {"flow", *_INSIDE}
    return _ordered(old, apart) != _ordered(new, apart)


def _ordered(shape: Mapping[str, Any], apart: set[str]) -> dict[str, Any]:
    kept = {key: shape[key] for key in STRUCTURE & shape.keys() if key not in apart}
    return {**kept, "inputs": sorted(map(tuple, shape["inputs"])), "outputs": sorted(shape["outputs"])}


def wake(state: RunState, names: Renaming) -> list[str]:
    """Start what is new and could have started by now; returns the paths of what is due because of it."""
    started: list[str] = []
    for scope, place, path in list(shown_scopes(state, names)):
        plan = scope.plan
        for k in range(len(plan.nodes)):
            if scope.visits[k] or k in scope.waiting or k in scope.opened or not is_fresh(place, plan, k):
                continue
            is_driven = plan.is_target[k] or plan.is_led[k]
            if k in scope.due:
                if scope.missing[k] and not is_driven and k not in scope.queue:
                    del scope.due[k]
                    scope.active &= ~(1 << k)
                continue
            if (f"{path}/" if path else "") + plan.paths[k] in names.skipped:
                continue
            is_entry = k in plan.entry and plan.is_target[k] and plan.paths[k] not in place.was
            if is_entry:
                scope.chosen[k] += 1
            if is_entry or not (is_driven or scope.missing[k]):
                activate(scope, k, 0)
                if k in scope.due:
                    started.append(scope.path_of(k))
    return started
