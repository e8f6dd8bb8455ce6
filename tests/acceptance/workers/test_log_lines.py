"""Log lines of a worker as its own process: each is a JSON object with the same fields, whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everstep import Host
from tests.acceptance.workers.logged_flow import talks

FLOW = Path(__file__).with_name("logged_flow.py")
FIELDS = ["time", "level", "logger", "message", "run", "step", "attempt", "request_id"]
SECRET = "et_" + "A" * 43


def worked(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Have a worker drive one run that says much and fails."""
    url = f"sqlite:///{folder}/runs.db"
    with Host(url) as host:
        host.start(talks, {"token": SECRET}, run_id="t1")
    command = [sys.executable, "-m", "everstep", "worker", str(FLOW), "--store", url, "--once", *options]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=60, cwd=folder
    )


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_every_line_of_a_worker_is_one_json_object_with_the_same_fields(tmp_path: Path) -> None:
    done = worked(tmp_path, "--log-format", "json")
    assert (done.returncode, done.stdout) == (0, "")
    said = lines(done.stderr)
    assert [list(line)[:8] for line in said] == [FIELDS] * len(said)
    assert {name for line in said for name in line} - {*FIELDS} == {"error"}
    by_logger = {line["logger"]: line for line in said}
    here = {"run": "t1", "step": "speak", "attempt": 1, "request_id": None}
    for logger, message in (
        ("shop", "in the node: password=…"),
        ("stdout", "printed"),
        ("stderr", "to stderr"),
        ("py.warnings", f"UserWarning: careful with et_… ({FLOW}:"),
    ):
        line = by_logger[logger]
        assert line["message"].startswith(message)
        assert {name: line[name] for name in here} == here
    durable = next(line for line in said if line["message"] == "in the durable call")
    assert (durable["step"], durable["attempt"]) == ("speak/$look", 1)
    again = next(line for line in said if line["message"] == "again")
    assert (again["step"], again["attempt"]) == ("speak", 2)
    thread = next(line for line in said if "error" in line)
    assert (thread["error"]["type"], thread["level"]) == ("KeyError", "error")
    [failed] = [line for line in said if line["message"].startswith("run failed: talks")]
    assert (failed["level"], failed["run"], failed["logger"]) == ("warning", "t1", "everstep.worker")
    assert SECRET not in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.slow
def test_with_json_events_stay_on_stdout_and_log_lines_are_json_too(tmp_path: Path) -> None:
    done = worked(tmp_path, "--json", EVERSTEP_LOG_LEVEL="error", EVERSTEP_LOG_FORMAT="json")
    assert [event["event"] for event in lines(done.stdout)] == ["claimed", "failed", "stopped"]
    said = lines(done.stderr)
    assert {line["logger"] for line in said} == {"stderr", "everstep"}  # what is printed is never lost
    assert {line["level"] for line in said if line["logger"] == "everstep"} == {"error"}


@pytest.mark.slow
def test_text_lines_have_time_level_and_place(tmp_path: Path) -> None:
    done = worked(tmp_path)
    [line] = [line for line in done.stderr.splitlines() if "in the node" in line]
    assert line.endswith(" WARNING shop: in the node: password=… [run t1, step speak, attempt 1]")
    assert line[:4].isdigit()
    assert "printed" in done.stdout


@pytest.mark.slow
def test_a_worker_that_waits_for_its_store_and_gives_up_says_so_in_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "everstep", "worker", str(FLOW), "--log-format", "json"]
    command += ["--store", "redis://127.0.0.1:1/0", "--give-up-after", "100ms"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    said = lines(done.stderr)
    assert [list(line)[:8] for line in said] == [FIELDS] * len(said)
    assert [line["message"].partition(" (")[0].partition(": ")[0] for line in said] == [
        "store unavailable",
        "command failed",
    ]
    assert [line["level"] for line in said] == ["warning", "error"]
