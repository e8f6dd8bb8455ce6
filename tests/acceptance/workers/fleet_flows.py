"""What a fleet drives: effects on a ledger that honours idempotency keys, and a timer in between."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from uuid import uuid4

from everstep import Context, Durability, Flow, node, wait

KEPT = Durability("strong", lease_ttl=timedelta(seconds=2))


def book(ctx: Context, amount: int) -> str:
    """Enter something into the ledger, once per key, and return what tells this call from others."""
    token = uuid4().hex
    line = {"run": ctx.run_id, "path": ctx.path, "visit": ctx.visit, "token": token, "pid": os.getpid()}
    fd = os.open(os.environ["EVERSTEP_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, json.dumps(line).encode() + b"\n")
    os.close(fd)
    with closing(sqlite3.connect(os.environ["EVERSTEP_LEDGER"], timeout=60)) as ledger, ledger:
        ledger.execute(
            "INSERT OR IGNORE INTO entries (key, run, path, amount) VALUES (?, ?, ?, ?)",
            (ctx.idempotency_key, ctx.run_id, ctx.path, amount),
        )
    time.sleep(0.005)  # long enough to be killed between the effect and its record
    return token


@node(output="reserved", effects="effectful", idempotency_key="auto")
def reserve(amount: int, ctx: Context) -> str:
    return book(ctx, amount)


@node(output="charged", effects="effectful", idempotency_key="auto")
def charge(reserved: str, amount: int, ctx: Context) -> str:
    return book(ctx, amount)


@node(output="sent", effects="effectful", idempotency_key="auto")
def send(pause: wait.TimerOutput, charged: str, amount: int, ctx: Context) -> str:
    return book(ctx, amount)


orders = Flow(
    "orders",
    [reserve, charge, wait.timer("pause", duration="20ms", payload="charged"), send],
    durability=KEPT,
    max_running=48,
)
