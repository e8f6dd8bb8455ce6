"""Flows of many shapes, and runs of them in many states, for the console to show: a week in a shop.

The runs are made within a second, on a clock that is moved: nodes say how long they take.
"""

from __future__ import annotations

import logging
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from everstep import END, Breaker, Budget, Context, Flow, Host, Retry, ifelse, node, wait
from everstep.testing import ManualClock

WEEK = timedelta(days=6, hours=3)
log = logging.getLogger("shop")
_clocks: list[ManualClock] = []


def works(seconds: float) -> None:
    """Let a node take so long."""
    for clock in _clocks[-1:]:
        clock.advance(seconds)


@node(output="order")
def take(customer: str, items: list[str]) -> dict[str, Any]:
    works(0.4)
    return {"customer": customer, "items": items, "note": "please ring twice"}


@node(output="price")
def price(order: dict[str, Any], rate: int = 10) -> int:
    works(1.2)
    return rate * len(order["items"])


@node(output="receipt", effects="effectful", idempotency_key="auto", retry=Retry(2, first="4s"))
def charge(order: dict[str, Any], price: int, ctx: Context) -> str:
    works(2.5)
    log.warning("asking the bank for %d, attempt %d", price, ctx.attempt)
    if order["customer"] == "13":
        raise ValueError("the card of customer 13 was declined: insufficient funds")
    return f"{order['customer']}: {price} paid"


@node(output="parcel")
def pack(order: dict[str, Any], receipt: str, release: wait.ApprovalOutput) -> dict[str, Any]:
    works(14)
    return {"items": order["items"], "receipt": receipt, "released": release.approved}


release = wait.approval("release", context="order", prompt="Release this order?", timeout="9d")
orders = Flow("orders", [take, price, charge, release, pack], durability="strong", logs=True)


@node(output="row")
def read_row(line: int) -> dict[str, Any]:
    works(6.5 if line == 117 else 0.05 + line % 7 / 40)
    if line in (13, 113):
        raise ValueError(f"line {line} has no date")
    return {"line": line, "amount": line * 3 % 101}


@node(output="rows")
def split(file: str, many: int) -> list[int]:
    works(3)
    return list(range(many))


@node(output="table")
def total(all_rows: list[Any]) -> list[dict[str, Any]]:
    works(1)
    return [row for row in all_rows if isinstance(row, dict)][:40]


reading = Flow("read", [read_row]).as_node()
imports = Flow(
    "imports",
    [
        split,
        reading.map_over("line", on_error="collect", max_concurrency=1)
        .with_inputs(line="rows")
        .with_outputs(row="all_rows"),
        total,
    ],
    durability="strong",
)


@node(output="n")
def step(n: int) -> int:
    works(2)
    return n + 1


@ifelse(when_true="step", when_false=END)
def more(n: int, limit: int = 6) -> bool:
    works(0.2)
    return n < limit


count = Flow("count", [step, more], entry="step", durability="strong")


def search(question: str) -> str:
    works(3)
    return f"three pages on {question}"


@node(output="notes")
def look_up(question: str, ctx: Context) -> list[str]:
    return [ctx.step("search", search, f"{question}, part {k}") for k in (1, 2, 3)]


@node(output="sources")
def sort_out(notes: list[str]) -> list[str]:
    works(2)
    return sorted(notes)


research = Flow("research", [look_up, sort_out]).as_node()


@node(output="draft")
def write(question: str, sources: list[str], ctx: Context) -> str:
    works(21)
    ctx.spend(usd="0.90", tokens=12_000)
    return f"{question}: a draft from {len(sources)} sources"


@node(output="draft")
def shorten(draft: str, verdict: str, ctx: Context) -> str:
    works(9)
    ctx.spend(usd="0.60", tokens=7_000)
    return f"{draft}, {verdict}: shortened {ctx.visit} times"


@node(output="verdict")
def judge(draft: str, ctx: Context) -> str:
    works(8)
    ctx.spend(usd="0.25", tokens=3_000)
    return "good" if ctx.visit >= 3 else "too long"


@ifelse(when_true="publish", when_false="shorten")
def is_good(verdict: str) -> bool:
    return verdict == "good"


@node(output="messages")
def publish(question: str, draft: str) -> list[dict[str, str]]:
    works(1)
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": draft},
        {"role": "user", "content": "Thank you. And the sources?"},
        {"role": "assistant", "content": "They are at the end of the page."},
    ]


paper = Flow(
    "paper",
    [research, write, judge, is_good, shorten, publish],
    durability="strong",
    budgets=[Budget("usd", "5.00"), Budget("tokens", 60_000)],
)


@node(output="sent", effects="effectful", idempotency_key="auto", on_unknown="stop")
def transfer(amount: int) -> str:
    works(5)
    if amount == 13:
        raise KeyboardInterrupt  # stands for a process that dies here
    return f"sent {amount}"


transfers = Flow("transfers", [transfer], durability="strong")


@dataclass
class Offer:
    """What a supplier is asked for."""

    price: int
    size: Literal["small", "medium", "large"]
    by: str = ""
    express: bool = False
    weight: float | None = None


@node(output="offer", halts=True)
def ask(part: str) -> Offer | wait.Wait:
    return wait.Wait(kind="offer", prompt="What would it cost?", context={"part": part}, timeout="30d")


colour = wait.question("colour", options=["red", "blue", "green"], prompt="Which colour?", timeout="20d")
sign = wait.approval("sign", approvers=["ann", "bob", "cleo"], quorum=2, prompt="Sign this?", timeout="20d")
cool_down = wait.timer("cool_down", duration="12d")
stock = wait.signal("stock", timeout="20d")


