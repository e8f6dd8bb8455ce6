"""Effects whose process dies in them: asked about, or left to an operator who settles them."""

from __future__ import annotations

from typing import Any

from everstep import Context, Done, Durability, Flow, Host, Node, node
from everstep.model.enums import Mode
from everstep.results import RunResult
from tests.acceptance.crash.scenarios import AT_ONCE, RUN, Bodies, Facts, Parts, Program, Scenario

STRONG = Durability(Mode.STRONG)


def made(body: Bodies) -> list[str]:
    """Return the keys of the effects that were made, in every life."""
    file = body.folder / "made"
    return file.read_text().split() if file.exists() else []


def make(body: Bodies, key: str) -> None:
    with (body.folder / "made").open("a") as file:
        file.write(f"{key}\n")


def probed_parts(body: Bodies) -> Parts:
    """An effect whose first attempt fails, and a reader that counts how often it was made."""

    @node(output="order")
    def take(text: list[str]):
        with body("take"):
            return [*text, "taken"]

    def look_up(idempotency_key: str) -> Done | None:
        return Done(f"found {made(body).count(idempotency_key)}") if idempotency_key in made(body) else None

    @node(output="receipt", effects="effectful", idempotency_key="auto", probe=look_up, retry=AT_ONCE)
    def charge(order: list[str], ctx: Context):
        with body("charge", ctx):
            if ctx.attempt == 1:
                raise ConnectionError("the first attempt always fails")
            make(body, ctx.idempotency_key)
            return "found 1"

    @node(output="letter")
    def thank(receipt: str):
        with body("thank"):
            return [receipt, len(made(body))]

    return [take, charge, thank]


def stopping(body: Bodies, name: str = "send") -> Node:
    """Return an effect whose first process is interrupted in it."""

    def send(order: Any, ctx: Context):
        with body(name, ctx):
            is_first = ctx.idempotency_key not in made(body)
            make(body, ctx.idempotency_key)
        if is_first:
            raise KeyboardInterrupt
        return f"sent {ctx.path}"

    return node(name=name, output="sent", effects="effectful", idempotency_key="auto", on_unknown="stop")(
        send
    )


def stopped_parts(body: Bodies) -> Parts:
    @node(output="letter")
    def thank(sent: str):
        with body("thank"):
            return f"{sent}!"

    return [stopping(body), thank]


def stopped_inside_parts(body: Bodies) -> Parts:
    """The same in the items of a map, inside a flow."""

    @node(output="letter")
    def thank(sent: list[str]):
        with body("thank"):
            return sent

    items = Flow("item", [stopping(body)]).as_node().lift("sent").map_over("order", max_concurrency=1)
    return [items, thank]


def settling(*, rerun: bool) -> Program:
    """Return a program that goes on until the run has ended, and settles what is asked."""

    def program(host: Host, flow: Flow, inputs: Facts) -> RunResult:
        while True:
            try:
                result = host.run(flow, inputs, run_id=RUN)
            except KeyboardInterrupt:
                continue
            if result.status != "halted":
                return result
            for asked in host.waits(RUN, kind="settle"):
                if rerun:
                    host.waiting.settle(RUN, asked.node, rerun=True)
                else:
                    host.waiting.settle(RUN, asked.node, done=f"sent {asked.node}")

    return program


ORDER: Facts = {"order": ["tea"]}
ORDERS: Facts = {"order": ["tea", "cups"]}
UNKNOWN = {
    "probed": Scenario(probed_parts, {"text": ["a"]}, STRONG),
    "settled-as-done": Scenario(stopped_parts, ORDER, STRONG, program=settling(rerun=False)),
    "settled-by-rerun": Scenario(stopped_parts, ORDER, STRONG, program=settling(rerun=True), stops=True),
}
MORE_UNKNOWN = {
    "probed-partial": Scenario(probed_parts, {"text": ["a"]}),
    "settled-inside": Scenario(
        stopped_inside_parts, ORDERS, STRONG, program=settling(rerun=False), max_concurrency=1
    ),
    "settled-inside-by-rerun": Scenario(
        stopped_inside_parts, ORDERS, STRONG, program=settling(rerun=True), stops=True, max_concurrency=1
    ),
    "settled-partial": Scenario(stopped_parts, ORDER, program=settling(rerun=True), stops=True),
}
