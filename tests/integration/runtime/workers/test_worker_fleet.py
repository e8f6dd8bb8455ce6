"""Workers beside one another: who is seen, what dead ones leave, what damaged runs come to, how many run."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from everstep import Durability, Flow, Host, Status, node, wait
from everstep.client.host import AsyncHost
from everstep.errors import BadRequest, StateCorrupted
from everstep.model.leases import Process, WorkerRow
from everstep.ports.store import Capabilities, RunFilter
from everstep.registry import open_store
from everstep.runtime.system import ProcFs
from everstep.runtime.workers import heartbeat
from everstep.stores.memory import MemoryStore
from everstep.testing import ManualClock

URLS = ["memory:", "sqlite:///{}/runs.db"]
STRONG = Durability("strong", lease_ttl=timedelta(hours=1))


@node(output="b")
async def double(a: int) -> int:
    return 2 * a


FLOW = Flow("doubling", [double], durability=STRONG)
ASKING = Flow("asking", [double, wait.callback("ask", context="b")], durability=STRONG)


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/runs.db"


def dead_process() -> Process:
    """Return a process of this machine that is no more."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        text = Path(f"/proc/{child.pid}/stat").read_text()
        started = int(text.rpartition(")")[2].split()[19])
    finally:
        child.communicate()
    me = ProcFs().me()
    assert me is not None
    return Process(me.boot_id, me.pid_namespace, child.pid, started)


@pytest.mark.parametrize("place", URLS, ids=["memory", "sqlite"])
def test_workers_are_seen_while_they_work_with_what_they_drive(tmp_path: Path, place: str) -> None:
    held = asyncio.Event()

    @node(output="c")
    async def hold(a: int) -> int:
        await held.wait()
        return a

    flow = Flow("holding", [hold])

    async def work() -> None:
        async with AsyncHost(place.format(tmp_path)) as host:
            assert await host.fleet.workers() == []
            for number in range(3):
                await host.start(flow, {"a": number}, run_id=f"r{number}")
            one, two = host.worker([flow], concurrency=2), host.worker([flow, FLOW], concurrency=1)
            working = asyncio.gather(one.run(), two.run())
            while one.describe().driving + two.describe().driving < 3:
                await asyncio.sleep(0.01)
            # Reports come every ten seconds; this one comes when it is asked for.
            for worker in (one, two):
                await worker._presence.tell()
            seen = await host.fleet.workers()
            assert {info.concurrency: info.driving for info in seen} == {2: 2, 1: 1}
            assert {info.pid for info in seen} == {os.getpid()}
            assert sorted(run.run_id for info in seen for run in info.longest) == ["r0", "r1", "r2"]
            assert {tuple(info.flows) for info in seen} == {("holding",), ("doubling", "holding")}
            one.stop()
            await asyncio.sleep(0.05)
            stopping = {info.concurrency: info.is_stopping for info in await host.fleet.workers()}
            assert stopping == {2: True, 1: False}
            held.set()
            two.stop()
            await working
            assert await host.fleet.workers() == []

    asyncio.run(work())


def test_a_worker_is_seen_while_a_node_holds_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT", 0.02)
    clock = ManualClock()
    seen: list[Any] = []

    @node(output="c")
    def hold(a: int) -> int:
        """Return only once others have seen a report that was made meanwhile."""
        with Host(url(tmp_path), clock=clock) as other:
            clock.advance(5)
            began = clock.now()
            for _ in range(5000):
                seen[:] = other.fleet.workers()
                if seen and seen[0].seen_at >= began:
                    return a
                clock.advance(0.03)
                other.runs()
        raise AssertionError("no report came")

    flow = Flow("holding", [hold], durability=STRONG)
    with Host(url(tmp_path), clock=clock) as host:
        host.start(flow, {"a": 1}, run_id="r")
        assert host.work([flow], until_idle=True).completed == 1
    assert [run.run_id for run in seen[0].longest] == ["r"]


def test_a_worker_that_was_killed_on_this_machine_is_not_shown(tmp_path: Path) -> None:
    with Host(url(tmp_path)) as host:
        alive = WorkerRow(
            worker_id="alive",
            host="here",
            pid=os.getpid(),
            flows=("f",),
            concurrency=1,
            started_at=host.clock.now(),
            process=ProcFs().me(),
        )
        dead = msgspec.structs.replace(alive, worker_id="dead", process=dead_process())
        elsewhere = msgspec.structs.replace(alive, worker_id="elsewhere", process=None)
        store: Any = open_store(url(tmp_path), host.clock).store
        for row in (alive, dead, elsewhere):
            asyncio.run(store.report(row, timedelta(minutes=1)))
        assert [info.id for info in host.fleet.workers()] == ["alive", "elsewhere"]


def test_a_dead_workers_halted_run_need_not_wait_for_its_lease(tmp_path: Path) -> None:
    with Host(url(tmp_path)) as host:
        for run_id in ("halted", "other"):
            host.run(ASKING, {"a": 1}, run_id=run_id)
            host.answer(host.waits(run_id)[0].id, {"x": 1})
        store: Any = open_store(url(tmp_path), ManualClock()).store
        [row, _] = asyncio.run(store.list(RunFilter()))
        gone = dead_process()
        lease = asyncio.run(store.lease("halted", owner="dead", ttl=timedelta(days=4000), process=gone))
        assert (lease.process, row.status) == (gone, Status.HALTED)
        assert host.info("halted").is_driven is False
        assert host.work([ASKING], until_idle=True).completed == 2


