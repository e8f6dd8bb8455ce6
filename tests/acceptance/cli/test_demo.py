"""The demo keeps what it promises, and notices when it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everstep import Status
from everstep.cli.demo.command import DemoState, verify
from tests.architecture.sources import ROOT


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_")}
    return {**kept, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everstep", *words]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)


def test_demo_kills_a_process_goes_on_in_another_and_checks_itself(tmp_path: Path) -> None:
    done = run("demo", "--fast", "--keep", str(tmp_path / "a folder"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "☠ kill -9" in done.stdout
    assert "✓ finished before the kill and not run again: reserve, charge, invoice" in done.stdout
    assert "✓ 2 requests to the bank, 1 idempotency key, 1 payment" in done.stdout
    assert "✗" not in done.stdout
    assert "\x1b" not in done.stdout
    [suggested] = [line for line in done.stdout.splitlines() if "everstep log" in line]
    log = subprocess.run(suggested, shell=True, env=environment(), capture_output=True, text=True, timeout=60)
    assert log.returncode == 0, log.stderr
    assert "receipt = " in log.stdout


def test_demo_does_not_write_into_a_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    done = run("demo", "--fast", "--keep", str(tmp_path))
    assert done.returncode == 2
    assert [p.name for p in tmp_path.iterdir()] == ["precious"]


def call(node: str, pid: int) -> dict[str, object]:
    return {"node": node, "pid": pid, "key": ""}


def request(key: str, *, took_money: bool) -> dict[str, object]:
    return {"key": key, "cents": 1, "took_money": took_money}


BANK = [request("k", took_money=True), request("k", took_money=False)]
CALLS = [call("charge", 1), call("pack", 1), call("pack", 2)]
BEFORE = DemoState(Status.RUNNING, {"charge": 1}, "k", CALLS[:2], BANK, 1)
AFTER = DemoState(Status.COMPLETED, {"charge": 1, "pack": 1}, "k", CALLS, BANK, 2)


def test_all_claims_hold_for_a_good_run() -> None:
    assert [check.holds for check in verify(BEFORE, AFTER)] == [True] * 4


@pytest.mark.parametrize(
    ("number", "after"),
    [
        (0, AFTER._replace(status=Status.FAILED)),
        (1, AFTER._replace(calls=[*CALLS, call("charge", 2)])),
        (1, AFTER._replace(done={"charge": 2, "pack": 1})),
        (2, AFTER._replace(bank=[*BANK, request("other", took_money=True)])),
        (2, AFTER._replace(bank=[*BANK, request("k", took_money=True)])),
        (3, AFTER._replace(calls=CALLS[:2])),
    ],
)
def test_a_broken_promise_is_noticed(number: int, after: DemoState) -> None:
    assert [k for k, check in enumerate(verify(BEFORE, after)) if not check.holds] == [number]
