"""Flows that users of a simulated fleet start, of each kind that workers treat differently."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from everstep import Context, Durability, Node, Retry, chain, migrate, parallel, wait
from everstep.graph.author.flow import Flow
from everstep.testing.simulation.fleet import FleetWorld
from everstep.testing.simulation.hub import current_thread
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.process import SimProcess

LEASE = 10
"""Seconds: short, so that little time passes until the run of a dead owner goes on."""
PIECES = 3
RENAMED = {"charge": "bill", "pack": "wrap"}
"""What nodes are called in the new version: one that is tried again, and a map."""
OLD_NAMES = {new: old for old, new in RENAMED.items()} | {f"wrap#{k}": f"pack#{k}" for k in range(PIECES)}
"""What the steps of the new version were called before."""
UNANSWERED = -1
"""What a question gives that was not answered in time."""


def effect(name: str, inputs: list[str], output: str, work: Callable[..., Any], **options: Any) -> Node:
    return Node(
        work,
        name=name,
        inputs=inputs,
        output=output,
        effects="effectful",
        idempotency_key="auto",
        **options,
    )


def flow(name: str, nodes: Any, mode: Any, *, on_store_failure: Any = "required", **how: Any) -> Flow:
    durability = Durability(mode, lease_ttl=LEASE, on_store_failure=on_store_failure)
    return played(Flow(name, nodes, durability=durability, **how), ITSELF)


def orders(*, is_new: bool = False) -> Flow:
    """Charged with a retry, packed piece by piece, shipped. Its new version has other names for two."""

    def charge(ctx: Context, price: int) -> int:
        if ctx.attempt == 1:
            raise ConnectionError("try again")
        return price + 1

    def split(price: int) -> list[int]:
        return [price + k for k in range(PIECES)]

    def pack(piece: int) -> int:
        return piece * 2

    retry = Retry(3, first=1, on=ConnectionError)
    nodes = [
        Node(lambda x: 10 * x + 3, name="price", inputs=["x"], output="price"),
        effect("bill" if is_new else "charge", ["price"], "receipt", charge, retry=retry),
        Node(split, output="pieces"),
        effect("wrap" if is_new else "pack", [], "packed", pack)
        .map_over("piece")
        .with_inputs(piece="pieces"),
        effect("ship", ["receipt", "packed"], "parcel", lambda receipt, packed: [receipt, *packed]),
    ]
    migrations = [migrate.rename_node(old, new) for old, new in RENAMED.items()] if is_new else []
    return flow("orders", nodes, "strong", version="2" if is_new else "1", migrations=migrations)


def asks() -> Flow:
    """A question without an end, between two effects."""
    nodes = [
        effect("draft", ["x"], "draft", lambda x: x + 100),
        wait.question("ask", kind="text", answer_type=int, context="draft", output="said"),
        effect("send", ["said", "draft"], "sent", lambda said, draft: [said, draft]),
    ]
    return flow("asks", nodes, "partial")


def hurries() -> Flow:
    """A question with little time."""
    ask = wait.question(
        "ask", kind="text", answer_type=int, timeout=8, default=UNANSWERED, context="x", output="said"
    )
    return flow("hurries", [ask, effect("note", ["said"], "noted", lambda said: said)], "strong")


def sleeps() -> Flow:
    """Two pauses beside each other."""
    begin = effect("begin", ["x"], "begun", lambda x: x + 1)
    pauses = parallel(
        wait.timer("short", duration=2, payload="begun", output="one"),
        wait.timer("long", duration=4, payload="begun", output="two"),
    )
    end = effect("end", ["one", "two"], "ended", lambda one, two: [one.payload, two.payload])
    return flow("sleeps", chain(begin, pauses, end), "strong")


def fails() -> Flow:
    """Fails until an operator has fixed what it needs."""

    def check(done: int) -> int:
        if not is_fixed():
            raise ValueError("it is broken")
        return done + 1

    nodes = [
        effect("do", ["x"], "done", lambda x: x),
        Node(check, output="checked"),
        effect("tell", ["checked"], "told", lambda checked: checked),
    ]
    return flow("fails", nodes, "strong")


def is_fixed() -> bool:
    """True if an operator has fixed what flows of this world need."""
    thread = current_thread()
    assert thread is not None and isinstance(thread.owner, SimProcess)
    world = thread.owner.world
    assert isinstance(world, FleetWorld)
    return bool(world.notes.get("fixed"))


def endures() -> Flow:
    """Effects that go on while the store is away."""
    names = ["x", "a", "b", "c", "d"]
    nodes = [
        effect(f"e{k}", [read], written, lambda **given: sum(given.values()) + 1)
        for k, (read, written) in enumerate(pairwise(names))
    ]
    return flow("endures", nodes, "strong", on_store_failure="best_effort")


OLD = {made.name: made for made in (orders(), asks(), hurries(), sleeps(), fails(), endures())}
NEW = OLD | {"orders": orders(is_new=True)}
"""The same after a deploy."""
