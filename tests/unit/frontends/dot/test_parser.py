"""DOT text to a syntax tree: what is accepted, and what is said about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.errors import DotError, FlowError
from everstep.frontends.dot.parser import parse
from everstep.frontends.dot.tree import Attribute, Defaults, EdgeStatement, NodeStatement, Statement, Subgraph
from tests.unit.frontends.dot.dot_texts import problems_of


def only(text: str) -> Statement:
    """Return the one statement inside a digraph."""
    [statement] = parse("digraph {" + text + "}").statements
    return statement


def problems(text: str | bytes, file: str = "") -> list[dict[str, Any]]:
    with pytest.raises(DotError) as caught:
        parse(text, file)
    return problems_of(caught.value)


def places(text: str) -> list[tuple[str, int, int]]:
    return [(problem["code"], problem["line"], problem["column"]) for problem in problems(text)]


def value_of(text: str) -> str:
    statement = only(f"a [x={text}]")
    assert isinstance(statement, NodeStatement)
    return statement.attributes[0].value.text


def test_a_graph_has_its_name_and_says_whether_it_is_strict() -> None:
    graph = parse(' STRICT DiGraph "my graph" {}')
    assert graph.name is not None
    assert (graph.name.text, graph.is_strict, graph.statements) == ("my graph", True, ())
    assert parse("digraph {}").name is None


def test_every_kind_of_statement_is_told_apart() -> None:
    graph = parse("digraph { k=v; node [a=1]; n; n [b=2]; n -> m; subgraph s { x }; { y } }")
    kinds = [type(statement) for statement in graph.statements]
    assert kinds == [Attribute, Defaults, NodeStatement, NodeStatement, EdgeStatement, Subgraph, Subgraph]


def test_statements_know_their_line_and_column() -> None:
    graph = parse("digraph {\n  a -> b\r\n\tc [x=1\n,  y=2]\n}")
    chain, node = graph.statements
    assert isinstance(chain, EdgeStatement)
    assert isinstance(node, NodeStatement)
    place = graph.source.place
    assert place(chain.at) == (2, 3)
    assert place(chain.arrows[0]) == (2, 5)
    assert place(node.at) == (3, 2)
    assert [place(a.key.at) for a in node.attributes] == [(3, 5), (4, 4)]
    assert [place(a.value.at) for a in node.attributes] == [(3, 7), (4, 6)]


def test_a_chain_keeps_all_its_ends_and_attributes() -> None:
    chain = only("a -> b:p:n -> {c d} -> e, f [x=1][y=2]")
    assert isinstance(chain, EdgeStatement)
    _, second, third, last = chain.ends
    assert isinstance(third, Subgraph)
    assert not isinstance(second, Subgraph)
    assert second[0].port == "p:n"
    assert not isinstance(last, Subgraph)
    assert [ref.name.text for ref in last] == ["e", "f"]
    assert [a.key.text for a in chain.attributes] == ["x", "y"]


@pytest.mark.parametrize(
    "list_",
    [
        "[x=1,y=2]",
        "[x=1 y=2]",
        "[x=1;y=2;]",
        "[x=1]\n[y=2]",
        "[\nx = 1 // one\ny = 2 /* two */ ]",
        "[] [x=1,y=2,]",
    ],
)
def test_attributes_are_separated_by_anything_or_nothing(list_: str) -> None:
    node = only(f"a {list_}")
    assert isinstance(node, NodeStatement)
    assert [(a.key.text, a.value.text) for a in node.attributes] == [("x", "1"), ("y", "2")]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("word", "word"),
        ("wait.human", "wait.human"),
        ("-1.5", "-1.5"),
        (".5", ".5"),
        ("900s", "900s"),
        ("1.5h", "1.5h"),
        ("250ms", "250ms"),
        ('"quoted"', "quoted"),
        ('"say \\"hi\\""', 'say "hi"'),
        ('"a\\nb"', "a\\nb"),
        ('"C:\\\\"', "C:\\\\"),
        ('"one \\\ntwo"', "one two"),
        ('"one \\\r\ntwo"', "one two"),
        ('"two\nlines"', "two\nlines"),
        ('"a" + "b"\n+ /* and */ "c"', "abc"),
        ('"// no comment # either"', "// no comment # either"),
        ("<b <i>c</i> d>", "b <i>c</i> d"),
        ("日本", "日本"),
        ("true", "true"),
    ],
)
def test_values_are_read_as_graphviz_reads_them(written: str, read: str) -> None:
    assert value_of(written) == read


def test_in_a_plain_text_escapes_are_resolved() -> None:
    node = only(r'a [x="one\ntwo\t\"three\" C:\\new \N"]')
    assert isinstance(node, NodeStatement)
    assert node.attributes[0].value.plain == 'one\ntwo\t"three" C:\\new \\N'


def test_dotted_keys_are_read_in_lists_and_as_statements() -> None:
    graph = parse("digraph { manager.max_cycles=3; a [human.default_choice=yes] }")
    setting, node = graph.statements
    assert isinstance(setting, Attribute)
    assert isinstance(node, NodeStatement)
    assert [setting.key.text, node.attributes[0].key.text] == ["manager.max_cycles", "human.default_choice"]


def test_comments_and_a_byte_order_mark_are_passed_over() -> None:
    graph = parse("\ufeff# first\n// second\ndigraph /* third */ { # fourth\n a // fifth\n }\n# last")
    assert len(graph.statements) == 1


def test_bytes_are_read_as_utf_8() -> None:
    assert parse("digraph { ü }".encode()).statements
    [problem] = problems(b"digraph {\n \xff }", "a.dot")
    assert (problem["code"], problem["line"], problem["column"]) == ("dot.encoding", 2, 2)


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "said", "fix"),
    [
        ("", "dot.syntax", 1, 1, "expected `digraph`, found the end", "Begin with"),
        ("digraf g {}", "dot.syntax", 1, 1, "found `digraf`", "Begin with"),
        ("digraph a b {}", "dot.syntax", 1, 11, "expected `{`, found `b`", "digraph name {"),
        ("digraph { a", "dot.unclosed", 1, 9, "this `{` is never closed", "`}`"),
        ("digraph {\n a [x=1\n}", "dot.unclosed", 2, 4, "this `[` is never closed", "`]`"),
        ('digraph {\n a [x="1]\n}', "dot.unclosed", 2, 7, "this string is never closed", '`"`'),
        ("digraph {\n a [x=<b]\n}", "dot.unclosed", 2, 7, "this `<` is never closed", "`>`"),
        ("digraph {\n /* a }", "dot.unclosed", 2, 2, "this comment is never closed", "`*/`"),
        ("digraph { a -> }", "dot.syntax", 1, 16, "expected a node, found `}`", "node -> node"),
        ("digraph { -> a }", "dot.syntax", 1, 11, "expected a statement, found `->`", "node -> node"),
        ("digraph { a [x] }", "dot.syntax", 1, 15, "expected `=` and a value after `x`", "key=value"),
        ("digraph { a [x=] }", "dot.syntax", 1, 16, "expected a value for `x`, found `]`", "quotes"),
        ("digraph { a [=1] }", "dot.syntax", 1, 14, "expected an attribute, found `=`", "key=value"),
        ("digraph { node a }", "dot.syntax", 1, 16, "expected `[` after `node`", '`"node"`'),
        ("digraph { a -> node }", "dot.syntax", 1, 16, "expected a node, found `node`", '`"node"`'),
        ("digraph { a.b -> c }", "dot.syntax", 1, 11, "found `a.b`", '`"a.b"`'),
        ("digraph { 1a -> c }", "dot.syntax", 1, 11, "found `1a`", '`"1a"`'),
        ("digraph { a [m=gpt-4o] }", "dot.syntax", 1, 19, "`gpt-4o` is neither", '`"gpt-4o"`'),
        ("digraph { a [m=v1.2] }", "dot.syntax", 1, 18, "`v1.2` is neither", '`"v1.2"`'),
        ("digraph { a [m=x@y] }", "dot.syntax", 1, 17, "`@` means nothing here", "quotes"),
        ("digraph { a: }", "dot.syntax", 1, 14, "expected a port after `:`", "quotes"),
        ('digraph { a [x="b" + c] }', "dot.syntax", 1, 22, "expected a string after `+`", "Only strings"),
        ("digraph { subgraph s a }", "dot.syntax", 1, 22, "expected `{` after `subgraph`", "subgraph name {"),
        ("digraph { a }\ndigraph { b }", "dot.syntax", 2, 1, "after the end of the digraph", "Remove"),
        ("digraph { a } }", "dot.syntax", 1, 15, "after the end of the digraph", "too many"),
        ("graph { a }", "dot.undirected", 1, 1, "a pipeline is a directed graph", "`digraph`"),
        ("digraph { a -- b }", "dot.undirected", 1, 13, "without a direction", "`->`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place_and_a_way_out(
    text: str, code: str, line: int, column: int, said: str, fix: str
) -> None:
    [problem] = problems(text)
    assert (problem["code"], problem["line"], problem["column"]) == (code, line, column)
    assert said in problem["message"]
    assert fix in problem["fix"]


def test_every_mistake_is_found_in_one_go() -> None:
    text = """digraph {
  a [label=, x=1]
  b -> -> c
  d -- e;  node f; g [y=1
  h [z=2]
  subgraph { i -> ; j }
  k @ l
}"""
    assert places(text) == [
        ("dot.syntax", 2, 12),
        ("dot.syntax", 3, 8),
        ("dot.undirected", 4, 5),
        ("dot.syntax", 4, 17),
        ("dot.unclosed", 4, 22),
        ("dot.syntax", 6, 19),
        ("dot.syntax", 7, 5),
    ]


def test_an_error_shows_the_line_with_a_caret() -> None:
    with pytest.raises(DotError) as caught:
        parse("digraph {\n\ta -> -> b\n}", "pipes/review.dot")
    assert str(caught.value) == (
        "pipes/review.dot cannot be read:\n"
        "pipes/review.dot:2:7: expected a node, found `->`. "
        "Write `node [key=value]`, `node -> node`, or `key=value`.\n"
        "  2 | \ta -> -> b\n"
        "    | \t     ^"
    )
    assert isinstance(caught.value, FlowError)
    assert (caught.value.code, caught.value.exit_code, caught.value.http_status) == ("dot.invalid", 2, 422)


def test_of_a_long_line_only_the_part_around_the_place_is_shown() -> None:
    [problem] = problems("digraph { " + "a; " * 1000 + "-> b; " + "c; " * 1000 + "}")
    shown, caret = problem["excerpt"].splitlines()
    assert len(shown) < 120
    assert shown[caret.index("^")] == "-"
