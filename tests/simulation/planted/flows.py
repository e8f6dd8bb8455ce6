"""Flows that use what can go wrong: effects behind chance, waits, budgets, loops, spools, inner flows."""

from __future__ import annotations

import random
from typing import Any

from everstep import END, Budget, Context, Durability, Flow, Retry, node, route, wait

LEASE = 30
"""Seconds that a lease lasts, as it does unless a flow says otherwise."""


def own_key(weight: int) -> str:
    """A key as users make them: another one each time it is asked for."""
    return f"{weight}-{random.random()}"


def _key(total: int) -> str:
    """A key as users make them: another one each time it is asked for."""
    return f"{total}-{random.random()}"


def orders() -> Flow:
    """An order: weighed by chance, charged or credited, and told of."""

    @node(output="total")
    def price(items: int) -> int:
        return items + random.randrange(1000)

    @route("charge", "credit")
    def choose(total: int) -> str:
        return "charge" if random.random() < 0.5 else "credit"

    @node(output="done", effects="effectful", idempotency_key="auto")
    def charge(total: int) -> str:
        return f"charged {total}"

    @node(output="done", effects="effectful", idempotency_key=_key)
    def credit(total: int) -> str:
        return f"credited {total}"

    @node(output="told")
    def tell(done: str) -> str:
        return done.upper()

    return Flow("orders", [price, choose, charge, credit, tell])


def deliveries(mode: Any = "strong", **more: Any) -> Flow:
    """Effects one after the other; the first fails twice before it succeeds."""

    @node(
        output="booked",
        effects="effectful",
        idempotency_key="auto",
        retry=Retry(4, first=1, jitter=0, on=ConnectionError),
    )
    def book(order: int, ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("the carrier is busy")
        return order + 1

    @node(output="label", effects="effectful", idempotency_key=_key)
    def mark(total: int) -> str:
        return f"label {total}"

    @node(output="sent", effects="effectful", idempotency_key="auto")
    def send(label: str) -> str:
        return f"{label} is on its way"

    @node(output="told")
    def tell(sent: str) -> str:
        return sent.upper()

    marked = mark.with_inputs(total="booked")
    return Flow("deliveries", [book, marked, send, tell], durability=Durability(mode, **more))


def approvals() -> Flow:
    """An approval in time or not, a pause, and a question with a default."""

    @node(output="paid", effects="effectful", idempotency_key="auto")
    def pay(approve: Any) -> str:
        return f"{approve.approved}, {approve.comment}"

    @node(output="filed")
    def file(paid: str, ask: int) -> str:
        return f"{paid} {ask}"

    return Flow(
        "approvals",
        [
            wait.approval("approve", timeout="20s"),
            pay >> wait.timer("rest", duration="10s"),
            wait.question("ask", kind="text", answer_type=int, timeout="20s", default=-1, context="paid"),
            file,
        ],
        durability="strong",
    )


def rounds(count: int = 10, size: int = 1500) -> Flow:
    """A loop with values so large that there are keyframes, a branch, and a retry in each round."""

    @node(output="draft")
    def write(topic: str, grade: int = 0) -> tuple[int, str]:
        return grade, topic.ljust(size, ".")

    @node(output="notes", retry=Retry(3, first=1, jitter=0, on=ConnectionError))
    def check(draft: tuple[int, str], ctx: Context) -> int:
        if ctx.attempt < 2:
            raise ConnectionError("the reader sleeps")
        return len(draft[1])

    @node(output="kept", effects="effectful", idempotency_key="auto")
    def keep(notes: int, draft: tuple[int, str]) -> int:
        return notes + draft[0]

    @node(output="grade")
    def judge(kept: int, draft: tuple[int, str]) -> int:
        return draft[0] + 1

    @route("write", END)
    def again(grade: int) -> str:
        return "write" if grade < count else END

    return Flow("rounds", [write >> check >> keep >> judge >> again], entry="write")


def ticks(count: int) -> Flow:
    """A loop of pauses that are over when they begin."""

    @node(output="seen")
    def look(seen: int) -> int:
        return seen + 1

    @route("look", END)
    def more(seen: int) -> str:
        return "look" if seen < count else END

    tick = wait.timer("tick", until="2020-01-01T00:00:00Z")
    return Flow("ticks", [look >> tick >> more], entry="look", max_steps=10**6, max_visits=10**6)


def papers() -> Flow:
    """Nodes that spend more than the budget, which a person then raises."""

    @node(output="draft")
    def write(topic: str, ctx: Context) -> str:
        ctx.spend(usd="2.10")
        ctx.spend(usd="0.40")
        return f"a draft on {topic}"

    @node(output="review")
    async def review(draft: str, ctx: Context) -> str:
        await ctx.spend(usd="1.25")
        return "good"

    @node(output="page", effects="effectful", idempotency_key="auto")
    def publish(review: str, ctx: Context) -> str:
        ctx.spend(usd="0.30")
        return f"{review} and published"

    return Flow("papers", [write, review, publish], budgets=[Budget("usd", "3.00")])


def sensors() -> Flow:
    """Effects that go on while the store is away, and are written later."""

    @node(output="reading", effects="effectful", idempotency_key="auto")
    def read(place: int) -> int:
        return place * 10

    @node(output="logged", effects="effectful", idempotency_key="auto")
    def log(reading: int) -> int:
        return reading + 1

    @node(output="sent", effects="effectful", idempotency_key="auto")
    def send(logged: int) -> int:
        return logged * 2

    @node(output="done")
    def close(sent: int) -> str:
        return f"{sent} sent"

    durability = Durability("strong", on_store_failure="best_effort")
    return Flow("sensors", [read, log, send, close], durability=durability)


def parcels(mode: Any = "partial", key: Any = "auto") -> Flow:
    """An atomic flow with an effect in it, and a node behind it."""

    @node(output="weight")
    def weigh(order: int) -> int:
        return order * 3

    @node(output="receipt", effects="effectful", idempotency_key=key)
    def charge(weight: int) -> str:
        return f"paid for {weight}"

    @node(output="stamp")
    def stamp(receipt: str) -> str:
        return f"stamped: {receipt}"

    @node(output="shipped")
    def ship(stamp: str) -> str:
        return stamp.upper()

    @node(output="told")
    def tell(shipped: str) -> str:
        return f"{shipped}!"

    inner = Flow("pack", [weigh, charge, stamp]).as_node(durability="atomic").lift("stamp")
    return Flow("parcels", [inner, ship, tell], durability=mode)


def machines() -> Flow:
    """A machine whose state, log and counters are in the channel."""

    @node(output="begun")
    def begin(part: int, ctx: Context) -> int:
        ctx.channel.set("state", "begun")
        ctx.channel.append("log", f"began with {part}")
        ctx.channel.atomic_add("steps")
        return part

    @node(output="milled", effects="effectful", idempotency_key="auto")
    def mill(begun: int, ctx: Context) -> int:
        ctx.channel.append("log", f"milled {begun}")
        ctx.channel.prepend("log", "order 7")
        ctx.channel.atomic_add("steps", 2)
        return begun * 3

    @node(output="told")
    def tell(milled: int, ctx: Context) -> str:
        del ctx.channel["state"]
        return f"{milled}: {ctx.channel['log']}, {ctx.channel['steps']}"

    return Flow("machines", [begin, mill, tell], durability="strong")
