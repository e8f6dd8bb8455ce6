"""Who may do what to many runs over HTTP, and which runs that reaches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from everstep import AsyncHost
from tests.integration.server.access.named_callers import ALL_ROLES, bearer, entry, named
from tests.integration.server.serving import Serving, code_of, expense, plain

FEW = entry("few", "operator", flows=("plain",)) + entry("other", "operator", flows=("expense",))
TAGGED = entry("blue", "operator", flows=("plain",)).replace(
    'role = "operator"', 'role = "operator"\ntags = ["team=blue"]'
)


async def order(s: Serving, name: str, act: str, where: str = "status is set", **more: Any) -> Any:
    return await s.client.post("/bulk", json={"act": act, "where": where, **more}, headers=bearer(name))


async def fill(host: AsyncHost) -> None:
    await host.run(plain, {"x": 1}, run_id="p1", tags={"team": "red"})
    await host.run(plain, {"x": 2}, run_id="p2", tags={"team": "blue"})
    await host.run(expense, {"amount": 1}, run_id="e1")


def test_an_operator_does_all_but_erase(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, ALL_ROLES) as s:
            await fill(s.host)
            for act in ("cancel", "resume", "retry", "fork", "pause", "unpause", "pin", "unpin"):
                response = await order(s, "operator", act, "id = nothing")
                assert response.status_code == 202, response.text
                assert response.headers["Location"] == f"/runs/{response.json()['run_id']}"
            refused = await order(s, "operator", "erase", "flow = plain", dry_run=True)
            assert code_of(refused) == (403, "request.forbidden")
            [row] = [row for row in await s.host.fleet.audit() if row.outcome == "refused"]
            assert (row.act, row.by) == ("bulk", "operator")
            found = (await order(s, "admin", "erase", "flow = plain", dry_run=True)).json()
            assert (found["to_do"], found["by_flow"]) == (2, {"plain": 2})

    asyncio.run(run())


def test_what_is_done_is_done_in_the_name_of_the_token(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, ALL_ROLES) as s:
            await fill(s.host)
            told = (await order(s, "operator", "pin", "flow = plain", comment="a dispute")).json()
            await s.host.fleet.drive_bulk(told["run_id"])
            shown = await s.client.get(f"/runs/{told['run_id']}", headers=bearer("viewer"))
            assert shown.json()["bulk"]["done"] == 2 and shown.json()["bulk"]["where"] == "(withheld)"
            shown = await s.client.get(f"/runs/{told['run_id']}", headers=bearer("reader"))
            assert shown.json()["bulk"]["where"] == "flow = plain"
            row = (await s.host.fleet.audit("p1"))[-1]
            assert (row.act, row.by, row.how) == ("pin", "operator", "authenticated")
            assert row.comment == f"a dispute (bulk {told['run_id']})"
            named_another = await order(s, "operator", "pin", "flow = plain", by="admin")
            assert named_another.status_code == 400

    asyncio.run(run())


def test_a_token_for_some_flows_reaches_their_runs_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FEW + ALL_ROLES) as s:
            await fill(s.host)
            found = (await order(s, "few", "tag", add=["seen"], dry_run=True)).json()
            assert (found["runs"], found["by_flow"]) == (2, {"plain": 2})
            told = (await order(s, "few", "tag", "status is set or flow = expense", add=["seen"])).json()
            assert told["flows"] == ["plain"]
            await s.host.fleet.drive_bulk(told["run_id"])
            assert sorted(run.run_id for run in await s.host.runs(tag="seen")) == ["p1", "p2"]
            path = f"/runs/{told['run_id']}"
            assert (await s.client.get(path, headers=bearer("few"))).json()["bulk"]["done"] == 2
            assert (await s.client.get(path, headers=bearer("other"))).status_code == 404
            whole = (await order(s, "admin", "tag", add=["all"])).json()
            assert (await s.client.get(f"/runs/{whole['run_id']}", headers=bearer("few"))).status_code == 404

    asyncio.run(run())


def test_a_token_for_some_tags_reaches_their_runs_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, TAGGED) as s:
            await fill(s.host)
            told = (await order(s, "blue", "pin", "not id = nothing")).json()
            assert (told["flows"], told["tags"]) == (["plain"], ["team=blue"])
            await s.host.fleet.drive_bulk(told["run_id"])
            assert [run.run_id for run in await s.host.runs(pinned=True)] == ["p2"]
            assert (await s.client.get(f"/runs/{told['run_id']}", headers=bearer("blue"))).status_code == 200

    asyncio.run(run())


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, ALL_ROLES) as s:
            for body in (
                {"act": "burn", "where": "status = failed"},
                {"act": "retry"},
                {"act": "retry", "where": ""},
                {"act": "retry", "where": "statsu = failed"},
                {"act": "retry", "where": "status = failed", "add": ["vip"]},
                {"act": "retry", "where": "status = failed", "per_second": 0},
                {"act": "retry", "where": "status = failed", "flows": ["plain"]},
            ):
                response = await s.client.post("/bulk", json=body, headers=bearer("operator"))
                assert response.status_code == 400, body
            assert await s.host.runs() == []

    asyncio.run(run())
