"""What an undo is called with, and what it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from everstep.graph.author.node import Node
from everstep.graph.ir.names import home_of

KEY = "idempotency_key"
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
