"""Events over HTTP: live, resumable, and as pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from everstep import END, Context, Flow, node, route
from everstep.client.record_events import LOOK
from everstep.ports.live import Offset, Position
from everstep.ports.restoring import EPOCHS_OF_A_LIFE
from everstep.server.api.events import _stream
from tests.integration.server.serving import Serving, code_of, expense, plain, served

APPROVED = {"approved": True}
JSON = {"Accept": "application/json"}


def frames(text: str) -> list[dict[str, str]]:
    """Return the frames of a stream that has ended, without comments and retry hints."""
    found = [dict(line.split(": ", 1) for line in part.splitlines()) for part in text.split("\n\n") if part]
    return [frame for frame in found if "id" in frame]


@asynccontextmanager
async def live(s: Serving, run_id: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Open a stream in this process; httpx would hand it over only when it has ended."""
    source = _stream(s.app.service, s.host.events(run_id))

    async def events() -> AsyncIterator[dict[str, Any]]:
        async for chunk in source:
            for frame in frames(chunk.decode()):
                yield json.loads(frame["data"])

    yield events()
    await source.aclose()


@served()
async def test_the_stream_of_an_ended_run_is_its_events_and_ends(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    response = await s.client.get("/runs/A1/events")
    assert response.headers["content-type"].startswith("text/event-stream")
    found = frames(response.text)
    assert [frame["event"] for frame in found] == [
        "run_started",
        "checkpoint",
        "step_completed",
        "checkpoint",
        "run_ended",
    ]
    assert [json.loads(frame["data"])["id"] for frame in found] == [frame["id"] for frame in found]


@served()
async def test_a_stream_goes_on_after_the_last_event_seen(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    every = [frame["id"] for frame in frames((await s.client.get("/runs/A1/events")).text)]
    for k, seen in enumerate(every[:-1]):
        by_header = await s.client.get("/runs/A1/events", headers={"Last-Event-ID": seen})
        by_query = await s.client.get(f"/runs/A1/events?after={seen}")
        assert [frame["id"] for frame in frames(by_header.text)] == every[k + 1 :]
        assert by_query.text == by_header.text


@served()
async def test_a_stream_has_what_nodes_emit_and_goes_on_behind_it(s: Serving) -> None:
    @node
    def speak(x: int, ctx: Context) -> None:
        for k in range(x):
            ctx.emit("said", k=k)

    await s.host.run(Flow("speaking", [speak], streams=True), {"x": 3}, run_id="A1")
    every = frames((await s.client.get("/runs/A1/events")).text)
    emitted = [frame for frame in every if frame["event"] == "emitted"]
    assert [json.loads(frame["data"])["data"]["data"] for frame in emitted] == [{"k": k} for k in range(3)]
    assert [frame["id"].partition("~")[2] for frame in emitted] == ["1.1", "1.2", "1.3"]
    for k, frame in enumerate(every[:-1]):
        rest = await s.client.get("/runs/A1/events", headers={"Last-Event-ID": frame["id"]})
        assert [one["id"] for one in frames(rest.text)] == [one["id"] for one in every[k + 1 :]]
    page = (await s.client.get(f"/runs/A1/events?after={emitted[0]['id']}", headers=JSON)).json()
    assert "emitted" not in [event["kind"] for event in page["events"]], "a page is what is recorded"


@served()
async def test_a_caller_that_has_seen_the_end_is_told_to_ask_no_more(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    last = frames((await s.client.get("/runs/A1/events")).text)[-1]["id"]
    response = await s.client.get("/runs/A1/events", headers={"Last-Event-ID": last})
    assert (response.status_code, response.content) == (204, b"")


@served()
async def test_a_stream_follows_a_halted_run_to_its_end(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    async with live(s, waiting.run_id) as events:
        before = []
        async for event in events:
            before.append(event["kind"])
            if event["kind"] == "run_halted":
                break
        await s.host.deliver({"token": waiting.token, "answer": APPROVED}, [expense])
        after = [event["kind"] async for event in events]
    assert "step_halted" in before
    assert after[-1] == "run_ended"


@served(keep_alive=0.01)
async def test_a_silent_stream_says_that_it_lives(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    source = _stream(s.app.service, s.host.events(waiting.run_id))
    chunks = []
    async for chunk in source:
        chunks.append(chunk)
        if chunk.startswith(b":"):
            break
    await source.aclose()
    assert chunks[0] == b"retry: 2000\n\n"


@served()
async def test_streams_end_when_the_service_stops(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    async with live(s, waiting.run_id) as events:
        async for event in events:
            if event["kind"] == "run_halted":
                s.app.service.stopping.set()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@served()
async def test_a_page_of_events_is_json_and_leads_to_the_next(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    path, accept = f"/runs/{waiting.run_id}/events", {"Accept": "application/json"}
    first = (await s.client.get(f"{path}?limit=2", headers=accept)).json()
    assert ([e["kind"] for e in first["events"]], first["ended"]) == (["run_started", "checkpoint"], False)
    rest = (await s.client.get(f"{path}?after={first['next']}", headers=accept)).json()
    assert rest["events"][-1]["kind"] == "run_halted"
    empty = (await s.client.get(f"{path}?after={rest['next']}", headers=accept)).json()
    assert empty == {"events": [], "next": rest["next"], "ended": False}
    await s.host.cancel(waiting.run_id)
    last = (await s.client.get(f"{path}?after={rest['next']}", headers=accept)).json()
    assert (last["events"][-1]["data"]["status"], last["ended"]) == ("cancelled", True)


class Reads:
    """Counts what is read of a store."""

    def __init__(self, s: Serving) -> None:
        self.records = self.rows = 0
        store: Any = s.host._services.store
        get, run = store.get, store.run

        async def counted_get(*args: Any, **named: Any) -> Any:
            found = await get(*args, **named)
            self.records += len(found)
            return found

        async def counted_run(*args: Any, **named: Any) -> Any:
            self.rows += 1
            await asyncio.sleep(0.01)  # others have their turn, as while a server is asked
            return await run(*args, **named)

        store.get, store.run = counted_get, counted_run


async def long_run(s: Serving, rounds: int) -> None:
    flow = Flow("long", [count_up, enough], entry=["count_up"], durability="strong")
    assert (await s.host.run(flow, {"i": 0, "upto": rounds}, run_id="L1")).status == "completed"


@node(output="i")
def count_up(i: int) -> int:
    return i + 1


@route(["count_up", END])
def enough(i: int, upto: int) -> Any:
    return "count_up" if i < upto else END


@served()
async def test_a_page_of_a_long_run_reads_no_more_than_a_page(s: Serving) -> None:
    await long_run(s, 100)
    reads = Reads(s)
    page = await s.client.get("/runs/L1/events?limit=1", headers=JSON)
    assert len(page.json()["events"]) == 1
    assert reads.records <= 40
    every, after = [], ""
    while True:
        page = (await s.client.get(f"/runs/L1/events?limit=90{after}", headers=JSON)).json()
        every += [event["id"] for event in page["events"]]
        after = f"&after={page['next']}"
        if page["ended"]:
            break
    streamed = [frame["id"] for frame in frames((await s.client.get("/runs/L1/events")).text)]
    assert every == streamed


@served()
async def test_a_client_that_does_not_read_costs_no_more_than_a_page(s: Serving) -> None:
    await long_run(s, 100)
    reads = Reads(s)
    stream = _stream(s.app.service, s.host.events("L1"))
    for _ in range(3):
        await anext(stream)
    for _ in range(10):
        await asyncio.sleep(0)
    assert reads.records <= 40
    await stream.aclose()


@served()
async def test_those_who_follow_a_run_are_not_woken_for_others(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    sources = [s.host.events(waiting.run_id) for _ in range(20)]
    for source in sources:
        while (await anext(source)).kind != "run_halted":
            continue
    coming = [asyncio.ensure_future(anext(source)) for source in sources]
    await asyncio.sleep(2 * LOOK)
    reads = Reads(s)
    await s.host.start(plain, {"x": 1})
    started = reads.rows
    await asyncio.sleep(3 * LOOK)
    assert (reads.records, reads.rows - started <= 1) == (0, True)
    await s.host.cancel(waiting.run_id)
    assert {(await one).kind for one in coming} == {"checkpoint"}
    for source in sources:
        await source.aclose()


@served()
async def test_what_a_run_emits_is_not_read_again_when_another_run_changes(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    sources = [s.host.follow(waiting.run_id) for _ in range(5)]
    for source in sources:
        while (await anext(source)).kind != "run_halted":
            continue
    coming = [asyncio.ensure_future(anext(source)) for source in sources]
    await asyncio.sleep(2 * LOOK)
    asked: list[str] = []
    reader = s.host._services.live.reader
    assert reader is not None
    now = reader.now

    async def counted(run_id: str, after: Any) -> Any:
        asked.append(run_id)
        return await now(run_id, after)

    reader.now = counted  # type: ignore[method-assign]
    await s.host.start(plain, {"x": 1})
    await asyncio.sleep(3 * LOOK)
    assert asked == []
    await s.host.cancel(waiting.run_id)
    assert {(await one).kind for one in coming} == {"checkpoint"}
    for source in sources:
        await source.aclose()


@served()
async def test_what_is_no_event_id_is_refused(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    for after in ("x", "1", "1.", ".1", "1.1.1", "-1.1", "1" * 20 + ".1", "1.1\t"):
        response = await s.client.get("/runs/A1/events", headers={"Last-Event-ID": after})
        assert code_of(response) == (400, "request.invalid"), after
    far = await s.client.get("/runs/A1/events?after=9999999999.999999999")
    assert far.status_code == 204


@served()
async def test_the_id_of_an_event_of_a_run_that_came_from_elsewhere_is_taken(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    far = 20_000 * EPOCHS_OF_A_LIFE  # where a run begins that is the twenty thousandth of its store
    place = Position(1, 1, Offset(far, 7))
    assert Position.of(str(place)) == place
    rest = await s.client.get("/runs/A1/events", headers={"Last-Event-ID": str(place)})
    assert rest.status_code == 200
    assert [frame["event"] for frame in frames(rest.text)][-1] == "run_ended"


@served()
async def test_looking_at_the_head_of_a_stream_does_not_wait_for_its_end(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    response = await asyncio.wait_for(s.client.head(f"/runs/{waiting.run_id}/events"), 5)
    assert (response.status_code, response.content) == (200, b"")
