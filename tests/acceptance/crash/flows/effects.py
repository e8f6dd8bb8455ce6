"""Effects behind what comes out differently each time, and effects inside atomic flows, where steps ride."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from everstep import Context, Durability, Flow, node, route
from everstep.graph.author.subflow import Subflow
from tests.acceptance.crash.scenarios import Bodies, Parts, Scenario

KEYED: dict[str, Any] = {"effects": "effectful", "idempotency_key": "auto"}
EVERY = Durability("strong", interval=100)


def effect(body: Bodies, ctx: Context, given: object) -> AbstractContextManager[None]:
    """Surround an effect; what it is given goes into the trace."""
    return body.killer.body(
        ctx.path, visit=ctx.visit, attempt=ctx.attempt, key=ctx.idempotency_key, given=repr(given)
    )


def chance_parts(body: Bodies) -> Parts:
    """A guess and a choice that come out differently in every life but the first; two effects behind it."""

    @node(output="price")
    def guess(x: int, ctx: Context):
        with body("guess", ctx):
            return x if body.is_first_life else -x

    @route("ship", "refuse")
    def toss(price: int, ctx: Context):
        with body("toss", ctx):
            return "ship" if body.is_first_life else "refuse"

    @node(output="parcel", **KEYED)
    def ship(price: int, ctx: Context):
        with effect(body, ctx, price):
            return price

    @node(output="letter", effects="effectful", idempotency_key="letter-{price}")
    def refuse(price: int, ctx: Context):
        with effect(body, ctx, price):
            return price

    @node(output="end")
    def tell(x: int, ctx: Context):
        with body("tell", ctx):
            return x

    return [guess >> toss, ship >> tell, refuse >> tell]


def paying(body: Bodies) -> Subflow:
    """An atomic flow whose effect is not the last thing it does."""

    @node(output="bill", determinism="strict")
    def add(price: int, ctx: Context):
        with body("add", ctx):
            return price + 1

    @node(output="paid", **KEYED)
    def pay(bill: int, ctx: Context):
        with effect(body, ctx, bill):
            return bill

    @node(output="receipt")
    def note(paid: int, ctx: Context):
        with body("note", ctx):
            return f"paid {paid}"

    return Flow("buy", [add, pay, note]).as_node(durability="atomic").lift("receipt")


def atomic_parts(body: Bodies) -> Parts:
    """An atomic flow with an effect, between two nodes that ride."""

    @node(output="price")
    def guess(x: int, ctx: Context):
        with body("guess", ctx):
            return x + 1

    @node(output="end")
    def tell(receipt: str, ctx: Context):
        with body("tell", ctx):
            return receipt

    return [guess, paying(body), tell]


def atomic_items_parts(body: Bodies) -> Parts:
    """A map of such flows, one after the other."""

    @node(output="price")
    def listed(x: int, ctx: Context):
        with body("listed", ctx):
            return [x, x + 1, x + 2]

    @node(output="end")
    def tell(receipt: list[str], ctx: Context):
        with body("tell", ctx):
            return len(receipt)

    return [listed, paying(body).map_over("price", max_concurrency=1), tell]


X = {"x": 7}
ACTING = {
    "chance": Scenario(chance_parts, X, is_chancy=True),
    "interval-chance": Scenario(chance_parts, X, EVERY, is_chancy=True),
    "acting-atomic": Scenario(atomic_parts, X, atomic=("buy",)),
    "interval-acting-atomic": Scenario(atomic_parts, X, EVERY, atomic=("buy",)),
    "acting-items": Scenario(atomic_items_parts, X, atomic=("buy",)),
    "interval-acting-items": Scenario(atomic_items_parts, X, EVERY, atomic=("buy",)),
}
