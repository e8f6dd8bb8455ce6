"""Generators whose chunks are kept as they come: what is kept, and where they go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from everstep import Chunk, Context, Flow, Host, Node, Retry, migrate, node, parallel
from everstep.errors import NodeFailed, OutputError, ValueNotStorable
from everstep.model.durability import DurabilityMode
from everstep.model.records import StreamAt
from everstep.results import Event
from everstep.testing import ManualClock

pytestmark = pytest.mark.servers

AT_ONCE = Retry(2, first=0, jitter=0)
WORDS = ["one", "two", "three", "four", "five"]


class Trouble:
    """Fails at one place, once."""

    def __init__(self, at: str | None) -> None:
        self.at = at
        self.yielded: list[str] = []
        self.cursors: list[str | None] = []

    def pass_by(self, word: str) -> None:
        if word == self.at:
            self.at = None
            raise ConnectionError(word)
        self.yielded.append(word)


def plain(trouble: Trouble, **options: object) -> Node:
    @node(output="words", replayable=True, **options)  # type: ignore[call-overload, untyped-decorator]
    def read(times: int) -> Iterator[str]:
        for word in WORDS * times:
            trouble.pass_by(word)
            yield word

    return read  # type: ignore[no-any-return]


def with_cursor(trouble: Trouble, **options: object) -> Node:
    @node(output="words", replayable=True, **options)  # type: ignore[call-overload, untyped-decorator]
    def read(times: int, ctx: Context) -> Iterator[Chunk[str]]:
        trouble.cursors.append(ctx.cursor)
        begin = int(ctx.cursor or 0)
        for n, word in enumerate((WORDS * times)[begin:], begin + 1):
            trouble.pass_by(word)
            yield Chunk(word, str(n))

    return read  # type: ignore[no-any-return]


def with_cursor_async(trouble: Trouble, **options: object) -> Node:
    @node(output="words", replayable=True, **options)  # type: ignore[call-overload, untyped-decorator]
    async def read(times: int, ctx: Context) -> AsyncIterator[Chunk[str]]:
        trouble.cursors.append(ctx.cursor)
        begin = int(ctx.cursor or 0)
        for n, word in enumerate((WORDS * times)[begin:], begin + 1):
            trouble.pass_by(word)
            yield Chunk(word, str(n))

    return read  # type: ignore[no-any-return]


@node(output="count")
def count(words: list[str]) -> int:
    return len(words)


@pytest.mark.parametrize("mode", ["strong", "partial"])
@pytest.mark.parametrize("make", [with_cursor, with_cursor_async])
def test_a_retry_goes_on_at_the_newest_cursor(
    host: Host, make: Callable[..., Node], mode: DurabilityMode
) -> None:
    trouble = Trouble("four")
    flow = Flow("f", [make(trouble, retry=AT_ONCE), count], durability=mode)
    result = host.run(flow, {"times": 1}, run_id="A1")
    assert result["words"] == WORDS and result["count"] == 5
    assert trouble.cursors == [None, "3"]
    assert trouble.yielded == WORDS


def test_a_stream_without_cursors_is_replayed_and_what_is_kept_is_not_taken_twice(host: Host) -> None:
    trouble = Trouble("four")
    flow = Flow("f", [plain(trouble, retry=AT_ONCE)], durability="strong")
    assert host.run(flow, {"times": 1}, run_id="A1")["words"] == WORDS
    assert trouble.yielded == [*WORDS[:3], *WORDS]


def test_chunks_that_are_kept_are_told_of_once() -> None:
    heard: list[Event] = []
    flow = Flow("f", [plain(Trouble("four"), retry=AT_ONCE)], durability="strong")
    with Host("memory:", on_event=heard.append) as host:
        host.run(flow, {"times": 1}, run_id="A1")
    assert [event.data["chunk"] for event in heard if event.kind == "chunk"] == WORDS
    assert [event.data["chunks"] for event in heard if event.kind == "streamed"] == [3]


def test_every_so_many_chunks_are_a_checkpoint_of_their_own(host: Host) -> None:
    flow = Flow("f", [with_cursor_async(Trouble(None), keep_every=2)], durability="strong")
    result = host.run(flow, {"times": 2}, run_id="A1")
    assert result["words"] == WORDS * 2
    kept = [s.stream for c in host.history("A1") for s in c.steps if s.stream is not None]
    assert [at.chunks for at in kept] == [2, 4, 6, 8, 10]
    assert [at.cursor for at in kept] == ["2", "4", "6", "8", "10"]
    assert all(name[0] != "@" for name in host.state("A1")), "nothing is left of it once it has ended"


def test_by_default_a_quick_stream_is_one_step(host: Host) -> None:
    flow = Flow("f", [with_cursor(Trouble(None))], durability="strong")
    host.run(flow, {"times": 2}, run_id="A1")
    assert [s.path for c in host.history("A1") for s in c.steps] == ["@inputs", "read"]


def test_many_and_large_chunks_are_kept_by_count_and_by_size(host: Host) -> None:
    @node(output="many", replayable=True)
    async def many(n: int) -> AsyncIterator[int]:
        for k in range(n):
            yield k

    @node(output="large", replayable=True)
    async def large(n: int) -> AsyncIterator[bytes]:
        for k in range(3):
            yield bytes([k]) * 600_000

    result = host.run(Flow("f", [many, large], durability="strong"), {"n": 2500}, run_id="A1")
    assert result["many"] == list(range(2500)) and len(result["large"]) == 3
    kept = [(s.path, s.stream.chunks) for c in host.history("A1") for s in c.steps if s.stream is not None]
    assert sorted(kept) == [("large", 2), ("many", 1000), ("many", 2000)]


def test_a_slow_stream_is_kept_once_a_second() -> None:
    clock = ManualClock()

    @node(output="ticks", replayable=True)
    async def tick(n: int) -> AsyncIterator[int]:
        for k in range(n):
            clock.advance(timedelta(seconds=0.4))
            yield k

    with Host("memory:", clock=clock) as host:
        host.run(Flow("f", [tick], durability="strong"), {"n": 7}, run_id="A1")
        kept = [s.stream.chunks for c in host.history("A1") for s in c.steps if s.stream is not None]
    assert kept == [3, 6]


def test_a_stream_that_failed_for_good_goes_on_where_it_failed_when_the_run_is_resumed(url: str) -> None:
    trouble = Trouble("four")
    flow = Flow("f", [with_cursor(trouble)], durability="strong")
    with Host(url) as host:
        with pytest.raises(NodeFailed):
            host.run(flow, {"times": 1}, run_id="A1").raise_for_status()
        state = host.state("A1")
        assert ("read", "words", "3") in entries(host)
        assert state["@stream/" + streams(host)[-1].stream_id + "/chunks"] == WORDS[:3]
        assert host.resume("A1", flow)["words"] == WORDS
    assert trouble.yielded == WORDS and trouble.cursors == [None, "3"]


def test_an_interrupted_stream_goes_on_in_the_next_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    cursors: list[str | None] = []

    @node(output="words", replayable=True, keep_every=2)
    def read(times: int, ctx: Context) -> Iterator[Chunk[str]]:
        cursors.append(ctx.cursor)
        for n in range(int(ctx.cursor or 0), 5):
            if n == 4 and ctx.cursor is None:
                deadline = time.monotonic() + 60
                while len(streams(other)) < 2 and time.monotonic() < deadline:
                    pass
                raise KeyboardInterrupt
            yield Chunk(WORDS[n], str(n + 1))

    flow = Flow("f", [read], durability="strong")
    with Host(url) as other:
        with Host(url) as host, pytest.raises(KeyboardInterrupt):
            host.run(flow, {"times": 1}, run_id="A1")
        with Host(url) as host:
            assert host.resume("A1", flow)["words"] == WORDS
    assert cursors == [None, "4"]


def test_an_edited_input_begins_the_stream_anew(host: Host) -> None:
    trouble = Trouble("four")
    flow = Flow("f", [with_cursor(trouble)], durability="strong")
    with pytest.raises(NodeFailed):
        host.run(flow, {"times": 1}, run_id="A1").raise_for_status()
    host.fork("A1", inputs={"times": 2}, fork_id="B1")
    assert host.resume("B1", flow)["words"] == WORDS * 2
    host.fork("A1", fork_id="C1")
    assert host.resume("C1", flow)["words"] == WORDS
    assert trouble.cursors == [None, None, "3"]
    assert not any(name.startswith("@stream") for name in host.state("B1"))


def test_a_stream_that_does_not_come_again_fails_by_name(host: Host) -> None:
    attempts: list[int] = []

    @node(output="words", replayable=True, retry=AT_ONCE)
    def read(times: int) -> Iterator[str]:
        attempts.append(1)
        yield from WORDS[: 3 if len(attempts) == 1 else 2]
        if len(attempts) == 1:
            raise ConnectionError

    with pytest.raises(NodeFailed, match="'read' was to go on behind 3 chunks that are kept") as raised:
        host.run(Flow("f", [read]), {"times": 1}, run_id="A1").raise_for_status()
    assert isinstance(raised.value.__cause__, OutputError)


def test_a_chunk_that_cannot_be_stored_fails_its_node_and_what_came_before_is_kept(host: Host) -> None:
    @node(output="words", replayable=True, keep_every=1)
    def read(times: int) -> Iterator[object]:
        yield "one"
        yield object()

    with pytest.raises(NodeFailed) as raised:
        host.run(Flow("f", [read]), {"times": 1}, run_id="A1").raise_for_status()
    assert isinstance(raised.value.__cause__, ValueNotStorable)
    assert [at.chunks for at in streams(host)] == [1]


def test_a_cursor_that_is_no_text_is_refused_by_name(host: Host) -> None:
    @node(output="words", replayable=True)
    def read(times: int) -> Iterator[Chunk[str]]:
        yield Chunk("one", 1)  # type: ignore[arg-type]

    with pytest.raises(NodeFailed, match="a chunk was yielded with cursor 1"):
        host.run(Flow("f", [read]), {"times": 1}, run_id="A1").raise_for_status()


def test_the_loser_of_a_race_leaves_no_chunks(host: Host) -> None:
    is_kept = threading.Event()

    @node(output="slow", replayable=True, keep_every=1)
    async def stream(times: int) -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(0)
        is_kept.set()
        await asyncio.Event().wait()

    @node(output="quick")
    def answer(times: int) -> int:
        is_kept.wait(10)
        return 1

    @node(output="done")
    def report(quick: int) -> int:
        return quick

    inner = Flow("inner", [stream]).as_node()
    race = parallel(answer, inner, policy="first_success")
    result = host.run(Flow("f", [race >> report], durability="strong"), {"times": 1}, run_id="A1")
    assert result["done"] == 1
    assert [at.chunks for at in streams(host)] == [1]
    assert not any(name.startswith("@stream") for name in host.state("A1"))


def test_nothing_of_a_stream_is_kept_without_durability_or_without_its_values(host: Host) -> None:
    trouble = Trouble("four")
    off = Flow("f", [with_cursor(trouble, retry=AT_ONCE)], durability="off")
    assert host.run(off, {"times": 1})["words"] == WORDS
    assert trouble.cursors == [None, None]
    trouble = Trouble("four")
    unkept = Flow("f", [with_cursor(trouble, retry=AT_ONCE, persist="no")])
    assert host.run(unkept, {"times": 1}, run_id="A1")["words"] == WORDS
    assert trouble.cursors == [None, None]
    inner = Flow("inner", [with_cursor(Trouble(None))]).as_node(durability="atomic")
    host.run(Flow("g", [inner]), {"times": 1}, run_id="A2")
    assert streams(host, "A2") == []


def test_a_renamed_stream_goes_on_where_it_stopped(host: Host) -> None:
    trouble = Trouble("four")
    before = Flow("f", [with_cursor(trouble)], durability="strong")
    with pytest.raises(NodeFailed):
        host.run(before, {"times": 1}, run_id="A1").raise_for_status()
    renamed = with_cursor(trouble).with_name("fetch").with_inputs(times="rounds")
    rules = [migrate.rename_node("read", "fetch"), migrate.rename_value("times", "rounds")]
    after = Flow("f", [renamed], durability="strong", version="2", migrations=rules)
    host.versions.migrate("A1", after)
    assert host.history("A1")[-1].keyframe, "the next resume reads nothing before it"
    assert host.resume("A1", after)["words"] == WORDS
    assert trouble.cursors == [None, "3"]


def test_what_a_stream_has_given_is_cast_with_its_output(host: Host) -> None:
    trouble = Trouble("four")
    with pytest.raises(NodeFailed):
        host.run(Flow("f", [with_cursor(trouble)], durability="strong"), {"times": 1}).raise_for_status()
    [run] = host.runs()

    @node(output="texts", replayable=True)
    def read(times: int, ctx: Context) -> Iterator[Chunk[list[str]]]:
        trouble.cursors.append(ctx.cursor)
        for n in range(int(ctx.cursor or 0), 5):
            yield Chunk([WORDS[n]], str(n + 1))

    rules = [
        migrate.rename_value("words", "texts"),
        migrate.upcast("texts", lambda words: [[word] for word in words], versions="1"),
    ]
    after = Flow("f", [read], durability="strong", version="2", migrations=rules)
    assert host.resume(run.run_id, after)["texts"] == [[word] for word in WORDS]
    assert trouble.cursors == [None, "3"]


def test_a_stream_whose_chunks_are_cast_to_something_else_begins_anew(host: Host) -> None:
    trouble = Trouble("four")
    with pytest.raises(NodeFailed):
        host.run(Flow("f", [with_cursor(trouble)], durability="strong"), {"times": 1}).raise_for_status()
    [run] = host.runs()
    rules = [migrate.upcast("words", lambda words: dict.fromkeys(words), versions="1")]
    after = Flow("f", [with_cursor(trouble)], durability="strong", version="2", migrations=rules)
    assert host.resume(run.run_id, after)["words"] == WORDS
    assert trouble.cursors == [None, None]
    assert not any(name.startswith("@stream") for name in host.state(run.run_id))


def test_explain_says_how_far_a_stream_has_come(host: Host) -> None:
    flow = Flow("f", [with_cursor(Trouble("four"))], durability="strong")
    with pytest.raises(NodeFailed):
        host.run(flow, {"times": 1}, run_id="A1").raise_for_status()
    [planned] = host.explain("A1", flow).starts
    assert (planned.path, planned.chunks, planned.cursor) == ("read", 3, "3")


def test_the_events_of_the_records_tell_of_what_was_kept(host: Host) -> None:
    host.run(Flow("f", [with_cursor_async(Trouble(None), keep_every=4)]), {"times": 1}, run_id="A1")
    told = [event for event in host.events("A1") if event.kind == "streamed"]
    assert [(e.node, e.data["chunks"], e.data["cursor"]) for e in told] == [("read", 4, "4")]


def streams(host: Host, run: str = "A1") -> list[StreamAt]:
    return [s.stream for c in host.history(run) for s in c.steps if s.stream is not None]


def entries(host: Host) -> list[tuple[str, str, str | None]]:
    return [(e.node_alias, e.output_port, e.cursor) for e in host.state("A1").frontier.completed]
