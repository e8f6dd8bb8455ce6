"""Flows inside flows: nested, nested in nested, in a loop; atomic, with values that cannot be stored."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from everstep import END, Context, Flow, ifelse, node
from everstep.graph.author.subflow import Subflow
from tests.acceptance.crash.scenarios import AT_ONCE, Bodies, Parts, Scenario


class Session:
    """Something that lives in memory only: no one could store its lock."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.lock = threading.Lock()


def polishing(body: Bodies) -> Subflow:
    @node(output="marked")
    def mark(part: list[str], ctx: Context):
        with body("mark", ctx):
            part.append(f"mark {ctx.visit}")
            return part

    @node(output="polished")
    async def polish(marked: list[str], ctx: Context):
        with body("polish", ctx):
            await asyncio.sleep(0)
            marked.reverse()
            return marked

    return Flow("polishing", [mark, polish]).as_node(select=["polished"]).lift("polished")


def nested_parts(body: Bodies) -> Parts:
    """A nested flow in a loop, with a nested flow inside it."""

    @node(output="part")
    def cut(words: list[str], ctx: Context):
        with body("cut", ctx):
            words.sort()
            return words[:2]

    @node(output="sent", effects="effectful", idempotency_key="auto", retry=AT_ONCE)
    def send(polished: list[str], ctx: Context):
        with body("send", ctx):
            polished.append("sent")
            if ctx.attempt == 1:
                raise ConnectionError("the first attempt always fails")
            return polished

    edit = Flow("edit", [cut, polishing(body), send]).as_node().lift("sent").with_outputs(sent="words")

    @ifelse(when_true="edit", when_false=END)
    def is_rough(words: list[str], ctx: Context):
        with body("is_rough", ctx):
            return ctx.visit < 2

    @node(output="title")
    def publish(words: list[str]):
        with body("publish"):
            return " ".join(words)

    return {"nodes": [edit, is_rough, publish], "entry": "edit"}


def atomic_parts(body: Bodies) -> Parts:
    """An atomic flow in a loop, of which only one value can be stored; a nested flow is inside it."""

    @node(output="session")
    def log_in(words: list[str], ctx: Context):
        with body("log_in", ctx):
            words.append(f"login {len(words)}")
            return Session(words)

    @node(output="part", retry=AT_ONCE)
    def ask(session: Session, ctx: Context):
        with body("ask", ctx):
            if ctx.attempt == 1:
                raise ConnectionError("the first attempt always fails")
            return list(session.words)

    exchange = Flow("exchange", [log_in, ask, polishing(body)]).as_node(durability="atomic")

    @ifelse(when_true="exchange", when_false=END)
    def wants_more(words: list[str], ctx: Context):
        with body("wants_more", ctx):
            return ctx.visit < 2

    @node(output="bill", effects="effectful", idempotency_key="auto")
    def pay(words: list[str], ctx: Context):
        with body("pay", ctx):
            return len(words)

    return {
        "nodes": [exchange.lift("polished").with_outputs(polished="words"), wants_more, pay],
        "entry": "exchange",
    }


def atomic_in_nested_parts(body: Bodies) -> Parts:
    """An atomic flow inside a nested one that runs beside another node."""

    @node(output="session")
    def log_in(words: list[str]):
        with body("fetch/exchange/log_in"):
            return Session(words)

    @node(output="answer")
    async def ask(session: Session):
        with body("fetch/exchange/ask"):
            await asyncio.sleep(0)
            return [word.upper() for word in session.words]

    exchange = Flow("exchange", [log_in, ask]).as_node(durability="atomic").lift("answer")

    @node(output="count")
    def count(answer: list[str]):
        with body("fetch/count"):
            answer.clear()
            return len(answer)

    @node(output="report")
    def report(answer: list[str], count: int) -> dict[str, Any]:
        with body("report"):
            return {"answer": answer, "count": count}

    fetch = Flow("fetch", [exchange, count]).as_node()
    return [fetch.lift("answer", "count"), report]


WORDS = {"words": ["quick", "brown", "fox"]}
NESTED = {
    "nested": Scenario(nested_parts, WORDS, "strong"),
    "partial-nested": Scenario(nested_parts, WORDS),
    "atomic": Scenario(atomic_parts, WORDS, "strong", atomic=("exchange",)),
    "partial-atomic": Scenario(atomic_parts, WORDS, atomic=("exchange",)),
    "atomic-in-nested": Scenario(atomic_in_nested_parts, WORDS, "strong", atomic=("exchange",)),
}
