"""The flows of workers that are killed: timers, approvals, callbacks, loops, effects that leave a trace."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from typing import Any

from everstep import END, Context, Durability, Flow, ifelse, node, wait
from everstep.model.enums import Mode

LEASE = timedelta(milliseconds=1500)
KEPT = Durability(Mode.STRONG, lease_ttl=LEASE)


def note(**facts: Any) -> None:
    """Write a line where it survives a process that is killed."""
    fd = os.open(os.environ["EVERSTEP_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, json.dumps(facts).encode() + b"\n")
    os.close(fd)


def leave_a_trace(ctx: Context) -> None:
    """Note an effect and its key."""
    note(run=ctx.run_id, path=ctx.path, visit=ctx.visit, key=ctx.idempotency_key)
    time.sleep(0.02)  # long enough to be killed in


@node(output="bill", effects="effectful", idempotency_key="auto")
def charge(amount: int, ctx: Context) -> list[int]:
    leave_a_trace(ctx)
    return [amount]


@node(output="sent", effects="effectful", idempotency_key="auto")
def send(ok: wait.ApprovalOutput, nap: wait.TimerOutput, bill: list[int], ctx: Context) -> list[Any]:
    leave_a_trace(ctx)
    return [*bill, ok.approved, nap.payload]


ok, nap = wait.approval("ok", context="bill"), wait.timer("nap", duration="40ms", payload="amount")
orders = Flow("orders", [charge, ok, nap, send], durability=KEPT)


@node(output="draft", effects="effectful", idempotency_key="auto")
def write(topic: str, ctx: Context) -> str:
    leave_a_trace(ctx)
    return f"{topic} {ctx.visit}"


@ifelse(when_true=END, when_false="write")
def is_enough(review: wait.CallbackOutput, ctx: Context) -> bool:
    return ctx.visit == 3


reviews = Flow(
    "reviews", [write, wait.callback("review", context="draft"), is_enough], entry="write", durability=KEPT
)


@node(output="half", effects="effectful", idempotency_key="auto")
def halve(x: int, ctx: Context) -> float:
    leave_a_trace(ctx)
    return x / 2


item = Flow("item", [wait.timer("pause", duration="20ms", payload="x"), halve])
batches = Flow("batches", [item.as_node().lift("half").map_over("x", max_concurrency=2)], durability=KEPT)


@node(output="slept")
def sleep(x: int) -> int:
    note(begun=os.getpid())
    time.sleep(30 if x == 1 and os.environ.get("EVERSTEP_SLEEPS") else 0)
    return x


sleepers = Flow("sleepers", [sleep], durability=KEPT)
