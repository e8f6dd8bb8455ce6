"""Runs that are forked, and forks of those; runs that begin again at a node of one's choice."""

from __future__ import annotations

import asyncio

from everstep import Context, Flow, Host, node
from everstep.errors import RunNotFound
from everstep.results import RunInfo, RunResult
from tests.acceptance.crash.scenarios import RUN, Bodies, Facts, Parts, Scenario

CHILD, GRANDCHILD = "child", "grandchild"


def has(host: Host, run: str) -> RunInfo | None:
    try:
        return host.info(run)
    except RunNotFound:
        return None


def fork_a_fork(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Fork the run in its middle, and its fork in the middle of an inner flow, each with edits."""
    host.run(flow, inputs, run_id=RUN)
    if has(host, CHILD) is None:
        host.fork(RUN, at=3, state={"words": ["edited", "twice"]}, channel={"log": ["c"]}, fork_id=CHILD)
    host.resume(CHILD, flow)
    if has(host, GRANDCHILD) is None:
        at = next(c.sequence for c in host.checkpoints(CHILD) if "edit@2/cut" in c.nodes)
        host.fork(CHILD, at=at, inputs={"factor": 3}, fork_id=GRANDCHILD)
    return host.resume(GRANDCHILD, flow)


def start_over(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Reopen the failed run at a node before the one that failed."""
    result = host.run(flow, inputs, run_id=RUN)
    if result.status == "failed":
        return host.resume(RUN, flow, start="prepare")
    return result


def fork_parts(body: Bodies) -> Parts:
    @node(output="words")
    def split(text: str, ctx: Context):
        with body("split", ctx):
            ctx.channel.append("log", "split")
            return text.split()

    @node(output="part")
    def cut(words: list[str], ctx: Context):
        with body("cut", ctx):
            words.sort()
            return words[:2]

    @node(output="sent", effects="effectful", idempotency_key="auto")
    async def send(part: list[str], ctx: Context):
        with body("send", ctx):
            await asyncio.sleep(0)
            part.append("sent")
            ctx.channel.append("log", "sent")
            return part

    @node(output="report")
    def weigh(sent: list[str], factor: int, ctx: Context):
        with body("weigh", ctx):
            return [*sent, len(sent) * factor, ctx.channel["log"]]

    edit = Flow("edit", [cut, send]).as_node().lift("sent")
    return [split, edit, weigh]


def restart_parts(body: Bodies) -> Parts:
    @node(output="oven")
    def prepare(dough: list[int], ctx: Context):
        with body("prepare", ctx):
            dough.append(ctx.visit)
            return dough

    @node(output="bread")
    def bake(oven: list[int], ctx: Context):
        with body("bake", ctx):
            if oven[-1] == 1:
                raise ValueError("the oven is cold")
            oven.append(220)
            return oven

    @node(output="meal")
    def eat(bread: list[int]):
        with body("eat"):
            return len(bread)

    return [prepare, Flow("baking", [bake]).as_node(), eat]


FORKED = {
    "fork": Scenario(
        fork_parts,
        {"text": "a quick fox", "factor": 2},
        "strong",
        program=fork_a_fork,
        runs=(RUN, CHILD, GRANDCHILD),
    ),
    "resume-at-a-node": Scenario(restart_parts, {"dough": []}, "strong", program=start_over, reopens=True),
}
