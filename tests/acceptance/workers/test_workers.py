"""Workers on one store that are killed at random: every effect of every run once by its key.

Where the store is a server of its own, that is killed too. `EVERSTEP_SOAK=1` kills for a minute, and lets
workers drive hundreds of runs on files and two thousand on each server.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from everstep import Flow, Host
from everstep.errors import LeaseConflict, StoreError, WaitClosed, WaitSettled
from tests.acceptance.workers.worker_flows import batches, orders, reviews, sleepers
from tests.servers import warm
from tests.servers.postgres import PostgresServer
from tests.servers.running import Server, private
from tests.servers.seaweed import SeaweedServer, key_in_the_environment
from tests.servers.valkey import ValkeyServer

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SECONDS = 60.0 if IS_SOAK else 4.0
PATIENCE = 1200.0 if IS_SOAK else 120.0
FLOWS = Path(__file__).with_name("worker_flows.py")
SERVERS: dict[str, type[Server]] = {"postgres": PostgresServer, "redis": ValkeyServer, "s3": SeaweedServer}
Hire = Callable[..., warm.Process]


class Storm(NamedTuple):
    """How many runs there are while workers are killed, and how often that happens."""

    runs: int
    kills: int
    workers: int


ON_FILES = Storm(500, 40, 3) if IS_SOAK else Storm(15, 4, 3)
ON_SERVERS = Storm(2000, 60, 4) if IS_SOAK else Storm(36, 4, 4)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store that a test names; SQLite if it names none."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def server(kind: str) -> Iterator[Server | None]:
    """The server of the store, which only this test uses and may kill; files have none."""
    if kind not in SERVERS:
        yield None
        return
    with private(SERVERS[kind]) as running, key_in_the_environment() if kind == "s3" else nullcontext():
        yield running


@pytest.fixture
def url(kind: str, server: Server | None, tmp_path: Path) -> str:
    if server is not None:
        return server.url
    return f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else f"file://{tmp_path}/store"


@pytest.fixture
def hire(tmp_path: Path, url: str) -> Iterator[Hire]:
    """Start workers as processes of their own; those left at the end are killed."""
    staff: list[warm.Process] = []
    environment = {**os.environ, "EVERSTEP_EFFECTS": f"{tmp_path}/effects"}

    def start(**more: str) -> warm.Process:
        command = [sys.executable, "-m", "everstep", "worker", str(FLOWS), "--store", url]
        with (tmp_path / f"worker{len(staff)}.txt").open("wb") as said:
            worker = warm.Process(command, stdout=said, stderr=said, env={**environment, **more})
        staff.append(worker)
        return worker

    yield start
    for worker in staff:
        if worker.poll() is None:
            worker.kill()
        worker.wait(20)


def effects(folder: Path) -> list[dict[str, Any]]:
    trace = folder / "effects"
    return [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []


def until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for other processes."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def begin(host: Host, number: int) -> None:
    kinds: list[tuple[Flow, dict[str, Any]]] = [
        (orders, {"amount": number}),
        (reviews, {"topic": f"t{number}"}),
        (batches, {"x": [number, number + 1, number + 2]}),
    ]
    flow, inputs = kinds[number % 3]
    host.start(flow, inputs, run_id=f"r{number}")


def answer_some(host: Host, whims: Random, share: float) -> None:
    """Answer a share of what is open; a worker may be quicker with the same wait's clock."""
    for opened in host.waits(limit=1000):
        if opened.kind != "timer" and whims.random() < share:
            reply = {"approved": True} if opened.kind == "approval" else {"visit": opened.visit}
            try:
                host.answer(opened.id, reply)
            except (WaitSettled, WaitClosed):
                raise AssertionError(f"{opened} was settled by another client") from None


def expected(number: int) -> dict[str, Any]:
    if number % 3 == 0:
        return {"bill": [number], "sent": [number, True, number]}
    if number % 3 == 1:
        return {"draft": f"t{number} 3"}
    return {"half": [(number + k) / 2 for k in range(3)]}


def judge(host: Host, folder: Path, number: int) -> None:
    """Every visit ended once, with one key; every wait was settled once; the values are as they should be."""
    run_id, flow = f"r{number}", (orders, reviews, batches)[number % 3]
    result = host.resume(run_id, flow)
    assert result.status == "completed", result.error
    assert {name: result[name] for name in expected(number)} == expected(number)
    steps = [s for record in host.history(run_id) for s in record.steps]
    ended = Counter((s.path, s.visit) for s in steps if s.status == "completed" and s.ended_at)
    assert set(ended.values()) == {1}, f"{run_id} ended a visit twice: {ended}"
    halts = Counter((s.path, s.visit) for s in steps if s.status == "halted")
    waits = host.waits(run_id, status=None, limit=1000)
    assert halts == Counter((w.node, w.visit) for w in waits)
    assert set(halts.values()) == {1}, f"{run_id} asked twice: {halts}"
    assert {(w.status, w.settled_at is not None) for w in waits} == {("closed", True)}
    by = {w.kind: w.settled_by for w in waits}
    assert all(settled == ("clock" if kind == "timer" else "answer") for kind, settled in by.items())
    keys = {(s.path, s.visit): s.key for s in steps if s.status == "completed" and s.key is not None}
    done = {((e["path"], e["visit"]), e["key"]) for e in effects(folder) if e.get("run") == run_id}
    effectful = {place for place, _ in done}
    assert {(place, key) for place, key in keys.items() if place in effectful} == done
    assert not host.info(run_id).is_driven


@pytest.mark.parametrize("seed", [1, 2] if IS_SOAK else [1])
def test_runs_end_as_they_should_while_three_workers_are_killed_at_random(
    tmp_path: Path, url: str, hire: Hire, seed: int
) -> None:
    whims, kills, count = Random(seed), 0, 0
    with Host(url) as host:
        workers = [hire() for _ in range(3)]
        begun = time.monotonic()
        next_kill = begun + 1.0
        while (now := time.monotonic()) < begun + SECONDS:
            if count < 15 * (1 + (now - begun) / 4):
                begin(host, count)
                count += 1
            answer_some(host, whims, 0.3)
            if now >= next_kill:
                k = whims.randrange(3)
                workers[k].kill()
                workers[k].wait(20)
                workers[k] = hire()
                kills += 1
                next_kill = now + whims.uniform(0.2, 0.9)
            time.sleep(0.03)

        def all_ended() -> bool:
            answer_some(host, whims, 1.0)
            return all(run.status.is_final for run in host.runs(limit=1000))

        until(all_ended)
        assert len(host.runs(limit=1000)) == count
        for number in range(count):
            judge(host, tmp_path, number)
        assert host.waits() == []
    assert kills >= 3
    print(f"\n{count} runs, {kills} kills, {len(effects(tmp_path))} effects")


def again(work: Callable[[], Any]) -> Any:
    """Do something with the store, however often it is away meanwhile."""
    for _ in range(200):
        try:
            return work()
        except (StoreError, LeaseConflict):
            time.sleep(0.05)
    return work()


@pytest.mark.parametrize("kind", ["files", *SERVERS], indirect=True)
def test_runs_end_as_they_should_while_workers_and_their_server_are_killed(
    tmp_path: Path, url: str, hire: Hire, server: Server | None
) -> None:
    whims, kills, restarts = Random(7), 0, 0
    storm = ON_FILES if server is None else ON_SERVERS
    with Host(url) as host:
        workers = [hire() for _ in range(storm.workers)]
        for number in range(storm.runs):
            again(lambda number=number: begin(host, number))  # type: ignore[misc]
        next_kill = time.monotonic() + 0.5

        def has_passed() -> bool:
            nonlocal kills, restarts, next_kill
            with suppress(StoreError) if server is not None else nullcontext():
                answer_some(host, whims, 0.5)
            if kills < storm.kills and time.monotonic() >= next_kill:
                k = whims.randrange(storm.workers)
                workers[k].kill()
                workers[k].wait(20)
                if server is not None and kills % 4 == 1:
                    server.kill()
                    server.start()
                    restarts += 1
                workers[k] = hire()
                kills += 1
                next_kill = time.monotonic() + whims.uniform(0.3, 0.9)
            return kills == storm.kills and again(host.fleet.counts).runs == {"completed": storm.runs}

        until(has_passed, PATIENCE)
        for number in range(storm.runs):
            judge(host, tmp_path, number)
        assert host.waits() == []
        assert (kills, restarts > 0) == (storm.kills, server is not None)
        if server is None:
            assert not any(found.flaws for found in host.storage.verify())
    print(f"\n{storm.runs} runs, {kills} kills, {restarts} restarts, {len(effects(tmp_path))} effects")
    if server is None:
        for worker in workers:
            worker.terminate()
            worker.wait(20)
        # A caller that opens the folder next writes what those who were killed owe.
        Host(url).close()
        for number in range(storm.runs):
            assert latest(tmp_path, f"r{number}")["status"] == "completed", number


def latest(folder: Path, run_id: str) -> dict[str, Any]:
    """Return what the file says that shows the last checkpoint of a run."""
    shown: dict[str, Any] = json.loads((folder / f"store/checkpoints/{run_id}/latest.json").read_text())
    return shown


def test_a_worker_that_is_told_to_stop_hands_its_runs_back(tmp_path: Path, url: str, hire: Hire) -> None:
    with Host(url) as host:
        host.start(sleepers, {"x": 1}, run_id="r")
        worker = hire(EVERSTEP_SLEEPS="1")
        until(lambda: bool(effects(tmp_path)))
        assert host.info("r").is_driven
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        worker.send_signal(signal.SIGTERM)  # the first lets runs end; the second hands them back
        assert worker.wait(20) in (0, 130, -signal.SIGTERM)
        assert not host.info("r").is_driven
        assert host.info("r").status == "running"
        hire()
        until(lambda: host.info("r").status.is_final)
        assert host.resume("r", sleepers)["slept"] == 1


def test_a_worker_that_is_told_to_stop_lets_its_runs_halt_and_claims_no_more(url: str, hire: Hire) -> None:
    with Host(url) as host:
        begin(host, 1)
        worker = hire()
        until(lambda: bool(host.waits()))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        assert (host.info("r1").status, host.info("r1").is_driven) == ("halted", False)
        answer_some(host, Random(1), 1.0)
        assert host.info("r1").status == "halted"


def test_a_dead_workers_runs_are_taken_over_when_its_lease_expires(
    tmp_path: Path, url: str, hire: Hire
) -> None:
    with Host(url) as host:
        host.start(sleepers, {"x": 1}, run_id="r")
        dead = hire(EVERSTEP_SLEEPS="1")
        until(lambda: bool(effects(tmp_path)))
        heir = hire()
        dead.kill()
        dead.wait(20)
        until(lambda: host.info("r").status.is_final)
        begun = [line["begun"] for line in effects(tmp_path)]
        assert begun == [dead.pid, heir.pid]
        assert host.resume("r", sleepers)["slept"] == 1


@pytest.mark.parametrize(
    "kind",
    ["sqlite", "files", *(pytest.param(kind, marks=pytest.mark.soak) for kind in SERVERS)],
    indirect=True,
)
def test_a_stopped_worker_that_wakes_after_its_lease_expired_writes_nothing(
    tmp_path: Path, kind: str, url: str, hire: Hire
) -> None:
    with Host(url) as host:
        host.start(sleepers, {"x": 1}, run_id="r")
        asleep = hire(EVERSTEP_SLEEPS="1")
        until(lambda: bool(effects(tmp_path)))
        asleep.send_signal(signal.SIGSTOP)
        heir = hire()
        until(lambda: host.info("r").status.is_final)
        before = [record.checkpoint_id for record in host.history("r")]
        asleep.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        asleep.send_signal(signal.SIGTERM)
        asleep.send_signal(signal.SIGTERM)
        asleep.wait(20)
        assert [record.checkpoint_id for record in host.history("r")] == before
        assert [line["begun"] for line in effects(tmp_path)] == [asleep.pid, heir.pid]
        assert host.resume("r", sleepers)["slept"] == 1
    if kind == "files":
        assert latest(tmp_path, "r")["checkpoint_id"] == before[-1]
