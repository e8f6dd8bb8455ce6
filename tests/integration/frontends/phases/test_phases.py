"""Processes made of phases and scored gates."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from everstep import Context, Flow, Host, node, route, wait
from everstep.errors import BadRequest, InputError
from everstep.phases import Phase, ScoredGate, phases
from everstep.results import Event
from tests.integration.frontends.phases.processes import channel, decisions, discover, process, run, triggers


class TestGates:
    def test_a_good_score_goes_on(self, host: Host) -> None:
        result = run(host, process(80))
        assert result.status == "completed" and result["build"] == "built draft 1"
        assert decisions(host) == [("proceed", 80, 0, "high_score")]

    def test_a_middling_score_has_the_phase_done_again(self, host: Host) -> None:
        result = run(host, process(60, 79, 81))
        assert result["build"] == "built draft 3"
        assert decisions(host) == [
            ("iterate", 60, 0, "middle_score"),
            ("iterate", 79, 1, "middle_score"),
            ("proceed", 81, 2, "high_score"),
        ]
        told = host.transfer.checkpoint_as("A17", "phases")["context_fields"]
        assert told["iteration_counts"] == {"synthesis.gate": 2}

    def test_after_three_iterations_a_person_is_asked(self, host: Host) -> None:
        result = run(host, process(61, 63, 65, 67))
        assert result.status == "halted" and result.waits[0].node == "synthesis.review"
        assert decisions(host)[-1] == ("escalate", 67, 3, "iteration_limit")

    def test_a_person_may_go_beyond_the_limit_and_is_asked_again(self, host: Host) -> None:
        flow = process(61, 63, 65, 67, 69, 90)
        assert run(host, flow, "iterate").status == "halted"
        assert decisions(host)[-1] == ("escalate", 69, 4, "iteration_limit")
        host.answer(host.waits("A17")[0].id, "iterate")
        assert host.resume("A17", flow)["build"] == "built draft 6"

    def test_a_low_score_asks_a_person_with_everything_to_decide_by(self, host: Host) -> None:
        asked = run(host, process(75, 40)).waits[0]
        assert asked.kind == "choice" and asked.options == ["proceed", "iterate", "abort"]
        assert asked.prompt == "phase_2_synthesis: it scored 40, below 60. Proceed, iterate or abort?"
        assert asked.context["output"] == {"synthesis": {"draft": 2}}
        assert asked.context["scores"] == [75, 40] and asked.context["rule"] == "low_score"

    @pytest.mark.parametrize(
        ("answer", "built"), [("proceed", "built draft 1"), ("iterate", "built draft 2")]
    )
    def test_a_persons_answer_is_what_happens(self, host: Host, answer: str, built: str) -> None:
        assert run(host, process(40, 95), answer)["build"] == built

    def test_only_what_was_asked_can_be_answered(self, host: Host) -> None:
        asked = run(host, process(40)).waits[0]
        with pytest.raises(Exception, match="proceed"):
            host.answer(asked.id, "perhaps")

    def test_an_abort_fails_the_run_by_name_and_a_resume_asks_again(self, host: Host) -> None:
        flow = process(40)
        result = run(host, flow, "abort")
        assert result.status == "failed" and result.error is not None
        assert result.error.code == "phase.aborted" and "phase_2_synthesis" in result.error.message
        again = host.resume("A17", flow)
        assert again.status == "halted" and again.waits[0].node == "synthesis.review"
        host.answer(again.waits[0].id, "proceed")
        assert host.resume("A17", flow)["build"] == "built draft 1"

    def test_a_critical_gate_always_asks(self, host: Host) -> None:
        assert run(host, process(100, critical=True)).status == "halted"
        assert decisions(host) == [("escalate", 100, 0, "critical")]

    def test_scores_that_go_up_and_down_ask_a_person(self, host: Host) -> None:
        assert run(host, process(65, 75, 62, 88)).status == "halted"
        assert decisions(host)[-1] == ("escalate", 88, 3, "oscillation")

    @pytest.mark.parametrize(
        ("key", "value", "rule"),
        [
            ("circuit_breaker_state", {"cost": {"state": "open"}}, "breaker_open"),
            ("health", [{"status": "critical"}], "health_critical"),
        ],
    )
    def test_an_open_breaker_and_critical_health_ask_a_person(
        self, host: Host, key: str, value: Any, rule: str
    ) -> None:
        flow = process(99)
        host.run(flow, {"topic": "tea"}, run_id="A17", channel={key: value})
        assert decisions(host) == [("escalate", 99, 0, rule)]

    def test_a_question_without_an_answer_has_the_declared_answer(self, host: Host) -> None:
        flow = process(40, timeout="8h", default="abort")
        host.run(flow, {"topic": "tea"}, run_id="A17")
        host.waiting.fire(host.waits("A17")[0].id)
        result = host.resume("A17", flow)
        assert result.error is not None and result.error.code == "phase.aborted"

    @pytest.mark.parametrize("score", ["high", None, float("nan")])
    def test_what_is_no_score_fails_the_gate(self, host: Host, score: Any) -> None:
        result = run(host, process(score))
        assert result.error is not None and result.error.code == "gate.bad_decision"
        assert "synthesis.gate" in result.error.message

    def test_a_decision_is_kept_with_its_rule_and_a_hash_of_what_was_judged(self, host: Host) -> None:
        run(host, process(60, 90))
        one, other = channel(host, "gate_history")
        assert one["gate_id"] == "synthesis.gate" and one["phase"] == "phase_2_synthesis"
        assert len(one["input_hash"]) == 64 and one["input_hash"] != other["input_hash"]
        run(host, process(70, 90), run_id="A18")
        assert channel(host, "gate_history", "A18")[0]["input_hash"] == one["input_hash"]

    def test_an_iteration_may_go_on_from_what_the_phase_gave_before(self, host: Host) -> None:
        def draft(topic: str, draft: str = "") -> str:
            return draft + topic

        gate = ScoredGate(lambda draft: 10 * len(draft), iterate=10)
        flow = phases("p", [Phase("draft", draft, gate=gate), Phase("end", lambda draft: draft)])
        assert run(host, flow)["end"] == "tea" * 3

    def test_async_functions_score_and_work_too(self, host: Host) -> None:
        async def work(topic: str) -> str:
            await asyncio.sleep(0)
            return topic

        async def score(work: str) -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"score": 88, "notes": "fine"}

        flow = phases("p", [Phase("work", work, gate=ScoredGate(score))])
        assert run(host, flow)["work"] == "tea"
        assert channel(host, "gate_history")[0]["details"] == {"notes": "fine"}


class TestPhases:
    def test_each_checkpoint_says_why_it_was_taken(self, host: Host) -> None:
        run(host, process(70, 40, 90), "iterate")
        assert triggers(host) == [
            *("admission", "phase_complete", "step", "phase_complete", "gate_decision", "iteration"),
            *("phase_complete", "gate_decision", "escalation", "gate_decision", "iteration"),
            *("phase_complete", "gate_decision", "phase_complete", "completed"),
        ]
        priorities = {str(c.trigger): (c.metadata or {}).get("priority") for c in host.history("A17")}
        assert priorities["iteration"] == "medium"
        assert (
            priorities["phase_complete"] == priorities["escalation"] == priorities["gate_decision"] == "high"
        )
        assert priorities["admission"] is None

    def test_a_flow_of_phases_is_strong_unless_it_says_otherwise(self) -> None:
        assert process(1).durability.mode == "strong"
        assert phases("p", [Phase("a", discover)], durability="partial").durability.mode == "partial"

    def test_wrong_inputs_keep_a_phase_from_being_called(self, host: Host) -> None:
        called: list[Any] = []

        def plan(discovery: dict[str, Any]) -> Any:
            called.append(discovery)

        schema = {"type": "object", "required": ["risks"]}
        flow = phases("p", [Phase("discovery", discover), Phase("plan", plan, takes={"discovery": schema})])
        result = run(host, flow)
        assert result.error is not None and result.error.code == "phase.bad_input" and not called
        assert "phase_1_plan was not begun" in result.error.message and "risks" in result.error.message

    def test_a_reference_to_nothing_keeps_a_phase_from_being_called(self, host: Host) -> None:
        def plan() -> dict[str, Any]:
            return {"steps": [{"of": "tea"}, {"of": "gone"}]}

        def check(plan: dict[str, Any]) -> str:
            return "checked"

        refers = {"plan.steps.of": "discovery.findings.id"}
        flow = phases(
            "p", [Phase("discovery", discover), Phase("plan", plan), Phase("check", check, refers=refers)]
        )
        result = run(host, flow)
        assert result.error is not None and "'gone'" in result.error.message

    def test_an_input_that_a_phase_takes_must_be_given(self, host: Host) -> None:
        flow = phases("p", [Phase("work", lambda: 1, takes={"budget": int})])
        with pytest.raises(InputError, match="budget"):
            host.run(flow, {})
        result = host.run(flow, {"budget": "much"}, run_id="A17")
        assert result.error is not None and "budget is 'much' (str), not int" in result.error.message

    def test_wrong_outputs_are_fixed_and_warned_of(self, host: Host, events: list[Event]) -> None:
        schema = {"type": "object", "properties": {"risks": {"default": []}}, "required": ["risks"]}
        flow = phases("p", [Phase("discovery", discover, gives={"discovery": schema})])
        assert run(host, flow)["discovery"] == {"findings": [{"id": "tea"}], "risks": []}
        assert channel(host, "warnings") == [
            "phase_0_discovery: discovery.risks is missing; the default [] took its place."
        ]
        assert [e.data["name"] for e in events if e.kind == "emitted"] == ["warning"]

    def test_several_outputs_are_told_apart(self, host: Host) -> None:
        def split(topic: str) -> tuple[str, int]:
            return topic, len(topic)

        flow = phases(
            "p",
            [
                Phase("split", split, output=("word", "size"), gives={"size": {"maximum": 2, "default": 0}}),
                Phase("join", lambda word, size: f"{word}{size}"),
            ],
        )
        assert run(host, flow)["join"] == "tea0"

    def test_a_node_keeps_what_it_says_of_itself(self, host: Host) -> None:
        tries: list[int] = []

        @node(output="words", retry=1)
        def work(text: str, ctx: Context) -> list[str]:
            tries.append(ctx.attempt)
            if ctx.attempt == 1:
                raise ConnectionError
            return text.split()

        flow = phases("p", [Phase("work", work.with_inputs(text="topic"), takes={"topic": str})])
        assert run(host, flow)["words"] == ["tea"] and tries == [1, 2]

    def test_lessons_are_kept_and_a_change_of_them_is_warned_of(
        self, host: Host, events: list[Event], caplog: pytest.LogCaptureFixture
    ) -> None:
        def flow_with(*lessons: str) -> Flow:
            return phases(
                "p",
                [Phase("work", discover, gate=ScoredGate(lambda work: 50)), Phase("more", lambda: 1)],
                lessons=lessons,
            )

        run(host, flow_with("be brief"))
        host.answer(host.waits("A17")[0].id, "proceed")
        with caplog.at_level(logging.WARNING):
            result = host.resume("A17", flow_with("be brief", "be bold"))
        assert result.status == "completed" and channel(host, "lessons") == ["be brief"]
        assert "lessons changed since the run began (1 new)" in caplog.text
        assert ["lessons changed" in w for w in channel(host, "warnings")] == [True]
        (told,) = [e.data["resume"]["phases"] for e in events if e.kind == "run_resumed"]
        assert len(told["warnings"]) == 1

    def test_reserved_keys_outlive_a_resume(self, host: Host) -> None:
        def work(ctx: Context) -> int:
            for key in ("health", "errors", "lessons", "warnings"):
                ctx.channel.append(key, "one")
            ctx.channel.set("api_metrics", {"search": {"calls": 3}})
            ctx.channel.set("fallback_flags", {"search": True})
            return 1

        flow = phases("p", [Phase("work", work, gate=ScoredGate(lambda work: 1)), Phase("more", lambda: 2)])
        host.run(flow, {}, run_id="A17")
        host.answer(host.waits("A17")[0].id, "proceed")
        host.resume("A17", flow)
        told = host.transfer.checkpoint_as("A17", "phases")
        snapshot, fields = told["state_snapshot"], told["context_fields"]
        assert (
            snapshot["health_history"]
            == snapshot["errors_encountered"]
            == snapshot["active_lessons"]
            == ["one"]
        )
        assert fields["api_metrics"] == {"search": {"calls": 3}} and fields["fallback_flags"] == {
            "search": True
        }

    def test_declared_channel_keys_do_not_keep_phases_from_theirs(self, host: Host) -> None:
        def work(ctx: Context) -> int:
            ctx.channel.set("mine", 3)
            return 1

        gate = ScoredGate(lambda work: 90)
        flow = phases("p", [Phase("work", work, gate=gate)], channel={"mine": int})
        assert host.run(flow, {}, run_id="A17").status == "completed"
        assert decisions(host) == [("proceed", 90, 0, "high_score")]


class TestFlowsAsPhases:
    @pytest.fixture
    def inner(self) -> Flow:
        @node(output="read")
        def look(topic: str) -> str:
            return topic + "!"

        @node(output="facts")
        def sort(read: str, ctx: Context) -> dict[str, Any]:
            return {"text": read, "path": ctx.path}

        return Flow("reading", [look, sort])

    def test_a_flow_is_a_phase_with_contracts_and_a_gate(self, host: Host, inner: Flow) -> None:
        schema = {"type": "object", "properties": {"n": {"default": 1}}, "required": ["n"]}
        flow = phases(
            "p",
            [
                Phase("intro", lambda topic: len(topic)),
                Phase(
                    "reading", inner, takes={"topic": str}, gives={"facts": schema}, gate=ScoredGate(_by_path)
                ),
                Phase("end", lambda facts: facts["path"]),
            ],
        )
        result = run(host, flow)
        assert result["facts"] == {"text": "tea!", "path": "reading@2/sort", "n": 1}
        assert result["end"] == "reading@2/sort"
        assert [t for t in triggers(host) if t in ("phase_complete", "gate_decision", "iteration")] == [
            *("phase_complete", "phase_complete", "gate_decision", "iteration"),
            *("phase_complete", "gate_decision", "phase_complete"),
        ]
        told = host.transfer.checkpoint_as("A17", "phases")["state_snapshot"]["phase_outputs"]["phase_1"]
        assert told["facts"]["n"] == 1 and told["read"] == "tea!" and "reading__raw__facts" not in told

    def test_its_inputs_are_checked_before_it_begins(self, host: Host, inner: Flow) -> None:
        flow = phases("p", [Phase("reading", inner, takes={"topic": {"minLength": 5}})])
        result = run(host, flow)
        assert result.error is not None and result.error.code == "phase.bad_input"
        assert "reading/look" not in host.state("A17").nodes

    def test_finished_steps_inside_a_phase_are_not_done_again(self, host: Host) -> None:
        done: list[str] = []

        @node(output="first")
        def first(topic: str) -> str:
            done.append("first")
            return topic

        @node(output="second")
        def second(first: str) -> str:
            done.append("second")
            if done.count("second") == 1:
                raise ConnectionError
            return first

        flow = phases(
            "p", [Phase("inner", Flow("inner", [first, second])), Phase("end", lambda second: second)]
        )
        assert run(host, flow).status == "failed"
        assert host.resume("A17", flow)["end"] == "tea" and done == ["first", "second", "second"]

    def test_streams_maps_and_waits_become_flows_of_their_own(self, host: Host) -> None:
        def words(topic: str) -> Iterator[str]:
            yield from topic

        @node(output="double")
        def double(letter: str) -> str:
            return letter * 2

        flow = phases(
            "p",
            [
                Phase("words", words, replayable=True),
                Phase("doubles", double.with_inputs(letter="words").map_over("letter")),
                Phase("signed", wait.question("signed", kind="text")),
                Phase("end", lambda double, signed: "".join(double) + signed),
            ],
        )
        assert run(host, flow, " ok")["end"] == "tteeaa ok"

    def test_a_process_for_each_item_of_a_list_counts_its_own_iterations(self, host: Host) -> None:
        def work(topic: str, ctx: Context) -> str:
            return f"{topic}{ctx.visit}"

        scores = {"a1": 70, "a2": 70, "a3": 90, "b1": 75, "b2": 75, "b3": 75, "b4": 85}
        inner = phases("each", [Phase("work", work, gate=ScoredGate(lambda work: scores[work]))])
        flow = Flow("all", [inner.as_node().map_over("topic")], durability="strong")
        result = host.run(flow, {"topic": ["a", "b"]}, run_id="A17")
        assert result["work"] == ["a3", "b4"]
        kept = channel(host, "gate_history")
        assert sorted((one["gate_id"], one["iteration"]) for one in kept) == [
            *(("each#0/work.gate", n) for n in range(3)),
            *(("each#1/work.gate", n) for n in range(4)),
        ]

    def test_a_process_may_be_a_phase_of_another(self, host: Host) -> None:
        inner = process(70, 90)
        flow = phases(
            "outer",
            [Phase("inner", inner, gate=ScoredGate(lambda build: 85)), Phase("end", lambda build: build)],
        )
        assert run(host, flow)["end"] == "built draft 2"
        told = host.transfer.checkpoint_as("A17", "phases")
        assert told["state_snapshot"]["gate_history"] == [
            {"gate_id": "inner.gate", "decision": "proceed", "score": 85, "iteration": 0}
        ]
        assert [one["gate_id"] for one in channel(host, "gate_history")] == [
            *["inner/synthesis.gate"] * 2,
            "inner.gate",
        ]

    def test_a_gate_is_no_phase(self) -> None:
        @route("a")
        def gate() -> str:
            return "a"

        with pytest.raises(BadRequest, match="gate="):
            Phase("x", gate)


def _by_path(facts: dict[str, Any]) -> int:
    return 90 if "@2" in facts["path"] else 60
