"""Signals that a flow takes into its values before the next step starts."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from everstep import (
    END,
    AsyncContext,
    Context,
    Flow,
    Host,
    Node,
    Retry,
    Status,
    chain,
    node,
    parallel,
    route,
    wait,
)
from everstep.errors import BadRequest
from everstep.inbox import add, append, replace
from everstep.model.waits import SignalRow
from everstep.stores.memory.store import MemoryStore
from tests.keyframes import space_keyframes


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
def test_what_stays_in_the_inbox_is_looked_at_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    really_ask = MemoryStore.inbox

    async def ask(store: MemoryStore, run_id: str, **wanted: Any) -> list[SignalRow]:
        found = await really_ask(store, run_id, **wanted)
        given.append(len(found))
        return found

    @node(output="n")
    def count(n: int, notes: list[int]) -> int:
        host.send("r", "notes", n)
        return n + 1

    @route(["count", END])
    def again(n: int) -> Any:
        return "count" if n < 10 else END

    flow = Flow("f", [count, again], entry="count", inbox={"notes": append})
    host.start(flow, {"n": 0, "notes": []}, run_id="r")
    for k in range(20):
        host.send("r", "notes", "no number")
        host.send("r", "aside", k)
    monkeypatch.setattr(MemoryStore, "inbox", ask)
    host.resume("r", flow).raise_for_status()
    assert len(host.state("r")["notes"]) >= 9
    assert sum(given) <= 20 + 10


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


class Asked:
    """A model that is asked in durable calls, and may die in one of them."""

    def __init__(self, *, dies_in: int = 0) -> None:
        self.dies_in = dies_in
        self.made: list[tuple[list[Any], str]] = []

    def model(self, messages: list[Any], idempotency_key: str) -> str:
        self.made.append((list(messages), idempotency_key))
        if len(self.made) == self.dies_in:
            raise KeyboardInterrupt
        return f"reply {len(messages)}"

    async def model_soon(self, messages: list[Any], idempotency_key: str) -> str:
        return self.model(messages, idempotency_key)

    def agent(self, *, is_async: bool, waits: bool = False) -> Node:
        """Return a node that asks twice, and may wait for a person in between."""

        def work(notes: list[Any], ctx: Context) -> str:
            first = ctx.step("model", self.model, notes)
            if waits:
                ctx.wait(wait.approval("ok"))
            return ctx.step("model", self.model, [*notes, first])

        async def work_soon(notes: list[Any], ctx: AsyncContext) -> str:
            first = await ctx.step("model", self.model_soon, notes)
            if waits:
                await ctx.wait(wait.approval("ok"))
            return await ctx.step("model", self.model_soon, [*notes, first])

        return Node(work_soon if is_async else work, name="agent", output="said", halts=waits)


@node(output="end")
def close(said: Any, notes: list[Any]) -> list[Any]:
    return [said, notes]


def changed_of(host: Host) -> list[str]:
    steps = [step for record in host.history("r") for step in record.steps]
    return [label for step in steps if step.unit is not None for label in step.unit.changed]


@pytest.mark.parametrize("durability", ["strong", "partial"])
@pytest.mark.parametrize("dies_in", [1, 2])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_durable_call_is_made_again_with_what_it_had(
    host: Host, is_async: bool, dies_in: int, durability: Any
) -> None:
    """What came in between was taken first, and the call repeated with the same key and other arguments."""
    asked = Asked(dies_in=dies_in)
    flow = Flow("f", [asked.agent(is_async=is_async), close], inbox={"notes": append}, durability=durability)
    host.start(flow, {"notes": [1]}, run_id="r")
    host.send("r", "notes", 2)
    with pytest.raises(KeyboardInterrupt):
        host.resume("r", flow)
    host.send("r", "notes", 3)
    assert host.resume("r", flow)["end"] == ["reply 3", [1, 2, 3]]
    calls = [[1, 2], [1, 2, "reply 2"]]
    assert [messages for messages, _ in asked.made] == [*calls[:dies_in], *calls[dies_in - 1 :]]
    assert len({key for _, key in asked.made}) == 2
    assert changed_of(host) == []
    assert host.storage.verify("r")[0].is_sound


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_that_waits_between_durable_calls_goes_on_with_what_it_had(host: Host, is_async: bool) -> None:
    asked = Asked()
    agent = asked.agent(is_async=is_async, waits=True)
    flow = Flow("f", [agent, close], inbox={"notes": append}, durability="strong")
    [ok] = host.run(flow, {"notes": [1]}, run_id="r").waits
    host.send("r", "notes", 2)
    host.answer(ok.id, {"approved": True})
    assert host.resume("r", flow)["end"] == ["reply 2", [1, 2]]
    assert [messages for messages, _ in asked.made] == [[1], [1, "reply 1"]]
    assert changed_of(host) == []


def test_what_runs_beside_others_makes_its_first_durable_call_with_what_it_was_given(host: Host) -> None:
    """Another step that started took what came, before the node had made its first call."""
    made: list[list[int]] = []

    async def look(notes: list[int]) -> int:
        made.append(list(notes))
        if len(made) == 1:
            raise KeyboardInterrupt
        return len(notes)

    beside_is_over = asyncio.Event()

    @node(output="said")
    async def agent(notes: list[int], ctx: AsyncContext) -> Any:
        if not made:
            await asyncio.to_thread(host.send, "r", "notes", 2)
            await beside_is_over.wait()
        return await ctx.step("look", look, notes)

    @node(output="one")
    async def one() -> int:
        while not host.inbox("r"):
            await asyncio.sleep(0.01)
        return 1

    @node(output="other")
    async def other(one: int) -> int:
        beside_is_over.set()
        return one

    nodes = [parallel(agent, chain(one, other)), close]
    flow = Flow("f", nodes, inbox={"notes": append}, durability="strong")
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"notes": [1]}, run_id="r")
    assert host.resume("r", flow)["end"] == [1, [1, 2]]
    assert made == [[1], [1]]


def test_first_calls_at_once_say_once_that_their_node_has_begun(host: Host) -> None:
    async def look(n: int) -> int:
        return n

    @node(output="said")
    async def agent(notes: list[int], ctx: AsyncContext) -> Any:
        return list(await asyncio.gather(*(ctx.step("look", look, n, key=n) for n in range(20))))

    flow = Flow("f", [agent, close], inbox={"notes": append}, durability="strong")
    assert host.run(flow, {"notes": [1]}, run_id="r")["said"] == [*range(20)]
    steps = [step for record in host.history("r") for step in record.steps]
    assert [step.status.value for step in steps if step.path == "agent"] == ["running", "completed"]


def test_attempts_at_a_node_whose_calls_failed_have_what_the_first_had(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing of its calls is left, and what is known of it comes from a keyframe."""
    made: list[list[int]] = []
    attempts: list[int] = []

    def look(notes: list[int]) -> int:
        made.append(list(notes))
        if len(made) == 1:
            raise ConnectionError("try again")
        return len(notes)

    @node(output="said", retry=Retry(3, first=0, jitter=0))
    def agent(notes: list[int], ctx: Context) -> Any:
        attempts.append(ctx.attempt)
        if len(attempts) == 2:
            raise ConnectionError("before any call")
        if len(attempts) == 3:
            raise KeyboardInterrupt
        return ctx.step("look", look, notes)

    flow = Flow("f", [agent, close], inbox={"notes": append}, durability="strong")
    space_keyframes(monkeypatch, lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"notes": [1]}, run_id="r")
    assert host.history("r")[-1].keyframe
    host.send("r", "notes", 2)
    assert host.resume("r", flow)["end"] == [1, [1, 2]]
    assert (made, attempts) == ([[1], [1]], [1, 2, 3, 3])
    assert host.storage.verify("r")[0].is_sound


def test_threads_of_a_node_that_waits_for_them_look_into_its_inbox(host: Host) -> None:
    @node(output="seen")
    def reads(x: int, ctx: Context) -> list[list[int]]:
        with ThreadPoolExecutor(2) as pool:
            return [*pool.map(ctx.inbox, ["notes", "more"])]

    flow = Flow("reads", [reads])
    host.start(flow, {"x": 1}, run_id="r")
    host.send("r", "notes", 2)
    host.send("r", "more", 3)
    assert host.resume("r", flow)["seen"] == [[2], [3]]
    assert not host.inbox("r")
