"""Groups that are killed while their branches run, for each policy and join."""

from __future__ import annotations

import asyncio
from typing import Any

from everstep import Context, Flow, at_least, chain, critical, node, parallel, quorum
from everstep.graph.author.wiring import Group
from tests.acceptance.crash.scenarios import ONCE_MORE, Bodies, Parts, Scenario


def race_parts(body: Bodies) -> Parts:
    """The first success is enough: the losers, one of them a flow, are called off."""

    @node
    def begin(words: list[str]):
        with body("begin"):
            words.sort()
            return words

    @node
    def quick(begin: list[str], ctx: Context):
        with body("quick", ctx):
            body.wait_for("before body slow 1")
            body.wait_for("before body deep/wait 1")
            begin.append("quick")
            return begin

    @node(effects="effectful", idempotency_key="auto")
    async def slow(begin: list[str], ctx: Context):
        with body("slow", ctx):
            await asyncio.Event().wait()
            return begin

    @node(output="waited")
    async def wait(words: list[str], ctx: Context):
        with body("wait", ctx):
            await asyncio.Event().wait()
            return words

    deep = Flow("deep", [wait]).as_node()

    @node
    def report(quick: list[str], begin: list[str]):
        with body("report"):
            quick.reverse()
            return [quick, begin]

    return [begin >> parallel(quick, slow, deep, policy="first_success") >> report]


def late_parts(body: Bodies) -> Parts:
    """A loser in a thread cannot be stopped: what it returns, after the join is durable, is dropped."""

    @node
    def quick(words: list[str]):
        with body("quick"):
            body.killer.wait_for("before body slow 1")  # in every life: a race that never began is none
            words.append("quick")
            return words

    @node
    def slow(words: list[str]):
        with body("slow"):
            body.killer.wait_for("before body report 1")
            words.append("slow")
            return words

    @node
    def report(quick: list[str], ctx: Context):
        with body("report", ctx):
            body.wait_for("after body slow 1")
            return [*quick, ctx.channel.get("slow.__result__")]

    return [parallel(quick, slow, join="first_success") >> report]


def far_parts(body: Bodies) -> Parts:
    """A loser is a flow that has come far: what it recorded, an effect too, is called off with it."""

    @node
    def quick(words: list[str], ctx: Context):
        with body("quick", ctx):
            body.killer.wait_for("before body deep/ship 1")  # in every life, so that it always comes this far
            words.append("quick")
            return words

    @node(output="order")
    def pick(words: list[str], ctx: Context):
        with body("pick", ctx):
            words.sort()
            return words

    @node(output="receipt", effects="effectful", idempotency_key="auto", retry=ONCE_MORE)
    async def pay(order: list[str], ctx: Context):
        with body("pay", ctx):
            order.append("paid")
            if ctx.attempt == 1:
                raise ConnectionError("the first attempt at paying always fails")
            return order

    @node(output="parcel", effects="effectful", idempotency_key="auto")
    async def ship(receipt: list[str], ctx: Context):
        with body("ship", ctx):
            await asyncio.Event().wait()
            return receipt

    deep = Flow("deep", [pick, pay, ship]).as_node()

    @node
    def report(quick: list[str], words: list[str], ctx: Context):
        with body("report", ctx):
            quick.reverse()
            return [quick, words]

    return [parallel(quick, deep, policy="first_success") >> report]


def lost_map_parts(body: Bodies) -> Parts:
    """A loser is a map: an item of it is done, one is in a thread that no one can stop, one never begins."""

    @node
    async def quick(words: list[str]):
        with body("quick"):
            await asyncio.to_thread(body.killer.wait_for, "before body rag#1/measure 1")
            words.append("quick")
            return words

    @node(output="letters")
    async def cut(word: str, ctx: Context):
        with body("cut", ctx):
            return list(word)

    @node(output="size", effects="effectful", idempotency_key="auto")
    def measure(letters: list[str], ctx: Context):
        with body("measure", ctx):
            letters.append("!")
            if ctx.path == "rag#1/measure":
                body.killer.wait_for("before body report 1")
            return len(letters)

    @node(output="label")
    def label(size: int, ctx: Context):
        with body("label", ctx):
            return f"{size} letters"

    @node
    def report(quick: list[str], ctx: Context):
        with body("report", ctx):
            body.wait_for("after body rag#1/measure 1")
            return [*quick, "size" in ctx.channel]

    rag = Flow("rag", [cut, measure, label]).as_node().lift("label")
    over = rag.with_inputs(word="words").map_over("word", max_concurrency=1)
    return [parallel(quick, over, policy="first_success") >> report]


