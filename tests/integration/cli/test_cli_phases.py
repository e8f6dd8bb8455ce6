"""What the command line shows of a process made of phases."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from everstep.cli.live.tree import LiveTree
from everstep.cli.main import cli
from examples.ten_phases import flow
from tests.architecture.sources import ROOT

EXAMPLE = str(ROOT / "examples" / "ten_phases.py")
Shell = Callable[..., Result]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    def run(*command: str) -> Result:
        return CliRunner().invoke(cli, [*command, "--store", f"sqlite:///{tmp_path}/runs.db"])

    return run


@pytest.fixture
def halted(shell: Shell) -> Result:
    return shell("run", EXAMPLE, "--input", "goal=a shed", "--run-id", "shed")


def test_a_run_that_asks_a_person_says_what_and_how_to_answer(halted: Result) -> None:
    assert "phase_2_synthesis_v1: it scored 84, and a person always decides here." in halted.stdout
    assert "--choose proceed" in halted.stdout and "or iterate, abort" in halted.stdout


def test_show_tells_scores_and_leaves_out_gates_that_were_not_reached(shell: Shell, halted: Result) -> None:
    shown = shell("show", "shed").stdout
    assert "→ synthesis_v1, scored 85, proceed (high score)" in shown
    assert "→ synthesis_v1.review, scored 84, escalate (critical)" in shown
    assert "specification" in shown and "specification.gate" not in shown and "gate_history" not in shown
    assert "discovery.again" not in shown


def test_log_tells_triggers_and_scores(shell: Shell, halted: Result) -> None:
    lines = shell("log", "shed").stdout.splitlines()
    assert [line.split()[2] for line in lines if ".gate@" in line] == ["gate_decision", "gate_decision"]
    assert any("escalation" in line and "synthesis_v1.review@1" in line for line in lines)
    assert any("→ synthesis_v1; scored 85, proceed (high score)" in line for line in lines)
    told = json.loads(shell("log", "shed", "--json").stdout)["checkpoints"]
    decided = [one["metadata"] for one in told if one["trigger"] == "gate_decision"]
    assert [(one["score"], one["rule"], one["priority"]) for one in decided] == [
        (85, "high_score", "high"),
        (84, "critical", "high"),
    ]


def test_resume_says_where_it_goes_on_and_what_it_has_cost(shell: Shell, halted: Result) -> None:
    assert shell("answer", "shed", "--choose", "proceed").exit_code == 0
    resumed = shell("resume", "shed")
    assert "on to human_review, 4 phases completed, $3.75 so far" in resumed.stderr
    assert "stress_test_v1.gate → stress_test_v1.again" in resumed.stderr


def test_the_live_tree_leaves_out_gates_that_were_not_reached() -> None:
    screen = StringIO()
    console = Console(file=screen, width=100, height=60)
    console.print(LiveTree(flow, console=console).draw())
    assert "discovery" in screen.getvalue() and "discovery.gate" not in screen.getvalue()
    assert "more nodes" not in screen.getvalue()
