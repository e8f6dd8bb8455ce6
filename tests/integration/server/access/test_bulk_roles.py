"""Who may do what to many runs over HTTP, and which runs that reaches."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost
from everstep.model.commits import BULK_FLOW, RunRow, Tag
from everstep.model.enums import Status
from everstep.runtime.operations.bulk.verdict import BulkAct, BulkOutcome, TagChange, judge
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


def test_an_order_cannot_be_forked_into_one_that_its_giver_did_not_give(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FEW + ALL_ROLES) as s:
            await fill(s.host)
            whole = (await order(s, "admin", "erase", "flow = plain")).json()["run_id"]
            own = (await order(s, "few", "pin")).json()["run_id"]
            other = {"order": {"act": "erase", "where": "status is set", "now": "2030-01-01T00:00:00Z"}}
            for name, run_id in (("operator", whole), ("few", own), ("admin", whole)):
                for body in (
                    {"at": 1},
                    {"at": 1, "inputs": other},
                    {"at": 1, "inputs": other, "fork_id": "f"},
                ):
                    path = f"/runs/{run_id}/fork"
                    refused = await s.client.post(path, json=body, headers=bearer(name))
                    assert code_of(refused) == (400, "request.invalid"), (name, body)
                    assert "everstep.bulk" in refused.json()["message"]
                row = (await s.host.fleet.audit(act="fork"))[-1]
                assert (row.by, row.outcome) == (name, "refused")
            looked = await s.client.get(f"/runs/{whole}/fork?at=1", headers=bearer("operator"))
            assert code_of(looked) == (400, "request.invalid")
            assert len(await s.host.runs(flow=BULK_FLOW)) == 2

    asyncio.run(run())


@pytest.mark.parametrize("act", [BulkAct.RETRY, BulkAct.RESUME, BulkAct.FORK])
def test_an_order_that_failed_is_not_given_again_by_another(act: BulkAct) -> None:
    row = RunRow(
        run_id="b",
        flow_id=BULK_FLOW,
        flow_version="1",
        flow_hash="h",
        parent_run_id=None,
        status=Status.FAILED,
        created_at=datetime.now(UTC),
        ended_at=None,
        checkpoints=2,
        lease=None,
    )
    assert judge(act, row).outcome is BulkOutcome.REFUSED
    assert judge(BulkAct.TAG, row, change=TagChange([Tag("seen", "")])).outcome is BulkOutcome.DONE


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
