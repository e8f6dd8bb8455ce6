"""Values kept aside that cannot be read for a while: that is waited out, and never the failure of a node."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import END, Chunk, Context, Durability, Flow, Host, ifelse, node
from everstep.errors import StoreUnavailable
from everstep.graph.author.node import Node
from everstep.model.records import ArtifactRef
from everstep.ports.store import CheckpointBlobStore
from everstep.registry import Opened, open_store
from everstep.testing import ManualClock

ASIDE = Durability("strong", blob_threshold=1)
LONG = "long " * 10


class FlakyBlobs:
    """A real store of artifacts that cannot be read while it is away, and perhaps not be written to."""

    def __init__(self, blobs: CheckpointBlobStore, clock: ManualClock) -> None:
        self._blobs = blobs
        self._clock = clock
        self._back_at = clock.now()
        self.refused = 0
        self.reads_left = 0
        """How often it can be read although it is away: as if it went only then."""
        self.takes = True
        """False if it refuses to be written to as well."""

    def leave(self, seconds: float) -> None:
        self._back_at = self._clock.now() + timedelta(seconds=seconds)

    def put_checkpoint_blob(self, header: bytes, data: bytes, **about: Any) -> ArtifactRef:
        if not self.takes:
            self._reach()
        return self._blobs.put_checkpoint_blob(header, data, **about)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        if self.reads_left and self._clock.now() < self._back_at:
            self.reads_left -= 1
        else:
            self._reach()
        return self._blobs.get_checkpoint_blob(ref)

    def _reach(self) -> None:
        if self._clock.now() < self._back_at:
            self.refused += 1
            raise StoreUnavailable("the line is cut.")


class Place:
    """A store whose artifacts can be out of reach, and hosts on it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(auto=True)
        opened = open_store(f"sqlite:///{folder}/runs.db", self.clock)
        assert opened.blobs is not None
        self.blobs = FlakyBlobs(opened.blobs, self.clock)
        self._opened = Opened(opened.store, self.blobs, opened.url)
        self.away = 0.0
        """For how many seconds artifacts are out of reach, from when a node first says so."""
        self.ran: list[str] = []

    def host(self) -> Host:
        return Host(self._opened, clock=self.clock)

    def note(self, name: str, ctx: Context | None = None) -> None:
        self.ran.append(name if ctx is None else f"{name} {ctx.visit}.{ctx.attempt} {ctx.idempotency_key}")

    def cut(self) -> None:
        if self.away:
            self.blobs.leave(self.away)
            self.away = 0.0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def readers(place: Place) -> dict[str, Node]:
    """Return nodes that read a value aside while it is out of reach, each in its way."""

    @node(output="b")
    def in_a_thread(x: int, ctx: Context) -> str:
        place.cut()
        place.note("read", ctx)
        return str(ctx.channel["text"])

    @node(output="b")
    async def on_the_loop(x: int, ctx: Context) -> str:
        place.cut()
        place.note("read", ctx)
        return str(ctx.channel["text"])

    @node(output="b", effects="effectful", idempotency_key="auto")
    def with_an_effect(x: int, ctx: Context) -> str:
        place.cut()
        place.note("read", ctx)
        return str(ctx.channel["text"])

    @node(output="b")
    def in_other_words(x: int, ctx: Context) -> str:
        place.cut()
        place.note("read", ctx)
        try:
            return str(ctx.channel["text"])
        except StoreUnavailable as error:
            raise ValueError("no text") from error

    @node(output="b")
    async def in_a_group(x: int, ctx: Context) -> str:
        place.cut()
        place.note("read", ctx)

        async def read() -> str:
            return str(ctx.channel["text"])

        async with asyncio.TaskGroup() as group:
            task = group.create_task(read())
        return task.result()

    return {n.name: n for n in (in_a_thread, on_the_loop, with_an_effect, in_other_words, in_a_group)}


WAYS = ["in_a_thread", "on_the_loop", "with_an_effect", "in_other_words", "in_a_group"]


