"""The reader of DOT against Graphviz, against noise, and against size."""

from __future__ import annotations

import random
import time

import pydot
import pygraphviz  # type: ignore[import-untyped]  # it has no stubs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep.errors import DotError
from everstep.frontends.dot.conditions import parse_condition
from everstep.frontends.dot.parser import parse
from everstep.frontends.dot.resolve import read
from everstep.frontends.dot.source import MOST_SAID, Limits
from everstep.frontends.dot.stylesheet import parse_stylesheet
from tests.unit.codec.fuzzing import IS_SOAK
from tests.unit.frontends.dot.dot_texts import FILES, KEYS, digraphs, pipeline, problems_of


def in_graphviz(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    graph = pygraphviz.AGraph(string=text)
    return sorted(map(str, graph.nodes())), sorted((str(t), str(h)) for t, h in graph.edges())


def in_everstep(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    graph = read(text)
    return sorted(graph.nodes), sorted((edge.tail, edge.head) for edge in graph.edges)


def positioned(text: str | bytes) -> None:
    """Read it; if that fails, every problem must say where in the text, and with what to fix it."""
    try:
        read(text, "noise.dot")
    except DotError as error:
        problems = problems_of(error)
        assert 1 <= len(problems) <= MOST_SAID
        lines = (text if isinstance(text, str) else text.decode("utf-8", "replace")).count("\n") + 1
        for problem in problems:
            assert problem["code"].startswith("dot.")
            assert problem["line"] >= 1
            assert problem["column"] >= 1
            assert problem["fix"]
            assert "^" in problem["excerpt"]
            if isinstance(text, str) and "\r" not in text:
                assert problem["line"] <= lines


@settings(max_examples=120 if IS_SOAK else 40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(digraphs())
def test_nodes_and_edges_are_those_of_graphviz(text: str) -> None:
    assert in_everstep(text) == in_graphviz(text)


@settings(max_examples=80 if IS_SOAK else 26, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(digraphs())
def test_attributes_of_nodes_and_their_defaults_are_those_of_graphviz(text: str) -> None:
    ours, theirs = read(text), pygraphviz.AGraph(string=text)
    for name, node in ours.nodes.items():
        found = {key: node.attributes[key].text for key in KEYS if key in node.attributes}
        given = {key: theirs.get_node(name).attr[key] or "" for key in KEYS}
        assert {key: found.get(key, "") for key in KEYS} == given


def test_a_large_pipeline_has_the_nodes_and_edges_of_graphviz() -> None:
    text = pipeline(300)
    assert in_everstep(text) == in_graphviz(text)


@settings(max_examples=150 if IS_SOAK else 50, deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=60))
def test_noise_is_an_error_with_a_place(text: str | bytes) -> None:
    positioned(text)


@settings(max_examples=150 if IS_SOAK else 50, deadline=None)
@given(
    st.lists(
        st.sampled_from([*'{}[]()<>;:,=+"\\/*#-.\n\r\t @', "a", "1", "->", "--", "node", "graph"]),
        max_size=25,
    )
)
def test_noise_of_its_own_signs_is_an_error_with_a_place(signs: list[str]) -> None:
    positioned("digraph {" + "".join(signs))
    positioned("".join(signs))


@settings(max_examples=300 if IS_SOAK else 100, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *("strict", "digraph", "graph", "subgraph", "node", '"a"', "+", "x", "1", "2.5x", "<b>"),
                *("{", "}", "[", "]", "=", ":", ",", ";", "->", "--", "a.b", "é", "\ud800", "@"),
            ]
        ),
        max_size=12,
    ).map(" ".join)
)
def test_noise_of_whole_words_is_an_error_with_a_place(words: str) -> None:
    positioned(words)
    positioned(f"digraph {words}")
    positioned("digraph { " + words)


