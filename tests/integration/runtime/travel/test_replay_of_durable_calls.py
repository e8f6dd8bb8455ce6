"""Run a step again that makes durable calls: each gives what is recorded, and none is made twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep import AsyncContext, Context, Flow, Host, Retry, node, step, wait
from everstep.errors import BadRequest, WaitTimeout
from everstep.graph.author.node import Node
from everstep.results import Replay
from tests.integration.runtime.drive.durable_calls import MODES, World, ask

pytestmark = pytest.mark.stores("memory", "sqlite")
MADE: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


@step
def charge(amount: int) -> int:
    MADE.append(amount)
    return amount


def flow_of(*nodes: Node) -> Flow:
    return Flow("f", [*nodes], durability="strong")


def run_once(host: Host, flow: Flow, **inputs: Any) -> None:
    """Run a flow, and forget what was made for it."""
    host.run(flow, inputs, run_id="r")
    MADE.clear()


def again(host: Host, flow: Flow, name: str = "agent", **options: Any) -> Replay:
    return host.debug.replay("r", name, flow, **options)


@pytest.mark.parametrize("mode", MODES)
def test_calls_give_what_is_recorded_and_none_is_made(host: Host, mode: str) -> None:
    world = World(mode)

    def body(ctx: Context) -> Any:
        now, some, chance = ctx.now(), ctx.uuid(), ctx.random()
        first = yield world.ask("look", "a")
        second = yield world.ask("look", "b", effects="read_only")
        third = yield world.ask("look", "c", key="c")
        return [str(now), some, chance, first, second, third]

    flow = world.flow(body)
    was = host.run(flow, run_id="r")["answer"]
    world.calls.clear()
    for allowed in (False, True):
        done = again(host, flow, allow_effects=allowed)
        [answer] = done.outputs
        assert (done.error, answer.after, done.is_equal) == (None, was, True)
        assert (done.changed, done.unasked, done.made) == ((), (), ())
    assert world.calls == []


@pytest.mark.parametrize("has_context", [False, True])
def test_a_helper_gives_what_is_recorded(host: Host, has_context: bool) -> None:
    @node(output="paid", name="agent")
    def without(x: int) -> int:
        return charge(x)

    @node(output="paid", name="agent")
    def within(x: int, ctx: Context) -> int:
        return charge(x)

    flow = flow_of(within if has_context else without)
    run_once(host, flow, x=7)
    assert again(host, flow).is_equal
    assert MADE == []


@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_failed_raises_as_it_did(host: Host, mode: str) -> None:
    world = World(mode)

    def work(what: str) -> str:
        world.calls.append(what)
        raise ConnectionError(f"no {what}")

    def body(ctx: Context) -> Any:
        try:
            yield ask("look", world.fn(work), "a")
        except ConnectionError as error:
            caught = str(error)
        yield ask("look", world.fn(work), caught)

    flow = world.flow(body)
    assert host.run(flow, run_id="r").status == "failed"
    assert world.calls == ["a", "no a"]
    done = again(host, flow)
    assert done.error is not None
    assert done.error.message == "no no a"
    assert (done.is_equal, world.calls) == (True, ["a", "no a"])


def test_calls_at_once_come_back_in_the_recorded_order(host: Host) -> None:
    ends = {"b": 0, "a": 3}

    async def take(what: str) -> str:
        for _ in range(ends[what] * 20):
            await asyncio.sleep(0)
        return what

    @node(output="order")
    async def agent(ctx: AsyncContext) -> list[str]:
        calls = [ctx.step("take", take, what, key=what) for what in "ab"]
        return [await call for call in asyncio.as_completed(calls)]

    flow = flow_of(agent)
    assert host.run(flow, run_id="r")["order"] == ["b", "a"]
    ends.update(a=0, b=3)
    [order] = again(host, flow).outputs
    assert order.after == ["b", "a"]


def test_a_call_that_is_not_recorded_is_refused_by_name(host: Host) -> None:
    is_edited: list[bool] = []

    @node(output="paid")
    def agent(x: int, ctx: Context) -> int:
        paid = ctx.step("charge", MADE.append, x)
        if is_edited:
            try:
                ctx.step("refund", MADE.append, -x)
            except Exception:  # a node that goes on whatever happens
                MADE.append("went on")
        return paid or x

    flow = flow_of(agent)
    run_once(host, flow, x=7)
    is_edited.append(True)
    with pytest.raises(BadRequest, match=r"'agent' would make a call that is not recorded: step 'refund@1'"):
        again(host, flow)
    assert MADE == []
    done = again(host, flow, allow_effects=True)
    assert (MADE, done.made, done.is_equal) == ([-7], ("$refund@1",), False)
    assert again(host, flow, allow_effects=True).made == ("$refund@1",)  # it was not recorded


@pytest.mark.parametrize("mode", MODES)
def test_one_that_fails_is_tried_again_as_in_a_run(host: Host, mode: str) -> None:
    world = World(mode)
    is_edited: list[bool] = []

    def work(what: str) -> str:
        world.calls.append(what)
        if len(world.calls) < 3:
            raise ConnectionError("not yet")
        return what

    def body(ctx: Context) -> Any:
        if is_edited:
            yield ask("look", world.fn(work), "a", retry=Retry(2, first=0.001))
        return "said"

    flow = world.flow(body)
    host.run(flow, run_id="r")
    is_edited.append(True)
    done = again(host, flow, allow_effects=True)
    assert (done.error, done.made, world.calls) == (None, ("$look@1",), ["a", "a", "a"])


def test_one_that_does_nothing_to_the_world_is_made_and_told(host: Host) -> None:
    is_edited: list[bool] = []

    @node(output="said")
    async def agent(ctx: AsyncContext) -> str:
        if is_edited:
            assert ctx.now() and ctx.uuid()
            await ctx.step("read", MADE.append, 1, effects="read_only")
        return "said"

    flow = flow_of(agent)
    run_once(host, flow)
    is_edited.append(True)
    assert again(host, flow).made == ("$now@1", "$uuid@1", "$read@1")


def test_other_arguments_and_calls_that_are_left_out_are_told(host: Host) -> None:
    factor = [1]

    @node(output="paid")
    def agent(x: int) -> int:
        if factor == [1]:
            charge(x)
        return charge(x) if factor == [1] else charge(x * 2)

    flow = flow_of(agent)
    run_once(host, flow, x=7)
    factor[:] = [2]
    done = again(host, flow)
    assert (done.changed, done.unasked, MADE) == (("$charge@1",), ("$charge@2",), [])
    assert done.is_equal is False


def test_waits_give_the_recorded_answers(host: Host) -> None:
    @node(output="said", halts=True)
    def agent(ctx: Context) -> list[Any]:
        answer = ctx.wait(wait.approval("ok"))
        ctx.sleep("1ms")
        return [answer.approved, answer.comment, ctx.inbox("news"), charge(3)]

    flow = flow_of(agent)
    [asked] = host.run(flow, run_id="r").waits
    host.send("r", "news", "rain")
    host.answer(asked.token, {"approved": True, "comment": "do"})
    while (result := host.resume("r", flow)).status == "halted":
        pass
    assert result["said"] == [True, "do", ["rain"], 3]
    assert MADE == [3]
    done = again(host, flow)
    assert (done.is_equal, done.outputs[0].after, MADE) == (True, [True, "do", ["rain"], 3], [3])


def test_a_wait_that_is_not_recorded_ends_the_replay_by_name(host: Host) -> None:
    asks: list[Any] = []

    @node(output="said", halts=True)
    async def agent(ctx: AsyncContext) -> str:
        try:
            if asks == ["wait"]:
                await ctx.wait(wait.approval("ok"))
            if asks == ["sleep"]:
                await ctx.sleep("3d")
            if asks == ["inbox"]:
                await ctx.inbox("news")
        except Exception:
            MADE.append("went on")
        return "said"

    flow = flow_of(agent)
    run_once(host, flow)
    for what, said in (
        ("wait", r"waits at '\$ok@1', and no answer is recorded"),
        ("sleep", r"waits at '\$sleep@1', and no answer is recorded"),
        ("inbox", "takes signals, which is not recorded: step 'inbox-news@1'"),
    ):
        asks[:] = [what]
        with pytest.raises(BadRequest, match=said):
            again(host, flow, allow_effects=True)
    assert MADE == []


def test_a_wait_whose_time_was_over_raises_as_it_did(host: Host) -> None:
    @node(output="said", halts=True)
    def agent(ctx: Context) -> str:
        try:
            ctx.wait(wait.question("why", timeout="1ms"))
        except WaitTimeout:
            return "no one"
        return "someone"

    flow = flow_of(agent)
    result = host.run(flow, run_id="r")
    while result.status == "halted":
        result = host.resume("r", flow)
    assert result["said"] == "no one"
    assert again(host, flow).is_equal


def test_each_visit_has_its_own_calls(host: Host) -> None:
    @node(output="paid")
    def agent(x: int, ctx: Context) -> int:
        paid = charge(x)
        if x < 3:
            ctx.next_iteration(x + 1)
        return paid

    flow = flow_of(agent)
    run_once(host, flow, x=1)
    for visit in (1, 2, 3):
        done = again(host, flow, f"agent@{visit}")
        assert (done.outputs[0].after, done.is_equal) == (visit, True)
    assert MADE == []


def test_the_attempt_that_ended_has_the_calls_that_it_found(host: Host) -> None:
    fails = [True]

    def look(what: str) -> str:
        MADE.append(what)
        if what == "b" and fails:
            fails.clear()
            raise LookupError("not yet")
        return what

    @node(output="found", retry=Retry(1, first=0))
    def agent(ctx: Context) -> list[str]:
        return [ctx.step("a", look, "a"), ctx.step("b", look, "b")]

    flow = flow_of(agent)
    run_once(host, flow)
    assert again(host, flow).is_equal
    assert MADE == []


def test_an_attempt_that_was_to_be_tried_again_has_the_calls_that_failed_in_it(host: Host) -> None:
    def look(what: str) -> str:
        MADE.append(what)
        if len(MADE) > 2:
            raise KeyboardInterrupt  # the process ends in the second attempt
        if what == "b":
            raise LookupError(what)
        return what

    @node(output="found", retry=Retry(1, first=0))
    def agent(ctx: Context) -> list[str]:
        return [ctx.step("look", look, "a"), ctx.step("look", look, "b")]

    flow = flow_of(agent)
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, run_id="r")
    assert MADE == ["a", "b", "b"]
    done = again(host, flow)
    assert done.error is not None
    assert (done.error.type, done.is_equal, MADE) == ("LookupError", True, ["a", "b", "b"])


def test_items_and_flows_inside_have_their_own_calls(host: Host) -> None:
    @node(output="paid")
    def pay(x: int) -> int:
        return charge(x)

    inner = Flow("inner", [pay])
    flow = Flow("f", [inner.as_node(name="each").map_over("x")], durability="strong")
    run_once(host, flow, x=[1, 2, 3])
    for k in range(3):
        assert again(host, flow, f"each#{k}/pay").outputs[0].after == k + 1
    assert MADE == []


def test_a_call_is_not_replayed_alone_and_its_node_is_named(host: Host) -> None:
    @node(output="paid")
    def agent(x: int) -> int:
        return charge(x)

    flow = flow_of(agent)
    run_once(host, flow, x=1)
    for name in ("agent/$charge", "agent/$charge@1"):
        with pytest.raises(BadRequest, match="Replay its node, agent@1"):
            again(host, flow, name)
    assert MADE == []


def test_calls_of_two_processes_are_replayed_alike(host: Host) -> None:
    dies = [True]

    @node(output="paid")
    def agent(x: int) -> list[int]:
        paid = [charge(x)]
        if dies:
            raise KeyboardInterrupt
        return [*paid, charge(x + 1)]

    flow = flow_of(agent)
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": 1}, run_id="r")
    dies.clear()
    host.resume("r", flow)
    MADE.clear()
    assert again(host, flow).outputs[0].after == [1, 2]
    assert MADE == []
