"""Flows that the processes of drills drive; what a node should do is in its inputs."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from everstep import END, Context, Durability, Flow, ifelse, node, wait


def note(file: str, text: str) -> None:
    """Add a line to a file, in one write."""
    opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(opened, f"{text}\n".encode())
    os.close(opened)


@node(output="done")
def hold(name: str, seconds: float, calls: str) -> str:
    """Take long; the run that is called killer ends its process instead."""
    note(calls, name)
    if name == "killer":
        time.sleep(1)
        os._exit(139)
    time.sleep(seconds)
    return name


@node(output="i")
def count(i: int) -> int:
    return i + 1


@ifelse(when_true="count", when_false=END, effects="pure")
def more(i: int, n: int) -> bool:
    return i < n


@node(output="paid", effects="effectful", idempotency_key="auto")
def pay(name: str, calls: str, size: int, until: str, ctx: Context) -> str:
    """Make an effect, and return much when a file is there."""
    note(calls, f"{name} {ctx.idempotency_key}")
    while not Path(until).exists():
        time.sleep(0.02)
    return os.urandom(size // 2).hex()


@node(output="mail")
def tell(paid: str) -> int:
    return len(paid)


@node(output="quick")
def double(a: int) -> int:
    return 2 * a


@node(output="film")
def film(size: int) -> bytes:
    return bytes(size)


@node(output="never")
def explode(a: int) -> int:
    raise RuntimeError("boom")


@node(output="receipt", effects="effectful", idempotency_key="auto")
def close(ok: wait.ApprovalOutput, calls: str) -> str:
    note(calls, "approved" if ok.approved else "rejected")
    return "paid" if ok.approved else "refused"


@node(output="at")
async def rest(seconds: float) -> float:
    import asyncio

    await asyncio.sleep(seconds)
    return time.time()


holding = Flow("holding", [hold], durability="strong")
looping = Flow("looping", [count, more], entry="count", durability="strong", max_steps=1 << 40)
paying = Flow("paying", [pay, tell], durability=Durability("strong", lease_ttl=timedelta(seconds=30)))
doubling = Flow("doubling", [double], durability="strong")
filming = Flow("filming", [film], durability="strong")
failing = Flow("failing", [explode], durability="strong")
resting = Flow("resting", [rest], durability="strong")
grouped = Flow("grouped", [rest], durability="strong", max_per_group=1)
asking = Flow("asking", [wait.approval("ok", timeout="30m"), close], durability="strong")
