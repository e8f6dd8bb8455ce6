"""`everstep explain RUN` without a file: a live worker is asked, or it is said how to name the file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from click.testing import CliRunner

from everstep import AsyncHost, Flow, Host, chain, node, wait
from everstep.cli.commands.travel.explain import explain
from everstep.codec.wire import wire
from everstep.errors import BadRequest


@node(output="total")
def add(x: int) -> int:
    return x + 1


ORDERS = Flow("orders", chain(add, wait.approval("sign")))


@contextmanager
def worked(url: str, flow: Flow = ORDERS) -> Iterator[None]:
    """Keep a worker alive that has the flow, on another thread."""
    started: list[tuple[asyncio.AbstractEventLoop, Any]] = []

    async def work() -> None:
        async with AsyncHost(url) as host:
            worker = host.worker([flow])
            started.append((asyncio.get_running_loop(), worker))
            await worker.run()

    thread = Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        with Host(url) as host:
            while not host.fleet.workers():
                thread.join(0.02)
        yield
    finally:
        [(loop, worker)] = started
        loop.call_soon_threadsafe(worker.stop)
        thread.join()


def called(*words: str, url: str) -> Any:
    return CliRunner().invoke(explain, [*words, "--store", url], standalone_mode=False)


def test_a_live_worker_is_asked_about_a_run_whose_file_is_not_known(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.run(ORDERS, {"x": 1}, run_id="A17")
        told = {**wire(host.explain("A17", ORDERS)), "untaken": None}  # once there is a worker
    with worked(url):
        found = called("A17", "--json", url=url)
        assert (found.return_value, json.loads(found.stdout)) == (0, told)
        shown = called("A17/add", url=url)
        assert "run A17/add of flow orders: halted" in shown.output and "sign" not in shown.output
    with worked(url, Flow("orders", [add])):
        other = called("A17", url=url)
        assert other.return_value == 1 and "is gone from the flow" in other.output


def test_without_a_worker_it_is_said_how_to_name_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.run(ORDERS, {"x": 1}, run_id="A17")
    refused = called("A17", url=url).exception
    assert isinstance(refused, BadRequest) and "everstep explain A17 FILE.py:orders" in refused.fix
