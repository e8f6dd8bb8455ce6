"""Runs with limits: one replaces another that has its key, is driven within them, and calls a supplier."""

from __future__ import annotations

from everstep import Context, Debounce, Flow, Host, Limit, Singleton, node
from everstep.results import RunResult
from tests.acceptance.crash.scenarios import RUN, Bodies, Facts, Parts, Scenario, clock_of

OTHER = "run-0"


def limited_parts(body: Bodies) -> Facts:
    @node(output="order")
    def take(customer: str, job: int) -> str:
        with body("take"):
            return f"{customer} {job}"

    @node(
        output="receipt",
        effects="effectful",
        idempotency_key="auto",
        limit=Limit("bank", running=2, rate="1000/1h"),
    )
    def pay(order: str, ctx: Context) -> str:
        with body("pay", ctx):
            return f"{order} paid"

    limits = [Limit("customer", running=1, rate="1000/1h"), Singleton("customer", on_conflict="replace")]
    return {"nodes": [take, pay], "limits": limits}


def replace_another(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Start a run, and then one that takes its place, as a program does that is simply called again."""
    host.start(flow, {**inputs, "job": 0}, run_id=OTHER)
    result = host.run(flow, inputs, run_id=RUN)
    ended = host.info(OTHER).status
    assert ended == "cancelled", ended
    return result


def debounced_parts(body: Bodies) -> Parts:
    return {**limited_parts(body), "limits": [Debounce("customer", "1h")]}


def start_twice_in_a_while(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Start two runs that are one, and drive it once its time has come."""
    clock = clock_of(host)
    if not clock.has_moved_on:
        host.start(flow, {**inputs, "job": 0}, run_id=OTHER)
        host.start(flow, inputs, run_id=RUN)
        clock.move_on()
    result = host.resume(RUN, flow)
    ended = host.info(OTHER).status
    assert ended == "cancelled", ended
    return result


LIMITED = {
    "debounced": Scenario(
        debounced_parts,
        {"customer": "ann", "job": 1},
        "strong",
        program=start_twice_in_a_while,
        runs=(RUN, OTHER),
        moves_clock=True,
    ),
    "limited": Scenario(
        limited_parts, {"customer": "ann", "job": 1}, "strong", program=replace_another, runs=(RUN, OTHER)
    ),
}
