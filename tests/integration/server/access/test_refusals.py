"""Refused requests: acts that a role may not do have rows in the audit log, and no token is anywhere."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from everstep import AsyncHost
from everstep.client.audit import AuditInfo
from everstep.server.access.roles import Role
from everstep.server.endpoint import Guard
from everstep.server.routes import ENDPOINTS
from tests.integration.server.access.named_callers import ALL_ROLES, bearer, entry, named, token_of
from tests.integration.server.access.test_roles import call, filled, path_of

ACTING = [e for e in ENDPOINTS if e.guard is Guard.BEARER and e.act]
ABOUT_A_RUN = {e.name for e in ACTING if "{run_id}" in e.path or "{wait_id}" in e.path}
LATE = entry("late", "admin", expires="2000-01-01T00:00:00Z")
SOME = entry("some", "admin", flows=("elsewhere",))
SERVICE_TOKEN = "s3cr3t+of=its.own~form!"
SLASHED = "Zm9v/YmFyL2Jhei9xdXV4Cg=="


async def rows_of(host: AsyncHost, name: str) -> list[AuditInfo]:
    return await host.fleet.audit(by=name, limit=1000)


def test_every_endpoint_that_changes_something_says_what_the_audit_log_calls_it() -> None:
    changing = {e.name for e in ENDPOINTS if e.guard is Guard.BEARER and e.method != "GET"}
    assert changing == {e.name for e in ACTING}


def test_every_act_that_a_role_may_not_do_has_one_row(tmp_path: Path) -> None:
    async def ask() -> None:
        async with filled(tmp_path, ALL_ROLES) as s:
            [waiting] = await s.host.waits("halted")
            for endpoint in ACTING:
                for role in Role:
                    if endpoint.role is not None and role.includes(endpoint.role):
                        continue
                    before = len(await rows_of(s.host, role.value))
                    assert (await call(s, endpoint, bearer(role.value))).status_code == 403
                    rows = (await rows_of(s.host, role.value))[before:]
                    told = [(r.act, r.by, r.how, r.outcome, r.code) for r in rows]
                    assert told == [
                        (endpoint.act, role.value, "authenticated", "refused", "request.forbidden")
                    ], endpoint.name
                    is_named = endpoint.name in ABOUT_A_RUN
                    assert rows[0].run_id == ("halted" if is_named else None), endpoint.name
                    if "{wait_id}" in endpoint.path:
                        assert rows[0].about == waiting.id

    asyncio.run(ask())


def test_looking_is_no_act(tmp_path: Path) -> None:
    async def ask() -> None:
        async with filled(tmp_path, ALL_ROLES) as s:
            for path in ("/runs/halted/state", "/audit", "/runs/halted/inbox"):
                assert (await s.client.get(path, headers=bearer("viewer"))).status_code == 403
            assert await rows_of(s.host, "viewer") == []

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("name", "status", "code"), [("late", 401, "request.unauthorized"), ("some", 404, "DAG-CKPT-006")]
)
def test_who_is_known_and_refused_otherwise_has_a_row_too(
    name: str, status: int, code: str, tmp_path: Path
) -> None:
    async def ask() -> None:
        async with filled(tmp_path, ALL_ROLES + LATE + SOME) as s:
            response = await s.client.post("/runs/halted/cancel", headers=bearer(name))
            assert response.status_code == status
            assert [(r.act, r.run_id, r.code) for r in await rows_of(s.host, name)] == [
                ("cancel", "halted", code)
            ]

    asyncio.run(ask())


def test_who_is_not_known_leaves_no_row(tmp_path: Path) -> None:
    async def ask() -> None:
        async with filled(tmp_path, ALL_ROLES) as s:
            before = len(await s.host.fleet.audit(limit=1000))
            response = await s.client.post("/runs/halted/cancel", headers=bearer("stranger"))
            assert response.status_code == 401
            assert len(await s.host.fleet.audit(limit=1000)) == before

    asyncio.run(ask())


def test_what_is_refused_before_the_host_is_asked_has_one_row_too(tmp_path: Path) -> None:
    async def ask() -> None:
        async with filled(tmp_path, ALL_ROLES + SOME) as s:
            [waiting] = await s.host.waits("halted")
            plain = {"flow": "plain", "inputs": {"x": 1}}
            sent: list[tuple[str, str, dict[str, Any], str, str | None]] = [
                ("some", "/runs", {"json": plain}, "flow.not_found", None),
                ("operator", "/runs", {"json": {**plain, "by": "ann"}}, "request.invalid", None),
                ("operator", "/runs/halted/cancel", {"content": b"{"}, "request.invalid", "halted"),
                ("operator", "/runs/halted/cancel", {"json": {"by": "ann"}}, "request.invalid", "halted"),
                ("operator", "/runs/nowhere/resume", {"json": {}}, "DAG-CKPT-006", "nowhere"),
                ("approver", f"/waits/{waiting.id}/answer", {"content": b""}, "request.invalid", "halted"),
            ]
            for name, path, body, code, run_id in sent:
                before = len(await rows_of(s.host, name))
                response = await s.client.post(path, headers=bearer(name), **body)
                assert response.status_code in (400, 404), response.text
                [row] = (await rows_of(s.host, name))[before:]
                assert (row.outcome, row.code, row.run_id) == ("refused", code, run_id), path
            # What a host refuses itself is there once as well.
            before = len(await rows_of(s.host, "approver"))
            path = f"/waits/{waiting.id}/answer"
            refused = await s.client.post(path, json="none of them", headers=bearer("approver"))
            [row] = (await rows_of(s.host, "approver"))[before:]
            assert (refused.status_code, row.outcome, row.code) == (400, "refused", "answer.invalid")

    asyncio.run(ask())


def test_what_a_role_may_do_has_no_refusal(tmp_path: Path) -> None:
    async def ask() -> None:
        async with filled(tmp_path, ALL_ROLES) as s:
            response = await s.client.post("/runs/halted/cancel", headers=bearer("operator"))
            assert response.status_code in (200, 202)
            assert [(r.act, r.outcome) for r in await rows_of(s.host, "operator")] == [("cancel", "done")]

    asyncio.run(ask())


def test_a_token_of_any_form_that_is_known_comes_into_no_row_of_what_was_done(tmp_path: Path) -> None:
    told = [SERVICE_TOKEN, f"token={SERVICE_TOKEN}", f"({SERVICE_TOKEN}), says ann", f"a/{SLASHED}/b"]

    async def ask() -> None:
        text = ALL_ROLES + entry("own", "operator", token=SERVICE_TOKEN)
        async with filled(tmp_path, text + entry("other", "viewer", token=SLASHED)) as s:
            s.client.headers.update(bearer("admin"))
            for one in told:
                sent = [
                    await s.client.post("/runs/halted/pin", json={"comment": one}),
                    await s.client.post(f"/events/{quote(one, safe='')}", json={}),
                    await s.client.post("/runs/halted/inbox", json={"name": one}),
                    await s.client.post("/breakers/mail/reset", headers={"Everstep-Comment": quote(one)}),
                ]
                assert [response.status_code for response in sent] == [200] * 4
            rows = await rows_of(s.host, "admin")
            assert len(rows) == 4 * len(told)
            for row in rows:
                assert SERVICE_TOKEN not in repr(row) and SLASHED not in repr(row)
            assert {row.comment for row in rows if row.act == "pin"} == {
                "…",
                "token=…",
                "(…), says ann",
                "a/…/b",
            }

    asyncio.run(ask())


def _request(chance: Random, path: str, token: str, of: str) -> dict[str, Any]:
    """Return a request that says a token at a place where it does not belong, besides who sends it."""
    headers = {**bearer(of)}
    asked: dict[str, Any] = {"headers": headers}
    match chance.choice(["header", "query", "body", "path", "login"]):
        case "header":
            name = chance.choice(["Everstep-By", "Everstep-Comment", "X-Request-Id", "Traceparent", "Cookie"])
            headers[name] = token if name == "X-Request-Id" else quote(token)
        case "query":
            path += (
                "?" + chance.choice(["token", "access_token", "by", "status", "after"]) + "=" + quote(token)
            )
        case "body":
            place = chance.choice(["by", "comment", "reason", "name", "flow", "approver", "id", token])
            asked["json"] = {place: token}
        case "path":
            parts = path.split("/")
            parts[chance.randrange(1, len(parts))] = quote(token, safe="")
            path = "/".join(parts)
        case "login":
            headers["Authorization"] = chance.choice(["Bearer ", "Basic ", "bearer  ", ""]) + token
    return {"url": path, **asked}


def test_a_token_of_any_form_that_is_known_is_no_request_id(tmp_path: Path) -> None:
    own = "s3cr3t.of-its_own-form"

    async def ask() -> None:
        async with named(tmp_path, entry("own", "operator", token=own)) as s:
            headers = {"Authorization": f"Bearer {own}"}
            for given in (own, f"{own}:7", token_of("none")):
                made = (await s.client.get("/runs", headers={**headers, "X-Request-Id": given})).headers
                assert own not in made["X-Request-Id"] and token_of("none") not in made["X-Request-Id"]
            kept = await s.client.get("/runs", headers={**headers, "X-Request-Id": "kept-1"})
            assert kept.headers["X-Request-Id"] == "kept-1"

    asyncio.run(ask())


def test_no_token_is_in_any_log_error_or_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def ask() -> None:
        chance = Random(7)
        text = ALL_ROLES + LATE + entry("own", "operator", token=SERVICE_TOKEN)
        async with filled(tmp_path, text) as s:
            [waiting] = await s.host.waits("halted")
            assert waiting.token is not None
            tokens = [waiting.token, token_of("operator"), token_of("late"), token_of("none"), SERVICE_TOKEN]
            said: list[str] = []
            for _ in range(400):
                endpoint = chance.choice(
                    [e for e in ENDPOINTS if e.name not in ("watch_run", "watch_changes")]
                )
                token = chance.choice(tokens)
                path = await path_of(s, endpoint)
                if endpoint.guard is Guard.TOKEN and token == waiting.token:
                    continue  # there it belongs
                request = _request(
                    chance, path, token, chance.choice(["viewer", "approver", "late", "admin"])
                )
                if endpoint.name in ("erase_run", "cancel_run"):
                    request["headers"] = {**request["headers"], **bearer("viewer")}
                response = await s.client.request(endpoint.method, **request)
                if response.status_code >= 400 and endpoint.guard is Guard.BEARER:
                    said.append(response.text)
                said.append(response.headers.get("X-Request-Id", ""))
            rows = await s.host.fleet.audit(limit=1000)
            logged = [
                f"{r.getMessage()} {r.exc_text}" for r in caplog.records if r.name.startswith("everstep")
            ]
            places = {"errors": "\n".join(said), "audit": repr(rows), "logs": "\n".join(logged)}
            for place, found in places.items():
                for token in tokens:
                    if place == "errors" and token == SERVICE_TOKEN:
                        continue  # what a client wrote is repeated to it
                    assert token not in found, (place, token)
                    if token != SERVICE_TOKEN:
                        assert token[:30] not in found, (place, token)

    asyncio.run(ask())
