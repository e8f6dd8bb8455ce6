"""A run that was answered and goes on is found by others whatever becomes of its owner."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from everstep import Durability, Flow, Host, node, wait
from everstep.client.host import AsyncHost
from everstep.model.enums import Status

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


def test_whoever_stays_with_a_run_does_not_reopen_it_when_it_fails_elsewhere(url: str) -> None:
    attempts: list[str] = []

    @node(output="used", effects="effectful")
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
