"""Phases that are not written as they should be, each with a clear error."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Flow, node
from everstep.errors import BadRequest
from everstep.frontends.phases.places import place_of
from everstep.phases import Phase, ScoredGate, phases


def work() -> int:
    return 1


def score(work: int) -> int:
    return 90


FUNCTIONS: dict[str, Any] = {"work": work, "score": score}
GOOD: dict[str, Any] = {"name": "work", "run": "work", "gate": {"score": "score"}}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "two words"}, "called 'two words'"),
        ({"name": 3}, "called 3"),
        ({"run": "wrok"}, "Did you mean 'work'"),
        ({"run": 3}, "runs 3"),
        ({"run": dict}, "runs <class"),
        ({"number": "one"}, "number is 'one'"),
        ({"number": -1}, "number is -1"),
        ({"number": True}, "number is True"),
        ({"number": [1]}, "number is \\[1\\]"),
        ({"output": "two words"}, "output is 'two words'"),
        ({"output": []}, "output is \\[\\]"),
        ({"takes": ["a"]}, "takes is \\['a'\\]"),
        ({"takes": {"a": "int"}}, "takes: 'a' is 'int'"),
        ({"gives": {"other": {}}}, "is to give 'other', but writes \\['work'\\]"),
        ({"refers": {"a..b": "c"}}, "refers is"),
        ({"refers": {"a": 1}}, "refers is"),
        ({"gate": "score"}, "its gate is 'score'"),
        ({"gate": {"scores": "score"}}, "its gate is"),
        ({"gate": {"score": "scor"}}, "Did you mean 'score'"),
        ({"gate": {"score": 80}}, "score is 80"),
        ({"gate": {"score": "score", "procede": 80}}, "Did you mean 'proceed'"),
        ({"gate": {"score": "score", "proceed": "high"}}, "proceed is 'high'"),
        ({"gate": {"score": "score", "default": "maybe"}}, "default is 'maybe'"),
        ({"tkaes": {}}, "Did you mean 'takes'"),
        ({"retry": "often"}, "often"),
        ({"effects": "magic"}, "magic"),
    ],
)
def test_wrong_data_is_refused_where_it_stands(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        phases("p", [{**GOOD, **wrong}], functions=FUNCTIONS)


@pytest.mark.parametrize("missing", ["name", "run"])
def test_a_phase_has_a_name_and_something_to_run(missing: str) -> None:
    with pytest.raises(BadRequest, match=f"phases\\[0\\] has no '{missing}'"):
        phases("p", [{key: value for key, value in GOOD.items() if key != missing}], functions=FUNCTIONS)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([], "has no phases"),
        ("work", "has the phases 'work'"),
        ({"name": "work"}, "has the phases"),
        ([3], "phases\\[0\\] is 3"),
        ([Phase("a", work), Phase("a", work)], "two phases 'a'"),
        ([Phase("a", work, number=1), Phase("b", work, number="1")], "both number 1"),
        ([Phase("a", work, number=0.5), Phase("b", work, number="0_5")], "both number 0_5"),
    ],
)
def test_a_list_that_is_no_process_is_refused(stages: Any, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        phases("p", stages)


@pytest.mark.parametrize("lessons", ["be brief", 3])
def test_lessons_are_a_list(lessons: Any) -> None:
    with pytest.raises(BadRequest, match="lessons are"):
        phases("p", [Phase("a", work)], lessons=lessons)


def test_two_phases_do_not_write_the_same() -> None:
    @node(output="same")
    def other() -> int:
        return 1

    with pytest.raises(BadRequest, match="phases 'a' and 'b' both write 'same'"):
        phases("p", [Phase("a", Flow("a", [other])), Phase("b", work, output="same")])


def test_a_process_begins_with_its_first_phase() -> None:
    with pytest.raises(BadRequest, match="entry="):
        phases("p", [Phase("a", work)], entry=["a"])


def test_options_of_a_node_belong_to_the_node() -> None:
    with pytest.raises(BadRequest, match="is a node already"):
        Phase("a", node(output="x")(work), retry=3)
    with pytest.raises(BadRequest, match="is a flow"):
        Phase("a", Flow("f", [node(output="x")(work)]), retry=3)


def test_a_gate_scores_with_a_function() -> None:
    with pytest.raises(BadRequest, match="Give a ScoredGate"):
        Phase("a", work, gate=score)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="gives no score"):
        ScoredGate(node(halts=True)(score))


def test_numbers_go_on_from_those_that_are_given() -> None:
    flow = phases(
        "p", [Phase("a", work, number=0.5), Phase("b", work), Phase("c", work, number=7.0), Phase("d", work)]
    )
    places = [place for n in flow.nodes if (place := place_of(n)) is not None]
    assert [place.label for place in places if place.role == "phase"] == [
        *("phase_0_5_a", "phase_1_b", "phase_7_c", "phase_8_d"),
    ]


def test_data_and_python_make_the_same_flow() -> None:
    data = phases("p", [GOOD, {"name": "more", "run": "work", "number": 3}], functions=FUNCTIONS)
    code = phases("p", [Phase("work", work, gate=ScoredGate(score)), Phase("more", work, number=3)])
    assert data.plan.hash == code.plan.hash


def test_a_flow_of_phases_can_be_written_and_read_as_ir() -> None:
    flow = phases("p", [GOOD, {"name": "more", "run": "work"}], functions=FUNCTIONS)
    again = Flow.from_ir(flow.to_ir(), flow.functions())
    assert again.plan.hash == flow.plan.hash and again.durability == flow.durability
