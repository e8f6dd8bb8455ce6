"""Durable calls inside a node, as `resume`, `show` and their errors speak of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everstep.cli.main import cli

FLOWS = """
from everstep import Context, Flow, node, wait


@node(output="sent", halts=True)
def agent(topic: str, ctx: Context) -> bool:
    draft = ctx.step("write", "A page about {}.".format, topic)
    print("has", draft)
    said = ctx.wait(wait.callback("review"))
    return ctx.step("send", bool, said)


flow = Flow("agent", [agent], logs=True)
"""


@pytest.fixture(autouse=True)
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "calls", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))  # puts back what loading the file changes
    (tmp_path / "calls.py").write_text(FLOWS)
    assert shell("run", "calls.py", "-i", "topic=rain", "--run-id", "A17").return_value == 3


def shell(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--store", "runs.db"], standalone_mode=False)


def test_a_resume_counts_the_calls_of_a_node_under_way() -> None:
    assert shell("answer", "A17", '{"by": "Ann"}').return_value is None
    resumed = shell("resume", "A17")
    assert "resumed at checkpoint 3, 1 call inside a node was already done" in resumed.stderr


def test_what_is_recorded_of_a_node_that_waits_in_its_middle_is_explained() -> None:
    told = shell("explain", "A17").stdout
    assert "agent/$review  callback, open; then agent, 1 call inside recorded ($write@1)" in told
    [waiting] = json.loads(shell("explain", "A17", "--json").stdout)["waits"]
    assert waiting["calls"] == ["$write@1"]
    shell("answer", "A17", '{"by": "Ann"}')
    told = shell("explain", "A17").stdout
    assert "agent/$review  callback, settled; then agent\n" in told
    assert told.count("1 call inside recorded ($write@1)") == 1


def test_a_call_is_shown_with_what_it_returned_and_a_wait_with_its_answer() -> None:
    assert "  returned  'A page about rain.'  [" in shell("show", "A17", "agent/$write").stdout
    assert "$" not in shell("show", "A17").stdout.replace("$write", "").replace("$review", "")
    shell("answer", "A17", '{"by": "Ann"}')
    shell("resume", "A17")
    shown = shell("show", "A17", "agent/$review").stdout
    assert "  answer    {'by': 'Ann'}\n" in shown
    assert "settled_at" not in shown


def test_a_call_whose_name_the_shell_took_is_refused_with_how_to_write_it() -> None:
    for lost in ("agent/", "agent/@2"):
        refused = shell("show", "A17", lost)
        assert "write calls inside a node in quotes, 'agent/$model'" in str(refused.exception)


def test_logs_of_one_attempt_in_two_processes_are_told_apart() -> None:
    shell("answer", "A17", '{"by": "Ann"}')
    shell("resume", "A17")
    shown = shell("show", "A17", "agent").stdout
    assert "attempt 1 of agent@1, epoch 1\n" in shown
    assert "attempt 1 of agent@1, epoch 2\n" in shown
