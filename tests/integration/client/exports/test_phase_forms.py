"""Runs made of phases in the shape that others keep checkpoints of phases in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from everstep import Context, Flow, Host, Retention, node
from everstep.cli.main import cli
from everstep.phases import Phase, ScoredGate, phases
from everstep.testing import ManualClock
from examples.ten_phases import flow as ten_phases
from tests.integration.runtime.bundles.carried import START

TOP = [
    "checkpoint_id",
    "run_id",
    "timestamp",
    "trigger",
    "phase",
    "sequence_number",
    "state_snapshot",
    "context_fields",
]
SNAPSHOT = [
    *("phase_outputs", "current_phase_state", "gate_history", "circuit_breaker_state", "cost_accumulated"),
    *("health_history", "errors_encountered", "active_lessons"),
]
CONTEXT = ["api_metrics", "fallback_flags", "iteration_counts", "warnings"]
TRIGGERS = {
    *("phase_complete", "gate_decision", "circuit_breaker", "escalation", "iteration", "cost_threshold"),
    *("expensive_op", "destructive_op", "manual"),
}
PHASES = ["0", "0_5", *map(str, range(1, 9))]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Host(f"sqlite:///{tmp_path}/runs.db", clock=ManualClock(START, auto=True)) as opened:
        yield opened


@pytest.fixture
def done(host: Host) -> list[dict[str, Any]]:
    """Every checkpoint of a run of the ten phases."""
    result = host.run(ten_phases, {"goal": "a bicycle shed"}, run_id="shed")
    while result.status == "halted":
        host.answer(result.waits[0].id, "proceed")
        result = host.resume("shed", ten_phases)
    assert result.status == "completed", result.error
    return [
        host.transfer.checkpoint_as("shed", "phases", at=info.sequence) for info in host.checkpoints("shed")
    ]


def test_every_checkpoint_has_exactly_the_fields_of_the_shape(done: list[dict[str, Any]]) -> None:
    for number, told in enumerate(done, 1):
        assert list(told) == TOP and told["sequence_number"] == number
        assert list(told["state_snapshot"]) == SNAPSHOT and list(told["context_fields"]) == CONTEXT
        assert told["trigger"] in TRIGGERS and re.fullmatch(r"phase_\d+(_\d+)?_[a-z0-9_]+", told["phase"])
        assert UUID(told["checkpoint_id"]).version == 4 == UUID(told["run_id"]).version
        assert list(told["state_snapshot"]["phase_outputs"]) == [f"phase_{n}" for n in PHASES]
        assert list(told["state_snapshot"]["current_phase_state"]) == [
            *("phase", "started_at", "progress", "partial_output"),
        ]
        assert json.loads(json.dumps(told)) == told


def test_phases_have_their_own_numbers_and_outputs_once_they_are_done(done: list[dict[str, Any]]) -> None:
    labels = list(dict.fromkeys(told["phase"] for told in done))
    assert labels[:3] == ["phase_0_initialization", "phase_0_5_hardening", "phase_1_discovery"]
    assert labels[-1] == "phase_8_retrospective" and len(labels) == 10
    for told in done:
        outputs = told["state_snapshot"]["phase_outputs"]
        known = [output is not None for output in outputs.values()]
        assert known == sorted(known, reverse=True)
        assert told["trigger"] != "phase_complete" or outputs[_key(told["phase"])] is not None
    assert done[0]["state_snapshot"]["phase_outputs"]["phase_0"] is None
    last = done[-1]["state_snapshot"]["phase_outputs"]
    assert last["phase_0_5"]["hardening"]["checks"] == ["keys", "quota", "disk"]
    assert last["phase_8"]["report"].startswith("3 parts built")


def _key(label: str) -> str:
    return re.match(r"phase_\d+(_\d+)?", label)[0]  # type: ignore[index]


def test_an_output_says_how_it_came_about(done: list[dict[str, Any]]) -> None:
    told = done[-1]["state_snapshot"]["phase_outputs"]["phase_3"]["metadata"]
    assert told["phase"] == "phase_3_stress_test_v1" and told["run_id"] == done[-1]["run_id"]
    assert (told["iteration_count"], told["gate_score"], told["cost_usd"]) == (1, 84, 1.5)
    assert told["duration_ms"] >= 0 and told["timestamp"].startswith("2026-11-15T12:")
    assert told["health_summary"] == {"phase": "hardening", "status": "ok"}
    first = done[-1]["state_snapshot"]["phase_outputs"]["phase_0"]["metadata"]
    assert len(first["warnings"]) == 1 and first["gate_score"] is None


def test_gates_and_people_are_told_in_order(done: list[dict[str, Any]]) -> None:
    history = done[-1]["state_snapshot"]["gate_history"]
    assert [list(one) for one in history] == [["gate_id", "decision", "score", "iteration"]] * 11
    assert [tuple(one.values()) for one in history[:5]] == [
        ("discovery.gate", "proceed", 85, 0),
        ("synthesis_v1.gate", "escalate", 84, 0),
        ("synthesis_v1.gate", "proceed", 84, 0),
        ("stress_test_v1.gate", "iterate", 72, 0),
        ("stress_test_v1.gate", "proceed", 84, 1),
    ]
    for before, after in pairwise(done):
        one, other = (told["state_snapshot"]["gate_history"] for told in (before, after))
        assert other[: len(one)] == one
    counts = done[-1]["context_fields"]["iteration_counts"]
    assert counts.pop("stress_test_v1.gate") == 1 and set(counts.values()) == {0} and len(counts) == 6


def test_cost_warnings_and_lessons_are_told(done: list[dict[str, Any]]) -> None:
    snapshot, fields = done[-1]["state_snapshot"], done[-1]["context_fields"]
    assert snapshot["cost_accumulated"] == 20.75 and len(fields["warnings"]) == 2
    assert snapshot["active_lessons"][0] == "Ask for numbers early."
    costs = [told["state_snapshot"]["cost_accumulated"] for told in done]
    assert costs == sorted(costs) and costs[0] == 0


def test_the_gate_history_says_who_decided_and_why(host: Host) -> None:
    def work() -> int:
        return 1

    flow = phases("p", [Phase("work", work, gate=ScoredGate(lambda work: 1)), Phase("more", work)])
    host.run(flow, {}, run_id="A18")
    host.answer(host.waits("A18")[0].id, "proceed", by="ada", comment="good enough")
    host.resume("A18", flow)
    asked, decided = host.transfer.checkpoint_as("A18", "phases")["state_snapshot"]["gate_history"]
    assert asked.keys() == {"gate_id", "decision", "score", "iteration"}
    assert (decided["decision"], decided["by"], decided["comment"]) == ("proceed", "ada", "good enough")
    assert decided["how"] == "claimed"


def test_an_abort_and_a_failure_are_told(host: Host) -> None:
    def work() -> int:
        return 1

    flow = phases("p", [Phase("work", work, gate=ScoredGate(lambda work: 1)), Phase("more", work)])
    host.run(flow, {}, run_id="A17")
    host.answer(host.waits("A17")[0].id, "abort")
    host.resume("A17", flow)
    told = host.transfer.checkpoint_as("A17", "phases")["state_snapshot"]
    assert [one["decision"] for one in told["gate_history"]] == ["escalate", "abort"]
    assert told["errors_encountered"][0]["type"] == "PhaseAborted"


def test_what_a_flow_has_done_of_its_phase_is_told(host: Host) -> None:
    @node(output="first")
    def first() -> str:
        return "one"

    @node(output="second")
    def second(first: str, ctx: Context) -> str:
        raise ConnectionError

    flow = phases("p", [Phase("inner", Flow("inner", [first, second])), Phase("more", lambda: 1)])
    host.run(flow, {}, run_id="A17")
    told = host.transfer.checkpoint_as("A17", "phases")
    assert told["phase"] == "phase_0_inner" and told["state_snapshot"]["phase_outputs"]["phase_0"] is None
    assert told["state_snapshot"]["current_phase_state"]["partial_output"] == {"first": "one"}


def test_a_fork_and_a_trimmed_run_tell_the_same(host: Host, done: list[dict[str, Any]]) -> None:
    host.fork("shed", fork_id="F1")
    told = host.transfer.checkpoint_as("F1", "phases")["state_snapshot"]
    assert told["gate_history"] == done[-1]["state_snapshot"]["gate_history"]
    assert told["phase_outputs"].keys() == done[-1]["state_snapshot"]["phase_outputs"].keys()


def test_the_command_line_says_the_same(host: Host, done: list[dict[str, Any]], tmp_path: Path) -> None:
    command = ["export", "shed", "--form", "phases", "--store", f"sqlite:///{tmp_path}/runs.db"]
    printed = CliRunner().invoke(cli, command)
    assert json.loads(printed.stdout) == done[-1]


def test_a_summary_counts_phases_and_what_was_spent(host: Host, done: list[dict[str, Any]]) -> None:
    assert host.run(ten_phases, {"goal": "?"}, run_id="newer").status == "failed"
    host.retention.gc(retention=Retention(keep_last=1))
    (gone,) = host.retention.removed()
    assert gone.summary is not None
    assert (gone.summary.phases_completed, gone.summary.total_cost_usd) == (10, 20.75)


def test_in_a_folder_each_checkpoint_is_called_by_its_number_and_trigger(tmp_path: Path) -> None:
    with Host(f"file:{tmp_path}") as host:
        host.run(ten_phases, {"goal": "a shed"}, run_id="shed")
        host.answer(host.waits("shed")[0].id, "proceed")
        host.resume("shed", ten_phases)
    names = sorted(path.name for path in (tmp_path / "checkpoints" / "shed").iterdir())
    assert "cp_002_phase_complete.json" in names and "latest.json" in names
    assert names[9:12] == ["cp_010_gate_decision.json", "cp_011_escalation.json", "cp_012_gate_decision.json"]
