"""A run begun by one version of its flow and finished by the next."""

from __future__ import annotations

import contextlib

from everstep import Context, Flow, Host, migrate, node
from everstep.errors import RunNotFound
from everstep.results import RunResult
from tests.acceptance.crash.scenarios import RUN, Bodies, Facts, Parts, Scenario


def go_over(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Run the first version until it interrupts itself inside a flow; the next one goes on from there."""
    try:
        is_first = host.info(RUN).flow_version == "1"
    except RunNotFound:
        is_first = True
    if is_first:
        with contextlib.suppress(KeyboardInterrupt):
            host.run(first_version(flow), inputs, run_id=RUN)
    return host.resume(RUN, flow)


def first_version(flow: Flow) -> Flow:
    """Return the flow as it was: other names, and another end of the inner flow."""

    @node(output="stopped")
    def stop(weight: int) -> int:
        raise KeyboardInterrupt

    inner = flow["work"].inner
    take = flow["accept"].with_name("take").with_outputs("basket")
    work = Flow("work", [inner.nodes[inner.index["weigh"]], stop]).as_node().with_inputs(cart="basket")
    return Flow(flow.name, [take, work], durability="strong")


def changed_parts(body: Bodies) -> Parts:
    @node(output="cart")
    def accept(order: list[str], ctx: Context):
        with body("accept", ctx):
            order.append("box")
            return order

    @node(output="weight")
    def weigh(cart: list[str], ctx: Context):
        with body("weigh", ctx):
            return sum(map(len, cart))

    @node(output="parcel", effects="effectful", idempotency_key="auto")
    def pack(weight: int, ctx: Context, fee: int = 1):
        with body("pack", ctx):
            return [weight + fee]

    @node(output="receipt")
    def ship(parcel: list[int], cart: dict[str, list[str]]):
        with body("ship"):
            parcel.append(len(cart["items"]))
            return parcel

    @node(output="note")
    def announce(cart: dict[str, list[str]]):
        with body("announce"):
            return cart["items"][0]

    return {
        "nodes": [announce, accept, Flow("work", [weigh, pack]).as_node(), ship],
        "version": "2",
        "max_concurrency": 1,  # two that end at once may share a put
        "migrations": [
            migrate.rename_node("take", "accept"),
            migrate.rename_value("basket", "cart"),
            migrate.upcast("cart", lambda items: {"items": items}, versions=["1"]),
            migrate.drop_node("work/stop"),
            migrate.accept("work"),
            migrate.add_value("work/fee", 7),
        ],
    }


CHANGED = {
    "changed-flow": Scenario(changed_parts, {"order": ["tea", "cups"]}, "strong", program=go_over),
}
