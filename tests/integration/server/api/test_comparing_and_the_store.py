"""Two runs side by side, and the store itself, over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

from everstep import Flow, Retention, node
from everstep.server.app import create_app
from tests.integration.server.access.named_callers import bearer, entry, named
from tests.integration.server.serving import Serving, ask_text, code_of, plain, served, serving


@served()
async def test_two_runs_are_compared(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    await s.host.fork("A1", at=1, inputs={"x": 5}, fork_id="A2")
    await s.host.resume("A2", plain)
    told = (await s.client.get("/compare?a=A1&b=A2")).json()
    assert told["shared_until"] == 1
    assert {one["name"]: one["after"]["text"] for one in told["values"]} == {"x": "5", "total": "6"}
    assert told["first_difference"]["what"] == "other_inputs"
    moments = (await s.client.get("/compare?a=A1@1&b=A1%2Fadd")).json()
    assert moments["after"]["part"] == "add"


@served()
async def test_a_comparison_needs_two_runs_that_are_there(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    for query, expected in [
        ("", (400, "request.invalid")),
        ("?a=A1", (400, "request.invalid")),
        ("?a=A1&b=A9", (404, "DAG-CKPT-006")),
        ("?a=A1@7&b=A1", (404, "DAG-CKPT-006")),
        ("?a=A1&b=a%20b", (400, "request.invalid")),
    ]:
        assert code_of(await s.client.get(f"/compare{query}")) == expected, query


def test_a_viewer_is_told_which_values_differ_and_no_key_of_theirs(tmp_path: Path) -> None:
    @node(output="found")
    def look(word: str) -> dict[str, str]:
        return {word: word}

    looking = Flow("looking", [look])

    async def run() -> None:
        async with named(tmp_path, entry("v", "viewer") + entry("few", "reader", flows=("plain",))) as s:
            await s.host.run(looking, {"word": "c4n4ry"}, run_id="A1")
            await s.host.run(looking, {"word": "hidden"}, run_id="A2")
            await s.host.run(plain, {"x": 1}, run_id="P1")
            seen = await s.client.get("/compare?a=A1&b=A2", headers=bearer("v"))
            assert seen.status_code == 200
            assert "c4n4ry" not in seen.text and "hidden" not in seen.text
            assert [one["path"] for one in seen.json()["values"]] == ["word", "found"]
            for query in ("a=P1&b=A2", "a=A1&b=P1"):
                assert (await s.client.get(f"/compare?{query}", headers=bearer("few"))).status_code == 404
            assert (await s.client.get("/store", headers=bearer("few"))).status_code == 403
            store = (await s.client.get("/store", headers=bearer("v"))).json()
            assert str(tmp_path) not in str(store)

    asyncio.run(run())


def test_the_store_says_how_it_is_and_what_it_keeps(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(f"sqlite:///{tmp_path}/runs.db") as s:
            await s.host.run(plain, {"x": 1})
            await s.halted(ask_text)
            told = (await s.client.get("/store")).json()
            assert told["runs"] == {"completed": 1, "halted": 1}
            assert told["waits"] == {"text": 1}
            assert told["is_well"] and told["server"].startswith("SQLite")
            assert told["size_bytes"] >= (tmp_path / "runs.db").stat().st_size
            assert (told["rules"], told["flows"]) == ({}, [])

    asyncio.run(run())


@served()
async def test_the_store_is_not_looked_over_for_every_caller(s: Serving) -> None:
    kept = Flow("kept", plain.nodes, retention=Retention(keep_last=3, keep_for="7d"))
    app = create_app(s.host, [kept], token=None)
    assert app.service.looked_over is not s.app.service.looked_over
    told = [(await s.client.get("/store")).json() for _ in range(3)]
    await s.host.run(plain, {"x": 1})
    assert [one["runs"] for one in [*told, (await s.client.get("/store")).json()]] == [{}] * 4
    seen = await app.service.looked_over.seen(s.host, [kept])
    assert [(one.flow, one.rules) for one in seen.flows] == [("kept", {"keep_for": "7d", "keep_last": 3})]
