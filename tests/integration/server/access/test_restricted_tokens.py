"""Tokens for some flows: what is of others is as if it were not there."""

from __future__ import annotations

import asyncio
import re
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from everstep.model.leases import Driven, Taken, WorkerRow
from everstep.registry import open_store
from everstep.server.access.roles import Reach
from everstep.server.endpoint import Endpoint
from everstep.server.routes import ENDPOINTS
from tests.integration.server.access.named_callers import bearer, entry, named
from tests.integration.server.serving import (
    NO_SUCH_WAIT,
    Serving,
    ask_text,
    code_of,
    expense,
    paid,
    plain,
    shipping,
)

FEW = entry("few", "admin", flows=("plain", "ask_text")) + entry("all", "admin")
OF_ONE = [e for e in ENDPOINTS if e.reach in (Reach.RUN, Reach.WAIT) and not e.path.startswith("/schedules/")]
"""Endpoints of one run or wait; those of schedules are in `test_schedule_roles`."""
BODIES: dict[str, Any] = {"send_signal": {"name": "note"}, "answer_wait": "yes"}


async def fill(s: Serving) -> None:
    """Make runs that the token named few sees, and others that it does not."""
    s.client.headers.update(bearer("few"))
    await s.host.run(plain, {"x": 1}, run_id="seen")
    await s.host.run(ask_text, run_id="asked")
    await s.host.run(expense, {"amount": 1}, run_id="hidden")
    await s.host.run(shipping, {"day": date(2030, 1, 1), "amount": Decimal(1)}, run_id="inside")


VISITED = "@inputs"
"""The address of a step that every run has."""


async def said(s: Serving, endpoint: Endpoint, name: str) -> tuple[int, str]:
    """Return what an endpoint answers about a run or a wait, without its name."""
    path = re.sub(r"{\w+}", name, endpoint.path.replace("{address}", VISITED))
    sent = {"json": BODIES[endpoint.name]} if endpoint.name in BODIES else {}
    headers = {"Accept": "application/json"}
    response = await s.client.request(endpoint.method, path, headers=headers, **sent)
    return response.status_code, response.text.replace(name.partition("%2F")[0], "NAME")


@pytest.mark.parametrize("endpoint", OF_ONE, ids=lambda e: e.name)
def test_a_run_of_another_flow_is_as_if_it_were_not_there(tmp_path: Path, endpoint: Endpoint) -> None:
    async def run() -> None:
        async with named(tmp_path, FEW) as s:
            await fill(s)
            if endpoint.reach is Reach.WAIT:
                [hidden] = await s.host.waits("hidden")
                [inside] = await s.host.waits("inside")
                pairs = [(hidden.id, NO_SUCH_WAIT), (inside.id, NO_SUCH_WAIT)]
            else:
                pairs = [("hidden", "nowhere"), ("inside", "nowhere"), ("hidden%2Fa", "nowhere%2Fa")]
            before = await everything(s)
            for there, missing in pairs:
                status, text = await said(s, endpoint, there)
                assert (status, text) == await said(s, endpoint, missing)
                assert status == 404, text
            assert await everything(s) == before
            s.client.headers.update(bearer("all"))
            assert (await said(s, endpoint, pairs[0][0]))[0] != 404

    asyncio.run(run())


async def everything(s: Serving) -> list[Any]:
    """Return how all runs and waits stand."""
    return [*await s.host.runs(), *await s.host.waits(status=None)]


@pytest.mark.parametrize("name", [e.name for e in ENDPOINTS if e.reach is Reach.STORE and e.role])
def test_what_is_about_all_flows_is_refused(tmp_path: Path, name: str) -> None:
    endpoint = next(e for e in ENDPOINTS if e.name == name)

    async def run() -> None:
        async with named(tmp_path, FEW) as s:
            s.client.headers.update(bearer("few"))
            path = re.sub(r"{\w+}", "mail", endpoint.path)
            refused = await s.client.request(endpoint.method, path, json={})
            assert code_of(refused) == (403, "request.forbidden")

    asyncio.run(run())


