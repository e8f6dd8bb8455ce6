"""The flow of `everstep demo`: an order is paid, packed and shipped. An example worth reading.

    reserve ── charge ─┬─ pack ── is_express ─┬─ ship_express ──┐
                       │                      └─ ship_by_train ─┤
                       └─ invoice ──────────────────────────────┴─ notify

Try it yourself: everstep run everstep.cli.demo.flow:flow --input order_id=A17 --input cents=4200
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from everstep import Context, Flow, Retry, ifelse, node

# -- the flow ---------------------------------------------------------------------------------------------


@node(output="reservation", effects="effectful", idempotency_key="auto")
def reserve(order_id: str) -> str:
    """Take the goods off the shelf."""
    work("reserve")
    return f"shelf 7 for {order_id}"


@node(output="receipt", effects="effectful", idempotency_key="auto", retry=Retry(3, first=0.4, jitter=0))
def charge(order_id: str, cents: int, reservation: str, ctx: Context) -> str:
    """Charge the card. The key is the same on every attempt, so the bank takes the money once."""
    work("charge", ctx.idempotency_key)
    return bank(ctx.idempotency_key, cents, reply_is_lost=ctx.attempt == 1)


@node(output="invoice", effects="pure")
def invoice(order_id: str, receipt: str) -> str:
    """Write the invoice, while the order is being packed."""
    work("invoice")
    return f"invoice for {order_id}, paid with {receipt}"


@node(output="parcel", effects="effectful", idempotency_key="auto")
def pack(reservation: str, receipt: str) -> dict[str, int]:
    """Pack the goods; it takes a while."""
    work("pack")
    return {"grams": 420}


@ifelse(when_true="ship_express", when_false="ship_by_train")
def is_express(parcel: dict[str, int]) -> bool:
    """Send what is light by air."""
    return parcel["grams"] < 1000


@node(output="tracking", effects="effectful", idempotency_key="ship-{order_id}")
def ship_express(order_id: str, parcel: dict[str, int]) -> str:
    work("ship_express")
    return f"AIR-{order_id}"


@node(output="tracking", effects="effectful", idempotency_key="ship-{order_id}")
def ship_by_train(order_id: str, parcel: dict[str, int]) -> str:
    work("ship_by_train")
    return f"RAIL-{order_id}"


@node(output="message", effects="effectful", idempotency_key="auto")
def notify(tracking: str, invoice: str) -> str:
    """Tell the customer."""
    work("notify")
    return f"On its way as {tracking}."


flow = Flow(
    "orders",
    [reserve, charge, invoice, pack, is_express, ship_express, ship_by_train, notify],
    durability="strong",
)

# -- the world around it ----------------------------------------------------------------------------------

WORLD = "EVERSTEP_DEMO_WORLD"
"""The folder where the bank keeps its books and every call of a node is noted."""
SECONDS = "EVERSTEP_DEMO_SECONDS"
"""How long each node takes, as JSON."""


def work(name: str, key: str = "") -> None:
    """Note that the node was called, by which process, and take some time."""
    _note("calls.jsonl", {"node": name, "pid": os.getpid(), "key": key})
    time.sleep(json.loads(os.environ.get(SECONDS, "{}")).get(name, 0))


def bank(key: str, cents: int, *, reply_is_lost: bool) -> str:
    """Take the money, unless this key has paid before. Sometimes the answer gets lost on its way back."""
    is_new = all(request["key"] != key for request in read_notes("bank.jsonl"))
    _note("bank.jsonl", {"key": key, "cents": cents, "took_money": is_new})
    if reply_is_lost:
        raise TimeoutError("the bank did not answer")
    return f"receipt {key[:8]}"


def _note(file: str, entry: dict[str, object]) -> None:
    folder = os.environ.get(WORLD)
    if folder:
        with (Path(folder) / file).open("a", encoding="utf-8") as notes:
            notes.write(json.dumps(entry) + "\n")


def read_notes(file: str) -> list[dict[str, object]]:
    """Return what was noted in a file of the world."""
    path = Path(os.environ.get(WORLD, "")) / file
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )
