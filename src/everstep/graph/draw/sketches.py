"""A flow as a digraph in DOT: its steps by path, and what leads where."""

from __future__ import annotations

from collections.abc import Mapping

from everstep.graph.author.node import Gate
from everstep.graph.compile.leaves import Leaf, Leaves
from everstep.graph.compile.plan import Plan
from everstep.graph.draw.graphviz import Scalar, Sketch, SketchEdge, SketchGroup, SketchNode, to_text


def ids_of(leaves: Leaves) -> list[str]:
    """Return the id of each leaf: its path, or its number if DOT has no way to write that."""
    return [leaf.path if "\\" not in leaf.path else f"n{k}" for k, leaf in enumerate(leaves.nodes)]


def shape_of(leaf: Leaf) -> str:
    """Return what a step is drawn as."""
    if leaf.is_join:
        return "invhouse"
    if isinstance(leaf.node, Gate):
        return "diamond"
    return "house" if leaf.node.halts else "box"


def sketch_of_plan(name: str, plan: Plan) -> Sketch:
    """Return the steps of a flow, each in the box of the flow it is in, and every edge between them."""
    leaves = Leaves(plan)
    ids = ids_of(leaves)
    nodes = tuple(SketchNode(id_, _said(leaf, id_)) for id_, leaf in zip(ids, leaves.nodes, strict=True))
    inside: dict[str, list[str]] = {}
    for id_, leaf in zip(ids, leaves.nodes, strict=True):
        outer, slash, _ = leaf.path.partition("/")
        if slash:
            inside.setdefault(outer, []).append(id_)
    groups = (
        SketchGroup(f"cluster_{k}", tuple(members), {"label": outer})
        for k, (outer, members) in enumerate(inside.items(), 1)
    )
    return Sketch(name, nodes, edges_of(leaves, ids), tuple(groups), node_defaults={"shape": "box"})


def plan_to_dot(name: str, plan: Plan) -> str:
    """Return a flow as DOT text."""
    return to_text(sketch_of_plan(name, plan))


def edges_of(leaves: Leaves, ids: list[str]) -> tuple[SketchEdge, ...]:
    """Return what leads where."""
    return tuple(SketchEdge(ids[u], ids[v]) for u, v in leaves.edges())


def _said(leaf: Leaf, id_: str) -> Mapping[str, Scalar]:
    said: dict[str, Scalar] = {}
    if shape_of(leaf) != "box":
        said["shape"] = shape_of(leaf)
    if id_ != leaf.path:
        said["label"] = leaf.path
    return said
