"""Runs that begin a day later, and runs that are ended by a deadline."""

from __future__ import annotations

from everstep import Context, Flow, Host, Node, node, wait
from everstep.results import RunResult
from tests.acceptance.crash.flows.sagas import ORDER, shop_nodes
from tests.acceptance.crash.scenarios import RUN, Bodies, Facts, Scenario, clock_of


def late_parts(body: Bodies) -> list[Node]:
    """Two effects that are undone, and a question that no one answers."""
    reserve, pay, _ = shop_nodes(body)

    @node(output="parcel")
    def pack(charge: str, ok: object, ctx: Context):
        with body("pack", ctx):
            return f"box for {charge}"

    return [reserve, pay, wait.approval("ok", prompt="Send it?"), pack]


def order_parts(body: Bodies) -> list[Node]:
    """An effect, and what follows from it."""

    @node(output="charge", effects="effectful", idempotency_key="auto")
    def pay(order: str, ctx: Context):
        with body("pay", ctx):
            return f"{order} for 8"

    @node(output="parcel")
    def pack(charge: str, ctx: Context):
        with body("pack", ctx):
            return f"box for {charge}"

    return [pay, pack]


def let_it_be_late(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Let a run halt, and a day pass."""
    result = host.run(flow, inputs, run_id=RUN)
    if result.status == "halted":
        clock_of(host).move_on()
        result = host.resume(RUN, flow)
    return result


def begin_a_day_later(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Start a run that is to begin in an hour, and let a worker find it after a day."""
    clock = clock_of(host)
    host.start(flow, inputs, run_id=RUN, after="1h")
    if not clock.has_moved_on:
        host.work([flow], until_idle=True)
        assert host.info(RUN).checkpoints == 1, "it began before its time"
        clock.move_on()
    return host.run(flow, inputs, run_id=RUN)


TIMED = {
    "begun-later": Scenario(order_parts, ORDER, program=begin_a_day_later, moves_clock=True),
    "expired": Scenario(late_parts, ORDER, program=let_it_be_late, moves_clock=True, deadline="12h"),
}
MORE_TIMED = {
    "strong-begun-later": Scenario(order_parts, ORDER, "strong", program=begin_a_day_later, moves_clock=True),
    "strong-expired": Scenario(
        late_parts, ORDER, "strong", program=let_it_be_late, moves_clock=True, deadline="12h"
    ),
}
"""Those that `EVERSTEP_SOAK=1` adds."""
