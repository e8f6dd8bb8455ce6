"""Runs kept as files, while system calls fail or the process dies in the middle of one: nothing is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from everstep import Host, Status
from tests.acceptance.crash.file_flow import STEPS, flow_in

ROOT = Path(__file__).resolve().parents[3]
NO_STRACE = "No strace here, which makes system calls fail: install it (Debian: apt install strace)."
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason=NO_STRACE)
KILLED = 128 + 9


class Ended(NamedTuple):
    exit: int
    said: dict[str, Any]
    calls: Counter[str]


def run_with(folder: Path, *faults: str) -> Ended:
    """Run the flow in a process of its own, with faults as strace injects them."""
    log = folder / "strace.log"
    command = ["strace", "-f", "-o", str(log), "-e", "trace=fsync,linkat,renameat"]
    for fault in faults:
        command += ["-e", f"inject={fault}"]
    program = [sys.executable, "-m", "tests.acceptance.crash.file_flow", str(folder)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(
        command + program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    calls = Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))
    assert not done.stderr or done.returncode < 0 or "Traceback" not in done.stderr, done.stderr
    said = json.loads(done.stdout) if done.stdout.strip() else {}
    return Ended(done.returncode, said, calls)


def judge(folder: Path) -> None:
    """Resume the run here, and find that what was recorded did not run again."""
    effects = folder / "effects"
    began = Counter(effects.read_text().split()) if effects.exists() else Counter()
    with Host(f"file://{folder}/runs") as host:
        known = host.runs()
        recorded = {
            step.path
            for record in (host.history("run-1") if known else [])
            for step in record.steps
            if step.status is Status.COMPLETED
        }
        result = host.run(flow_in(folder), {"t0": 0}, run_id="run-1")
        assert result[f"t{STEPS}"] == STEPS
        assert not any(found.flaws for found in host.storage.verify("run-1"))
    ended = Counter(effects.read_text().split())
    for name in (f"add{k}" for k in range(STEPS)):
        again = ended[name] - began[name]
        assert again == (0 if name in recorded else 1), name
    latest = json.loads((folder / "runs/checkpoints/run-1/latest.json").read_text())
    assert latest["status"] == "completed"


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often a run that nothing happens to makes each call."""
    if shutil.which("strace") is None:
        pytest.skip(NO_STRACE)
    whole = run_with(tmp_path_factory.mktemp("whole"))
    assert (whole.exit, whole.said) == (0, {"status": "completed", "total": STEPS})
    return whole.calls


@needs_strace
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        ("fsync", "EIO", "Input/output error"),
        ("fsync", "ENOSPC", "No space left on device"),
        ("linkat", "ENOSPC", "No space left on device"),
        ("linkat", "EDQUOT", "Disk quota exceeded"),
    ],
)
def test_a_call_that_fails_loses_nothing_and_is_named_unless_there_is_room_again(
    call: str, error: str, says: str, calls: Counter[str], tmp_path: Path
) -> None:
    for share in (0.5, 0.9):
        folder = tmp_path / f"{share}"
        folder.mkdir()
        ended = run_with(folder, f"{call}:error={error}:when={int(calls[call] * share)}")
        if ended.exit != 0 or error == "EIO":
            assert ended.exit == 1, ended
            assert ended.said["code"] == ("store.failed" if error == "EIO" else "store.not_writable"), ended
            assert says in ended.said["message"] and ended.said["fix"], ended
        judge(folder)


@needs_strace
@pytest.mark.parametrize("call", ["fsync", "linkat"])
def test_a_process_that_dies_inside_a_write_leaves_a_run_that_goes_on(
    call: str, calls: Counter[str], tmp_path: Path
) -> None:
    killed = 0
    for share in (0.2, 0.4, 0.6, 0.8, 1.0):
        folder = tmp_path / f"{share}"
        folder.mkdir()
        ended = run_with(folder, f"{call}:signal=KILL:when={int(calls[call] * share)}")
        killed += ended.exit != 0
        judge(folder)
    assert killed >= 3


@needs_strace
def test_an_interrupted_link_is_not_taken_for_a_conflict(calls: Counter[str], tmp_path: Path) -> None:
    ended = run_with(tmp_path, f"linkat:error=EEXIST:when={calls['linkat'] // 2}")
    assert ended.exit == 0 or ended.said["code"].startswith("store."), ended
    judge(tmp_path)
