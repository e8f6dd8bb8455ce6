"""`everstep serve` as its own process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from click.testing import CliRunner

from everstep import Host
from everstep.cli.commands.fleet.serve import serve
from everstep.errors import BadRequest, StoreUnavailable
from everstep.server import serving
from tests.architecture.sources import PACKAGE
from tests.servers import warm

TOKEN = "a-token-of-the-process"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
FLOWS = """
from everstep import Flow, node, wait


@node(output="summary")
def summarise(amount: int) -> dict:
    return {"amount": amount}


@node(output="verdict")
def conclude(decision) -> str:
    return "paid" if decision.approved else "refused"


flow = Flow("expense", [summarise, wait.approval("decision", context="summary"), conclude])
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVERSTEP_")}
    return {**kept, "PYTHONPATH": str(PACKAGE.parent), "PYTHONUNBUFFERED": "1", **more}


class Process:
    """A serving process: where it listens, and what it has printed."""

    def __init__(self, folder: Path, *arguments: str, flows: str = FLOWS, **more: str) -> None:
        (folder / "expenses.py").write_text(flows)
        command = [sys.executable, "-m", "everstep", "serve", "--store", "runs.db", "--port", "0", *arguments]
        self._process = warm.Process(
            command,
            cwd=folder,
            env=environment(**more),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        self.printed = first = self._process.stderr.readline()
        found = re.search(r"listening at (\S+),", first)
        assert found is not None, first + self._process.stderr.read()
        self.address = found[1]

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM, within: float = 30) -> int:
        self._process.send_signal(number)
        _, rest = self._process.communicate(timeout=within)
        self.printed += rest
        return self._process.wait()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def process(folder: Path, *arguments: str, flows: str = FLOWS, **more: str) -> Iterator[Process]:
    started = Process(folder, *arguments, flows=flows, **more)
    try:
        yield started
    finally:
        started.end()


def until(client: httpx.Client, path: str, text: str) -> httpx.Response:
    """Ask until the answer holds a text; what is waited for happens in another process."""
    for _ in range(500):
        response = client.get(path)
        if text in response.text:
            return response
        time.sleep(0.02)
    raise AssertionError(f"{path} never said {text}: {response.text}")


@pytest.mark.slow
def test_a_run_is_started_approved_on_its_page_and_finished(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    arguments = ("--flow", "expenses.py", "--token-file", "token")
    (tmp_path / "key").write_text("k" * 32)
    with process(tmp_path, *arguments, "--key-file", "key") as served:
        with httpx.Client(base_url=served.address, headers=BEARER) as client:
            started = client.post("/runs", json={"flow": "expense", "inputs": {"amount": 7}, "run_id": "A1"})
            assert started.status_code == 202
            link = until(client, "/waits", "et_").json()["waits"][0]["link"]
            assert link.startswith(f"{served.address}/w/et_")
            assert "amount" in httpx.get(link).text
            with client.stream("GET", "/runs/A1/events") as stream:
                assert httpx.post(link, data={"approved": "true"}).status_code == 200
                kinds = [line.split(": ")[1] for line in stream.iter_lines() if line.startswith("event: ")]
            assert kinds[0] == "run_started"
            assert kinds[-1] == "run_ended"
            state = client.get("/runs/A1/state").json()
            assert (state["status"], state["values"]["verdict"]) == ("completed", "paid")
        assert served.stop() == 0
    assert "POST /w/… 200" in served.printed
    assert served.printed.endswith("stopped\n")
    assert link.rpartition("/")[2] not in served.printed
    assert "Traceback" not in served.printed


@pytest.mark.slow
def test_an_open_stream_does_not_hold_up_the_end(tmp_path: Path) -> None:
    arguments = ("--flow", "expenses.py", "--no-auth", "-q")
    with (
        process(tmp_path, *arguments) as served,
        httpx.Client(base_url=served.address, timeout=20) as client,
    ):
        client.post("/runs", json={"flow": "expense", "inputs": {"amount": 7}, "run_id": "A1"})
        until(client, "/runs/A1", "halted")
        for _ in range(2):  # a caller that goes away early leaves nothing behind
            with client.stream("GET", "/runs/A1/events") as stream:
                assert next(line for line in stream.iter_lines() if "run_halted" in line)
        with client.stream("GET", "/runs/A1/events") as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if "run_halted" in line)
            assert served.stop(signal.SIGINT) == 0
            assert not [line for line in lines if line.startswith("event: ")]
        assert "Traceback" not in served.printed


