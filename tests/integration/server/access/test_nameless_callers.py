"""Acts over HTTP by callers without a name: each has its row in the audit log, done or refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Flow, node
from everstep.client.audit import AuditInfo
from everstep.errors import BadRequest
from everstep.server.endpoint import Endpoint, Guard
from everstep.server.routes import ENDPOINTS
from tests.integration.client.audited_acts import TELLING, UNDOABLE, out_of_reach
from tests.integration.server.access.named_callers import ALL_ROLES
from tests.integration.server.access.test_roles import BODIES, SECRET, asking, call, filled
from tests.integration.server.serving import TOKEN, Serving, cool_down, expense, plain, serving

UNHEARD = {"ops": out_of_reach}
ACTING = [e for e in ENDPOINTS if e.act]


async def rows_of(host: AsyncHost, run_id: str | None = None) -> list[AuditInfo]:
    return await host.fleet.audit(run_id, limit=1000)


async def rows_after(s: Serving, before: int) -> list[tuple[str, str, str, str]]:
    return [(r.act, r.by, r.how, r.outcome) for r in (await rows_of(s.host))[before:]]


@node(output="receipt", effects="effectful", idempotency_key="auto", on_unknown="stop")
async def vanish() -> None:
    raise KeyboardInterrupt


vanishing = Flow("vanishing", [vanish])


async def settled(s: Serving, headers: dict[str, str]) -> Any:
    """Say what became of an effect whose process died in it."""
    with pytest.raises(KeyboardInterrupt):
        await s.host.run(vanishing, run_id="vanished")
    assert (await s.host.resume("vanished", vanishing)).status == "halted"
    body = {"step": "vanish", "done": None}
    return await s.client.post("/runs/vanished/settle", json=body, headers=headers)


async def dead_letters(s: Serving, many: int) -> None:
    """Have this many notices that were tried in vain to the end."""
    for number in range(many - len(await s.host.notices.find())):
        await s.host.run(TELLING, run_id=f"telling-{number}")
    while await s.host.notices.find(state="pending"):
        s.clock.advance(timedelta(days=1))
        await s.host.notices.send()
    assert len(await s.host.notices.find(state="dead")) == many


async def do(s: Serving, endpoint: Endpoint, headers: dict[str, str]) -> Any:
    """Do what an endpoint is for, to a run of its own if need be."""
    match endpoint.name:
        case "answer_wait" | "answer_by_token" | "deliver" | "answer_on_page":
            run = await s.host.run(asking, {"word": SECRET})
            [asked] = await s.host.waits(run.run_id)
            assert asked.token is not None
            path = endpoint.path.format(wait_id=asked.id, token=asked.token)
            if endpoint.name == "answer_on_page":
                return await s.client.post(path, data={"option": "1"}, headers=headers)
            body: Any = "other"
            if endpoint.name == "deliver":
                body = {"wait_id": asked.id, "answer": "other"}
            return await s.client.post(path, json=body, headers=headers)
        case "acknowledge_run" | "erase_run":
            run = await s.host.run(plain, {"x": 1})
            path = endpoint.path.format(run_id=run.run_id)
            return await s.client.request(endpoint.method, path, headers=headers)
        case "cancel_run":
            run = await s.host.run(asking, {"word": SECRET})
            return await s.client.post(f"/runs/{run.run_id}/cancel", headers=headers)
        case "drop_signal":
            run = await s.host.run(asking, {"word": SECRET})
            await s.host.send(run.run_id, "note", 1, id="one")
            return await s.client.post(f"/runs/{run.run_id}/inbox/drop", json={"id": "one"}, headers=headers)
        case "fire_wait":
            run = await s.host.run(cool_down)
            [asked] = await s.host.waits(run.run_id)
            return await s.client.post(f"/waits/{asked.id}/fire", headers=headers)
        case "send_notice_again":
            [notice] = await s.host.notices.find(run_id="failed")
            return await s.client.post(f"/notices/{notice.id}/again", headers=headers)
        case "send_notices_again":
            await dead_letters(s, 1)
        case "settle_effect":
            return await settled(s, headers)
        case "resume_run":
            info = await s.host.start(plain, {"x": 1})
            return await s.client.post(f"/runs/{info.run_id}/resume", headers=headers)
        case name if endpoint.path.startswith("/schedules/"):
            if name in ("pause_schedule", "delete_schedule"):
                await s.host.schedules.create("asking", name, every="1h")
                path = endpoint.path.format(run_id=name)
                return await s.client.request(endpoint.method, path, headers=headers)
            path = endpoint.path.format(run_id="nightly")
            body = BODIES.get(name, {})
            return await s.client.request(endpoint.method, path, json=body, headers=headers)
        case "undo_run":
            assert (await s.host.run(UNDOABLE, run_id="undoable")).status == "failed"
            return await s.client.post("/runs/undoable/undo", headers=headers)
    return await call(s, endpoint, headers)


@pytest.mark.parametrize(
    ("options", "headers", "who"),
    [
        ({"token": TOKEN}, {"Authorization": f"Bearer {TOKEN}"}, "(service token)"),
        ({"tokens": None}, {}, "(no token)"),
    ],
    ids=["token", "open"],
)
def test_every_act_of_who_has_no_name_has_one_row(
    tmp_path: Path, options: dict[str, Any], headers: dict[str, str], who: str
) -> None:
    async def run() -> None:
        async with filled(tmp_path, ALL_ROLES, works=True, notifiers=UNHEARD, **options) as s:
            for endpoint in ACTING:
                by = "(link)" if endpoint.guard is Guard.TOKEN else who
                before = len(await rows_of(s.host))
                response = await do(s, endpoint, headers)
                assert response.status_code in (200, 202), (endpoint.name, response.text)
                act = "answer" if endpoint.guard is Guard.TOKEN else endpoint.act
                assert await rows_after(s, before) == [(act, by, "unnamed", "done")], endpoint.name

    asyncio.run(run())


def test_each_dead_letter_that_is_sent_again_has_a_row_of_its_run(tmp_path: Path) -> None:
    async def run() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with filled(tmp_path, ALL_ROLES, token=TOKEN, notifiers=UNHEARD) as s:
            await dead_letters(s, 3)
            before, dead = len(await rows_of(s.host)), await s.host.notices.find(state="dead")
            response = await s.client.post("/notices/again", headers=headers)
            assert (response.status_code, response.json()) == (200, {"again": 3})
            rows = (await rows_of(s.host))[before:]
            assert {(r.run_id, r.about) for r in rows} == {(one.run_id, one.id) for one in dead}
            said = {(r.act, r.by, r.how, r.outcome) for r in rows}
            assert (len(rows), said) == (3, {("resend", "(service token)", "unnamed", "done")})

    asyncio.run(run())


def test_what_is_refused_has_one_row_too(tmp_path: Path) -> None:
    sent: list[tuple[str, dict[str, Any], str, str | None]] = [
        ("/runs", {"json": {"flow": "nowhere"}}, "start", None),
        ("/runs", {"content": b"{"}, "start", None),
        ("/runs/answered/cancel", {"content": b"{"}, "cancel", "answered"),
        ("/runs/nowhere/resume", {"json": {}}, "resume", "nowhere"),
        ("/runs/answered/inbox", {"json": {"name": "note"}}, "send", "answered"),
        ("/runs/answered/undo", {"json": {}}, "undo", "answered"),
        ("/runs/failed/undo", {"content": b"{"}, "undo", "failed"),
        ("/notices/nowhere/again", {"json": {}}, "resend", None),
        ("/notices/again", {"content": b"{"}, "resend", None),
    ]

    async def run() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with filled(tmp_path, ALL_ROLES, token=TOKEN) as s:
            for path, body, act, run_id in sent:
                before = len(await rows_of(s.host))
                response = await s.client.post(path, headers=headers, **body)
                assert response.status_code >= 400
                [row] = (await rows_of(s.host))[before:]
                assert (row.act, row.by, row.how) == (act, "(service token)", "unnamed"), path
                assert (row.outcome, row.run_id, row.code) == ("refused", run_id, response.json()["code"])

    asyncio.run(run())


def test_a_link_that_was_used_is_refused_with_a_row_and_one_that_leads_nowhere_without(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with filled(tmp_path) as s:
            for path in ("/answers/{}", "/w/{}"):
                run = await s.host.run(asking, {"word": SECRET})
                [asked] = await s.host.waits(run.run_id)
                assert asked.token is not None
                await s.host.answer(asked.id, "other")
                before = len(await rows_of(s.host))
                said: dict[str, Any] = {"json": "other"} if "answers" in path else {"data": {"option": "1"}}
                assert (await s.client.post(path.format(asked.token), **said)).status_code == 409
                [row] = (await rows_of(s.host))[before:]
                assert (row.act, row.by, row.outcome) == ("answer", "(link)", "refused")
                assert (row.run_id, row.about) == (run.run_id, asked.id)
                assert asked.token not in repr(row)
                await s.client.post(path.format("et_" + "A" * 43), **said)
                assert len(await rows_of(s.host)) == before + 1

    asyncio.run(run())


def test_a_name_that_is_said_takes_the_place_of_the_word() -> None:
    async def run() -> None:
        async with serving() as s:
            await s.client.post(
                "/runs", json={"flow": "plain", "inputs": {"x": 1}, "run_id": "A", "by": "ann"}
            )
            halted = await s.host.run(expense, {"amount": 500}, run_id="B")
            answer = {"approved": True, "approver": "bo"}
            response = await s.client.post(f"/waits/{halted.waits[0].id}/answer", json=answer)
            assert response.status_code == 200, response.text
            told = [(r.act, r.by, r.how, r.run_id) for r in await rows_of(s.host)]
            assert told == [("start", "ann", "claimed", "A"), ("answer", "bo", "claimed", "B")]

    asyncio.run(run())


def test_nothing_but_the_row_says_the_word() -> None:
    async def run() -> None:
        async with serving() as s:
            await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 1}, "run_id": "A"})
            assert (await s.client.post("/runs/A/resume", json={})).status_code == 200
            assert (await s.client.post("/runs/A/pin", json={"comment": "a dispute"})).status_code == 200
            assert [(r.act, r.by, r.comment) for r in await rows_of(s.host, "A")] == [
                ("start", "(service token)", ""),
                ("resume", "(service token)", ""),
                ("pin", "(service token)", "a dispute"),
            ]
            assert [record.act for record in await s.host.history("A")] == [None] * len(
                await s.host.history("A")
            )
            pinned = (await s.host.info("A")).pinned_by
            assert pinned is not None and not pinned.by and pinned.comment == "a dispute"

    asyncio.run(run())


def test_a_fork_has_its_row_on_the_new_run() -> None:
    async def run() -> None:
        async with serving() as s:
            await s.host.run(plain, {"x": 1}, run_id="A")
            made = await s.client.post("/runs/A/fork", json={})
            assert made.status_code in (200, 201, 202), made.text
            [row] = await rows_of(s.host)
            assert (row.act, row.run_id, row.by) == ("fork", made.json()["run_id"], "(service token)")
            assert row.about.startswith("A@")

    asyncio.run(run())


def test_a_dry_run_and_looking_are_no_acts() -> None:
    async def run() -> None:
        async with serving() as s:
            await s.host.run(plain, {"x": 1}, run_id="A")
            order = {"act": "pin", "where": "flow = plain", "dry_run": True}
            assert (await s.client.post("/bulk", json=order)).status_code == 200
            for path in ("/runs", "/runs/A", "/runs/A/state", "/audit"):
                assert (await s.client.get(path)).status_code == 200
            assert await rows_of(s.host) == []

    asyncio.run(run())


@pytest.mark.parametrize(
    "name", ["(service token)", " (SERVICE  Token) ", "(link)", "(no token)", "(program)"]
)
def test_no_person_can_claim_a_word_for_who_has_no_name(name: str) -> None:
    async def run() -> None:
        async with serving() as s:
            refused = await s.client.post(
                "/runs", json={"flow": "plain", "inputs": {"x": 1}, "run_id": "A", "by": name}
            )
            assert (refused.status_code, refused.json()["code"]) == (400, "request.invalid")
            with pytest.raises(BadRequest, match="stands for"):
                await s.host.start(plain, {"x": 1}, by=name)

    asyncio.run(run())
