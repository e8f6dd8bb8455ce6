"""Votes over HTTP: by the name of a token, on a page behind a link, and as a viewer is told of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from everstep import Flow, wait
from tests.integration.server.access.named_callers import bearer, entry, named
from tests.integration.server.serving import Serving, code_of, served

TEAM = "".join(entry(name, "approver") for name in ("ann", "bob", "eve")) + entry("vera", "viewer")
signing = Flow("signing", [wait.approval("sign", approvers=["ann", "bob"], quorum=2)])
anyone = Flow("anyone", [wait.approval("sign", quorum=2)])
by_another = Flow("by_another", [wait.approval("sign", not_by_starter=True)])
YES = {"approved": True}


def test_the_name_of_a_token_votes_and_a_claimed_one_does_not(tmp_path: Path) -> None:
    async def ask() -> None:
        async with named(tmp_path, TEAM) as s:
            opened = await s.halted(signing)
            path = f"/waits/{opened.id}/answer"
            first = await s.client.post(path, json=YES, headers=bearer("ann"))
            assert (first.status_code, first.json()["status"]) == (200, "open")
            [vote] = first.json()["voting"]["votes"]
            assert (vote["by"], vote["approved"], vote["how"]) == ("ann", True, "authenticated")
            assert first.json()["voting"]["left"] == ["bob"]
            again = await s.client.post(path, json=YES, headers=bearer("ann"))
            assert code_of(again) == (409, "vote.given")
            other = await s.client.post(path, json=YES, headers=bearer("eve"))
            assert code_of(other) == (403, "vote.refused")
            claimed = {**bearer("eve"), "Everstep-By": "bob"}
            assert (await s.client.post(path, json=YES, headers=claimed)).status_code == 400
            told = await s.client.post(path, json={**YES, "approver": "bob"}, headers=bearer("eve"))
            assert told.status_code == 400
            seen = (await s.client.get("/waits", headers=bearer("vera"))).json()["waits"][0]["voting"]
            assert [(v["by"], v["approved"], v["comment"]) for v in seen["votes"]] == [("ann", None, None)]
            last = await s.client.post(path, json=YES, headers=bearer("bob"))
            assert last.json()["status"] == "settled"
            rows = await s.host.fleet.audit(act="answer")
            assert [(row.by, row.code) for row in rows] == [
                ("ann", ""),
                ("ann", "vote.given"),
                ("eve", "vote.refused"),
                ("eve", "request.invalid"),
                ("eve", "answer.invalid"),
                ("bob", ""),
            ]

    asyncio.run(ask())


def test_who_started_a_run_does_not_approve_it_by_its_link(tmp_path: Path) -> None:
    async def ask() -> None:
        async with named(tmp_path, entry("olaf", "operator") + TEAM) as s:
            s.client.headers.update(bearer("olaf"))
            opened = (await s.host.run(by_another, by="olaf")).waits[0]
            [listed] = (await s.client.get("/waits")).json()["waits"]
            link, token = f"/w/{listed['token']}", listed["token"]
            said = [
                await s.client.post(f"/answers/{token}", json={**YES, "approver": "eve"}, headers={}),
                await s.client.post("/resume", json={"token": token, "answer": YES}),
                await s.client.post(f"/waits/{opened.id}/answer", json=YES),
                await s.client.post(link, data={"approved": "true", "by": "eve"}),
            ]
            assert [response.status_code for response in said] == [403] * 4
            shown = (await s.client.get(link)).text
            assert "To be decided by others than olaf, by name" in shown and "<form" not in shown
            assert await s.is_open(opened)
            good = await s.client.post(f"/waits/{opened.id}/answer", json=YES, headers=bearer("eve"))
            assert good.json()["status"] == "settled"

    asyncio.run(ask())


@served()
async def test_a_link_votes_where_no_approvers_are_named(s: Serving) -> None:
    opened = await s.halted(anyone)
    page = f"/w/{opened.token}"
    nameless = await s.client.post(page, data={"approved": "true"})
    assert nameless.status_code == 400 and "who you are" in nameless.text
    said = await s.client.post(page, data={"approved": "true", "by": "ann"})
    assert "1 of the 2" in said.text
    shown = (await s.client.get(page)).text
    assert "2 must approve. ann approved." in shown and "<form" in shown
    twice = await s.client.post(page, data={"approved": "true", "by": "ann"})
    assert twice.status_code == 409 and "has voted" in twice.text
    by_token = await s.client.post(f"/answers/{opened.token}", json={**YES, "approver": "bob"})
    assert by_token.json()["status"] == "settled"


@served()
async def test_a_link_only_shows_where_approvers_are_named(s: Serving) -> None:
    opened = await s.halted(signing)
    shown = (await s.client.get(f"/w/{opened.token}")).text
    assert "To be decided by ann, bob, by name" in shown and "<form" not in shown
    said = await s.client.post(f"/w/{opened.token}", data={"approved": "true", "by": "ann"})
    assert said.status_code == 403 and "does not say who you are" in said.text
    response = await s.client.post(f"/answers/{opened.token}", json={**YES, "approver": "ann"})
    assert code_of(response) == (403, "vote.refused")


@served()
async def test_a_vote_by_a_token_that_decides_nothing_says_so(s: Serving) -> None:
    opened = await s.halted(anyone)
    response = await s.client.post(f"/answers/{opened.token}", json={**YES, "approver": "ann"})
    assert response.json() == {"status": "open", "settled_at": None}
