"""Runs that start others, wait for them and are cancelled: each child once, whatever kills the process.

So does a schedule, which is one of them.
"""

from __future__ import annotations

from collections.abc import Callable

from everstep import Context, Flow, Host, node, wait
from everstep.engine.keys import child_id
from everstep.results import RunResult
from everstep.runtime.operations.schedules.deciding import run_asked_for
from tests.acceptance.crash.scenarios import RUN, Bodies, Facts, Parts, Scenario

CHILDREN_OF = tuple(child_id(RUN, "begin", 1, f"start-ship@{k}") for k in (1, 2))


def shipping(body: Bodies) -> Flow:
    @node(output="parcel", effects="effectful", idempotency_key="auto")
    def pack(order: str, ctx: Context):
        with body("pack", ctx):
            return f"parcel for {order}"

    return Flow("ship", [pack], durability="strong")


def shop_parts(*, waits: bool) -> Callable[[Bodies], Parts]:
    """Starts two runs, and waits for them in the node behind."""

    def parts(body: Bodies) -> Parts:
        ship = shipping(body)

        @node(output="started")
        def begin(orders: list[str], ctx: Context):
            with body("begin", ctx):
                return [ctx.start(ship, {"order": order}).run_id for order in orders]

        @node(output="parcels", halts=True)
        def collect(started: list[str], ctx: Context):
            return [ctx.result(one)["parcel"] for one in started]

        @node(output="count")
        def close(parcels: list[str], ctx: Context):
            with body("close", ctx):
                return len(parcels)

        @node(output="count")
        def leave(started: list[str], ctx: Context):
            with body("leave", ctx):
                return len(started)

        return {"nodes": [begin, collect, close] if waits else [begin, leave], "starts": [ship]}

    return parts


def run_with_its_children(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Drive a run and, beside it, those that it waits for: their writes lie between its own."""
    return host.run(flow, inputs, run_id=RUN)


def run_and_then_its_children(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Drive a run that waits for none of those that it starts, and then them, one after the other."""
    result = host.run(flow, inputs, run_id=RUN)
    for one in CHILDREN_OF:
        host.resume(one, flow.starts[0])
    return result


def asking_parts(body: Bodies) -> Parts:
    """Starts a run that waits for a person, and waits for it."""

    @node(output="parcel")
    def pack(order: str, ctx: Context):
        with body("pack", ctx):
            return f"parcel for {order}"

    ship = Flow("ship", [wait.approval("ok"), pack], durability="strong")

    @node(output="parcel", halts=True)
    def begin(order: str, ctx: Context):
        child = ctx.start(ship, {"order": order})
        return ctx.result(child)["parcel"]

    return {"nodes": [begin], "starts": [ship]}


def cancel_once_it_halts(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    if host.run(flow, inputs, run_id=RUN).status == "halted":
        host.resume(CHILDREN_OF[0], flow.starts[0])  # if it could not be driven beside its starter
    host.cancel(RUN)
    host.resume(CHILDREN_OF[0], flow.starts[0])  # which was asked to stop, and ends if it has not yet
    return host.run(flow, inputs, run_id=RUN)


def cancel_a_fork(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Cancel a fork that waits for the same child, which goes on."""
    if host.run(flow, inputs, run_id=RUN).status == "halted":
        if all(info.run_id != FORK for info in host.runs()):
            host.fork(RUN, fork_id=FORK)
        host.resume(FORK, flow)
        host.cancel(FORK)
        for asked in host.waits(CHILDREN_OF[0], status="open"):
            host.answer(asked.id, {"approved": True, "approver": "ann"})
    return host.run(flow, inputs, run_id=RUN)


def report_parts(body: Bodies) -> Parts:
    @node(output="report", effects="effectful", idempotency_key="auto")
    def write(region: str, ctx: Context):
        with body("write", ctx):
            return f"report of {region}"

    return [write]


def run_by_a_schedule(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Make a schedule, ask it for a run, and work until nothing is due. All of it may be done again."""
    host.schedules.create(flow, "clock", every="30d", inputs=inputs)
    host.schedules.run_now("clock", id="please")
    host.work([flow], until_idle=True)
    told, runs = host.schedules.get("clock"), host.runs(started_by="clock")
    assert (told.started, told.refused, [run.run_id for run in runs]) == (1, 0, [ASKED])
    result = host.run(flow, run_id=ASKED)
    assert result["report"] == "report of eu"
    return result


ASKED = run_asked_for("clock", "please")
FORK = "the-fork"
ORDERS = {"orders": ["ann", "bob"]}
FAMILIES = {
    "child-runs": Scenario(
        shop_parts(waits=True), ORDERS, program=run_with_its_children, runs=(RUN, *CHILDREN_OF)
    ),
    # What a schedule keeps has the times at which it looked, which are others in every life.
    "schedules": Scenario(
        report_parts, {"region": "eu"}, program=run_by_a_schedule, runs=(ASKED,), is_chancy=True
    ),
}
MORE_FAMILIES = {
    "child-runs-left": Scenario(
        shop_parts(waits=False), ORDERS, program=run_and_then_its_children, runs=(RUN, *CHILDREN_OF)
    ),
    "child-runs-cancelled": Scenario(
        asking_parts, {"order": "ann"}, program=cancel_once_it_halts, runs=(RUN, CHILDREN_OF[0])
    ),
    "child-runs-forked": Scenario(
        asking_parts, {"order": "ann"}, program=cancel_a_fork, runs=(RUN, CHILDREN_OF[0])
    ),
}