def any_parts(body: Bodies) -> Parts:
    """One success is enough to go on; the other branch goes on too."""

    @node
    async def quick(words: list[str]):
        with body("quick"):
            await body.wait_for_async("before body slow 1")
            words.append("quick")
            return words

    @node
    def slow(words: list[str], ctx: Context):
        with body("slow", ctx):
            body.wait_for("after put 4")  # of `report`
            words.append("slow")
            return words

    @node
    def send(slow: list[str], ctx: Context):
        with body("send", ctx):
            slow.append("sent")
            return slow

    @node
    def report(quick: list[str]):
        with body("report"):
            return len(quick)

    return [parallel(quick, chain(slow, send, name="branch"), join="any") >> report]


def quorum_parts(body: Bodies) -> Parts:
    """Two of three are enough: one has failed by then, and nothing waits for it."""

    @node(retry=ONCE_MORE)
    def a(words: list[str], ctx: Context):
        with body("a", ctx):
            words.append("a")
            if ctx.attempt == 1:
                raise ConnectionError("the first attempt always fails")
            return words

    @node
    async def b(words: list[str]):
        with body("b"):
            raise ValueError("b never works")

    @node
    def c(words: list[str]):
        with body("c"):
            words.append("c")
            return words

    @node
    def report(a: list[str], c: list[str]):
        with body("report"):
            return [a, c]

    return [parallel(a, b, c, policy=quorum(2)) >> report]


def policies_parts(body: Bodies) -> Parts:
    """Groups one after the other, each of which tolerates a failure, or has a rule of its own."""

    def pair(name: str, policy: Any) -> Group:
        @node(name=f"{name}_bad")
        def bad():
            with body(f"{name}_bad"):
                raise ValueError("this never works")

        @node(name=f"{name}_good")
        def good(words: list[str]):
            with body(f"{name}_good"):
                words.append(name)
                return words

        return parallel(bad, good, policy=policy)

    @node
    def report(ctx: Context):
        with body("report", ctx):
            return [ctx.channel[f"{name}_good.__result__"] for name in ("effort", "vital", "enough", "rule")]

    return [
        pair("effort", "best_effort")
        >> pair("vital", critical("vital_good"))
        >> pair("enough", at_least(1))
        >> pair("rule", lambda outcomes: outcomes["rule_bad"] == "failed")
        >> report
    ]


def strict_parts(body: Bodies) -> Parts:
    """Two branches overlap and meet; then one of another two fails, and with it the run."""

    @node
    def left(words: list[str]):
        with body("left"):
            body.meet()
            words.append("left")
            return words

    @node
    def right(words: list[str]):
        with body("right"):
            body.meet()
            body.wait_for("after put 2")  # of the other
            words.append("right")
            return words

    @node
    async def good(left: list[str], right: list[str]):
        with body("good"):
            await asyncio.sleep(0)
            return left + right

    @node(retry=ONCE_MORE)
    def bad(left: list[str], ctx: Context):
        with body("bad", ctx):
            body.wait_for("after put 4")  # of the other
            raise ValueError(f"attempt {ctx.attempt} after {left}")

    @node
    def never():
        with body("never"):
            raise AssertionError("nothing starts after a final failure")

    return [(left | right) >> (good | bad) >> never]


WORDS = {"words": ["quick", "brown"]}
GROUPED = {
    "first-success": Scenario(race_parts, WORDS, "strong"),
    "first-success-in-a-thread": Scenario(late_parts, WORDS, "strong"),
    "first-success-over-a-flow": Scenario(far_parts, WORDS, "strong"),
    "first-success-over-a-map": Scenario(lost_map_parts, {"words": ["quick", "brown", "fox"]}, "strong"),
    "any": Scenario(any_parts, WORDS, "strong"),
    "quorum": Scenario(quorum_parts, WORDS, "strong", max_concurrency=1),
    "policies": Scenario(policies_parts, WORDS, "strong", max_concurrency=1),
    "partial-policies": Scenario(policies_parts, WORDS, max_concurrency=1),
    "strict": Scenario(strict_parts, WORDS, "strong"),
}
