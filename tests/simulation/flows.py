"""Flows of every shape that several tests of the simulation try."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

from everstep import END, Context, Durability, Flow, Retry, chain, ifelse, node, parallel, wait
from everstep.testing.simulation import ITSELF
from everstep.testing.simulation.trial import FlowTrial

AT_ONCE = Retry(3, first=1, jitter=0)


class Subject(NamedTuple):
    """A flow, and what it is given."""

    flow: Flow
    inputs: dict[str, Any]
    answers: dict[str, Any]

    def trial(self, store: str = "local") -> FlowTrial:
        return FlowTrial(
            self.flow,
            self.inputs,
            answers=self.answers,
            doubles=ITSELF,
            is_remote=store == "remote",
            is_awaited=store == "awaited",
        )


@node(output="order")
def take(customer: str) -> str:
    return f"order of {customer}"


@node(output="price")
def price(order: str) -> int:
    return len(order)


@node(output="receipt", effects="effectful", idempotency_key="auto")
def charge(order: str, price: int) -> str:
    return f"{order}: {price} paid"


@node(output="parcel")
def pack(order: str, receipt: str) -> list[str]:
    return [order, receipt]


@node(output="thanks")
def thank(parcel: list[str]) -> str:
    return ", ".join(parcel)


@node(output="receipt", effects="effectful", idempotency_key="auto")
def charge_if_approved(price: int, ok: wait.ApprovalOutput, ctx: Context) -> str:
    return f"{price} paid, {ok.approved}"


@node(output="answer", retry=AT_ONCE)
def ask(order: str, ctx: Context) -> str:
    ctx.spend(usd=Decimal("0.01") * 2**ctx.attempt)
    if ctx.attempt == 1:
        raise ConnectionError("the first attempt always fails")
    return order.upper()


@node(output="thought")
def think(order: str, ctx: Context) -> str:
    for part in range(3):
        ctx.spend(usd=Decimal("0.01") * 2**part)
    return order.upper()


@node(output="words")
def split(text: str) -> list[str]:
    return text.split()


@node(output="length", effects="effectful", idempotency_key="auto")
async def measure(word: str, ctx: Context) -> int:
    return len(word)


@node(output="total")
def add(length: list[int]) -> int:
    return sum(length)


@node(output="count")
def grow(count: int) -> int:
    return count + 1


@ifelse(when_true=END, when_false="grow")
def is_enough(count: int) -> bool:
    return count >= 4


@node(output="left")
def go_left(x: int) -> int:
    return x - 1


@node(output="right")
def go_right(x: int) -> int:
    return x + 1


@node(output="sum")
def meet(left: int, right: int) -> int:
    return left + right


FIVE = [take, price, charge, pack, thank]
APPROVAL = wait.approval("ok", context="price", timeout="1h")
NOTIFIED = wait.approval("ok", context="price", notify="team")
WORDS = {"text": "a bb ccc"}

SUBJECTS = {
    "five": Subject(Flow("five", FIVE, durability="strong"), {"customer": "ada"}, {}),
    "partial": Subject(Flow("partial", FIVE), {"customer": "ada"}, {}),
    "interval": Subject(
        Flow("interval", FIVE, durability=Durability("strong", interval=2)), {"customer": "ada"}, {}
    ),
    "approved": Subject(
        Flow("approved", [take, price, APPROVAL, charge_if_approved], durability="strong"),
        {"customer": "ada"},
        {"ok": {"approved": True}},
    ),
    "notified": Subject(
        Flow("notified", [take, price, NOTIFIED, charge_if_approved]),
        {"customer": "ada"},
        {"ok": {"approved": True}},
    ),
    "timed out": Subject(
        Flow("timed-out", [take, price, APPROVAL, charge_if_approved]), {"customer": "ada"}, {}
    ),
    "spending": Subject(Flow("spending", [take, ask], budgets={"usd": 100}), {"customer": "ada"}, {}),
    "spending without budgets": Subject(Flow("thinking", [take, think]), {"customer": "ada"}, {}),
    "map": Subject(Flow("map", [split, measure.with_inputs(word="words").map_over("word"), add]), WORDS, {}),
    "loop": Subject(Flow("loop", [grow, is_enough], entry="grow"), {"count": 0}, {}),
    "branches": Subject(Flow("branches", [chain(parallel(go_left, go_right), meet)]), {"x": 7}, {}),
    "nested": Subject(
        Flow(
            "nested",
            [take, Flow("inner", [price, charge]).as_node().lift("receipt"), pack, thank],
            durability="strong",
        ),
        {"customer": "ada"},
        {},
    ),
    "atomic": Subject(
        Flow(
            "atomic",
            [take, Flow("inner", [price, charge]).as_node(durability="atomic").lift("receipt"), pack],
        ),
        {"customer": "ada"},
        {},
    ),
    "best effort": Subject(
        Flow("best-effort", FIVE, durability=Durability("strong", on_store_failure="best_effort")),
        {"customer": "ada"},
        {},
    ),
}
STORES = ("local", "remote", "awaited")
