"""Workers on one store that are killed at random, and what their runs come to.

`EVERSTEP_SOAK=1` kills for a minute.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from everstep import Flow, Host
from everstep.errors import WaitClosed, WaitSettled
from tests.acceptance.workers.worker_flows import batches, orders, reviews, sleepers
from tests.servers import warm

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SECONDS = 60.0 if IS_SOAK else 4.0
FLOWS = Path(__file__).with_name("worker_flows.py")
Hire = Callable[..., warm.Process]


@pytest.fixture
def hire(tmp_path: Path) -> Iterator[Hire]:
    """Start workers as processes of their own; those left at the end are killed."""
    staff: list[warm.Process] = []
    environment = {**os.environ, "EVERSTEP_EFFECTS": f"{tmp_path}/effects"}

    def start(**more: str) -> warm.Process:
        command = [sys.executable, "-m", "everstep", "worker", str(FLOWS), "--store", url(tmp_path)]
        with (tmp_path / f"worker{len(staff)}.txt").open("wb") as said:
            worker = warm.Process(command, stdout=said, stderr=said, env={**environment, **more})
        staff.append(worker)
        return worker

    yield start
    for worker in staff:
        if worker.poll() is None:
            worker.kill()
        worker.wait(20)


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/runs.db"


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
    tmp_path: Path, hire: Hire, seed: int
) -> None:
    whims, kills, count = Random(seed), 0, 0
    with Host(url(tmp_path)) as host:
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


def test_a_worker_that_is_told_to_stop_hands_its_runs_back(tmp_path: Path, hire: Hire) -> None:
    with Host(url(tmp_path)) as host:
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


def test_a_worker_that_is_told_to_stop_lets_its_runs_halt_and_claims_no_more(
    tmp_path: Path, hire: Hire
) -> None:
    with Host(url(tmp_path)) as host:
        begin(host, 1)
        worker = hire()
        until(lambda: bool(host.waits()))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        assert (host.info("r1").status, host.info("r1").is_driven) == ("halted", False)
        answer_some(host, Random(1), 1.0)
        assert host.info("r1").status == "halted"


def test_a_dead_workers_runs_are_taken_over_when_its_lease_expires(tmp_path: Path, hire: Hire) -> None:
    with Host(url(tmp_path)) as host:
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


def test_a_stopped_worker_that_wakes_after_its_lease_expired_writes_nothing(
    tmp_path: Path, hire: Hire
) -> None:
    with Host(url(tmp_path)) as host:
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
