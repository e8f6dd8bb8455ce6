"""A run that was answered and goes on is found by others whatever becomes of its owner."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Durability, Flow, Host, node, wait
from everstep.client.host import AsyncHost
from everstep.errors import EverstepError, LeaseConflict, RunErased, RunNotFound, TokenInvalid
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.model.waits import WaitStatus
from everstep.ports.store import StopRequest
from everstep.registry import open_store
from everstep.runtime.stay import LOOK
from everstep.runtime.system import SystemClock
from everstep.runtime.workers.worker import Stats

PATIENCE = 10.0


def test_an_answer_that_is_written_while_a_node_runs_no_longer_leaves_the_run_halted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    seen: list[Status] = []

    @node(output="used", effects="pure")
    def use(asked: str) -> str:
        with Host(url) as other:
            end = time.monotonic() + PATIENCE
            while other.info("run").checkpoints == halted_at and time.monotonic() < end:
                time.sleep(0.01)
            seen.append(other.info("run").status)
        return asked

    durability = Durability("strong", interval=timedelta(milliseconds=50))
    flow = Flow("f", [wait.question("asked", kind="text"), use], durability=durability)
    with Host(url) as host:
        result = host.run(flow, run_id="run")
        host.answer(result.waits[0].id, "x")
        halted_at = host.info("run").checkpoints
        assert host.resume("run", flow)["used"] == "x"
    assert seen == [Status.RUNNING]


def test_a_caller_that_stays_with_a_run_does_not_reopen_it_when_it_fails_elsewhere(url: str) -> None:
    attempts: list[str] = []

    @node(output="used", effects="effectful", idempotency_key="auto")
    def use(asked: str) -> str:
        attempts.append(asked)
        raise ValueError("broken")

    flow = Flow("f", [wait.question("asked", kind="text"), use])

    async def stay() -> Status:
        async with AsyncHost(url) as host:
            staying = asyncio.ensure_future(host.run(flow, run_id="run", wait=True))
            while not (waits := await host.waits("run")):
                await asyncio.sleep(0.01)
            await host.answer(waits[0].id, "x")
            await host.work([flow], until_idle=True)
            return (await asyncio.wait_for(staying, PATIENCE)).status

    assert asyncio.run(stay()) is Status.FAILED
    assert attempts == ["x"]


def test_a_worker_ends_a_halted_run_whose_canceller_died(url: str) -> None:
    flow = Flow("f", [wait.approval("ok")])

    async def work() -> tuple[Stats, Status, WaitStatus]:
        opened = open_store(url, SystemClock())
        async with AsyncHost(opened) as host:
            wait_id = (await host.run(flow, run_id="run")).waits[0].id
            await opened.store.request_stop("run", StopRequest.CANCEL)
            stats = await asyncio.wait_for(host.work([flow], until_idle=True), PATIENCE)
            return stats, (await host.info("run")).status, (await host.wait(wait_id)).status

    stats, status, waiting = asyncio.run(work())
    assert (stats.claimed, stats.cancelled) == (1, 1)
    assert (status, waiting) == (Status.CANCELLED, WaitStatus.CLOSED)


def test_a_run_that_is_cancelled_while_its_owner_finds_no_answer_ends(url: str) -> None:
    flow = Flow("f", [wait.approval("ok")])

    async def resume() -> Status:
        opened = open_store(url, SystemClock())
        async with AsyncHost(opened) as host:
            await host.run(flow, run_id="run")
            release = opened.store.release_lease

            async def cancel_first(lease: Lease) -> None:
                # As another process does that cannot claim the run now.
                await opened.store.request_stop("run", StopRequest.CANCEL)
                await release(lease)

            opened.store.release_lease = cancel_first  # type: ignore[method-assign]
            return (await host.resume("run", flow)).status

    assert asyncio.run(resume()) is Status.CANCELLED


def test_a_caller_that_stays_with_a_run_goes_on_with_the_waits_that_others_drove_it_to(url: str) -> None:
    flow = Flow(
        "f", [wait.question("asked", kind="text"), wait.timer("nap", duration="500ms", payload="asked")]
    )

    async def stay() -> Status:
        async with AsyncHost(url) as host:
            staying = asyncio.ensure_future(host.run(flow, run_id="run", wait=True))
            while not (waits := await host.waits("run")):
                await asyncio.sleep(0.01)
            await asyncio.sleep(1.5 * LOOK)  # it has looked, and looks again only later
            await host.answer(waits[0].id, "x")
            await host.resume("run", flow)
            return (await asyncio.wait_for(staying, PATIENCE)).status

    assert asyncio.run(stay()) is Status.COMPLETED


def test_an_answer_whose_token_is_replaced_meanwhile_is_told_so(url: str) -> None:
    flow = Flow("f", [wait.question("asked", kind="text")])

    async def answer() -> WaitStatus:
        opened = open_store(url, SystemClock())
        async with AsyncHost(opened) as host:
            [waiting] = (await host.run(flow, run_id="run")).waits
            settle = opened.store.settle

            async def replaced_first(wait_id: str, **given: Any) -> Any:
                await host.waiting.reissue(wait_id)
                return await settle(wait_id, **given)

            opened.store.settle = replaced_first  # type: ignore[method-assign]
            with pytest.raises(TokenInvalid):
                await host.answer(waiting.token, "x")
            return (await host.wait(waiting.id)).status

    assert asyncio.run(answer()) is WaitStatus.OPEN


def test_an_answer_that_is_delivered_where_the_flow_has_changed_is_kept_without_an_error(host: Host) -> None:
    flow = Flow("f", [wait.question("asked", kind="text")])
    changed = Flow("f", [wait.question("asked_otherwise", kind="text")])
    [opened] = host.run(flow, run_id="run").waits
    delivery = host.deliver({"token": opened.token, "answer": "x"}, [changed])
    assert delivery.result is None
    assert host.resume("run", flow)["asked"] == "x"


def test_a_run_is_resumed_by_its_newest_checkpoint_or_by_a_token(url: str) -> None:
    flow = Flow("f", [wait.approval("ok"), wait.approval("sure", context="ok")])
    with Host(url) as host:
        [first] = host.run(flow, run_id="r").waits
        old = host.history("r")[-1].checkpoint_id
        assert host.resume(old, flow).status == "halted"
        host.answer(first.token, {"approved": True})
        [second] = host.resume(first.token or "", flow).waits
        with pytest.raises(LeaseConflict, match="has gone on from checkpoint") as caught:
            host.resume(old, flow)
        assert "everstep fork r@" in str(caught.value)
        host.answer(second.token, {"approved": True})
        assert host.resume(host.history("r")[-1].checkpoint_id, flow).status == "completed"


def test_a_failed_run_that_is_named_by_its_newest_checkpoint_is_left_to_workers(url: str) -> None:
    fixed: list[bool] = []

    @node(output="y")
    def check(x: int) -> int:
        if not fixed:
            raise ValueError("not yet")
        return x

    flow = Flow("f", [check])
    with Host(url) as host:
        assert host.run(flow, {"x": 1}, run_id="r").status == "failed"
        fixed.append(True)
        info = host.fleet.reopen(host.history("r")[-1].checkpoint_id, flow)
        assert (info.run_id, info.status) == ("r", "running")
        assert host.work([flow], until_idle=True).completed == 1


def test_an_old_checkpoint_is_found_among_many_runs_as_long_as_that_takes_seconds(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @node(output="y")
    def double(x: int) -> int:
        return 2 * x

    flow = Flow("f", [double], durability="strong")
    with Host(url) as host:
        host.run(flow, {"x": 1}, run_id="old")
        first = host.history("old")[0].checkpoint_id
        for n in range(120):
            host.start(flow, {"x": n})
        with pytest.raises(LeaseConflict, match=r"run 'old' has gone on from checkpoint 1") as caught:
            host.resume(first, flow)
        assert "everstep fork old@1" in str(caught.value)
        monkeypatch.setattr("everstep.runtime.reader._LOOKING", -1.0)
        with pytest.raises(RunNotFound, match="Older ones were not looked through"):
            host.resume(first, flow)


def test_an_erased_run_is_said_to_be_erased_however_many_others_there_are(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @node(output="y")
    def double(x: int) -> int:
        return 2 * x

    flow = Flow("f", [double])
    monkeypatch.setattr("everstep.runtime.reader._LOOKING", -1.0)
    with Host(url) as host:
        gone = host.run(flow, {"x": 1}).run_id
        host.run(flow, {"x": 2})
        host.retention.erase(gone)
        with pytest.raises(RunErased):
            host.resume(gone, flow)


def test_no_error_shows_a_token(url: str) -> None:
    token = "et_" + "A" * 43
    with Host(url) as host:
        for act in (
            host.info,
            host.cancel,
            host.history,
            lambda name: host.resume(name, Flow("f", [wait.approval("ok")])),
        ):
            for name in (token, token + " "):
                with pytest.raises(EverstepError) as caught:
                    act(name)
                assert token not in str(caught.value)
