"""The example of notices, killed again and again, with a receiver that is down half of the time.

Each notice comes at least once, under one id, and none of a run that was erased. `EVERSTEP_SOAK=1` makes
a thousand runs fail.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from everstep import Host, notify
from everstep.runtime.system import SystemClock
from tests.acceptance.told.night_watcher import Ahead
from tests.architecture.sources import ROOT
from tests.servers import warm

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SHOPS = 2000 if IS_SOAK else 16
"""Every other report fails."""
KILLS = 60 if IS_SOAK else 3
PATIENCE = 1200.0 if IS_SOAK else 120.0
SECRET = "between you and me"


class Got(NamedTuple):
    """A POST that the receiver took."""

    key: str
    run_id: str
    occasion: str
    life: int


class Receiver(ThreadingHTTPServer):
    """Answers every other call with an error, having read it or not, and checks who signed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[Got] = []
        self.unsigned: list[str] = []
        self.calls = 0
        self.life = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/night"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        receiver, told = self.server, json.loads(body)
        with receiver.lock:
            receiver.calls += 1
            is_up = receiver.calls % 2 == 0
            key = self.headers["Idempotency-Key"]
            if is_up:
                receiver.got.append(Got(key, told["run_id"], told["occasion"], receiver.life))
            # Its time is moved, so how old a signature is says nothing here.
            signature, now = self.headers["X-Everstep-Signature"], SystemClock().now()
            if not notify.verify(body, signature, SECRET, now=now, tolerance=10**9):
                receiver.unsigned.append(key)
        self.send_response(204 if is_up else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_every_failure_is_told_though_the_sender_is_killed_and_the_receiver_down(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOPS", str(SHOPS))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    url, hours, chance = f"sqlite:///{tmp_path}/runs.db", tmp_path / "hours", Random(22)
    erased: dict[str, int] = {}
    program = [sys.executable, "-m", "tests.acceptance.told.night_watcher", url, receiver.url, str(hours)]
    until = time.monotonic() + PATIENCE
    ends: list[int] = []
    while not (ends and ends[-1] == 0):
        assert time.monotonic() < until
        receiver.life += 1
        with warm.Process(program, cwd=ROOT) as child:
            if receiver.life > KILLS:
                while child.poll() is None:
                    assert time.monotonic() < until
                    calls = receiver.calls
                    time.sleep(0.3)
                    if receiver.calls == calls:  # nothing is under way: what failed is due again
                        _pass_an_hour(hours)
                ends.append(child.wait(PATIENCE))
            else:
                _wait_for_calls(receiver, chance.randint(1, 4), child)
                time.sleep(chance.uniform(0, 0.1))
                child.kill()
                ends.append(child.wait(PATIENCE))
        _pass_an_hour(hours)  # what was taken by the dead is due again
        if receiver.life <= KILLS:
            _erase_one(url, Ahead(hours), receiver.life, erased)
    assert ends.count(-9) >= KILLS // 2, "it was killed"
    _judge(url, receiver, erased)


def _pass_an_hour(hours: Path) -> None:
    with hours.open("a") as file:
        file.write("one more hour\n")


def _wait_for_calls(receiver: Receiver, more: int, child: warm.Process) -> None:
    enough, until = receiver.calls + more, time.monotonic() + 5
    while receiver.calls < enough and child.poll() is None and time.monotonic() < until:
        time.sleep(0.005)


def _erase_one(url: str, clock: Ahead, life: int, erased: dict[str, int]) -> None:
    """Erase a run that has failed, while no process lives that could be sending."""
    with Host(url, clock=clock) as host:
        failed = [row.run_id for row in host.runs(status="failed", limit=SHOPS)]
        if failed:
            host.retention.erase(failed[0])
            erased[failed[0]] = life


def _judge(url: str, receiver: Receiver, erased: dict[str, int]) -> None:
    with Host(url) as host:
        failed = {row.run_id for row in host.runs(status="failed", limit=SHOPS)}
        infos = {info.id: info for info in host.notices.find(limit=10 * SHOPS)}
    assert len(failed) == SHOPS // 2 - len(erased)
    assert erased
    assert receiver.unsigned == []
    assert {info.state for info in infos.values()} == {"sent"}
    assert {info.run_id for info in infos.values() if info.occasion == "failed"} == failed
    keys: dict[tuple[str, str], set[str]] = {}
    for one in receiver.got:
        keys.setdefault((one.run_id, one.occasion), set()).add(one.key)
        # Where hours pass before all reports were made, some are overdue.
        assert one.occasion in ("failed", "overdue")
        if one.run_id in erased:
            assert one.life <= erased[one.run_id], "it came after its run was erased"
    for info in infos.values():
        assert keys[info.run_id, info.occasion] == {info.id}
    print(f"{len(receiver.got)} of {receiver.calls} calls taken, {len(infos)} notices, {len(erased)} erased")
