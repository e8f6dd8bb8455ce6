"""Flows as users write them: chains, branches, loops, retries, large values."""

from __future__ import annotations

import hashlib
import uuid
from datetime import timedelta
from typing import Any

from everstep import END, Context, Durability, Node, Retry, ifelse, node
from everstep.model.enums import Flush, Mode
from tests.acceptance.crash.scenarios import (
    AT_ONCE,
    Bodies,
    Scenario,
    cancel_after_an_interrupt,
    run_after_an_interrupt,
)


def chain_nodes(body: Bodies) -> list[Node]:
    @node(output="items")
    def split(text: str):
        with body("split"):
            return text.split()

    @node(output="longest")
    def sort_in_place(items: list[str]):
        with body("sort_in_place"):
            items.append("zebra-crossing")
            items.sort(key=len)
            return items[-1]

    @node(output="receipt", effects="effectful", idempotency_key="auto")
    def charge(longest: str, ctx: Context):
        with body("charge", ctx):
            return {"paid": len(longest)}

    @node(output="ticket", effects="effectful", idempotency_key=lambda receipt: str(uuid.uuid4()))
    def book(receipt: dict[str, Any], ctx: Context):
        with body("book", ctx):
            receipt["booked"] = True
            return sorted(receipt)

    @node(output="report", effects="pure")
    def report(ticket: list[str], longest: str):
        with body("report"):
            return f"{longest}: {', '.join(ticket)}"

    return [split, sort_in_place, charge, book, report]


def small_nodes(body: Bodies) -> list[Node]:
    @node(output="total")
    def add(prices: list[int]):
        with body("add"):
            prices.append(1)
            return sum(prices)

    @node(output="bill", effects="effectful", idempotency_key="auto")
    def send(total: int, ctx: Context):
        with body("send", ctx):
            return f"{total} EUR"

    return [add, send]


def diamond_nodes(body: Bodies) -> list[Node]:
    @node(output="words")
    def fetch(text: str):
        with body("fetch"):
            return text.split()

    @node(output="left")
    def count(words: list[str]):
        with body("count"):
            body.meet()
            words.clear()
            return "cleared"

    @node(output="right", effects="effectful", idempotency_key="auto")
    def publish(words: list[str], ctx: Context):
        with body("publish", ctx):
            body.meet()
            body.wait_for("after put 3")  # of `count`: no step waits for a running sibling
            words.reverse()
            return " ".join(words)

    @node(output="joined")
    def join(left: str, right: str, words: list[str]):
        with body("join"):
            return [left, right, len(words)]

    return [fetch, count, publish, join]


def loop_nodes(body: Bodies) -> list[Node]:
    @node(output="draft")
    def improve(draft: list[int], ctx: Context):
        with body("improve", ctx):
            draft.append(ctx.visit)
            return draft

    @ifelse(when_true="improve", when_false=END)
    def is_short(draft: list[int], ctx: Context):
        with body("is_short", ctx):
            return len(draft) < 5

    @node(output="title", effects="effectful", idempotency_key="{run_id}-{visit}")
    def publish(draft: list[int], ctx: Context):
        with body("publish", ctx):
            return f"{len(draft)} parts"

    return [improve, is_short, publish]


def album_nodes(body: Bodies) -> list[Node]:
    """A large value that is replaced and a list that grows, over several keyframes."""

    @node(output=("photo", "captions"))
    def shoot(captions: list[str], ctx: Context):
        with body("shoot", ctx):
            captions.append(f"photo {ctx.visit}")
            return f"{ctx.visit}" * 40_000, captions

    @ifelse(when_true="shoot", when_false=END)
    def wants_more(captions: list[str], ctx: Context):
        with body("wants_more", ctx):
            return len(captions) < 6

    return [shoot, wants_more]


