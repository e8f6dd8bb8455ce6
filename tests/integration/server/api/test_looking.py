"""Timelines, checkpoints, visits and values over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Flow, node
from tests.integration.server.access.named_callers import bearer, entry, named
from tests.integration.server.serving import Serving, code_of, expense, failing, served


@node(output="picture")
def paint(x: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"<script>alert(1)</script>"


@node(output="page")
def write(x: int) -> str:
    return "<script>alert(1)</script>" * 200


@node(output="lines")
def tabulate(x: int) -> list[dict[str, Any]]:
    return [{"sku": f"<b>{k}</b>", "a/b": k} for k in range(300)]


pictures = Flow("pictures", [paint, write, tabulate], durability="strong")


@served()
async def test_a_run_is_told_from_its_beginning_to_its_wait(s: Serving) -> None:
    waiting = await s.halted(expense, amount=7)
    path = f"/runs/{waiting.run_id}"
    told = (await s.client.get(f"{path}/timeline")).json()
    assert [lane["node"] for lane in told["lanes"]] == ["summarise", "decision"]
    assert told["lanes"][1]["segments"][0]["to"] is None and told["is_live"] is True
    listed = (await s.client.get(f"{path}/checkpoints?limit=1")).json()
    assert [one["sequence"] for one in listed["checkpoints"]] == [told["last"]]
    visit = (await s.client.get(f"{path}/steps/summarise@1")).json()
    assert visit["inputs"]["amount"]["value"] == 7
    assert [child["key"] for child in visit["outputs"]["summary"]["children"]] == [
        *("amount", "who", "items", "note"),
    ]
    assert visit["outputs"]["summary"]["children"][2]["cut"]["pointer"] == "/items"
    found = (await s.client.get(f"{path}/values?name=summary&pointer=/items/1")).json()
    assert found["values"]["summary"]["value"] == "hotel"


@served()
async def test_a_failed_visit_has_its_traceback(s: Serving) -> None:
    await s.host.run(failing, {"x": 1}, run_id="A")
    told = (await s.client.get("/runs/A/steps/explode")).json()
    assert told["error"]["type"] == "RuntimeError" and "explode" in told["error"]["traceback"]
    assert (told["status"], told["attempts"][0]["error"]) == ("failed", told["error"])


@served()
async def test_steps_in_flows_and_of_items_are_named_by_their_address(s: Serving) -> None:
    @node(output="size")
    def measure(words: str) -> int:
        return len(words)

    flow = Flow("inner", [Flow("each", [measure]).as_node().map_over("words")], durability="strong")
    await s.host.run(flow, {"words": ["a", "day"]}, run_id="A")
    told = (await s.client.get("/runs/A/steps/each%231%2Fmeasure")).json()
    assert (told["path"], told["outputs"]["size"]["value"]) == ("each#1/measure", 3)
    part = (await s.client.get("/runs/A%2Feach%231/steps/measure")).json()
    assert part["path"] == "each#1/measure"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs/A/steps/nothing", 404),
        ("/runs/A/steps/a%00b", 404),
        ("/runs/A/steps/paint?at=99", 404),
        ("/runs/A/timeline?since=yesterday", 400),
        ("/runs/A/timeline?most=0", 400),
        ("/runs/A/timeline?at=-1", 400),
        ("/runs/A/checkpoints?after=1&before=3", 400),
        ("/runs/A/values?name=nothing", 404),
        ("/runs/A/values?name=lines&pointer=lines", 400),
        ("/runs/A/values?name=lines&pointer=/900", 400),
        ("/runs/A/values/raw", 400),
        ("/runs/A/values/raw?name=nothing", 404),
        ("/runs/B/timeline", 404),
    ],
)
def test_what_is_asked_wrongly_is_refused(path: str, status: int) -> None:
    @served()
    async def asked(s: Serving) -> None:
        await s.host.run(pictures, {"x": 1}, run_id="A")
        response = await s.client.get(path)
        assert code_of(response)[0] == status, response.text
        assert response.json()["fix"]

    asked()


@served()
async def test_values_are_files_that_a_browser_runs_nothing_of(s: Serving) -> None:
    await s.host.run(pictures, {"x": 1}, run_id="A")
    for name, kind, disposition in (
        ("picture", "image/png", "inline"),
        ("page", "text/plain; charset=utf-8", "attachment"),
        ("lines", "application/json", "attachment"),
    ):
        response = await s.client.get(f"/runs/A/values/raw?name={name}")
        assert response.headers["content-type"] == kind
        assert response.headers["content-disposition"] == disposition
        assert response.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
    found = (await s.client.get("/runs/A/values?name=lines&from=290&count=50")).json()["values"]["lines"]
    assert len(found["children"]) == 10 and found["start"] == 290
    pointer = found["children"][0]["cut"]["children"][1]["cut"]["pointer"]
    assert pointer == "/290/a~1b"
    raw = await s.client.get("/runs/A/values/raw", params={"name": "lines", "pointer": pointer})
    assert raw.json() == 290


@served()
async def test_a_stretch_is_asked_for_by_time(s: Serving) -> None:
    await s.host.run(pictures, {"x": 1}, run_id="A")
    listed = (await s.client.get("/runs/A/checkpoints?after=0")).json()["checkpoints"]
    whole = (await s.client.get("/runs/A/timeline", params={"since": listed[0]["created_at"]})).json()
    assert (whole["first"], whole["last"]) == (1, len(listed))
    nothing = (await s.client.get("/runs/A/timeline?since=2999-01-01")).json()
    assert nothing["first"] == nothing["last"] == len(listed)


def test_a_viewer_sees_times_and_no_values(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, entry("ann", "viewer") + entry("bo", "reader")) as s:
            await s.host.run(failing, {"x": 1}, run_id="A")
            seen = (await s.client.get("/runs/A/steps/explode", headers=bearer("ann"))).json()
            assert (seen["inputs"], seen["outputs"], seen["error"]["type"]) == ({}, {}, "RuntimeError")
            assert (seen["error"]["message"], seen["error"]["traceback"]) == ("(withheld)", "")
            assert seen["record"][0]["reads"] == {} and seen["record"][0]["writes"] == []
            for path in ("/runs/A/values", "/runs/A/values/raw?name=x"):
                assert (await s.client.get(path, headers=bearer("ann"))).status_code == 403
                assert (await s.client.get(path, headers=bearer("bo"))).status_code == 200

    asyncio.run(run())


def test_a_token_for_some_flows_reads_only_their_runs(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, entry("ann", "reader", flows=("expense",))) as s:
            await s.host.run(failing, {"x": 1}, run_id="A")
            for path in ("timeline", "checkpoints", "steps/explode", "values", "values/raw?name=x"):
                assert (await s.client.get(f"/runs/A/{path}", headers=bearer("ann"))).status_code == 404

    asyncio.run(run())


def test_a_service_on_a_store_alone_tells_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        url = f"sqlite:///{tmp_path}/runs.db"
        async with AsyncHost(url) as host:
            await host.run(pictures, {"x": 1}, run_id="A")
            told = await host.debug.timeline("A")
        async with AsyncHost(url) as another:
            assert await another.debug.timeline("A") == told

    asyncio.run(run())
