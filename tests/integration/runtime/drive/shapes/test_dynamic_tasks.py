"""Deciding as you go: iterations, tasks, ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from everstep import END, Context, Flow, Host, Status, node, parallel, route
from everstep.errors import BadRequest, FlowChanged, FlowError, RunCancelled, TaskGone
from everstep.testing import ManualClock
from tests.keyframes import space_keyframes

pytestmark = pytest.mark.servers


def steps(host: Host, run_id: str) -> list[str]:
    return [f"{s.path}@{s.visit}" for c in host.history(run_id) for s in c.steps if s.path[0] != "@"]


def test_a_node_iterates_with_data_and_what_follows_waits_for_the_last(host: Host) -> None:
    @node
    def count(ctx: Context, n: int = 0) -> int:
        if n < 3:
            ctx.next_iteration(n + 1)
        return n

    @node
    def after(count: int) -> int:
        return count * 100

    result = host.run(Flow("f", count >> after, durability="strong"), run_id="r")
    assert result["after.__result__"] == 300
    assert steps(host, "r") == ["count@1", "count@2", "count@3", "count@4", "after@1"]


def test_an_order_goes_through_its_states(host: Host) -> None:
    @node
    def order(ctx: Context) -> str | None:
        channel = ctx.channel
        state = channel.get("state", "NEW")
        if state == "NEW":
            channel.set("state", "VALIDATED")
            ctx.checkpoint({"stage": "validated"})
            ctx.next_iteration()
        elif state == "VALIDATED":
            channel.set("state", "PAID")
            ctx.checkpoint({"stage": "paid"})
            ctx.next_iteration()
        else:
            return "ORDER_COMPLETE"
        return None

    result = host.run(Flow("order", [order], channel={"state": str}), run_id="r")
    assert result["order.__result__"] == "ORDER_COMPLETE"
    stages = [c.metadata for c in host.checkpoints("r") if c.metadata]
    assert [m["stage"] for m in stages] == ["validated", "paid"]
    assert stages[0]["node"] == "order" and stages[0]["visit"] == 1 and stages[0]["elapsed"] >= 0
    # The checkpoint holds what comes next: the task is queued in the same record.
    first = next(c for c in host.history("r") if c.metadata)
    assert [q.node for s in first.steps for q in s.queued] == ["order"]
    assert host.latest("r").sequence == len(host.checkpoints("r"))


def test_tasks_run_with_their_arguments_the_most_urgent_first(host: Host) -> None:
    seen: list[Any] = []

    @node
    def extra(name: str, times: int = 1) -> None:
        seen.append((name, times))

    @node
    def start(ctx: Context) -> None:
        ctx.next_task(extra, name="later")
        ctx.next_task("extra", name="first", times=3, priority=5)
        ctx.next_task(extra, name="last", priority=-1)

    @node
    def after() -> str:
        seen.append("after")
        return "kept"

    flow = Flow("f", start >> after, tasks=[extra], durability="strong")
    result = host.run(flow, run_id="r")
    assert seen == [("first", 3), ("later", 1), ("last", 1), "after"]  # what follows waits for the tasks
    assert result["after.__result__"] == "kept"
    queued = [q for c in host.history("r") for s in c.steps for q in s.queued]
    assert [(q.node, q.number, q.priority, q.strategy) for q in queued] == [
        ("extra", 1, 0, "direct"),
        ("extra", 2, 5, "direct"),
        ("extra", 3, -1, "direct"),
    ]


@pytest.mark.parametrize("how", ["nested", "atomic", "map"])
def test_a_task_may_be_a_whole_flow_or_a_map(host: Host, how: Any) -> None:
    @node(output="y")
    def double(x: int, plus: int = 0) -> int:
        return 2 * x + plus

    if how == "map":
        extra = Flow("extra", [double]).as_node().map_over("x")
    else:
        extra = Flow("extra", [double]).as_node(durability=how)

    @node
    def start(ctx: Context) -> None:
        for k in (1, 2):
            ctx.next_task(extra, x=[k, k] if how == "map" else k, plus=10)

    result = host.run(Flow("f", [start], tasks=[extra], durability="strong"), run_id="r")
    assert result["y"] == ([14, 14] if how == "map" else 14)
    assert [s for s in steps(host, "r") if s.startswith("extra@")][-1] == "extra@2"
    assert not [name for name in host.state("r") if name.startswith("@task")]


def test_a_jump_skips_what_follows(host: Host) -> None:
    seen: list[str] = []

    @node
    def start(ctx: Context, jump: bool) -> None:
        if jump:
            ctx.next_task("end")

    @node
    def middle() -> None:
        seen.append("middle")

    @node
    def end() -> str:
        return "end"

    flow = Flow("f", start >> middle >> end, durability="strong")
    assert host.run(flow, {"jump": True})["end.__result__"] == "end" and seen == []
    assert host.run(flow, {"jump": False})["end.__result__"] == "end" and seen == ["middle"]


def test_goto_says_otherwise(host: Host) -> None:
    seen: list[str] = []

    @node
    def extra() -> None:
        seen.append("extra")

    @node
    def start(ctx: Context) -> None:
        ctx.next_task(extra, goto=True)

    @node
    def after() -> None:
        seen.append("after")

    host.run(Flow("f", start >> after, tasks=[extra], durability="strong"))
    assert seen == ["extra"]


def test_an_unknown_task_is_refused_with_the_fix(host: Host) -> None:
    @node
    def extra() -> None: ...

    @node
    def start(ctx: Context) -> None:
        ctx.next_task(extra)

    @node
    def extras() -> None: ...

    error = host.run(Flow("f", [start], tasks=[extras], durability="strong")).error
    assert error is not None and error.code == "task.unknown"
    assert "tasks=[extra]" in error.message and "Did you mean 'extras'" in error.message


def test_an_unknown_argument_of_a_task_is_refused(host: Host) -> None:
    @node
    def extra(a: int) -> None: ...

    @node
    def start(ctx: Context) -> None:
        ctx.next_task(extra, b=1)

    error = host.run(Flow("f", [start], tasks=[extra], durability="strong")).error
    assert error is not None and error.code == "request.invalid" and "It takes ['a']" in error.message


def test_a_task_whose_node_was_removed_since_is_named(host: Host) -> None:
    @node
    def extra() -> None:
        raise ValueError("not now")

    @node
    def start(ctx: Context) -> None:
        ctx.next_task(extra)

    host.run(Flow("f", [start], tasks=[extra], durability="strong"), run_id="r")
    with pytest.raises(TaskGone, match=r"queued for 'extra'.*tasks=\[extra\]"):
        host.resume("r", Flow("f", [start], tasks=[], channel={"k": int}, durability="strong"))

    @node(name="extra")
    def takes_more(more: int) -> None: ...

    with pytest.raises(FlowChanged, match="'extra' is pending, and has changed: it reads more now"):
        host.resume("r", Flow("f", [start], tasks=[takes_more], durability="strong"))


def test_a_task_is_not_wired_and_a_wired_node_is_no_task() -> None:
    @node
    def a() -> None: ...

    @node
    def b() -> None: ...

    with pytest.raises(FlowError, match="wired_task"):
        Flow("f", a >> b, tasks=[b])


def test_a_queued_task_keeps_its_retry_count(url: str) -> None:
    calls: list[int] = []

    @node(retry=3)
    def extra(ctx: Context, k: int) -> None:
        calls.append(ctx.attempt)
        if len(calls) == 2:
            raise KeyboardInterrupt
        if ctx.attempt < 3:
            raise ValueError("again")

    @node
    def start(ctx: Context) -> None:
        ctx.next_task(extra, k=1)

    flow = Flow("f", [start], tasks=[extra], durability="strong")
    with Host(url, clock=ManualClock(auto=True)) as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, run_id="r")
        assert host.resume("r", flow).status == "completed"
    assert calls == [1, 2, 2, 3]


def test_terminate_ends_the_flow_normally(host: Host) -> None:
    seen: list[str] = []

    @node
    def start(ctx: Context) -> str:
        ctx.checkpoint({"why": "enough"})
        ctx.terminate()
        return "done"

    @node
    def after() -> None:
        seen.append("after")

    result = host.run(Flow("f", start >> after), run_id="r")
    assert result.status == Status.COMPLETED and seen == [] and result["start.__result__"] == "done"
    assert [c.metadata["why"] for c in host.checkpoints("r") if c.metadata] == ["enough"]
    assert host.run(Flow("f", start >> after), run_id="r").status == Status.COMPLETED


def test_what_fails_after_the_flow_was_ended_is_called_off(host: Host) -> None:
    ended = threading.Event()

    @node(retry=5)
    def slow(ctx: Context, k: int = 0) -> None:
        assert ended.wait(10)
        raise ValueError("too late")

    @node
    def quick(ctx: Context) -> str:
        ctx.terminate()
        ended.set()
        return "done"

    @node
    def start(ctx: Context) -> None:
        ctx.next_task(slow, k=1)
        ctx.next_task(quick)

    result = host.run(Flow("f", [start], tasks=[slow, quick], durability="strong"), run_id="r")
    assert result.status == Status.COMPLETED and result["quick.__result__"] == "done"
    found = {s.path: s.status.value for c in host.history("r") for s in c.steps}
    assert found["slow"] in ("cancelled", "retrying") and "slow.__result__" not in result


def test_terminate_inside_a_flow_ends_that_flow(host: Host) -> None:
    @node(output="x")
    def start(ctx: Context) -> int:
        ctx.terminate()
        return 1

    @node(output="y")
    def never(x: int) -> int:
        return x

    @node(output="z")
    def outside(x: int) -> int:
        return x + 1

    inner = Flow("inner", [start, never]).as_node().lift("x")
    result = host.run(Flow("f", [inner, outside], durability="strong"))
    assert result["z"] == 2 and "y" not in result


def test_cancel_from_within_cancels_the_run_and_the_node_is_not_done(host: Host) -> None:
    @node
    def start(ctx: Context) -> None:
        ctx.channel.set("k", 1)
        ctx.cancel("enough")

    result = host.run(Flow("f", [start], channel={"k": int}, durability="strong"), run_id="r")
    assert result.status == Status.CANCELLED
    step = host.history("r")[-1].steps[-1]
    assert step.status == "cancelled" and step.error is not None and "enough" in step.error.message
    assert "@channel/k" not in host.state("r")
    assert result.error is not None and "enough" in result.error.message
    again = host.run(Flow("f", [start], channel={"k": int}, durability="strong"), run_id="r")
    with pytest.raises(RunCancelled, match="enough"):
        again.raise_for_status()


def test_what_follows_waits_for_tasks_that_tasks_ask_for(host: Host) -> None:
    seen: list[str] = []

    @node
    def fetch(ctx: Context, page: int) -> None:
        seen.append(f"fetch {page}")
        if page < 3:
            ctx.next_task("fetch", goto=False, page=page + 1)

    @node
    def crawl(ctx: Context) -> None:
        ctx.next_task(fetch, page=1)

    @node
    def summary() -> None:
        seen.append("summary")

    host.run(Flow("f", crawl >> summary, tasks=[fetch], durability="strong"))
    assert seen == ["fetch 1", "fetch 2", "fetch 3", "summary"]


def test_the_most_urgent_task_goes_first_among_nodes_too(host: Host) -> None:
    seen: list[str] = []

    def make(name: str) -> Any:
        return node(name=name)(lambda: seen.append(name))

    low, high = make("low"), make("high")

    @node
    def start(ctx: Context) -> None:
        ctx.next_task(low, priority=1)
        ctx.next_task(high, priority=9)

    host.run(Flow("f", [start], tasks=[low, high], max_concurrency=1, durability="strong"))
    assert seen == ["high", "low"]


def test_auto_checkpoints_come_every_so_many_steps(host: Host) -> None:
    @node
    def count(ctx: Context, n: int = 0) -> int:
        if n < 9:
            ctx.next_iteration(n + 1)
        return n

    host.run(Flow("f", [count], tasks=[], channel={"k": int}, auto_checkpoint=4), run_id="r")
    found = [(c.trigger.value, len(c.steps), c.metadata) for c in host.history("r")]
    assert found == [
        ("admission", 1, None),
        ("auto", 4, {"auto": True}),
        ("auto", 4, {"auto": True}),
        ("completed", 2, None),
    ]


def test_a_run_may_be_started_again_at_a_node(host: Host) -> None:
    seen: list[str] = []

    def make(name: str) -> Any:
        return node(name=name)(lambda: seen.append(name))

    flow = Flow("f", make("a") >> make("b") >> make("c"), durability="strong")
    host.run(flow, run_id="r")
    assert host.resume("r", flow, start="b").status == "completed"
    assert seen == ["a", "b", "c", "b", "c"]
    with pytest.raises(BadRequest, match="no node 'x'"):
        host.resume("r", flow, start="x")


def test_each_item_of_a_map_iterates_on_its_own(host: Host) -> None:
    @node(output="last")
    def count(n: int, ctx: Context) -> int:
        if n == 7:
            raise ValueError("seven")
        if n < 3:
            ctx.next_iteration(n + 1)
        return n

    each = count.with_inputs(n="numbers").map_over("n", on_error="collect", max_concurrency=1)
    flow = Flow("f", [each], durability="strong")
    result = host.run(flow, {"numbers": [2, 7, 9]}, run_id="r")
    assert [item if isinstance(item, int) else item.message for item in result["last"]] == [3, "seven", 9]
    assert steps(host, "r") == ["count@1", "count#0@1", "count#0@2", "count#1@1", "count#2@1", "count@1"]
    fork = host.fork("r", at=3)
    assert host.resume(fork.run_id, flow)["last"] == result["last"]
    assert host.debug.replay("r", "count#0", flow).inputs == {"n": 3}
    assert host.debug.replay("r", "count#0@1", flow).inputs == {"n": 2}


def test_an_endless_iteration_stops_at_the_limit(host: Host) -> None:
    @node
    def spin(ctx: Context) -> None:
        ctx.next_iteration()

    result = host.run(Flow("f", [spin], channel={"k": int}, max_visits=10, durability="strong"))
    assert result.error is not None and result.error.code == "run.limit_exceeded"


def test_nothing_is_kept_of_tasks_that_the_end_of_the_flow_called_off(host: Host) -> None:
    @node
    def begin(ctx: Context) -> None:
        ctx.next_task("never", what=["large"])
        ctx.next_task("stop")

    @node
    def stop(ctx: Context) -> None:
        ctx.next_task("never", what=["late"])
        ctx.terminate()

    @node
    def never(what: list[str], begin: None, missing: int) -> None: ...

    tasks = Flow("f", [begin], tasks=[stop, never])
    for k, flow in enumerate((tasks, Flow("outer", [tasks.as_node(name="inner")], durability="strong"))):
        result = host.run(flow, {"missing": 1}, run_id=f"r{k}")
        assert result.status == "completed"
        assert not [name for name in host.state(f"r{k}") if name.startswith("@task")]


def test_starting_at_a_gate_forgets_what_it_had_chosen(host: Host) -> None:
    calls: list[int] = []

    @route("work", END)
    def choose(x: int) -> str:
        return "work"

    @node(output="y")
    def work(x: int) -> int:
        calls.append(x)
        if len(calls) == 1:
            raise ValueError("once")
        return x

    flow = Flow("f", [choose, work], durability="strong")
    assert host.run(flow, {"x": 1}, run_id="r").status == "failed"
    assert host.resume("r", flow, start="choose")["y"] == 1
    assert len(calls) == 2


@pytest.mark.parametrize("has_keyframes", [False, True])
def test_a_flow_that_was_ended_stands_the_same_after_a_crash(
    url: str, monkeypatch: pytest.MonkeyPatch, has_keyframes: bool
) -> None:
    if has_keyframes:
        space_keyframes(monkeypatch, lambda: 0)
    stops = [True]

    @node
    async def end(ctx: Context) -> None:
        ctx.terminate()

    @node
    async def slow() -> int:
        await asyncio.sleep(0.2)
        if stops:
            raise KeyboardInterrupt
        return 1

    @node
    async def never() -> int:
        return 1

    flow = Flow("f", [end >> never, slow], durability="strong")
    with Host(url) as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, run_id="r")
        stops.clear()
        assert host.state("r").frontier.pending == ()
        assert host.resume("r", flow).status == "completed"
        assert steps(host, "r") == ["end@1"]
        assert set(host.run(flow)) == {"end.__result__", "slow.__result__"}


def test_a_join_cannot_be_asked_for(host: Host) -> None:
    @node
    def a(ctx: Context) -> None:
        ctx.next_task("both")

    @node
    def b() -> None: ...

    error = host.run(Flow("f", parallel(a, b, policy="best_effort", name="both"), durability="strong")).error
    steps_ = [s for c in host.history(host.runs()[0].run_id) for s in c.steps if s.path == "a"]
    assert error is None and steps_[0].error is not None
    assert steps_[0].error.code == "task.unknown" and "where a group meets" in steps_[0].error.message


def test_a_task_that_is_not_kept_cannot_be_read() -> None:
    @node(output="x", persist="no")
    def extra(n: int) -> int:
        return n

    @node
    def use(x: int) -> int:
        return x

    with pytest.raises(FlowError, match="cannot be called again"):
        Flow("f", [use], tasks=[extra])
