"""A notifier that hangs for minutes: no run, no worker and no other notifier waits for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Flow, notify
from everstep.ports.durability import Notice
from everstep.runtime.system import RealSystem
from everstep.runtime.waits.notifiers import MOST_HANGING, Notifiers
from tests.integration.runtime.waits.notices.notices_at_work import works

FLOW = Flow("well", [works], notify=notify.Tell("ops", on="completed"))
ENDS = """
import asyncio, sys, threading
from everstep import AsyncHost, Flow, node, notify

@node(output="x")
def works(a: int) -> int:
    return a

async def main():
    flow = Flow("well", [works], notify=notify.Tell("ops", on="completed"))
    begun = threading.Event()
    def hangs(notice):
        begun.set()
        threading.Event().wait(300)
    async with AsyncHost(sys.argv[1], notifiers={"ops": hangs}) as host:
        await host.start(flow, {"a": 1}, run_id="A")
        worker = asyncio.ensure_future(host.work([flow]))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        worker.cancel()
    print("ended")

asyncio.run(main())
"""


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.stores("sqlite")
def test_a_worker_goes_on_while_a_notifier_hangs(url: str, hanging: threading.Event) -> None:
    def hangs(notice: Notice) -> None:
        hanging.wait(300)

    async def work() -> None:
        async with AsyncHost(url, notifiers={"ops": hangs}) as host:
            for k in range(40):
                await host.start(FLOW, {"a": k})
            worker = asyncio.ensure_future(host.work([FLOW], concurrency=2))
            async with asyncio.timeout(20):
                while {run.status for run in await host.runs()} != {"completed"}:
                    await asyncio.sleep(0.02)
                assert await asyncio.to_thread(lambda: 3) == 3  # threads of the program are free
            worker.cancel()

    asyncio.run(work())


def test_a_program_ends_while_a_notifier_hangs(tmp_path: Path) -> None:
    asked = [sys.executable, "-c", ENDS, f"sqlite:///{tmp_path}/runs.db"]
    assert subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout == "ended\n"


def test_a_notifier_of_which_too_many_calls_hang_is_not_called_again(hanging: threading.Event) -> None:
    called: list[Any] = []

    def hangs(notice: Notice) -> None:
        called.append(notice)
        hanging.wait(300)

    async def work() -> None:
        notifiers = Notifiers({"ops": hangs}, RealSystem())
        notice = Notice(run_id="A", flow="f", kind="run", occasion="failed")
        calls = [asyncio.ensure_future(notifiers.tell_once("ops", notice)) for _ in range(MOST_HANGING)]
        while len(called) < MOST_HANGING:
            await asyncio.sleep(0.01)
        [failure] = await notifiers.tell_once("ops", notice)
        assert "have not returned" in failure.error
        hanging.set()
        assert await asyncio.gather(*calls) == [[]] * MOST_HANGING
        assert await notifiers.tell_once("ops", notice) == []

    asyncio.run(work())
