"""Flows that decide as they go: a state machine over the channel, tasks asked for, jumps."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from everstep import Context, Flow, Host, node
from everstep.results import RunResult
from tests.acceptance.crash.scenarios import AT_ONCE, RUN, Bodies, Facts, Parts, Scenario

CHANNEL = {"order_data": {"id": "ORD123", "amount": 100}, "draft": [1, 2], "log": ["received"], "total": 1}


def run_with_a_channel(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    return host.run(flow, inputs, run_id=RUN, channel=CHANNEL)


def machine_parts(body: Bodies) -> Parts:
    """An order that goes through its states, one visit each; the state is in the channel."""

    @node(retry=AT_ONCE)
    def process_order(ctx: Context):
        channel = ctx.channel
        state = channel.get("order_state", default="NEW")
        with body("process_order", ctx):
            channel.atomic_add("total", 2)
            channel.append("log", [state.lower()])
            if state == "NEW":
                channel.get("order_data")["amount"] = 0  # a copy: only its methods change the channel
                channel.set("order_state", "VALIDATED", ttl=timedelta(days=1000))
                ctx.checkpoint(metadata={"stage": "validation_complete"})
                ctx.next_iteration()
                return "validated"
            if state == "VALIDATED":
                channel.prepend("log", "paid")
                channel.delete("draft")
                channel.set("order_state", "PAID")
                if ctx.attempt == 1:
                    raise ConnectionError("the first attempt at paying always fails")
                ctx.checkpoint(metadata={"stage": "payment_complete"})
                ctx.next_iteration()
                return "paid"
            data = channel.get("order_data")
            data["shipped"] = True
            channel.set("order_data", data)
            return f"ORDER_COMPLETE {len(channel.get('log'))}"

    @node(output="counted")
    async def count(ctx: Context):
        with body("count", ctx):
            await asyncio.sleep(0)
            ctx.channel.atomic_add("total", 0.5)
            ctx.channel.append("log", "counted")
            return ctx.channel["total"]

    @node
    def thank(process_order: str, ctx: Context):
        with body("thank", ctx):
            ctx.channel["thanked"] = process_order
            return [ctx.channel["log"], ctx.channel.keys()]

    counting = Flow("counting", [count]).as_node()
    return [process_order >> counting >> thank]


def countdown_parts(body: Bodies) -> Parts:
    """A node that asks for itself with what is left to do, and what follows it."""

    @node
    async def eat(plate: list[str], eaten: int, ctx: Context):
        with body("eat", ctx):
            await asyncio.sleep(0)
            plate.pop()
            if plate:
                ctx.next_iteration(plate, eaten=eaten + 1)
            return eaten + 1

    @node
    def wash(eat: int, plate: list[str]):
        with body("wash"):
            plate.clear()
            return f"{eat} eaten"

    return [eat >> wash]


def tasks_parts(body: Bodies) -> Parts:
    """A crawl: tasks with arguments and priorities, one of them retried, a jump back, an early end."""

    @node
    def plan(urls: list[str], ctx: Context):
        with body("plan", ctx):
            for k, url in enumerate(urls):
                ctx.next_task("fetch", url=[url], depth=ctx.visit, priority=k)
            urls.clear()
            return ctx.visit

    @node(effects="effectful", idempotency_key="auto", retry=AT_ONCE)
    def fetch(url: list[str], depth: int, ctx: Context):
        with body("fetch", ctx):
            url.append(f"fetched at {depth}")
            if url[0] == "b" and ctx.attempt < 3:
                raise ConnectionError(f"attempt {ctx.attempt}")
            ctx.channel.append("pages", url)
            if url[0] == "c":
                ctx.next_task(close, reason="enough")
            return url

    @node
    def check(plan: int, ctx: Context):
        with body("check", ctx):
            if plan < 2:
                ctx.next_task("plan", urls=["a", "c"])
            return f"checked {plan}"

    @node
    def close(reason: str, ctx: Context):
        with body("close", ctx):
            ctx.terminate()
            return reason

    @node
    def late(check: str):
        with body("late"):
            return check

    return {"nodes": [plan >> check >> late], "tasks": [fetch, close]}


def auto_parts(body: Bodies) -> Parts:
    """Steps that are written two at a time."""

    def stage(name: str):
        @node(name=name)
        def work(words: list[str], ctx: Context):
            with body(name, ctx):
                words.append(name)
                return len(words) + ctx.channel.atomic_add("work")

        return work

    first, second, third, fourth, fifth = map(stage, ("first", "second", "third", "fourth", "fifth"))
    return [first >> second >> third >> fourth >> fifth]


PLATE = {"plate": ["a", "b", "c"], "eaten": 0}
URLS = {"urls": ["a", "b"]}
DYNAMIC = {
    "channel": Scenario(machine_parts, {}, "strong", program=run_with_a_channel),
    "partial-channel": Scenario(machine_parts, {}, program=run_with_a_channel),
    "next-iteration": Scenario(countdown_parts, PLATE, "strong"),
    "tasks": Scenario(tasks_parts, URLS, "strong", max_concurrency=1),
    "partial-tasks": Scenario(tasks_parts, URLS, max_concurrency=1),
    "auto-checkpoint": Scenario(auto_parts, {"words": []}, auto_checkpoint=2),
}
