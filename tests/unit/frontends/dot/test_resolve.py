"""A DOT text to nodes and edges: which attributes hold where, and what they are read as."""

from __future__ import annotations

from datetime import timedelta

import pytest

from everstep.errors import DotError
from everstep.frontends.dot.resolve import Digraph, class_of, read
from tests.unit.frontends.dot.dot_texts import FOLDER, problems_of


def plain(graph: Digraph) -> dict[str, dict[str, str]]:
    return {name: node.attributes.plain() for name, node in graph.nodes.items()}


def edges(graph: Digraph) -> list[tuple[str, str]]:
    return [(edge.tail, edge.head) for edge in graph.edges]


def sample(name: str) -> Digraph:
    file = FOLDER / f"{name}.dot"
    return read(file.read_bytes(), file.name)


def test_nodes_and_edges_come_in_the_order_of_declaration() -> None:
    graph = read("digraph { z -> y; a; y -> a -> z }")
    assert list(graph.nodes) == ["z", "y", "a"]
    assert edges(graph) == [("z", "y"), ("y", "a"), ("a", "z")]


def test_defaults_hold_for_nodes_that_are_new_after_them() -> None:
    graph = read("digraph { a; node [x=1]; b; a [y=2]; node [x=3]; c; d [x=4] }")
    assert plain(graph) == {"a": {"y": "2"}, "b": {"x": "1"}, "c": {"x": "3"}, "d": {"x": "4"}}


def test_defaults_of_a_subgraph_end_with_it() -> None:
    graph = read(
        "digraph { node [x=1]; subgraph s { node [x=2 y=2]; a }; b; subgraph s { c }; subgraph t { a d } }"
    )
    inner, outer = {"x": "2", "y": "2"}, {"x": "1"}
    assert plain(graph) == {"a": inner, "b": outer, "c": inner, "d": outer}


def test_defaults_of_edges_hold_where_the_edge_is_written() -> None:
    graph = read("digraph { a -> b; edge [w=1]; { edge [w=2]; b -> c } ; c -> d [v=3] }")
    assert [edge.attributes.plain() for edge in graph.edges] == [{}, {"w": "2"}, {"w": "1", "v": "3"}]


def test_attributes_of_a_chain_hold_for_each_of_its_edges() -> None:
    graph = read("digraph { {a b} -> c -> {d, e} [w=1] }")
    assert edges(graph) == [("a", "c"), ("b", "c"), ("c", "d"), ("c", "e")]
    assert all(edge.attributes.integer("w", 0) == 1 for edge in graph.edges)


def test_a_subgraph_as_an_end_stands_for_all_its_nodes() -> None:
    graph = read("digraph { subgraph s { a -> b }; subgraph s { { c } } -> d }")
    assert edges(graph) == [("a", "b"), ("a", "d"), ("b", "d"), ("c", "d")]


def test_edges_are_joined_in_a_strict_graph_and_by_their_key() -> None:
    text = "digraph { a -> b [x=1]; a -> b [y=2]; a -> c [key=k]; a -> c [key=k z=3] }"
    assert edges(read(text)) == [("a", "b"), ("a", "b"), ("a", "c")]
    strict = read("strict " + text)
    assert edges(strict) == [("a", "b"), ("a", "c")]
    assert strict.edges[0].attributes.plain() == {"x": "1", "y": "2"}


def test_ports_are_kept() -> None:
    [edge] = read("digraph { a:out -> b:in:n }").edges
    assert (edge.tail_port, edge.head_port) == ("out", "in:n")


def test_a_node_says_where_it_was_first_named_and_where_declared() -> None:
    graph = read("digraph {\n a -> b\n b [x=1]\n}")
    a, b = graph.nodes["a"], graph.nodes["b"]
    assert (graph.place(a), a.declared_at) == ((2, 2), None)
    assert graph.place(b) == (2, 7)
    assert b.declared_at is not None
    assert graph.source.place(b.declared_at) == (3, 2)
    assert b.attributes.place("x") == (3, 5)
    assert graph.place(graph.edges[0]) == (2, 4)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("Loop A", "loop-a"),
        ("Careful (new) Reviews!", "careful-new-reviews"),
        ("a_b", "ab"),
        ("", ""),
        ("Über", "über"),
    ],
)
def test_the_label_of_a_subgraph_is_a_class(label: str, name: str) -> None:
    assert class_of(label) == name


