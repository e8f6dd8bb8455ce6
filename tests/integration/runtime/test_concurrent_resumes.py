"""Of two that resume a run, one drives it; the other is told so, and cannot write."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from everstep import Durability, Flow, Host, node, wait
from everstep.errors import EverstepError, LeaseConflict
from everstep.model.enums import Mode

YES = {"approved": True}
SPAWN = multiprocessing.get_context("spawn")
SHORT = timedelta(seconds=1)


def slow_flow(begun: Any, may_end: Any, ttl: timedelta = timedelta(seconds=30)) -> Flow:
    """An approval, and a node after it that says when it runs and waits to be let on."""

    @node(output="sent", effects="effectful", idempotency_key="auto")
    def send(ok: wait.ApprovalOutput) -> int:
        begun()
        may_end()
        return os.getpid()

    durability = Durability(Mode.STRONG, lease_ttl=ttl, retry_on_lease_conflict=0)
    return Flow("f", [wait.approval("ok"), send], durability=durability)


def test_of_two_threads_that_resume_one_wins_and_the_other_is_told(url: str) -> None:
    begun, may_end = threading.Event(), threading.Event()
    flow = slow_flow(begun.set, lambda: may_end.wait(20))
    with Host(url) as host:
        host.answer(host.run(flow, run_id="r").waits[0].id, YES)
        results: list[Any] = []
        first = threading.Thread(target=lambda: results.append(host.resume("r", flow)))
        first.start()
        assert begun.wait(20)
        with pytest.raises(LeaseConflict) as refused:
            host.resume("r", flow)
        assert refused.value.code == "DAG-CKPT-007"
        assert "is being driven by this process already" in refused.value.message
        may_end.set()
        first.join(20)
        assert results[0].status == "completed"
        assert host.resume("r", flow)["sent"] == os.getpid()


def test_of_many_threads_that_resume_at_once_one_drives(url: str) -> None:
    runs: list[int] = []

    @node(output="sent")
    def send(ok: wait.ApprovalOutput) -> int:
        runs.append(1)
        time.sleep(0.05)
        return len(runs)

    flow = Flow("f", [wait.approval("ok"), send], durability=Durability(retry_on_lease_conflict=0))
    with Host(url) as host:
        host.answer(host.run(flow, run_id="r").waits[0].id, YES)
        outcomes: list[str] = []
        start = threading.Barrier(6)

        def resume() -> None:
            start.wait(10)
            try:
                outcomes.append(host.resume("r", flow).status.value)
            except EverstepError as error:
                outcomes.append(error.code)

        threads = [threading.Thread(target=resume) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert runs == [1]
        assert set(outcomes) <= {"completed", "DAG-CKPT-007"}
        assert len(outcomes) == 6
        assert "completed" in outcomes


def resume_elsewhere(url: str, ttl: timedelta, talk: Connection) -> None:
    """Resume the run in this process, tell when its node runs, end it when told to, and say how it went."""

    def begun() -> None:
        talk.send("begun")

    def may_end() -> None:
        talk.recv()

    try:
        with Host(url) as host:
            talk.send(host.resume("r", slow_flow(begun, may_end, ttl)).status.value)
    except EverstepError as error:
        talk.send(error.code)


def elsewhere(url: str, ttl: timedelta) -> tuple[Any, Connection]:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=resume_elsewhere, args=(url, ttl, there), daemon=True)
    process.start()
    there.close()
    return process, here


def heard(talk: Connection, seconds: float = 60) -> Any:
    assert talk.poll(seconds), "the other process says nothing"
    return talk.recv()


def test_of_two_processes_that_resume_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    flow = slow_flow(lambda: None, lambda: None)
    with Host(url) as host:
        host.answer(host.run(flow, run_id="r").waits[0].id, YES)
        process, talk = elsewhere(url, timedelta(seconds=30))
        assert heard(talk) == "begun"
        with pytest.raises(LeaseConflict) as refused:
            host.resume("r", flow)
        assert refused.value.code == "DAG-CKPT-007"
        talk.send("end")
        assert heard(talk) == "completed"
        process.join(20)
        assert host.resume("r", flow)["sent"] == process.pid


def test_a_driver_that_was_stopped_and_wakes_after_another_took_over_cannot_write(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    flow = slow_flow(lambda: None, lambda: None, SHORT)
    with Host(url) as host:
        host.answer(host.run(flow, run_id="r").waits[0].id, YES)
        process, talk = elsewhere(url, SHORT)
        assert heard(talk) == "begun"
        os.kill(process.pid, signal.SIGSTOP)
        try:
            while host.info("r").is_driven:
                time.sleep(0.02)
            mine = host.resume("r", flow)
            assert (mine.status, mine["sent"]) == ("completed", os.getpid())
            before = [c.checkpoint_id for c in host.history("r")]
        finally:
            os.kill(process.pid, signal.SIGCONT)
        talk.send("end")
        assert heard(talk) in ("store.lease_lost", "DAG-CKPT-007")
        process.join(20)
        assert [c.checkpoint_id for c in host.history("r")] == before
        assert host.run(flow, run_id="r")["sent"] == os.getpid()
        [opened] = host.waits("r", status="closed")
        assert opened.settled_by == "answer"
