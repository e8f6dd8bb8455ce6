"""What an undo is called with: what the step that it undoes read and wrote, as its records have it. Apart, as
it reads the past of a run.
"""

from __future__ import annotations

from typing import Any

from everstep.codec.tags import Unreadable
from everstep.errors import UndoUnknown, ValueUnreadable
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.graph.check.undoing import taken_by_undo
from everstep.model.address import plain_of
from everstep.model.durability import BLOB_THRESHOLD
from everstep.model.enums import Status
from everstep.model.records import RESULT, UNDONE_BY, StepRecord, Undoable, unit_of
from everstep.runtime.drive.apply import TASK, Lists
from everstep.runtime.drive.units.undone import RETURNED, node_of_call
from everstep.runtime.drive.values import ValueSpace, slot_of
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Version
from everstep.runtime.services import Services
from everstep.runtime.travel.recall import recall


def undone_node(flow: Flow, entry: Undoable) -> Node:
    """Return the node that a step on the stack is of. Raises if the flow says no more how to undo it."""
    plan, node = flow.plan, None
    for name in plain_of(entry.path).split("/"):
        i = plan.index.get(name)
        if i is None:
            node = None
            break
        node = plan.nodes[i]
        child = plan.children.get(i)
        if child is not None:
            plan = child.plan
            if child.is_leaf:
                node = plan.nodes[0]
    if node is None or node.undo is None:
        raise UndoUnknown(
            f"flow {flow.name!r} does not say any more how {entry.address!r} is undone; it was {entry.by!r}.",
            fix="Undo it by hand, or bring the code back that knows it, and try again.",
        )
    return node


async def undo_of(
    runs: RunReader, services: Services, flow: Flow, run_id: str, entry: Undoable
) -> tuple[Node, dict[str, Any]]:
    """Return what undoes a step, and what it is called with."""
    if unit_of(entry.path) is not None:
        node = node_of_call(flow, entry.path, entry.by)
        return node, await _of_call(runs, services, run_id, entry, node)
    undone = undone_node(flow, entry)
    assert undone.undo is not None
    return undone.undo, await arguments_of_undo(runs, run_id, entry, undone)


async def _of_call(
    runs: RunReader, services: Services, run_id: str, entry: Undoable, node: Node
) -> dict[str, Any]:
    """Return what was kept for the undo of a durable call, and what that has returned."""
    row, sequence = await runs.find(run_id, entry.sequence)
    _, opened = await runs.lineage.read(row, sequence)
    space, payloads = ValueSpace(services.values, services.blobs, BLOB_THRESHOLD), iter(opened.payloads)
    for step in opened.record.steps:
        for write in step.writes:
            payload = next(payloads) if write.is_inline else None
            if _is_it(step, entry):
                space.place("", write.name, slot_of(write, payload))
    given: dict[str, Any] = dict(space.peek(UNDONE_BY))
    if any(p.name == RETURNED for p in node.params):
        given[RETURNED] = space.peek(RESULT)
    return given


async def arguments_of_undo(runs: RunReader, run_id: str, entry: Undoable, node: Node) -> dict[str, Any]:
    """Return what the undo of a node is called with for one step."""
    taken = taken_by_undo(node)
    if not taken:
        return {}
    row, sequence = await runs.find(run_id, entry.sequence)
    _, opened = await runs.lineage.read(row, sequence)
    steps = opened.record.steps
    k = next(k for k, step in enumerate(steps) if _is_it(step, entry))
    wanted: dict[str, Version] = {}
    for name, source in taken.items():
        version = _version(steps[k], name, source.name, is_output=source.is_output)
        if version is not None:
            wanted[name] = version
    found = await recall(runs, f"{run_id}@{sequence}", list(wanted.values()))
    given = {name: found[version] for name, version in wanted.items()}
    if "#" in entry.recorded.rpartition("/")[2] and node.inner is not None:
        given |= await _of_item(runs, run_id, entry, k, node)
    for p in node.undo.params if node.undo is not None else ():
        if p.required and p.name in taken and p.name not in given:
            raise ValueUnreadable(
                f"what undoes {entry.address!r} needs {p.name!r}, which its records do not have.",
                fix="It may have come from the channel, whose past is not kept. Undo it by hand.",
            )
    for name, value in given.items():
        if isinstance(value, Unreadable):
            raise ValueUnreadable(
                f"what undoes {entry.address!r} needs {name!r}, which cannot be read: {value.why}",
                fix="Import the module of its class or give its key, and try again; or undo it by hand.",
            )
    return given


def _is_it(step: StepRecord, entry: Undoable) -> bool:
    return (step.path, step.visit, step.status) == (entry.recorded, entry.visit, Status.COMPLETED)


def _version(step: StepRecord, name: str, recorded: str, *, is_output: bool) -> Version | None:
    """Return which version of which value a step wrote, or read; none if it did not."""
    if is_output:
        versions = {w.name: w.version for w in step.writes}
        return (step.whole_name(recorded), versions[recorded]) if recorded in versions else None
    if recorded in step.reads:
        return step.whole_name(recorded), step.reads[recorded]
    return None if step.task is None else (f"{TASK}{step.task}/{name}", 1)


async def _of_item(runs: RunReader, run_id: str, entry: Undoable, k: int, node: Node) -> dict[str, Any]:
    """Return the same for an item that is a flow: what it began with, and what its nodes wrote last."""
    folded = await runs.look_back(run_id, entry.sequence - 1)
    row, sequence = await runs.find(run_id, entry.sequence)
    _, opened = await runs.lineage.read(row, sequence)
    folded.approach(opened, k)
    state, space = folded.state, folded.space
    scope, i, item = state.locate(entry.recorded)
    assert item is not None
    prefix = scope.opened[i].prefix_of(item)
    inside = state.scope_at(entry.recorded)
    Lists(space).fill(inside)
    area = space.area(prefix)
    given: dict[str, Any] = {}
    inner_of = {outer: inner for inner, outer in node.exports.items()}
    for name, source in taken_by_undo(node).items():
        local = inner_of[source.name] if source.is_output else name
        if local in area:
            given[name] = space.peek(local, prefix)
    return given
