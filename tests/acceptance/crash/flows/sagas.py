"""Runs that undo what they did, killed on the way there and on the way back."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from everstep import Context, Flow, Host, Node, Retry, ifelse, node
from everstep.results import RunResult
from tests.acceptance.crash.flows.forks import CHILD, has
from tests.acceptance.crash.flows.waits import YES
from tests.acceptance.crash.scenarios import AT_ONCE, RUN, Bodies, Facts, Parts, Scenario, clock_of

TWICE = Retry(2, first=0, jitter=0)
HERE: dict[str, Bodies] = {}
"""Where the process is, for what undoes a durable call: it is found by its name, so it can be no closure."""


def at(body: Bodies, ctx: Context, *given: object) -> AbstractContextManager[None]:
    """Surround an effect, or what undoes one; what it is given goes into the trace."""
    path = ctx.path if ctx.run_id == RUN else f"{ctx.run_id}:{ctx.path}"
    return body.killer.body(
        path, visit=ctx.visit, attempt=ctx.attempt, key=ctx.idempotency_key, given=repr(given)
    )


def shop_nodes(body: Bodies) -> list[Node]:
    """Two effects and a node that fails; the first undo fails twice."""

    def release(order: str, ctx: Context) -> None:
        with at(body, ctx, order):
            pass

    @node(output="shelf", undo=release)
    def reserve(order: str, ctx: Context):
        with at(body, ctx, order):
            return 7

    @node(retry=TWICE)
    def refund(order: str, charge: str, ctx: Context) -> None:
        with at(body, ctx, order, charge):
            if ctx.attempt < 3:
                raise ConnectionError("the bank is closed")

    @node(output="charge", undo=refund)
    def pay(order: str, shelf: int, ctx: Context):
        with at(body, ctx, order, shelf):
            return f"{order} for 8"

    @node(output="parcel")
    def pack(charge: str, ctx: Context):
        with body("pack", ctx):
            raise ValueError("no box")

    return [reserve, pay, pack]


def saga_parts(body: Bodies) -> Parts:
    """Ten steps and more: a loop, maps, flows inside, one with an undo of its own, and durable calls."""
    HERE["body"] = body

    def cancel_order(order: str, number: int, ctx: Context) -> None:
        with at(body, ctx, order, number):
            pass

    @node(output="number", undo=cancel_order)
    def take_order(order: str, ctx: Context):
        with at(body, ctx, order):
            return 7

    def unbook(n: int, booked: int, ctx: Context) -> None:
        with at(body, ctx, n, booked):
            pass

    @node(output="booked", undo=unbook)
    def book(n: int, number: int, ctx: Context):
        with at(body, ctx, n, number):
            return n * 10

    @node(output="n")
    def count(booked: int, ctx: Context):
        with body("count", ctx):
            return booked // 10 + 1

    @ifelse(when_true="book", when_false="list_parts")
    def is_more(n: int, ctx: Context):
        with body("is_more", ctx):
            return n < 4

    @node(output="parts")
    def list_parts(n: int, ctx: Context):
        with body("list_parts", ctx):
            return ["a", "b"]

    @node(retry=TWICE)
    def unpack(part: str, box: str, ctx: Context) -> None:
        with at(body, ctx, part, box):
            if part == "b" and ctx.attempt < 3:
                raise ConnectionError("the packers are at lunch")

    @node(output="box", undo=unpack)
    def pack(part: str, ctx: Context):
        with at(body, ctx, part):
            return f"box of {part}"

    def unlabel(label: str, ctx: Context) -> None:
        with at(body, ctx, label):
            pass

    @node(output="label", undo=unlabel)
    def print_label(number: int, ctx: Context):
        with at(body, ctx, number):
            return f"label {number}"

    async def call_back(label: str, truck: str, ctx: Context) -> None:
        with at(body, ctx, label, truck):
            pass

    @node(output="truck", undo=call_back)
    async def send(label: str, ctx: Context):
        with at(body, ctx, label):
            return "truck 3"

    def cancel_policy(number: int, policy: str, ctx: Context) -> None:
        with at(body, ctx, number, policy):
            pass

    def uncover(policy: str) -> None:
        raise AssertionError("its flow is undone in its place")

    @node(output="policy", undo=uncover)
    def cover(number: int, ctx: Context):
        with at(body, ctx, number):
            return f"policy {number}"

    def unring(guest: str, bell: str, ctx: Context) -> None:
        with at(body, ctx, guest, bell):
            pass

    @node(output="bell", undo=unring)
    def ring(guest: str, ctx: Context):
        with at(body, ctx, guest):
            return f"ding {guest}"

    @node(output="greeting")
    def greet(bell: str, ctx: Context):
        with body("greet", ctx):
            if bell.endswith("rude"):
                raise ValueError("not at home")
            return f"hello {bell}"

    @node(output="thanks")
    def thank(truck: str, policy: str, greeting: list[Any], box: list[str], trip: str, ctx: Context):
        with body("thank", ctx):
            raise RuntimeError("the printer is out of paper")

    visit = Flow("visit", [ring, greet]).as_node().map_over("guest", on_error="collect", max_concurrency=1)
    nodes = [
        take_order,
        book,
        count,
        is_more,
        list_parts,
        pack.with_inputs(part="parts").map_over("part", max_concurrency=1),
        Flow("delivery", [print_label, send]).as_node().lift("truck"),
        Flow("insurance", [cover]).as_node(undo=cancel_policy),
        visit.with_inputs(guest="guests"),
        travelling(body),
        thank,
    ]
    return {"nodes": nodes, "entry": "book", "max_concurrency": 1}


def unlodge(inn: str, result: str, ctx: Context) -> None:
    """Undo one of the durable calls below."""
    with at(HERE["body"], ctx, inn, result):
        pass


def travelling(body: Bodies) -> Node:
    """Return a node that makes two durable calls, each of which is undone by itself."""

    @node(output="trip")
    def travel(number: int, ctx: Context):
        with body("travel", ctx):
            found = []
            for k in (1, 2):
                path = f"{ctx.path}/$lodge"

                def lodge(inn: str, idempotency_key: str, k: int = k, path: str = path) -> str:
                    with body.killer.body(path, visit=k, key=idempotency_key, given=inn):
                        return f"room in {inn}"

                found.append(ctx.step("lodge", lodge, f"inn {k} of {number}", undo=unlodge))
            return ", ".join(found)

    return travel


def calls_parts(body: Bodies) -> Parts:
    """Durable calls of a node that fails behind them."""
    HERE["body"] = body

    @node(output="bill")
    def bill(trip: str, ctx: Context):
        with body("bill", ctx):
            raise ValueError(f"no one pays for {trip}")

    return [travelling(body), bill]


def unknown_parts(body: Bodies) -> Parts:
    """The same, and only a person can say whether that effect has happened."""
    return interrupted_parts(body, on_unknown="stop")


def interrupted_parts(body: Bodies, **options: Any) -> Parts:
    """An effect that lasts until its run is cancelled, and one before it."""
    reserve, pay, _ = shop_nodes(body)

    def recall(parcel: str, ctx: Context) -> None:
        with at(body, ctx, parcel):
            pass

    @node(output="parcel", undo=recall, **options)
    def send(charge: str, ctx: Context):
        with at(body, ctx, charge):
            pass
        if not (body.folder / CANCELLED).exists():
            raise KeyboardInterrupt
        return f"parcel with {charge}"

    return [reserve, pay, send]


def atomic_parts(body: Bodies) -> Parts:
    """An atomic flow that is undone as a whole, cancelled between its two effects."""
    reserve, _, _ = shop_nodes(body)

    def call_back(shelf: int, truck: str, ctx: Context) -> None:
        with at(body, ctx, shelf, truck):
            pass

    @node(output="label", effects="effectful", idempotency_key="auto")
    def print_label(shelf: int, ctx: Context):
        with body("print_label", ctx):
            return f"label {shelf}"

    @node(output="truck", effects="effectful", idempotency_key="auto")
    def load(label: str, ctx: Context):
        with body("load", ctx):
            pass
        if not (body.folder / CANCELLED).exists():
            raise KeyboardInterrupt
        return f"truck with {label}"

    delivery = Flow("delivery", [print_label, load])
    return [reserve, delivery.as_node(durability="atomic", undo=call_back).lift("truck")]


CANCELLED = "cancelled"


def cancel_in_an_effect(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Cancel a run in an effect of which no record says whether it happened."""
    mark = clock_of(host).folder / CANCELLED
    if not mark.exists():
        try:
            return host.run(flow, inputs, run_id=RUN)
        except KeyboardInterrupt:
            mark.touch()
    host.cancel(RUN)
    return host.run(flow, inputs, run_id=RUN)