@pytest.mark.parametrize("way", WAYS)
def test_a_node_that_cannot_read_the_channel_is_called_again_as_the_same_attempt(
    place: Place, way: str
) -> None:
    place.away = 1.0
    flow = Flow("f", [readers(place)[way]], durability=ASIDE)
    with place.host() as host:
        result = host.run(flow, {"x": 1}, run_id="A", channel={"text": LONG})
        assert (result.status, result["b"]) == ("completed", LONG)
        steps = [(s.path, s.attempts, s.error) for c in host.history("A") for s in c.steps]
        assert steps[-1] == (way, 1, None)
    assert place.blobs.refused > 0
    assert len(place.ran) == 2
    assert len(set(place.ran)) == 1, "the same visit, attempt and key"


@pytest.mark.parametrize("way", WAYS)
def test_a_host_that_gives_up_says_so_and_its_run_goes_on_later(place: Place, way: str) -> None:
    place.away = 100.0
    flow = Flow("f", [readers(place)[way]], durability=ASIDE)
    with place.host() as host:
        with pytest.raises(StoreUnavailable, match="the line is cut"):
            host.run(flow, {"x": 1}, run_id="A", channel={"text": LONG})
        assert host.info("A").status == "running"
        place.blobs.leave(0)
        assert host.resume("A", flow)["b"] == LONG


def test_a_worker_waits_as_long_as_it_takes(place: Place) -> None:
    place.away = 1000.0
    flow = Flow("f", [readers(place)["in_a_thread"]], durability=ASIDE)
    with place.host() as host:
        host.start(flow, {"x": 1}, run_id="A", channel={"text": LONG})
        host.work([flow], until_idle=True)
        assert host.info("A").status == "completed"
    assert len(place.ran) == 2


def pair(place: Place, durability: Durability = ASIDE) -> Flow:
    @node(output="a")
    def first(x: int) -> list[str]:
        place.note("first")
        place.cut()
        return [LONG]

    @node(output="b")
    def second(a: list[str]) -> str:
        place.note("second")
        return a[0]

    return Flow("f", [first, second], durability=durability)


def test_what_a_node_is_called_with_is_waited_for(place: Place) -> None:
    place.away = 1.0
    with place.host() as host:
        assert host.run(pair(place), {"x": 1}, run_id="A")["b"] == LONG
    assert place.blobs.refused > 0
    assert place.ran == ["first", "second"]


def test_what_was_done_before_is_kept_when_the_host_gives_up(place: Place) -> None:
    place.away = 100.0
    flow = pair(place, Durability("partial", blob_threshold=1))
    with place.host() as host:
        with pytest.raises(StoreUnavailable):
            host.run(flow, {"x": 1}, run_id="A")
        place.blobs.leave(0)
        assert host.resume("A", flow)["b"] == LONG
    assert place.ran == ["first", "second"]


def test_a_change_of_a_value_that_cannot_be_read_is_waited_for_and_its_node_not_called_again(
    place: Place,
) -> None:
    @node(output="b")
    def adds(x: int, ctx: Context) -> int:
        place.note("adds")
        length = ctx.channel.append("texts", "more")
        place.cut()
        return length

    place.away = 1.0
    flow = Flow("f", [adds], durability=ASIDE)
    with place.host() as host:
        result = host.run(flow, {"x": 1}, run_id="A", channel={"texts": [LONG]})
        assert result["b"] == 2
        assert result.channel["texts"] == [LONG, "more"]
    assert place.blobs.refused > 0
    assert place.ran == ["adds"]


def test_what_a_node_asks_of_a_store_of_its_own_is_its_own_failure(place: Place) -> None:
    @node(output="b")
    def asks(x: int) -> int:
        place.note("asks")
        raise StoreUnavailable("another line is cut.")

    with place.host() as host:
        assert host.run(Flow("f", [asks], durability=ASIDE), {"x": 1}, run_id="A").status == "failed"
    assert place.ran == ["asks"]


