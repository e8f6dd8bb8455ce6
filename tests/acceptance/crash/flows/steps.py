"""Durable calls inside a node: whatever kills the process, what was recorded is not called again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any

from everstep import END, Breaker, Context, ifelse, node, wait
from everstep.codec.values import plain_bytes
from everstep.errors import WaitTimeout
from everstep.wait import Wait
from tests.acceptance.crash.flows.waits import answering
from tests.acceptance.crash.scenarios import AT_ONCE, ONCE_MORE, Bodies, Facts, Parts, Scenario


class Calls:
    """The calls of one node, each of which tells the killer where it is."""

    def __init__(self, body: Bodies, ctx: Context) -> None:
        self._body = body
        self._ctx = ctx
        self._counts: dict[str, int] = {}

    def look(self, what: Any, *, name: str = "look", costs: int = 0, **options: Any) -> Any:
        """Ask for a durable call of a sync node."""
        inside = self._inside(name, what)

        def call(what: Any, idempotency_key: str) -> str:
            with inside(idempotency_key):
                if costs:
                    self._ctx.spend(usd=costs)
                return f"known of {what}"

        return self._ctx.step(name, call, what, **options)

    def look_soon(self, what: Any, *, key: int | None = None) -> Any:
        """Ask for a durable call of an async node."""
        inside = self._inside("look", what, key)

        async def call(what: Any, idempotency_key: str) -> str:
            with inside(idempotency_key):
                await asyncio.sleep(0)
                return f"known of {what}"

        return self._ctx.step("look", call, what, key=key)

    def fail(self, what: Any) -> Any:
        """Ask for one that fails."""
        inside = self._inside("fail", what)

        def call(what: Any, idempotency_key: str) -> str:
            with inside(idempotency_key):
                raise LookupError(f"nothing is known of {what}")

        return self._ctx.step("fail", call, what)

    def _inside(
        self, name: str, what: Any, key: int | None = None
    ) -> Callable[[str], AbstractContextManager[None]]:
        ctx, place = self._ctx, f"${name}"
        if key is None:
            occurrence = self._counts[name] = self._counts.get(name, 0) + 1
        else:
            data = plain_bytes(key)
            assert data is not None
            place, occurrence = f"{place}={blake2b(data, digest_size=8).hexdigest()}", 1
        visit = f"@{ctx.visit}" if ctx.visit > 1 else ""
        path = f"{ctx.path}{visit}/{place}"
        return lambda own: self._body.killer.body(path, visit=occurrence, key=own, given=f"{what}")


def row_parts(body: Bodies) -> Parts:
    """Calls in a row, some of which ride with others, and what follows from them."""

    @node(output="found")
    def agent(question: str, ctx: Context):
        with body("agent", ctx):
            calls = Calls(body, ctx)
            began = ctx.now()  # which a clock that is set back makes later than what comes next
            found = [calls.look(f"{question} {n}") for n in range(3)]
            found.append(calls.look("notes", name="note", effects="pure"))
            noted = [began == ctx.now(), len(ctx.uuid()), ctx.random() < 1]
            return [*found, calls.look(f"{len(noted)} of {noted[1:]}", name="end")]

    return [agent, closing(body)]


def closing(body: Bodies):
    @node(output="count")
    def close(found: list[str], ctx: Context):
        with body("close", ctx):
            return len(found)

    return close


def loop_parts(body: Bodies) -> Parts:
    """Calls in each round of a loop."""

    @node(output="found")
    def grow(question: str, ctx: Context):
        with body("grow", ctx):
            calls = Calls(body, ctx)
            return [calls.look(f"{question} {ctx.visit}"), calls.look("more")]

    @ifelse(when_true=END, when_false="grow")
    def is_enough(found: list[str], ctx: Context):
        with body("is_enough", ctx):
            return ctx.visit == 3

    return {"nodes": [grow, is_enough], "entry": "grow"}


def gather_parts(count: int) -> Callable[[Bodies], Parts]:
    """Many calls at once, and one behind them."""

    def parts(body: Bodies) -> Parts:
        @node(output="found")
        async def agent(question: str, ctx: Context):
            with body("agent", ctx):
                calls = Calls(body, ctx)
                found = await asyncio.gather(
                    *(calls.look_soon(f"{question} {n}", key=n) for n in range(count))
                )
                return [*found, await calls.look_soon("the end")]

        return [agent, closing(body)]

    return parts


def item_parts(body: Bodies) -> Parts:
    """Calls in the items of a map."""

    @node(output="size")
    def measure(word: str, ctx: Context):
        with body("measure", ctx):
            calls = Calls(body, ctx)
            return len(calls.look(word)) + len(calls.look(word, name="more"))

    @node(output="sum")
    def add(size: list[int], ctx: Context):
        with body("add", ctx):
            return sum(size)

    return [measure.map_over("word", max_concurrency=1), add]


def wait_parts(body: Bodies) -> Parts:
    """Waits between calls: a person, a clock, and a time that is over."""

    @node(output="found", halts=True)
    def agent(question: str, ctx: Context):
        with body("agent", ctx):
            calls = Calls(body, ctx)
            found = calls.look(question)
            ok = ctx.wait(wait.approval("ok", context=found, timeout="3d"))
            ctx.sleep("2d")
            said = ctx.wait(Wait(kind="text", prompt="why"))
            return [found, ok.approved, said, calls.look("more")]

    return [agent, closing(body)]


def caught_parts(body: Bodies) -> Parts:
    """Failures that the node catches, at once and after another attempt: it goes the same way every time."""

    @node(output="found", halts=True)
    def agent(question: str, ctx: Context):
        with body("agent", ctx):
            calls = Calls(body, ctx)
            found = []
            try:
                found.append(calls.fail(question))
            except LookupError as error:
                found.append(calls.look(f"{type(error).__name__} {error}"))
            try:
                ctx.step("refuse", _refuse, question, retry=ONCE_MORE)
            except ConnectionError as error:
                found.append(calls.look(f"{type(error).__name__} {error}"))
            try:
                found.append(ctx.wait(wait.question("why", kind="text", timeout="1h")))
            except WaitTimeout as error:
                found.append(calls.look(type(error).__name__))
            return found

    return [agent, closing(body)]


def _refuse(what: str) -> str:
    raise ConnectionError(f"refused {what}")


def retry_parts(body: Bodies) -> Parts:
    """A node that fails between its calls, and whose next attempt keeps those it has made."""

    @node(output="found", retry=AT_ONCE)
    def agent(question: str, ctx: Context):
        with body("agent", ctx):
            calls = Calls(body, ctx)
            found = [calls.look(question)]
            if ctx.attempt == 1:
                raise ConnectionError("between two calls")
            found.append(calls.look("more"))
            if ctx.attempt == 2:
                raise ConnectionError("behind them")
            return [*found, calls.look("most")]

    return [agent, closing(body)]


def held_parts(**guards: Any) -> Callable[[Bodies], Parts]:
    """A call that costs more than a guard allows: the node is left before the next one, and goes on there."""

    def parts(body: Bodies) -> Parts:
        @node(output="found")
        def agent(question: str, ctx: Context):
            with body("agent", ctx):
                calls = Calls(body, ctx)
                found = [calls.look(question), calls.look("goods", name="buy", costs=5)]
                return [*found, calls.look("more"), calls.look("most")]

        return {"nodes": [agent, closing(body)], **guards}

    return parts


QUESTION: Facts = {"question": "why"}
BUDGET = held_parts(budgets={"usd": 3})
BREAKER = held_parts(breakers=[Breaker("cost", nodes=["agent"], cost={"usd": 3})])
STEPS = {
    "steps": Scenario(row_parts, QUESTION, "strong"),
    "steps-in-a-loop": Scenario(loop_parts, QUESTION, "strong"),
    "steps-at-once": Scenario(gather_parts(20), QUESTION, "strong"),
    "steps-around-waits": Scenario(wait_parts, QUESTION, "strong", program=answering()),
    "steps-kept-by-a-retry": Scenario(retry_parts, QUESTION, "strong"),
    "steps-held-by-a-budget": Scenario(BUDGET, QUESTION, "strong", program=answering(), stops=True),
}
MORE_STEPS = {
    "partial-steps": Scenario(row_parts, QUESTION),
    "partial-steps-at-once": Scenario(gather_parts(20), QUESTION),
    "steps-in-items": Scenario(item_parts, {"word": ["a", "bb", "ccc"]}, "strong"),
    "caught-steps": Scenario(caught_parts, QUESTION, "strong", program=answering(fires=("text",))),
    "partial-steps-around-waits": Scenario(wait_parts, QUESTION, program=answering()),
    "partial-steps-kept-by-a-retry": Scenario(retry_parts, QUESTION),
    "partial-steps-held-by-a-budget": Scenario(BUDGET, QUESTION, program=answering(), stops=True),
    "steps-held-by-a-breaker": Scenario(BREAKER, QUESTION, "strong", program=answering(), stops=True),
}
"""Those that `EVERSTEP_SOAK=1` adds."""
