"""`POST /resume`, and the same from Python: whatever lets a run go on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from everstep import AsyncHost, Host, node, wait
from everstep.errors import BadRequest, LeaseConflict
from everstep.graph.author.flow import Flow
from everstep.runtime.events import Event
from everstep.testing import ManualClock
from tests.integration.server.serving import (
    KEY,
    NO_SUCH_TOKEN,
    NO_SUCH_WAIT,
    Serving,
    code_of,
    cool_down,
    expense,
    paid,
    plain,
    served,
)

APPROVED = {"approved": True}
two_waits = Flow("two_waits", [wait.callback("one"), wait.callback("two", context="one")])


@served()
async def test_a_token_with_its_answer_takes_the_run_to_its_end(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    head = await s.host.latest(waiting.run_id)
    response = await s.client.post("/resume", json={"token": waiting.token, "answer": APPROVED})
    body = response.json()
    assert (response.status_code, body["status"], body["result"]["verdict"]) == (200, "completed", "paid")
    labels = body["labels"]
    assert labels["everstep.run_id"] == waiting.run_id
    assert labels["everstep.checkpoint_id"] == head.checkpoint_id
    assert labels["everstep.resume_id"] not in (waiting.run_id, waiting.id, head.checkpoint_id)
    assert body["resume"]["attempt"] == 1
    assert body["resume"]["frontier"]["pending"] == ["decision"]
    assert body["resume"]["resumed_at"].startswith("2030-01-01T00:00:00")
    again = await s.client.post("/resume", json={"token": waiting.token, "answer": APPROVED})
    assert code_of(again) == (409, "token.used")


@served()
async def test_a_wait_id_alone_says_that_its_time_is_over(s: Serving) -> None:
    waiting = await s.halted(cool_down)
    s.clock.advance(2 * 24 * 3600 + 1)
    response = await s.client.post("/resume", json={"wait_id": waiting.id})
    assert (response.status_code, response.json()["status"]) == (200, "completed")
    assert response.json()["result"]["pause"]["drift_ms"] == 1000
    assert code_of(await s.client.post("/resume", json={"wait_id": waiting.id})) == (409, "wait.settled")
    late = await s.halted(paid)
    timed_out = await s.client.post("/resume", json={"wait_id": late.id})
    assert (timed_out.status_code, timed_out.json()["status"]) == (200, "failed")
    assert timed_out.json()["error"]["code"] == "wait.timeout"


@served()
async def test_a_wait_id_with_an_answer_is_an_operators(s: Serving) -> None:
    waiting = await s.halted(paid)
    response = await s.client.post("/resume", json={"wait_id": waiting.id, "answer": {"sum": 3}})
    assert response.json()["result"]["payment"]["payload"] == {"sum": 3}


@served()
async def test_a_run_that_halts_again_is_202_with_its_waits(s: Serving) -> None:
    result = await s.host.run(two_waits)
    first = result.waits[0]
    delivery = await s.host.deliver({"token": first.token, "answer": 1}, [two_waits])
    assert delivery.result is not None
    assert (delivery.result.status, [w.node for w in delivery.waits]) == ("halted", ["two"])
    response = await s.client.post("/runs", json={"flow": "expense", "inputs": {"amount": 1}, "run_id": "A1"})
    assert response.status_code == 202
    head = await s.host.latest("A1")
    halted = await s.client.post("/resume", json={"checkpoint_id": head.checkpoint_id})
    assert (halted.status_code, halted.json()["halted"], halted.json()["run_id"]) == (202, True, "A1")
    assert [w["node"] for w in halted.json()["waits"]] == ["decision"]


@served()
async def test_a_checkpoint_that_the_run_has_left_is_a_conflict(s: Serving) -> None:
    await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 1}, "run_id": "A1"})
    head = (await s.host.latest("A1")).checkpoint_id
    done = await s.client.post("/resume", json={"checkpoint_id": head, "run_id": "A1"})
    assert (done.status_code, done.json()["result"]) == (200, {"total": 2})
    stale = await s.client.post("/resume", json={"checkpoint_id": head, "run_id": "A1"})
    assert code_of(stale) == (409, "DAG-CKPT-007")
    assert "everstep fork A1@1" in stale.json()["fix"]
    assert code_of(await s.client.post("/resume", json={"checkpoint_id": head})) == (409, "DAG-CKPT-007")


@served()
async def test_each_wrong_message_has_its_error_and_uses_nothing_up(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    token = waiting.token
    for body, expected in [
        ({}, (400, "request.invalid")),
        ([], (400, "request.invalid")),
        ("x", (400, "request.invalid")),
        ({"answer": APPROVED}, (400, "request.invalid")),
        ({"token": token, "wait_id": waiting.id, "answer": APPROVED}, (400, "request.invalid")),
        ({"token": token, "answer": APPROVED, "more": 1}, (400, "request.invalid")),
        ({"token": token, "answer": APPROVED, "run_id": "x"}, (400, "request.invalid")),
        ({"token": 7, "answer": APPROVED}, (400, "request.invalid")),
        ({"checkpoint_id": None}, (400, "request.invalid")),
        ({"checkpoint_id": "x", "answer": 1}, (400, "request.invalid")),
        ({"checkpoint_id": "x", "run_id": 7}, (400, "request.invalid")),
        ({"token": token, "answer": {"approved": 1}}, (400, "answer.invalid")),
        ({"token": token}, (400, "answer.invalid")),
        ({"token": "et_x", "answer": APPROVED}, (401, "token.invalid")),
        ({"token": NO_SUCH_TOKEN, "answer": APPROVED}, (401, "token.invalid")),
        ({"token": waiting.id, "answer": APPROVED}, (401, "token.invalid")),
        ({"wait_id": NO_SUCH_WAIT}, (404, "wait.not_found")),
        ({"wait_id": token, "answer": APPROVED}, (404, "wait.not_found")),
        ({"checkpoint_id": NO_SUCH_WAIT}, (404, "DAG-CKPT-006")),
        ({"checkpoint_id": "nonsense"}, (404, "DAG-CKPT-006")),
        ({"checkpoint_id": NO_SUCH_WAIT, "run_id": "nope"}, (404, "DAG-CKPT-006")),
        ({"checkpoint_id": NO_SUCH_WAIT, "run_id": "a b"}, (400, "request.invalid")),
    ]:
        assert code_of(await s.client.post("/resume", json=body)) == expected, body
        assert await s.is_open(waiting), body
    assert code_of(await s.client.post("/resume", content=b"{")) == (400, "request.invalid")
    assert code_of(await s.client.post("/resume", content=b" " * (2 << 20))) == (413, "request.too_large")
    assert await s.is_open(waiting)


def test_an_answer_is_kept_when_another_process_has_the_run(tmp_path: Any) -> None:
    """Settled here, driven there: 202. A checkpoint alone settles nothing, so that one is a conflict."""

    async def main() -> None:
        clock = ManualClock()
        url = f"sqlite:///{tmp_path}/runs.db"
        async with AsyncHost(url, clock=clock, key=KEY) as host:
            waiting = (await host.run(expense, {"amount": 1})).waits[0]
            store = host._services.store
            lease = await store.lease(
                waiting.run_id, owner="elsewhere", ttl=timedelta(seconds=30), process=None
            )
            delivery = await host.deliver({"token": waiting.token, "answer": APPROVED}, [expense])
            assert (delivery.result, delivery.resumed) == (None, None)
            assert [(w.id, w.status.value) for w in delivery.waits] == [(waiting.id, "settled")]
            head = await host.latest(waiting.run_id)
            with pytest.raises(LeaseConflict):
                await host.deliver({"checkpoint_id": head.checkpoint_id}, [expense])
            await store.release_lease(lease)
            done = await host.deliver({"checkpoint_id": head.checkpoint_id}, [expense])
            assert done.result is not None
            assert done.result["verdict"] == "paid"

    asyncio.run(main())


def test_an_answer_for_a_flow_that_is_not_loaded_is_kept_for_a_worker() -> None:
    async def main() -> None:
        async with AsyncHost("memory:", key=KEY) as host:
            waiting = (await host.run(expense, {"amount": 1})).waits[0]
            delivery = await host.deliver({"token": waiting.token, "answer": APPROVED}, [plain])
            assert delivery.result is None
            await host.work([expense], until_idle=True)
            assert (await host.info(waiting.run_id)).status == "completed"

    asyncio.run(main())


def test_an_answer_does_not_reopen_a_failed_run() -> None:
    tries: list[int] = []

    @node(output="x")
    def fail() -> int:
        tries.append(1)
        raise RuntimeError("boom")

    both = Flow("both", [wait.callback("one"), fail])
    with Host("memory:", key=KEY) as host:
        result = host.run(both)
        assert result.status == "failed"
        [waiting] = host.waits(result.run_id)
        delivery = host.deliver({"token": waiting.token, "answer": 1}, [both])
        assert delivery.result is not None
        assert (delivery.result.status, delivery.resumed, len(tries)) == ("failed", None, 1)


@served()
async def test_a_checkpoint_of_a_flow_that_is_not_loaded_is_not_found(s: Serving) -> None:
    result = await s.host.run(two_waits)
    head = await s.host.latest(result.run_id)
    response = await s.client.post("/resume", json={"checkpoint_id": head.checkpoint_id})
    assert code_of(response) == (404, "flow.not_found")
    accepted = await s.client.post("/resume", json={"token": result.waits[0].token, "answer": 1})
    assert (accepted.status_code, accepted.json()["labels"]) == (202, None)


def test_a_resumption_is_told_with_the_event() -> None:
    heard: list[Event] = []
    with Host("memory:", key=KEY, on_event=heard.append) as host:
        waiting = host.run(expense, {"amount": 1}).waits[0]
        delivery = host.deliver({"token": waiting.token, "answer": APPROVED}, [expense])
    [event] = [event for event in heard if event.kind == "run_resumed"]
    assert delivery.resumed is not None
    assert event.data["labels"] == delivery.resumed.labels
    assert event.data["resume"]["frontier"]["pending"] == ["decision"]
    assert event.data["resume"]["attempt"] == 1


def test_a_message_that_is_no_object_is_refused() -> None:
    with Host("memory:") as host, pytest.raises(BadRequest, match="not an object"):
        host.deliver([], [])  # type: ignore[arg-type]


@served()
async def test_resume_is_not_in_the_public_document(s: Serving) -> None:
    document = (await s.client.get("/openapi.json")).json()
    assert "/resume" not in document["paths"]
    assert "/runs" in document["paths"]
