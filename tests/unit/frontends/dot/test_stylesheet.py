"""Style sheets: which rule wins, and what is said of those that cannot be read."""

from __future__ import annotations

import pytest

from everstep.errors import DotError
from everstep.frontends.dot.resolve import read
from everstep.frontends.dot.stylesheet import is_inline, parse_stylesheet
from tests.unit.frontends.dot.dot_texts import FOLDER, problems_of

SHEET = """
/* the more a selector says, the more it counts */
#review { llm_model: by-id; }
.code   { llm_model: by-class; reasoning_effort: high }
box     { llm_model: by-shape; max_tokens: 100; temperature: 0.2; }
*       { llm_model: by-all; llm_provider: "one; two"; max_tokens: 50 }
"""


@pytest.mark.parametrize(
    ("id_", "shape", "classes", "model"),
    [
        ("review", "box", ["code"], "by-id"),
        ("write", "box", ["code"], "by-class"),
        ("write", "box", ["other"], "by-shape"),
        ("write", "house", [], "by-all"),
        ("Review", "Box", ["Code"], "by-all"),
    ],
)
def test_an_id_beats_a_class_beats_a_shape_beats_all(
    id_: str, shape: str, classes: list[str], model: str
) -> None:
    assert parse_stylesheet(SHEET).properties(id_, shape=shape, classes=classes)["llm_model"] == model


def test_rules_add_up() -> None:
    found = parse_stylesheet(SHEET).properties("review", classes=["code"])
    assert found == {
        "llm_model": "by-id",
        "llm_provider": "one; two",
        "max_tokens": "100",
        "temperature": "0.2",
        "reasoning_effort": "high",
    }


def test_of_two_rules_alike_the_later_wins() -> None:
    sheet = parse_stylesheet(
        ".a { llm_model: one } .b { llm_model: two } .a { max_tokens: 1; max_tokens: 2 }"
    )
    assert sheet.properties("n", classes=["b", "a"]) == {"llm_model": "two", "max_tokens": "2"}


def test_many_unknown_properties_hide_no_rule() -> None:
    text = "".join(f"#n{i} {{ odd{i}: 1 }} " for i in range(300))
    assert parse_stylesheet(text + ".a { llm_model: x }").properties("n", classes=["a"]) == {"llm_model": "x"}


def test_an_attribute_of_the_node_wins() -> None:
    graph = read('digraph { review [llm_model=mine, temperature="1"]; other [shape=house] }')
    sheet = parse_stylesheet("* { llm_model: all; llm_provider: p } house { llm_model: h }")
    assert sheet.of(graph.nodes["review"]) == {"llm_model": "mine", "llm_provider": "p", "temperature": "1"}
    assert sheet.of(graph.nodes["other"]) == {"llm_model": "h", "llm_provider": "p"}


@pytest.mark.parametrize(
    ("file", "node", "found"),
    [
        ("build_short", "plan", {"llm_model": "big-1.5", "llm_provider": "one", "reasoning_effort": "low"}),
        (
            "build_short",
            "implement",
            {"llm_model": "big-1.5", "llm_provider": "one", "reasoning_effort": "high"},
        ),
        ("build_short", "gate", {"llm_model": "small", "llm_provider": "one"}),
        ("review_long", "security", {"llm_model": "large", "reasoning_effort": "high"}),
        ("review_long", "write", {"llm_model": "small", "temperature": "0.2"}),
    ],
)
def test_the_sheets_of_the_samples_are_read(file: str, node: str, found: dict[str, str]) -> None:
    graph = read((FOLDER / f"{file}.dot").read_bytes())
    sheet = parse_stylesheet(graph.attributes.passage("model_stylesheet"))
    assert sheet.of(graph.nodes[node]) == found


def test_an_unknown_property_is_kept_and_warned_of() -> None:
    sheet = parse_stylesheet("* {\n llm_modell: x }")
    assert sheet.properties("n") == {"llm_modell": "x"}
    [warning] = sheet.warnings
    assert (warning.code, warning.severity, warning.line, warning.column) == (
        "style.property",
        "warning",
        2,
        2,
    )
    assert "llm_model" in warning.fix


def test_a_sheet_is_told_from_the_name_of_a_file() -> None:
    assert is_inline("* { llm_model: x }")
    assert is_inline("")
    assert not is_inline("styles/models.css")
    assert parse_stylesheet(" /* nothing */ ").rules == ()


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("{ llm_model: x }", 1, "expected a selector, found `{`"),
        ("* llm_model: x }", 3, "expected `{` after `*`"),
        (".a, .b { llm_model: x }", 3, "A rule has one selector"),
        ("* { llm_model x }", 15, "expected `:` after `llm_model`"),
        ("* { llm_model: ; }", 16, "expected a value for `llm_model`"),
        ("* { : x }", 5, "expected a property"),
        ('* { llm_model: "x }', 16, "expected a value"),
        ("* { llm_model: x", 17, "expected `;` or `}`, found the end"),
        ('* { llm_model: "x" "y" }', 20, "expected `;` or `}`"),
        ("* { llm_model: x } /* }", 20, "this comment is never closed"),
        ("* { llm_model: x } .", 20, "expected a selector"),
    ],
)
def test_what_is_wrong_with_a_sheet_is_said_with_its_place(text: str, column: int, said: str) -> None:
    with pytest.raises(DotError) as caught:
        parse_stylesheet(text)
    [problem] = problems_of(caught.value)
    assert said in str(caught.value)
    assert (problem["code"], problem["line"], problem["column"]) == ("style.syntax", 1, column)


def test_every_broken_rule_is_told_with_its_place_in_the_file() -> None:
    text = 'digraph {\n  model_stylesheet="* { llm_model }\n  .a { llm_model: x }\n  #b { : \\"y\\" }"\n}'
    passage = read(text, "a.dot").attributes.passage("model_stylesheet")
    with pytest.raises(DotError) as caught:
        parse_stylesheet(passage)
    problems = problems_of(caught.value)
    assert [(p["file"], p["line"], p["column"]) for p in problems] == [("a.dot", 2, 35), ("a.dot", 4, 8)]