def test_a_node_has_the_classes_it_lists_and_those_of_its_subgraphs() -> None:
    graph = read(
        'digraph { label="Not A Class"; subgraph { label="Outer Part"; a [class="code, critical code"];'
        ' subgraph { graph [label="Inner"]; b } }; c [class="x y"] }'
    )
    assert {name: node.classes for name, node in graph.nodes.items()} == {
        "a": ("code", "critical", "outer-part"),
        "b": ("outer-part", "inner"),
        "c": ("x", "y"),
    }
    outer, inner = graph.groups
    assert (outer.class_, outer.nodes, outer.parent) == ("outer-part", ("a", "b"), None)
    assert (inner.class_, inner.nodes, inner.parent) == ("inner", ("b",), 0)


def test_attributes_are_read_as_what_is_asked_for() -> None:
    text = 's="two\\nlines" i=3 j="-4" f=0.5 g=".5" yes=true no="FALSE" ms=250ms m=15m n=30 h="2h" word=box'
    found = read(f"digraph {{ a [{text}] }}").nodes["a"].attributes
    assert found.text("s", "") == "two\nlines"
    assert [found.integer("i", 0), found.integer("j", 0), found.integer("none", 7)] == [3, -4, 7]
    assert [found.number("f", 0.0), found.number("g", 0.0), found.number("i", 0.0)] == [0.5, 0.5, 3.0]
    assert [found.flag("yes", False), found.flag("no", True), found.flag("none", None)] == [True, False, None]
    assert found.duration("ms", None) == timedelta(milliseconds=250)
    assert found.duration("m", None) == timedelta(minutes=15)
    assert found.duration("n", None) == timedelta(seconds=30)
    assert found.duration("h", None) == timedelta(hours=2)
    assert found.word("word", "", among=["box", "house"]) == "box"


@pytest.mark.parametrize(
    ("read_as", "value", "said"),
    [
        ("integer", "1.5", "which is not a whole number. Write `x=3`."),
        ("integer", "many", "which is not a whole number."),
        ("number", '"1,5"', "which is not a number."),
        ("number", '"1e9999"', "which is not a number."),
        ("flag", "1", "which is not true or false."),
        ("duration", '"15 parsecs"', "which is not a span of time. Write a number and one of ms, s, m, h, d"),
        ("duration", '"-5s"', "which is not a span of time."),
        ("word", '"two words"', "which is not a word."),
    ],
)
def test_a_value_of_another_type_is_an_error_at_its_place(read_as: str, value: str, said: str) -> None:
    graph = read(f"digraph {{\n  a [x={value}]\n}}", "a.dot")
    with pytest.raises(DotError) as caught:
        getattr(graph.nodes["a"].attributes, read_as)("x", None)
    assert f"a.dot:2:8: x is {value.strip(chr(34))!r}, {said}" in str(caught.value)
    problems = problems_of(caught.value)
    assert problems[0]["code"] == "dot.value"


def test_a_word_that_is_not_among_those_known_names_them() -> None:
    attributes = read("digraph { a [join=some] }").nodes["a"].attributes
    with pytest.raises(DotError, match="Write one of: wait_all, quorum"):
        attributes.word("join", "", among=["wait_all", "quorum"])


def test_the_sample_of_the_long_dialect_is_read() -> None:
    graph = sample("review_long")
    assert (graph.name, graph.attributes.text("title", "")) == ("code_review", "Code review")
    assert len(graph.nodes) == 11
    assert edges(graph)[:4] == [
        ("split", "security"),
        ("split", "style"),
        ("security", "meet"),
        ("style", "meet"),
    ]
    security = graph.nodes["security"]
    assert security.classes == ("careful", "careful-reviews")
    assert security.attributes.flag("goal_gate", False)
    assert security.attributes.integer("max_retries", 0) == 2
    assert not graph.nodes["meet"].attributes.flag("goal_gate", True)
    assert graph.nodes["style"].attributes.text("goal", "") == 'Look for "clever" code'
    assert graph.nodes["write"].attributes.duration("timeout", None) == timedelta(minutes=15)


def test_the_sample_of_the_short_dialect_is_read() -> None:
    graph = sample("build_short")
    implement = graph.nodes["implement"]
    assert implement.classes == ("code", "critical", "loop-a")
    assert implement.attributes.text("prompt", "") == "Do what the plan says, and no more."
    assert implement.attributes.duration("timeout", None) == timedelta(minutes=15)
    assert graph.nodes["validate"].attributes.text("prompt", "") == "Check <b>everything</b>"
    assert graph.nodes["gate"].attributes.text("human.default_choice", "") == "hold"
    assert graph.nodes["watch"].attributes.duration("manager.poll_interval", None) == timedelta(seconds=45)
    assert [edge.head_port for edge in graph.edges if edge.head == "lint"] == ["in:n"]
    assert all("weight" in edge.attributes for edge in graph.edges)
