"""Halt nodes that users write: what they return, and what an answer becomes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from everstep import Context, Flow, Host, node, wait
from everstep.errors import AnswerInvalid, ServiceMissing
from everstep.testing.clock import START, ManualClock
from everstep.wait import Wait


@dataclass
class Payment:
    amount: int
    by: str = "card"


class Parcel(msgspec.Struct):
    weight: float
    sent_on: date | None = None


class Order(pydantic.BaseModel):
    name: str
    count: int = 1


def test_a_node_of_ones_own_waits_and_its_output_is_the_answer(host: Host, clock: ManualClock) -> None:
    @node(output="colour", halts=True)
    def ask(names: list[str], ctx: Context) -> Wait:
        return Wait(kind="paint", context=names, prompt=f"visit {ctx.visit}", options=names, timeout="2h")

    flow = Flow("f", [ask])
    [opened] = host.run(flow, {"names": ["red", "blue"]}, run_id="r").waits
    assert (opened.kind, opened.context, opened.prompt) == ("paint", ["red", "blue"], "visit 1")
    assert opened.due_at == START + timedelta(hours=2)
    with pytest.raises(AnswerInvalid):
        host.answer(opened.token or "", "green")
    host.answer(opened.token or "", "blue")
    assert host.resume("r", flow)["colour"] == "blue"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_that_may_wait_may_also_answer_at_once(host: Host, is_async: bool) -> None:
    def charge(amount: int) -> Payment | Wait:
        return Wait(context=amount) if amount > 10 else Payment(amount)

    async def charge_async(amount: int) -> Payment | Wait:
        return charge(amount)

    paid = node(output="paid", name="charge", halts=True)(charge_async if is_async else charge)
    flow = Flow("f", [paid])
    assert host.run(flow, {"amount": 5})["paid"] == Payment(5)
    [opened] = host.run(flow, {"amount": 50}, run_id="r").waits
    with pytest.raises(AnswerInvalid):
        host.answer(opened.token or "", {"amount": "much"})
    host.answer(opened.token or "", {"amount": 50, "by": "cash"})
    assert host.resume("r", flow)["paid"] == Payment(50, "cash")


SHAPES: list[tuple[Any, Any, Any, Any]] = [
    (Payment, {"amount": 3}, Payment(3), {"amount": None}),
    (Parcel, {"weight": 1.5}, Parcel(1.5), {"weight": "heavy"}),
    (
        Parcel,
        {"weight": 1, "sent_on": "2030-01-31"},
        Parcel(1.0, date(2030, 1, 31)),
        {"weight": 1, "sent_on": "yesterday"},
    ),
    (Order, {"name": "tea"}, Order(name="tea"), {"count": 1}),
    (list[Payment], [{"amount": 1}], [Payment(1)], [{"by": "card"}]),
    (dict[str, Parcel], {"a": {"weight": 2}}, {"a": Parcel(2.0)}, {"a": 2}),
    (int, 4, 4, "4"),
    (bool, False, False, 0),
    (str | None, None, None, 1),
]


@pytest.mark.parametrize(("kind", "answer", "expected", "wrong"), SHAPES)
@pytest.mark.parametrize("way", ["annotation", "question", "callback"])
def test_an_answer_becomes_what_its_node_asks_for(
    host: Host, way: str, kind: Any, answer: Any, expected: Any, wrong: Any
) -> None:
    def ask() -> Any:
        return Wait()

    if way == "annotation":
        ask.__annotations__["return"] = kind | Wait
        asked = node(output="got", name="ask", halts=True)(ask)
    elif way == "question":
        asked = wait.question("ask", kind="text", answer_type=kind, output="got")
    else:
        asked = wait.callback("ask", answer_type=kind, output="got")

    @node(output="seen")
    def look(got: Any) -> str:
        value = got.payload if way == "callback" else got
        return f"{type(value).__name__} {value == expected}"

    flow = Flow("f", [asked, look])
    [opened] = host.run(flow, run_id="r").waits
    with pytest.raises(AnswerInvalid):
        host.answer(opened.token or "", wrong)
    host.answer(opened.token or "", answer)
    assert host.resume("r", flow)["seen"] == f"{type(expected).__name__} True"


def test_a_default_of_any_type_is_given_when_the_time_is_over(host: Host, clock: ManualClock) -> None:
    @node(output="paid", halts=True)
    def charge() -> Payment | Wait:
        return Wait(timeout="1h", default=Payment(0, "unknown"))

    flow = Flow("f", [charge])
    assert host.run(flow, run_id="r").status == "halted"
    clock.advance(3600)
    assert host.resume("r", flow)["paid"] == Payment(0, "unknown")


def test_a_wait_with_two_times_or_one_that_is_no_time_fails_its_node(host: Host) -> None:
    asked: list[Wait] = []

    @node(halts=True)
    def ask() -> Wait:
        return asked[0]

    for given in (
        Wait(timeout="1h", until=START),
        Wait(timeout="soon"),
        Wait(until=datetime(2030, 1, 1)),
        Wait(timeout=timedelta(seconds=-1)),
        Wait(scheduler="cron"),
        Wait(notify="slack"),
        Wait(context=object),
        Wait(payload=lambda: 1),
    ):
        asked[:] = [given]
        result = host.run(Flow("f", [ask]))
        assert result.status == "failed", given
        assert result.waits == []
    assert host.waits() == []


def test_a_node_that_returns_a_wait_without_saying_that_it_halts_fails(host: Host) -> None:
    @node(output="x")
    def ask() -> Any:
        return Wait()

    result = host.run(Flow("f", [ask]))
    assert result.error is not None
    assert (result.error.type, result.status) == ("OutputError", "failed")


def test_a_node_cannot_wait_and_ask_for_more_at_once(host: Host) -> None:
    @node(halts=True)
    def ask(x: int, ctx: Context) -> Wait:
        if x == 1:
            ctx.terminate()
        else:
            ctx.next_iteration(x)
        return Wait()

    for x in (1, 2):
        result = host.run(Flow("f", [ask]), {"x": x})
        assert result.status == "failed"
        assert result.error is not None
        assert result.error.type == "BadRequest"
    assert host.waits() == []


def test_a_wait_of_ones_own_until_a_moment(host: Host, clock: ManualClock) -> None:
    @node(output="woken", halts=True)
    def ask() -> Wait:
        return Wait(until=START + timedelta(hours=1), default="the clock")

    flow = Flow("f", [ask])
    host.run(flow, run_id="r")
    clock.advance(3600)
    assert host.resume("r", flow)["woken"] == "the clock"


def test_a_halt_node_with_several_outputs_takes_a_list(host: Host) -> None:
    @node(output=("first", "second"), halts=True)
    def ask() -> Wait:
        return Wait()

    flow = Flow("f", [ask])
    [opened] = host.run(flow, run_id="r").waits
    host.answer(opened.token or "", ["a", "b"])
    result = host.resume("r", flow)
    assert (result["first"], result["second"]) == ("a", "b")


def test_a_halt_node_keeps_its_idempotency_key_through_the_wait(host: Host) -> None:
    keys: list[str | None] = []

    @node(output="paid", halts=True, effects="effectful", idempotency_key="auto")
    def charge(ctx: Context) -> Wait:
        keys.append(ctx.idempotency_key)
        return Wait()

    flow = Flow("f", [charge])
    [opened] = host.run(flow, run_id="r").waits
    host.answer(opened.token or "", 1)
    host.resume("r", flow)
    steps = [s for c in host.history("r") for s in c.steps if s.path == "charge"]
    assert {s.key for s in steps if s.key} == set(keys)
    assert len(keys) == 1
    assert host.state("r").idempotency.consumed == {"charge": keys}


def test_what_a_halt_node_wrote_to_the_channel_and_read_is_kept(host: Host) -> None:
    @node(output="got", halts=True)
    def ask(items: list[int], ctx: Context) -> Wait:
        items.append(99)
        ctx.channel.set("asked", len(items))
        return Wait(context=items)

    @node(output="after")
    def use(got: str, items: list[int], ctx: Context) -> list[Any]:
        return [got, items, ctx.channel.get("asked")]

    flow = Flow("f", [ask, use])
    [opened] = host.run(flow, {"items": [1]}, run_id="r").waits
    assert opened.context == [1, 99]
    host.answer(opened.token or "", "x")
    assert host.resume("r", flow)["after"] == ["x", [1], 2]


def test_a_host_must_have_what_a_halt_node_requires(url: str) -> None:
    @node(halts=True, requires=["printer"])
    def ask() -> Wait:
        return Wait()

    flow = Flow("f", [ask])
    with Host(url) as host, pytest.raises(ServiceMissing, match="printer"):
        host.run(flow)
    with Host(url, provides=["printer"]) as host:
        assert host.run(flow).status == "halted"


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("not me")


@pytest.mark.parametrize(
    "asked",
    [Wait(options=5), Wait(notify=5), Wait(context="\ud800"), Wait(context=Shy())],  # type: ignore[arg-type]
    ids=["options", "notify", "half a character", "no repr"],
)
def test_a_node_that_asks_for_what_cannot_be_asked_fails_and_not_its_host(host: Host, asked: Wait) -> None:
    @node(output="said", halts=True)
    def ask() -> Wait:
        return asked

    result = host.run(Flow("f", [ask]), run_id="r")
    assert result.status == "failed"
    assert not host.waits("r")
