"""What a node says while it runs: `ctx.emit` and `ctx.heartbeat`."""

from __future__ import annotations

import asyncio
import threading

import pytest

from everstep import Context, Flow, Host, node
from everstep.errors import BadRequest
from everstep.model.enums import Mode
from everstep.runtime.events import Event


def said(events: list[Event]) -> list[tuple[str, str, object]]:
    return [(e.node, e.data["name"], e.data.get("done")) for e in events if e.kind == "emitted"]


@pytest.mark.parametrize("is_async", [True, False])
def test_what_a_node_emits_is_told_with_its_place_and_never_recorded(is_async: bool) -> None:
    events: list[Event] = []

    async def report_async(x: int, ctx: Context) -> int:
        ctx.emit("progress", done=0.5)
        return x

    def report_sync(x: int, ctx: Context) -> int:
        ctx.emit("progress", done=0.5)
        return x

    flow = Flow("f", [node(name="n", output="y")(report_async if is_async else report_sync)])
    with Host("memory:", on_event=events.append) as host:
        host.run(flow, {"x": 1}, run_id="A")
        assert said(events) == [("n", "progress", 0.5)]
        assert "progress" not in str(host.history("A"))


def test_nodes_beside_each_other_tell_on_the_thread_that_drives() -> None:
    threads: set[int] = set()

    @node(output="a")
    def left(x: int, ctx: Context) -> int:
        ctx.emit("left")
        return x

    @node(output="b")
    def right(x: int, ctx: Context) -> int:
        ctx.emit("right")
        return x

    events: list[Event] = []

    def hear(event: Event) -> None:
        threads.add(threading.get_ident())
        events.append(event)

    with Host("memory:", on_event=hear) as host:
        host.run(Flow("f", [left, right]), {"x": 1})
    assert sorted(name for _, name, _ in said(events)) == ["left", "right"]
    assert threads == {threading.get_ident()}


def test_without_anybody_watching_a_node_may_speak_all_the_same() -> None:
    @node(output="y")
    def speak(x: int, ctx: Context) -> int:
        ctx.emit("hello")
        ctx.heartbeat()
        return x

    with Host("memory:") as host:
        assert host.run(Flow("f", [speak]), {"x": 1})["y"] == 1


def test_what_is_emitted_needs_a_name() -> None:
    @node(output="y")
    def speak(x: int, ctx: Context) -> int:
        ctx.emit("")
        return x

    with Host("memory:") as host:
        result = host.run(Flow("f", [speak]), {"x": 1})
        assert result.error is not None
        assert result.error.code == BadRequest.code


def test_a_node_that_beats_outlives_its_time_limit_and_one_that_does_not_is_stopped() -> None:
    beats = 6

    @node(output="y", timeout=0.6)
    async def patient(x: int, ctx: Context) -> int:
        for _ in range(beats):
            await asyncio.sleep(0.12)
            ctx.heartbeat(step=x)
        return x

    @node(output="y", timeout=0.6)
    async def silent(x: int) -> int:
        await asyncio.sleep(beats * 0.12)
        return x

    events: list[Event] = []
    with Host("memory:", on_event=events.append) as host:
        assert host.run(Flow("f", [patient]), {"x": 1})["y"] == 1
        assert len(said(events)) == beats
        refused = host.run(Flow("g", [silent]), {"x": 1})
        assert refused.error is not None
        assert refused.error.type == "NodeTimeout"


def test_a_sync_node_in_a_thread_beats_too() -> None:
    pause = threading.Event()

    @node(output="y", timeout=0.6)
    def patient(x: int, ctx: Context) -> int:
        for _ in range(6):
            pause.wait(0.12)
            ctx.heartbeat()
        return x

    with Host("memory:") as host:
        assert host.run(Flow("f", [patient]), {"x": 1})["y"] == 1


def test_a_host_bundles_the_services_it_has() -> None:
    with Host("memory:") as host:
        bundle = host.durability
        assert bundle.max_durability_mode is Mode.STRONG
        assert bundle.checkpoint_store is not None
        assert bundle.checkpoint_blob_store is not None
        assert bundle.resume_signal_source is not None
        assert bundle.resume_scheduler() is not None
        assert bundle.resume_scheduler("nightly") is None
    with Host("none:") as host:
        bundle = host.durability
        assert bundle.max_durability_mode is Mode.OFF
        assert bundle.checkpoint_store is None
        assert bundle.checkpoint_blob_store is None
        assert bundle.resume_signal_source is None
        assert bundle.resume_scheduler() is None


def test_what_is_emitted_may_have_a_name_of_its_own() -> None:
    events: list[Event] = []

    @node
    def work(ctx: Context) -> None:
        ctx.emit("tool", name="search", data=[1], done=1)
        ctx.heartbeat(name="alive")

    with Host("memory:", on_event=events.append) as host:
        host.run(Flow("f", [work]))
    first, second = [event.data for event in events if event.kind == "emitted"]
    assert (first["name"], first["data"]) == ("tool", {"name": "search", "data": [1], "done": 1})
    assert first["done"] == 1
    assert (second["name"], second["data"]) == ("heartbeat", {"name": "alive"})
