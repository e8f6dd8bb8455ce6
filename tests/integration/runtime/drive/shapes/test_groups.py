"""Control edges, groups, joins."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from everstep import (
    END,
    Context,
    Flow,
    Host,
    Node,
    Status,
    at_least,
    chain,
    critical,
    ifelse,
    node,
    parallel,
    quorum,
    route,
)
from everstep.errors import FlowError


def recorder(log: list[str]) -> Any:
    def make(name: str, *, fails: bool = False) -> Node:
        def body() -> str:
            log.append(name)
            if fails:
                raise ValueError(f"{name} failed")
            return name

        return node(name=name)(body)

    return make


def statuses(host: Host, run_id: str) -> dict[str, str]:
    return {s.path: s.status.value for c in host.history(run_id) for s in c.steps if s.path[0] != "@"}


def test_nodes_run_in_the_order_that_is_drawn(host: Host) -> None:
    log: list[str] = []
    a, b, c, d = map(recorder(log), "abcd")
    result = host.run(Flow("f", a >> (b | c) >> d, durability="strong"))
    assert result.status == "completed"
    assert log[0] == "a" and set(log[1:3]) == {"b", "c"} and log[3] == "d" and len(log) == 4


def test_a_chain_orders_nodes_that_share_no_value(host: Host) -> None:
    log: list[str] = []
    nodes = [recorder(log)(name) for name in "edcba"]
    host.run(Flow("f", chain(*nodes)))
    assert log == list("edcba")


def test_what_a_node_returns_is_read_by_its_name(host: Host) -> None:
    @node
    def load() -> list[int]:
        return [1, 2]

    @node
    def total(load: list[int], extra: int = 5) -> int:
        return sum(load) + extra

    result = host.run(Flow("f", load >> total, durability="strong"))
    assert result["total.__result__"] == 8


def test_control_and_data_edges_go_together(host: Host) -> None:
    log: list[str] = []

    @node(output="x")
    def make() -> int:
        log.append("make")
        return 3

    @node(output="y")
    def use(x: int) -> int:
        log.append("use")
        return x + 1

    first, last = recorder(log)("first"), recorder(log)("last")
    result = host.run(Flow("f", [first >> use >> last, make], durability="strong"))
    assert result["y"] == 4 and log.index("first") < log.index("use") < log.index("last")
    assert log.index("make") < log.index("use")


def test_a_skipped_branch_counts_as_settled_and_what_follows_only_it_is_skipped(host: Host) -> None:
    log: list[str] = []
    left, right, after_right, end = map(recorder(log), ["left", "right", "after_right", "end"])

    @route("left", "right")
    def choose() -> str:
        return "left"

    flow = Flow("f", [choose, left >> end, right >> after_right >> end], durability="strong")
    host.run(flow)
    assert log == ["left", "end"]


def test_a_cycle_of_control_edges_is_refused() -> None:
    log: list[str] = []
    a, b = map(recorder(log), "ab")
    with pytest.raises(FlowError, match="endless_loop"):
        Flow("f", [a >> b, b >> a])


def test_a_strict_group_fails_the_run_with_any_member(host: Host) -> None:
    log: list[str] = []
    make = recorder(log)
    flow = Flow("f", parallel(make("ok"), make("bad", fails=True)) >> make("after"), durability="strong")
    result = host.run(flow, run_id="r")
    assert result.status == "failed" and "after" not in log
    assert result.error is not None and result.error.message == "bad failed"


@pytest.mark.parametrize(
    ("policy", "succeeds"),
    [
        ("best_effort", True),
        (at_least(1), True),
        (at_least(2), False),
        (critical("ok"), True),
        (critical("bad"), False),
        (quorum(2), False),
        ("first_success", True),
        (lambda outcomes: outcomes == {"ok": "completed", "bad": "failed"}, True),
        (lambda outcomes: "failed" not in outcomes.values(), False),
    ],
)
def test_a_policy_says_which_failures_a_group_tolerates(host: Host, policy: Any, succeeds: bool) -> None:
    log: list[str] = []
    make = recorder(log)
    group = parallel(make("ok"), make("bad", fails=True), policy=policy, name="both")
    result = host.run(Flow("f", group >> make("after"), durability="strong"), run_id="r")
    assert ("after" in log) == succeeds == (result.status == "completed")
    if not succeeds:
        assert result.error is not None and result.error.code == "group.failed"
        assert "ok completed, bad failed" in result.error.message
    assert statuses(host, "r")["bad"] == "failed"


def test_a_group_whose_members_all_fail_fails_even_if_it_tolerates_much(host: Host) -> None:
    make = recorder([])
    group = parallel(make("x", fails=True), make("y", fails=True), policy="best_effort", name="g")
    result = host.run(Flow("f", group >> make("after"), durability="strong"))
    assert result.error is not None and result.error.code == "group.failed"


def test_a_failed_group_is_resumed_at_the_members_that_failed(host: Host) -> None:
    broken = [True]
    calls: list[str] = []

    @node
    def shaky() -> int:
        calls.append("shaky")
        if broken[0]:
            raise ValueError("down")
        return 1

    @node
    def solid() -> int:
        calls.append("solid")
        return 2

    flow = Flow("f", parallel(shaky, solid, policy=at_least(2), name="g"), durability="strong")
    assert host.run(flow, run_id="r").status == "failed"
    broken[0] = False
    assert host.resume("r", flow).status == "completed"
    assert calls == ["shaky", "solid", "shaky"]


def test_the_first_success_cancels_the_others_and_says_so(host: Host) -> None:
    ended: list[str] = []

    @node
    async def slow() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("slow was cancelled")
            raise
        return 1

    @node
    def quick() -> int:
        return 2

    @node
    def after() -> str:
        return "on"

    flow = Flow("f", parallel(slow, quick, join="first_success", name="race") >> after, durability="strong")
    result = host.run(flow, run_id="r")
    assert result["after.__result__"] == "on" and "slow.__result__" not in result
    assert ended == ["slow was cancelled"]
    found = statuses(host, "r")
    assert (found["slow"], found["quick"], found["race"]) == ("cancelled", "completed", "completed")


def test_a_losing_thread_is_not_heard(host: Host) -> None:
    go_on, done = threading.Event(), threading.Event()

    @node
    def slow() -> int:
        go_on.wait(10)
        done.set()
        return 1

    @node
    def quick() -> int:
        return 2

    @node
    def after() -> str:
        go_on.set()
        done.wait(10)
        return "on"

    flow = Flow("f", parallel(slow, quick, policy="first_success", name="race") >> after, durability="strong")
    result = host.run(flow, run_id="r")
    assert result.status == "completed" and statuses(host, "r")["slow"] == "cancelled"
    assert "slow.__result__" not in result


def test_a_losing_inner_flow_is_cancelled_whole(host: Host) -> None:
    @node(output="x")
    async def forever() -> int:
        await asyncio.sleep(60)
        return 1

    @node
    def quick() -> int:
        return 2

    inner = Flow("inner", [forever]).as_node()
    result = host.run(
        Flow("f", parallel(inner, quick, policy="first_success"), durability="strong"), run_id="r"
    )
    assert result.status == "completed" and statuses(host, "r")["inner"] == "cancelled"
    assert (
        host.run(Flow("f", parallel(inner, quick, policy="first_success")), run_id="r").status == "completed"
    )


@pytest.mark.parametrize(("join", "winners"), [("any", 1), (quorum(2), 2)])
def test_what_follows_an_early_join_does_not_wait_for_the_rest(host: Host, join: Any, winners: int) -> None:
    release = threading.Event()

    @node
    def slow() -> int:
        assert release.wait(10)
        return 0

    quick = [recorder([])(f"quick{k}") for k in range(winners)]

    @node
    def after() -> str:
        release.set()
        return "on"

    flow = Flow("f", parallel(*quick, slow, join=join) >> after, durability="strong")
    result = host.run(flow, run_id="r")
    assert result.status == "completed" and result["slow.__result__"] == 0
    steps = [s.path for c in host.history("r") for s in c.steps]
    assert steps.index("after") < steps.index("slow") and steps.count("after") == 1


def test_a_branch_of_a_group_may_be_a_chain(host: Host) -> None:
    log: list[str] = []
    make = recorder(log)
    branch = chain(make("b1"), make("b2", fails=True), make("b3"), name="branch")
    flow = Flow("f", parallel(branch, make("c"), policy="best_effort") >> make("d"), durability="strong")
    assert host.run(flow).status == "completed"
    assert sorted(log) == ["b1", "b2", "c", "d"]


def test_a_group_inside_a_group_counts_as_one_member(host: Host) -> None:
    log: list[str] = []
    make = recorder(log)
    inner = parallel(make("x", fails=True), make("y", fails=True), policy="best_effort", name="inner")
    outer = parallel(inner, make("z"), policy=at_least(1), name="outer")
    assert host.run(Flow("f", outer >> make("end"), durability="strong")).status == Status.COMPLETED
    assert sorted(log) == ["end", "x", "y", "z"]


def looped(group: Any, *more_nodes: Node) -> Flow:
    """Wrap a group of nodes `a` and `b` in a loop of three rounds."""

    @node(output="n")
    def start(n: int = 0) -> int:
        return n + 1

    @route("a", "b", multi=True)
    def go(n: int) -> list[str]:
        return ["a", "b"]

    @ifelse(when_true="start", when_false=END)
    def more(seen: list[str], n: int) -> bool:
        return n < 3

    nodes = [start, go, group, more, *more_nodes]
    return Flow("rounds", nodes, entry="start", durability="strong")


def collector() -> Node:
    @node(output="seen")
    def after(n: int, ctx: Context, a: str = "-", b: str = "-") -> list[str]:
        ctx.channel.append("all", f"{a} {b}")
        return list(ctx.channel["all"])

    return after


def test_a_member_that_failed_in_one_round_runs_once_in_the_next(host: Host) -> None:
    calls: list[str] = []

    @node
    def a(n: int) -> str:
        calls.append(f"a{n}")
        return f"a{n}"

    @node
    def b(n: int) -> str:
        calls.append(f"b{n}")
        if n == 1:
            raise ValueError("down")
        return f"b{n}"

    flow = looped(parallel(a, b, policy="best_effort", name="both") >> collector())
    result = host.run(flow, run_id="r")
    assert result["seen"] == ["a1 -", "a2 b2", "a3 b3"]
    assert sorted(calls) == ["a1", "a2", "a3", "b1", "b2", "b3"]


def test_a_race_is_run_anew_in_each_round_and_only_its_winner_is_read(host: Host) -> None:
    wins = ["a", "b", "a"]

    def racer(name: str) -> Node:
        async def run(n: int) -> str:
            await asyncio.sleep(0 if wins[n - 1] == name else 60)
            return f"{name}{n}"

        return node(name=name)(run)

    race = parallel(racer("a"), racer("b"), policy="first_success", name="race")
    result = host.run(looped(race >> collector()), run_id="r")
    assert result["seen"] == ["a1 -", "- b2", "a3 -"]
    ended = [(s.path, s.visit, s.status.value) for c in host.history("r") for s in c.steps if s.path in "ab"]
    assert sorted(ended) == [
        ("a", 1, "completed"),
        ("a", 2, "cancelled"),
        ("a", 3, "completed"),
        ("b", 1, "cancelled"),
        ("b", 2, "completed"),
        ("b", 3, "cancelled"),
    ]


def test_nothing_follows_a_group_that_fails_in_a_later_round(host: Host) -> None:
    seen: list[int] = []

    def member(name: str) -> Node:
        async def run(n: int) -> str:
            if n == 2:
                raise ValueError("down")
            return name

        return node(name=name)(run)

    @node(output="seen")
    def after(n: int, a: str = "-", b: str = "-") -> list[str]:
        seen.append(n)
        return [a, b]

    result = host.run(looped(parallel(member("a"), member("b"), policy="first_success", name="g") >> after))
    assert result.error is not None and result.error.code == "group.failed" and seen == [1]


@pytest.mark.parametrize("join", ["any", quorum(1)])
def test_what_reads_the_members_of_an_early_join_does_not_wait_for_them_either(host: Host, join: Any) -> None:
    release = threading.Event()

    @node
    def slow() -> str:
        assert release.wait(10)
        return "late"

    @node
    def quick() -> str:
        return "early"

    @node
    def after(quick: str = "-", slow: str = "-") -> str:
        release.set()
        return f"{quick} {slow}"

    flow = Flow("f", parallel(quick, slow, join=join) >> after, durability="strong")
    result = host.run(flow, run_id="r")
    assert result["after.__result__"] == "early -" and result["slow.__result__"] == "late"
    assert [s.path for c in host.history("r") for s in c.steps].count("after") == 1


def test_a_failure_that_a_group_inside_tolerates_is_not_held_against_it(host: Host) -> None:
    make = recorder([])
    inner = parallel(make("x", fails=True), make("y"), policy="best_effort", name="inner")
    outer = parallel(inner, make("z"), policy=at_least(2), name="outer")
    assert host.run(Flow("f", outer >> make("end"), durability="strong")).error is None


@pytest.mark.parametrize("options", [{"policy": at_least(2)}, {"join": quorum(2)}])
def test_a_group_inside_that_went_on_early_has_succeeded(host: Host, options: Any) -> None:
    release = threading.Event()

    @node
    def slow() -> str:
        assert release.wait(10)
        return "late"

    @node
    def quick() -> str:
        return "early"

    @node
    def other() -> str:
        return "too"

    @node
    def after(quick: str = "-", other: str = "-") -> str:
        release.set()
        return f"{quick} {other}"

    outer = parallel(parallel(quick, slow, join="any", name="inner"), other, name="outer", **options)
    result = host.run(Flow("f", outer >> after, durability="strong"), run_id="r")
    assert result.error is None and result["after.__result__"] == "early too"
    assert [s.path for c in host.history("r") for s in c.steps].count("after") == 1


def test_what_a_task_brings_to_a_node_behind_a_group_is_not_taken_for_a_loser(host: Host) -> None:
    @node
    def good() -> str:
        return "fine"

    @node
    def bad() -> str:
        raise ValueError("no")

    @node
    def after(ctx: Context, good: str = "-", bad: str = "-") -> str:
        if ctx.visit == 1:
            ctx.next_task("after", bad="brought")
        return f"{good} {bad}"

    flow = Flow("f", parallel(good, bad, policy="best_effort") >> after, durability="strong")
    assert host.run(flow)["after.__result__"] == "fine brought"


def test_a_node_behind_an_early_join_waits_for_the_member_that_it_cannot_do_without(host: Host) -> None:
    release = threading.Event()

    @node
    def slow() -> str:
        assert release.wait(10)
        return "late"

    @node
    def quick() -> str:
        return "early"

    @node
    def beside() -> None:
        release.set()

    @node
    def after(slow: str, quick: str = "-") -> str:
        return f"{quick} {slow}"

    flow = Flow("f", parallel(quick, slow, join="any") >> (after | beside), durability="strong")
    result = host.run(flow, run_id="r")
    assert result["after.__result__"] == "early late"
    assert [s.path for c in host.history("r") for s in c.steps].count("after") == 1


def alternating() -> Any:
    """Return a race of `a` and `b` that `b` wins in the second round of three."""
    wins = ["a", "b", "a"]

    def racer(name: str) -> Node:
        async def run(n: int) -> str:
            await asyncio.sleep(0 if wins[n - 1] == name else 60)
            return f"{name}{n}"

        return node(name=name)(run)

    return parallel(racer("a"), racer("b"), policy="first_success", name="race")


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_a_flow_behind_a_race_reads_only_the_winner_too(host: Host, durability: Any) -> None:
    calls: list[str] = []

    @node(output="seen")
    def after(n: int, a: str = "-", b: str = "-") -> list[str]:
        calls.append(f"{a} {b}")
        return calls

    inner = Flow("inner", [after]).as_node(durability=durability)
    host.run(looped(alternating() >> inner))
    assert calls == ["a1 -", "- b2", "a3 -"]


def test_a_flow_behind_a_group_with_a_failed_member_runs_once_in_each_round(host: Host) -> None:
    calls: list[str] = []

    @node
    def a(n: int) -> str:
        return f"a{n}"

    @node
    def b(n: int) -> str:
        if n == 2:
            raise ValueError("down")
        return f"b{n}"

    @node(output="seen")
    def after(n: int, a: str = "-", b: str = "-") -> list[str]:
        calls.append(f"{a} {b}")
        return calls

    inner = Flow("inner", [after]).as_node()
    host.run(looped(parallel(a, b, policy="best_effort", name="both") >> inner))
    assert calls == ["a1 b1", "a2 -", "a3 b3"]


def test_what_needs_the_value_of_a_failed_member_fails_by_name(host: Host) -> None:
    make = recorder([])

    @node
    def after(bad: str) -> str:
        return bad

    group = parallel(make("ok"), make("bad", fails=True), policy="best_effort")
    error = host.run(Flow("f", group >> after, durability="strong")).error
    assert error is not None and error.code == "node.input_never_came"
    assert "'after' waits for bad.__result__" in error.message


def test_nothing_of_a_cancelled_inner_flow_runs_after_a_resume(host: Host) -> None:
    calls: list[str] = []
    broken = [True]

    @node(output="y")
    async def first() -> int:
        calls.append("first")
        return 1

    under_way = asyncio.Event()

    @node(output="z")
    async def never(y: int) -> int:
        under_way.set()
        await asyncio.Event().wait()
        return y

    @node
    async def quick() -> str:
        await under_way.wait()
        return "quick"

    @node
    def after() -> str:
        if broken[0]:
            raise ValueError("not yet")
        return "on"

    inner = Flow("inner", [first, never]).as_node()
    flow = Flow(
        "f", parallel(inner, quick, policy="first_success", name="race") >> after, durability="strong"
    )
    assert host.run(flow, run_id="r").status == "failed"
    assert statuses(host, "r")["inner"] == "cancelled" and calls == ["first"]
    broken[0] = False
    assert host.resume("r", flow)["after.__result__"] == "on"
    fork = host.fork("r")
    assert host.resume(fork.run_id, flow).status == "completed" and calls == ["first"]
