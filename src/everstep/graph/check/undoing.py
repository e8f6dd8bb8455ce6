"""How nodes are undone: what an undo is called with, and what is wrong if it asks for what it cannot have.

Apart from the structure, as few flows have any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from everstep.graph.author.node import Node
from everstep.graph.check.diagnostics import Diagnostic, Severity
from everstep.graph.compile.loops import reachable
from everstep.graph.compile.plan import Plan, may_be_transient
from everstep.graph.ir.names import home_of
from everstep.model.enums import Mode

KEY: Final = "idempotency_key"
"""What an undo calls its own key, if it has a parameter for that."""


class Taken(NamedTuple):
    """Where a parameter of an undo comes from."""

    is_output: bool
    """True for what the undone step wrote, false for what it read."""
    name: str
    """What the step's record calls it."""


def name_of_undo(undo: Node) -> str:
    """Return what records call the function that undoes a step: `module:name`."""
    return undo.identifier or ":".join(home_of(undo.fn))


def outputs_for_undo(node: Node) -> Mapping[str, str]:
    """Return what an undo may ask for of what a step writes: its names for that, with those of the record."""
    if node.inner is not None:
        return node.exports
    return dict(zip(node.undo_outputs, node.outputs, strict=False))


def taken_by_undo(node: Node) -> dict[str, Taken]:
    """Return where each parameter of an undo comes from; what a step writes goes before what it reads."""
    known = {p.name: Taken(False, p.source) for p in node.params}
    known |= {said: Taken(True, now) for said, now in outputs_for_undo(node).items()}
    assert node.undo is not None
    return {p.name: known[p.name] for p in node.undo.params if p.name in known}


def unknown_to_undo(node: Node) -> Iterator[str]:
    """Yield the parameters of a node's undo that nothing can fill."""
    assert node.undo is not None
    known = taken_by_undo(node)
    yield from (p.name for p in node.undo.params if p.required and p.name not in known and p.name != KEY)


def undo_problems(plan: Plan) -> Iterator[Diagnostic]:
    """Yield what an undo asks for and cannot have: it runs later, perhaps in another process."""
    for i, n in enumerate(plan.nodes):
        if n.undo is None:
            continue
        what = f"{name_of_undo(n.undo)!r}, which undoes {n.name!r},"
        for odd in n.undo.oddities:
            yield _error(n, f"{what} takes {odd!r}, which cannot be filled by name.", "Use plain parameters.")
        for name in unknown_to_undo(n):
            known = sorted({*(p.name for p in n.params), *n.undo_outputs, *n.exports, KEY})
            fix = f"It can have {', '.join(known)}."
            yield _error(n, f"{what} asks for {name!r}, which {n.name!r} neither reads nor writes.", fix)
        for name, taken in taken_by_undo(n).items():
            asks = f"{what} asks for {name!r}, which"
            if taken.is_output and _is_lost(n, taken.name):
                yield _error(n, f"{asks} is not kept.", "Drop persist='no', or do without it.")
            elif not taken.is_output and may_be_transient(plan, taken.name):
                yield _error(n, f"{asks} is not kept.", "Drop persist='no' where it is written.")
            elif not taken.is_output and taken.name in plan.channelled[i] and taken.name in plan.keys:
                fix = "Let a node write it, or return what the undo needs."
                yield _error(n, f"{asks} may come from the channel, whose past is not kept.", fix)


def undo_findings(plan: Plan, mode: Mode, hidden: Collection[str]) -> Iterator[Diagnostic]:
    """Yield what is odd about a flow of which some nodes say how they are undone, and not others."""
    undone = [path for path, n in plan.deep if n.undo is not None]
    if mode is Mode.OFF:
        message = f"{', '.join(undone)} can be undone, and with durability off nothing is kept to undo by."
        fix = "Use durability 'partial' or 'strong', or drop undo=."
        yield Diagnostic("flow.undo_unkept", Severity.ERROR, undone[0], None, message, fix)
        return
    for path, n in plan.deep:
        is_in_one = path in hidden or any(path.startswith(f"{outer}/") for outer in undone)
        if n.undo is not None or n.is_built_in or is_in_one or not n.acts_in_call or _is_last(plan, path):
            continue
        message = f"{path!r} is effectful and has no undo: a run that is undone leaves it as it is."
        fix = (
            "Say how with undo=. If nothing has to be undone there, do so with a function that does nothing."
        )
        yield Diagnostic("flow.not_undone", Severity.WARNING, path, None, message, fix)


def _is_last(plan: Plan, path: str) -> bool:
    """True for a node of the flow itself that all others come before: if it is done, so is the run."""
    i = plan.index.get(path)
    others = range(len(plan.nodes))
    return i is not None and all(k == i or i in reachable(plan.graph, k) for k in others)


def _is_lost(n: Node, output: str) -> bool:
    if n.inner is None:
        return n.may_be_transient
    return any(may_be_transient(n.inner, inner) for inner, outer in n.exports.items() if outer == output)


def _error(n: Node, message: str, fix: str) -> Diagnostic:
    return Diagnostic("flow.undo_input", Severity.ERROR, n.name, None, message, fix)
