"""Flows that between them hold everything a flow can hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import msgspec

from everstep import (
    END,
    Context,
    Durability,
    Flow,
    Limit,
    Retry,
    Singleton,
    at_least,
    chain,
    critical,
    ifelse,
    node,
    parallel,
    quorum,
    route,
    wait,
)
from everstep.results import Diagnostic


class Address(msgspec.Struct):
    street: str


class Busy(Exception):
    """Try again later."""


def key_of(total: int) -> str:
    return f"order-{total}"


def any_two(outcomes: dict[str, str]) -> bool:
    return sum(o == "completed" for o in outcomes.values()) >= 2


def paid(total: int) -> None:
    return None


@node(output="total")
def add(x: int, y: int = 2) -> int:
    return x + y


@node(
    output="receipt",
    effects="effectful",
    determinism="stable",
    idempotency_key=key_of,
    retry=Retry(3, first=0.1, factor=3.0, most=float("inf"), jitter=0.0, on=(Busy, ConnectionError)),
    timeout=timedelta(seconds=0.3),
    max_visits=4,
    persist="ref",
    requires=["checkpoint_store"],
    on_unknown="stop",
    probe=paid,
    identifier="pay.charge",
)
def charge(total: int) -> str:
    return f"paid {total}"


@node(output=("low", "high"), effects="pure", persist="no")
def split(total: int) -> tuple[int, int]:
    return total // 2, total - total // 2


@node(
    output="both",
    effects="read_only",
    idempotency_key="both-{low}",
    checkpointable=False,
    replayable=True,
    reason="it holds a socket",
)
def merge(low: int, high: int) -> int:
    return low + high


@ifelse(when_true="charge", when_false=END)
def is_large(total: int) -> bool:
    return total > 1


@route("again", "done", END, multi=True)
def choose(count: int) -> list[str]:
    return ["again"] if count < 3 else ["done"]


@node(output="count")
def again(count: int = 0) -> int:
    return count + 1


@node
def done(count: int) -> None:
    pass


@node(output="address", halts=True, answer_type=Address)
def ask_address(receipt: str) -> wait.Wait:
    return wait.Wait(prompt=f"Where to, for {receipt}?")


@node(output="seen")
def look(ctx: Context, seed: int) -> int:
    return seed


@node(output="asked")
def ask(ctx: Context, total: int) -> int:
    ctx.next_task(look, seed=total)
    return total


@node
def left() -> int:
    return 1


@node
def right() -> int:
    return 2


@node
def middle() -> int:
    return 3


@node(output="met")
def meet(left: int, right: int | None = None) -> int:
    return left + (right or 0)


def gather(**values: list[int]) -> int:
    return sum(sum(items) for items in values.values())


def named_well(flow: Flow, host: object = None) -> list[Diagnostic]:
    return []


plain = Flow("plain", [add, split, merge], version="3", rules=[named_well])
shop = Flow(
    "shop",
    [add, is_large, charge, ask_address],
    durability=Durability(
        "strong",
        interval=(5, timedelta(milliseconds=1500)),
        blob_threshold=10,
        lease_ttl=timedelta(seconds=7),
        checkpoint_ttl=timedelta(days=1),
        retain_completed_for=timedelta(hours=36),
        retry_on_lease_conflict=2,
        max_resume_attempts=3,
    ),
    max_steps=99,
    max_visits=9,
    max_concurrency=2,
    max_running=4,
    max_per_group=1,
    limits=[
        Limit("x", running=2),
        Limit("rate", rate="100/1m", by="x", plain=True),
        Singleton("x", on_conflict="queue", plain=True),
    ],
)
loop = Flow("loop", [choose, again, done], entry="again", durability="off")
tasks = Flow(
    "tasks",
    [add, ask],
    tasks=[look],
    channel={
        "n": int,
        "who": str | None,
        "where": Address,
        "kind": Literal["a", "b"],
        "log": list[dict[str, Any]],
    },
    auto_checkpoint=3,
)
groups = [
    Flow("strict", left >> right),
    Flow("bears", chain(parallel(left, right, policy="best_effort"), meet)),
    Flow("critical", chain(parallel(left, right, policy=critical(left), name="both"), meet)),
    Flow("two", chain(parallel(left, right, middle, policy=at_least(2)), meet)),
    Flow("any", chain(parallel(left, right, join="any"), meet)),
    Flow("quorum", chain(parallel(left, right, middle, policy=quorum(2)), meet)),
    Flow("first", chain(parallel(left, right, policy="first_success"), meet)),
    Flow("rule", chain(parallel(left, right, middle, policy=any_two), meet)),
    Flow(
        "inside",
        chain(
            parallel(parallel(left, right, join="any", name="one"), middle, policy="best_effort", name="two"),
            meet,
        ),
    ),
]
nested = Flow(
    "nested",
    [
        plain.as_node(select=["both"]).lift("both", "total").with_outputs(both="sum"),
        Flow("plain", [add, split, merge.saying(idempotency_key="auto")], version="3")
        .as_node(name="atomic", durability="atomic")
        .with_inputs(x="sum")
        .lift("total")
        .with_outputs("last"),
        Flow("loop", [choose, again, done], entry="again").as_node().with_inputs(count="last").lift("count"),
    ],
)
maps = Flow(
    "maps",
    [
        add.with_inputs(y="ys")
        .map_over("x", "y", mode="product", on_error="collect", max_concurrency=3)
        .with_outputs("totals"),
        plain.as_node()
        .with_inputs(x="totals")
        .lift("both")
        .map_over("x", on_error="skip")
        .with_outputs("all"),
        node(output="sum", inputs=["all", "totals"])(gather),
    ],
)
waits = Flow(
    "waits",
    [
        add,
        wait.timer("pause", duration=timedelta(microseconds=1500001), payload="total"),
        wait.timer(
            "until", until=datetime(2030, 1, 31, 9, tzinfo=UTC), payload=Decimal("1.5"), scheduler="cron"
        ),
        wait.timer("then", duration=wait.value("span"), payload=wait.literal("total")),
        wait.approval("approve", context="total", notify=["ann", "bob"], timeout="3d", token_ttl="1h"),
        wait.callback("paid", timeout="1h", default=None, answer_type=list[Address], single_use=False),
        wait.question("colour", kind="choice", options=("red", "blue"), default="red", output="paint"),
        wait.question("size", kind="choice", options="sizes", prompt="Which?", default=wait.value("small")),
        wait.question("shape", kind="text", answer_type={"type": "string", "maxLength": 5}),
        wait.question("sure", kind="confirm"),
        wait.approval("each", context="totals").map_over("context"),
    ],
)
EXAMPLES = [plain, shop, loop, tasks, *groups, nested, maps, waits]
