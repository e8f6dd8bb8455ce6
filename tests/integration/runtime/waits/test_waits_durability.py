"""Waits through failures, forks, keyframes and every durability, and the hosts that can keep them."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

import pytest

from everstep import Context, Durability, Flow, Host, Retry, node, wait
from everstep.errors import (
    EverstepError,
    HaltNeedsDurability,
    InputsDiffer,
    ServiceMissing,
    UnknownNotifier,
    UnknownScheduler,
    WaitClosed,
)
from everstep.model.enums import Flush, Mode
from everstep.ports.durability import Handle, Notice, ScheduleStatus
from everstep.testing.clock import START, ManualClock
from everstep.wait import Wait
from tests.keyframes import space_keyframes

pytestmark = pytest.mark.servers

YES, NO = {"approved": True}, {"approved": False}
FLOW = Flow("f", [wait.approval("ok")])


# -- failures ---------------------------------------------------------------------------------------------


def fragile_flow(broken: list[bool]) -> Flow:
    """Two waits; what follows the first fails as long as it is broken."""

    @node(output="used")
    def use(a: str) -> str:
        if broken:
            raise ValueError("broken")
        return a

    @node(output="both")
    def join(used: str, b: str) -> str:
        return used + b

    return Flow("f", [wait.question("a", kind="text"), wait.question("b", kind="text"), use, join])


@pytest.mark.parametrize("is_answered_meanwhile", [False, True])
def test_a_failed_run_leaves_its_waits_open_and_goes_on_with_what_was_answered_meanwhile(
    host: Host, is_answered_meanwhile: bool
) -> None:
    broken = [True]
    flow = fragile_flow(broken)
    waits = {w.node: w for w in host.run(flow, run_id="r").waits}
    host.answer(waits["a"].id, "A")
    assert host.resume("r", flow).status == "failed"
    assert [w.id for w in host.waits("r")] == [waits["b"].id]
    broken.clear()
    if not is_answered_meanwhile:
        [still] = host.resume("r", flow).waits
        assert still.id == waits["b"].id
    host.answer(waits["b"].token or "", "B")
    assert host.resume("r", flow)["both"] == "AB"


def test_a_run_that_fails_inside_a_flow_keeps_the_waits_beside_the_failure(host: Host) -> None:
    broken = [True]
    inner = fragile_flow(broken)
    flow = Flow("outer", [inner.as_node(name="inner").lift("both"), wait.callback("c")])
    waits = {w.node: w for w in host.run(flow, run_id="r").waits}
    assert waits.keys() == {"inner/a", "inner/b", "c"}
    host.answer(waits["inner/a"].id, "A")
    assert host.resume("r", flow).status == "failed"
    assert {w.id for w in host.waits("r")} == {waits["inner/b"].id, waits["c"].id}
    host.answer(waits["inner/b"].id, "B")
    host.answer(waits["c"].id, "C")
    broken.clear()
    result = host.resume("r", flow)
    assert (result["both"], result["c"].payload) == ("AB", "C")


def test_a_halt_node_whose_function_raises_is_tried_again(host: Host) -> None:
    attempts: list[int] = []

    @node(halts=True, retry=Retry(3, first=0, jitter=0))
    def ask(ctx: Context) -> Wait:
        attempts.append(ctx.attempt)
        if len(attempts) < 3:
            raise ConnectionError("not yet")
        return Wait(context="third time")

    flow = Flow("f", [ask])
    [opened] = host.run(flow, run_id="r").waits
    assert attempts == [1, 2, 3]
    assert opened.context == "third time"
    host.answer(opened.token or "", "yes")
    result = host.resume("r", flow)
    assert result.status == "completed"
    assert attempts == [1, 2, 3]
    last = [s for c in host.history("r") for s in c.steps if s.path == "ask"][-1]
    assert (last.status, last.attempts) == ("completed", 3)


def test_a_wait_whose_time_is_over_is_no_matter_for_a_retry(host: Host, clock: ManualClock) -> None:
    """Asking again is the caller's decision; a second try would ask behind their back."""

    @node(output="colour", halts=True, retry=Retry(3, first=0, jitter=0))
    def ask() -> Wait:
        return Wait(timeout="1h")

    flow = Flow("f", [ask])
    assert host.run(flow, run_id="r").status == "halted"
    clock.advance(3600)
    assert host.resume("r", flow).status == "failed"
    [again] = host.resume("r", flow).waits
    host.answer(again.id, "red")
    assert host.resume("r", flow)["colour"] == "red"
    assert {w.status for w in host.waits("r", status=None)} == {"closed"}


