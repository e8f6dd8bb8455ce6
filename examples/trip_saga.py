"""A saga: a trip whose steps are undone, the last one first, if a later one fails or the run is cancelled.

    everstep run examples/trip_saga.py --input 'towns=["Ulm", "Kiel"]'

Each booking is a line in a ledger, kept under the idempotency key of its step: what is booked again with the
same key is booked once, and so is what is cancelled. The card is declined for more than 500.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from everstep import Context, Flow, node

LEDGER = Path(os.environ.get("TRIP_LEDGER", "trip-ledger.jsonl"))


def note(what: str, about: str, key: str) -> None:
    """Write a line, unless one has its key: as a booking service does that knows a request again."""
    lines = LEDGER.read_text().splitlines() if LEDGER.exists() else []
    if all(json.loads(line)["key"] != key for line in lines):
        with LEDGER.open("a") as ledger:
            ledger.write(json.dumps({"what": what, "about": about, "key": key}) + "\n")


def cancel_room(town: str, room: str, idempotency_key: str) -> None:
    note("room cancelled", f"{room} in {town}", idempotency_key)


@node(output="room", undo=cancel_room)
def book_room(town: str, ctx: Context) -> str:
    room = f"room {len(town)}0{town[0]}"
    note("room booked", f"{room} in {town}", ctx.idempotency_key)
    return room


@node(output="price")
def add_up(room: list[str]) -> int:
    return 200 * len(room)


@node(retry="standard")
def cancel_seats(seats: str, idempotency_key: str) -> None:
    note("seats cancelled", seats, idempotency_key)


@node(output="seats", undo=cancel_seats)
def book_seats(towns: list[str], ctx: Context) -> str:
    seats = " - ".join(towns)
    note("seats booked", seats, ctx.idempotency_key)
    return seats


@node(output="receipt", effects="effectful", idempotency_key="auto")
def charge(price: int, seats: str, ctx: Context) -> str:
    if price > 500:
        raise ValueError(f"the card is declined: {price}")
    note("charged", str(price), ctx.idempotency_key)
    return f"{price} paid for {seats}"


rooms = book_room.with_inputs(town="towns").map_over("town")
flow = Flow("trip", [rooms, add_up, book_seats, charge])
