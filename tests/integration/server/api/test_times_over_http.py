"""Delayed starts and deadlines over HTTP."""

from __future__ import annotations

from tests.integration.server.serving import Serving, ask_text, code_of, plain, served

BEGINS, ENDS = "2199-01-01T00:00:00+00:00", "2199-01-01T01:00:00+00:00"


@served(works=False)
async def test_a_run_begins_later_and_is_started_now(s: Serving) -> None:
    body = {"flow": "plain", "inputs": {"x": 1}, "run_id": "A1", "at": BEGINS, "deadline": "1h"}
    told = await s.client.post("/runs", json=body)
    assert (told.status_code, told.json()["status"]) == (202, "halted")
    shown = (await s.client.get("/runs/A1")).json()
    assert (shown["begins_at"], shown["ends_at"]) == (BEGINS, ENDS)
    [wait] = (await s.client.get("/waits", params={"run_id": "A1"})).json()["waits"]
    assert (wait["node"], wait["kind"], wait["due_at"]) == ("@start", "timer", BEGINS)
    kind = {"run_id": "A1", "kind": "deadline"}
    [deadline] = (await s.client.get("/waits", params=kind)).json()["waits"]
    assert deadline["due_at"] == ENDS
    for act, said in (("fire", {}), ("answer", {"answer": 1})):
        refused = await s.client.post(f"/waits/{deadline['id']}/{act}", json=said)
        assert code_of(refused) == (400, "request.invalid"), refused.text
    assert (await s.client.post(f"/waits/{wait['id']}/fire")).status_code == 200
    result = await s.host.resume("A1", plain)
    assert result.status == "completed"
    shown = (await s.client.get("/runs/A1")).json()
    assert "begins_at" not in shown
    assert "ends_at" not in shown


@served(works=False)
async def test_what_is_no_time_is_refused(s: Serving) -> None:
    for given in ({"at": "tomorrow"}, {"after": "x"}, {"deadline": "0s"}, {"at": 7}, {"at": "2199-01-01"}):
        told = await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 1}, **given})
        assert told.status_code in (400, 422), told.text
    assert await s.host.runs() == []


@served(works=False)
async def test_a_run_gets_another_deadline(s: Serving) -> None:
    await s.host.run(ask_text, run_id="A1", deadline="1d")
    before = (await s.host.state("A1")).ends_at
    told = await s.client.post("/runs/A1/resume", json={"deadline": "2d", "drive": False, "by": "ann"})
    assert (told.status_code, told.json()["halted"]) == (202, True)
    after = (await s.host.state("A1")).ends_at
    assert before is not None
    assert after is not None
    assert after > before
    assert [one.due_at for one in await s.host.waits("A1", kind="deadline")] == [after]
