"""`everstep worker` as a shell sees it: separate processes, signals, lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT
from tests.servers import warm

FLOWS = """
import time
from pathlib import Path
from everstep import Flow, node, wait

@node(output="n")
def count(start: int):
    print("a node prints")
    return start + 1

ok = wait.question("ok", prompt="Go on?", notify="desk")

@node(output="end")
def last(n: int, ok: bool):
    return [n, ok]

asks = Flow("asks", [count, ok, last])

@node(output="first")
def begin():
    Path("began").touch()
    return 1

@node(output="slept")
def sleep(first: int):
    while not Path("hurry").exists():
        time.sleep(0.02)
    return True

slow = Flow("slow", [begin, sleep])

@node(output="x")
def fail():
    raise ValueError("no way")

fails = Flow("fails", [fail])

notifiers = {"desk": lambda notice: Path("told").write_text(notice.prompt)}
"""

Everstep = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., warm.Process]


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_") and k != "NO_COLOR"}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def everstep(tmp_path: Path) -> Everstep:
    (tmp_path / "flows.py").write_text(FLOWS)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(
            [sys.executable, "-m", "everstep", *words],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=30,
        )

    return call


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[warm.Process] = []

    def call(*words: str) -> warm.Process:
        process = warm.Process(
            [sys.executable, "-u", "-m", "everstep", *words],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        return process

    yield call
    for process in begun:
        process.kill()
        process.communicate()


def next_event(process: warm.Process) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line
    return json.loads(line)


def status_of(everstep: Everstep, run_id: str) -> str:
    return str(json.loads(everstep("show", run_id, "--json").stdout)["status"])


def test_a_worker_takes_up_what_was_accepted_and_what_was_answered(
    everstep: Everstep, tmp_path: Path
) -> None:
    everstep("run", "flows.py:asks", "-i", "start=1", "--run-id", "A", "--start")
    first = everstep("worker", "flows.py", "--once")
    assert first.returncode == 0, first.stderr
    assert "claimed    A  asks  from checkpoint 1" in first.stdout
    assert "halted     A  asks  waits for ok (a yes or no)" in first.stdout
    assert "worker claimed 1 run: 1 halted" in first.stderr
    assert (tmp_path / "told").read_text() == "Go on?"
    assert everstep("worker", "flows.py", "--once").stdout == ""
    everstep("answer", "A", "--yes")
    second = everstep("worker", "--flow", "flows.py:asks", "--once")
    assert "completed  A  asks" in second.stdout


def test_lines_of_json_tell_of_each_run_and_nothing_else(everstep: Everstep) -> None:
    everstep("run", "flows.py:asks", "-i", "start=1", "--run-id", "A", "--start")
    everstep("run", "flows.py:fails", "--run-id", "F", "--start")
    done = everstep("worker", "flows.py", "--once", "--json", "--per-flow", "asks=1")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(e["event"], e.get("run_id")) for e in events} == {
        *(("claimed", "A"), ("claimed", "F"), ("halted", "A"), ("failed", "F"), ("stopped", None)),
    }
    assert events[-1]["failed"] == events[-1]["halted"] == 1
    assert "a node prints" in done.stderr


def test_a_worker_goes_on_when_an_answer_comes(everstep: Everstep, start: Start) -> None:
    worker = start("worker", "flows.py", "--json")
    everstep("run", "flows.py:asks", "-i", "start=1", "--run-id", "A", "--start")
    assert [next_event(worker)["event"] for _ in range(2)] == ["claimed", "halted"]
    everstep("answer", "A", "--no")
    assert [next_event(worker)["event"] for _ in range(2)] == ["claimed", "completed"]
    worker.send_signal(signal.SIGTERM)
    assert next_event(worker)["event"] == "stopped"
    assert worker.wait(timeout=20) == 0


def test_the_first_signal_lets_runs_end(everstep: Everstep, start: Start, tmp_path: Path) -> None:
    everstep("run", "flows.py:slow", "--run-id", "S", "--start")
    worker = start("worker", "flows.py", "--json")
    assert next_event(worker)["event"] == "claimed"
    worker.send_signal(signal.SIGINT)
    (tmp_path / "hurry").touch()
    assert next_event(worker)["event"] == "completed"
    assert worker.wait(timeout=20) == 0


def test_the_second_signal_hands_runs_back_at_once(everstep: Everstep, start: Start, tmp_path: Path) -> None:
    everstep("run", "flows.py:slow", "--run-id", "S", "--start")
    worker = start("worker", "flows.py")
    assert worker.stdout is not None
    assert worker.stderr is not None
    assert "claimed" in worker.stdout.readline()
    worker.send_signal(signal.SIGTERM)
    while "once more to hand them back" not in worker.stderr.readline():
        pass
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 130
    assert json.loads(everstep("show", "S", "--json").stdout)["is_driven"] is False
    (tmp_path / "hurry").touch()
    assert everstep("worker", "flows.py", "--once").returncode == 0
    assert status_of(everstep, "S") == "completed"


def test_a_run_whose_worker_was_killed_is_found_by_the_next(
    everstep: Everstep, start: Start, tmp_path: Path
) -> None:
    everstep("run", "flows.py:slow", "--run-id", "S", "--start")
    worker = start("worker", "flows.py", "--json")
    assert next_event(worker)["event"] == "claimed"
    worker.kill()
    worker.wait(timeout=20)
    (tmp_path / "hurry").touch()
    assert "completed  S  slow" in everstep("worker", "flows.py", "--once").stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "a worker needs a flow to drive."),
        (["flows.py", "--per-flow", "asks"], "--per-flow 'asks' is not NAME=N."),
        (["flows.py", "--per-flow", "other=1"], "this worker drives no flow 'other'."),
        (["nowhere.py"], "there is no file nowhere.py."),
        (["flows.py", "--concurrency", "0"], "--concurrency"),
    ],
)
def test_a_worker_that_cannot_work_says_why(everstep: Everstep, words: list[str], complaint: str) -> None:
    done = everstep("worker", *words)
    assert done.returncode == 2
    assert complaint in done.stderr
