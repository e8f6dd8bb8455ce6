"""Flows and runs as pictures over HTTP, and the flows of a store."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from pathlib import Path

from everstep import Flow, node
from tests.integration.server.access.named_callers import bearer, entry, named
from tests.integration.server.serving import Serving, code_of, plain, served, shipping


@node(output="n")
def only(x: int) -> int:
    return x


elsewhere = Flow("else.where-7", [only], version="7")
"""A flow that the service has not."""


async def ship(s: Serving) -> None:
    await s.host.run(shipping, {"day": date(2030, 1, 1), "amount": Decimal(1)}, run_id="A1")


@served()
async def test_a_run_is_drawn_with_its_inner_flow_open_or_folded(s: Serving) -> None:
    await ship(s)
    told = (await s.client.get("/runs/A1/drawing")).json()
    assert (told["run_id"], told["flow"], told["flow_version"]) == ("A1", "shipping", "1")
    assert {one["path"]: one["kind"] for one in told["nodes"]} == {
        "@inputs": "input",
        "ship": "node",
        "asking/name": "wait",
    }
    assert [one["path"] for one in told["groups"]] == ["asking"]
    folded = (await s.client.get("/runs/A1/drawing?open=")).json()
    assert [one["path"] for one in folded["nodes"] if one["is_folded"]] == ["asking"]
    for query in (
        "?open=asking",
        "?open=asking&open=nothing",
        "?open=nothing,asking",
        "?all=true",
        "?around=ship",
    ):
        assert (await s.client.get(f"/runs/A1/drawing{query}")).json() == told
    for name in ("A1@1", "A1%2Fasking", "A1@2%2Fasking"):
        assert (await s.client.get(f"/runs/{name}/drawing")).json() == told
    assert code_of(await s.client.get("/runs/A1/drawing?all=yes")) == (400, "request.invalid")
    assert (await s.client.get("/runs/nothing/drawing")).status_code == 404


@served()
async def test_a_drawing_that_the_client_has_is_not_sent_again(s: Serving) -> None:
    await ship(s)
    first = await s.client.get("/runs/A1/drawing")
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "private, no-cache"
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await s.client.get("/runs/A1/drawing", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    folded = await s.client.get("/runs/A1/drawing?open=", headers={"If-None-Match": tag})
    assert folded.status_code == 200 and folded.headers["etag"] != tag


@served()
async def test_edges_and_the_newest_checkpoints_are_told_of_a_run(s: Serving) -> None:
    await ship(s)
    told = (await s.client.get("/runs/A1/edges")).json()
    assert {(edge["source"], edge["target"]) for edge in told["edges"]} >= {("@inputs", "ship")}
    assert (await s.client.get("/runs/A1/edges?at=1")).json()["edges"] == []
    assert (await s.client.get("/runs/A1@1/edges?newest=5")).json()["sequence"] == 1
    assert (await s.client.get("/runs/A1/nodes")).json()["left_out"] == 0
    cut = (await s.client.get("/runs/A1/nodes?newest=1")).json()
    assert cut["left_out"] == cut["sequence"] - 1 > 0
    for path in ("nodes?newest=0", "nodes?newest=x", "edges?at=none", "edges?newest=9999"):
        assert code_of(await s.client.get(f"/runs/A1/{path}")) == (400, "request.invalid")


@served()
async def test_flows_are_listed_with_their_runs_and_versions(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    await s.host.start(plain, {"x": 1}, run_id="A2")
    await s.host.run(elsewhere, {"x": 1}, run_id="B1")
    flows = {one["flow"]: one for one in (await s.client.get("/flows")).json()["flows"]}
    assert flows["plain"] == {
        "flow": "plain",
        "runs": {"running": 1, "completed": 1},
        "versions": {"1": 2},
        "total": 2,
        "workers": 0,
        "is_loaded": True,
    }
    assert flows["else.where-7"]["versions"] == {"7": 1}
    assert not flows["else.where-7"]["is_loaded"]
    assert flows["failing"]["total"] == 0 and flows["failing"]["is_loaded"]
    assert list(flows) == sorted(flows)


@served()
async def test_a_flow_is_shown_with_what_its_code_says_or_the_command_that_would_know(s: Serving) -> None:
    told = (await s.client.get("/flows/failing")).json()
    assert {one["path"] for one in told["drawing"]["nodes"]} == {"@inputs", "explode"}
    assert (told["report"]["nodes"], told["findings"]["errors"]) == (["explode"], 0)
    assert told["asks"] is None
    await s.host.run(elsewhere, {"x": 1}, run_id="B1")
    told = (await s.client.get("/flows/else.where-7")).json()
    assert (told["flow"], told["drawing"]["flow_version"]) == ("else.where-7", "7")
    assert (told["report"], told["findings"]) == (None, None)
    assert told["asks"] == "everstep console FILE.py"
    assert code_of(await s.client.get("/flows/nothing")) == (404, "flow.not_found")


def test_flows_of_others_are_as_if_they_were_not_there(tmp_path: Path) -> None:
    tokens = entry("few", "operator", flows=("plain",)) + entry("tagged", "viewer", tags=("vip",))

    async def run() -> None:
        async with named(tmp_path, tokens) as s:
            await s.host.run(plain, {"x": 1}, run_id="A1", tags=["vip"])
            await s.host.run(plain, {"x": 1}, run_id="A2")
            await s.host.run(elsewhere, {"x": 1}, run_id="B1")
            told = (await s.client.get("/flows", headers=bearer("few"))).json()["flows"]
            assert [(one["flow"], one["total"]) for one in told] == [("plain", 2)]
            assert (await s.client.get("/flows/failing", headers=bearer("few"))).status_code == 404
            tagged = (await s.client.get("/flows", headers=bearer("tagged"))).json()["flows"]
            seen = {one["flow"]: one for one in tagged if one["runs"]}
            assert {name: (one["runs"], one["total"]) for name, one in seen.items()} == {
                "plain": ({"completed": 1}, None)
            }
            assert "else.where-7" not in {one["flow"] for one in tagged}

    asyncio.run(run())


def test_a_viewer_sees_drawings_and_no_words_of_authors(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, entry("looks", "viewer")) as s:
            await s.host.run(plain, {"x": 1}, run_id="A1")
            told = (await s.client.get("/flows/plain", headers=bearer("looks"))).json()
            assert told["drawing"]["nodes"] and (told["report"], told["findings"]) == (None, None)
            first = await s.client.get("/runs/A1/drawing", headers=bearer("looks"))
            assert first.status_code == 200 and first.json()["run_id"] == "A1"
            known = {**bearer("looks"), "If-None-Match": first.headers["etag"]}
            assert (await s.client.get("/runs/A1/drawing", headers=known)).status_code == 304
            assert (await s.client.get("/runs/A1/edges", headers=bearer("looks"))).status_code == 200

    asyncio.run(run())
