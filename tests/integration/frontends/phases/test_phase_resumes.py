"""Where runs made of phases go on, after crashes, changes and breakers; and gates that ask."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Breaker, Context, Flow, Host, Retry, node, route, wait
from everstep.phases import Phase, ScoredGate, phases
from everstep.results import Event
from everstep.wait import Wait
from tests.integration.frontends.phases.processes import decisions, process, run, triggers


class TestResume:
    def crash_at(self, host: Host, flow: Flow, trigger: str, nth: int = 1) -> Any:
        """Fork a run from a checkpoint and resume it: what a crash right behind it comes to."""
        found = [info for info in host.checkpoints("A17") if info.trigger == trigger]
        host.fork("A17", at=found[nth - 1].sequence, fork_id="F1")
        return host.run(flow, run_id="F1")

    def points(self, events: list[Event]) -> list[Any]:
        told = [
            e.data["resume"].get("phases") for e in events if e.kind == "run_resumed" and e.run_id == "F1"
        ]
        return [(one["point"], one["completed"]) for one in told]

    @pytest.mark.parametrize(
        ("trigger", "nth", "point", "completed"),
        [
            ("admission", 1, "phase_1_discovery", []),
            ("phase_complete", 1, "phase_2_synthesis", ["phase_1_discovery"]),
            ("phase_complete", 2, "phase_2_synthesis_gate", ["phase_1_discovery", "phase_2_synthesis"]),
            ("gate_decision", 1, "phase_2_synthesis", ["phase_1_discovery"]),
            ("iteration", 1, "phase_2_synthesis", ["phase_1_discovery"]),
            ("gate_decision", 2, "phase_3_build", ["phase_1_discovery", "phase_2_synthesis"]),
        ],
    )
    def test_a_run_goes_on_where_its_newest_checkpoint_says(
        self, host: Host, events: list[Event], trigger: str, nth: int, point: str, completed: list[str]
    ) -> None:
        flow = process(60, 90)
        run(host, flow)
        result = self.crash_at(host, flow, trigger, nth)
        assert result["build"] == "built draft 2"
        assert self.points(events) == [(point, completed)]
        assert decisions(host, "F1") == decisions(host)

    def test_a_run_that_waits_for_a_person_is_resumed_at_human_review(
        self, host: Host, events: list[Event]
    ) -> None:
        flow = process(40)
        run(host, flow)
        host.fork("A17", fork_id="F1")
        assert host.run(flow, run_id="F1").status == "halted"
        assert self.points(events) == [("human_review", ["phase_1_discovery", "phase_2_synthesis"])]

    def test_a_recorded_decision_is_not_computed_again(self, host: Host) -> None:
        run(host, process(90))
        flow = process(10)
        assert self.crash_at(host, flow, "gate_decision")["build"] == "built draft 1"
        assert decisions(host, "F1") == [("proceed", 90, 0, "high_score")]

    def test_a_phase_without_a_recorded_decision_is_judged_on_resume(self, host: Host) -> None:
        run(host, process(90))
        assert self.crash_at(host, process(10), "phase_complete", 2).status == "halted"
        assert decisions(host, "F1") == [("escalate", 10, 0, "low_score")]

    def test_a_fork_from_an_iteration_goes_back_to_before_it(self, host: Host) -> None:
        run(host, process(70, 20))
        at = next(i.sequence for i in host.checkpoints("A17") if i.trigger == "iteration")
        before = host.state("A17", at=at)
        assert before["synthesis"] == {"draft": 1}
        host.fork("A17", at=at, fork_id="F1", state={"discovery": {"findings": []}})
        result = host.run(process(70, 85), run_id="F1")
        assert result["build"] == "built draft 2" and result["discovery"] == {"findings": []}
        assert decisions(host, "F1")[0] == decisions(host)[0]
        assert decisions(host, "F1")[1] == ("proceed", 85, 1, "high_score")

    def test_cost_so_far_is_told(self, host: Host, events: list[Event]) -> None:
        def work(ctx: Context) -> int:
            ctx.channel.atomic_add("cost_accumulated", 2.5)
            return 1

        flow = phases("p", [Phase("work", work, gate=ScoredGate(lambda work: 1)), Phase("more", lambda: 2)])
        host.run(flow, {}, run_id="A17")
        host.answer(host.waits("A17")[0].id, "proceed")
        host.resume("A17", flow)
        (told,) = [e.data["resume"]["phases"] for e in events if e.kind == "run_resumed"]
        assert told["cost"] == 2.5

    def test_other_flows_tell_nothing_of_phases(self, host: Host, events: list[Event]) -> None:
        flow = Flow("plain", [wait.question("ok")])
        host.run(flow, {}, run_id="A17")
        host.resume("A17", flow)
        assert "phases" not in next(e for e in events if e.kind == "run_resumed").data["resume"]


class TestChanges:
    def halted(self, host: Host) -> None:
        assert host.run(self.changed(), {}, run_id="A17").status == "halted"
        host.answer(host.waits("A17")[0].id, "proceed")

    def changed(self, *more: Phase, number: int = 0) -> Flow:
        gate = ScoredGate(lambda work: 50)
        return phases("p", [Phase("work", _left, number=number, gate=gate), Phase("end", _right), *more])

    def test_a_phase_may_be_added_while_a_run_is_under_way(self, host: Host) -> None:
        self.halted(host)
        flow = self.changed(Phase("more", lambda end: end + "!"))
        assert host.resume("A17", flow)["more"] == "right!"

    def test_phases_may_be_numbered_anew_while_a_run_is_under_way(self, host: Host) -> None:
        self.halted(host)
        assert host.resume("A17", self.changed(number=3)).status == "completed"
        told = host.transfer.checkpoint_as("A17", "phases")
        assert told["phase"] == "phase_4_end"
        assert told["state_snapshot"]["phase_outputs"]["phase_3"]["metadata"]["gate_score"] == 50

    def test_a_worker_drives_phases_to_a_question_and_behind_it(self, host: Host) -> None:
        flow = self.changed()
        host.start(flow, {}, run_id="A17")
        assert host.work([flow], until_idle=True).halted == 1
        host.answer(host.waits("A17")[0].id, "proceed")
        assert host.work([flow], until_idle=True).completed == 1


class TestHaltingGates:
    def test_an_answer_may_choose_what_comes_next(self, host: Host) -> None:
        @route("left", "right", halts=True)
        def ask(ctx: Context) -> Wait:
            ctx.checkpoint({"why": "a fork in the road"}, trigger="escalation")
            return Wait(kind="choice", options=["left", "right"])

        left, right = node(output="went")(_left), node(output="gone")(_right)
        flow = Flow("roads", [ask, left.with_name("left"), right.with_name("right")], durability="strong")
        assert host.run(flow, {}, run_id="A17").status == "halted"
        host.answer(host.waits("A17")[0].id, "right")
        assert dict(host.resume("A17", flow)) == {"gone": "right"}
        asked = next(c for c in host.history("A17") if c.trigger == "escalation")
        assert asked.metadata is not None
        assert asked.metadata["why"] == "a fork in the road" and asked.metadata["priority"] == "high"
        assert host.run(flow, run_id="A17")["gone"] == "right"

    def test_a_checkpoint_is_taken_for_a_reason_that_is_known(self, host: Host) -> None:
        @node(output="x")
        def work(ctx: Context) -> int:
            ctx.checkpoint(trigger="because")
            return 1

        result = host.run(Flow("p", [work]), {})
        assert result.error is not None and "phase_complete" in result.error.message


def _left() -> str:
    return "left"


def _right() -> str:
    return "right"


class TestGuards:
    def test_a_breaker_that_a_phase_opens_leaves_its_gate_to_a_person(self, host: Host) -> None:
        def draft(ctx: Context) -> int:
            ctx.spend(usd=3)
            return 1

        flow = phases(
            "p",
            [Phase("draft", draft, gate=ScoredGate(lambda draft: 95)), Phase("more", lambda: 2)],
            breakers=[Breaker("expensive", nodes=["draft"], cost={"usd": 2})],
        )
        host.run(flow, {}, run_id="A17")
        assert decisions(host) == [("escalate", 95, 0, "breaker_open")]
        assert "circuit_breaker" in triggers(host)
        told = host.transfer.checkpoint_as("A17", "phases")["state_snapshot"]
        assert told["circuit_breaker_state"]["expensive"]["state"] == "open" and told["cost_accumulated"] == 3
        host.answer(host.waits("A17")[0].id, "proceed")
        assert host.resume("A17", flow)["more"] == 2

    def test_a_run_whose_breaker_tripped_is_resumed_at_human_review(
        self, host: Host, events: list[Event]
    ) -> None:
        calls: list[int] = []

        def fetch(ctx: Context) -> int:
            calls.append(ctx.attempt)
            if len(calls) < 3:
                raise ConnectionError
            return 1

        flow = phases(
            "p",
            [
                Phase("intro", lambda: 0),
                Phase("fetch", fetch, retry=Retry(3, first=0), gate=ScoredGate(lambda fetch: 95)),
            ],
            breakers=[Breaker("api", nodes=["fetch"], failures=2)],
        )
        host.run(flow, {}, run_id="A17")
        host.fork("A17", fork_id="F1")
        assert host.run(flow, run_id="F1").status == "halted"
        (told,) = [e.data["resume"]["phases"] for e in events if e.kind == "run_resumed"]
        assert (told["point"], told["completed"]) == ("human_review", ["phase_0_intro"])
        host.answer(host.waits("A17")[0].id, {"approved": True})
        assert host.resume("A17", flow).status == "completed" and len(calls) == 3

    def test_an_expensive_phase_is_told_as_complete(self, host: Host) -> None:
        flow = phases("p", [Phase("work", lambda: 1, expensive=True), Phase("more", lambda: 2)])
        host.run(flow, {}, run_id="A17")
        assert triggers(host)[1] == "phase_complete"

    def test_what_was_spent_is_told_on_resume(self, host: Host, events: list[Event]) -> None:
        def work(ctx: Context) -> int:
            ctx.spend(usd="0.10")
            ctx.spend(usd="0.20")
            return 1

        flow = phases("p", [Phase("work", work, gate=ScoredGate(lambda work: 1)), Phase("more", lambda: 2)])
        host.run(flow, {}, run_id="A17")
        host.answer(host.waits("A17")[0].id, "proceed")
        host.resume("A17", flow)
        (told,) = [e.data["resume"]["phases"] for e in events if e.kind == "run_resumed"]
        assert told["cost"] == 0.3
        metadata = host.transfer.checkpoint_as("A17", "phases")["state_snapshot"]["phase_outputs"]["phase_0"][
            "metadata"
        ]
        assert metadata["cost_usd"] == 0.3

    def test_a_run_may_be_resumed_at_a_phase(self, host: Host, events: list[Event]) -> None:
        flow = process(90, 95)
        run(host, flow)
        assert host.resume("A17", flow, start="synthesis")["build"] == "built draft 2"
        (told,) = [e.data["resume"]["phases"] for e in events if e.kind == "run_resumed"]
        assert told["point"] == "phase_2_synthesis"
