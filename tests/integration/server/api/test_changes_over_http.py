"""Changes over HTTP: streamed to all who look on, narrowed to what each may see, and none missed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from everstep import AsyncHost
from everstep.server.access.roles import Principal, Role
from everstep.server.api.changes import _as_seen
from everstep.server.streams import stream
from tests.integration.server.access.named_callers import bearer, entry, named
from tests.integration.server.listening import listening
from tests.integration.server.serving import BEARER, TOKEN, Serving, ask_text, code_of, plain, served

JSON = {"Accept": "application/json"}
PATIENCE = 20.0


@asynccontextmanager
async def looking(address: str, path: str = "/changes", **headers: str) -> AsyncIterator[AsyncIterator[Any]]:
    """Open a stream and yield its messages, each with its id and kind from the frame."""
    sent = {**BEARER, "Accept": "text/event-stream", **headers}
    async with (
        httpx.AsyncClient(base_url=address, headers=sent, timeout=PATIENCE) as client,
        client.stream("GET", path) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")

        async def messages() -> AsyncIterator[Any]:
            frame: dict[str, str] = {}
            async for line in response.aiter_lines():
                name, _, text = line.partition(": ")
                frame[name] = text
                if not line:
                    if "data" in frame:
                        told = json.loads(frame["data"])
                        assert (told["id"], told["kind"]) == (frame["id"], frame["event"])
                        yield told
                    frame = {}

        yield messages()


async def until(messages: AsyncIterator[Any], run_id: str, status: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        async for told in messages:
            if any((run["run_id"], run["status"]) == (run_id, status) for run in told["runs"]):
                return told
    raise AssertionError("the stream has ended")


def test_changes_of_another_process_come_as_frames_and_go_on_after_the_last_one_seen(tmp_path: Path) -> None:
    async def play(address: str) -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            async with looking(address) as messages:
                assert (await anext(messages))["kind"] == "ready"
                await host.run(plain, {"x": 1}, run_id="A1")
                told = await until(messages, "A1", "completed")
                run = {"run_id": "A1", "flow": "plain", "sequence": 2, "status": "completed"}
                assert told["runs"] == [{**run, "is_gone": False}]
            await host.run(plain, {"x": 1}, run_id="A2")
            async with looking(address, **{"Last-Event-ID": told["id"]}) as messages:
                assert [run["run_id"] for run in (await until(messages, "A2", "completed"))["runs"]] == ["A2"]
            async with looking(address, f"/changes?after={told['id']}&run_id=A1") as messages:
                assert (await anext(messages))["kind"] in ("ready", "refetch")

    with listening(tmp_path) as address:
        asyncio.run(play(address))


def test_a_service_that_was_restarted_says_to_read_all_again(tmp_path: Path) -> None:
    async def first(address: str) -> str:
        async with looking(address) as messages:
            return str((await anext(messages))["id"])

    async def then(address: str, last: str) -> None:
        async with looking(address, **{"Last-Event-ID": last}) as messages:
            told = await anext(messages)
            assert told["kind"] == "refetch"
            async with httpx.AsyncClient(base_url=address, headers=BEARER) as client:
                shown = (await client.get("/runs")).json()["runs"]
                assert [run["run_id"] for run in shown] == ["A1"], "what it reads now has what it missed"

    async def missed() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            await host.run(plain, {"x": 1}, run_id="A1")

    with listening(tmp_path) as address:
        last = asyncio.run(first(address))
    asyncio.run(missed())
    with listening(tmp_path) as address:
        asyncio.run(then(address, last))


def test_one_who_does_not_read_holds_no_other_up(tmp_path: Path) -> None:
    async def play(address: str) -> None:
        host_name, _, port = address.removeprefix("http://").partition(":")
        deaf = socket.create_connection((host_name, int(port)))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.sendall(f"GET /changes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        try:
            async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host, looking(address) as messages:
                assert (await anext(messages))["kind"] == "ready"
                for k in range(4):
                    await host.run(plain, {"x": k}, run_id=f"A{k}")
                    await until(messages, f"A{k}", "completed")
        finally:
            deaf.close()

    with listening(tmp_path) as address:
        asyncio.run(play(address))


@served(keep_alive=0.01)
async def test_a_silent_stream_says_that_it_lives_and_ends_with_the_service(s: Serving) -> None:
    source = stream(s.app.service, s.host.changes(), lambda one: one.kind.encode())
    seen = [await anext(source) for _ in range(4)]
    assert seen == [b"retry: 2000\n\n", b"ready", b": still here\n\n", b": still here\n\n"]
    s.app.service.stopping.set()
    assert [one async for one in source] in ([], [b": still here\n\n"])
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@served()
async def test_without_a_stream_it_says_what_has_changed_since(s: Serving) -> None:
    first = (await s.client.get("/changes", headers=JSON)).json()
    assert (first["kind"], first["runs"]) == ("ready", [])
    await s.host.run(plain, {"x": 1}, run_id="A1")
    then = (await s.client.get(f"/changes?after={first['id']}", headers=JSON)).json()
    assert [run["run_id"] for run in then["runs"]] == ["A1"]
    again = (await s.client.get(f"/changes?after={then['id']}", headers=JSON)).json()
    assert again["runs"] == []
    for query, expected in [
        ("?after=x", (400, "request.invalid")),
        ("?run_id=A9", (404, "DAG-CKPT-006")),
        ("?run_id=a%20b", (400, "request.invalid")),
        ("?" + "&".join(f"run_id=A{k}" for k in range(101)), (400, "request.invalid")),
    ]:
        assert code_of(await s.client.get(f"/changes{query}", headers=JSON)) == expected, query


def test_each_is_told_of_the_runs_that_it_sees(tmp_path: Path) -> None:
    few = entry("flows", "viewer", flows=("plain",)) + entry("tags", "viewer", tags=("vip",))

    async def run() -> None:
        async with named(tmp_path, entry("all", "viewer") + few) as s:
            first = {
                name: (await s.client.get("/changes", headers=JSON | bearer(name))).json()["id"]
                for name in ("all", "flows", "tags")
            }
            await s.host.run(plain, {"x": 1}, run_id="P1")
            await s.host.run(plain, {"x": 1}, run_id="P2", tags=["vip"])
            await s.host.run(ask_text, {}, run_id="Q1")
            seen = {}
            for name, after in first.items():
                told = await s.client.get(f"/changes?after={after}", headers=JSON | bearer(name))
                seen[name] = {run["run_id"] for run in told.json()["runs"]}
            assert seen == {"all": {"P1", "P2", "Q1"}, "flows": {"P1", "P2"}, "tags": {"P2"}}
            for name, run_id in [("flows", "Q1"), ("tags", "P1")]:
                response = await s.client.get(f"/changes?run_id={run_id}", headers=JSON | bearer(name))
                assert response.status_code == 404
            caller = Principal(role=Role.VIEWER, flows=frozenset({"plain"}))
            source = _as_seen(s.app.service, caller, s.host.changes(after=first["all"]))
            async with asyncio.timeout(PATIENCE):
                assert {run.run_id for run in (await anext(source)).runs} == {"P1", "P2"}
            await source.aclose()

    asyncio.run(run())
