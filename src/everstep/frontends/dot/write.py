"""A pipeline that was read, as text again."""

from __future__ import annotations

from everstep.frontends.dot.resolve import Digraph
from everstep.graph.draw.graphviz import Sketch, SketchEdge, SketchGroup, SketchNode


def sketch_of(digraph: Digraph) -> Sketch:
    """Return a pipeline that was read as data to be written; its defaults are in its nodes and edges."""
    return Sketch(
        digraph.name,
        tuple(SketchNode(node.id, node.attributes.plain()) for node in digraph.nodes.values()),
        tuple(SketchEdge(edge.tail, edge.head, edge.attributes.plain()) for edge in digraph.edges),
        tuple(SketchGroup(group.name, group.nodes, group.attributes.plain()) for group in digraph.groups),
        digraph.attributes.plain(),
    )
