"""What nodes emit, while they run: here, and in other processes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Context, Flow, Host, KeyRing, node, wait
from everstep.codec.chain import Codecs
from everstep.errors import InputError, NodeFailed
from everstep.ports.live import BEGINNING, MOST, NOT_HERE, KeptLog, LiveBatch, LiveRing, LogPlace, Offset
from everstep.runtime.events import Event
from everstep.runtime.live.entries import MOST_BYTES, LiveEntry, close_batch, entry_bytes, open_batch
from everstep.runtime.live.writer import LiveWriter

pytestmark = pytest.mark.servers
EMITTED = ("chunk", "emitted", "gap")


@node(output="text", replayable=True)
def tokens(n: int) -> Iterator[str]:
    for i in range(n):
        yield f"t{i}"


@node(output="size")
def measure(text: list[str], ctx: Context) -> int:
    ctx.emit("measured", size=len(text))
    return len(text)


streaming = Flow("streaming", [tokens, measure], streams=True)
quiet = Flow("quiet", [tokens, measure])


def told(events: list[Event]) -> list[Any]:
    """Return what was emitted, in order."""
    found: list[Any] = []
    for event in events:
        if event.kind == "chunk":
            found.append(event.data["chunk"])
        elif event.kind == "emitted":
            found.append((event.data["name"], event.data["data"]))
        elif event.kind == "gap":
            found.append(("gap", event.data["lost"]))
    return found


EXPECTED = ["t0", "t1", "t2", ("measured", {"size": 3})]


def test_stream_yields_steps_chunks_and_at_the_end_the_result(host: Host) -> None:
    events = list(host.stream(quiet, {"n": 3}, run_id="A1"))
    assert told(events) == EXPECTED
    kinds = [event.kind for event in events if event.kind not in EMITTED]
    assert kinds[0] == "run_started"
    assert kinds[-2:] == ["run_ended", "result"]
    assert events[-1].data["status"] == "completed"
    assert events[-1].data["result"]["size"] == 3
    again = list(host.stream(quiet, {"n": 3}, run_id="A1"))
    assert [event.kind for event in again] == ["result"], "a finished run tells its result alone"


def test_stream_raises_what_run_would(host: Host) -> None:
    with pytest.raises(InputError):
        list(host.stream(quiet, {"m": 3}))

    @node
    def fail(n: int) -> int:
        raise ValueError("no")

    *_, last = host.stream(Flow("failing", [fail]), {"n": 1})
    with pytest.raises(NodeFailed):
        last.data["result"].raise_for_status()


def test_async_stream_is_read_while_the_run_goes_on(url: str) -> None:
    heard = asyncio.Event()

    @node
    async def waits_to_be_heard(n: int, ctx: Context) -> int:
        ctx.emit("here")
        await asyncio.wait_for(heard.wait(), 30)
        return n

    async def main() -> list[str]:
        async with AsyncHost(url) as host:
            kinds: list[str] = []
            async with aclosing(host.stream(Flow("answering", [waits_to_be_heard]), {"n": 1})) as events:
                async for event in events:
                    kinds.append(event.kind)
                    if event.kind == "emitted":
                        heard.set()
            return kinds

    assert asyncio.run(main())[-1] == "result"


def test_closing_a_stream_early_leaves_a_run_that_can_be_resumed(host: Host) -> None:
    for event in host.stream(streaming, {"n": 3}, run_id="A1"):
        if event.kind == "run_started":
            break
    assert host.resume("A1", streaming).raise_for_status()["size"] == 3


@pytest.mark.stores("memory")
def test_a_reader_that_is_too_slow_misses_events_and_the_run_does_not_wait(host: Host) -> None:
    events = host.stream(quiet, {"n": 20_000}, run_id="A1")
    first = next(events)
    assert first.kind == "run_started"
    for _ in range(3000):  # the run ends although this reader has taken one event
        if host.info("A1").status.is_final:
            break
        time.sleep(0.01)
    assert host.info("A1").status == "completed"
    rest = list(events)
    found = [event for event in rest if event.kind == "gap"]
    chunks = [event for event in rest if event.kind == "chunk"]
    assert found and sum(event.data["lost"] for event in found) > 15_000
    assert len(chunks) < 5000
    assert rest[-1].kind == "result"
    assert rest[-1].data["result"]["size"] == 20_000


def test_a_run_is_followed_from_another_host_with_what_its_nodes_emit(host: Host, url: str) -> None:
    with other(host, url) as elsewhere:
        host.run(streaming, {"n": 3}, run_id="A1")
        events = list(elsewhere.follow("A1"))
    assert told(events) == EXPECTED
    recorded = [event.kind for event in events if event.kind not in EMITTED]
    assert recorded == [event.kind for event in host.events("A1")]
    assert recorded[-1] == events[-1].kind == "run_ended"
    offsets = [Offset(1, n) for n in range(1, 5)]
    assert [event.id.partition("~")[2] for event in events if event.kind in EMITTED] == [
        f"{epoch}.{number}" for epoch, number in offsets
    ]


def test_a_follower_goes_on_behind_any_event_and_sees_each_once(host: Host) -> None:
    host.run(streaming, {"n": 3}, run_id="A1")
    events = list(host.follow("A1"))
    for k, event in enumerate(events):
        rest = list(host.follow("A1", after=event.id))
        assert [one.id for one in rest] == [one.id for one in events[k + 1 :]], event.id


def test_nothing_is_written_unless_a_flow_asks_for_it(host: Host) -> None:
    host.run(quiet, {"n": 3}, run_id="A1")
    assert not host._host._services._made.live
    assert told(list(host.follow("A1"))) == []


def test_half_a_character_is_spelled_out_for_followers_and_fails_no_node(host: Host) -> None:
    @node
    def find(n: int, ctx: Context) -> int:
        ctx.emit("found", file="caf\udce9", sizes={"caf\udce9": [n, "\ud800"]})
        return n

    host.run(Flow("finding", [find], streams=True), {"n": 1}, run_id="A1").raise_for_status()
    [found] = told(list(host.follow("A1")))
    assert found == ("found", {"file": "caf\\udce9", "sizes": {"caf\\udce9": [1, "\\ud800"]}})


def test_what_is_emitted_is_not_in_the_chain(host: Host) -> None:
    host.run(streaming, {"n": 3}, run_id="A1")
    host.run(quiet, {"n": 3}, run_id="A2")
    for with_stream, without in zip(host.history("A1"), host.history("A2"), strict=True):
        assert [step.path for step in with_stream.steps] == [step.path for step in without.steps]
    fork = host.fork("A1")
    assert told(list(host.follow(host.resume(fork.run_id, streaming).run_id))) == []


def test_a_follower_hears_what_a_worker_emits_before_its_step_has_ended(host: Host, url: str) -> None:
    heard = asyncio.Event()

    @node
    async def waits_to_be_heard(n: int, ctx: Context) -> int:
        ctx.emit("here", n=n)
        await asyncio.wait_for(heard.wait(), 30)
        return n

    flow = Flow("answering", [waits_to_be_heard], streams=True, durability="strong")

    async def follow(host: AsyncHost) -> list[str]:
        kinds: list[str] = []
        async for event in host.follow("A1"):
            kinds.append(event.kind)
            if event.kind == "emitted":
                heard.set()
        return kinds

    async def main() -> list[str]:
        async with AsyncHost(url) as host:
            await host.start(flow, {"n": 1}, run_id="A1")
            following = asyncio.create_task(follow(host))
            await host.work([flow], until_idle=True)
            return await asyncio.wait_for(following, 30)

    kinds = asyncio.run(main())
    assert kinds.index("emitted") < kinds.index("step_completed")


def test_what_a_new_owner_emits_has_another_epoch(host: Host) -> None:
    @node(output="asked")
    def asks(n: int, ctx: Context) -> int:
        ctx.emit("asked")
        return n

    @node
    def acts(ok: Any, ctx: Context) -> int:
        ctx.emit("acted")
        return 1

    flow = Flow("asking", [asks, wait.approval("ok", context="asked"), acts], streams=True)
    waiting = host.run(flow, {"n": 1}, run_id="A1").waits[0]
    host.answer(waiting.id, {"approved": True})
    host.resume("A1", flow).raise_for_status()
    events = [event for event in host.follow("A1") if event.kind == "emitted"]
    assert [event.data["name"] for event in events] == ["asked", "acted"]
    epochs = [int(event.id.partition("~")[2].partition(".")[0]) for event in events]
    assert epochs[0] < epochs[1]


def test_a_ring_keeps_the_newest_and_what_is_gone_is_a_gap(host: Host, url: str) -> None:
    host.run(streaming, {"n": 1}, run_id="A1")
    ring = host._host._services.live.ring
    entry = b'["emitted","measure",1,1,"2030-01-01T00:00:00Z",{"name":"x","data":{}}]'
    written = 3 * MOST
    for first in range(1, written, 50):
        ring.append([LiveBatch("A1", 9, k, 1, b"[" + entry + b"]") for k in range(first, first + 50)])
    found = told([event for event in host.follow("A1") if event.id.partition("~")[2].startswith("9.")])
    assert found[0][0] == "gap"
    lost, kept = found[0][1], len(found) - 1
    assert lost + kept == written
    assert MOST <= kept <= MOST + 200


def test_a_ring_wakes_those_who_wait_and_gives_each_batch_once(ring: LiveRing) -> None:
    assert ring.read({"A": BEGINNING}, 0.0) == []
    assert ring.read({"A": BEGINNING}, 0.05) == []
    first = [LiveBatch("A", 1, 3, 3, b"[1,2,3]"), LiveBatch("B", 2, 1, 1, b"[1]")]
    ring.append(first)
    ring.append(first)  # sent again after a reply was lost
    assert ring.read({"A": BEGINNING}, 5.0) == first[:1]
    assert sorted(ring.read({"A": BEGINNING, "B": BEGINNING}, 5.0), key=lambda b: b.run_id) == first
    assert ring.read({"A": Offset(1, 2), "B": Offset(2, 1)}, 5.0) == first[:1], "inside a batch"
    assert ring.read({"A": Offset(1, 3)}, 0.0) == []
    ring.append([LiveBatch("A", 2, 1, 1, b"[4]")])
    assert [batch.offset for batch in ring.read({"A": BEGINNING}, 5.0)] == [(1, 3), (2, 1)]


def test_batches_and_logs_get_other_bytes_only_where_they_say_what_was_read(ring: LiveRing) -> None:
    batches = [LiveBatch("A", 1, k, 1, b"[%d]" % k) for k in range(1, 5)]
    ring.append([*batches, LiveBatch("B", 1, 1, 1, b"[1]")])
    logs = [KeptLog(LogPlace(run, "a\0b", 1, 1, k), b"log %d" % k) for run in "AB" for k in (1, 2)]
    ring.write_logs(logs)
    read, kept = ring.read({"A": BEGINNING}, 0.0), ring.read_logs("A")
    stale = (LiveBatch("A", 1, 4, 1, b"[other]"), b"never"), (LiveBatch("A", 9, 9, 1, b"[1]"), b"never")
    new = [(batch, b"new " + batch.body) for batch in read[:2]]
    others = [(kept[0], b"new log"), (KeptLog(kept[1].place, b"other"), b"never")]
    assert ring.recode([*new, *stale], others) == 3
    assert ring.recode([*new, *stale], others) == 0
    bodies = [b"new [1]", b"new [2]", b"[3]", b"[4]"]
    found = ring.read({"A": BEGINNING}, 0.0)
    assert [(b.offset, b.count, b.body) for b in found] == [((1, k + 1), 1, bodies[k]) for k in range(4)]
    assert [log.body for log in ring.read_logs("A")] == [b"new log", b"log 2"]
    assert [b.body for b in ring.read({"B": BEGINNING}, 0.0)] == [b"[1]"]
    assert [log.body for log in ring.read_logs("B")] == [b"log 1", b"log 2"]
    ring.append([LiveBatch("A", 1, 5, 1, b"[5]")])
    assert [b.body for b in ring.read({"A": Offset(1, 4)}, 5.0)] == [b"[5]"]


def test_a_slow_follower_slows_neither_the_run_nor_another_follower(host: Host) -> None:
    count = 4000
    host.start(streaming, {"n": count}, run_id="A1")
    slow, fast = host.follow("A1"), host.follow("A1")
    while next(slow).kind not in EMITTED:
        if not host.info("A1").status.is_final:
            host.work([streaming], until_idle=True)
    assert host.info("A1").status == "completed", "the run has ended while one event was taken"
    chunks = [event.data["chunk"] for event in fast if event.kind == "chunk"]
    assert chunks == [f"t{k}" for k in range(count)], "the other has missed nothing"
    rest = [event for event in slow if event.kind in EMITTED]
    lost = sum(event.data["lost"] for event in rest if event.kind == "gap")
    seen = sum(event.kind != "gap" for event in rest)
    assert 1 + seen + lost == count + 1, "each chunk came once, or was said to be lost"


def test_erasing_a_run_removes_what_it_emitted(host: Host) -> None:
    host.run(streaming, {"n": 3}, run_id="A1")
    ring = host._host._services.live.ring
    assert ring.read({"A1": BEGINNING}, 0.0)
    host.retention.erase("A1")
    assert ring.read({"A1": BEGINNING}, 0.0) == []


@pytest.fixture
def ring(host: Host) -> LiveRing:
    return host._host._services.live.ring


def other(host: Host, url: str) -> AbstractContextManager[Host]:
    """Return a second host on the same store; of memory, which no other process shares, the same."""
    return nullcontext(host) if url.startswith("memory") else Host(url)


class CountingRing:
    """Keeps nothing, and counts what it is given."""

    def __init__(self) -> None:
        self.appends: list[list[LiveBatch]] = []

    def append(self, batches: list[LiveBatch]) -> None:
        self.appends.append(list(batches))


@pytest.mark.stores("memory")
def test_many_streams_share_at_most_forty_writes_a_second(host: Host) -> None:
    ring, services = CountingRing(), host._host._services
    writer = LiveWriter(services.system, services.codecs, lambda: ring)  # type: ignore[arg-type,return-value]
    began = time.monotonic()
    for number in range(1, 51):
        for run in range(100):
            writer.add(f"run-{run}", 1, number, b"1")
        time.sleep(0.005)
    writer.close()
    took = time.monotonic() - began
    assert len(ring.appends) <= 40 * took + 2
    entries = sum(batch.count for batches in ring.appends for batch in batches)
    assert entries == 5000, "each once"
    for run in range(100):
        mine = [b for batches in ring.appends for b in batches if b.run_id == f"run-{run}"]
        assert [b.last - b.count for b in mine] == [0, *(b.last for b in mine[:-1])], "in order, none missing"


@pytest.mark.stores("memory")
def test_the_first_entry_after_a_pause_is_written_at_once(host: Host) -> None:
    ring, services = CountingRing(), host._host._services
    writer = LiveWriter(services.system, services.codecs, lambda: ring)  # type: ignore[arg-type,return-value]
    waited = []
    for number in range(1, 4):
        began = time.monotonic()
        writer.add("A1", 1, number, b"1")
        while len(ring.appends) < number:
            time.sleep(0.0005)
        waited.append(time.monotonic() - began)
        time.sleep(0.06)
    writer.close()
    assert min(waited) < 0.02
    assert [len(batches) for batches in ring.appends] == [1, 1, 1]


def test_what_is_emitted_is_encrypted_like_values_and_a_gap_to_those_without_the_key(
    host: Host, url: str
) -> None:
    if url.startswith("memory"):
        pytest.skip("no other host shares it")
    with Host(url, encrypt=KeyRing({"k1": b"k" * 32})) as sealed:
        sealed.run(streaming, {"n": 3}, run_id="A1")
        assert told(list(sealed.follow("A1"))) == EXPECTED
        batches = sealed._host._services.live.ring.read({"A1": BEGINNING}, 0.0)
    assert not any(b"measured" in batch.body for batch in batches)
    [emitted] = {event.kind for event in host.follow("A1") if "~" in event.id and event.kind in EMITTED}
    assert emitted == "gap"


@pytest.mark.stores("memory")
def test_a_store_without_live_data_says_so_and_tells_what_is_recorded(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Host(f"file:{tmp_path}/runs") as host:
        host.run(streaming, {"n": 3}, run_id="A1").raise_for_status()
        events = list(host.follow("A1"))
        assert [event.kind for event in events if event.kind != "gap"] == [e.kind for e in host.events("A1")]
    [gap] = [event for event in events if event.kind == "gap"]
    assert gap.data == {"reason": NOT_HERE}
    assert caplog.text.count("live data not kept") == 1


@pytest.mark.parametrize("more", [{}, {"name": "n", "data": {"a": 1}}])
def test_an_entry_counts_its_data_once(more: dict[str, Any]) -> None:
    """As `ctx.emit` makes it: what it tells is in there twice, by names and whole."""
    inside = {"text": "x" * 60_000, **more}
    data = {**inside, "name": "token", "data": inside}
    entry = LiveEntry("emitted", "node", 1, 1, datetime(2026, 1, 1, tzinfo=UTC), data)
    body = entry_bytes(entry)
    assert len(body) < 61_000
    codecs = Codecs(os.urandom)
    assert open_batch(codecs, close_batch(codecs, "r", 1, 1, [body])) == [entry]


def test_what_is_too_large_for_an_entry_is_left_out_and_its_size_told() -> None:
    data = {"text": "x" * MOST_BYTES, "name": "token", "data": {"text": "x" * MOST_BYTES}}
    codecs = Codecs(os.urandom)
    body = entry_bytes(LiveEntry("emitted", "node", 1, 1, datetime(2026, 1, 1, tzinfo=UTC), data))
    [found] = open_batch(codecs, close_batch(codecs, "r", 1, 1, [body]))
    assert found.data["name"] == "token" and MOST_BYTES < found.data["omitted"] < MOST_BYTES + 200