def test_a_flow_inside_that_fails_meanwhile_ends_without_what_could_not_be_read(place: Place) -> None:
    @node(output="b")
    async def reads(x: int, ctx: Context) -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return str(ctx.channel["text"])

    @node(output="c")
    async def fails(x: int) -> str:
        place.cut()
        raise ValueError("no")

    @node(output="d")
    def after(items: list[Any]) -> int:
        return len(items)

    place.away = 1.0
    inner = Flow("inner", [reads, fails])
    items = inner.as_node(name="items").lift("b").with_outputs("items").map_over("x", on_error="collect")
    flow = Flow("f", [items, after], durability=ASIDE)
    with place.host() as host:
        result = host.run(flow, {"x": [1]}, run_id="A", channel={"text": LONG})
        assert (result.status, result["d"]) == ("completed", 1)
    assert place.blobs.refused > 0


@pytest.mark.parametrize("on_error", ["stop", "collect", "finish"])
def test_what_an_atomic_item_gave_and_could_not_be_kept_is_no_failure_of_the_item(
    place: Place, on_error: Any
) -> None:
    @node(output="b")
    def gives(x: int) -> str:
        place.cut()
        return LONG

    place.away, place.blobs.takes = 100.0, False
    items = Flow("inner", [gives]).as_node(name="items", durability="atomic").lift("b")
    flow = Flow("f", [items.map_over("x", on_error=on_error)], durability=ASIDE)
    with place.host() as host:
        with pytest.raises(StoreUnavailable, match="the line is cut"):
            host.run(flow, {"x": [1, 2]}, run_id="A")
        assert host.info("A").status == "running"
        place.blobs.leave(0)
        assert host.resume("A", flow)["b"] == [LONG, LONG]


@pytest.mark.parametrize("seconds", [1.0, 1000.0])
def test_what_an_atomic_item_gave_is_held_until_it_can_be_kept(place: Place, seconds: float) -> None:
    """A worker threw it away, and made the effect again."""

    @node(output="b", effects="effectful", idempotency_key="auto")
    def gives(x: int) -> str:
        place.note(str(x))
        place.cut()
        return LONG

    place.away, place.blobs.takes = seconds, False
    items = Flow("inner", [gives]).as_node(name="items", durability="atomic").lift("b")
    flow = Flow("f", [items.map_over("x")], durability=ASIDE)
    with place.host() as host:
        if seconds < 30:
            host.run(flow, {"x": [1, 2]}, run_id="A")
        else:
            host.start(flow, {"x": [1, 2]}, run_id="A")
            host.work([flow], until_idle=True)
        assert host.info("A").status == "completed"
        assert host.state("A")["b"] == [LONG, LONG]
    assert place.blobs.refused > 0
    assert sorted(place.ran) == ["1", "2"]


# -- what maps go over, what the channel adds up, what streams have yielded --------------------------------


def mapped(place: Place) -> Flow:
    @node(output="x")
    def lists(n: int) -> list[str]:
        place.cut()
        return [f"{LONG}{k}" for k in range(n)]

    @node(output="b")
    def item(x: str) -> str:
        place.note(x[-1])
        return x[-1]

    return Flow("f", [lists, item.map_over("x")], durability=ASIDE)


@pytest.mark.parametrize("after", [0, 1])
def test_what_a_map_goes_over_is_waited_for(place: Place, after: int) -> None:
    """It is read when the map is opened, and when its items are."""
    place.away, place.blobs.reads_left = 1.0, after
    with place.host() as host:
        result = host.run(mapped(place), {"n": 3}, run_id="A")
        place.blobs.leave(0)
        assert result["b"] == ["0", "1", "2"]
        opened = [s for c in host.history("A") for s in c.steps if s.path == "item" and s.status == "running"]
    assert place.blobs.refused > 0
    assert sorted(place.ran) == ["0", "1", "2"]
    assert len(opened) == 1


