"""Runs with limits: one replaces another that has its key, is driven within them, and calls a supplier."""

from __future__ import annotations

from everstep import Context, Flow, Host, Limit, Singleton, node
from everstep.results import RunResult
from tests.acceptance.crash.scenarios import RUN, Bodies, Facts, Parts, Scenario

OTHER = "run-0"


def limited_parts(body: Bodies) -> Parts:
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


LIMITED = {
    "limited": Scenario(
        limited_parts, {"customer": "ann", "job": 1}, "strong", program=replace_another, runs=(RUN, OTHER)
    )
}