def cancel_and_settle(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Do the same, and say that it happened, however often that is asked."""
    result = cancel_in_an_effect(host, flow, inputs)
    while result.status == "halted":
        if not (clock_of(host).folder / CANCELLED).exists():  # it was killed before it was cancelled
            (clock_of(host).folder / CANCELLED).touch()
            host.cancel(RUN)
        for asked in host.waits(RUN, kind="settle"):
            host.waiting.settle(RUN, asked.node, done="parcel", by="ada")
        result = host.resume(RUN, flow)
    return result


def asking_parts(body: Bodies) -> Parts:
    """An undo that fails however often it is tried."""
    reserve, _, pack = shop_nodes(body)

    @node(retry=AT_ONCE)
    def refund(charge: str, ctx: Context) -> None:
        with at(body, ctx, charge):
            raise ConnectionError("the bank is closed for good")

    @node(output="charge", undo=refund)
    def pay(order: str, shelf: int, ctx: Context):
        with at(body, ctx, order, shelf):
            return f"{order} for 8"

    return [reserve, pay, pack]


def say_what_to_do(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Let a run be undone, and leave out what cannot be."""
    result = host.run(flow, inputs, run_id=RUN)
    while result.status == "halted":
        for asked in host.waits(RUN):
            if asked.kind == "settle":
                host.waiting.settle(RUN, asked.node, skip="credited by hand", by="ada")
            else:
                host.answer(asked.id, YES)
        result = host.resume(RUN, flow)
    return result


def undo_later(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Ask for a failed run to be undone."""
    result = host.run(flow, inputs, run_id=RUN)
    if host.info(RUN).undoing is None:
        host.undo(RUN, by="ada", comment="they want their money back")
        result = host.run(flow, inputs, run_id=RUN)
    return result


def forked_parts(body: Bodies) -> Parts:
    """Two effects, and a node that fails in a fork only."""
    reserve, pay, _ = shop_nodes(body)

    @node(output="parcel")
    def pack(charge: str, ctx: Context):
        with body("pack", ctx):
            if ctx.run_id != RUN:
                raise ValueError("no box")
            return f"box for {charge}"

    return [reserve, pay, pack]


def fork_between_the_effects(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Let a run complete, and a fork of it fail that has made one of its two effects itself."""
    host.run(flow, inputs, run_id=RUN)
    if has(host, CHILD) is None:
        at = next(c.sequence for c in host.checkpoints(RUN) if "reserve" in c.nodes and c.trigger == "effect")
        host.fork(RUN, at=at, fork_id=CHILD)
    return host.run(flow, None, run_id=CHILD)


def tolerant_parts(body: Bodies) -> Parts:
    """Items of which one fails, which the run tolerates."""

    def unring(guest: str, ctx: Context) -> None:
        with at(body, ctx, guest):
            raise AssertionError("the run completes")

    @node(output="bell", undo=unring)
    def ring(guest: str, ctx: Context):
        with at(body, ctx, guest):
            return f"ding {guest}"

    @node(output="greeting")
    def greet(bell: str, ctx: Context):
        with body("greet", ctx):
            if bell.endswith("rude"):
                raise ValueError("not at home")
            return f"hello {bell}"

    visit = Flow("visit", [ring, greet]).as_node().map_over("guest", on_error="skip", max_concurrency=1)
    return [visit.with_inputs(guest="guests")]


ORDER: Facts = {"order": "chairs"}
GUESTS: Facts = {"order": "chairs", "n": 1, "guests": ["kind", "rude"]}
SAGAS = {
    "undone": Scenario(shop_nodes, ORDER),
    "undone-calls": Scenario(calls_parts, {"number": 7}, "strong"),
    "undone-when-cancelled": Scenario(interrupted_parts, ORDER, program=cancel_in_an_effect),
    "undone-fork": Scenario(forked_parts, ORDER, program=fork_between_the_effects, runs=(RUN, CHILD)),
}
MORE_SAGAS = {
    "saga": Scenario(saga_parts, GUESTS),
    "strong-saga": Scenario(saga_parts, GUESTS, "strong"),
    "undone-if-asked": Scenario(asking_parts, ORDER, "strong", program=say_what_to_do, undo="ask"),
    "undone-later": Scenario(shop_nodes, ORDER, program=undo_later, undo="never"),
    "undone-atomic": Scenario(atomic_parts, ORDER, program=cancel_in_an_effect, atomic=("delivery",)),
    "undone-unknown": Scenario(unknown_parts, ORDER, program=cancel_and_settle, stops=True),
    "not-undone": Scenario(tolerant_parts, {"guests": ["rude", "kind", "rude"]}),
}
"""Those that `EVERSTEP_SOAK=1` adds."""
