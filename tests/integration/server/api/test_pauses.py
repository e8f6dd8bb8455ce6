"""Pausing runs, flows and groups over HTTP, and who may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from everstep import AsyncHost
from tests.integration.server.access.named_callers import bearer, entry, named
from tests.integration.server.serving import Serving, ask_text, code_of, expense, plain, served

NAMES = "\n".join(
    [
        entry("ann", "operator"),
        entry("eve", "viewer"),
        entry("few", "operator", flows=("expense",)),
        entry("blue", "operator", tags=("team=blue",)),
    ]
)


async def paused(s: Serving, **query: str) -> list[str | None]:
    """Return what is listed: runs by their id, flows and groups by `flow/group`."""
    found = (await s.client.get("/pauses", params=query)).json()["pauses"]
    return [one["run_id"] or f"{one['flow'] or '*'}/{one['group'] or '*'}" for one in found]


@served()
async def test_a_run_is_paused_and_let_go_on(s: Serving) -> None:
    await s.host.run(ask_text, run_id="A1")
    said = {"by": "ann", "comment": "a look"}
    told = (await s.client.post("/runs/A1/pause", json=said)).json()
    assert (told["run_id"], told["flow"], told["by"]["by"]) == ("A1", "ask_text", "ann")
    again = (await s.client.post("/runs/A1/pause", json={"by": "bob"})).json()
    assert again == told, "the first pause counts"
    shown = (await s.client.get("/runs/A1")).json()
    assert (shown["status"], shown["paused_at"]) == ("halted", told["since"])
    assert shown["paused_by"] == told["by"]
    listed = (await s.client.get("/runs", params={"paused": "true"})).json()["runs"]
    assert [one["run_id"] for one in listed] == ["A1"]
    refused = await s.client.post("/runs/A1/resume")
    assert code_of(refused) == (409, "run.paused") and "ann: a look" in refused.json()["message"]
    assert (await s.client.post("/runs/A1/unpause")).json() == {"unpaused": True}
    assert (await s.client.post("/runs/A1/unpause")).json() == {"unpaused": False}
    assert (await s.client.get("/runs/A1")).json()["paused_at"] is None


@served()
async def test_a_run_that_has_ended_or_is_none_is_not_paused(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    assert code_of(await s.client.post("/runs/A1/pause")) == (409, "run.ended")
    for act in ("pause", "unpause"):
        assert (await s.client.post(f"/runs/none/{act}")).status_code == 404
    part = await s.client.post("/runs/A1%2Fadd/pause")
    assert code_of(part) == (400, "request.invalid")


@served(works=False)
async def test_flows_and_groups_are_paused_and_listed_before_runs(s: Serving) -> None:
    await s.host.run(ask_text, run_id="A1")
    await s.client.post("/runs/A1/pause")
    for body in ({"flow": "plain"}, {"flow": "plain", "group": "acme"}, {"group": "acme"}):
        told = (await s.client.post("/pauses", json=body)).json()
        assert (told["run_id"], told["flow"], told["group"]) == (None, body.get("flow"), body.get("group"))
    assert await paused(s) == ["*/acme", "plain/*", "plain/acme", "A1"]
    assert await paused(s, runs="false") == ["*/acme", "plain/*", "plain/acme"]
    assert code_of(await s.client.get("/pauses", params={"runs": "no"})) == (400, "request.invalid")
    assert code_of(await s.client.post("/pauses", json={})) == (400, "request.invalid")
    await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 1}, "run_id": "A2"})
    assert (await s.host.work([plain], until_idle=True)).claimed == 0
    lifted = await s.client.post("/pauses/lift", json={"flow": "plain"})
    assert lifted.json() == {"unpaused": True}
    assert (await s.client.post("/pauses/lift", json={"flow": "plain"})).json() == {"unpaused": False}
    assert (await s.host.work([plain], until_idle=True)).completed == 1


def with_names(tmp_path: Path, test: Callable[[Serving], Awaitable[None]]) -> None:
    async def run() -> None:
        async with named(tmp_path, NAMES) as s:
            await fill(s.host)
            await test(s)

    asyncio.run(run())


async def fill(host: AsyncHost) -> None:
    await host.run(ask_text, run_id="t1", tags={"team": "blue"})
    await host.run(expense, {"amount": 1}, run_id="e1", tags={"team": "red"})


def test_the_audit_log_names_the_token_and_the_flow_or_group(tmp_path: Path) -> None:
    async def test(s: Serving) -> None:
        ann = bearer("ann")
        await s.client.post("/runs/t1/pause", headers=ann)
        for body in ({"flow": "plain"}, {"flow": "plain", "group": "acme"}, {"group": "acme"}):
            await s.client.post("/pauses", json={**body, "comment": "a look"}, headers=ann)
            await s.client.post("/pauses/lift", json=body, headers=ann)
        refused = await s.client.post("/runs/t1/pause", headers=bearer("eve"))
        assert code_of(refused) == (403, "request.forbidden")
        rows = [row for row in await s.host.fleet.audit() if row.by in ("ann", "eve")]
        assert [(row.act, row.run_id, row.about, row.outcome, row.how) for row in rows] == [
            ("pause", "t1", "", "done", "authenticated"),
            *(
                (act, None, about, "done", "authenticated")
                for about in ("plain", "plain/acme", "*/acme")
                for act in ("pause", "unpause")
            ),
            ("pause", "t1", "", "refused", "authenticated"),
        ]

    with_names(tmp_path, test)


def test_who_sees_some_runs_pauses_and_sees_no_others(tmp_path: Path) -> None:
    async def test(s: Serving) -> None:
        async def ask(name: str, path: str, body: dict[str, Any] | None = None) -> Any:
            return await s.client.post(path, json=body or {}, headers=bearer(name))

        async def seen(name: str) -> list[str]:
            found = (await s.client.get("/pauses", headers=bearer(name))).json()["pauses"]
            return [one["run_id"] or f"{one['flow'] or '*'}/{one['group'] or '*'}" for one in found]

        assert (await ask("few", "/runs/e1/pause")).status_code == 200
        assert (await ask("few", "/runs/t1/pause")).status_code == 404
        assert (await ask("few", "/pauses", {"flow": "expense"})).status_code == 200
        assert (await ask("few", "/pauses", {"flow": "expense", "group": "acme"})).status_code == 200
        assert (await ask("blue", "/runs/t1/pause")).status_code == 200
        assert (await ask("blue", "/runs/e1/pause")).status_code == 404
        for name, body in (
            ("few", {"flow": "ask_text"}),
            ("few", {"group": "acme"}),
            ("blue", {"flow": "ask_text"}),
            ("blue", {"group": "acme"}),
        ):
            for path in ("/pauses", "/pauses/lift"):
                assert code_of(await ask(name, path, body)) == (403, "request.forbidden")
        await ask("ann", "/pauses", {"flow": "ask_text"})
        assert await seen("few") == ["expense/*", "expense/acme", "e1"]
        assert "e1" not in await seen("blue") and "t1" in await seen("blue")
        assert len(await seen("ann")) == 5

    with_names(tmp_path, test)


def test_a_viewer_sees_who_paused_and_not_why(tmp_path: Path) -> None:
    async def test(s: Serving) -> None:
        await s.client.post("/runs/t1/pause", json={"comment": "a secret"}, headers=bearer("ann"))
        for path in ("/pauses", "/runs/t1", "/runs?paused=true"):
            shown = await s.client.get(path, headers=bearer("eve"))
            assert shown.status_code == 200 and "a secret" not in shown.text and '"ann"' in shown.text

    with_names(tmp_path, test)
