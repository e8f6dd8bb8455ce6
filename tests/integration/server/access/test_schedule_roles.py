"""Schedules over HTTP: from the making to the end; and which a token for some flows or tags reaches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everstep.server.endpoint import Endpoint
from everstep.server.routes import ENDPOINTS
from tests.integration.server.access.named_callers import ALL_ROLES, bearer, entry, named
from tests.integration.server.serving import Serving, code_of, plain

TOKENS = (
    entry("few", "operator", flows=("plain",)) + entry("blue", "operator", tags=("team=blue",)) + ALL_ROLES
)
OF_ONE = [e for e in ENDPOINTS if e.path.startswith("/schedules/{run_id}")]
BODIES: dict[str, Any] = {"change_schedule": {"every": "2h"}, "backfill_schedule": {"since": "-1d"}}


async def said(s: Serving, endpoint: Endpoint, name: str, by: str) -> tuple[int, str]:
    body = BODIES.get(endpoint.name, {}) if endpoint.method == "POST" else None
    path = endpoint.path.format(run_id=name)
    response = await s.client.request(endpoint.method, path, json=body, headers=bearer(by))
    return response.status_code, response.text.replace(name, "NAME")


def test_a_schedule_from_its_making_to_its_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, ALL_ROLES) as s:
            s.client.headers.update(bearer("operator"))
            body: dict[str, object] = {
                "flow": "plain",
                "id": "nightly",
                "cron": "0 2 * * *",
                "zone": "Europe/Berlin",
            }
            wrong = await s.client.post("/schedules", json=body)
            assert code_of(wrong)[0] == 422  # its input is missing
            body |= {"inputs": {"x": 1}, "comment": "for the books"}
            made = await s.client.post("/schedules", json=body)
            assert made.status_code == 200 and made.headers["Location"] == "/schedules/nightly"
            told = made.json()
            assert (told["zone"], told["started"], told["paused"]) == ("Europe/Berlin", 0, False)
            assert (await s.client.get("/schedules/nightly")).json() == told
            assert (await s.client.get("/schedules")).json() == {"schedules": [told], "next": None}
            assert (await s.client.get("/schedules?flow=other")).json()["schedules"] == []
            times = (await s.client.get("/schedules/nightly/times?count=3")).json()["times"]
            assert len(times) == 3 and times[0] == told["next"]
            assert (await s.client.post("/schedules/nightly/pause")).json()["paused"] is True
            assert (await s.client.post("/schedules/nightly/unpause")).json()["paused"] is False
            asked = await s.client.post("/schedules/nightly/run", json={"id": "now"})
            assert asked.status_code == 202
            assert (await s.client.post("/schedules/nightly/change", json={"every": "2h"})).status_code == 202
            filled = await s.client.post("/schedules/nightly/backfill", json={"since": "-8h", "at_most": 2})
            assert filled.status_code == 202
            await s.host.worker([plain]).run(until_idle=True)
            told = (await s.client.get("/schedules/nightly")).json()
            assert (told["cron"], told["every"], told["started"] >= 2) == (None, "2h", True)
            assert (await s.host.info(asked.json()["run_id"])).status == "completed"
            assert (await s.client.post("/schedules/nightly/backfill/stop")).status_code == 202
            assert (await s.client.delete("/schedules/nightly")).json() == {"deleted": True}
            assert (await s.client.get("/schedules/nightly")).status_code == 404
            rows = [(row.act, row.by) for row in await s.host.fleet.audit("nightly")]
            assert {("create_schedule", "operator"), ("delete_schedule", "operator")} <= {*rows}

    asyncio.run(run())


@pytest.mark.parametrize("endpoint", OF_ONE, ids=lambda e: e.name)
def test_a_schedule_of_others_is_as_if_it_were_not_there(tmp_path: Path, endpoint: Endpoint) -> None:
    async def run() -> None:
        async with named(tmp_path, TOKENS) as s:
            create = s.host.schedules.create
            await create("plain", "red", every="1h", tags={"team": "red"})
            await create("expense", "blue", every="1h", tags={"team": "blue"})
            for by, hidden, seen in (("few", "blue", "red"), ("blue", "red", "blue")):
                before = await s.host.schedules.list()
                status, text = await said(s, endpoint, hidden, by)
                assert (status, text) == await said(s, endpoint, "nowhere", by) and status == 404
                assert await s.host.schedules.list() == before
                assert (await said(s, endpoint, seen, by))[0] in (200, 202)

    asyncio.run(run())


def test_a_listing_has_what_its_caller_sees_page_by_page(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, TOKENS) as s:
            for k in range(6):
                flow, team = ("plain", "red") if k % 2 else ("expense", "blue")
                await s.host.schedules.create(flow, f"s{k}", every="1h", tags={"team": team})
            for by, expected in (
                ("few", ["s5", "s3", "s1"]),
                ("blue", ["s4", "s2", "s0"]),
                ("viewer", [f"s{k}" for k in range(5, -1, -1)]),
            ):
                found: list[str] = []
                query = "?limit=2"
                while True:
                    page = (await s.client.get(f"/schedules{query}", headers=bearer(by))).json()
                    found += [one["schedule_id"] for one in page["schedules"]]
                    if page["next"] is None:
                        break
                    query = f"?limit=2&before={page['next']}"
                assert found == expected
            refused = await s.client.get("/schedules?before=s0", headers=bearer("few"))
            assert refused.status_code == 404

    asyncio.run(run())


def test_no_one_makes_a_schedule_of_runs_that_they_would_not_see(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, TOKENS) as s:
            await s.host.schedules.create("plain", "taken", every="1h")
            await s.host.schedules.create("plain", "blue", every="1h", tags={"team": "blue"})
            for by, path, body in (
                ("few", "/schedules", {"flow": "expense", "id": "x", "every": "1h"}),
                ("blue", "/schedules", {"flow": "plain", "id": "x", "every": "1h", "inputs": {"x": 1}}),
                ("blue", "/schedules/blue/change", {"tags": {"team": "red"}}),
            ):
                assert (await s.client.post(path, json=body, headers=bearer(by))).status_code == 403, body
            body = {
                "flow": "plain",
                "id": "taken",
                "every": "1h",
                "tags": {"team": "blue"},
                "inputs": {"x": 1},
            }
            assert (await s.client.post("/schedules", json=body, headers=bearer("blue"))).status_code == 409

    asyncio.run(run())
