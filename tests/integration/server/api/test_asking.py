"""What takes the code of a flow, over HTTP: from the service, from a worker, or what to start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Flow, chain, migrate, node, wait
from everstep.codec.wire import wire
from everstep.server.endpoint import QUESTIONS
from tests.integration.server.access.named_callers import ALL_ROLES, bearer, entry, named
from tests.integration.server.serving import Serving, plain

SECRET = "c4n4ry"


@node(output="total")
def add(x: int) -> int:
    return x + 1


@node(output="seen")
def look(total: int) -> int:
    return total


@node(output="sent")
def send(total: int) -> int:
    return total


ORDERS = Flow("orders", chain(add, wait.approval("sign"), send))
TEXT = ALL_ROLES + entry("few", "viewer", flows=("plain",)) + entry("vip", "reader", tags=("vip",))
PATHS = ("/runs/A17/explain", "/flows/orders/report", "/flows/orders/findings", "/flows/orders/compat")


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[Serving]:
    """Open a service that has not the flow `orders`, over a store with runs of it."""
    async with named(folder, TEXT, f"sqlite:///{folder}/runs.db", **options) as s:
        await s.host.run(ORDERS, {"x": 1}, run_id="A17")
        await s.host.run(ORDERS, {"x": 2}, run_id="A18", tags=["vip"])
        yield s


@asynccontextmanager
async def worked(s: Serving, flow: Flow = ORDERS) -> AsyncIterator[None]:
    """Keep a worker alive that has the flow."""
    async with AsyncHost(s.host.url, clock=s.clock) as host:
        worker = host.worker([flow])
        working = asyncio.create_task(worker.run())
        while not await host.fleet.workers():
            await asyncio.sleep(0.01)
        try:
            yield
        finally:
            worker.stop()
            await working


async def told(s: Serving, path: str, who: str = "reader", status: int = 200) -> Any:
    response = await s.client.get(path, headers=bearer(who))
    assert response.status_code == status, response.text
    return response.json()


def test_a_live_worker_answers_for_a_flow_that_the_service_has_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as s, worked(s):
            fleet = s.host.fleet
            assert await told(s, "/runs/A17/explain") == wire(await s.host.explain("A17", ORDERS))
            assert await told(s, "/flows/orders/report") == wire(await fleet.report(ORDERS))
            assert await told(s, "/flows/orders/findings") == wire(await fleet.findings(ORDERS))
            assert await told(s, "/flows/orders/compat") == wire(await fleet.compat(ORDERS))
            assert len((await told(s, "/flows/orders/compat?limit=1"))["groups"][0]["runs"]) == 1
            assert [run.run_id for run in await s.host.runs()] == ["A18", "A17"]

    asyncio.run(run())


def test_without_a_worker_it_is_said_at_once_what_to_start(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as s:
            for path in PATHS:
                found = await told(s, path, "viewer", 409)
                assert found["code"] == "flow.not_loaded" and found["details"] == {"flow": "orders"}
                assert "everstep worker FILE.py" in found["fix"] and "everstep console" in found["fix"]

    asyncio.run(run())


def test_the_service_answers_itself_for_flows_that_it_has(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as s:
            await s.host.start(plain, {"x": 1}, run_id="P1")
            assert await told(s, "/runs/P1/explain") == wire(await s.host.explain("P1", plain))
            for what in ("report", "findings", "compat"):
                assert (await told(s, f"/flows/plain/{what}", "viewer"))["flow"] == "plain"

    asyncio.run(run())


def test_a_viewer_is_told_no_value_and_a_reader_is(tmp_path: Path) -> None:
    def spelled(total: object) -> object:
        raise ValueError(f"{SECRET} {total}")

    changes = [migrate.upcast("total", spelled)]
    changed = Flow("orders", chain(add, look, wait.approval("sign"), send), version="2", migrations=changes)

    async def run() -> None:
        async with opened(tmp_path) as s, worked(s, changed):
            await s.host.fleet.pause("A18", by="ann", comment=f"for {SECRET}")
            for path in (*PATHS, "/runs/A18/explain"):
                seen = await s.client.get(path, headers=bearer("viewer"))
                assert (seen.status_code, SECRET in seen.text) == (200, False), seen.text
                read = await s.client.get(path, headers=bearer("reader"))
                assert (SECRET in read.text) == path.endswith(("explain", "compat")), path

    asyncio.run(run())


def test_a_token_for_some_is_told_of_those_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as s, worked(s):
            for path in PATHS:
                assert (await told(s, path, "few", 404))["code"] in ("flow.not_found", "DAG-CKPT-006")
            await told(s, "/runs/A17/explain", "vip", 404)
            assert (await told(s, "/runs/A18/explain", "vip"))["run_id"] == "A18"
            judged = await told(s, "/flows/orders/compat", "vip")
            assert (judged["is_whole"], [one["runs"] for one in judged["groups"]]) == (True, [["A18"]])

    asyncio.run(run())


@pytest.mark.parametrize("name", ["a b", "-x", "x" * 129, "%2Fetc"])
def test_what_is_no_name_of_a_flow_is_not_found(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with opened(tmp_path) as s:
            assert (await told(s, f"/flows/{name}/report", status=404))["code"] == "flow.not_found"

    asyncio.run(run())


def test_clients_cannot_flood_workers_with_questions(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as s, worked(s):
            most, done = 0, False

            async def count() -> None:
                nonlocal most
                while not done:
                    most = max(most, len(await s.host.runs(flow="everstep.ask.orders", status="running")))
                    await asyncio.sleep(0.001)

            counting = asyncio.create_task(count())
            await asyncio.gather(*(told(s, "/flows/orders/report") for _ in range(3 * QUESTIONS)))
            done = True
            await counting
            assert 1 <= most <= QUESTIONS

    asyncio.run(run())
