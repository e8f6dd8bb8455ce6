"""At a shell a search goes on by itself for a while, although each call looks at so many runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import everstep.cli.commands.runs.list
import everstep.cli.commands.runs.tag
import everstep.runtime.operations.count
import everstep.runtime.operations.find
from everstep import Flow, Host, node
from everstep.cli.commands.runs.list import runs
from everstep.cli.commands.runs.tag import count

OLD = "id = A0 or id = A1"


@node(output="done")
def work(n: int) -> int:
    return n


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten runs, of which a call looks at three."""
    monkeypatch.chdir(tmp_path)
    Path(".everstep").mkdir()
    for module in (everstep.runtime.operations.find, everstep.runtime.operations.count):
        monkeypatch.setattr(module, "EXAMINED", 3)
    with Host("sqlite:///.everstep/runs.db") as host:
        for n in range(10):
            host.run(Flow("counted", [work]), {"n": n}, run_id=f"A{n}")


def call(command: Any, *words: str) -> Result:
    return CliRunner().invoke(command, words)


def listed(*words: str) -> tuple[list[str], str | None]:
    told = json.loads(call(runs, "--json", *words).output)
    return [run["run_id"] for run in told["runs"]], told["next"]


def test_runs_of_long_ago_are_listed_by_one_command() -> None:
    assert listed("--where", OLD) == (["A1", "A0"], None)
    assert listed("--where", OLD, "--limit", "1") == (["A1"], "A1")
    assert listed("--where", OLD, "--limit", "1", "--before", "A1") == (["A0"], "A0")
    assert "not all runs" not in call(runs, "--where", OLD).output


def test_runs_are_counted_by_one_command() -> None:
    told = json.loads(call(count, "--where", "status is set", "--json").output)
    assert (told["runs"], told["next"]) == ({"completed": 10}, None)


def test_what_takes_too_long_says_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (everstep.cli.commands.runs.list, everstep.cli.commands.runs.tag):
        monkeypatch.setattr(module, "_PATIENCE", 0)
    told = call(runs, "--where", OLD).output
    assert told == "no runs so far\nnot all runs were looked at; go on with --before A7\n"
    told = call(count, "--where", "status is set").output
    assert "completed  3\n" in told and "not all runs were looked at; count on with --before A7" in told
