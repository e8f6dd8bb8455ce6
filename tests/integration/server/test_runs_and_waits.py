"""Runs and waits over HTTP: what an operator does."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import httpx

from everstep import Context, Flow, Singleton, node, wait
from everstep.codec.wire import wire as as_json
from everstep.model.leases import Process
from tests.integration.runtime.integrity.vandals_of_objects import InMemory
from tests.integration.server.serving import (
    KEY,
    NO_SUCH_WAIT,
    Serving,
    ask_choice,
    code_of,
    cool_down,
    expense,
    explode,
    failing,
    paid,
    plain,
    served,
    shipping,
)

APPROVED = {"approved": True, "approver": "Bo", "comment": "fine"}


@served()
async def test_a_started_run_is_accepted_and_driven_by_a_worker(s: Serving) -> None:
    response = await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 2}, "run_id": "A1"})
    assert response.status_code == 202
    assert response.headers["location"] == "/runs/A1"
    assert (await s.client.get("/runs/A1")).json()["status"] == "running"
    await s.host.work([plain], until_idle=True)
    assert (await s.client.get("/runs/A1")).json()["status"] == "completed"
    state = (await s.client.get("/runs/A1/state")).json()
    assert (state["values"], state["pending"]) == ({"x": 2, "total": 3}, [])
    assert (await s.client.get("/runs/A1/state?at=1")).json()["values"] == {"x": 2}


@served()
async def test_the_same_start_twice_is_one_run_and_another_is_refused(s: Serving) -> None:
    body = {"flow": "plain", "inputs": {"x": 2}, "run_id": "A1"}
    assert [(await s.client.post("/runs", json=body)).status_code for _ in range(2)] == [202, 202]
    other = await s.client.post("/runs", json={**body, "inputs": {"x": 3}})
    assert code_of(other) == (409, "run.inputs_differ")
    assert len((await s.client.get("/runs")).json()["runs"]) == 1


one = Flow("one", [plain.nodes[0], wait.approval("ok")], limits=[Singleton("x")])
join = Flow("join", [plain.nodes[0], wait.approval("ok")], limits=[Singleton("x", on_conflict="join")])
replace = Flow(
    "replace", [plain.nodes[0], wait.approval("ok")], limits=[Singleton("x", on_conflict="replace")]
)


@served(flows=[one, join, replace])
async def test_a_start_says_which_run_it_joined_or_replaced(s: Serving) -> None:
    async def start(flow: str, run_id: str) -> httpx.Response:
        return await s.client.post("/runs", json={"flow": flow, "inputs": {"x": 2}, "run_id": run_id})

    for flow in ("one", "join", "replace"):
        told = (await start(flow, f"{flow}-1")).json()
        assert (told["run_id"], told["joined"], told["replaced"]) == (f"{flow}-1", False, [])
    refused = await start("one", "one-2")
    assert code_of(refused) == (409, "limit.key_taken")
    assert refused.json()["details"]["run_id"] == "one-1"
    joined = await start("join", "join-2")
    assert (joined.status_code, joined.headers["location"]) == (200, "/runs/join-1")
    assert (joined.json()["run_id"], joined.json()["joined"]) == ("join-1", True)
    replaced = await start("replace", "replace-2")
    assert (replaced.status_code, replaced.json()["replaced"]) == (202, ["replace-1"])
    assert (await s.client.get("/runs/replace-1")).json()["status"] == "cancelled"


@served()
async def test_the_name_of_an_event_may_hold_anything_percent_encoded(s: Serving) -> None:
    for name in ("order paid", "a/b", "é🙂", "a%2Fb", "100%", "."):
        response = await s.client.post(f"/events/{quote(name, safe='')}" if name != "." else "/events/%2E%20")
        assert response.status_code == 200
        assert response.json()["name"] == (name if name != "." else ". ")
    assert (await s.client.post(f"/events/{'x' * 201}")).status_code == 400
    assert (await s.client.post("/events/%ff")).status_code == 400


@served()
async def test_a_body_with_a_key_twice_is_refused(s: Serving) -> None:
    response = await s.client.post("/events/paid", content='{"value": {"a": 1, "a": 2}}')
    assert code_of(response) == (400, "request.invalid") and "a key twice" in response.text


@served()
async def test_a_start_that_cannot_be_is_named(s: Serving) -> None:
    for body, expected in [
        ({"flow": "nope"}, (404, "flow.not_found")),
        ({"flow": 7}, (400, "request.invalid")),
        ({"flow": "plain"}, (422, "run.bad_input")),
        ({"flow": "plain", "inputs": {"x": 1, "z": 1}}, (422, "run.bad_input")),
        ({"flow": "plain", "inputs": [1]}, (400, "request.invalid")),
        ({"flow": "plain", "inputs": {"x": 1}, "run_id": "a b"}, (400, "request.invalid")),
        ({"flow": "plain", "inputs": {"x": 1}, "run_id": 7}, (400, "request.invalid")),
        ({"flow": "plain", "input": {"x": 1}}, (400, "request.invalid")),
        ({"flow": "plain", "inputs": {"x": 1}, "priority": "high"}, (400, "request.invalid")),
        ({"flow": "plain", "inputs": {"x": 1}, "group": ""}, (400, "request.invalid")),
        ({}, (400, "request.invalid")),
        ([], (400, "request.invalid")),
    ]:
        assert code_of(await s.client.post("/runs", json=body)) == expected, body
    assert (await s.client.get("/runs")).json()["runs"] == []


@served()
async def test_runs_are_listed_by_page_status_and_flow(s: Serving) -> None:
    for k in range(3):
        await s.host.run(plain, {"x": k}, run_id=f"p{k}")
    await s.halted(expense, amount=1)
    first = (await s.client.get("/runs?flow=plain&limit=2")).json()
    assert [run["run_id"] for run in first["runs"]] == ["p2", "p1"]
    second = (await s.client.get(f"/runs?flow=plain&limit=2&before={first['next']}")).json()
    assert ([run["run_id"] for run in second["runs"]], second["next"]) == (["p0"], None)
    halted = (await s.client.get("/runs?status=halted")).json()["runs"]
    assert [run["flow"] for run in halted] == ["expense"]
    for query in ("limit=0", "limit=1001", "limit=x", "status=retrying", "before=a%20b"):
        assert code_of(await s.client.get(f"/runs?{query}")) == (400, "request.invalid"), query


@served()
async def test_a_run_that_is_not_there_is_said_so(s: Serving) -> None:
    for path in ("/runs/nope", "/runs/nope/state", "/runs/nope/events", "/runs/a%20b", "/runs/" + "x" * 129):
        assert code_of(await s.client.get(path)) == (404, "DAG-CKPT-006"), path
    for path in ("/runs/nope/cancel", "/runs/nope/resume"):
        assert code_of(await s.client.post(path)) == (404, "DAG-CKPT-006"), path
    await s.host.run(plain, {"x": 1}, run_id="A1")
    assert code_of(await s.client.get("/runs/A1/state?at=9")) == (404, "DAG-CKPT-006")
    assert code_of(await s.client.get("/runs/A1/state?at=x")) == (400, "request.invalid")


@served()
async def test_a_halted_run_can_be_cancelled(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    response = await s.client.post(f"/runs/{waiting.run_id}/cancel")
    assert response.json() == {"run_id": waiting.run_id, "status": "cancelled"}
    late = await s.client.post(f"/waits/{waiting.id}/answer", json=APPROVED)
    assert code_of(late) == (409, "wait.closed")


@served()
async def test_what_has_no_body_but_a_signature_reads_it_and_refuses_anything_else(s: Serving) -> None:
    for run_id in ("A1", "A2"):
        await s.host.run(cool_down, run_id=run_id)
    for action in ("/runs/A1/cancel", "/runs/A1/unpin", "/runs/A1/ack", "/breakers/mail/reset"):
        for body in ({"by": 3}, {"bogus": 1}, [1], "x"):
            assert code_of(await s.client.post(action, json=body)) == (400, "request.invalid"), (action, body)
    assert (await s.host.info("A1")).status == "halted"
    signature = {"by": "Ann", "comment": "withdrawn"}
    assert (await s.client.post("/runs/A1/cancel", json=signature)).status_code == 200
    assert (await s.client.post("/runs/A2/cancel", headers={"Everstep-By": "Bo"})).status_code == 200
    acts = [(await s.host.history(run_id))[-1].act for run_id in ("A1", "A2")]
    assert [act and (act.by, act.comment) for act in acts] == [("Ann", "withdrawn"), ("Bo", "")]


@served()
async def test_a_run_that_another_process_has_is_refused_at_once(s: Serving) -> None:
    await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 1}, "run_id": "A1"})
    store = s.host.durability.checkpoint_store
    assert store is not None
    elsewhere = Process("another boot", "another namespace", 1, 1)
    await store.lease("A1", owner="another", ttl=timedelta(hours=1), process=elsewhere)
    before = s.clock.now()
    async with asyncio.timeout(60):
        response = await s.client.post("/runs/A1/resume")
    assert code_of(response) == (409, "DAG-CKPT-007")
    assert s.clock.now() == before


@served()
async def test_a_result_has_the_channel_of_the_run_as_at_a_shell(s: Serving) -> None:
    run = {"flow": "plain", "inputs": {"x": 1}, "run_id": "A1", "channel": {"note": "of the caller"}}
    assert (await s.client.post("/runs", json=run)).status_code == 202
    done = (await s.client.post("/runs/A1/resume")).json()
    assert (done["status"], done["channel"]) == ("completed", {"note": "of the caller"})
    await s.client.post("/runs", json={**run, "run_id": "A2", "channel": {}})
    assert "channel" not in (await s.client.post("/runs/A2/resume")).json()


@served()
async def test_a_run_is_resumed_to_its_end_or_its_next_wait(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    again = await s.client.post(f"/runs/{waiting.run_id}/resume")
    assert (again.status_code, again.json()["halted"]) == (202, True)
    assert [w["id"] for w in again.json()["waits"]] == [waiting.id]
    await s.host.answer(waiting.id, APPROVED)
    done = await s.client.post(f"/runs/{waiting.run_id}/resume", json={})
    assert (done.status_code, done.json()["status"]) == (200, "completed")
    assert done.json()["result"]["verdict"] == "paid"
    bad = await s.client.post(f"/runs/{waiting.run_id}/resume", json={"start": "nope"})
    assert code_of(bad) == (400, "request.invalid")


@served()
async def test_a_run_that_fails_tells_its_error(s: Serving) -> None:
    await s.host.run(failing, {"x": 1}, run_id="A1")
    response = await s.client.post("/runs/A1/resume")
    assert (response.status_code, response.json()["status"]) == (200, "failed")
    assert response.json()["error"] == {"type": "RuntimeError", "code": "node.failed", "message": "boom"}


@served()
async def test_waits_are_listed_with_what_is_asked_and_how_to_answer(s: Serving) -> None:
    first = await s.halted(expense, amount=1)
    second = await s.halted(ask_choice)
    listed = (await s.client.get("/waits")).json()["waits"]
    assert [w["id"] for w in listed] == [first.id, second.id]
    assert listed[0]["link"] == f"http://flows.test/w/{first.token}"
    assert listed[0]["context"]["who"] == "Ann"
    assert listed[1]["options"] == ["red", "blue"]
    shown = (await s.client.get(f"/waits/{second.id}")).json()
    assert shown == listed[1]
    for query, expected in [
        (f"run_id={first.run_id}", [first.id]),
        ("flow=ask_choice", [second.id]),
        ("kind=approval", [first.id]),
        ("status=settled", []),
        ("limit=1", [first.id]),
        (f"after={first.id}", [second.id]),
    ]:
        found = (await s.client.get(f"/waits?{query}")).json()["waits"]
        assert [w["id"] for w in found] == expected, query
    for query in ("status=x", "kind=%20", "run_id=a%20b", "after=7", "limit=0"):
        assert code_of(await s.client.get(f"/waits?{query}")) == (400, "request.invalid"), query


@served()
async def test_an_operator_answers_by_id_once(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    response = await s.client.post(f"/waits/{waiting.id}/answer", json=APPROVED)
    assert (response.status_code, response.json()["status"]) == (200, "settled")
    assert response.json()["answer"] == APPROVED
    second = await s.client.post(f"/waits/{waiting.id}/answer", json={"approved": False})
    assert code_of(second) == (409, "wait.settled")
    assert code_of(await s.client.get(f"/waits/{NO_SUCH_WAIT}")) == (404, "wait.not_found")
    assert code_of(await s.client.get(f"/waits/{waiting.token}")) == (404, "wait.not_found")


@served()
async def test_a_timer_fires_early_without_a_body(s: Serving) -> None:
    waiting = await s.halted(cool_down)
    assert (await s.client.post(f"/waits/{waiting.id}/answer")).status_code == 200
    result = await s.host.resume(waiting.run_id, cool_down)
    assert (result.status, result["pause"].drift_ms) == ("completed", 0)


@served()
async def test_a_new_token_kills_the_old_one(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    renewed = (await s.client.post(f"/waits/{waiting.id}/reissue")).json()
    assert renewed["token"] != waiting.token
    old = await s.client.post(f"/answers/{waiting.token}", json=APPROVED)
    assert code_of(old) == (401, "token.invalid")
    new = await s.client.post(f"/answers/{renewed['token']}", json=APPROVED)
    assert new.status_code == 200
    assert code_of(await s.client.post(f"/waits/{waiting.id}/reissue")) == (409, "wait.settled")
    for body in (
        {"ttl_seconds": 0},
        {"ttl_seconds": "1"},
        {"ttl_seconds": True},
        {"single_use": 1},
        {"x": 1},
    ):
        bad = await s.client.post(f"/waits/{waiting.id}/reissue", json=body)
        assert code_of(bad) == (400, "request.invalid"), body


@served()
async def test_each_thing_wrong_with_an_answer_has_its_own_error(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    path = f"/answers/{waiting.token}"
    wrong = await s.client.post(path, json={"approved": "yes"})
    assert code_of(wrong) == (400, "answer.invalid")
    assert code_of(await s.client.post(path, content=b"{")) == (400, "request.invalid")
    assert code_of(await s.client.post(path, content=b"x" * (1 << 20) + b"x")) == (413, "request.too_large")
    assert code_of(await s.client.post("/answers/et_" + "x" * 43)) == (401, "token.invalid")
    assert code_of(await s.client.post("/answers/nonsense")) == (401, "token.invalid")
    assert await s.is_open(waiting)
    settled = await s.client.post(path, json=APPROVED)
    assert settled.json() == {"status": "settled", "settled_at": "2030-01-01T00:00:00+00:00"}
    assert code_of(await s.client.post(path, json=APPROVED)) == (409, "token.used")

    timed = await s.halted(expense, amount=2)
    renewed = (await s.client.post(f"/waits/{timed.id}/reissue", json={"ttl_seconds": 60})).json()
    s.clock.advance(61)
    expired = await s.client.post(f"/answers/{renewed['token']}", json=APPROVED)
    assert code_of(expired) == (401, "token.expired")
    assert await s.is_open(timed)


@served()
async def test_a_token_for_more_than_one_use_is_told_the_first_answer(s: Serving) -> None:
    waiting = await s.halted(paid)
    token = (await s.client.post(f"/waits/{waiting.id}/reissue", json={"single_use": False})).json()["token"]
    answers = [await s.client.post(f"/answers/{token}", json={"n": n}) for n in range(2)]
    assert [a.status_code for a in answers] == [200, 200]
    assert (await s.host.wait(waiting.id)).answer == {"n": 0}


@served()
async def test_metrics_count_runs_waits_and_requests(s: Serving) -> None:
    await s.halted(expense, amount=1)
    await s.halted(ask_choice)
    await s.host.run(plain, {"x": 1})
    await s.client.get("/runs/nope")
    text = (await s.client.get("/metrics")).text
    for line in (
        'everstep_runs{status="completed"} 1',
        'everstep_runs{status="halted"} 2',
        'everstep_open_waits{kind="approval"} 1',
        'everstep_open_waits{kind="choice"} 1',
        'everstep_http_requests_total{method="GET",route="/runs/{run_id}",status="404"} 1',
        'everstep_http_request_seconds_count{route="/runs/{run_id}"} 1',
        'everstep_http_request_seconds_bucket{route="/runs/{run_id}",le="+Inf"} 1',
    ):
        assert line in text.splitlines()
    assert KEY not in text


@served()
async def test_health_tells_nothing_but_that_it_lives(s: Serving) -> None:
    response = await s.client.get("/healthz", headers={"Authorization": ""})
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    head = await s.client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")


@served()
async def test_nothing_at_all_is_nobodys_answer_but_lets_a_timer_fire(s: Serving) -> None:
    waiting, nap = await s.halted(paid), await s.halted(cool_down)
    for path in (f"/answers/{waiting.token}", f"/waits/{waiting.id}/answer"):
        assert code_of(await s.client.post(path)) == (400, "request.invalid")
        assert code_of(await s.client.post(path, content=b"  ")) == (400, "request.invalid")
    assert await s.is_open(waiting)
    assert (await s.client.post(f"/answers/{waiting.token}", content=b"null")).status_code == 200
    assert (await s.client.post(f"/waits/{nap.id}/answer")).status_code == 200


@served()
async def test_a_filter_that_no_one_knows_is_refused_but_a_page_tolerates_it(s: Serving) -> None:
    waiting = await s.halted(expense, amount=7)
    for path in ("/waits?run=A1", "/runs?state=halted", f"/waits/{waiting.id}?x"):
        assert code_of(await s.client.get(path)) == (400, "request.invalid")
    assert (await s.client.get(f"/waits?run_id={waiting.run_id}")).status_code == 200
    assert (await s.client.get(f"/w/{waiting.token}?utm_source=mail")).status_code == 200


@served()
async def test_a_filter_that_is_there_twice_is_refused_unless_it_may_be(s: Serving) -> None:
    for twice in ("flow=plain&flow=nothing", "where=id = a&where=id = b", "limit=1&limit=5"):
        response = await s.client.get(f"/runs?{twice}")
        assert code_of(response) == (400, "request.invalid"), twice
        assert "is there twice" in response.json()["message"]
    assert (await s.client.get("/runs?tag=vip&tag=hot&attribute=a&attribute=b=1")).status_code == 200


@served()
async def test_the_state_of_a_run_shows_its_values_and_not_how_it_asks(s: Serving) -> None:
    waiting = await s.halted(expense, amount=7)
    state = (await s.client.get(f"/runs/{waiting.run_id}/state")).json()
    assert "summary" in state["values"]
    assert not [name for name in state["values"] if name.startswith("@wait/")]


@served()
async def test_workers_and_what_they_go_by_are_shown(s: Serving) -> None:
    body = {"flow": "plain", "inputs": {"x": 2}, "run_id": "A1", "priority": 3, "group": "acme"}
    assert (await s.client.post("/runs", json=body)).status_code == 202
    run = (await s.client.get("/runs/A1")).json()
    assert (run["priority"], run["group"], run["needs_repair"]) == (3, "acme", None)
    assert (await s.client.get("/workers")).json() == {"workers": []}
    worker = s.host.worker([plain], concurrency=7)
    await worker._presence.tell()
    [shown] = (await s.client.get("/workers")).json()["workers"]
    assert (shown["concurrency"], shown["flows"], shown["driving"]) == (7, ["plain"], 0)
    store = s.host.durability.checkpoint_store
    assert store is not None
    assert await store.set_aside("A1", epoch=0, reason="it is damaged")
    damaged = (await s.client.get("/runs?needs_repair=true")).json()["runs"]
    assert [(run["run_id"], run["needs_repair"]) for run in damaged] == [("A1", "it is damaged")]
    assert (await s.client.get("/runs?needs_repair=maybe")).status_code == 400


@served()
async def test_the_result_of_a_run_is_acknowledged(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    assert (await s.client.get("/runs/A1")).json()["acked_at"] is None
    acked = (await s.client.post("/runs/A1/ack")).json()["acked_at"]
    assert acked is not None and (await s.client.post("/runs/A1/ack")).json()["acked_at"] == acked
    assert code_of(await s.client.post("/runs/A2/ack")) == (404, "DAG-CKPT-006")


@served()
async def test_a_run_is_pinned_unpinned_and_erased(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    pinned = (await s.client.post("/runs/A1/pin", json={"reason": "case 7"})).json()
    assert (pinned["run_id"], pinned["pinned"]) == ("A1", "case 7")
    assert [run["run_id"] for run in (await s.client.get("/runs?pinned=true")).json()["runs"]] == ["A1"]
    assert code_of(await s.client.delete("/runs/A1")) == (409, "run.pinned")
    assert (await s.client.post("/runs/A1/unpin")).json()["pinned"] is None
    assert (await s.client.post("/runs/A1/pin")).json()["pinned"] == "pinned on request"
    for wrong in ({"reason": ""}, {"reason": 7}, {"reason": "x" * 501}, {"why": "x"}):
        assert code_of(await s.client.post("/runs/A1/pin", json=wrong)) == (400, "request.invalid"), wrong
    await s.client.post("/runs/A1/unpin")
    gone = (await s.client.delete("/runs/A1")).json()
    assert gone == {"run_id": "A1", "checkpoints": 2, "artifacts": 0, "artifacts_left": 0}
    for again in (s.client.delete("/runs/A1"), s.client.get("/runs/A1"), s.client.post("/runs/A1/pin")):
        assert code_of(await again) == (404, "run.erased")
    taken = await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 2}, "run_id": "A1"})
    assert code_of(taken) == (404, "run.erased")


@served()
async def test_a_damaged_run_is_refused_and_falls_back_where_asked(s: Serving) -> None:
    waiting = await s.halted(cool_down)
    store: Any = s.host._services.store
    vandal = InMemory(store.data, s.host.clock)
    last = (await s.host.info(waiting.run_id)).checkpoints
    vandal.write(waiting.run_id, last, b"no record")
    path = f"/runs/{waiting.run_id}/resume"
    assert code_of(await s.client.post(path)) == (500, "DAG-CKPT-008")
    assert code_of(await s.client.post(path, json={"fallback": "yes"})) == (400, "request.invalid")
    halted = await s.client.post(path, json={"fallback": True})
    assert halted.status_code == 202
    told = halted.json()
    assert told["run_id"] == told["fallback"]["fork"] == f"{waiting.run_id}-from-{last - 1}"
    assert told["fallback"]["unread"] == [last] and told["waits"][0]["run_id"] == told["run_id"]


@served()
async def test_who_sends_a_request_and_why_is_kept_with_what_it_does(s: Serving) -> None:
    signed = {"by": "ada", "comment": "ticket 4711"}
    act = {**signed, "how": "claimed"}
    await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 2}, "run_id": "A1", **signed})
    [first] = await s.host.history("A1")
    assert first.act is not None and as_json(first.act) == act
    headers = {"Everstep-By": "J%C3%B6rg", "Everstep-Comment": "two words"}
    await s.client.post("/runs/A1/cancel", headers=headers)
    assert [as_json(r.act) for r in await s.host.history("A1") if r.act is not None][1:] == [
        {"by": "Jörg", "comment": "two words", "how": "claimed"}
    ]
    waiting = await s.halted(ask_choice)
    await s.client.post(f"/waits/{waiting.id}/reissue", headers=headers)
    await s.client.post(f"/waits/{waiting.id}/reissue", json=signed)
    lines = [line for line in await s.host.retention.removals() if line.what == "reissue"]
    assert [line.act.by for line in lines if line.act is not None] == ["ada", "Jörg"]
    settled = await s.client.post(f"/waits/{waiting.id}/answer", json="red", headers=headers)
    assert settled.json()["act"]["by"] == "Jörg"
    assert (await s.client.get(f"/waits/{waiting.id}")).json()["act"]["comment"] == "two words"
    pinned = await s.client.post("/runs/A1/pin", json={"reason": "kept", **signed})
    assert (pinned.json()["pinned"], pinned.json()["pinned_by"]) == ("kept", act)
    await s.client.post("/runs/A1/unpin")
    await s.client.delete("/runs/A1", headers=headers)
    gone = await s.client.get("/runs/A1")
    assert gone.json()["details"]["act"]["by"] == "Jörg"


@served()
async def test_a_name_that_no_header_can_hold_is_refused(s: Serving) -> None:
    waiting = await s.halted(ask_choice)
    for said in ("%ff", "x" * 201, "%1b[31m"):
        refused = await s.client.post(
            f"/waits/{waiting.id}/answer", json="red", headers={"Everstep-By": said}
        )
        assert code_of(refused) == (400, "request.invalid")


@served(works=False)
async def test_a_service_that_drives_nothing_leaves_a_resumed_run_to_workers(s: Serving) -> None:
    await s.client.post("/runs", json={"flow": "failing", "inputs": {"x": 1}, "run_id": "A1"})
    await s.host.work([failing], until_idle=True)
    assert (await s.client.get("/runs/A1")).json()["status"] == "failed"
    response = await s.client.post("/runs/A1/resume")
    left = {"halted": False, "paused": False, "run_id": "A1", "waits": []}
    assert (response.status_code, response.json()) == (202, left)
    shown = (await s.client.get("/runs/A1")).json()
    assert (shown["status"], shown["is_driven"]) == ("running", False)
    assert (await s.client.post("/runs/A1%2Fexplode/resume")).json()["run_id"] == "A1"
    assert code_of(await s.client.post("/runs/A1/resume", json={"fallback": True})) == (
        400,
        "request.invalid",
    )
    assert (await s.host.work([failing], until_idle=True)).failed == 1


@served()
async def test_a_run_whose_flow_is_elsewhere_is_left_to_the_workers_that_have_it(s: Serving) -> None:
    elsewhere = Flow("elsewhere", [explode])
    assert (await s.host.run(elsewhere, {"x": 1}, run_id="A1")).status == "failed"
    assert code_of(await s.client.post("/runs/A1/resume")) == (404, "flow.not_found")
    body = {"drive": False, "by": "ann", "comment": "the bank is back"}
    response = await s.client.post("/runs/A1/resume", json=body)
    left = {"halted": False, "paused": False, "run_id": "A1", "waits": []}
    assert (response.status_code, response.json()) == (202, left)
    assert (await s.client.get("/runs/A1")).json()["status"] == "running"
    told = (await s.client.get("/runs/A1/nodes")).json()["acts"]
    assert [(one["trigger"], one["by"]) for one in told] == [("resume", "ann")]
    again = await s.client.post("/runs/A1/resume", json={"drive": False})
    assert (again.status_code, again.json()) == (202, left), "it is theirs already"
    begins = await s.client.post("/runs/A1/resume", json={"drive": False, "start": "explode"})
    assert code_of(begins) == (400, "request.invalid")
    assert (await s.host.work([elsewhere], until_idle=True)).failed == 1


@served(works=False)
async def test_a_service_that_drives_nothing_leaves_a_delivered_checkpoint_to_workers(s: Serving) -> None:
    await s.client.post("/runs", json={"flow": "failing", "inputs": {"x": 1}, "run_id": "A1"})
    await s.host.work([failing], until_idle=True)
    head = (await s.host.latest("A1")).checkpoint_id
    response = await s.client.post("/resume", json={"checkpoint_id": head})
    assert (response.status_code, response.json()["run_id"]) == (202, "A1")
    shown = (await s.client.get("/runs/A1")).json()
    assert (shown["status"], shown["is_driven"]) == ("running", False)
    assert (await s.host.work([failing], until_idle=True)).failed == 1
    halted = await s.halted(ask_choice)
    head = (await s.host.latest(halted.run_id)).checkpoint_id
    response = await s.client.post("/resume", json={"checkpoint_id": head})
    assert (response.status_code, [w["id"] for w in response.json()["waits"]]) == (202, [halted.id])


@served()
async def test_a_part_of_a_run_is_named_by_an_encoded_slash(s: Serving) -> None:
    result = await s.host.run(shipping, {"day": date(2026, 1, 1), "amount": Decimal(1)}, run_id="A1")
    assert result.status == "halted"
    state = (await s.client.get("/runs/A1%2Fasking/state")).json()
    assert (state["run_id"], state["values"], state["pending"]) == ("A1", {}, ["asking", "asking/name"])
    assert (await s.client.get("/runs/A1%2fship/state")).json()["values"] == {"sent": "2026-01-01 for 1"}
    waits = (await s.client.get("/waits", params={"run_id": "A1/asking"})).json()["waits"]
    assert [w["node"] for w in waits] == ["asking/name"]
    assert (await s.client.get("/waits?run_id=A1/ship")).json()["waits"] == []
    page = await s.client.get("/runs/A1%2Fasking/events", headers={"Accept": "application/json"})
    assert {event["node"] for event in page.json()["events"]} == {"asking", "asking/name"}
    assert (await s.client.get("/runs/A1%2Fasking")).json()["run_id"] == "A1"
    resumed = await s.client.post("/runs/A1%2Fasking/resume")
    assert (resumed.status_code, resumed.json()["run_id"]) == (202, "A1")
    for path, expected in [
        ("/runs/A1%2Fasknig/state", (404, "DAG-CKPT-006")),
        ("/runs/A1/asking/state", (404, "request.no_such_path")),
        ("/runs/A1%2F%2F/state", (404, "DAG-CKPT-006")),
    ]:
        assert code_of(await s.client.get(path)) == expected, path
    refused = await s.client.post("/runs/A1%2Fasking/cancel")
    assert code_of(refused) == (400, "request.invalid")
    assert "everstep cancel A1" in refused.json()["fix"]


@served()
async def test_a_run_and_a_part_of_it_are_looked_at_as_of_a_checkpoint(s: Serving) -> None:
    result = await s.host.run(shipping, {"day": date(2026, 1, 1), "amount": Decimal(1)}, run_id="A1")
    await s.host.answer(result.waits[0].id, "Ann")
    assert (await s.host.resume("A1", shipping)).status == "completed"
    state = (await s.client.get("/runs/A1@2%2Fasking/state")).json()
    assert (state["sequence"], state["pending"]) == (2, ["asking", "asking/name"])
    assert (await s.client.get("/runs/A1%2Fasking/state")).json()["pending"] == []
    assert (await s.client.get("/runs/A1@1/state")).json()["sequence"] == 1
    for of in ("A1@2", "A1@2/asking"):
        path = f"/runs/{of.replace('/', '%2F')}"
        found = (await s.client.get(f"{path}/nodes")).json()
        statuses = {line["node"]: line["status"] for line in found["nodes"]}
        assert (found["sequence"], statuses["asking"]) == (2, "running"), of
        assert (await s.client.get(f"{path}/steps")).json() == as_json(await s.host.debug.steps(of))
        for now in (path, f"{path}/events", f"/waits?run_id={of}"):
            refused = await s.client.get(now)
            assert code_of(refused) == (400, "request.invalid"), now
            assert "names a checkpoint" in refused.json()["message"], now
        for whole in ("cancel", "pin", "unpin", "ack", "resume"):
            assert code_of(await s.client.post(f"{path}/{whole}")) == (400, "request.invalid"), whole
    assert code_of(await s.client.get("/runs/A1@9/state")) == (404, "DAG-CKPT-006")
    assert code_of(await s.client.get("/runs/A1@x/state")) == (404, "DAG-CKPT-006")
    assert code_of(await s.client.get("/runs/A1@1/state?at=2")) == (400, "request.invalid")


@served()
async def test_inputs_over_http_become_what_the_flow_declares(s: Serving) -> None:
    body = {"flow": "shipping", "inputs": {"day": "2026-01-01", "amount": "1.10"}, "run_id": "A1"}
    assert (await s.client.post("/runs", json=body)).status_code == 202
    state = await s.host.state("A1")
    assert dict(state) == {"day": date(2026, 1, 1), "amount": Decimal("1.10")}
    refused = await s.client.post("/runs", json={**body, "inputs": {"day": "soon", "amount": "1"}})
    assert code_of(refused) == (422, "run.bad_input")
    assert "'day' cannot be date" in refused.json()["message"]


@served()
async def test_a_turn_answers_the_wait_and_drives_the_run_to_the_next_or_its_end(s: Serving) -> None:
    waiting = await s.halted(ask_choice)
    said = {"name": waiting.node, "value": "red", "id": "click-1", "by": "ann", "drive": True}
    refused = await s.client.post(f"/runs/{waiting.run_id}/inbox", json={**said, "value": "no colour"})
    assert code_of(refused) == (400, "answer.invalid")
    first = await s.client.post(f"/runs/{waiting.run_id}/inbox", json=said)
    assert (first.status_code, first.json()["status"], first.json()["waits"]) == (200, "completed", [])
    again = await s.client.post(f"/runs/{waiting.run_id}/inbox", json=said)
    assert (again.status_code, again.json()) == (200, first.json()), "the same id is the same turn"
    late = await s.client.post(f"/runs/{waiting.run_id}/inbox", json={**said, "id": "click-2"})
    assert code_of(late) == (409, "run.ended")
    assert (await s.client.post("/runs/unknown/inbox", json=said)).status_code == 404


@served(works=False)
async def test_a_service_that_drives_nothing_takes_no_turn(s: Serving) -> None:
    waiting = await s.halted(ask_choice)
    said = {"name": waiting.node, "value": "red", "drive": True}
    assert code_of(await s.client.post(f"/runs/{waiting.run_id}/inbox", json=said)) == (
        400,
        "request.invalid",
    )
    assert await s.host.inbox(waiting.run_id) == []


@node(output="sent", halts=True)
def write_and_ask(topic: str, ctx: Context) -> bool:
    draft = ctx.step("write", f"A page about {topic}.".upper)
    said: bool = ctx.wait(wait.approval("ok", context=draft)).approved
    return said


writing = Flow("writing", [write_and_ask])


@served()
async def test_durable_calls_of_a_node_are_among_the_steps(s: Serving) -> None:
    waiting = await s.halted(writing, topic="rain")
    assert waiting.node == "write_and_ask/$ok"
    at = f"/runs/{waiting.run_id}"

    async def calls() -> list[str]:
        lines = (await s.client.get(f"{at}/steps")).json()["steps"]
        return [line["address"] for line in lines if "$" in line["address"]]

    assert await calls() == ["write_and_ask@1/$write@1"]
    assert (await s.client.get(f"{at}/state")).json()["pending"] == ["write_and_ask"]
    assert (await s.client.post(f"/waits/{waiting.id}/answer", json=APPROVED)).status_code == 200
    assert (await s.host.resume(waiting.run_id, writing))["sent"] is True
    assert await calls() == ["write_and_ask@1/$write@1", "write_and_ask@1/$ok@1"]