@pytest.mark.slow
def test_a_second_signal_hands_a_stuck_run_back_at_once(tmp_path: Path) -> None:
    stuck = FLOWS.replace("    return {", "    import time; time.sleep(600)\n    return {")
    with (
        process(tmp_path, "--flow", "expenses.py", "--no-auth", flows=stuck) as served,
        httpx.Client(base_url=served.address) as client,
    ):
        client.post("/runs", json={"flow": "expense", "inputs": {"amount": 7}, "run_id": "A1"})
        until(client, "/runs/A1", '"is_driven": true')
        served.tell(signal.SIGTERM)
        with pytest.raises(httpx.HTTPError):
            until(client, "/healthz", "no longer")
        assert served.stop(within=serving.GRACE - 2) == 0
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        assert not host.info("A1").is_driven


@pytest.mark.slow
def test_it_drives_as_many_runs_as_it_may_and_gives_them_as_long_as_it_is_told(tmp_path: Path) -> None:
    stuck = FLOWS.replace("    return {", "    import time; time.sleep(600)\n    return {")
    arguments = ("--no-auth", "--concurrency", "1", "--grace", "200ms")
    with (
        process(tmp_path, "--flow", "expenses.py", *arguments, flows=stuck) as served,
        httpx.Client(base_url=served.address) as client,
    ):
        for run_id in ("A1", "A2"):
            client.post("/runs", json={"flow": "expense", "inputs": {"amount": 7}, "run_id": run_id})
        [worker] = until(client, "/workers", '"driving": 1').json()["workers"]
        assert worker["concurrency"] == 1
        assert served.stop(within=serving.GRACE - 2) == 0
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        assert [run.is_driven for run in host.runs()] == [False, False]


@pytest.mark.slow
def test_without_work_runs_are_left_to_workers(tmp_path: Path) -> None:
    with process(tmp_path, "--flow", "expenses.py", "--no-work", EVERSTEP_HTTP_TOKEN=TOKEN) as served:
        with httpx.Client(base_url=served.address, headers=BEARER) as client:
            client.post("/runs", json={"flow": "expense", "inputs": {"amount": 7}, "run_id": "A1"})
            assert client.get("/runs/A1").json()["status"] == "running"
            left = client.post("/runs/A1/resume")
            assert (left.status_code, left.json()["waits"]) == (202, [])
            assert client.get("/runs/A1").json()["status"] == "running"
            large = client.post("/resume", content=b" " * ((1 << 20) + 1))
            assert large.status_code == 413
        assert served.stop() == 0


REFUSED = [
    ([], {}, "there is no token"),
    (["--no-auth", "--host", "0.0.0.0"], {}, "other machines"),
    (["--no-auth", "--token-file", "token"], {}, "both given"),
    (["--token-file", "nope"], {}, "cannot be read"),
    ([], {"EVERSTEP_HTTP_TOKEN": "short"}, "16 or more"),
    (["--no-auth", "--grace", "-1s"], {}, "--grace"),
    (["--no-auth", "--headers-within", "0s"], {}, "--headers-within"),
    (["--no-auth", "--base-url", "flows.example"], {}, "not a URL"),
    (["--no-auth", "--flow", "a.py", "--flow", "b.py"], {}, "two flows are called expense"),
    (["--no-auth", "--flow", "a.py", "--flow", "c.py"], {}, "two files define 'ann' differently"),
]


@pytest.mark.parametrize(("arguments", "more", "message"), REFUSED)
def test_what_would_not_be_safe_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], more: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERSTEP_HTTP_TOKEN", raising=False)
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    told = "\nnotifiers = {'ann': lambda notice: None}\n"
    (tmp_path / "served_a.py").write_text(FLOWS + told)
    (tmp_path / "served_b.py").write_text(FLOWS)
    (tmp_path / "served_c.py").write_text(FLOWS.replace("expense", "other") + told)
    for name in "abc":
        monkeypatch.setitem(
            sys.modules, f"served_{name}", ModuleType("none")
        )  # so that it is as it was afterwards
        del sys.modules[f"served_{name}"]
    arguments = [re.sub(r"^(\w)\.py$", r"served_\1.py", word) for word in arguments]
    with pytest.raises(BadRequest, match=message):
        serve.main(["--port", "0", *arguments], standalone_mode=False)


def test_the_service_is_loaded_only_when_asked_for_and_names_what_it_lacks() -> None:
    code = """
import sys
import everstep, everstep.cli.main
assert not {"starlette", "uvicorn", "everstep.server"} & sys.modules.keys()
sys.modules["starlette"] = None
everstep.cli.main.main(["serve", "--no-auth"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "serve needs the package starlette" in done.stderr
    assert "pip install 'everstep[web]'" in done.stderr


def test_a_service_waits_for_a_store_that_is_not_there_when_it_begins(tmp_path: Path) -> None:
    file = tmp_path / "expenses.py"
    file.write_text(FLOWS)
    words = ["--flow", str(file), "--no-auth", "--port", "0", "--store", "redis://127.0.0.1:1/0"]
    done = CliRunner().invoke(serve, [*words, "--give-up-after", "100ms"])
    assert isinstance(done.exception, StoreUnavailable)
    assert done.stderr.count("asking again until it is there") == 1