def retry_nodes(body: Bodies) -> list[Node]:
    @node(output="order")
    def take(name: str):
        with body("take"):
            return [name]

    @node(
        output="answer",
        effects="effectful",
        idempotency_key=lambda order: str(uuid.uuid4()),
        retry=AT_ONCE,
    )
    def call(order: list[str], ctx: Context):
        with body("call", ctx):
            order.append("spoiled")
            if ctx.attempt < 3:
                raise ConnectionError(f"attempt {ctx.attempt}")
            return order

    @node(output="thanks")
    def thank(answer: list[str]):
        with body("thank"):
            return f"thanks, {answer[0]}"

    return [take, call, thank]


def exhausted_nodes(body: Bodies) -> list[Node]:
    @node(output="answer", retry=Retry(2, first=0, jitter=0))
    def call(name: str, ctx: Context):
        with body("call", ctx):
            raise ConnectionError(f"attempt {ctx.attempt}")

    return [call]


def large_nodes(body: Bodies) -> list[Node]:
    @node(output="video")
    def render(seed: int):
        with body("render"):
            return bytes((seed + k) % 256 for k in range(256)) * (5 * 4096)

    @node(output="size")
    def measure(video: bytes):
        with body("measure"):
            return len(video)

    @node(output="digest")
    def digest(video: bytes, size: int):
        with body("digest"):
            return f"{size} {hashlib.sha256(video).hexdigest()}"

    return [render, measure, digest]


def interrupted_nodes(body: Bodies) -> list[Node]:
    seen: list[int] = []

    @node(output="a")
    def first(x: int):
        with body("first"):
            return x + 1

    @node(output="b")
    def second(a: int):
        with body("second"):
            if not seen:
                seen.append(a)
                raise KeyboardInterrupt
            return a * 2

    return [first, second]


def stubborn_nodes(body: Bodies) -> list[Node]:
    @node(output="a")
    def first(x: int):
        with body("first"):
            return x + 1

    @node(output="b")
    def second(a: int):
        with body("second"):
            raise KeyboardInterrupt

    return [first, second]


def patient_nodes(body: Bodies) -> list[Node]:
    @node(output="answer")
    def wait(x: int):
        with body("wait"):
            body.killer.wait_for("after renew 1")
            return x + 1

    return [wait]


TEXT = {"text": "a quick brown fox jumps"}
PLAIN = {
    "chain": Scenario(chain_nodes, TEXT, "strong"),
    "small": Scenario(small_nodes, {"prices": [2, 3]}, "strong"),
    "diamond": Scenario(diamond_nodes, TEXT, "strong"),
    "loop": Scenario(loop_nodes, {"draft": [0]}, "strong", entry="improve"),
    "keyframes": Scenario(album_nodes, {"captions": []}, "strong", entry="shoot"),
    "retry": Scenario(retry_nodes, {"name": "Ada"}, "strong"),
    "exhausted": Scenario(exhausted_nodes, {"name": "Ada"}, "strong"),
    "large": Scenario(large_nodes, {"seed": 7}, "strong"),
    "interval": Scenario(chain_nodes, TEXT, Durability(Mode.STRONG, interval=2)),
    "interval-loop": Scenario(
        loop_nodes, {"draft": [0]}, Durability(Mode.STRONG, interval=3), entry="improve"
    ),
    "before-effects": Scenario(chain_nodes, TEXT, Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS)),
    "before-effects-retry": Scenario(
        retry_nodes, {"name": "Ada"}, Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS)
    ),
    "partial": Scenario(chain_nodes, TEXT),
    "partial-loop": Scenario(loop_nodes, {"draft": [0]}, entry="improve"),
    "partial-retry": Scenario(retry_nodes, {"name": "Ada"}),
    "interrupted": Scenario(interrupted_nodes, {"x": 1}, "strong", program=run_after_an_interrupt),
    "cancelled": Scenario(stubborn_nodes, {"x": 1}, "strong", program=cancel_after_an_interrupt),
    "renewed": Scenario(
        patient_nodes, {"x": 1}, Durability(Mode.STRONG, lease_ttl=timedelta(milliseconds=400))
    ),
}
