"""Checkpoints in the words of others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from everstep import Context, Flow, Host, node, route, wait
from everstep.client.exports.spelling import uuid_of
from everstep.errors import BadRequest
from everstep.testing import ManualClock
from tests.integration.runtime.bundles.carried import START


@node(output=("text", "score"))
def draft(topic: str, text: str, ctx: Context) -> tuple[str, int]:
    ctx.channel.set("cost", ctx.channel.get("cost", 0) + 2.5)
    ctx.channel.set("lessons", ["be brief"])
    return text + topic, len(text + topic)


@route(["draft", "polish"])
def good(score: int) -> Any:
    return "polish" if score > 5 else "draft"


@node(output="final")
def polish(text: str) -> str:
    if text == "bad":
        raise ValueError("no")
    return text.upper()


FLOW = Flow("essay", [draft, good, polish], entry=["draft"], durability="strong")
TRIGGERS = {
    *("phase_complete", "gate_decision", "circuit_breaker", "escalation", "iteration", "cost_threshold"),
    *("expensive_op", "destructive_op", "manual"),
}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Host(f"sqlite:///{tmp_path}/runs.db", clock=ManualClock(START, auto=True)) as opened:
        opened.run(FLOW, {"topic": "abc", "text": ""}, run_id="A17")
        yield opened


class TestPhases:
    def test_every_checkpoint_has_the_required_fields(self, host: Host) -> None:
        for info in host.checkpoints("A17"):
            told = host.transfer.checkpoint_as("A17", "phases", at=info.sequence)
            assert UUID(told["checkpoint_id"]).version == 4 == UUID(told["run_id"]).version
            assert told["timestamp"].startswith("2026-11-15T12:") and told["trigger"] in TRIGGERS
            assert re.fullmatch(r"phase_\d+_[a-z0-9_]+", told["phase"])
            assert told["sequence_number"] == info.sequence
            assert set(told["state_snapshot"]) == {
                *("phase_outputs", "current_phase_state", "gate_history", "circuit_breaker_state"),
                *("cost_accumulated", "health_history", "errors_encountered", "active_lessons"),
            }
            assert set(told["context_fields"]) == {
                *("api_metrics", "fallback_flags", "iteration_counts", "warnings"),
            }
            json.dumps(told)

    def test_the_newest_tells_the_whole_story(self, host: Host) -> None:
        told = host.transfer.checkpoint_as("A17", "004")
        state = told["state_snapshot"]
        assert told["phase"] == "phase_2_polish"
        assert state["phase_outputs"] == {
            "phase_0": {"text": "abcabc", "score": 6},
            "phase_1": None,
            "phase_2": {"final": "ABCABC"},
        }
        assert [(g["gate_id"], g["decision"], g["iteration"]) for g in state["gate_history"]] == [
            ("good", "draft", 1),
            ("good", "polish", 2),
        ]
        assert state["cost_accumulated"] == 5.0 and state["active_lessons"] == ["be brief"]
        assert told["context_fields"]["iteration_counts"] == {"good": 2}

    def test_a_gates_decision_is_called_so(self, host: Host) -> None:
        triggers = [
            host.transfer.checkpoint_as("A17", "phases", at=info.sequence)["trigger"]
            for info in host.checkpoints("A17")
        ]
        assert "gate_decision" in triggers and "phase_complete" in triggers

    def test_errors_are_told(self, host: Host) -> None:
        flow = Flow("alone", [polish], durability="strong")
        host.run(flow, {"text": "bad"}, run_id="B")
        told = host.transfer.checkpoint_as("B", "phases")
        assert told["trigger"] == "circuit_breaker"
        assert told["state_snapshot"]["errors_encountered"][0]["type"] == "ValueError"

    def test_a_run_that_halts_escalates(self, host: Host) -> None:
        host.run(Flow("ask", [wait.approval("agree", prompt="?", output="ok")]), {}, run_id="H")
        assert host.transfer.checkpoint_as("H", "phases")["trigger"] == "escalation"


class TestPipeline:
    NINE = frozenset(
        (
            *("run_id", "pipeline_name", "current_node", "context", "outcome", "node_history"),
            *("goal_gate_status", "timestamp", "fidelity_state"),
        )
    )

    def test_every_checkpoint_has_nine_fields(self, host: Host) -> None:
        for info in host.checkpoints("A17"):
            told = host.transfer.checkpoint_as(f"A17@{info.sequence}", "pipeline")
            assert set(told) == self.NINE
            json.dumps(told)

    def test_the_newest_tells_the_whole_story(self, host: Host) -> None:
        told = host.transfer.checkpoint_as("A17", "001")
        assert (told["run_id"], told["pipeline_name"], told["current_node"]) == ("A17", "essay", "polish")
        assert told["outcome"] == {"status": "success"}
        assert told["context"]["final"] == "ABCABC" and told["context"]["cost"] == 5.0
        assert [name for name, _ in told["node_history"]] == ["draft", "good", "draft", "good", "polish"]
        assert told["goal_gate_status"] == {"good": "satisfied"}

    def test_an_early_one_tells_only_what_was_known_then(self, host: Host) -> None:
        told = host.transfer.checkpoint_as("A17", "pipeline", at=2)
        assert told["current_node"] == "draft" and "final" not in told["context"]
        assert told["goal_gate_status"] == {"good": "pending"}

    def test_a_failure_says_why(self, host: Host) -> None:
        host.run(Flow("alone", [polish], durability="strong"), {"text": "bad"}, run_id="B")
        assert host.transfer.checkpoint_as("B", "pipeline")["outcome"] == {
            "status": "fail",
            "failure_reason": "ValueError: no",
        }


def test_a_form_that_is_none_is_refused(host: Host) -> None:
    with pytest.raises(BadRequest, match="no form"):
        host.transfer.checkpoint_as("A17", "xml")


def test_ids_that_are_no_uuids_become_some_and_always_the_same() -> None:
    own = str(uuid4())
    assert uuid_of(own) == own
    assert uuid_of("A17") == uuid_of("A17") != uuid_of("A18")
    assert UUID(uuid_of("A17")).version == 4
    assert uuid_of("00000000-0000-1000-8000-000000000000") != "00000000-0000-1000-8000-000000000000"
