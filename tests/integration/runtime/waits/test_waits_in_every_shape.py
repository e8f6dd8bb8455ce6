"""Waits inside every shape of a flow, and beside whatever else goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any, Literal

import pytest

from everstep import END, Context, Flow, Host, at_least, chain, ifelse, node, parallel, wait
from everstep.errors import BadRequest, FlowError, InputError, WaitClosed
from everstep.results import RunResult
from everstep.testing.clock import START, ManualClock

YES, NO = {"approved": True}, {"approved": False}


def answer_all(host: Host, result: RunResult, answer: Any) -> None:
    for opened in result.waits:
        host.answer(opened.id, answer)


def verdict(ok: wait.ApprovalOutput) -> str:
    return "yes" if ok.approved else "no"


decide = node(name="decide", output="verdict")(verdict)

# -- nested -----------------------------------------------------------------------------------------------


def test_a_wait_halts_the_flows_around_it(host: Host) -> None:
    inner = Flow("inner", [wait.approval("ok", context="x"), decide])
    outer = Flow("outer", [inner.as_node()])

    @node(output="said")
    def say(verdict: str) -> str:
        return verdict.upper()

    flow = Flow("f", [outer.as_node(), say])
    halted = host.run(flow, {"x": 1}, run_id="r")
    [opened] = halted.waits
    assert (halted.status, opened.node, opened.context) == ("halted", "outer/inner/ok", 1)
    host.answer(opened.token or "", YES)
    result = host.resume("r", flow)
    assert result["said"] == "YES"
    assert result.nested("outer").nested("inner")["verdict"] == "yes"


def test_nothing_waits_inside_an_atomic_flow() -> None:
    inner = Flow("inner", [wait.approval("ok")]).as_node(durability="atomic")
    with pytest.raises(FlowError, match="ok"):
        Flow("outer", [inner])


# -- maps -------------------------------------------------------------------------------------------------


def asked_map(limit: int) -> Flow:
    inner = Flow("inner", [wait.question("ok", kind="text", context="x")]).as_node().lift("ok")
    return Flow("f", [inner.map_over("x", max_concurrency=limit)])


def test_items_that_wait_take_nobodys_place(host: Host) -> None:
    flow = asked_map(2)
    halted = host.run(flow, {"x": [1, 2, 3, 4, 5]}, run_id="r")
    assert sorted(w.context for w in halted.waits) == [1, 2, 3, 4, 5]
    assert {w.node for w in halted.waits} == {f"inner#{k}/ok" for k in range(5)}
    by_item = {w.context: w for w in halted.waits}
    for x in (3, 1):
        host.answer(by_item[x].id, f"answer {x}")
    again = host.resume("r", flow)
    assert again.status == "halted"
    assert sorted(w.context for w in again.waits) == [2, 4, 5]
    for x in (5, 4, 2):
        host.answer(by_item[x].id, f"answer {x}")
    assert host.resume("r", flow)["ok"] == [f"answer {x}" for x in (1, 2, 3, 4, 5)]


def test_a_thousand_items_wait_at_once(host: Host, clock: ManualClock) -> None:
    inner = Flow("inner", [wait.timer("nap", duration="1h", payload="x")]).as_node().lift("nap")
    flow = Flow("f", [inner.map_over("x", max_concurrency=8)])
    halted = host.run(flow, {"x": list(range(1000))}, run_id="r")
    assert len(halted.waits) == 1000
    for opened in halted.waits[:10]:
        host.waiting.fire(opened.id)
    assert len(host.resume("r", flow).waits) == 990
    clock.advance(3600)
    assert [nap.payload for nap in host.resume("r", flow)["nap"]] == list(range(1000))


def test_a_halt_node_itself_may_be_mapped(host: Host) -> None:
    flow = Flow("f", [wait.question("ok", kind="text", context="x").map_over("context")])
    halted = host.run(flow, {"x": ["a", "b"]}, run_id="r")
    assert [w.node for w in halted.waits] == ["ok#0", "ok#1"]
    for opened in reversed(halted.waits):
        host.answer(opened.id, opened.context)
    assert host.resume("r", flow)["ok"] == ["a", "b"]


@pytest.mark.parametrize("on_error", ["collect", "skip"])
def test_an_item_whose_time_is_over_is_tolerated_like_one_that_failed(
    host: Host, clock: ManualClock, on_error: Literal["collect", "skip"]
) -> None:
    inner = Flow("inner", [wait.callback("paid", timeout="1h", context="x")]).as_node().lift("paid")
    flow = Flow("f", [inner.map_over("x", on_error=on_error)])
    halted = host.run(flow, {"x": [1, 2]}, run_id="r")
    host.answer(next(w for w in halted.waits if w.context == 2).id, "two")
    clock.advance(3600)
    result = host.resume("r", flow)
    assert result.status == "completed"
    assert result["paid"][-1].payload == "two"
    assert len(result["paid"]) == (2 if on_error == "collect" else 1)


# -- loops ------------------------------------------------------------------------------------------------


def review_flow() -> Flow:
    @node(output="draft")
    def write(draft: list[int], ctx: Context) -> list[int]:
        return [*draft, ctx.visit]

    ok = wait.approval("ok", context="draft", timeout="1d")

    @ifelse(when_true=END, when_false="write")
    def is_good(ok: wait.ApprovalOutput) -> bool:
        return ok.approved

    return Flow("f", [write, ok, is_good], entry="write")


def test_each_visit_of_a_loop_opens_a_wait_of_its_own(host: Host) -> None:
    flow = review_flow()
    first = host.run(flow, {"draft": []}, run_id="r").waits[0]
    host.answer(first.token or "", NO)
    [second] = host.resume("r", flow).waits
    assert (first.visit, second.visit) == (1, 2)
    assert second.id != first.id
    assert second.token not in (None, first.token)
    assert (first.context, second.context) == ([1], [1, 2])
    host.answer(second.token or "", YES)
    result = host.resume("r", flow)
    assert result["draft"] == [1, 2]
    assert [w.status for w in host.waits("r", status=None)] == ["closed", "closed"]


def test_a_loop_goes_on_by_the_clock_alone(url: str) -> None:
    clock = ManualClock(auto=True)

    @ifelse(when_true="nap", when_false=END)
    def again(nap: wait.TimerOutput, ctx: Context) -> bool:
        return ctx.visit < 12

    flow = Flow("f", [wait.timer("nap", duration="30d"), again], entry="nap")
    with Host(url, clock=clock) as host:
        assert host.run(flow, run_id="r", wait=True).status == "completed"
        assert [w.visit for w in host.waits("r", status="closed")] == list(range(1, 13))
    assert clock.now() == START + timedelta(days=360)


# -- side by side -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("at_once", [False, True])
def test_two_waits_are_answered_in_either_order(host: Host, order: str, at_once: bool) -> None:
    @node(output="both")
    def join(a: str, b: str) -> str:
        return a + b

    flow = Flow("f", [wait.question("a", kind="text"), wait.question("b", kind="text"), join])
    tokens = {w.node: w.token for w in host.run(flow, run_id="r").waits}
    for name in order:
        host.answer(tokens[name] or "", name.upper())
        if not at_once:
            result = host.resume("r", flow)
    assert (result if not at_once else host.resume("r", flow))["both"] == "AB"


def test_a_wait_that_is_over_at_once_leaves_the_token_of_the_other_known(host: Host) -> None:
    flow = Flow("f", [wait.timer("past", until=START), wait.approval("ok")])
    [opened] = host.run(flow, run_id="r").waits
    assert opened.node == "ok"
    assert opened.token is not None
    host.answer(opened.token or "", YES)
    assert host.resume("r", flow).status == "completed"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_an_answer_is_taken_in_while_another_node_runs(url: str, is_async: bool, is_late: bool) -> None:
    """What waits for the answer must not wait for the node beside it."""
    begun, gone_on = threading.Event(), threading.Event()

    @node(output="first")
    def before() -> int:
        return 1

    def work(first: int = 0) -> bool:
        begun.set()
        return gone_on.wait(60)

    async def work_async(first: int = 0) -> bool:
        begun.set()
        return await asyncio.to_thread(gone_on.wait, 60)

    @node(output="said")
    def say(ok: wait.ApprovalOutput) -> bool:
        gone_on.set()
        return ok.approved

    long = node(name="long", output="worked")(work_async if is_async else work)
    nodes = [wait.approval("ok"), long, say]
    flow = Flow("f", [before, *nodes] if is_late else nodes)
    with Host(url) as host:
        results: list[RunResult] = []
        driving = threading.Thread(target=lambda: results.append(host.run(flow, run_id="r")))
        driving.start()
        assert begun.wait(60)
        while not (waits := host.waits("r")):
            time.sleep(0.005)
        [opened] = waits
        host.answer(opened.id, YES)
        driving.join(90)
    assert results[0].status == "completed"
    assert (results[0]["worked"], results[0]["said"]) == (True, True)


def test_a_wait_is_durable_before_a_node_beside_it_ends(url: str) -> None:
    seen: list[int] = []
    with Host(url) as host:

        @node(output="worked")
        def long(ready: int) -> int:
            ends = time.monotonic() + 20  # the two begin together: which is first is chance
            while not host.waits("r") and time.monotonic() < ends:
                time.sleep(0.01)
            seen.append(len(host.waits("r")))
            return 1

        @node(output="ready")
        def prepare(x: int) -> int:
            return x

        flow = Flow("f", [prepare, wait.approval("ok"), long], durability="partial")
        assert host.run(flow, {"x": 1}, run_id="r").status == "halted"
    assert seen == [1]


def test_a_timer_fires_while_another_node_runs(url: str) -> None:
    """The node beside it is only done once the timer has gone on."""
    gone_on = threading.Event()

    @node(output="worked")
    def long() -> bool:
        return gone_on.wait(20)

    @node(output="rang")
    def ring(nap: wait.TimerOutput) -> int:
        gone_on.set()
        return nap.drift_ms

    flow = Flow("f", [wait.timer("nap", duration="50ms"), long, ring])
    with Host(url) as host:
        result = host.run(flow)
    assert result.status == "completed"
    assert result["worked"]
    assert result["rang"] < 1500


# -- races and ends ---------------------------------------------------------------------------------------


def race() -> Flow:
    @node(output="start")
    def begin(x: int) -> int:
        return x

    @node(output="end")
    def finish() -> str:
        return "done"

    nap, ok = wait.timer("nap", duration="1h"), wait.approval("ok")
    return Flow("f", [chain(begin, parallel(nap, ok, policy="first_success"), finish)])


@pytest.mark.parametrize("winner", ["nap", "ok"])
def test_of_a_race_between_a_timer_and_an_approval_the_losers_wait_is_closed(
    host: Host, clock: ManualClock, winner: str
) -> None:
    flow = race()
    waits = {w.node: w for w in host.run(flow, {"x": 1}, run_id="r").waits}
    assert waits.keys() == {"nap", "ok"}
    if winner == "nap":
        clock.advance(3600)
    else:
        host.answer(waits["ok"].token or "", YES)
    result = host.resume("r", flow)
    loser = "ok" if winner == "nap" else "nap"
    assert (result.status, result["end"]) == ("completed", "done")
    assert winner in result
    assert loser not in result
    assert host.wait(waits[loser].id).status == "closed"
    assert host.wait(waits[loser].id).settled_at is None
    with pytest.raises(WaitClosed):
        host.answer(waits[loser].id, YES)


def test_a_race_lost_while_another_wait_goes_on_closes_only_the_losers(host: Host) -> None:
    flow = Flow("f", [*[race().as_node()], wait.callback("other")])
    waits = {w.node: w for w in host.run(flow, {"x": 1}, run_id="r").waits}
    host.answer(waits["f/ok"].id, YES)
    result = host.resume("r", flow)
    assert [w.node for w in result.waits] == ["other"]
    assert host.wait(waits["f/nap"].id).status == "closed"
    host.answer(result.waits[0].id, 1)
    assert host.resume("r", flow).status == "completed"


def test_enough_approvals_close_the_others(host: Host) -> None:
    @node(output="x1")
    def begin(x: int) -> int:
        return x

    @node(output="end")
    def finish() -> str:
        return "done"

    names = ["a", "b", "c"]
    asked = [wait.question(n, kind="text") for n in names]
    flow = Flow("f", [chain(begin, parallel(*asked, policy=at_least(2)), finish)])
    waits = {w.node: w for w in host.run(flow, {"x": 1}, run_id="r").waits}
    for name in ("c", "a"):
        host.answer(waits[name].id, name)
    last = host.resume("r", flow)
    if last.status == "halted":
        host.answer(waits["b"].id, "b")
        last = host.resume("r", flow)
    assert last["end"] == "done"
    assert host.waits("r") == []


def test_a_flow_that_ends_early_closes_its_waits(host: Host) -> None:
    @node(output="stopped")
    def stop(a: str, ctx: Context) -> str:
        ctx.terminate()
        return a

    flow = Flow("f", [wait.question("a", kind="text"), wait.approval("b"), stop])
    waits = {w.node: w for w in host.run(flow, run_id="r").waits}
    host.answer(waits["a"].id, "enough")
    result = host.resume("r", flow)
    assert (result.status, result["stopped"]) == ("completed", "enough")
    assert host.wait(waits["b"].id).status == "closed"


def test_an_inner_flow_that_ends_early_closes_only_its_own_waits(host: Host) -> None:
    @node(output="stopped")
    def stop(a: str, ctx: Context) -> str:
        ctx.terminate()
        return a

    inner = Flow("inner", [wait.question("a", kind="text"), wait.approval("b"), stop]).as_node()
    flow = Flow("f", [inner.lift("stopped"), wait.callback("c")])
    waits = {w.node: w for w in host.run(flow, run_id="r").waits}
    assert waits.keys() == {"inner/a", "inner/b", "c"}
    host.answer(waits["inner/a"].id, "enough")
    result = host.resume("r", flow)
    assert [w.node for w in result.waits] == ["c"]
    assert host.wait(waits["inner/b"].id).status == "closed"
    host.answer(waits["c"].id, 3)
    assert host.resume("r", flow)["stopped"] == "enough"


def test_a_missing_input_that_only_a_wait_names_may_have_been_meant_as_a_text(host: Host) -> None:
    flow = Flow("f", [wait.timer("nap", duration="1h", payload="slept")])
    with pytest.raises(InputError, match=r"wait\.literal\('slept'\)"):
        host.run(flow)

    @node(output="b")
    def double(slept: int) -> int:
        return 2 * slept

    both = Flow("f", [wait.timer("nap", duration="1h", payload="slept"), double])
    with pytest.raises(InputError, match="double") as refused:
        host.run(both)
    assert "literal" not in str(refused.value)


@pytest.mark.parametrize("name", ["item", "context"])
def test_a_wait_goes_over_a_list_by_the_name_of_the_value_or_of_its_argument(host: Host, name: str) -> None:
    flow = Flow("f", [wait.question("ok", kind="text", context="item").map_over(name)])
    waits = host.run(flow, {"item": [1, 2]}, run_id="r").waits
    assert sorted(opened.context for opened in waits) == [1, 2]


def test_a_wait_that_uses_a_value_twice_goes_over_it_side_by_side(host: Host) -> None:
    asked = wait.question("ok", kind="choice", context="colours", options="colours")
    flow = Flow("f", [asked.map_over("colours")])
    waits = host.run(flow, {"colours": [["a", "b"], ["c"]]}, run_id="r").waits
    assert sorted((opened.context, opened.options) for opened in waits) == [
        (["a", "b"], ["a", "b"]),
        (["c"], ["c"]),
    ]


def test_a_wait_without_such_a_value_cannot_go_over_it() -> None:
    with pytest.raises(BadRequest, match="'ok' has no parameter 'things'"):
        wait.question("ok", context="item").map_over("things")
