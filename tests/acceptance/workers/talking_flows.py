"""Flows that others talk to while their workers are killed: each value says what was taken, in order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from everstep import END, Context, Durability, Flow, chain, node, route, wait
from everstep.inbox import append
from everstep.model.enums import Mode

KEPT = Durability(Mode.STRONG, lease_ttl=timedelta(milliseconds=1500))
LAST = "last"
"""What ends a conversation."""


@node(output="got")
def keep(message: str, got: list[str] | None = None) -> list[str]:
    return [*(got or []), message]


@route("message", END)
def unless_last(got: list[str]) -> str:
    return END if got[-1] == LAST else "message"


listens = Flow(
    "listens", [chain(wait.signal("message"), keep, unless_last)], entry="message", durability=KEPT
)


@node(output="got", halts=True)
def talk(x: int, ctx: Context) -> list[str]:
    got: list[str] = []
    while True:
        said = ctx.wait(wait.signal("message"))
        got.append(said)
        got += ctx.step("look", list, ctx.inbox("notes"))
        if said == LAST:
            return got


inside = Flow("inside", [talk], durability=KEPT)


@node(output="seen")
def look(got: list[str], nap: Any) -> int:
    return len(got)


@route("nap", END)
def unless_told(got: list[str], seen: int) -> str:
    return END if LAST in got[:seen] else "nap"


nap = wait.timer("nap", duration="30ms", payload="x")
takes = Flow("takes", [chain(nap, look, unless_told)], entry="nap", inbox={"got": append}, durability=KEPT)


@node(output="got")
def book(paid: dict[str, Any], got: list[str] | None = None) -> list[str]:
    return [*(got or []), paid["id"]]


@route("paid", END)
def unless_all(got: list[str], many: int) -> str:
    return END if len(got) >= many else "paid"


asked = wait.event("paid", match={"order": "x"})
pays = Flow("pays", [chain(asked, book, unless_all)], entry="paid", durability=KEPT)

FLOWS = {made.name: made for made in (listens, inside, takes, pays)}
NAMES = {"listens": ("message",), "inside": ("message", "notes"), "takes": ("got",)}
"""What each takes."""


def inputs_of(flow: str, x: int, many: int) -> dict[str, Any]:
    """Return what a run is started with that is to have so many events of order `x`."""
    given: dict[str, dict[str, Any]] = {"inside": {"x": x}, "takes": {"x": x, "got": []}}
    return given.get(flow, {}) if flow != "pays" else {"x": x, "many": many}
