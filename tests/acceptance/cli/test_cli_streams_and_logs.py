"""What nodes emit, log and print, as other processes and a shell see it, also when a process is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.test_cli_worker import environment
from tests.servers import warm

FLOWS = """
import os, signal, time
from pathlib import Path
from everstep import Context, Flow, node

def until(name):
    while not Path(name).exists():
        time.sleep(0.01)

@node(output="first")
def speaks(n: int, ctx: Context):
    for k in range(n):
        print("saying", k)
        ctx.emit("said", k=k)
    until("go on")
    return n

@node
def dies(first: int, ctx: Context):
    print("about to die")
    ctx.emit("dying")
    until("die")
    if not Path("spared").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return 1

flow = Flow("speaking", [speaks, dies], streams=True, logs=True, durability="strong")
"""
Everstep = Any


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(FLOWS)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Everstep]:
    begun: list[warm.Process] = []

    def call(*words: str) -> warm.Process:
        command = [sys.executable, "-u", "-m", "everstep", *words]
        piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        begun.append(warm.Process(command, cwd=folder, env=environment(), **piped))
        return begun[-1]

    yield call
    for process in begun:
        process.kill()
        process.communicate()


def until_said(process: warm.Process, kind: str, name: str = "") -> list[dict[str, Any]]:
    """Read events up to one."""
    found: list[dict[str, Any]] = []
    assert process.stdout is not None
    while line := process.stdout.readline():
        found.append(json.loads(line))
        if found[-1]["kind"] == kind and found[-1]["data"].get("name", "") == name:
            return found
    raise AssertionError(f"no {kind} among {found}")


def test_another_process_follows_a_run_through_the_death_of_its_owner(folder: Path, start: Everstep) -> None:
    driving = start("run", "flows.py:flow", "-i", "n=3", "--run-id", "A")
    assert driving.stdout is not None
    assert driving.stdout.readline() == "saying 0\n"
    following = start("log", "A", "--follow", "--json")
    said = until_said(following, "emitted", "said")
    said += until_said(following, "emitted", "said") + until_said(following, "emitted", "said")
    (folder / "go on").touch()
    until_said(following, "emitted", "dying")
    until_logged(start, "A", "dies", "about to die\n")
    (folder / "die").touch()
    assert driving.wait(timeout=30) == -9
    (folder / "spared").touch()
    resumed = start("resume", "A", "flows.py:flow")
    rest = until_said(following, "run_ended")
    assert resumed.wait(timeout=30) == 0
    emitted = [event for event in said + rest if event["kind"] == "emitted"]
    assert [event["data"]["name"] for event in emitted] == ["said", "said", "said", "dying"]
    epoch = [int(event["id"].partition("~")[2].partition(".")[0]) for event in emitted]
    assert epoch[:3] == [1, 1, 1] and epoch[3] > 1, "the new owner emits in another epoch"
    logs = json.loads(start("show", "A", "dies", "--json").communicate(timeout=30)[0])["logs"]
    assert [log["text"] for log in logs] == ["about to die\n", "about to die\n"], "of the dead one, too"
    assert logs[0]["epoch"] < logs[1]["epoch"]
    shown = start("show", "A", "speaks").communicate(timeout=30)[0]
    assert "log       attempt 1 of speaks@1\n    saying 0\n    saying 1\n    saying 2\n" in shown


def until_logged(start: Everstep, run_id: str, step: str, text: str) -> None:
    """Wait until what a step printed can be seen from outside."""
    for _ in range(100):
        told = start("show", run_id, step, "--json").communicate(timeout=30)[0]
        if told and [log["text"] for log in json.loads(told).get("logs", ())] == [text]:
            return
    raise AssertionError(told)


def test_a_run_shows_what_its_nodes_emit(folder: Path, start: Everstep) -> None:
    for name in ("go on", "die", "spared"):
        (folder / name).touch()
    done = start("run", "flows.py:flow", "-i", "n=2", "--run-id", "A")
    shown = done.communicate(timeout=30)[1]
    assert "  · speaks  said  k=0\n  · speaks  said  k=1\n" in shown
    lines = start("log", "A", "--follow").communicate(timeout=30)[0].splitlines()
    assert [line.partition("  ")[2] for line in lines[1:4]] == [
        "· speaks  said  k=0",
        "· speaks  said  k=1",
        lines[3].partition("  ")[2],
    ]
    assert lines[-1].endswith("run A completed")
