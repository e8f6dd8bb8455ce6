"""Delayed starts and deadlines at a shell."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from everstep import Host
from everstep.cli.main import cli
from everstep.errors import BadRequest

FLOWS = """
from everstep import Flow, node, wait

@node(output="a")
def first(x: int) -> int:
    return x

orders = Flow("orders", [first])
asking = Flow("asking", [wait.approval("ok", prompt="Pay?")])
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "timed_flows", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))  # puts back what loading the file changes
    (tmp_path / "timed_flows.py").write_text(FLOWS)
    monkeypatch.setenv("COLUMNS", "200")
    with Host("sqlite:///.everstep/runs.db") as opened:
        yield opened


def said(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [*words], standalone_mode=False)
    assert (done.return_value or done.exit_code) == code, (done.output, done.exception)
    return done.output


def test_run_begins_later_and_can_be_started_now(host: Host) -> None:
    told = said(
        *("run", "timed_flows.py:orders", "-i", "x=1", "--run-id", "o1", "--start"),
        *("--at", "2199-01-01T00:00:00Z", "--deadline", "1d"),
    )
    assert "it begins when its time comes" in told
    shown = said("show", "o1")
    assert "begins" in shown
    assert "deadline" in shown
    document = json.loads(said("show", "o1", "--json"))
    assert document["begins_at"] == "2199-01-01T00:00:00+00:00"
    assert document["ends_at"] == "2199-01-02T00:00:00+00:00"
    assert [one["node"] for one in document["waits"]] == ["@start"]
    explained = said("explain", "o1", "timed_flows.py:orders")
    assert "begins: 2199" in explained or "begins: 2198" in explained
    assert "@start" in said("runs")
    assert "@start" in said("waits")
    assert "@deadline" not in said("waits")
    assert "@deadline" in said("waits", "--kind", "deadline")
    assert "waits for its time until" in said("log", "o1")
    said("answer", "o1", "--fire", "--as", "ann")
    assert said("resume", "o1", "timed_flows.py:orders", "--quiet").strip() == "a = 1"
    assert "fired early by ann" in said("log", "o1")


def test_run_without_a_worker_is_left_to_its_time(host: Host) -> None:
    said("run", "timed_flows.py:orders", "-i", "x=1", "--run-id", "o1", "--after", "2h", code=3)
    assert host.info("o1").status == "halted"


@pytest.mark.parametrize(
    "given", [["--at", "tomorrow"], ["--at", "2199-01-01T00:00:00"], ["--deadline", "0s"], ["--after", "x"]]
)
def test_what_is_no_time_is_refused(host: Host, given: list[str]) -> None:
    done = CliRunner().invoke(cli, ["run", "timed_flows.py:orders", "-i", "x=1", "--start", *given])
    assert isinstance(done.exception, BadRequest), done.output
    assert host.runs() == []


def test_resume_gives_a_run_another_deadline(host: Host) -> None:
    said("run", "timed_flows.py:asking", "--run-id", "a1", "--deadline", "1d", code=3)
    before = host.state("a1").ends_at
    said("resume", "a1", "timed_flows.py:asking", "--deadline", "2d", code=3)
    after = host.state("a1").ends_at
    assert before is not None
    assert after is not None
    assert after > before
    assert [one.due_at for one in host.waits("a1", kind="deadline")] == [after]
