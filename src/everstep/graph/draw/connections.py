"""What leads from one node of a flow to another, and what its nodes wait for: values, choices, edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from everstep.graph.author.node import END, Gate, IfElse
from everstep.graph.compile.plan import Plan

EdgeKind = Literal["value", "order", "choice"]

ENDS: Final = -1
"""Stands for the end of a flow where nodes have numbers."""


class Edge(msgspec.Struct):
    """What leads from one node to another."""

    kind: EdgeKind
    labels: dict[str, None]
    """The names of its values, or what a gate chooses by it."""
    is_back: bool = False


def edges_within(plan: Plan) -> dict[tuple[int, int], Edge]:
    """Return what leads from one node of a flow to another, or with `ENDS` to its end."""
    found: dict[tuple[int, int], Edge] = {}

    def add(u: int, v: int, kind: EdgeKind, label: str) -> None:
        edge = found.get((u, v))
        if edge is None:
            found[u, v] = Edge(kind, {label: None} if label else {})
            return
        if kind == "choice" and edge.kind != "choice":
            edge.kind, edge.labels = kind, {}
        if label and (kind == edge.kind or edge.kind == "order"):
            edge.labels[label] = None
        if kind == "value" and edge.kind == "order":
            edge.kind = kind

    for u, gate in enumerate(plan.nodes):
        if isinstance(gate, Gate):
            for k, target in enumerate(gate.targets):
                label = ("true", "false")[k] if isinstance(gate, IfElse) else target
                add(u, ENDS if target == END else plan.index[target], "choice", label)
    for name, writers in plan.writers.items():
        for u in writers:
            for v in plan.readers.get(name, ()):
                add(u, v, "value", name)
    for u, targets in plan.follows.items():
        for v in targets:
            add(u, v, "order", "")
    for (u, v), edge in found.items():
        edge.is_back = v != ENDS and not plan.blockers[v] >> u & 1
    return found


def first_nodes(plan: Plan, edges: Mapping[tuple[int, int], Edge]) -> set[int]:
    """Return the nodes with which a flow begins: nothing in it leads on to them."""
    led = {v for (u, v), edge in edges.items() if not edge.is_back and u != v}
    return {i for i in range(len(plan.nodes)) if i not in led and i not in plan.tasks}
