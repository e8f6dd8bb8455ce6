"""Maps that are killed in the middle of their lists: over nodes, nested flows and atomic flows."""

from __future__ import annotations

import asyncio

from everstep import Context, Flow, Host, ItemError, node
from everstep.graph.author.subflow import Subflow
from everstep.results import RunResult
from tests.acceptance.crash.flows.nested import Session
from tests.acceptance.crash.scenarios import AT_ONCE, ONCE_MORE, RUN, Bodies, Facts, Parts, Scenario, clock_of


def overlapping_parts(body: Bodies) -> Parts:
    """Items that are in their bodies at the same time; the second is retried, and each has its own put."""

    @node(output="vector", effects="effectful", idempotency_key="auto", retry=AT_ONCE)
    def embed(word: list[str], scale: dict[str, int], ctx: Context):
        with body("embed", ctx):
            item = ctx.path.partition("#")[2]
            body.wait_for(f"before body embed#{int(not int(item))} 1")
            if item == "1" and ctx.attempt == 1:
                body.wait_for("after put 2")  # of the other item
                raise ConnectionError("the first attempt of this item always fails")
            word.append(item)
            scale[item] = 1
            return [len(word), len(scale)]

    @node(output="total")
    async def add(vector: list[list[int]]):
        with body("add"):
            vector.append([0, 0])
            return sum(map(sum, vector))

    return [embed.map_over("word"), add]


def product_parts(body: Bodies) -> Parts:
    """Each with each of two lists; one pair fails for good and its error is collected."""

    @node(output="pair", retry=ONCE_MORE)
    async def combine(left: str, right: list[int], ctx: Context):
        with body("combine", ctx):
            await asyncio.sleep(0)
            right.append(0)
            if left == "b" and len(right) == 3:
                raise ValueError(f"{left} and {right}")
            return [left, right]

    @node(output="report")
    def describe(pair: list[list[object] | ItemError], left: list[str]):
        with body("describe"):
            left.clear()
            return [p.message if isinstance(p, ItemError) else p for p in pair]

    over = combine.map_over("left", "right", mode="product", on_error="collect", max_concurrency=1)
    return [over, describe]


def rag(body: Bodies) -> Subflow:
    @node(output="chunks")
    def cut(text: str, ctx: Context):
        with body("cut", ctx):
            return text.split()

    @node(output="size", retry=AT_ONCE)
    async def measure(chunks: list[str], ctx: Context):
        with body("measure", ctx):
            await asyncio.sleep(0)
            chunks.sort()
            if ctx.path.partition("#")[2].startswith("0") and ctx.attempt == 1:
                raise ConnectionError("the first attempt at this item always fails")
            return int(chunks[0])

    return Flow("rag", [cut, measure]).as_node().lift("size")


def nested_items_parts(body: Bodies) -> Parts:
    """Items that are flows, one of which fails and is left out; gone over once more in a second map."""

    @node(output="text")
    def again(size: list[int]):
        with body("again"):
            size.reverse()
            return [f"{n} b" for n in size]

    first = rag(body).with_inputs(text="texts").map_over("text", on_error="skip", max_concurrency=1)
    second = rag(body).with_name("rest").with_outputs(size="sizes")
    return [first, again, second.map_over("text", max_concurrency=1)]


def nested_overlapping_parts(body: Bodies) -> Parts:
    """Two items that are flows, both open: the second comes to its end after the first."""

    @node(output="chunks")
    def cut(text: str, ctx: Context):
        with body("cut", ctx):
            body.meet()
            if text == "late":
                body.wait_for("after put 3")  # of the other item's last node
            return list(text)

    @node(output="size")
    def measure(chunks: list[str], ctx: Context):
        with body("measure", ctx):
            chunks.append("!")
            return len(chunks)

    return [Flow("rag", [cut, measure]).as_node().lift("size").map_over("text")]


def atomic_items_parts(body: Bodies) -> Parts:
    """Items that are atomic flows: one fails for good and its error is collected."""

    @node(output="session")
    def log_in(name: str, shared: list[str], ctx: Context):
        with body("log_in", ctx):
            shared.append(name)
            return Session(shared)

    @node(output="answer", retry=ONCE_MORE)
    async def ask(session: Session, ctx: Context):
        with body("ask", ctx):
            await asyncio.sleep(0)
            if "bad" in session.words:
                raise ValueError("bad")
            return [*session.words, session.lock.locked()]

    @node(output="report")
    def describe(answer: list[list[object] | ItemError]):
        with body("describe"):
            return [a.message if isinstance(a, ItemError) else a for a in answer]

    exchange = Flow("exchange", [log_in, ask]).as_node(durability="atomic").lift("answer")
    return [exchange.map_over("name", on_error="collect", max_concurrency=1), describe]


def finished_items_parts(body: Bodies) -> Parts:
    """Items that are flows, all done before the run fails; one fails in its middle until it is fixed."""

    @node(output="chunks")
    def cut(text: str, ctx: Context):
        with body("cut", ctx):
            return text.split()

    @node(output="size", effects="effectful", idempotency_key="auto")
    def measure(chunks: list[str], ctx: Context):
        with body("measure", ctx):
            if "bad" in chunks and not (body.folder / "fixed").exists():
                raise ValueError("bad")
            return len(chunks)

    @node(output="total")
    def add(size: list[int]):
        with body("add"):
            return sum(size)

    item = Flow("item", [cut, measure]).as_node().lift("size")
    return [item.map_over("text", on_error="finish", max_concurrency=1), add]


def fix_and_resume(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Run until all items are done, fix what failed, and resume."""
    result = host.run(flow, inputs, run_id=RUN)
    if result.status == "failed":
        (clock_of(host).folder / "fixed").touch()
        result = host.resume(RUN, flow)
    return result


WORDS = {"word": [["a"], ["b", "c"]], "scale": {"x": 1}}
LISTS = {"left": ["a", "b"], "right": [[1], [1, 2]]}
TEXTS = {"texts": ["3 x", "x y"]}
NAMES = {"name": ["ann", "bad", "cyd"], "shared": ["s"]}
MAPPED = {
    "map": Scenario(overlapping_parts, WORDS, "strong"),
    "map-product": Scenario(product_parts, LISTS, "strong"),
    "partial-map-product": Scenario(product_parts, LISTS),
    "map-nested": Scenario(nested_items_parts, TEXTS, "strong"),
    "map-nested-overlapping": Scenario(nested_overlapping_parts, {"text": ["soon", "late"]}, "strong"),
    "map-atomic": Scenario(atomic_items_parts, NAMES, "strong", atomic=("exchange",)),
    "partial-map-atomic": Scenario(atomic_items_parts, NAMES, atomic=("exchange",)),
    "map-finished": Scenario(
        *(finished_items_parts, {"text": ["a b", "bad", "c"]}, "strong"),
        program=fix_and_resume,
        reopens=True,
    ),
}