@node(output="bought")
def buy(offer: Offer, colour: str, sign: wait.ApprovalOutput, stock: Any) -> str:
    return f"{colour} for {offer.price}"


buying = Flow("buying", [ask, colour, sign, cool_down, stock, buy], durability="strong")


@node(output="chart")
def draw(months: int) -> bytes:
    works(2)
    return png(160, 60, lambda x, y: 200 if y > 58 - (x * 7 % 41) else 30)


@node(output="summary")
def describe(chart: bytes, months: int) -> dict[str, Any]:
    works(0.5)
    return {
        "months": months,
        "text": "Sales rose. " * 400,
        "by_month": {str(k): {"sold": k * 7, "returned": k} for k in range(months)},
        "size": len(chart),
    }


charts = Flow("charts", [draw, describe], durability="strong")


@node(output="words")
async def say(text: str, ctx: Context) -> int:
    for word in text.split():
        ctx.emit("token", text=word)
        works(0.3)
    return len(text.split())


speech = Flow("speech", [say], durability="strong", streams=True)


@node(output="paid_back", retry=Retry(2, first="1s"))
def pay_back(amount: int) -> str:
    works(1)
    raise ConnectionError("the bank does not answer")


refunds = Flow(
    "refunds", [pay_back], durability="strong", breakers=[Breaker("bank", failures=3, shared=True)]
)


@node(output="digest")
def digest(text: str, ctx: Context) -> str:
    works(4)
    ctx.spend(usd="1.20")
    return text[:5]


@node(output="mailed")
def mail(digest: str) -> str:
    return f"mailed {digest}"


digests = Flow("digests", [digest, mail], durability="strong", budgets=[Budget("usd", "1.00")])
FLOWS = [refunds, digests, orders, imports, count, paper, transfers, buying, charts, speech]


def png(width: int, height: int, shade: Any) -> bytes:
    """Make a small grey image."""
    lines = b"".join(b"\0" + bytes(shade(x, y) for x in range(width)) for y in range(height))

    def chunk(kind: bytes, body: bytes) -> bytes:
        checked = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checked)

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    end = chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + end


def clock_of_last_week() -> ManualClock:
    """Return a clock that stands about a week ago, for runs that have come to their ends by now."""
    return ManualClock(datetime.now(UTC) - WEEK, auto=True)


def fill(host: Host, clock: ManualClock) -> None:
    """Put runs into a store: completed, failed, halted, forked, mapped, with calls inside a node."""
    _clocks.append(clock)
    try:
        _first_days(host, clock)
        _later(host, clock)
    finally:
        _clocks.pop()


def _first_days(host: Host, clock: ManualClock) -> None:
    host.run(orders, {"customer": "1", "items": ["tea", "cup"]}, run_id="A15", by="ann")
    clock.advance("2h")
    host.run(imports, {"file": "june.csv", "many": 60}, run_id="import-june")
    host.run(charts, {"months": 12}, run_id="chart-1")
    clock.advance("22h")
    host.answer(host.waits("A15")[0].id, {"approved": True, "comment": "fine"}, by="bob")
    host.resume("A15", orders)
    for run_id, rate in (("A16", 10), ("A18", 12)):
        host.run(
            orders,
            {"customer": "7", "items": ["lamp", "bulb", "cable"], "rate": rate},
            run_id=run_id,
            by="ann",
            tags=["vip"],
            attributes={"customer": "7"},
        )
        clock.advance("1d")
        host.answer(host.waits(run_id)[0].id, {"approved": True, "comment": "paid before"}, by="cleo")
        host.resume(run_id, orders)
        clock.advance("10m")


def _later(host: Host, clock: ManualClock) -> None:
    host.run(paper, {"question": "Why do bees dance?"}, run_id="paper-1", by="ann", tags={"team": "blue"})
    clock.advance("1d")
    host.run(count, {"n": 0}, run_id="count-1")
    host.resume(host.fork("count-1", at=4, inputs={"limit": 9}, fork_id="count-2").run_id, count)
    host.run(imports, {"file": "july.csv", "many": 200}, run_id="import-july")
    host.run(speech, {"text": "one word after the other"}, run_id="speech-1")
    clock.advance("1d")
    with suppress(KeyboardInterrupt):
        host.run(transfers, {"amount": 13}, run_id="transfer-1")
    host.resume("transfer-1", transfers)
    host.run(buying, {"part": "a lid"}, run_id="buy-1", by="ann")
    host.run(refunds, {"amount": 5}, run_id="refund-1")
    host.run(digests, {"text": "all of the news"}, run_id="digest-1")
    host.run(count, {"n": 3}, run_id="count-3")
    host.retention.pin("count-3", "for the audit", by="bob")
    clock.advance("20h")
    for run_id, customer in (("A17", "13"), ("A19", "13"), ("A20", "7"), ("A21", "21")):
        host.run(
            orders,
            {"customer": customer, "items": ["tea", "pot"]},
            run_id=run_id,
            by="ann",
            tags=["vip"] if customer == "21" else [],
            attributes={"customer": customer},
        )
        clock.advance("20m")
    host.start(count, {"n": 1}, run_id="count-4")
    host.start(orders, {"customer": "30", "items": ["jug"]}, run_id="A22", by="ann")
    host.fleet.pause("A22", by="bob", comment="until the jugs are there")
    host.cancel(host.start(orders, {"customer": "31", "items": ["jug"]}, run_id="A23").run_id, by="bob")
    clock.advance("30m")
