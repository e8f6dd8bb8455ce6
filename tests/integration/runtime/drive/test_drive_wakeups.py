"""A drive hears of answers and of its end from any thread, at any time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from everstep import Flow, Host, node, wait
from everstep.client.host import AsyncHost
from everstep.errors import RunCancelled
from everstep.model.leases import Lease
from everstep.model.waits import WaitRow
from everstep.runtime.waits import open
from everstep.runtime.workers.lease_renewal import LeaseKeeper, Stoppable


@node(output="b")
def double(a: int) -> int:
    return 2 * a


def test_a_drive_may_be_nudged_and_stopped_before_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = LeaseKeeper.hold

    def hasty(self: LeaseKeeper, lease: Lease, ttl: timedelta, driven: Stoppable, **given: Any) -> None:
        hold(self, lease, ttl, driven, **given)
        driven.nudge()
        driven.stop(RunCancelled("it was cancelled."))

    monkeypatch.setattr(LeaseKeeper, "hold", hasty)
    with Host("memory:") as host:
        assert host.run(Flow("f", [double]), {"a": 1}).status == "cancelled"


def test_a_drive_may_be_nudged_and_stopped_when_its_loop_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    hold, drives = LeaseKeeper.hold, []

    def noting(self: LeaseKeeper, lease: Lease, ttl: timedelta, driven: Stoppable, **given: Any) -> None:
        drives.append(driven)
        hold(self, lease, ttl, driven, **given)

    monkeypatch.setattr(LeaseKeeper, "hold", noting)
    with Host("memory:") as host:
        host.run(Flow("f", [double]), {"a": 1})
    drives[0].nudge()
    drives[0].stop(RunCancelled("too late."))


def test_an_answer_that_comes_while_a_drive_looks_for_answers_is_not_missed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open, "LOOK", 3600)
    is_answered = asyncio.Event()

    @node(output="held")
    async def hold() -> int:
        await is_answered.wait()
        return 1

    @node(output="end")
    async def after(ask: str) -> str:
        is_answered.set()
        return ask

    flow = Flow("f", [wait.question("ask", kind="text"), hold, after])

    async def run() -> None:
        async with AsyncHost(url) as host:
            store: Any = host.durability.checkpoint_store
            fire = store.fire

            async def answered_meanwhile(run_id: str) -> list[WaitRow]:
                rows: list[WaitRow] = await fire(run_id)
                opened = await host.waits(run_id)
                if opened:
                    await host.answer(opened[0].id, "now")
                return rows

            monkeypatch.setattr(store, "fire", answered_meanwhile)
            async with asyncio.timeout(60):
                assert (await host.run(flow, {}))["end"] == "now"

    asyncio.run(run())
