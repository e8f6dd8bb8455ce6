"""Forks, effects of unknown fate and the clocks of waits over HTTP: what an operator does from a page."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from everstep import Flow, node
from tests.integration.server.serving import Serving, code_of, cool_down, expense, plain, served, shipping

NO_VALUE = {"inputs": {"nothing": 1}}


@served()
async def test_a_fork_with_edits_is_left_to_workers(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    body = {"at": 1, "inputs": {"x": 41}, "fork_id": "A2", "by": "ann", "comment": "more"}
    response = await s.client.post("/runs/A1/fork", json=body)
    assert (response.status_code, response.headers["location"]) == (202, "/runs/A2")
    told = response.json()
    assert (told["parent_run_id"], told["forked_at"], told["status"]) == ("A1", 1, "running")
    await s.host.work([plain], until_idle=True)
    assert (await s.host.state("A2"))["total"] == 42
    assert (await s.host.state("A1"))["total"] == 2
    [act] = await s.host.fleet.audit(act="fork")
    assert (act.by, act.run_id, act.about, act.comment) == ("ann", "A2", "A1@1", "more")


@served()
async def test_a_fork_is_made_from_the_checkpoint_in_its_address(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    told = (await s.client.post("/runs/A1@1/fork", json={"state": {"total": 9}})).json()
    assert told["forked_at"] == 1
    newest = (await s.client.post("/runs/A1/fork")).json()
    assert newest["forked_at"] == 2
    both = await s.client.post("/runs/A1@1/fork", json={"at": 2})
    assert code_of(both) == (400, "request.invalid")


@served()
async def test_inputs_of_a_fork_become_what_the_flow_declares(s: Serving) -> None:
    await s.host.run(shipping, {"day": date(2030, 1, 1), "amount": Decimal(2)}, run_id="A1")
    response = await s.client.post("/runs/A1/fork", json={"inputs": {"day": "2030-02-03"}, "fork_id": "A2"})
    assert response.status_code == 202
    assert (await s.host.state("A2"))["day"] == date(2030, 2, 3)
    wrong = await s.client.post("/runs/A1/fork", json={"inputs": {"day": "someday"}})
    assert code_of(wrong) == (422, "run.bad_input")


@served()
async def test_what_cannot_be_forked_is_refused_by_name(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    for path, body, expected in [
        ("/runs/A9/fork", {}, (404, "DAG-CKPT-006")),
        ("/runs/A1/fork", {"at": 7}, (404, "DAG-CKPT-006")),
        ("/runs/A1/fork", NO_VALUE, (422, "run.bad_input")),
        ("/runs/A1/fork", {"state": {"nothing": 1}}, (400, "request.invalid")),
        ("/runs/A1/fork", {"fork_id": "A1"}, (400, "request.invalid")),
        ("/runs/A1/fork", {"fork_id": "a b"}, (400, "request.invalid")),
        ("/runs/A1/fork", {"sttae": {}}, (400, "request.invalid")),
        ("/runs/A1/fork", {"choose_again": True}, (400, "request.invalid")),
    ]:
        assert code_of(await s.client.post(path, json=body)) == expected, (path, body)
    assert len(await s.host.runs()) == 1


@served()
async def test_what_a_fork_would_do_is_told_by_names_alone(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    told = (await s.client.get("/runs/A1/fork?input=x&input=y")).json()
    assert told == {
        "run_id": "A1",
        "at": 2,
        "starts": ["add"],
        "again": [{"node": "add", "visits": 1, "had_key": False}],
        "asks": [],
        "kept": 0,
    }
    assert (await s.client.get("/runs/A1/fork?at=1")).json()["starts"] == ["add"]
    assert code_of(await s.client.get("/runs/A1/fork?input=z")) == (422, "run.bad_input")
    assert code_of(await s.client.get("/runs/A1/fork?inputs=x")) == (400, "request.invalid")
    assert len(await s.host.runs()) == 1


@served()
async def test_a_wait_is_fired_as_its_clock_would(s: Serving) -> None:
    waiting = await s.halted(cool_down)
    response = await s.client.post(f"/waits/{waiting.id}/fire", json={"by": "ann", "comment": "no rest"})
    assert response.status_code == 200
    told = response.json()
    assert (told["status"], told["settled_by"], told["act"]["by"]) == ("settled", "clock", "ann")
    again = await s.client.post(f"/waits/{waiting.id}/fire")
    assert code_of(again) == (409, "wait.settled")
    fired = [(one.by, one.outcome) for one in await s.host.fleet.audit(act="fire")]
    assert ("ann", "done") in fired and {outcome for by, outcome in fired if by != "ann"} <= {"refused"}


@served()
async def test_a_token_is_revoked_and_its_wait_stays_open(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    response = await s.client.post(f"/waits/{waiting.id}/revoke", json={"by": "ann"})
    assert (response.status_code, response.json()["status"]) == (200, "open")
    refused = await s.client.post(f"/answers/{waiting.token}", json={"approved": True})
    assert refused.status_code == 401
    answered = await s.client.post(f"/waits/{waiting.id}/answer", json={"approved": True})
    assert answered.status_code == 200


@served()
async def test_an_operator_says_what_became_of_an_effect_that_never_reported(s: Serving) -> None:
    dies = [True]

    @node(output="receipt", effects="effectful", idempotency_key="auto", on_unknown="stop")
    async def charge(amount: int) -> str | None:
        if dies.pop():
            raise KeyboardInterrupt
        return "unreachable"

    order = Flow("order", [charge])
    with pytest.raises(KeyboardInterrupt):
        await s.host.run(order, {"amount": 7}, run_id="A1")
    assert (await s.host.resume("A1", order)).status == "halted"
    for body in ({"step": "charge"}, {"step": "charge", "done": 1, "rerun": True}, {"done": 1}):
        assert (await s.client.post("/runs/A1/settle", json=body)).status_code == 400, body
    assert (await s.client.post("/runs/A1/settle", json={"step": "other", "done": 1})).status_code == 404
    response = await s.client.post("/runs/A1/settle", json={"step": "charge", "done": None, "by": "ann"})
    assert (response.status_code, response.json()["status"]) == (200, "settled")
    again = await s.client.post("/runs/A1/settle", json={"step": "charge", "rerun": True})
    assert code_of(again) == (409, "wait.settled")
    result = await s.host.resume("A1", order)
    assert (result.status, result["receipt"]) == ("completed", None)