def test_lists_have_the_runs_and_waits_of_its_flows_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FEW) as s:
            await fill(s)
            for query in ("", "?where=status%20is%20set", "?limit=1000"):
                runs = (await s.client.get(f"/runs{query}")).json()
                assert [one["run_id"] for one in runs["runs"]] == ["asked", "seen"]
                assert runs["next"] is None
            assert (await s.client.get("/runs?flow=expense")).json() == {"runs": [], "next": None}
            trick = {"where": "status is set) or (flow = expense"}
            assert code_of(await s.client.get("/runs", params=trick)) == (400, "request.invalid")
            assert [w["run_id"] for w in (await s.client.get("/waits")).json()["waits"]] == ["asked"]
            assert (await s.client.get("/waits?flow=expense")).json()["waits"] == []
            missing = await s.client.get("/waits?run_id=nowhere")
            hidden = await s.client.get("/waits?run_id=hidden")
            assert missing.status_code == hidden.status_code == 404
            for path in ("/runs?before=hidden", "/runs?before=nowhere"):
                assert (await s.client.get(path)).status_code == 404

    asyncio.run(run())


def test_pages_go_on_behind_what_the_token_sees(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FEW) as s:
            s.client.headers.update(bearer("few"))
            for k in range(7):
                await s.host.run(plain, {"x": k}, run_id=f"seen-{k}")
                await s.host.run(paid, run_id=f"hidden-{k}")
                await s.host.run(ask_text, run_id=f"asked-{k}")
            for path, key, name in (("/runs", "runs", "before"), ("/waits", "waits", "after")):
                found: list[str] = []
                following = ""
                for _ in range(20):
                    page = (await s.client.get(f"{path}?limit=3{following}")).json()
                    found += [one["run_id"] for one in page[key]]
                    if page["next"] is None:
                        break
                    following = f"&{name}={page['next']}"
                kinds = ["asked", "seen"] if key == "runs" else ["asked"]
                assert sorted(found) == sorted(f"{kind}-{k}" for kind in kinds for k in range(7))

    asyncio.run(run())


def test_only_its_flows_can_be_started_and_no_other_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FEW) as s:
            await fill(s)
            refused = await s.client.post("/runs", json={"flow": "expense", "inputs": {"amount": 1}})
            assert code_of(refused) == (404, "flow.not_found")
            assert refused.json()["fix"] == "There is ask_text, plain."
            taken = await s.client.post(
                "/runs", json={"flow": "plain", "inputs": {"x": 1}, "run_id": "hidden"}
            )
            assert code_of(taken) == (409, "run.flow_changed")
            assert "expense" not in taken.text
            started = await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 1}})
            assert started.status_code == 202

    asyncio.run(run())


def test_a_run_that_was_erased_tells_nothing_to_those_who_may_not_have_seen_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FEW) as s:
            await fill(s)
            await s.host.cancel("hidden")
            await s.host.retention.erase("hidden", by="ann", comment="a secret")
            show = next(e for e in ENDPOINTS if e.name == "show_run")
            assert await said(s, show, "hidden") == await said(s, show, "nowhere")

    asyncio.run(run())


def test_workers_are_shown_with_the_flows_that_the_token_sees(tmp_path: Path) -> None:
    async def run() -> None:
        url = f"sqlite:///{tmp_path}/runs.db"
        async with named(tmp_path, FEW, url) as s:
            await fill(s)
            now = s.clock.now()
            driven = [Driven(run_id=name, flow_id=name, since=now) for name in ("plain", "expense")]
            for name, flows in (("w1", ("expense", "plain")), ("w2", ("paid",))):
                row = WorkerRow(
                    worker_id=name,
                    host="box",
                    pid=7,
                    flows=flows,
                    concurrency=8,
                    started_at=now,
                    driving=2,
                    longest=tuple(driven),
                    takes=tuple(Taken(flow_id=flow, flow_version="1", flow_hash="0" * 64) for flow in flows),
                )
                await open_store(url, s.clock).store.report(row, timedelta(days=1))
            [shown] = (await s.client.get("/workers")).json()["workers"]
            assert (shown["id"], shown["flows"]) == ("w1", ["plain"])
            assert [one["run_id"] for one in shown["longest"]] == ["plain"]
            assert [one["flow"] for one in shown["takes"]] == ["plain"]

    asyncio.run(run())
