"""`--ask`: answers are asked for where a run was started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everstep import Host
from everstep.cli.main import cli
from everstep.errors import BadRequest

RELEASE = """digraph release {
  start [shape=Mdiamond]; exit [shape=Msquare]
  agree [shape=hexagon, label="Release it?"]; fix [prompt="Fix it."]
  start -> agree; fix -> agree
  agree -> exit [label="[Y] Yes"]; agree -> fix [label="[N] No"]
}"""
ASKING = """
from everstep import Flow, wait
flow = Flow("asking", [
    wait.question("name", kind="text", prompt="Who?"),
    wait.approval("pay", prompt="Pay?"),
])
"""
TIMED = """
from everstep import Flow, wait
flow = Flow("timed", [wait.timer("later", duration="1h")])
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("release.dot").write_text(RELEASE)
    Path("asked_along.py").write_text(ASKING)
    Path("timed_along.py").write_text(TIMED)


def run(*words: str, typed: str = "") -> Result:
    command = [*words, "--store", "r.db"]
    return CliRunner().invoke(cli, command, input=typed, catch_exceptions=False, standalone_mode=False)


def test_pipeline_asks_until_it_is_done() -> None:
    done = run("run", "release.dot", "--ask", "--run-id", "A17", "--json", typed="n\nperhaps\n1\n")
    assert not done.return_value, done.output
    assert json.loads(done.stdout)["status"] == "completed"
    assert done.stderr.count("Release it?") == 2
    assert "'perhaps' is no option" in done.stderr


def test_any_flow_asks_for_what_people_can_answer() -> None:
    done = run("run", "asked_along.py", "--ask", "--run-id", "B", typed="Ann\napprove\n\nBo\n")
    assert not done.return_value, done.output
    with Host("sqlite:///r.db") as host:
        assert host.state("B")["name"] == "Ann"
        assert host.state("B")["pay"].approver == "Bo"


def test_run_stays_halted_when_no_answer_comes_and_can_be_asked_again() -> None:
    assert run("run", "release.dot", "--ask", "--run-id", "A17").return_value == 3
    done = run("resume", "A17", "--ask", typed="y\n")
    assert not done.return_value, done.output


def test_timer_is_left_to_wait() -> None:
    assert run("run", "timed_along.py", "--ask", "--run-id", "T").return_value == 3


@pytest.mark.parametrize("other", ["--start", "--wait"])
def test_other_ways_to_leave_a_run_do_not_go_with_it(other: str) -> None:
    with pytest.raises(BadRequest, match=f"and {other} does not"):
        run("run", "release.dot", "--ask", other)