# -- forks and starting over ------------------------------------------------------------------------------


def test_a_fork_of_a_halted_run_opens_a_wait_of_its_own_and_leaves_the_parents_alone(host: Host) -> None:
    [parents] = host.run(FLOW, run_id="r").waits
    host.fork("r", fork_id="child")
    [childs] = host.resume("child", FLOW).waits
    assert childs.id != parents.id
    assert childs.token not in (None, parents.token)
    host.answer(childs.token or "", NO)
    assert not host.resume("child", FLOW)["ok"].approved
    assert [w.id for w in host.waits("r")] == [parents.id]
    host.answer(parents.token or "", YES)
    assert host.resume("r", FLOW)["ok"].approved


def test_a_fork_of_an_answered_run_asks_again_from_before_and_not_from_after(host: Host) -> None:
    opened = host.run(FLOW, run_id="r").waits[0]
    halted_at = host.info("r").checkpoints
    host.answer(opened.token or "", YES)
    host.resume("r", FLOW)
    host.fork("r", at=halted_at, fork_id="before")
    host.fork("r", fork_id="after")
    assert host.resume("after", FLOW)["ok"].approved
    [again] = host.resume("before", FLOW).waits
    host.answer(again.id, NO)
    assert not host.resume("before", FLOW)["ok"].approved
    assert host.run(FLOW, run_id="r")["ok"].approved


def test_a_fork_inside_a_nested_flow_and_a_map_asks_again(host: Host) -> None:
    inner = Flow("inner", [wait.question("q", kind="text", context="x")]).as_node().lift("q")
    flow = Flow("f", [inner.map_over("x")])
    parents = host.run(flow, {"x": ["a", "b"]}, run_id="r").waits
    host.answer(parents[0].id, "parent")
    assert len(host.resume("r", flow).waits) == 1
    host.fork("r", fork_id="child")
    [childs] = host.resume("child", flow).waits
    assert childs.id != parents[1].id
    host.answer(childs.id, "child")
    assert host.resume("child", flow)["q"] == ["parent", "child"]
    assert [w.id for w in host.waits("r")] == [parents[1].id]


def test_starting_over_at_a_node_closes_the_old_waits(host: Host) -> None:
    @node(output="text")
    def write(x: int, ctx: Context) -> str:
        return f"draft {ctx.visit}"

    flow = Flow("f", [write, wait.approval("ok", context="text")])
    [first] = host.run(flow, {"x": 1}, run_id="r").waits
    [second] = host.resume("r", flow, start="write").waits
    assert (first.context, second.context) == ("draft 1", "draft 2")
    with pytest.raises(WaitClosed):
        host.answer(first.id, YES)
    host.answer(second.token or "", YES)
    assert host.resume("r", flow)["ok"].approved


def test_starting_over_at_the_halt_node_asks_again(host: Host) -> None:
    [first] = host.run(FLOW, run_id="r").waits
    [second] = host.resume("r", FLOW, start="ok").waits
    assert host.wait(first.id).status == "closed"
    host.answer(second.token or "", YES)
    assert host.resume("r", FLOW)["ok"].approved


# -- keyframes and durability -----------------------------------------------------------------------------

MODES = {
    "partial": Durability(),
    "strong": Durability(Mode.STRONG),
    "before_effects": Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS),
    "interval": Durability(Mode.STRONG, interval=50),
}


def varied_flow(durability: Durability) -> Flow:
    @node(output="draft", effects="pure")
    def write(x: int) -> list[int]:
        return [x]

    @node(output="sent", effects="effectful", idempotency_key="auto")
    def send(ok: wait.ApprovalOutput, draft: list[int], ctx: Context) -> list[Any]:
        draft.append(ok.approved)
        return [*draft, ctx.idempotency_key is not None]

    inner = Flow("inner", [wait.question("q", kind="text", context="x")]).as_node().lift("q")
    nodes = [write, wait.approval("ok", context="draft"), send, inner.map_over("x").with_inputs(x="names")]
    return Flow("f", nodes, durability=durability)


