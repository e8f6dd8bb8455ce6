"""Signals that a flow takes into its values before the next step starts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from everstep import END, AsyncContext, Context, Flow, Host, Node, Retry, Status, node, parallel, route, wait
from everstep.errors import BadRequest
from everstep.inbox import add, append, replace


@node(output="messages")
def answer(messages: list[str]) -> list[str]:
    return [*messages, f"answer {len(messages)}"]


@route(["answer", END])
def more(messages: list[str]) -> Any:
    return END if len(messages) >= 6 else "answer"


@dataclass
class Note:
    text: str


agent = Flow("agent", [answer, more], entry="answer", inbox={"messages": append}, durability="strong")


def test_what_was_sent_is_there_when_the_next_step_starts(host: Host) -> None:
    host.start(agent, {"messages": ["hello"]}, run_id="r")
    host.send("r", "messages", "and")
    host.send("r", "messages", "more")
    host.send("r", "other", "unread")
    host.work([agent], until_idle=True)
    assert host.info("r").status is Status.COMPLETED
    assert host.state("r")["messages"] == ["hello", "and", "more", "answer 3", "answer 4", "answer 5"]
    assert [signal.name for signal in host.inbox("r")] == ["other"]
    taken = [step for record in host.history("r") for step in record.steps if step.path == "@inbox"]
    assert len(taken) == 1 and [w.name for w in taken[0].writes] == ["messages"]
    assert host.storage.verify("r")[0].is_sound


@pytest.mark.stores("sqlite")
def test_what_comes_while_a_node_runs_is_taken_before_the_next_one(host: Host, url: str) -> None:
    @node(output="seen")
    def first(notes: list[int]) -> list[int]:
        with Host(url) as other:
            other.send("r", "notes", 2)
            other.send("r", "count", 5)
            other.send("r", "mode", "fast")
        return notes

    @node(output="result")
    def second(seen: list[int], notes: list[int], count: int, mode: str) -> Any:
        return [seen, notes, count, mode]

    flow = Flow("f", [first, second], inbox={"notes": append, "count": add, "mode": replace})
    done = host.run(flow, {"notes": [1], "count": 1, "mode": "slow"}, run_id="r")
    assert done["result"] == [[1], [1, 2], 6, "fast"]
    assert host.inbox("r") == []


def test_a_signal_that_does_not_fit_stays_in_the_inbox_and_stops_nothing(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    @node(output="b")
    def double(a: int) -> int:
        return 2 * a

    flow = Flow("f", [double], inbox={"a": add})
    host.start(flow, {"a": 1}, run_id="r")
    for said in (5, "many", True, 1.5, 2):
        host.send("r", "a", said)
    assert host.resume("r", flow)["b"] == 16
    assert [signal.value for signal in host.inbox("r")] == ["many", True, 1.5]
    assert caplog.text.count("stays in the inbox") == 3
    assert "it does not fit 'a'" in caplog.text and "many" not in caplog.text, "no values in logs"
    assert host.storage.verify("r")[0].is_sound


@pytest.mark.stores("memory")
def test_what_is_sent_is_what_the_value_is_declared_to_be(host: Host) -> None:
    @node(output="b")
    def both(notes: list[Note], mode: str, total: float) -> Any:
        return [notes, mode, total]

    flow = Flow("f", [both], inbox={"notes": append, "mode": replace, "total": add})
    host.start(flow, {"notes": [], "mode": "slow", "total": 1.0}, run_id="r")
    for name, value in (
        ("notes", {"text": "a"}),
        ("notes", {"text": 1}),
        ("notes", "b"),
        ("mode", "fast"),
        ("mode", 7),
        ("total", 1e308),
        ("total", 1e308),
        ("total", -1),
    ):
        host.send("r", name, value)
    assert host.resume("r", flow)["b"] == [[Note("a")], "fast", 1e308]
    assert [signal.value for signal in host.inbox("r")] == [{"text": 1}, "b", 7, 1e308]


@pytest.mark.stores("memory")
def test_nothing_fits_a_value_of_another_kind(host: Host) -> None:
    @node(output="b")
    def read(notes: Any) -> Any:
        return notes

    flow = Flow("f", [read], inbox={"notes": append})
    host.start(flow, {"notes": "text"}, run_id="r")
    host.send("r", "notes", 1)
    assert host.resume("r", flow)["b"] == "text"
    assert [signal.value for signal in host.inbox("r")] == [1]


@pytest.mark.stores("memory")
def test_a_turn_that_says_what_does_not_fit_is_refused_before_anything_is_kept(host: Host) -> None:
    @node(output="b")
    def double(a: int) -> int:
        return 2 * a

    flow = Flow("f", [double], inbox={"a": add})
    with pytest.raises(BadRequest, match="'many' is no number"):
        host.send("r", "a", "many", drive=flow, inputs={"a": 1})
    assert host.runs() == []


def test_a_name_has_one_kind_of_consumer_and_is_a_value_of_the_flow() -> None:
    with pytest.raises(BadRequest, match="takes signals 'x' in, and 'w' waits for them"):
        Flow("f", [wait.signal("w", signal="x"), read], inbox={"x": append})
    with pytest.raises(BadRequest, match="takes signals into 'y', which no node reads or writes"):
        Flow("f", [read], inbox={"y": append})
    with pytest.raises(BadRequest, match="inbox is 'sum'"):
        Flow("f", [read], inbox={"x": "sum"})


@node(output="z")
def read(x: list[int]) -> int:
    return len(x)


def test_the_flow_ir_has_it() -> None:
    flow = Flow("f", [read], inbox={"x": append})
    ir = flow.to_ir()
    assert ir["policies"]["inbox"] == [{"value": "x", "how": "append"}]
    again = Flow.from_ir(ir, {one["identifier"]: read for one in ir["nodes"]})
    assert again.inbox == flow.inbox


# -- taken inside nodes -----------------------------------------------------------------------------------


def took(name: str, *, is_async: bool) -> Node:
    """Return a node that gives what it takes of the signals `m`."""

    async def take_soon(x: int, ctx: AsyncContext) -> list[int]:
        found: list[int] = await ctx.inbox("m")
        return found

    def take(x: int, ctx: Context) -> list[int]:
        found: list[int] = ctx.inbox("m")
        return found

    return Node(take_soon if is_async else take, name=name, output=name)


@pytest.mark.parametrize("kinds", [(False, False), (True, True), (True, False)], ids=str)
def test_of_two_nodes_that_take_at_the_same_time_one_has_a_signal(
    host: Host, kinds: tuple[bool, bool]
) -> None:
    nodes = [took(name, is_async=is_async) for name, is_async in zip("ab", kinds, strict=True)]
    flow = Flow("f", [parallel(*nodes)], durability="strong")
    for number in range(5):
        run = f"r{number}"
        host.start(flow, {"x": 1}, run_id=run)
        for value in range(3):
            host.send(run, "m", value)
        done = host.resume(run, flow)
        assert sorted([*done["a"], *done["b"]]) == [0, 1, 2]
        assert host.inbox(run) == []


def test_calls_of_one_node_that_take_at_the_same_time_share_what_came(host: Host) -> None:
    @node(output="took")
    async def take(x: int, ctx: AsyncContext) -> list[list[int]]:
        return list(await asyncio.gather(*(ctx.inbox("m") for _ in range(3))))

    flow = Flow("f", [take], durability="strong")
    host.start(flow, {"x": 1}, run_id="r")
    host.send("r", "m", 7)
    assert sorted(host.resume("r", flow)["took"]) == [[], [], [7]]


@pytest.mark.parametrize("is_async", [False, True])
def test_many_large_signals_are_kept_as_an_artifact_before_a_record_names_them(
    host: Host, is_async: bool
) -> None:
    lives: list[int] = []

    def measured(came: list[str]) -> list[int]:
        lives.append(len(came))
        if len(lives) == 1:
            raise KeyboardInterrupt
        return [len(text) for text in came]

    async def take_soon(x: int, ctx: AsyncContext) -> list[int]:
        return measured(await ctx.inbox("m"))

    def take(x: int, ctx: Context) -> list[int]:
        return measured(ctx.inbox("m"))

    taking = Node(take_soon if is_async else take, name="take", output="sizes")
    flow = Flow("f", [taking], durability="strong")
    host.start(flow, {"x": 1}, run_id="r")
    for _ in range(3):
        host.send("r", "m", "long" * 50_000)
    with pytest.raises(KeyboardInterrupt):
        host.resume("r", flow)
    assert host.resume("r", flow)["sizes"] == [200_000] * 3
    assert lives == [3, 3] and host.inbox("r") == []
    assert host.storage.verify("r")[0].is_sound


# -- effects that may be made again -----------------------------------------------------------------------


def test_an_effect_that_was_begun_is_made_again_with_what_it_had(host: Host) -> None:
    """What came in between was taken first, so that it was repeated with the same key and other inputs."""
    made: list[list[int]] = []

    @node(output="sent", effects="effectful", idempotency_key="auto")
    def send(notes: list[int]) -> int:
        made.append(list(notes))
        if len(made) == 1:
            raise KeyboardInterrupt
        return len(notes)

    @node(output="end")
    def close(sent: int, notes: list[int]) -> list[Any]:
        return [sent, notes]

    flow = Flow("f", [send, close], inbox={"notes": append}, durability="strong")
    host.start(flow, {"notes": [1]}, run_id="r")
    host.send("r", "notes", 2)
    with pytest.raises(KeyboardInterrupt):
        host.resume("r", flow)
    host.send("r", "notes", 3)
    assert host.resume("r", flow)["end"] == [2, [1, 2, 3]]
    assert made == [[1, 2], [1, 2]]


@pytest.mark.stores("sqlite")
def test_another_attempt_at_an_effect_has_what_the_first_had(host: Host, url: str) -> None:
    made: list[list[int]] = []

    @node(output="sent", effects="effectful", idempotency_key="auto", retry=Retry(1, first=0))
    def send(notes: list[int], ctx: Context) -> int:
        made.append(list(notes))
        if ctx.attempt == 1:
            with Host(url) as other:
                other.send("r", "notes", 2)
            raise ConnectionError("try again")
        return len(notes)

    @node(output="end")
    def close(sent: int, notes: list[int]) -> list[Any]:
        return [sent, notes]

    flow = Flow("f", [send, close], inbox={"notes": append}, durability="strong")
    assert host.run(flow, {"notes": [1]}, run_id="r")["end"] == [1, [1, 2]]
    assert made == [[1], [1]]
