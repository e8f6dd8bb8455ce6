"""Flows that users of a simulated fleet send signals to and publish events for, and what these had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep import END, AsyncContext, Context, Node, chain, node, parallel, route, wait
from everstep.graph.author.flow import Flow
from everstep.inbox import append
from tests.simulation.users.flows import effect, flow

ENOUGH = 2
"""So many messages, or events, let a loop end."""


def listens() -> Flow:
    """Waits for one message after the other, each with an effect behind it."""

    @node(output="got", effects="effectful", idempotency_key="auto")
    def reply(x: int, message: str, got: list[str] | None = None) -> list[str]:
        return [*(got or []), message]

    @route("message", END)
    def again(got: list[str]) -> str:
        return END if len(got) >= ENOUGH else "message"

    return flow("listens", [chain(wait.signal("message"), reply, again)], "strong", entry="message")


def reads() -> Flow:
    """Takes notes into a value, while effects, pauses and durable calls come and go."""

    def same(said: list[str]) -> list[str]:
        return said

    @node(output="four")
    def muse(three: list[str], notes: list[str], ctx: Context) -> list[str]:
        told: list[str] = ctx.step("tell", list, notes)
        more: list[str] = ctx.step("more", list, [*notes, str(len(told))])
        return more

    nodes = [
        effect("first", ["x", "notes"], "one", lambda x, notes: [x, *notes]),
        wait.timer("rest", duration=2, payload="one", output="rested"),
        effect("second", ["rested", "notes"], "two", lambda rested, notes: list(notes)),
        wait.timer("nap", duration=2, payload="two", output="napped"),
        effect("third", ["napped", "notes"], "three", lambda napped, notes: list(notes)),
        muse,
    ]
    return flow("reads", [chain(*nodes)], "partial", inbox={"notes": append})


def midway() -> Flow:
    """Waits for a message between two durable calls, and takes notes between two more."""

    @node(output="told", halts=True)
    def agent(x: int, ctx: Context) -> list[str]:
        ctx.step("begin", str, x)
        said = ctx.wait(wait.signal("message"))
        ctx.step("heard", str, said)
        notes = ctx.inbox("notes")
        ctx.sleep(2)
        notes += ctx.inbox("notes")
        return ctx.step("end", list, [said, *notes])

    return flow("midway", [agent], "strong")


def shares() -> Flow:
    """Nodes beside each other take the same notes."""

    def take(rested: Any, ctx: Context) -> list[str]:
        notes: list[str] = ctx.inbox("notes")
        return ctx.step("keep", list, notes)

    one, two = (Node(take, name=name, output=name) for name in ("left", "middle"))

    @node(output="right")
    async def other(rested: Any, ctx: AsyncContext) -> list[str]:
        notes = await ctx.inbox("notes") + await ctx.inbox("notes")
        return await ctx.step("keep", list, notes)

    begin = effect("begin", ["x"], "begun", lambda x: x + 1)
    rest = wait.timer("rest", duration=3, payload="begun", output="rested")
    end = effect("end", ["left", "middle", "right"], "told", lambda **given: [*given.values()])
    return flow("shares", [chain(begin, rest, parallel(one, two, other), end)], "strong")


def pays() -> Flow:
    """Waits for one event after the other, at the same node."""

    @node(output="paid_by", effects="effectful", idempotency_key="auto")
    def book(paid: dict[str, Any], paid_by: list[str] | None = None) -> list[str]:
        return [*(paid_by or []), paid["id"]]

    @route("paid", END)
    def more(paid_by: list[str]) -> str:
        return END if len(paid_by) >= ENOUGH else "paid"

    asked = wait.event("paid", match={"order": "x"})
    return flow("pays", [chain(asked, book, more)], "strong", entry="paid")


def settles() -> Flow:
    """Waits for events between durable calls."""

    @node(output="paid_by", halts=True)
    def agent(x: int, ctx: Context) -> list[str]:
        ctx.step("begin", str, x)
        first = ctx.wait(wait.event("first", event="paid", match={"order": x}))
        ctx.step("book", str, first["id"])
        second = ctx.wait(wait.event("second", event="paid", match={"order": x}))
        return ctx.step("end", list, [first["id"], second["id"]])

    return flow("settles", [agent], "partial")


FLOWS = {made.name: made for made in (listens(), reads(), midway(), shares(), pays(), settles())}
TOLD: Mapping[str, tuple[str, ...]] = {
    "listens": ("got",),
    "reads": ("notes",),
    "midway": ("told",),
    "shares": ("left", "middle", "right"),
}
"""The values of each flow that have what was sent to it, in order."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "listens": ("message",),
    "reads": ("notes",),
    "midway": ("message", "notes"),
    "shares": ("notes",),
}
"""What is sent to each."""
HAD_AT_ONE_NODE = "pays"


def inputs_of(name: str, x: int) -> dict[str, Any]:
    """Return what a run of a flow is given."""
    return {"x": x, "notes": []} if name == "reads" else {"x": x}
