"""What is wrong with how nodes are undone. Apart from the structure, as few flows have any."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.graph.author.node import Node
from everstep.graph.author.undo import KEY, name_of_undo, taken_by_undo, unknown_to_undo
from everstep.graph.check.diagnostics import Diagnostic, Severity
from everstep.graph.compile.plan import Plan, may_be_transient


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
            elif not taken.is_output and taken.name in plan.channelled[i]:
                fix = "Let a node write it, or return what the undo needs."
                yield _error(n, f"{asks} may come from the channel, whose past is not kept.", fix)


def _is_lost(n: Node, output: str) -> bool:
    if n.inner is None:
        return n.may_be_transient
    return any(may_be_transient(n.inner, inner) for inner, outer in n.exports.items() if outer == output)


def _error(n: Node, message: str, fix: str) -> Diagnostic:
    return Diagnostic("flow.undo_input", Severity.ERROR, n.name, None, message, fix)