@pytest.mark.parametrize("keyframes", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_run_in_any_durability_goes_on_in_another_process_from_where_it_halted(
    url: str, mode: str, keyframes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if keyframes:
        space_keyframes(monkeypatch, lambda: 0)
    flow = varied_flow(MODES[mode])
    inputs = {"x": 1, "names": ["a", "b"]}
    with ExitStack() as processes:
        hosts = [processes.enter_context(Host(url)) for _ in range(1 if url == "memory:" else 4)]
        waits = {w.node: w for w in hosts[0].run(flow, inputs, run_id="r").waits}
        assert waits.keys() == {"ok", "inner#0/q", "inner#1/q"}
        for name, answer in (("inner#1/q", "B"), ("ok", YES), ("inner#0/q", "A")):
            hosts = [*hosts[1:], hosts[0]]
            hosts[0].answer(waits[name].id, answer)
            result = hosts[0].resume("r", flow)
            assert result.status == ("completed" if name == "inner#0/q" else "halted")
        assert (result["sent"], result["q"]) == ([1, True, True], ["A", "B"])
        if keyframes:
            assert all(c.keyframe for c in hosts[0].history("r")[1:])


def test_a_halt_node_needs_a_flow_that_is_kept(host: Host) -> None:
    flow = Flow("f", [wait.timer("nap", duration="1s")], durability="off")
    for start in (host.run, host.start):
        with pytest.raises(HaltNeedsDurability) as refused:
            start(flow, run_id="r")
        assert refused.value.code == "DAG-CKPT-002"
    nested = Flow("g", [Flow("h", [wait.approval("ok")]).as_node()], durability="off")
    with pytest.raises(HaltNeedsDurability, match="h/ok"):
        host.run(nested)
    assert host.runs() == []


def test_a_halt_node_needs_a_host_with_a_store() -> None:
    with Host("none:") as host, pytest.raises(ServiceMissing) as refused:
        host.run(FLOW)
    assert refused.value.code == "DAG-CKPT-003"


def test_a_host_refuses_more_durability_than_it_has(url: str) -> None:
    with Host(url, max_durability_mode="partial") as host:
        assert host.run(FLOW).status == "halted"
        with pytest.raises(EverstepError, match="partial"):
            host.run(Flow("f", [wait.approval("ok")], durability="strong"), run_id="r")
        assert [run.run_id for run in host.runs() if run.run_id == "r"] == []


def test_an_unknown_alias_is_refused_before_anything_runs(host: Host) -> None:
    ran: list[int] = []

    @node(output="x")
    def first() -> int:
        ran.append(1)
        return 1

    cases: list[tuple[Any, type[EverstepError]]] = [
        (wait.timer("w", duration="1h", scheduler="cron"), UnknownScheduler),
        (wait.approval("w", timeout="1h", scheduler="cron"), UnknownScheduler),
        (wait.approval("w", notify="slack"), UnknownNotifier),
        (wait.question("w", notify=["slack", "mail"]), UnknownNotifier),
    ]
    for asked, error in cases:
        for flow in (Flow("f", [first, asked]), Flow("g", [first, Flow("h", [asked]).as_node()])):
            for start in (host.run, host.start):
                with pytest.raises(error):
                    start(flow)
    assert ran == []
    assert host.runs() == []


# -- schedulers and notifiers -----------------------------------------------------------------------------


class Alarms:
    """A scheduler of a user's own: it keeps times in a dict and calls the host."""

    def __init__(self) -> None:
        self.set: dict[str, tuple[str, datetime]] = {}

    async def schedule_at(self, handle: Handle, at: datetime) -> str:
        schedule_id = f"alarm {len(self.set)}"
        self.set[schedule_id] = (handle.wait_id, at)
        return schedule_id

    async def schedule_after(self, handle: Handle, delay: timedelta) -> str:
        raise AssertionError("no one asks for that")

    async def cancel(self, schedule_id: str) -> None:
        raise AssertionError("no one asks for that")

    async def status(self, schedule_id: str) -> ScheduleStatus:
        raise AssertionError("no one asks for that")


def test_a_scheduler_of_ones_own_keeps_the_time_and_the_store_does_not(url: str, clock: ManualClock) -> None:
    alarms = Alarms()
    flow = Flow("f", [wait.timer("nap", duration="1h", payload=1, scheduler="alarms")])
    with Host(url, clock=clock, schedulers={"alarms": alarms}) as host:
        [opened] = host.run(flow, run_id="r").waits
        assert list(alarms.set.values()) == [(opened.id, START + timedelta(hours=1))]
        clock.advance(7200)
        assert host.resume("r", flow).status == "halted"
        fired = host.waiting.fire(opened.id)
        assert (fired.status, fired.settled_by) == ("settled", "clock")
        assert host.resume("r", flow)["nap"] == wait.TimerOutput(1, clock.now(), 3_600_000)
        assert len(alarms.set) == 1


def test_a_scheduler_of_ones_own_times_an_approval_out(url: str, clock: ManualClock) -> None:
    alarms = Alarms()
    flow = Flow("f", [wait.approval("ok", timeout="1h", scheduler="alarms")])
    with Host(url, clock=clock, schedulers={"alarms": alarms}) as host:
        host.run(flow, run_id="r")
        [(wait_id, _)] = alarms.set.values()
        host.waiting.fire(wait_id)
        assert not host.resume("r", flow)["ok"].approved


def test_a_notifier_is_told_once_with_the_token(url: str) -> None:
    told: list[Notice] = []
    flow = Flow("f", [wait.approval("ok", context={"a": 1}, prompt="Pay?", notify="list")])
    with Host(url, notifiers={"list": told.append}) as host:
        [opened] = host.run(flow, run_id="r").waits
        host.resume("r", flow)
        assert [(n.wait_id, n.token, n.context, n.prompt) for n in told] == [
            (opened.id, opened.token, {"a": 1}, "Pay?")
        ]
        assert host.wait(opened.id).notified_at is not None
        host.answer(told[0].token or "", YES)
        assert host.resume("r", flow)["ok"].approved


def test_a_notifier_that_fails_never_loses_the_wait(url: str) -> None:
    def broken(notice: Notice) -> None:
        raise RuntimeError(f"no network for {notice.token}")

    told: list[Notice] = []
    flow = Flow("f", [wait.approval("ok", notify=["broken", "list"])])
    with Host(url, notifiers={"broken": broken, "list": told.append}) as host:
        [opened] = host.run(flow, run_id="r").waits
        assert len(told) == 1
        assert host.wait(opened.id).notified_at is None
        host.answer(opened.token or "", YES)
        assert host.resume("r", flow)["ok"].approved


def test_a_run_that_was_cancelled_as_it_opened_a_wait_notifies_no_one(url: str) -> None:
    told: list[Notice] = []
    with Host(url, notifiers={"list": told.append}) as host:

        @node(halts=True)
        def ask() -> Wait:
            host.cancel("r")
            return Wait(notify="list")

        assert host.run(Flow("f", [ask]), run_id="r").status == "cancelled"
        assert host.waits("r") == []
    assert told == []


# -- starting ---------------------------------------------------------------------------------------------


def test_a_run_that_was_started_is_driven_by_a_resume(host: Host) -> None:
    info = host.start(FLOW, run_id="r")
    assert (info.status, info.is_driven) == ("running", False)
    assert host.waits("r") == []
    [opened] = host.resume("r", FLOW).waits
    host.answer(opened.token or "", YES)
    assert host.resume("r", FLOW)["ok"].approved


def test_starting_twice_is_starting_once_and_other_inputs_are_refused(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok", context="x")])
    first = host.start(flow, {"x": 1}, run_id="r")
    assert host.start(flow, {"x": 1}, run_id="r").created_at == first.created_at
    with pytest.raises(InputsDiffer) as refused:
        host.start(flow, {"x": 2}, run_id="r")
    assert "answer" in refused.value.fix and "fork" in refused.value.fix
    assert len(host.runs()) == 1
    host.resume("r", flow)
    assert host.start(flow, {"x": 1}, run_id="r").status == "halted"
    assert len(host.waits("r")) == 1


def test_cancelling_a_run_while_a_node_beside_a_wait_runs_closes_the_wait(url: str) -> None:
    begun, may_end = threading.Event(), threading.Event()

    @node(output="worked")
    def long() -> bool:
        begun.set()
        return may_end.wait(20)

    with Host(url) as host:
        flow = Flow("f", [wait.approval("ok"), long])
        results: list[Any] = []
        driving = threading.Thread(target=lambda: results.append(host.run(flow, run_id="r")))
        driving.start()
        assert begun.wait(10)
        while not host.waits("r"):
            threading.Event().wait(0.005)
        host.cancel("r")
        may_end.set()
        driving.join(20)
        assert results[0].status == "cancelled"
        assert host.waits("r") == []
