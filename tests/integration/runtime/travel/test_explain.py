"""What is said of a run before it is resumed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from everstep import AsyncHost, Flow, Host, Retry, node, wait
from everstep.cli.commands.travel.explain import write
from everstep.engine.keys import automatic_key
from everstep.ports.store import StopRequest
from everstep.results import Event
from everstep.testing.clock import ManualClock


@node(output="a", persist="no")
def fleeting(x: int) -> int:
    return x + 1


@node(output="b")
def kept(a: int) -> int:
    return a * 2


@node(output="c", effects="effectful", idempotency_key="auto")
def send(b: int, a: int) -> int:
    raise KeyboardInterrupt


FLOW = Flow("f", [fleeting, kept, send], durability="strong")


def begun(host: Host) -> None:
    with pytest.raises(KeyboardInterrupt):
        host.run(FLOW, {"x": 1}, run_id="r")


def test_what_is_recorded_is_skipped_and_what_was_not_kept_is_made_again(host: Host) -> None:
    begun(host)
    told = host.explain("r", FLOW)
    assert [(s.path, s.visits, s.outputs) for s in told.recorded] == [("kept", 1, ("b",))]
    assert told.remade == ("fleeting",)
    [step] = told.starts
    assert (step.path, step.visit, step.attempt, step.effects) == ("send", 1, 1, "effectful")
    assert step.key == automatic_key("r", "send", 1)
    assert told.can_lose == "no finished step"


def test_an_effect_may_repeat_unless_its_owner_gave_the_run_back(host: Host) -> None:
    begun(host)
    assert host.explain("r", FLOW).may_repeat == ()
    host._lanes.call(lambda opened: opened._runs.resting.claim("r", FLOW.durability, waits=False))
    told = host.explain("r", FLOW)
    assert [step.path for step in told.may_repeat] == ["send"]
    assert told.is_driven


def test_a_halted_run_tells_what_is_made_again_once_it_goes_on(host: Host) -> None:
    reader = kept.with_name("reader").with_outputs("c")
    flow = Flow("f", [fleeting, kept >> wait.approval("ok") >> reader])
    host.run(flow, {"x": 1}, run_id="r")
    told = host.explain("r", flow)
    assert told.remade == ("fleeting",)
    assert [step.path for step in told.recorded] == ["kept"]


def test_a_value_that_was_not_kept_and_no_node_reads_any_more_is_not_made_again(host: Host) -> None:
    flow = Flow("f", [fleeting, kept >> wait.approval("ok")])
    host.run(flow, {"x": 1}, run_id="r")
    told = host.explain("r", flow)
    assert (told.remade, [step.path for step in told.recorded]) == ((), ["fleeting", "kept"])


def test_an_effect_inside_an_atomic_flow_that_was_begun_may_repeat(host: Host) -> None:
    inner = Flow("m", [kept, send.with_inputs(a="b")]).as_node(durability="atomic").lift("c")
    flow = Flow("f", [node(output="a")(fleeting.fn), inner])
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": 1}, run_id="r")
    assert host.explain("r", flow).may_repeat == ()
    host._lanes.call(lambda opened: opened._runs.resting.claim("r", flow.durability, waits=False))
    told = host.explain("r", flow)
    assert [(step.path, step.effects) for step in told.may_repeat] == [
        ("m/kept", "undeclared"),
        ("m/send", "effectful"),
    ]


def test_an_effect_whose_inputs_are_not_durable_cannot_have_been_made(host: Host) -> None:
    flow = Flow("f", [kept.with_inputs(a="x"), send.with_inputs(a="b")])
    host.start(flow, {"x": 1}, run_id="r")
    host._lanes.call(lambda opened: opened._runs.resting.claim("r", flow.durability, waits=False))
    assert [step.path for step in host.explain("r", flow).may_repeat] == ["kept"]


def test_a_pause_between_attempts_is_told() -> None:
    asyncio.run(_explain_a_pause())


async def _explain_a_pause() -> None:
    clock, failed = ManualClock(), asyncio.Event()

    @node(output="y", retry=Retry(3, first=60, jitter=0), effects="effectful", idempotency_key="auto")
    async def flaky(x: int) -> int:
        raise ConnectionError

    flow = Flow("f", [flaky], durability="strong")
    async with AsyncHost("memory:", clock=clock, on_event=lambda e: _note(e, failed)) as host:
        driving = asyncio.create_task(host.run(flow, {"x": 1}, run_id="r"))
        await failed.wait()
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        told = await host.explain("r", flow)
    [step] = told.pending
    assert (step.path, step.attempt, step.may_repeat) == ("flaky", 2, True)
    assert step.not_before == clock.now() + timedelta(seconds=60)
    assert told.starts == ()


def _note(event: Event, failed: asyncio.Event) -> None:
    if event.kind == "checkpoint" and event.data["trigger"] == "retry":
        failed.set()


def test_a_failed_run_starts_again_where_it_failed(host: Host) -> None:
    @node(output="y")
    def bad(x: int) -> int:
        raise ValueError

    flow = Flow("f", [fleeting, bad], durability="strong")
    host.run(flow, {"x": 1}, run_id="r")
    told = host.explain("r", flow)
    assert [step.path for step in told.recorded] == ["fleeting"]
    assert [(s.path, s.visit, s.may_repeat) for s in told.starts] == [("bad", 1, True)]


def test_what_is_waited_for_and_what_a_host_lacks_is_told(host: Host) -> None:
    flow = Flow("f", [wait.approval("ask")], durability="strong")
    host.run(flow, run_id="r")
    told = host.explain("r", flow)
    assert [(w.path, w.kind, w.status) for w in told.waits] == [("ask", "approval", "open")]
    assert told.starts == told.pending == ()
    notified = Flow("f", [wait.approval("ask", notify="finance")], durability="strong")
    [missing] = host.explain("r", notified).missing
    assert "finance" in missing


def test_a_completed_run_has_nothing_left_to_do(host: Host) -> None:
    flow = Flow("f", [fleeting, kept])
    host.run(flow, {"x": 1}, run_id="r")
    told = host.explain("r", flow)
    assert (told.status, told.starts, told.pending, told.can_lose) == ("completed", (), (), "")


def test_a_changed_flow_is_explained_as_it_would_go_on(host: Host) -> None:
    begun(host)
    changed = Flow("f", [fleeting, kept.with_inputs(a="x"), send])
    told = host.explain("r", changed)
    assert told.compat.verdict == "needs_migration" and told.compat.nodes == ("kept",)
    assert told.starts == ()


def test_a_run_that_is_being_cancelled_only_ends(host: Host) -> None:
    begun(host)
    host._lanes.call(lambda opened: opened._services.store.request_stop("r", StopRequest.CANCEL))
    told = host.explain("r", FLOW)
    assert (told.is_cancelling, told.starts, told.pending, told.may_repeat) == (True, (), (), ())
    assert host.resume("r", FLOW).status == "cancelled"


@pytest.mark.parametrize("effects", [None, "effectful"])
def test_what_declares_no_effects_is_not_called_one(capsys: pytest.CaptureFixture[str], effects: Any) -> None:
    options = {"effects": effects, "idempotency_key": "auto"} if effects else {}

    @node(output="a", **options)
    def fails() -> int:
        raise ValueError

    flow = Flow("f", [fails])
    with Host("memory:") as host:
        host.run(flow, run_id="A")
        write(host.explain("A", flow))
    said = "1 effect may happen" if effects else "1 step without declared effects may run"
    assert said in capsys.readouterr().out


@node(output="total")
def summed(xs: list[int]) -> int:
    return sum(xs)


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_an_answer_is_explained_with_what_was_decided_and_what_follows(
    host: Host, decision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @node(output="told")
    def tell(approve: wait.ApprovalOutput) -> bool:
        return approve.approved

    flow = Flow("pay", [summed, wait.approval("approve", context="total", prompt="Pay?"), tell])
    host.run(flow, {"xs": [1]}, run_id="r")
    [asked] = host.explain("r", flow).waits
    assert (asked.outcome, asked.settled_by, asked.then) == (None, None, ("tell",))
    host.answer(host.waits("r")[0].id, {"approved": decision == "approved"})
    told = host.explain("r", flow)
    assert (told.waits[0].outcome, told.waits[0].then) == (decision, ("tell",))
    write(told)
    assert f"approve  approval, {decision}; then tell" in capsys.readouterr().out


def test_items_of_a_map_that_are_recorded_are_counted(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    @node(output="y")
    def halve(x: int) -> float:
        return 1 / x

    each = halve.map_over("x", max_concurrency=1).with_inputs(x="xs").with_outputs(y="ys")
    flow = Flow("halves", [each], durability="strong")
    host.run(flow, {"xs": [1, 2, 0, 4]}, run_id="r")
    told = host.explain("r", flow)
    [skipped] = told.recorded
    assert (skipped.path, skipped.items, skipped.of_items) == ("halve", 2, 4)
    assert [step.path for step in told.starts] == ["halve#2"]
    write(told)
    assert "halve  2 of 4 items" in capsys.readouterr().out


@node(output="price")
def price(sku: str) -> int:
    if sku == "bad":
        raise ValueError
    return len(sku)


@node(output="skus")
def load(names: list[str]) -> list[str]:
    return list(names)


@node(output="total")
def add_up(prices: list[int]) -> int:
    return sum(prices)


PRICES = price.map_over("sku", max_concurrency=1).with_inputs(sku="skus").with_outputs("prices")
SHOP = Flow("shop", [load, PRICES, add_up], durability="strong")


def test_an_item_that_was_edited_has_the_type_of_an_item(host: Host) -> None:
    host.run(SHOP, {"names": ["a", "bad", "c"]}, run_id="r")
    host.fork("r", state={"price#1/sku": "bb"}, fork_id="fits")
    host.fork("r", state={"price#1/sku": ["bb"]}, fork_id="list")
    assert host.explain("fits", SHOP).compat.warnings == ()
    assert host.explain("list", SHOP).compat.warnings == (
        "'sku' was recorded as list, but 'price#1' wants str.",
    )
    assert host.resume("fits", SHOP)["total"] == 4


def test_what_a_map_goes_over_has_the_type_of_a_list(host: Host) -> None:
    host.run(SHOP, {"names": ["bad"]}, run_id="r")
    host.fork("r", state={"skus": "bb"}, fork_id="text")
    [warning] = host.explain("text", SHOP).compat.warnings
    assert warning.startswith("'skus' was recorded as str, but 'price' wants list[str]")


def test_a_map_that_an_edit_begins_anew_is_not_skipped_nor_what_it_follows_from(host: Host) -> None:
    host.run(SHOP, {"names": ["a", "bad", "c"]}, run_id="r")
    assert [(s.path, s.items) for s in host.explain("r", SHOP).recorded] == [("load", None), ("price", 1)]
    host.fork("r", inputs={"names": ["a", "b", "c"]}, fork_id="f")
    told = host.explain("f", SHOP)
    assert told.recorded == ()
    assert [(s.path, s.visit) for s in (*told.starts, *told.pending)] == [("load", 2), ("price", 2)]


def test_what_follows_from_an_edited_value_is_not_skipped(host: Host) -> None:
    double = kept.with_inputs(a="total")
    flow = Flow("shop", [load, PRICES, add_up, double], durability="strong")
    host.run(flow, {"names": ["a", "b"]}, run_id="r")
    assert len(host.explain("r", flow).recorded) == 4, "nothing of a run that is over runs again"
    host.fork("r", state={"prices": [5]}, fork_id="f")
    told = host.explain("f", flow)
    assert [step.path for step in told.recorded] == ["load", "price"]
    assert [(s.path, s.visit) for s in told.starts] == [("add_up", 2)]
