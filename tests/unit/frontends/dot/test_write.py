"""Nodes and edges to DOT text: it reads back as it was, here and in Graphviz."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pygraphviz  # type: ignore[import-untyped]  # it has no stubs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import BadRequest
from everstep.frontends.dot.resolve import read
from everstep.frontends.pipelines.building import sketch_of
from everstep.graph.draw.graphviz import (
    Sketch,
    SketchEdge,
    SketchGroup,
    SketchNode,
    spelled_id,
    to_text,
)
from tests.unit.frontends.dot.dot_texts import FILES

texts = st.text(max_size=12) | st.sampled_from(
    ["node", "GRAPH", "1.5", "1a", "a.b", "-", 'say "x"', "C:\\new\n", "<b>"]
)
names = st.text(st.characters(exclude_characters="\\"), min_size=1, max_size=8) | st.sampled_from(
    ["node", "1", "a b"]
)
keys = st.sampled_from(["label", "human.default_choice", "edge", "two words", "x1"])
attributes = st.dictionaries(keys, texts, max_size=3)


@st.composite
def sketches(draw: st.DrawFn) -> Sketch:
    ids = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    ends = st.sampled_from(ids)
    groups = draw(st.lists(names, max_size=2, unique=True))
    return Sketch(
        draw(texts.filter(lambda text: "\\" not in text)),
        tuple(SketchNode(id_, draw(attributes)) for id_ in ids),
        tuple(draw(st.lists(st.builds(SketchEdge, ends, ends, attributes), max_size=5))),
        tuple(
            SketchGroup(name, tuple(id_ for id_ in ids if draw(st.booleans())), draw(attributes))
            for name in groups
        ),
        draw(attributes),
    )


@settings(max_examples=150, deadline=None)
@given(sketches())
def test_what_is_written_reads_back_as_it_was(sketch: Sketch) -> None:
    assert sketch_of(read(to_text(sketch))) == sketch


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_that_was_read_and_written_says_the_same(file) -> None:
    once = sketch_of(read(file.read_bytes()))
    assert sketch_of(read(to_text(once))) == once


def test_graphviz_reads_what_is_written() -> None:
    nodes = ("a", "two words", 'say "x"', "node", "-1.5", "ü")
    sketch = Sketch(
        "my flow",
        tuple(
            SketchNode(id_, {"label": f"<{id_}>\n\\ done", "stack.child": timedelta(minutes=2)})
            for id_ in nodes
        ),
        tuple(SketchEdge(tail, head) for tail, head in pairwise(nodes)),
    )
    graph = pygraphviz.AGraph(string=to_text(sketch))
    assert sorted(map(str, graph.nodes())) == sorted(nodes)
    assert sorted((str(t), str(h)) for t, h in graph.edges()) == sorted(
        (e.tail, e.head) for e in sketch.edges
    )


def test_values_are_written_as_they_are_read() -> None:
    sketch = Sketch(
        "g",
        (
            SketchNode(
                "a", {"i": 3, "f": 0.5, "tiny": 1e-9, "yes": True, "s": "x y", "t": timedelta(minutes=90)}
            ),
        ),
        node_defaults={"shape": "box"},
        edge_defaults={"weight": 2},
    )
    text = to_text(sketch)
    assert '  a [i=3, f=0.5, tiny="1e-09", yes=true, s="x y", t="1h 30m"];' in text.splitlines()
    assert "  node [shape=box];" in text.splitlines()
    found = read(text).nodes["a"].attributes
    assert (found.integer("i", 0), found.number("f", 0.0), found.flag("yes", False)) == (3, 0.5, True)
    assert (found.number("tiny", 0.0), found.duration("t", None)) == (1e-9, timedelta(minutes=90))
    assert found.text("shape", "") == "box"


@pytest.mark.parametrize("id_", ["ends in \\", 'a\\"b', "a\\\nb"])
def test_an_id_that_dot_cannot_say_is_refused(id_: str) -> None:
    with pytest.raises(BadRequest, match="cannot be an id"):
        spelled_id(id_)