def damage(folder: Path, run_id: str) -> None:
    with closing(apsw.Connection(f"{folder}/runs.db")) as db:
        db.execute(
            "UPDATE checkpoints SET body = x'00' WHERE position >> 32 ="
            " (SELECT run_key FROM runs WHERE run_id = ?)",
            (run_id,),
        )


def test_a_damaged_run_is_set_aside_until_it_is_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Host(url(tmp_path)) as host:
        for run_id in ("bad", "good"):
            host.start(FLOW, {"a": 1}, run_id=run_id)
        with closing(apsw.Connection(f"{tmp_path}/runs.db")) as db:
            whole = db.execute("SELECT position, body FROM checkpoints").fetchall()
        damage(tmp_path, "bad")
        with caplog.at_level(logging.ERROR, "everstep"):
            stats = host.work([FLOW], until_idle=True)
        assert (stats.completed, stats.set_aside, stats.handed_back) == (1, 1, 0)
        assert [record.message for record in caplog.records if "needs repair" in record.message] != []
        info = host.info("bad")
        assert info.needs_repair is not None and info.status == "running" and not info.is_driven
        assert [run.run_id for run in host.runs(needs_repair=True)] == ["bad"]
        assert host.work([FLOW], until_idle=True).claimed == 0
        with pytest.raises(StateCorrupted):
            host.resume("bad", FLOW)
        with closing(apsw.Connection(f"{tmp_path}/runs.db")) as db:
            db.executemany("UPDATE checkpoints SET body = ?2 WHERE position = ?1", whole[:1])
        assert host.resume("bad", FLOW).status == "completed"
        assert host.info("bad").needs_repair is None
        assert host.runs(needs_repair=True) == []


def test_one_altered_row_keeps_no_other_run_from_being_driven(tmp_path: Path) -> None:
    with Host(url(tmp_path)) as host:
        for run_id in ("altered", "good"):
            host.start(FLOW, {"a": 1}, run_id=run_id)
        with closing(apsw.Connection(f"{tmp_path}/runs.db")) as db:
            db.execute("UPDATE runs SET created_at = 9e18 WHERE run_id = 'altered'")
        assert host.work([FLOW], until_idle=True).completed == 1
        with pytest.raises(StateCorrupted, match="'altered' was altered"):
            host.info("altered")


@pytest.mark.parametrize("place", URLS, ids=["memory", "sqlite"])
def test_two_workers_together_keep_to_the_quotas_of_a_flow(tmp_path: Path, place: str) -> None:
    live: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @node(output="b")
    async def hold(a: str) -> str:
        for key in (a, "all"):
            live[key] += 1
            most[key] = max(most[key], live[key])
        await asyncio.sleep(0.003)
        live.subtract([a, "all"])
        return a

    flow = Flow("held", [hold], max_running=5, max_per_group=2)

    async def work() -> None:
        async with AsyncHost(place.format(tmp_path)) as host:
            for number in range(60):
                await host.start(flow, {"a": f"g{number % 4}"}, group=f"g{number % 4}")
            workers = [host.worker([flow], concurrency=8) for _ in range(2)]
            tasks = [asyncio.ensure_future(worker.run()) for worker in workers]
            async with asyncio.timeout(30):
                while await host.runs(status="running"):
                    await asyncio.sleep(0.01)
            for worker in workers:
                worker.stop()
            assert sum(stats.completed for stats in await asyncio.gather(*tasks)) == 60

    asyncio.run(work())
    assert most["all"] == 5
    assert max(count for group, count in most.items() if group != "all") <= 2


def test_priority_and_group_are_kept_shown_and_inherited_by_forks() -> None:
    order: list[int] = []

    @node(output="b")
    async def note(a: int) -> int:
        order.append(a)
        return a

    flow = Flow("noting", [note])
    with Host("memory:") as host:
        for number in range(6):
            host.start(flow, {"a": number}, run_id=f"r{number}", priority=number % 3, group="g")
        fork = host.fork("r5", fork_id="fork")
        assert (fork.priority, fork.group) == (2, "g")
        host.work([flow], until_idle=True, concurrency=1)
        assert order == [2, 5, 5, 1, 4, 0, 3]
        host.run(flow, {"a": 9}, run_id="run", priority=-1, group="h")
        assert (host.info("run").priority, host.info("run").group) == (-1, "h")


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": "high"},
        {"priority": True},
        {"priority": 2**31},
        {"group": ""},
        {"group": 7},
        {"group": "\ud800"},
    ],
)
def test_a_priority_that_is_no_number_and_a_group_that_is_no_text_are_refused(wrong: dict[str, Any]) -> None:
    with Host("memory:") as host:
        for begin in (host.start, host.run):
            with pytest.raises(BadRequest, match=next(iter(wrong))):
                begin(FLOW, {"a": 1}, **wrong)
        assert host.runs() == []


def test_no_worker_runs_on_a_store_that_cannot_keep_two_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Capabilities(durable=False, single_writer=False)
    monkeypatch.setattr(MemoryStore, "capabilities", alone)
    with Host("memory:") as host:
        assert host.run(FLOW, {"a": 1}).status == "completed"
        with pytest.raises(BadRequest, match="cannot keep two workers apart"):
            host.work([FLOW], until_idle=True)
