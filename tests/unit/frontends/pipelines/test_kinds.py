"""Which dialect a pipeline is written in, and what each of its nodes is."""

from __future__ import annotations

import pytest

from everstep.frontends.dot.resolve import read
from everstep.frontends.pipelines.kinds import KINDS, TYPES, Dialect, Kinds, dialect_of, kinds_of

ROUND = "a [shape=ellipse]; z [shape=ellipse]; a -> n -> z;"
SQUARE = "a [shape=Mdiamond]; z [shape=Msquare]; a -> n -> z;"


def kinds(body: str) -> Kinds:
    return kinds_of(read(f"digraph g {{\n{body}\n}}"))


@pytest.mark.parametrize(
    ("shape", "in_round", "in_square"),
    [
        ("box", "task", "task"),
        ("diamond", "conditional", "conditional"),
        ("hexagon", "parallel", "human"),
        ("house", "human", "subpipeline"),
        ("component", "tool", "parallel"),
        ("invhouse", "fan_in", "fan_in"),
        ("tripleoctagon", "fan_in", "fan_in"),
        ("parallelogram", "tool", "tool"),
        ("tab", "subpipeline", "subpipeline"),
        ("doublecircle", "task", "task"),
    ],
)
def test_a_shape_means_what_its_dialect_says(shape: str, in_round: str, in_square: str) -> None:
    assert kinds(f"dialect=round; {ROUND} n [shape={shape}]")["n"] == in_round
    assert kinds(f"dialect=square; {SQUARE} n [shape={shape}]")["n"] == in_square


@pytest.mark.parametrize("type_", [*TYPES, "my.handler"])
def test_a_type_wins_over_a_shape(type_: str) -> None:
    found = kinds(f'{SQUARE} n [shape=hexagon, type="{type_}"]')
    assert found["n"] == TYPES.get(type_, type_)
    assert set(TYPES.values()) == set(KINDS)


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        (ROUND, "round"),
        (SQUARE, "square"),
        ("a -> n; n [shape=invhouse]", "round"),
        ("a -> n; n [shape=tripleoctagon]", "square"),
        ("a -> n; n [shape=parallelogram]", "square"),
        ("a -> n; n [shape=component, tool_command=ls]", "round"),
        ("a -> n; n [shape=component, max_parallel=2]", "square"),
        ("a -> n; n [shape=hexagon, k=2]", "round"),
        ('a -> n; n [shape=hexagon, "human.default_choice"=n]', "square"),
        ('a -> n; n [shape=house, "stack.child_dotfile"="x.dot"]', "square"),
        ("a -> n [loop_restart=true]", "square"),
        ("a -> n; n [prompt=x]", "square"),
        ("title=x; a -> n", "round"),
        ('a -> n [condition="outcome=success"]', "square"),
        ("a -> n [condition=\"status == 'SUCCESS'\"]", "round"),
        ("start -> n -> end", "square"),
        ("a -> n", "round"),
        (f"dialect=round; {SQUARE}", "round"),
        (f'dialect="Square"; {ROUND}', "square"),
        # A type says what a node is, so its shape is only a picture.
        ("a -> n; n [shape=invhouse, type=task]; n [prompt=x]", "square"),
        # An ellipse in the middle is no end.
        ("start -> n -> exit; n [shape=ellipse]", "square"),
    ],
)
def test_the_dialect_is_told_by_what_only_one_has(body: str, dialect: str) -> None:
    digraph = read(f"digraph g {{ {body} }}")
    assert dialect_of(digraph) == kinds_of(digraph).dialect == Dialect(dialect)


@pytest.mark.parametrize(
    ("body", "starts", "exits"),
    [
        (ROUND, ["a"], ["z"]),
        (SQUARE, ["a"], ["z"]),
        ("start -> n -> exit", ["start"], ["exit"]),
        ("Start -> n -> End", ["Start"], ["End"]),
        (
            "node [shape=ellipse]; start -> n [label=x]; n [shape=box]; n -> start; n -> end",
            ["start"],
            ["end"],
        ),
        (f"{ROUND} n -> y; y [shape=ellipse]; b [shape=ellipse]; b -> n", ["a", "b"], ["z", "y"]),
        (f"{SQUARE} n -> end; start -> n", ["a"], ["z"]),
        ("a [type=start]; z [type=terminal]; a -> z", ["a"], ["z"]),
        ("start [type=tool]; start -> z", [], []),
        ("a [shape=ellipse]; a -> a; a -> z; z [shape=ellipse]", ["a"], ["z"]),
    ],
)
def test_the_ends_are_found(body: str, starts: list[str], exits: list[str]) -> None:
    found = kinds(body)
    assert (list(found.starts), list(found.exits)) == (starts, exits)
    assert not found.problems


def test_an_ellipse_in_the_middle_is_a_task_and_said_to_be_odd() -> None:
    found = kinds(f"{ROUND}\n n [label=x,\n shape=ellipse]")
    [problem] = found.problems
    assert found["n"] == "task"
    assert (problem.code, problem.severity, problem.node) == ("pipeline.unclear_end", "warning", "n")
    assert (problem.line, problem.column) == (4, 2)


def test_both_dialects_at_once_are_an_error_if_the_meaning_of_a_shape_hangs_on_it() -> None:
    found = kinds("a [shape=Mdiamond]; a -> n -> z; z [shape=ellipse]; n [shape=hexagon]")
    [problem] = found.problems
    assert (problem.code, problem.severity, problem.node) == ("pipeline.unclear_shape", "error", "n")


def test_both_dialects_at_once_are_a_warning_if_no_meaning_hangs_on_it() -> None:
    found = kinds("a [shape=Mdiamond]; a -> n -> z; z [shape=ellipse]")
    [problem] = found.problems
    assert (problem.code, problem.severity, problem.node) == ("pipeline.mixed_dialects", "warning", "z")


def test_an_unknown_dialect_is_an_error_at_its_place() -> None:
    found = kinds(f"dialect=oval; {SQUARE}")
    [problem] = found.problems
    assert (problem.code, problem.severity, problem.line, problem.column) == (
        "pipeline.dialect",
        "error",
        2,
        1,
    )
    assert found.dialect is Dialect.SQUARE
