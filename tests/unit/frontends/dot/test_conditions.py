"""Both grammars of conditions: what is read, what holds, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import DotError
from everstep.frontends.dot.conditions import Comparison, Dialect, Key, Not, parse_condition
from everstep.frontends.dot.judging import MISSING, evaluate, lookup_in
from everstep.frontends.dot.resolve import read
from everstep.frontends.dot.source import Problems
from tests.unit.frontends.dot.dot_texts import FILES, problems_of

OUTCOME = {"status": "SUCCESS", "preferred_label": "Yes", "score": 0.9}
CONTEXT = {
    "status": "from the context",
    "count": 3,
    "ok": True,
    "off": False,
    "empty": "",
    "text": "fix: typo",
    "tags": ["a", "b", 3],
    "none": None,
    "three": "3",
    "a.b": 1,
    "tests": "passed",
    "context.full": "x",
    "zero": 0,
}


def holds(text: str) -> bool:
    return evaluate(parse_condition(text), lookup_in(OUTCOME, CONTEXT))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "status == 'SUCCESS'",
        'status == "SUCCESS"',
        "status != 'FAILURE'",
        "score >= 0.8",
        "count == 3",
        "count == 3.0",
        "count > -1",
        "ok == true",
        "off == false",
        "ok",
        "NOT off",
        "NOT missing",
        "NOT empty",
        "NOT none",
        "NOT zero",
        "NOT NOT ok",
        "text STARTS_WITH 'fix'",
        "text ENDS_WITH 'typo'",
        "text CONTAINS ': '",
        "tags CONTAINS 'a'",
        "tags CONTAINS 3",
        "'b' IN tags",
        "count IN [1, 2, 3]",
        "status IN ['SUCCESS', 'PARTIAL']",
        "status == 'x' OR ok AND count == 3",
        "(status == 'x' OR ok) AND count == 3",
        "'it\\'s' == 'it\\'s'",
        "a.b == 1",
        "'abc' < 'abd'",
        "three != 3",
        "NOT (missing == 1)",
        "NOT ok == false",
        "(NOT off) == true",
        "context.count == 3",
        "tags == ['a', 'b', 3]",
    ],
)
def test_a_long_condition_holds(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "status == 'success'",
        "status == 'from the context'",
        "missing == 'x'",
        "missing != 'x'",
        "missing < 3",
        "NOT missing == 'x'",
        "missing == missing",
        "missing IN ['x']",
        "'x' IN missing",
        "three == 3",
        "count == '3'",
        "count > '1'",
        "ok == 1",
        "ok == 'true'",
        "three < 5",
        "missing",
        "off",
        "empty",
        "'a' IN 'abc'",
        "count CONTAINS 3",
        "count STARTS_WITH '3'",
        "tags CONTAINS '3'",
        "true IN [1]",
        "off AND missing OR off",
        "NOT status == 'FAILURE'",
    ],
)
def test_a_long_condition_does_not_hold(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "outcome=SUCCESS",
        "outcome = SUCCESS && preferred_label=Yes",
        "outcome!=fail",
        "context.count=3",
        "context.three=3",
        "context.ok=true",
        "context.tests != failed && context.tests=passed",
        'context.missing=""',
        "context.missing!=x",
        "context.none!=x",
        "context.full=x",
        "context.ok",
        "context.ok && outcome=SUCCESS",
        'context.text="fix: typo"',
        "tests=passed",
    ],
)
def test_a_short_condition_holds(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "outcome=success",
        "context.missing=x",
        "context.missing",
        "context.empty",
        "context.off && outcome=SUCCESS",
    ],
)
def test_a_short_condition_does_not_hold(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("status == 'SUCCESS'", Dialect.LONG),
        ("outcome=success", Dialect.SHORT),
        ("outcome != success", Dialect.SHORT),
        ("status != 'SUCCESS'", Dialect.LONG),
        ("status != SUCCESS", Dialect.SHORT),
        ("count != 3", Dialect.LONG),
        ("context.count != 3", Dialect.SHORT),
        ("ok", Dialect.LONG),
        ("context.ok", Dialect.SHORT),
        ("NOT context.ok", Dialect.LONG),
        ("a && b", Dialect.SHORT),
        ("(a)", Dialect.LONG),
    ],
)
def test_the_dialect_is_found_from_the_words(text: str, dialect: Dialect) -> None:
    assert parse_condition(text).dialect is dialect


def test_not_binds_tighter_than_a_comparison() -> None:
    root = parse_condition("NOT a == b").root
    assert isinstance(root, Comparison)
    assert root.left == Not(Key("a", 4), 0)


@pytest.mark.parametrize(
    ("text", "asked"), [("off AND boom", ["off"]), ("ok OR boom", ["ok"]), ("outcome=x && boom", ["outcome"])]
)
def test_the_rest_is_not_looked_at_once_it_is_decided(text: str, asked: list[str]) -> None:
    looked: list[str] = []

    def lookup(key: str) -> Any:
        looked.append(key)
        return CONTEXT.get(key, MISSING)

    evaluate(parse_condition(text), lookup)
    assert looked == asked


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("a == 1", 1),
        ("a == 1 AND (b > 2 OR NOT c)", 3),
        ("a=1 && b && c!=2", 3),
        ("NOT NOT a", 1),
        ("(NOT a) == true", 1),
    ],
)
def test_specificity_counts_the_comparisons(text: str, count: int) -> None:
    assert parse_condition(text).specificity == count


def test_a_condition_names_its_keys_once() -> None:
    assert parse_condition("a == 1 AND b == a OR c IN ['d']").keys == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("status ==", 10, "expected a value, found the end of the condition"),
        ("== 'x'", 1, "expected a value, found `==`"),
        ("a == 1 b", 8, "found `b`"),
        ("a == 1 and b", 8, "Write AND."),
        ("(a == 1", 8, "expected `)`"),
        ("a == 1)", 7, "found `)`"),
        ("a == 'x", 6, "this string is never closed"),
        ("a == b == c", 8, "compares the result of another comparison"),
        ("a IN ['x' 'y']", 11, "expected `,`"),
        ("a IN [b]", 7, "expected a value, found `b`"),
        ("outcome=", 9, "expected a value after `=`"),
        ("outcome=a b", 11, "Join clauses with `&&`"),
        ("outcome=a && ", 13, "expected a key"),
        ("outcome=a || outcome=b", 11, "Write OR"),
        ("a == 1 && b", 8, "`==` is of the long grammar and `&&` of the short one"),
        ("a = 'x'", 5, "`'x'` is of the long grammar and `=` of the short one"),
        ("3a == 1", 1, "`3a` is no key"),
        ("a & b", 3, "`&` means nothing here"),
        ("(" * 33 + "a" + ")" * 33, 34, "more than 32"),
        ("NOT " * 40 + "a", 133, "more than 32"),
        ("!a", 1, "found `!`"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_condition_is_said_with_its_place(text: str, column: int, said: str) -> None:
    with pytest.raises(DotError) as caught:
        parse_condition(text)
    [problem] = problems_of(caught.value)
    assert said in str(caught.value)
    assert (problem["code"], problem["line"], problem["column"]) == ("condition.syntax", 1, column)


@pytest.mark.parametrize(
    ("written", "line", "column"),
    [
        ('"a == "', 2, 30),
        ('"\\"x\\" == a b"', 2, 37),
        ('"a == \\\n 1 b"', 3, 4),
        ('"a ==" + /* joined */\n  " 1 b"', 3, 7),
        ('"a ==\\n1 b"', 2, 34),
        ("<a == 1 b>", 2, 33),
    ],
)
def test_a_problem_inside_an_attribute_has_its_place_in_the_file(
    written: str, line: int, column: int
) -> None:
    [edge] = read(f"digraph {{\n  one -> two [condition={written}]\n}}", "a.dot").edges
    with pytest.raises(DotError) as caught:
        parse_condition(edge.attributes.passage("condition"))
    [problem] = problems_of(caught.value)
    assert (problem["file"], problem["line"], problem["column"]) == ("a.dot", line, column)


def test_problems_of_several_conditions_are_told_together() -> None:
    graph = read('digraph {\n a -> b [condition="x =="]\n a -> c [condition="y = 1", weight=no]\n}', "a.dot")
    problems = Problems(graph.source)
    for edge in graph.edges:
        with problems.caught():
            parse_condition(edge.attributes.passage("condition"))
        with problems.caught():
            edge.attributes.integer("weight", 0)
    with pytest.raises(DotError, match=r"^a\.dot cannot be read:") as caught:
        problems.raise_if_any()
    assert [(p["code"], p["line"]) for p in problems_of(caught.value)] == [
        ("condition.syntax", 2),
        ("dot.value", 3),
    ]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    """A long condition on numbers that means the same in Python once its words are in lower case."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        key, other = draw(st.sampled_from("abc")), draw(st.sampled_from(["0", "1", "2", "a", "b"]))
        sign = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "IN", ""]))
        if not sign:
            return draw(st.sampled_from(["", "NOT ", "NOT NOT "])) + key
        return f"{key} {sign} " + (
            f"[{other}, 1]" if sign == "IN" and other.isdigit() else other if sign != "IN" else "[]"
        )
    parts = draw(st.lists(expressions(depth - 1), min_size=2, max_size=3))
    joined = f" {draw(st.sampled_from(['AND', 'OR']))} ".join(parts)
    return draw(st.sampled_from(["{}", "({})", "NOT ({})"])).format(joined)


@settings(max_examples=300, deadline=None)
@given(expressions(), st.tuples(*[st.integers(0, 2)] * 3))
def test_a_long_condition_on_numbers_means_what_it_means_in_python(
    text: str, numbers: tuple[int, ...]
) -> None:
    values = dict(zip("abc", numbers, strict=True))
    meant = bool(eval(text.lower(), {}, values))
    # Without parentheses `a != b` alone is of the short grammar.
    assert evaluate(parse_condition(f"({text})"), lambda key: values.get(key, MISSING)) is meant


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_conditions_of_the_samples_are_of_one_dialect(file) -> None:
    graph = read(file.read_bytes(), file.name)
    read_ = [
        parse_condition(e.attributes.passage("condition")) for e in graph.edges if "condition" in e.attributes
    ]
    assert len(read_) >= 3
    assert {condition.dialect for condition in read_} == {Dialect(file.stem.partition("_")[2])}
