"""Combinations of shapes that random flows found to be worth a test of their own."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from everstep import END, Context, Durability, Flow, Host, Node, Retry, ifelse, node, parallel
from everstep.graph.compile.blueprint import plan_of
from everstep.registry import Opened
from everstep.runtime.drive import chain_writer
from everstep.runtime.events import Event
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests.keyframes import space_keyframes


@node(output="y")
def double(x: int) -> int:
    return 2 * x


@node(output="low")
def lower(y: int) -> int:
    return y - 1


@node(output="low")
def raise_(y: int) -> int:
    return y + 1


@node(output="shown")
def show(low: int) -> str:
    return str(low)


@ifelse(when_true="raise_", when_false="lower")
def is_small(y: int) -> bool:
    return y < 10


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_a_flow_with_a_branch_that_it_reads_from_is_a_node_without_renaming(
    host: Host, durability: Any
) -> None:
    inner = Flow("inner", [double, is_small, lower, raise_, show])
    result = host.run(Flow("outer", [inner.as_node(durability=durability)]), {"x": 3})
    assert (result["low"], result["shown"]) == (7, "7")


def test_a_loop_inside_needs_no_seed_if_a_node_inside_begins_it(host: Host) -> None:
    @node(output="acc")
    def begin(x: int) -> list[int]:
        return [x]

    @ifelse(when_true="grow", when_false=END)
    def enter(x: int) -> bool:
        return True

    @node(output="acc")
    def grow(acc: list[int]) -> list[int]:
        return [*acc, len(acc)]

    @ifelse(when_true="grow", when_false=END)
    def again(acc: list[int]) -> bool:
        return len(acc) < 4

    inner = Flow("inner", [begin, enter, grow, again])
    assert host.run(Flow("outer", [inner.as_node()]), {"x": 9})["acc"] == [9, 1, 2, 3]


def test_a_map_inside_an_atomic_flow_goes_over_what_cannot_be_stored(host: Host) -> None:
    @node(output="locks")
    def make(x: int) -> list[Any]:
        return [threading.Lock() for _ in range(x)]

    @node(output="held")
    def hold(lock: Any) -> bool:
        return bool(lock.acquire(blocking=False))

    inner = Flow("inner", [make, hold.with_inputs(lock="locks").map_over("lock")])
    outer = Flow("outer", [inner.as_node(durability="atomic").lift("held")])
    assert host.run(outer, {"x": 3})["held"] == [True, True, True]
    each = inner.as_node(durability="atomic").lift("held").with_inputs(x="xs").map_over("x")
    assert host.run(Flow("all", [each]), {"xs": [1, 2]})["held"] == [[True], [True, True]]


def test_a_flow_inside_an_atomic_flow_leaves_nothing_behind(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_writer, "KEYFRAME_BYTES", 0)
    inner = Flow("inner", [double]).as_node()
    atomic = Flow("middle", [inner, show.with_inputs(low="y")]).as_node(durability="atomic").lift("shown")

    @node(output="count")
    def count(ctx: Context, shown: str) -> int:
        if ctx.visit < 40:
            ctx.next_iteration(shown)
        return ctx.visit

    flow = Flow("outer", [atomic, count], durability="strong")
    result = host.run(flow, {"x": 3}, run_id="a")
    assert any(record.keyframe for record in host.history("a"))
    assert dict(result["middle"]) == {"shown": "6"}
    assert dict(host.run(flow, {"x": 3}, run_id="a")["middle"]) == {"shown": "6"}


@pytest.mark.parametrize("is_flow", [False, True])
def test_a_keyframe_keeps_lists_of_large_and_small_items(
    host: Host, monkeypatch: pytest.MonkeyPatch, is_flow: bool
) -> None:
    monkeypatch.setattr(chain_writer, "KEYFRAME_BYTES", 0)

    @node(output="text")
    def write(size: int) -> str:
        return "x" * size

    @node(output="count")
    def count(ctx: Context, text: list[str]) -> int:
        if ctx.visit < 60:
            ctx.next_iteration(text)
        return ctx.visit

    one = Flow("each", [write]).as_node() if is_flow else write
    each = one.with_inputs(size="sizes").map_over("size")
    flow = Flow("all", [each, count], durability=Durability("strong", blob_threshold=1000))
    result = host.run(flow, {"sizes": [2000, 1, 1]}, run_id="a")
    assert any(record.keyframe for record in host.history("a"))
    assert result["text"] == ["x" * 2000, "x", "x"]
    lists = [value for name, value in host.state("a").items() if name.endswith("text")]
    assert lists == [result["text"]] * 2


@pytest.mark.parametrize("is_flow", [False, True])
def test_a_flow_that_fails_while_a_map_inside_has_items_left_ends_and_its_group_goes_on(
    host: Host, is_flow: bool
) -> None:
    failed = threading.Event()
    seen: list[int] = []

    @node(output="never")
    def fail(x: int) -> None:
        failed.set()
        raise ValueError("boom")

    @node(output="items")
    def item(x: int) -> int:
        assert failed.wait(10)
        seen.append(x)
        return x

    mapped = Flow("each", [item]).as_node(name="item") if is_flow else item
    inner = Flow("inner", [fail, mapped.with_inputs(x="xs").map_over("x", max_concurrency=1)])
    group = parallel(inner.as_node(), double, policy="best_effort")
    after = Node(lambda x: x, name="after", output="z")
    result = host.run(Flow("outer", [lower.with_inputs(y="x") >> group >> after]), {"x": 1, "xs": [5] * 50})
    assert (result.status, result["z"]) == ("completed", 1)
    assert len(seen) < 50


def test_a_flow_that_fails_while_another_node_is_to_be_retried_ends_and_its_group_goes_on() -> None:
    failed = threading.Event()

    @node(output="never")
    def fail(x: int) -> None:
        failed.set()
        raise ValueError("boom")

    @node(output="w", retry=Retry(3, first=60))
    def stumble(x: int) -> None:
        assert failed.wait(10)
        raise ConnectionError

    inner = Flow("inner", [fail, stumble])
    group = parallel(inner.as_node(), double, policy="best_effort")
    after = Node(lambda x: x, name="after", output="z")
    flow = Flow("outer", [lower.with_inputs(y="x") >> group >> after])
    with Host("memory:", clock=ManualClock(auto=True)) as host:
        assert host.run(flow, {"x": 1})["z"] == 1


def test_a_node_that_still_runs_when_its_atomic_flow_has_failed_is_not_missed(host: Host) -> None:
    failed = threading.Event()
    is_fixed = False

    @node(output="a")
    def fail(x: int) -> int:
        if not is_fixed:
            failed.set()
            raise ValueError("boom")
        return x

    @node(output="b")
    def linger(x: int) -> int:
        assert failed.wait(10)
        return x

    flow = Flow("outer", [Flow("inner", [fail, linger]).as_node(durability="atomic")])
    assert host.run(flow, {"x": 1}, run_id="a").status == "failed"
    is_fixed = True
    assert host.resume("a", flow)["b"] == 1


@pytest.mark.parametrize("is_flow", [False, True])
def test_what_ends_together_with_the_first_success_is_called_off_or_counts_but_not_both(
    host: Host, is_flow: bool
) -> None:
    one, two = double.with_name("one").with_outputs("a"), double.with_name("two").with_outputs("b")
    members = [Flow("one", [one]).as_node(), Flow("two", [two]).as_node()] if is_flow else [one, two]
    after = Node(lambda x: x, name="after", output="z")
    flow = Flow("race", [lower.with_inputs(y="x") >> parallel(*members, policy="first_success") >> after])
    for k in range(60):
        assert host.run(flow, {"x": 1}, run_id=f"race-{k}")["z"] == 1
        ends = Counter(s.path for r in host.history(f"race-{k}") for s in r.steps if s.ended_at)
        assert set(ends.values()) == {1}


def test_a_stored_structure_reads_back_to_the_same_bytes() -> None:
    inner = Flow("inner", [double, is_small, lower, raise_, show])
    flow = Flow(
        "outer", [inner.as_node(), double.with_name("again").with_outputs("z") >> show.with_outputs("s")]
    )
    assert plan_of(flow.plan.blueprint).blueprint == flow.plan.blueprint


@pytest.mark.parametrize("keyframe_bytes", [0, 1 << 16])
def test_what_ran_beside_the_end_of_a_flow_does_not_start_again_after_a_crash(
    monkeypatch: pytest.MonkeyPatch, keyframe_bytes: int
) -> None:
    space_keyframes(monkeypatch, lambda: keyframe_bytes)
    has_ended, begun, data, clock = threading.Event(), [], MemoryData(), ManualClock(auto=True)

    @node(output="a")
    def end(ctx: Context, x: str) -> str:
        if ctx.visit < 20:
            ctx.next_iteration(x)
        else:
            ctx.terminate()
        return x

    @node(output="b")
    def linger(x: str) -> str:
        begun.append(x)
        assert has_ended.wait(10)
        return x

    def tell(event: Event) -> None:
        if event.kind == "checkpoint" and event.data["sequence"] == 21:
            has_ended.set()

    def host(at: str | None) -> Host:
        store = killing(Opened(MemoryStore(clock, data), None, "memory:"), by=Killer(at, act=crash))
        return Host(store, clock=clock, on_event=tell)

    flow = Flow("f", [end, linger], durability="strong")
    with host("before put 22") as first, pytest.raises(Crashed):
        first.run(flow, {"x": "y"}, run_id="a")
    clock.advance(timedelta(minutes=1))
    with host(None) as second:
        assert second.history("a")[-1].keyframe is (keyframe_bytes == 0)
        assert dict(second.run(flow, {"x": "y"}, run_id="a")) == {"a": "y"}
    assert begun == ["y"]
