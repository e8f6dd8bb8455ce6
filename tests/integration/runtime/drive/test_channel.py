"""The channel of a run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from everstep import Context, Flow, Host, node, parallel
from everstep.errors import BadRequest
from everstep.model.enums import ValueForm
from everstep.testing import ManualClock

pytestmark = pytest.mark.servers


def channel_of(host: Host, run_id: str, at: int | None = None) -> dict[str, Any]:
    prefix = "@channel/"
    state = host.state(run_id, at)
    return {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}


def written(host: Host, run_id: str) -> list[tuple[str, str, str]]:
    return [
        (s.path, w.name.removeprefix("@channel/"), w.form.value)
        for c in host.history(run_id)
        for s in c.steps
        for w in s.writes
        if w.name.startswith("@channel/")
    ]


def test_what_a_node_does_to_the_channel_is_part_of_its_step(host: Host) -> None:
    @node
    def first(ctx: Context) -> None:
        ctx.channel.set("name", "Ada")
        ctx.channel.append("log", "a")
        ctx.channel.atomic_add("count", 2)
        ctx.channel["gone"] = 1

    @node
    def second(ctx: Context) -> list[Any]:
        channel = ctx.channel
        channel.append("log", "b")
        channel.prepend("log", "start")
        channel.atomic_add("count", 0.5)
        del channel["gone"]
        return [channel["name"], channel.get("log"), channel.get("count"), channel.exists("gone")]

    result = host.run(Flow("f", first >> second, durability="strong"), run_id="r")
    assert result["second.__result__"] == ["Ada", ["start", "a", "b"], 2.5, False]
    assert channel_of(host, "r") == {"name": "Ada", "log": ["start", "a", "b"], "count": 2.5}
    assert channel_of(host, "r", 2) == {"name": "Ada", "log": ["a"], "count": 2, "gone": 1}
    assert ("second", "count", ValueForm.ADD) in written(host, "r")
    assert ("second", "log", ValueForm.APPEND) in written(host, "r")
    assert ("second", "gone", ValueForm.DELETED) in written(host, "r")


def test_a_failed_attempt_leaves_no_trace_in_the_channel(url: str) -> None:
    @node(retry=1)
    def flaky(ctx: Context) -> None:
        ctx.channel.atomic_add("tries")
        if ctx.attempt == 1:
            raise ValueError("again")

    with Host(url, clock=ManualClock(auto=True)) as host:
        host.run(Flow("f", [flaky], channel={"tries": int}, durability="strong"), run_id="r")
        assert channel_of(host, "r") == {"tries": 1}


def test_nothing_that_parallel_nodes_add_is_lost(host: Host) -> None:
    def adder(k: int) -> Any:
        async def add(ctx: Context) -> None:
            for _ in range(10):
                ctx.channel.atomic_add("sum", k)
                ctx.channel.append("seen", k)
                await asyncio.sleep(0)

        return node(name=f"add{k}")(add)

    flow = Flow("f", parallel(*[adder(k) for k in range(1, 6)]), durability="strong")
    host.run(flow, run_id="r")
    found = channel_of(host, "r")
    assert found["sum"] == 150 and sorted(found["seen"]) == sorted(k for k in range(1, 6) for _ in range(10))


@pytest.mark.parametrize("is_async", [True, False])
def test_a_lock_is_held_until_the_step_is_recorded(host: Host, is_async: bool) -> None:
    def make(k: int) -> Any:
        async def grow(ctx: Context) -> None:
            async with ctx.channel.lock("n"):
                seen = ctx.channel.get("n", 0)
                await asyncio.sleep(0)
                ctx.channel.set("n", seen + 1)
            await asyncio.sleep(0.001)

        def grow_sync(ctx: Context) -> None:
            with ctx.channel.lock("n"):
                ctx.channel.set("n", ctx.channel.get("n", 0) + 1)

        return node(name=f"grow{k}")(grow if is_async else grow_sync)

    host.run(Flow("f", parallel(*[make(k) for k in range(8)]), durability="strong"), run_id="r")
    assert channel_of(host, "r") == {"n": 8}


def test_two_nodes_that_wait_for_each_other_are_told(host: Host) -> None:
    def make(name: str, one: str, other: str) -> Any:
        async def take(ctx: Context) -> None:
            async with ctx.channel.lock(one):
                await asyncio.sleep(0.01)
                async with ctx.channel.lock(other, timeout=0.05):
                    pass

        return node(name=name)(take)

    result = host.run(Flow("f", parallel(make("a", "x", "y"), make("b", "y", "x")), durability="strong"))
    assert result.status == "failed" and result.error is not None
    assert "was not free for 0.05 s" in result.error.message


def test_a_value_expires(url: str) -> None:
    clock = ManualClock()

    @node
    def put(ctx: Context) -> None:
        ctx.channel.set("code", 42, ttl=timedelta(minutes=5))
        ctx.channel.set("kept", 1)

    @node
    def wait(ctx: Context) -> bool:
        seen = ctx.channel.exists("code")
        clock.advance(timedelta(minutes=5))
        return seen

    @node
    def look(ctx: Context) -> list[Any]:
        return [ctx.channel.get("code"), ctx.channel.keys(), ctx.channel.append("code", "new")]

    with Host(url, clock=clock) as host:
        result = host.run(Flow("f", put >> wait >> look, durability="strong"), run_id="r")
    assert result["wait.__result__"] is True and result["look.__result__"] == [None, ["kept"], 1]


def test_declared_keys_are_checked(host: Host) -> None:
    @node
    def wrong(ctx: Context) -> None:
        ctx.channel.set("count", "three")

    @node
    def unknown(ctx: Context) -> None:
        ctx.channel.set("cuont", 3)

    types = {"count": int}
    error = host.run(Flow("f", [wrong], channel=types, durability="strong")).error
    assert error is not None and "declared int" in error.message
    error = host.run(Flow("g", [unknown], channel=types, durability="strong")).error
    assert error is not None and "Did you mean 'count'?" in error.message
    with pytest.raises(BadRequest, match="declared int"):
        host.run(Flow("h", [unknown], channel=types), channel={"count": "x"})


def test_a_run_may_begin_with_values_in_its_channel(host: Host) -> None:
    @node
    def read(ctx: Context) -> Any:
        return ctx.channel["order"]

    flow = Flow("f", [read], channel={"order": dict}, durability="strong")
    result = host.run(flow, channel={"order": {"id": 7}}, run_id="r")
    assert result["read.__result__"] == {"id": 7}
    assert host.run(flow, run_id="r")["read.__result__"] == {"id": 7}
    assert channel_of(host, "r", 1) == {"order": {"id": 7}}


def test_arguments_come_from_a_result_then_a_key_then_the_default(host: Host) -> None:
    @node
    def size(ctx: Context) -> int:
        ctx.channel.set("size", -1)
        ctx.channel.set("colour", "red")
        return 9

    @node
    def show(size: int, colour: str, shape: str = "round") -> list[Any]:
        return [size, colour, shape]

    result = host.run(Flow("f", size >> show, durability="strong"))
    assert result["show.__result__"] == [9, "red", "round"]


def test_an_argument_that_is_not_given_fails_the_node_by_name(host: Host) -> None:
    @node
    def start() -> int:
        return 1

    @node
    def show(missing: int) -> int:
        return missing

    error = host.run(Flow("f", start >> show, durability="strong")).error
    assert error is not None and error.code == "node.input_never_came" and "'missing'" in error.message


def test_the_result_of_a_node_is_read_through_the_channel(host: Host) -> None:
    @node(output=("a", "b"))
    def pair() -> tuple[int, int]:
        return 1, 2

    @node
    def look(ctx: Context) -> Any:
        with pytest.raises(BadRequest):
            ctx.channel.set("pair.__result__", 0)
        return [ctx.channel.get("pair.__result__"), ctx.channel.get("missing.__result__", "none")]

    assert host.run(Flow("f", pair >> look))["look.__result__"] == [(1, 2), "none"]


def test_changing_the_channel_inside_an_atomic_flow_is_refused_and_reading_is_not(host: Host) -> None:
    @node(output="x")
    def look(ctx: Context) -> Any:
        return ctx.channel.get("k")

    @node(output="x")
    def change(ctx: Context) -> int:
        ctx.channel.set("k", 2)
        return 2

    def flow(inner: Any, how: Any) -> Flow:
        return Flow(
            "f", [Flow("inner", [inner]).as_node(durability=how)], channel={"k": int}, durability="strong"
        )

    assert host.run(flow(look, "atomic"), channel={"k": 1})["x"] == 1
    error = host.run(flow(change, "atomic"), channel={"k": 1}).error
    assert error is not None and "inside an atomic flow" in error.message
    nested = host.run(flow(change, "nested"), channel={"k": 1}, run_id="n")
    assert nested["x"] == 2 and channel_of(host, "n") == {"k": 2}


def test_a_fork_has_a_channel_of_its_own(host: Host) -> None:
    @node
    def first(ctx: Context) -> None:
        ctx.channel.set("k", [1])

    @node
    def second(ctx: Context) -> Any:
        ctx.channel.append("k", 2)
        return ctx.channel["k"]

    flow = Flow("f", first >> second, durability="strong")
    host.run(flow, run_id="r")
    fork = host.fork("r", at=2, channel={"k": [10]})
    assert host.resume(fork.run_id, flow)["second.__result__"] == [10, 2]
    assert channel_of(host, "r") == {"k": [1, 2]}
    plain = host.fork("r", at=2)
    assert host.resume(plain.run_id, flow)["second.__result__"] == [1, 2]


def test_an_append_to_what_is_no_list_by_then_fails_the_node(host: Host) -> None:
    gate = asyncio.Event()

    @node
    async def setter(ctx: Context) -> None:
        ctx.channel.set("k", 5)

    @node
    async def appender(ctx: Context) -> None:
        ctx.channel.append("k", 1)
        await asyncio.sleep(0.01)

    assert not gate.is_set()
    error = host.run(Flow("f", parallel(setter, appender), durability="strong")).error
    assert error is not None and "not a list" in error.message


def test_a_large_value_of_the_channel_is_an_artifact(host: Host) -> None:
    @node
    def put(ctx: Context) -> None:
        ctx.channel.set("model", b"x" * 700_000)

    @node
    def size(ctx: Context) -> int:
        return len(ctx.channel["model"])

    result = host.run(Flow("f", put >> size, durability="strong"), run_id="r")
    assert result["size.__result__"] == 700_000
    found = [
        w.artifact for c in host.history("r") for s in c.steps for w in s.writes if w.name == "@channel/model"
    ]
    assert len(found) == 1 and found[0] is not None
