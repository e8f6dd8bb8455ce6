"""Flows of every shape that several tests of the simulation try."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from everstep import (
    END,
    AsyncContext,
    Chunk,
    Context,
    Durability,
    Flow,
    Retry,
    chain,
    ifelse,
    node,
    parallel,
    wait,
)
from everstep.errors import WaitTimeout
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


@node(output="order")
def take_and_tell(customer: str, ctx: Context) -> str:
    ctx.set_attribute("customer", customer)
    ctx.set_attribute("visits", 1)
    return f"order of {customer}"


@node(output="thanks")
def thank_and_tell(order: str, ctx: Context) -> str:
    ctx.set_attribute("visits", 2)
    return f"thanks for the {order}"


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


@node(output="thought")
async def think_later(order: str, ctx: Context) -> str:
    for part in range(3):
        spent = ctx.spend(usd=Decimal("0.01") * 2**part)
        if part:
            await spent
    return order.upper()


@node(output="words")
def list_words(text: str, ctx: Context) -> list[str]:
    ctx.channel.prepend("texts", text * 10)
    ctx.channel.atomic_add("number", 10**30)
    return text.split()


@node(output="found", replayable=True, keep_every=1)
def find(length: list[int], ctx: Context) -> Iterator[Any]:
    for k in range(int(ctx.cursor or 0), 3):
        yield Chunk(f"{length[k]} " * 40, str(k + 1))


@node(output="report")
def report(found: list[str], ctx: Context) -> int:
    ctx.channel.prepend("texts", found[0])
    ctx.channel.atomic_add("number", 10**30)
    return len(ctx.channel["texts"])


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


@node(output="rows")
def add_row(rows: list[int]) -> list[int]:
    return [*rows, len(rows)]


@ifelse(when_true="add_row", when_false=END)
def are_few(rows: list[int]) -> bool:
    return len(rows) < 4


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


@node(output="told")
def echo(answer: str) -> str:
    return answer.upper()


def look_up(what: object, idempotency_key: str = "") -> str:
    return f"what is known of {what}"


async def look_up_soon(what: str) -> str:
    return f"what is known of {what}"


def refuse(what: str) -> str:
    raise LookupError(f"nothing is known of {what}")


async def refuse_soon(what: str) -> str:
    raise LookupError(f"nothing is known of {what}")


@node(output="answer")
def ask_in_turn(question: str, ctx: Context) -> str:
    found = [ctx.step("look", look_up, f"{question} {n}") for n in range(3)]
    note = ctx.step("note", look_up, "notes", effects="pure")
    try:
        found.append(ctx.step("refuse", refuse, question))
    except LookupError as error:
        found.append(f"{type(error).__name__}: {error}")
    return "; ".join([*found, note])


@node(output="answer")
async def ask_at_once(question: str, ctx: AsyncContext) -> str:
    found = await asyncio.gather(
        *(ctx.step("look", look_up_soon, f"{question} {n}", key=n) for n in range(5))
    )
    try:
        await ctx.step("refuse", refuse_soon, question, retry=Retry(1, first=1, jitter=0))
    except LookupError as error:
        found.append(f"{type(error).__name__}: {error}")
    return "; ".join([*found, await ctx.step("sync", look_up, "more")])


@node(output="answer", retry=AT_ONCE)
def ask_until_well(question: str, ctx: Context) -> str:
    found = ctx.step("look", look_up, question)
    if ctx.attempt < 3:
        raise RuntimeError("not yet")
    return f"{found}, {ctx.step('more', look_up, found)}"


@node(output="answer", halts=True)
def ask_a_person(question: str, ctx: Context) -> str:
    found = ctx.step("look", look_up, question)
    ok = ctx.wait(wait.approval("ok", context=found, timeout="1d"))
    ctx.sleep("2h")
    try:
        said = ctx.wait(wait.question("why", kind="text", prompt="why", timeout="1h"))
    except WaitTimeout as error:
        said = type(error).__name__
    return f"{ctx.step('more', look_up, ok.approved)}, {said}"


@node(output="answer", halts=True)
async def ask_people(question: str, ctx: AsyncContext) -> str:
    async def one(n: int) -> str:
        found = await ctx.step("look", look_up_soon, f"{question} {n}", key=n)
        if n == 1:
            await ctx.sleep("2h")
        return found

    found = await asyncio.gather(*map(one, range(3)))
    ok = await ctx.wait(wait.approval("ok", context=found[0]))
    return f"{found}, {ok.approved}, {await ctx.step('more', look_up_soon, 'more')}"


@node(output="answer")
def ask_within_a_budget(question: str, ctx: Context) -> str:
    found = []
    for n in range(4):
        found.append(ctx.step("look", look_up, f"{question} {n}"))
        if len(found) == 2 and ctx.step("paid", look_up, "paid", effects="pure"):
            ctx.step("spend", partial(spend_all, ctx))
    return "; ".join(found)


def spend_all(ctx: Context) -> None:
    ctx.spend(usd=100)


@node(output="length")
def measure_by_steps(word: str, ctx: Context) -> int:
    return len(ctx.step("look", look_up, word)) + len(ctx.step("more", look_up, word))


@node(name="grow", output="count")
def grow_by_steps(count: int, ctx: Context) -> int:
    return count + int(ctx.step("look", look_up, count) == f"what is known of {count}")


NOTIFIED = wait.approval("ok", context="price", notify="team")
WORDS = {"text": "a bb ccc"}


def give_back(order: str, receipt: str, idempotency_key: str) -> None:
    """Undo a charge."""


def unpack(n: int, half: int) -> None:
    """Undo an item."""


@node(output="receipt", undo=give_back, retry=AT_ONCE)
def charge_undoably(order: str) -> str:
    return f"{order} paid"


@node(output="half", undo=node(retry=AT_ONCE)(unpack))
def halve_undoably(n: int) -> int:
    return n // 2


@node(output="total")
def fail_in_the_end(receipt: str, half: list[int]) -> int:
    raise ValueError("no box")


def forget(what: str, result: str, idempotency_key: str) -> None:
    """Undo a look."""


@node(output="found")
def look_undoably(question: str, ctx: Context) -> list[str]:
    return [ctx.step("look", look_up, what, undo=forget) for what in (question, "more")]


@node(output="total")
def fail_behind(found: list[str]) -> int:
    raise ValueError("no use")


@node(output="total")
def fail_after_labels(label: list[str]) -> int:
    raise ValueError("no box")


def unlabel(customer: str, label: str) -> None:
    """Undo what an atomic flow did."""


@node(output="price", effects="effectful", idempotency_key="auto")
def weigh(customer: str) -> int:
    return len(customer)


@node(output="label", effects="effectful", idempotency_key="auto", retry=AT_ONCE)
def print_label(price: int) -> str:
    return f"label {price}"


LABELLING = Flow("labelling", [weigh, print_label]).as_node(durability="atomic", undo=unlabel).lift("label")
LABELLED = [LABELLING.with_inputs(customer="customers").map_over("customer"), fail_after_labels]
UNDONE = [take, charge_undoably, halve_undoably.with_inputs(n="numbers").map_over("n"), fail_in_the_end]

SUBJECTS = {
    "undone": Subject(Flow("undone", UNDONE), {"customer": "ada", "numbers": [2, 4]}, {}),
    "undone calls": Subject(Flow("undone-calls", [look_undoably, fail_behind]), {"question": "why"}, {}),
    "undone atomic": Subject(Flow("undone-atomic", LABELLED), {"customers": ["ada", "bob"]}, {}),
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
    "spending on a loop": Subject(Flow("thinking-later", [take, think_later]), {"customer": "ada"}, {}),
    "aside": Subject(
        Flow(
            "aside",
            [list_words, measure.with_inputs(word="words").map_over("word"), find, report],
            durability=Durability("strong", blob_threshold=1),
        ),
        WORDS,
        {},
    ),
    "map": Subject(Flow("map", [split, measure.with_inputs(word="words").map_over("word"), add]), WORDS, {}),
    "loop": Subject(Flow("loop", [grow, is_enough], entry="grow"), {"count": 0}, {}),
    "growing": Subject(
        Flow("growing", [add_row, are_few], entry="add_row", durability="strong"), {"rows": []}, {}
    ),
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
    "steps in turn": Subject(Flow("turns", [ask_in_turn, echo]), {"question": "why"}, {}),
    "steps at once": Subject(Flow("gathers", [ask_at_once, echo]), {"question": "why"}, {}),
    "steps kept by a retry": Subject(Flow("tries", [ask_until_well, echo]), {"question": "why"}, {}),
    "steps in a loop": Subject(Flow("rounds", [grow_by_steps, is_enough], entry="grow"), {"count": 0}, {}),
    "waits inside": Subject(
        Flow("waits-inside", [ask_a_person, echo]), {"question": "why"}, {"ok": {"approved": True}}
    ),
    "waits inside at once": Subject(
        Flow("waits-at-once", [ask_people, echo]), {"question": "why"}, {"ask_people/$ok": {"approved": True}}
    ),
    "steps held by a budget": Subject(
        Flow("held", [ask_within_a_budget, echo], budgets={"usd": 100}),
        {"question": "why"},
        {"ask_within_a_budget": {"approved": True, "raise_by": "500"}},
    ),
    "steps in items": Subject(
        Flow("items", [split, measure_by_steps.with_inputs(word="words").map_over("word"), add]), WORDS, {}
    ),
    "attributes": Subject(Flow("attributes", [take_and_tell, thank_and_tell]), {"customer": "ada"}, {}),
    "best effort": Subject(
        Flow("best-effort", FIVE, durability=Durability("strong", on_store_failure="best_effort")),
        {"customer": "ada"},
        {},
    ),
}
STORES = ("local", "remote", "awaited")
