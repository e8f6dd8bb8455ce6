"""Budgets: what a run spends is counted to the cent, and the end of one is a question to a person."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from everstep import (
    AsyncHost,
    Budget,
    Context,
    Durability,
    Flow,
    Host,
    Node,
    Retry,
    Status,
    chain,
    node,
    parallel,
)
from everstep.errors import AnswerInvalid, BadRequest, LeaseLost, NodeFailed
from everstep.model.budgets import plain
from everstep.model.enums import Trigger
from everstep.model.records import CheckpointRecord
from everstep.results import Event
from everstep.testing import ManualClock

pytestmark = pytest.mark.stores("sqlite")

AT_ONCE_RETRY = Retry(3, first=0)


def call(name: str, **amounts: Any) -> Any:
    @node(name=name, output=f"{name}_out")
    def spends(ctx: Context) -> str:
        ctx.spend(**amounts)
        return name

    return spends


def flow(*nodes: Any, **options: Any) -> Flow:
    return Flow("paid", chain(*nodes), **options)


def spent(host: Host, run: str) -> dict[str, str]:
    """Add up what the records of a run say, apart from what folds them."""
    total: dict[str, Decimal] = {}
    for record in host.history(run):
        for step in record.steps:
            for name, amount in (step.spent or {}).items():
                total[name] = total.get(name, Decimal(0)) + amount
    return {name: plain(amount) for name, amount in total.items()}


def triggers(host: Host, run: str) -> list[Trigger]:
    return [record.trigger for record in host.history(run)]


def of(host: Host, run: str, trigger: Trigger) -> list[CheckpointRecord]:
    return [record for record in host.history(run) if record.trigger is trigger]


def test_a_flow_without_budgets_counts_what_is_spent(host: Host) -> None:
    host.run(flow(call("a", usd="0.10", tokens=7), call("b", usd=0.2)), run_id="r")
    assert spent(host, "r") == {"usd": "0.30", "tokens": "7"}
    kept = [s for r in of(host, "r", Trigger.SPENT) for s in r.steps if s.spent]
    assert [(s.path, s.status) for s in kept] == [("a", Status.RUNNING), ("b", Status.RUNNING)]


def test_pennies_never_drift(host: Host) -> None:
    @node(output="done")
    def many(ctx: Context) -> int:
        for _ in range(100):
            ctx.spend(usd=0.1)
        return 1

    host.run(Flow("pennies", [many], budgets={"usd": 100}), run_id="r")
    assert spent(host, "r") == {"usd": "10.0"}


def test_what_is_spent_is_durable_when_spend_returns(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    url = f"sqlite:///{tmp_path / 'runs.db'}"

    @node(output="done")
    def look(ctx: Context) -> int:
        ctx.spend(usd="1.25")
        with Host(url) as other:
            seen.append(spent(other, ctx.run_id))
        return 1

    with Host(url) as host:
        host.run(Flow("look", [look]), run_id="free")
        host.run(Flow("look", [look], budgets={"usd": 10}), run_id="limited")
    assert seen == [{"usd": "1.25"}, {"usd": "1.25"}]


@pytest.mark.parametrize("budgets", [{}, {"usd": 10}])
def test_an_async_node_may_await_what_it_spends(tmp_path: Path, budgets: dict[str, Any]) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    seen: list[dict[str, str]] = []

    @node(output="done")
    async def look(ctx: Context) -> int:
        await ctx.spend(usd="1.25")
        seen.append(await asyncio.to_thread(elsewhere))
        ctx.spend(usd="0.75")
        return 1

    def elsewhere() -> dict[str, str]:
        with Host(url) as other:
            return spent(other, "r")

    async def main() -> None:
        async with AsyncHost(url) as host:
            await host.run(Flow("look", [look], budgets=budgets), run_id="r")

    asyncio.run(main())
    with Host(url) as host:
        assert seen == [{"usd": "1.25"}] and spent(host, "r") == {"usd": "2.00"}
        host.run(Flow("look", [look], budgets=budgets), run_id="again")


def test_a_thread_of_a_node_may_spend(host: Host) -> None:
    for budgets in ({}, {"usd": 10}):

        @node(output="done")
        def helped(ctx: Context) -> int:
            worker = threading.Thread(target=lambda: ctx.spend(usd="0.5"))
            worker.start()
            worker.join(20)
            return 1

        run = host.run(Flow("helped", [helped], budgets=budgets))
        assert spent(host, run.run_id) == {"usd": "0.5"}


def test_an_attempt_that_fails_has_spent_all_the_same(host: Host) -> None:
    tries = [2]

    @node(output="done", retry=AT_ONCE_RETRY)
    def clumsy(ctx: Context) -> int:
        ctx.spend(usd="0.40")
        tries[0] -= 1
        if tries[0] >= 0:
            raise OSError("busy")
        return 1

    host.run(Flow("clumsy", [clumsy], budgets={"usd": 5}), run_id="r")
    assert spent(host, "r") == {"usd": "1.20"}


def test_at_most_of_it_there_is_one_checkpoint_and_one_event(tmp_path: Path) -> None:
    heard: list[Event] = []
    paid = flow(*(call(f"n{k}", usd=1) for k in range(9)), budgets={"usd": 10})
    with Host(f"sqlite:///{tmp_path / 'runs.db'}", on_event=heard.append) as host:
        host.run(paid, run_id="r")
        warned = of(host, "r", Trigger.COST_THRESHOLD)
        about = {"budgets": {"usd": {"spent": "8", "limit": "10"}}}
        assert [r.metadata for r in warned] == [{**about, "priority": "high"}]
        assert [s.path for s in warned[0].steps][-1] == "n7"
        assert [e.data for e in heard if e.kind == "budget_warned"] == [about]
        assert [e.data for e in host.events("r") if e.kind == "budget_warned"] == [about]


def test_the_share_that_warns_can_be_chosen(host: Host) -> None:
    paid = flow(call("a", usd=1), call("b", usd=1), budgets=[Budget("usd", 4, warn_at=0.5)])
    host.run(paid, run_id="half")
    assert [r.steps[-1].path for r in of(host, "half", Trigger.COST_THRESHOLD)] == ["b"]
    host.run(flow(call("a", usd=3), budgets=[Budget("usd", 3, warn_at=None)]), run_id="never")
    assert Trigger.COST_THRESHOLD not in triggers(host, "never")


def spendthrift(**options: Any) -> Flow:
    nodes = [call(f"n{k}", usd="2.50") for k in range(5)]
    return flow(*nodes, budgets={"usd": "5.00"}, **options)


@pytest.mark.parametrize("durability", ["partial", "strong"])
def test_once_all_is_spent_the_next_node_halts_and_an_approval_goes_on(host: Host, durability: str) -> None:
    paid = spendthrift(durability=durability)
    result = host.run(paid, run_id="r")
    assert result.status is Status.HALTED
    (wait,) = result.waits
    assert (wait.kind, wait.node, wait.context["budget"]) == ("approval", "n2", "usd")
    assert spent(host, "r") == {"usd": "5.00"}
    host.answer(wait.id, {"approved": True, "approver": "ann"})
    result = host.resume("r", paid)
    assert result.status is Status.HALTED and result.waits[0].node == "n4"
    host.answer(result.waits[0].id, {"approved": True, "raise_by": "0.01"})
    assert host.resume("r", paid).status is Status.COMPLETED
    assert spent(host, "r") == {"usd": "12.50"}
    kept = [s.guards.raised for r in host.history("r") for s in r.steps if s.guards and s.guards.raised]
    assert kept == [{"usd": Decimal("5.00")}, {"usd": Decimal("0.01")}]


def test_a_rejection_fails_the_run_by_name_and_a_resume_asks_again(host: Host) -> None:
    paid = spendthrift()
    wait = host.run(paid, run_id="r").waits[0]
    host.answer(wait.id, {"approved": False, "comment": "too expensive"})
    with pytest.raises(NodeFailed):
        host.resume("r", paid).raise_for_status()
    failed = host.info("r")
    assert failed.status is Status.FAILED
    error = host.history("r")[-1].error
    assert error is not None and error.code == "budget.exceeded"
    again = host.resume("r", paid)
    assert again.status is Status.HALTED and again.waits[0].node == "n2"
    host.answer(again.waits[0].id, {"approved": True, "raise_by": 100})
    assert host.resume("r", paid).status is Status.COMPLETED


@pytest.mark.parametrize("by", ["-1", "NaN", -3, "much", "1e9999"])
def test_an_answer_that_raises_by_no_amount_is_refused(host: Host, by: Any) -> None:
    wait = host.run(spendthrift(), run_id="r").waits[0]
    with pytest.raises(AnswerInvalid):
        host.answer(wait.id, {"approved": True, "raise_by": by})


def test_an_answer_while_the_run_is_open_elsewhere_counts_once(host: Host) -> None:
    paid = spendthrift()
    host.run(paid, run_id="r")
    assert host.resume("r", paid).status is Status.HALTED, "no answer has come"
    assert len(host.waits("r")) == 1


def test_the_items_of_a_map_ask_once_together(host: Host) -> None:
    @node(output="out")
    def item(x: int, ctx: Context) -> int:
        ctx.spend(usd=1)
        return x

    paid = Flow("items", [item.map_over("x", max_concurrency=2)], budgets={"usd": 3})
    result = host.run(paid, {"x": list(range(20))}, run_id="r")
    assert result.status is Status.HALTED and len(result.waits) == 1
    assert 3 <= Decimal(spent(host, "r")["usd"]) <= 4
    host.answer(result.waits[0].id, {"approved": True, "raise_by": 17})
    result = host.resume("r", paid)
    while result.status is Status.HALTED:
        host.answer(result.waits[0].id, {"approved": True})
        result = host.resume("r", paid)
    assert result["out"] == list(range(20)) and spent(host, "r") == {"usd": "20"}


def test_an_inner_flow_spends_from_the_budget_around_it(host: Host) -> None:
    inner = Flow("inner", chain(call("a", usd=1), call("b", usd=1)))
    outer = Flow("outer", chain(inner.as_node(name="first"), call("c", usd=1)), budgets={"usd": 1})
    result = host.run(outer, run_id="r")
    assert [w.node for w in result.waits] == ["first/b"]
    host.answer(result.waits[0].id, {"approved": True, "raise_by": 10})
    assert host.resume("r", outer).status is Status.COMPLETED
    assert spent(host, "r") == {"usd": "3"}


def test_an_atomic_flow_is_asked_for_as_a_whole(host: Host) -> None:
    inner = Flow("inner", [Node(lambda: 1, name="a", output="a_out")])
    outer = Flow("outer", chain(call("c", usd=1), inner.as_node(durability="atomic")), budgets={"usd": 1})
    result = host.run(outer, run_id="r")
    assert [w.node for w in result.waits] == ["inner"]
    host.answer(result.waits[0].id, {"approved": True})
    assert host.resume("r", outer).status is Status.COMPLETED


def test_spending_inside_an_atomic_flow_is_refused_before_anything_is_counted(host: Host) -> None:
    inner = Flow("inner", [call("a", usd=1)])
    outer = Flow("outer", chain(call("c", usd=1), inner.as_node(durability="atomic")), budgets={"usd": 9})
    result = host.run(outer, run_id="r")
    assert result.error is not None
    assert "'inner/a' counted what it spent inside an atomic flow" in result.error.message
    assert spent(host, "r") == {"usd": "1"}


def test_time_is_measured_while_a_run_is_driven_and_not_while_it_halts(tmp_path: Path) -> None:
    clock = ManualClock()

    def slow(name: str) -> Any:
        @node(name=name, output=f"{name}_out")
        def body() -> int:
            clock.advance(timedelta(seconds=40))
            return 1

        return body

    paid = flow(*(slow(f"n{k}") for k in range(3)), budgets=[Budget("seconds", "1m")])
    with Host(f"sqlite:///{tmp_path / 'runs.db'}", clock=clock) as host:
        result = host.run(paid, run_id="r")
        assert [w.node for w in result.waits] == ["n2"] and spent(host, "r") == {"seconds": "80.000"}
        assert len(of(host, "r", Trigger.COST_THRESHOLD)) == 1
        clock.advance(timedelta(days=3))
        host.answer(result.waits[0].id, {"approved": True})
        assert host.resume("r", paid).status is Status.COMPLETED
        assert spent(host, "r") == {"seconds": "120.000"}


def test_a_fork_has_spent_what_its_base_had(host: Host) -> None:
    paid = spendthrift()
    wait = host.run(paid, run_id="r").waits[0]
    fork = host.fork("r", fork_id="f")
    result = host.resume(fork.run_id, paid)
    assert result.status is Status.HALTED and result.waits[0].context["spent"] == "5.00"
    assert result.waits[0].id != wait.id


def test_budgets_that_change_hold_from_the_next_resume_on(host: Host) -> None:
    host.run(spendthrift(), run_id="r")
    richer = flow(*(call(f"n{k}", usd="2.50") for k in range(5)), budgets={"usd": "500"})
    wait = host.waits("r")[0]
    host.answer(wait.id, {"approved": True})
    assert host.resume("r", richer).status is Status.COMPLETED


def test_two_budgets_ask_one_after_the_other(host: Host) -> None:
    paid = flow(call("a", usd=1, tokens=10), call("b", usd=1), budgets={"usd": 1, "tokens": 10})
    result = host.run(paid, run_id="r")
    asked = []
    while result.status is Status.HALTED:
        asked.append(result.waits[0].context["budget"])
        host.answer(result.waits[0].id, {"approved": True})
        result = host.resume("r", paid)
    assert asked == ["usd", "tokens"] and result.status is Status.COMPLETED


def test_where_no_person_can_be_asked_the_run_fails_by_name(host: Host) -> None:
    result = host.run(spendthrift(durability="off"))
    assert result.status is Status.FAILED
    assert result.error is not None and result.error.code == "budget.exceeded"


@pytest.mark.parametrize(
    "amounts",
    [
        {"usd": -1},
        {"usd": "-0.01"},
        {"usd": float("nan")},
        {"usd": "inf"},
        {"usd": True},
        {"usd": None},
        {"usd": "one"},
        {"usd": "1e-30"},
        {"usd": 10**30},
        {"eur": 1},
        {"token": 1},
        {"seconds": 1},
        {"US$": 1},
        {},
    ],
)
def test_amounts_that_mean_nothing_are_refused_and_nothing_is_counted(
    host: Host, amounts: dict[str, Any]
) -> None:
    paid = flow(call("a", **amounts), budgets={"usd": 5, "tokens": 10})
    result = host.run(paid, run_id="r")
    assert result.status is Status.FAILED
    assert result.error is not None and result.error.code == "request.invalid"
    assert spent(host, "r") == {}


def test_what_has_no_budget_is_only_counted(host: Host) -> None:
    host.run(flow(call("a", calls=1, usd=1), budgets={"usd": 5}), run_id="r")
    assert spent(host, "r") == {"calls": "1", "usd": "1"}


@pytest.mark.parametrize(
    "budgets",
    [
        {"usd": 0},
        {"usd": -5},
        {"usd": "NaN"},
        {"seconds": "fast"},
        {"": 5},
        "usd",
        5,
        [("usd", 5)],
        [Budget("usd", 1), Budget("usd", 2)],
    ],
)
def test_budgets_that_mean_nothing_are_refused(budgets: Any) -> None:
    with pytest.raises(BadRequest):
        Flow("f", [call("a", usd=1)], budgets=budgets)


@pytest.mark.parametrize("warn_at", [0, -1, 1.5, "most"])
def test_a_share_that_means_nothing_is_refused(warn_at: Any) -> None:
    with pytest.raises(BadRequest):
        Budget("usd", 1, warn_at=warn_at)


@pytest.mark.parametrize(
    "durability",
    [
        Durability("partial"),
        Durability("strong", flush="before_effects"),
        Durability("strong", interval=timedelta(milliseconds=1)),
        Durability("strong", on_store_failure="best_effort"),
    ],
)
@pytest.mark.parametrize("budgets", [{}, {"usd": 10}])
def test_what_is_spent_is_written_at_once_however_the_flow_is_kept(
    host: Host, durability: Durability, budgets: dict[str, Any]
) -> None:
    seen: list[int] = []

    @node(output="early")
    def early() -> int:
        return 1

    @node(output="late")
    def late(early: int, ctx: Context) -> int:
        ctx.spend(usd=1)
        seen.append(len(host.history("r")))
        ctx.spend(usd=1)
        seen.append(len(host.history("r")))
        return 1

    host.run(Flow("f", [early, late], durability=durability, budgets=budgets), run_id="r")
    assert seen[1] == seen[0] + 1 and seen[0] >= 2
    assert spent(host, "r") == {"usd": "2"}


def test_a_thread_that_is_no_longer_awaited_has_spent_too(host: Host) -> None:
    go_on, is_counted = threading.Event(), threading.Event()

    @node(output="out", retry=Retry(1, first=0), timeout=0.05)
    def slow(ctx: Context) -> int:
        if ctx.attempt == 1:
            go_on.wait(20)
            ctx.spend(usd=7)
            is_counted.set()
        else:
            go_on.set()
            ctx.heartbeat()
            is_counted.wait(20)
        return 1

    slow_flow = Flow("slow", [slow], budgets={"usd": 10})
    host.run(slow_flow, run_id="r")
    assert spent(host, "r") == {"usd": "7"}
    assert [s.decision for r in host.history("r") for s in r.steps if s.path == "@spent"] == [("slow",)]


def test_a_caller_that_spends_after_the_run_was_cancelled_is_told(host: Host) -> None:
    told: list[BaseException] = []
    is_over, is_told = threading.Event(), threading.Event()

    @node(output="out")
    def stubborn(ctx: Context) -> int:
        def later() -> None:
            is_over.wait(20)
            try:
                ctx.spend(usd=1)
            except LeaseLost as error:
                told.append(error)
            is_told.set()

        threading.Thread(target=later).start()
        ctx.cancel("enough")

    assert host.run(Flow("f", [stubborn], budgets={"usd": 5}), run_id="r").status is Status.CANCELLED
    is_over.set()
    assert is_told.wait(20) and len(told) == 1


def test_an_effect_that_never_reported_is_still_asked_about_after_a_budget_was(host: Host) -> None:
    dies = [True]

    @node(output="sent", effects="effectful", idempotency_key="auto", on_unknown="stop")
    def send(ctx: Context) -> str:
        ctx.spend(usd=5)
        if dies[0]:
            raise KeyboardInterrupt
        return "sent"

    paid = Flow("f", [send], budgets={"usd": 5})
    with pytest.raises(KeyboardInterrupt):
        host.run(paid, run_id="r")
    dies[0] = False
    (wait,) = host.resume("r", paid).waits
    assert wait.kind == "approval"
    host.answer(wait.id, {"approved": True, "raise_by": 20})
    (wait,) = host.resume("r", paid).waits
    assert wait.kind == "settle"
    host.waiting.settle("r", "send", rerun=True)
    assert host.resume("r", paid)["sent"] == "sent" and spent(host, "r") == {"usd": "10"}


def test_a_task_that_is_held_back_keeps_its_arguments(host: Host) -> None:
    @node(output="seen")
    def note(x: int) -> int:
        return x

    @node(output="started")
    def start(ctx: Context) -> int:
        ctx.spend(usd=1)
        ctx.next_task("note", x=42)
        return 1

    paid = Flow("f", [start], tasks=[note], budgets={"usd": 1})
    (wait,) = host.run(paid, run_id="r").waits
    assert wait.node == "note"
    host.answer(wait.id, {"approved": True})
    assert host.resume("r", paid)["seen"] == 42


def test_a_joined_group_is_asked_for_once(host: Host) -> None:
    branches = [call(f"b{k}", usd=1) for k in range(4)]
    paid = Flow(
        "f", chain(call("first", usd=3), parallel(*branches), call("last", usd=1)), budgets={"usd": 3}
    )
    result = host.run(paid, run_id="r")
    assert len(result.waits) == 1
    host.answer(result.waits[0].id, {"approved": True, "raise_by": 100})
    assert host.resume("r", paid).status is Status.COMPLETED and spent(host, "r") == {"usd": "8"}