@pytest.mark.parametrize("name", ['"a" + x', '"a" +', '"a" + 1', '"a" + "b" + <c>'])
def test_a_name_that_cannot_be_read_is_told_of_together_with_what_is_wrong_inside(name: str) -> None:
    with pytest.raises(DotError, match="expected a string after `\\+`") as caught:
        read(f"digraph {name} {{ a -- b }}")
    assert [problem["code"] for problem in problems_of(caught.value)] == ["dot.syntax", "dot.undirected"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_damaged_file_is_read_or_is_an_error_with_a_place(file) -> None:
    text = file.read_text("utf-8")
    chance = random.Random(file.stem)
    for _ in range(60):
        damaged = list(text)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(damaged))
            match chance.randrange(4):
                case 0:
                    del damaged[at]
                case 1:
                    damaged[at] = chance.choice('{}[]"<>;=->\\\0é')
                case 2:
                    damaged.insert(at, chance.choice('{}[]"<>;=->\\\0é'))
                case _:
                    del damaged[at : at + chance.randrange(80)]
        positioned("".join(damaged))


@settings(max_examples=150 if IS_SOAK else 50, deadline=None)
@given(
    st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            ["a", "context.x", "==", "!=", "=", "&&", "AND", "NOT", "(", ")", "[", "'s'", "1", "IN", ","]
        ),
        max_size=12,
    ).map(" ".join)
)
def test_noise_as_a_condition_or_a_style_sheet_is_an_error_with_a_place(text: str) -> None:
    for reader in (parse_condition, parse_stylesheet):
        try:
            reader(text)
        except DotError as error:
            problems = problems_of(error)
            assert all(problem["line"] >= 1 and problem["column"] >= 1 for problem in problems)


def seconds(text: str) -> float:
    best = float("inf")
    for _ in range(2):
        began = time.process_time()
        read(text)
        best = min(best, time.process_time() - began)
    return best


def test_four_times_the_nodes_take_about_four_times_as_long() -> None:
    assert seconds(pipeline(10_000)) < 9 * seconds(pipeline(2_500))  # a square would take sixteen times


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pyparsing, in pydot
def test_reading_is_twenty_times_faster_than_with_pydot() -> None:
    text = pipeline(100)
    assert pydot.graph_from_dot_data("digraph {}")  # loads its grammar
    began = time.process_time()
    assert pydot.graph_from_dot_data(text)
    assert time.process_time() - began > 20 * seconds(text)


@pytest.mark.parametrize("unit", ["x", '\\"', "\\\\", "line\\n", "é"])
def test_a_prompt_of_ten_megabytes_is_read(unit: str) -> None:
    raw = unit * (10_000_000 // len(unit))
    graph = read(f'digraph {{ a [prompt="{raw}"] }}')
    meant = {'\\"': '"', "\\\\": "\\", "line\\n": "line\n"}.get(unit, unit)
    assert graph.nodes["a"].attributes.text("prompt", "") == meant * (10_000_000 // len(unit))


@pytest.mark.parametrize(
    "text",
    [
        "digraph " + "{" * 1_000,
        "digraph { a -> " + "{" * 1_000,
        "digraph {" + "{" * 300 + "}" * 301,
        "digraph {" + " -> ".join(["{" + " ".join(f"n{i}" for i in range(2_000)) + "}"] * 2) + "}",
        "digraph {" + "".join(f"node [k{i}=1]; n{i};" for i in range(700)) + "}",
        "digraph {" + "{" * 150 + " ".join(f"n{i}" for i in range(2_000)) + "}" * 151,
    ],
    ids=[
        "braces",
        "braces after an arrow",
        "closed braces",
        "all to all",
        "ever more defaults",
        "deep members",
    ],
)
def test_what_would_grow_without_bound_is_refused(text: str) -> None:
    with pytest.raises(DotError) as caught:
        read(text, limits=Limits(entries=200_000))
    problems = problems_of(caught.value)
    assert [problem["code"] for problem in problems] == ["dot.limit"]


def test_limits_can_be_set() -> None:
    text = "digraph { a -> b -> c }"
    assert len(read(text, limits=Limits(nodes=3, edges=2)).nodes) == 3
    for limits in (Limits(nodes=2), Limits(edges=1), Limits(characters=10), Limits(tokens=5)):
        with pytest.raises(DotError, match="more than"):
            read(text, limits=limits)
    with pytest.raises(DotError, match="more than 1 subgraphs"):
        read("digraph { {a} {b} }", limits=Limits(groups=1))


def test_a_file_of_nothing_but_problems_ends_with_a_count() -> None:
    with pytest.raises(DotError, match=r"and perhaps more\.") as caught:
        parse("digraph {\n" + "a [\n" * 50_000)
    problems = problems_of(caught.value)
    assert len(problems) == MOST_SAID