def test_a_host_gives_up_on_what_a_map_goes_over_and_a_resume_waits_for_it(place: Place) -> None:
    @node(output="b")
    def item(x: str) -> str:
        place.note(x[-1])
        if x[-1] == "1" and len(place.ran) == 2:
            raise KeyboardInterrupt
        return x[-1]

    flow = Flow("f", [item.map_over("x", max_concurrency=1)], durability=ASIDE)
    with place.host() as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, {"x": [f"{LONG}{k}" for k in range(3)]}, run_id="A")
        assert place.ran == ["0", "1"]
        place.blobs.leave(100)
        with pytest.raises(StoreUnavailable, match="the line is cut"):
            host.resume("A", flow)
        place.blobs.leave(1)
        assert host.resume("A", flow)["b"] == ["0", "1", "2"]
    assert place.ran == ["0", "1", "1", "2"]


@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["add", "prepend", "append"])
def test_a_change_of_the_channel_is_waited_for_wherever_the_value_before_it_is_read(
    place: Place, kind: str, after: int
) -> None:
    @node(output="b")
    def changes(x: int, ctx: Context) -> int:
        place.note("changes")
        if kind == "add":
            ctx.channel.atomic_add("number", 1)
        else:
            getattr(ctx.channel, kind)("texts", "more")
        place.cut()
        return 1

    place.away, place.blobs.reads_left = 1.0, after
    flow = Flow("f", [changes], durability=ASIDE)
    with place.host() as host:
        result = host.run(flow, {"x": 1}, run_id="A", channel={"texts": [LONG], "number": 10**40})
        place.blobs.leave(0)
        found = {"add": [LONG], "append": [LONG, "more"], "prepend": ["more", LONG]}[kind]
        assert result.channel == {"texts": found, "number": 10**40 + (kind == "add")}
    assert place.ran == ["changes"]


def test_chunks_that_were_moved_aside_are_waited_for_when_a_stream_goes_on(place: Place) -> None:
    @node(output="b", replayable=True, keep_every=1)
    def stream(x: int, ctx: Context) -> Any:
        for k in range(int(ctx.cursor or 0), 40):
            place.note(str(k))
            if k == 35 and place.ran.count("35") == 1:
                raise KeyboardInterrupt
            yield Chunk(f"{k} " + "x" * 1000, str(k + 1))

    @node(output="c")
    def second(x: int) -> int:
        return x

    flow = Flow("f", [stream], durability=ASIDE)
    with place.host() as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, {"x": 1}, run_id="A")
        newer = Flow("f", [stream, second], durability=ASIDE)
        host.versions.migrate("A", newer)  # which writes the chunks whole, and so aside
        place.blobs.leave(1)
        result = host.resume("A", newer)
        place.blobs.leave(0)
        assert len(result["b"]) == 40
    assert place.blobs.refused > 0
    assert place.ran == [str(k) for k in (*range(36), *range(35, 40))]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_keyframe_waits_for_a_value_that_it_writes_whole(place: Place, is_async: bool) -> None:
    def grow(n: int, ctx: Context) -> int:
        if n == 0:
            ctx.channel.append("texts", "more")
        if n == 1:
            place.cut()
        place.note(str(n))
        return n + 1

    async def grow_later(n: int, ctx: Context) -> int:
        return grow(n, ctx)

    @ifelse(when_true=END, when_false="grow")
    def is_enough(n: int) -> bool:
        return n >= 100

    place.away = 1.0
    make = node(name="grow", output="n")
    growing = make(grow_later) if is_async else make(grow)
    flow = Flow("f", [growing, is_enough], entry="grow", durability=Durability("strong", blob_threshold=200))
    with place.host() as host:
        result = host.run(flow, {"n": 0}, run_id="A", channel={"texts": [LONG * 10]})
        place.blobs.leave(0)
        assert result.channel["texts"] == [LONG * 10, "more"]
        assert any(record.keyframe for record in host.history("A"))
    assert place.blobs.refused > 0
    assert place.ran == [str(n) for n in range(100)]
