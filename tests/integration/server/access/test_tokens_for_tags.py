"""Tokens for some tags: runs that have none of them are as if they were not there."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep.model.leases import Driven, WorkerRow
from everstep.registry import open_store
from everstep.server.access.roles import Principal, Reach, Role
from everstep.server.endpoint import Endpoint
from everstep.server.routes import ENDPOINTS
from tests.integration.server.access.named_callers import bearer, entry, named
from tests.integration.server.access.test_restricted_tokens import OF_ONE, everything, said
from tests.integration.server.serving import NO_SUCH_WAIT, Serving, ask_text, code_of, plain

BLUE = entry("blue", "admin", tags=("team=blue", "vip"))
BOTH = entry("both", "admin", flows=("ask_text",), tags=("vip",))
FILE = BLUE + BOTH + entry("all", "admin")
TAGS: dict[str, Any] = {
    "seen": {"team": "blue"},
    "vip": ["vip", "late"],
    "hidden": {"team": "red"},
    "bare": [],
    "nearly": {"team": "blues", "x": "vip", "blue": ""},
}


async def fill(s: Serving) -> None:
    """Make halted runs with these tags, of which the token named blue sees two."""
    s.client.headers.update(bearer("blue"))
    for name, tags in TAGS.items():
        await s.host.run(ask_text, run_id=name, tags=tags)
    await s.host.run(plain, {"x": 1}, run_id="plain", tags=["vip"])


@pytest.mark.parametrize("endpoint", OF_ONE, ids=lambda e: e.name)
def test_a_run_without_the_tags_is_as_if_it_were_not_there(tmp_path: Path, endpoint: Endpoint) -> None:
    async def run() -> None:
        async with named(tmp_path, FILE) as s:
            await fill(s)
            before = await everything(s)
            for name in ("hidden", "bare", "nearly"):
                there, missing = name, "nowhere"
                if endpoint.reach is Reach.WAIT:
                    [opened] = await s.host.waits(name)
                    there, missing = opened.id, NO_SUCH_WAIT
                status, text = await said(s, endpoint, there)
                assert (status, text) == await said(s, endpoint, missing)
                assert status == 404, text
            assert await everything(s) == before
            [opened] = await s.host.waits("seen")
            place = opened.id if endpoint.reach is Reach.WAIT else "seen"
            assert (await said(s, endpoint, place))[0] != 404

    asyncio.run(run())


@pytest.mark.parametrize("name", [e.name for e in ENDPOINTS if e.reach is Reach.STORE and e.role])
def test_what_is_about_all_runs_is_refused(tmp_path: Path, name: str) -> None:
    endpoint = next(e for e in ENDPOINTS if e.name == name)

    async def run() -> None:
        async with named(tmp_path, FILE) as s:
            s.client.headers.update(bearer("blue"))
            path = re.sub(r"{\w+}", "mail", endpoint.path)
            refused = await s.client.request(endpoint.method, path, json={})
            assert code_of(refused) == (403, "request.forbidden")

    asyncio.run(run())


def test_lists_have_the_runs_and_waits_with_its_tags_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FILE) as s:
            await fill(s)
            for query in ("", "?where=status%20is%20set", "?limit=1000&labels=true"):
                runs = (await s.client.get(f"/runs{query}")).json()
                assert [one["run_id"] for one in runs["runs"]] == ["plain", "vip", "seen"]
                assert runs["next"] is None
            red = await s.client.get("/runs", params={"where": "tag.team = red or id = hidden"})
            assert red.json()["runs"] == []
            found: list[str] = []
            following = ""
            for _ in range(5):
                page = (await s.client.get(f"/runs?limit=1{following}")).json()
                found += [one["run_id"] for one in page["runs"]]
                if page["next"] is None:
                    break
                following = f"&before={page['next']}"
            assert found == ["plain", "vip", "seen"]
            assert [w["run_id"] for w in (await s.client.get("/waits")).json()["waits"]] == ["seen", "vip"]
            assert (await s.client.get("/waits?run_id=hidden")).status_code == 404
            assert (await s.client.get("/runs?before=hidden")).status_code == 404
            both = (await s.client.get("/runs", headers=bearer("both"))).json()["runs"]
            assert [one["run_id"] for one in both] == ["vip"]

    asyncio.run(run())


def test_it_starts_only_runs_that_it_sees(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FILE) as s:
            await fill(s)
            start = {"flow": "plain", "inputs": {"x": 1}}
            for tags in ([], {"team": "red"}, ["team"], ["blue"]):
                refused = await s.client.post("/runs", json={**start, "tags": tags})
                assert code_of(refused) == (403, "request.forbidden")
                assert refused.json()["fix"] == "Give it one of them: team=blue, vip."
            taken = await s.client.post("/runs", json={**start, "tags": ["vip"], "run_id": "hidden"})
            assert code_of(taken) == (409, "run.flow_changed")
            for tags in ({"team": "blue"}, ["vip"]):
                assert (await s.client.post("/runs", json={**start, "tags": tags})).status_code == 202
            [row] = await s.host.fleet.audit(by="blue", act="start", limit=1)
            assert row.outcome == "done"

    asyncio.run(run())


def test_a_run_that_loses_its_tag_is_not_seen_any_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FILE) as s:
            await fill(s)
            assert (await s.client.get("/runs/seen")).status_code == 200
            gone = await s.client.post("/runs/seen/tags", json={"remove": ["team"]})
            assert gone.status_code == 200
            assert (await s.client.get("/runs/seen")).status_code == 404

    asyncio.run(run())


def test_what_workers_drive_and_what_no_worker_takes_is_shown_by_tags(tmp_path: Path) -> None:
    async def run() -> None:
        url = f"sqlite:///{tmp_path}/runs.db"
        async with named(tmp_path, FILE, url) as s:
            await fill(s)
            for name in ("due-0", "due-1", "due-2"):
                await s.host.start(plain, {"x": 1}, run_id=name, tags=["vip"] if name == "due-1" else [])
            for query in ("", "?limit=1"):
                untaken = (await s.client.get(f"/untaken{query}")).json()["runs"]
                assert [one["run_id"] for one in untaken] == ["due-1"]
            now = s.clock.now()
            driven = [Driven(run_id=name, flow_id="ask_text", since=now) for name in ("seen", "hidden")]
            row = WorkerRow(
                worker_id="w1",
                host="box",
                pid=7,
                flows=("ask_text",),
                concurrency=8,
                started_at=now,
                driving=2,
                longest=tuple(driven),
            )
            await open_store(url, s.clock).store.report(row, timedelta(days=1))
            [shown] = (await s.client.get("/workers")).json()["workers"]
            assert [one["run_id"] for one in shown["longest"]] == ["seen"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("flow", "tags", "is_seen"),
    [
        ("a", {"vip": ""}, True),
        ("a", {"vip": "yes"}, True),
        ("a", {"team": "blue"}, True),
        ("a", {"team": "red"}, False),
        ("a", {"team": ""}, False),
        ("a", {}, False),
        ("a", None, False),
        ("b", {"vip": ""}, False),
    ],
)
def test_one_of_the_tags_is_enough_and_the_flow_counts_too(
    flow: str, tags: dict[str, str] | None, is_seen: bool
) -> None:
    some = Principal(role=Role.READER, flows=frozenset({"a"}), tags=frozenset({"vip", "team=blue"}))
    assert some.sees(flow, tags) is is_seen
