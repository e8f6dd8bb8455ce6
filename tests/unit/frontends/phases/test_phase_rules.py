"""What a scored gate decides, and what a contract makes of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import BadRequest, GateError
from everstep.frontends.phases.contracts import corrected, faults
from everstep.frontends.phases.deciding import (
    Decision,
    Rule,
    Thresholds,
    decide,
    is_critical,
    open_breakers,
    oscillates,
    read_score,
)

BY = Thresholds()


class TestRules:
    @pytest.mark.parametrize(
        ("score", "decision", "rule"),
        [
            (100, Decision.PROCEED, Rule.HIGH),
            (80, Decision.PROCEED, Rule.HIGH),
            (79.9, Decision.ITERATE, Rule.MIDDLE),
            (60, Decision.ITERATE, Rule.MIDDLE),
            (59.9, Decision.ESCALATE, Rule.LOW),
            (-3, Decision.ESCALATE, Rule.LOW),
        ],
    )
    def test_the_score_alone_decides(self, score: float, decision: Decision, rule: Rule) -> None:
        assert decide(score, BY)[:2] == (decision, rule)

    @pytest.mark.parametrize(("iteration", "decision"), [(2, Decision.ITERATE), (3, Decision.ESCALATE)])
    def test_a_phase_is_done_again_three_times_at_most(self, iteration: int, decision: Decision) -> None:
        verdict = decide(70, BY, iteration=iteration)
        assert verdict.decision == decision
        assert (verdict.rule is Rule.LIMIT) == (iteration == 3)

    def test_a_good_score_goes_on_even_after_the_last_iteration(self) -> None:
        assert decide(85, BY, iteration=3).decision == Decision.PROCEED

    def test_rules_come_in_their_order(self) -> None:
        facts: dict[str, Any] = {"earlier": [60, 70, 55], "breakers": ["cost"], "is_unhealthy": True}
        assert decide(90, Thresholds(critical=True), **facts).rule is Rule.CRITICAL
        assert decide(90, BY, **facts).rule is Rule.BREAKER
        assert decide(90, BY, **facts | {"breakers": []}).rule is Rule.HEALTH
        assert decide(90, BY, **facts | {"breakers": [], "is_unhealthy": False}).rule is Rule.OSCILLATION
        assert decide(90, BY).rule is Rule.HIGH

    def test_a_low_score_that_oscillates_is_told_as_oscillation(self) -> None:
        assert decide(50, BY, earlier=[60, 50, 60]).rule is Rule.OSCILLATION

    @pytest.mark.parametrize(
        ("scores", "is_so"),
        [
            ([60, 70, 60, 70], True),
            ([60, 70, 58, 75], True),
            ([60, 78, 65, 70], False),
            ([60, 65, 70, 75], False),
            ([70, 70, 70, 70], False),
            ([60, 70, 60, 60], False),
        ],
    )
    def test_scores_oscillate_if_their_swings_turn_and_do_not_shrink(
        self, scores: list[float], is_so: bool
    ) -> None:
        assert oscillates(scores) is is_so
        assert (decide(scores[-1], BY, earlier=scores[:-1]).rule is Rule.OSCILLATION) is is_so

    def test_how_many_scores_are_looked_at_can_be_said(self) -> None:
        by = Thresholds(oscillation=3)
        assert decide(60, by, earlier=[60, 70]).rule is Rule.OSCILLATION
        assert decide(60, BY, earlier=[60, 70]).rule is Rule.MIDDLE

    @given(
        st.floats(0, 100),
        st.lists(st.floats(0, 100), max_size=5),
        st.integers(0, 6),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    )
    def test_nothing_goes_on_by_itself_that_a_person_must_see(
        self,
        score: float,
        earlier: list[float],
        iteration: int,
        critical: bool,
        is_broken: bool,
        is_unhealthy: bool,
    ) -> None:
        verdict = decide(
            score,
            Thresholds(critical=critical),
            iteration=iteration,
            earlier=earlier,
            breakers=["api"] if is_broken else [],
            is_unhealthy=is_unhealthy,
        )
        must_ask = critical or is_broken or is_unhealthy or score < 60
        assert not must_ask or verdict.decision is Decision.ESCALATE
        assert verdict.decision is not Decision.PROCEED or score >= 80
        assert verdict.decision is not Decision.ITERATE or (60 <= score < 80 and iteration < 3)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"proceed": "80"},
            {"iterate": True},
            {"proceed": float("nan")},
            {"proceed": 50},
            {"max_iterations": -1},
            {"max_iterations": 1.5},
            {"oscillation": 2},
            {"critical": "yes"},
        ],
    )
    def test_thresholds_that_decide_nothing_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(BadRequest, match="gate 'g'"):
            Thresholds(**wrong).check("g")

    @pytest.mark.parametrize(
        "returned", ["80", None, True, float("nan"), float("inf"), {"points": 3}, {"score": "a"}]
    )
    def test_what_is_no_score_is_refused(self, returned: Any) -> None:
        with pytest.raises(GateError, match="gate 'g'"):
            read_score(returned, "g")

    def test_a_score_may_come_with_more_to_tell(self) -> None:
        assert read_score({"score": 71, "notes": "thin"}, "g") == (71, {"notes": "thin"})

    def test_breakers_and_health_are_read_as_people_write_them(self) -> None:
        state = {"a": {"state": "open"}, "b": {"state": "half_open"}, "c": "OPEN", "d": "closed"}
        assert open_breakers(state) == ["a", "c"]
        assert open_breakers(None) == []
        assert is_critical([{"status": "critical"}]) and is_critical({"overall": "Critical"})
        assert not is_critical([{"status": "critical"}, {"status": "ok"}]) and not is_critical([])


SCHEMA = {
    "type": "object",
    "properties": {
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"weight": {"type": "number", "minimum": 0, "default": 1}},
                "required": ["weight"],
            },
        },
        "risks": {"type": "array", "default": []},
    },
    "required": ["findings", "risks"],
}


@dataclass
class Plan:
    steps: list[dict[str, Any]]


class TestContracts:
    def test_what_is_missing_or_of_another_type_is_said_by_name(self) -> None:
        contract = {"a": int, "b": {"type": "string"}, "c": list[str], "d": None}
        wrong = faults(contract, {}, {"a": "x", "b": 3, "c": None, "d": 1})
        assert [text.split()[0].rstrip(":") for text in wrong] == ["a", "b", "c"]
        assert "missing" in wrong[2]
        assert faults(contract, {}, {"a": 1, "b": "x", "c": [], "d": 1}) == []

    def test_nothing_is_missing_where_nothing_is_allowed(self) -> None:
        assert faults({"a": int | None, "b": {"type": ["string", "null"]}}, {}, {"a": None, "b": None}) == []
        assert faults({"a": None}, {}, {"a": None}) == ["a is missing"]

    def test_references_lead_through_lists_and_objects(self) -> None:
        values = {
            "found": {"items": [{"id": "F1"}, {"id": "F2"}]},
            "plan": Plan(steps=[{"of": "F1"}, {"of": "F9"}, {}]),
        }
        assert faults({}, {"plan.steps.of": "found.items.id"}, values) == [
            "plan.steps.of refers to 'F9', which is not among found.items.id"
        ]
        assert faults({}, {"found.items.id": "found.items.id"}, values) == []

    def test_missing_and_wrong_parts_get_their_defaults(self) -> None:
        value = {"findings": [{"weight": -2}, {"weight": 3}, {}], "more": "kept"}
        found, said = corrected(value, SCHEMA, "discovery")
        assert found == {
            "findings": [{"weight": 1}, {"weight": 3}, {"weight": 1}],
            "more": "kept",
            "risks": [],
        }
        assert [text.split()[0].rstrip(":") for text in said] == [
            "discovery.findings[0].weight",
            "discovery.findings[2].weight",
            "discovery.risks",
        ]
        assert value == {"findings": [{"weight": -2}, {"weight": 3}, {}], "more": "kept"}

    def test_what_has_no_default_is_left_as_it_is_and_told(self) -> None:
        found, said = corrected({"risks": 3}, SCHEMA, "discovery")
        assert found == {"risks": []}
        assert len(said) == 2 and "findings" in said[1] and "left as it is" in said[1]
        assert corrected(3, str, "x")[0] == 3 and "left as it is" in corrected(3, str, "x")[1][0]

    def test_a_whole_value_may_have_a_default(self) -> None:
        assert corrected(None, {"type": "object", "default": {"a": 1}}, "x")[0] == {"a": 1}
        assert corrected("no", {**SCHEMA, "default": {}}, "x")[0] == {}

    def test_a_default_is_a_new_one_each_time(self) -> None:
        one, other = (corrected({"findings": []}, SCHEMA, "x")[0] for _ in range(2))
        one["risks"].append("a")
        assert other["risks"] == []

    def test_more_than_a_schema_allows_is_told_once(self) -> None:
        found, said = corrected(
            {"findings": [], "risks": [], "x": 1}, {**SCHEMA, "additionalProperties": False}, "d"
        )
        assert found["x"] == 1 and len(said) == 1

    def test_what_is_right_is_left_alone(self) -> None:
        value = {"findings": [], "risks": ["a"]}
        assert corrected(value, SCHEMA, "x") == (value, [])
