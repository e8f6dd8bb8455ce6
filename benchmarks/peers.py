"""everstep's side of the comparison with its peers, which `scripts/bench` makes; see docs/performance.md.

Each function does the work that `systems/contract.py` describes. Flows are written as users write them:
sync, undeclared nodes under `strong`, unless a variant says otherwise.

  w1 variants  ''       a chain of --n nodes, one commit each
               effects  the same chain declared pure, `strong` with flush="before_effects"
               loop     one node and a gate, --n times round (two commits each time)
  w2 variants  ''       a loop whose gate is declared pure, so that its decision rides with the next step
               strong   every step committed, the gate's too
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import cache
from typing import Any, ClassVar

from systems.contract import (
    RUNS_OF_STEPS,
    Timer,
    emit_resume,
    finish,
    least_cpu,
    main,
    message,
    payload,
    small,
    timed,
)

from everstep import END, AsyncHost, Durability, Flow, Host, Node, ifelse, node

EFFECTS = Durability("strong", flush="before_effects")


def url(a: Any) -> str:
    if a.store == "postgres":
        return str(a.dsn)
    level = {"default": "full"}.get(a.sync, a.sync)
    return f"sqlite:///{a.dbfile}?synchronous={level}"


@node(output="out")
def step(previous: Any) -> dict[str, Any]:
    return small(1)


def chain(n: int, durability: str | Durability, first: Node = step) -> Flow:
    def link(k: int) -> Node:
        return first.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}")

    nodes = [link(k) for k in range(n)]
    return Flow("chain", nodes, durability=durability, max_steps=n + 10)


@node(output="i")
def count(i: int) -> int:
    return i + 1


@ifelse(when_true="count", when_false=END)
def more(i: int, n: int) -> bool:
    return i < n


def loop(n: int) -> Flow:
    return Flow("loop", [count, more], entry="count", durability="strong", max_steps=3 * n + 10)


def w1(a: Any) -> Any:
    if a.variant == "loop":
        flow, inputs = loop(a.n), {"i": 0, "n": a.n}
    else:
        pure = node(output="out", effects="pure")(step.fn)
        flow = chain(a.n, EFFECTS, pure) if a.variant == "effects" else chain(a.n, "strong")
        inputs = {"v0": 0}
    with Host(url(a)) as host:
        with Timer() as t:
            result = host.run(flow, inputs)
        assert result.status == "completed", result.error
    return finish(timed(t, a.n), a, a.n)


@node(output=("messages", "i"))
def append(messages: list[Any], i: int) -> tuple[list[Any], int]:
    messages.append(message(i + 1))
    return messages, i + 1


def w2(a: Any) -> Any:
    strong = a.variant == "strong"
    effects = "undeclared" if strong else "pure"
    gate = ifelse(when_true="append", when_false=END, effects=effects, name="more")(more.fn)
    flow = Flow(
        "messages",
        [append, gate],
        entry="append",
        durability="strong" if strong else EFFECTS,
        max_steps=3 * a.n + 10,
    )
    with Host(url(a)) as host:
        with Timer() as t:
            result = host.run(flow, {"messages": [], "i": 0, "n": a.n})
        assert len(result["messages"]) == a.n
    return finish(timed(t, a.n), a, a.n)


async def async_step(previous: Any) -> dict[str, Any]:
    return small(1)


def w3(a: Any) -> Any:
    if a.conc == 1:
        flow = chain(RUNS_OF_STEPS, "strong")
        with Host(url(a)) as host, Timer() as t:
            for _ in range(a.n):
                host.run(flow, {"v0": 0})
        return finish(timed(t, a.n), a, a.n * RUNS_OF_STEPS)
    flow = chain(RUNS_OF_STEPS, "strong", node(output="out")(async_step))

    async def go() -> Any:
        async with AsyncHost(url(a)) as host:
            room = asyncio.Semaphore(a.conc)

            async def one() -> None:
                async with room:
                    await host.run(flow, {"v0": 0})

            with Timer() as t:
                await asyncio.gather(*(one() for _ in range(a.n)))
        return t

    return finish(timed(asyncio.run(go()), a.n), a, a.n * RUNS_OF_STEPS)


def w4c(a: Any) -> Any:
    @node(output="i", name="count")
    def dying(i: int) -> int:
        if i == a.at:
            os._exit(9)
        return i + 1

    flow = Flow("loop", [dying, more], entry="count", durability="strong", max_steps=3 * a.at + 30)
    with Host(url(a)) as host:
        host.run(flow, {"i": 0, "n": a.at + 10}, run_id="r")


class Resumed(BaseException):
    """Ends a run that was resumed."""

    ready = 0.0
    told: ClassVar[dict[str, Any]] = {}


@cache
def resumable(at: int) -> Flow:
    @node(output="i", name="count")
    def telling(i: int) -> int:
        Resumed.told = emit_resume(i + 1, Resumed.ready)
        raise Resumed

    return Flow("loop", [telling, more], entry="count", durability="strong", max_steps=3 * at + 30)


def w4r(a: Any) -> Any:
    Resumed.ready = a.t_ready
    flow = resumable(a.at)
    with Host(url(a)) as host, contextlib.suppress(Resumed):
        host.run(flow, run_id="r")
    return Resumed.told


def w5(a: Any) -> Any:
    @node(output="out")
    async def branch(seed: int) -> dict[str, Any]:
        return small(seed)

    branches = [branch.with_name(f"b{k}").with_outputs(f"r{k}") for k in range(a.n)]

    @node(output="total", inputs=[f"r{k}" for k in range(a.n)])
    def join(**results: Any) -> int:
        return len(results)

    flow = Flow("fan", [*branches, join], durability="strong")
    with Host(url(a)) as host:
        with Timer() as t:
            result = host.run(flow, {"seed": 1})
        assert result["total"] == a.n
    return finish(timed(t, a.n), a, a.n)


def w6(a: Any) -> Any:
    values = [payload(i) for i in range(1, a.n + 1)]

    def link(k: int) -> Node:
        def first() -> str:
            return values[0]

        def later(previous: str) -> str:
            return values[k]

        if k == 0:
            return node(output="blob0", name="s0")(first)
        return node(output=f"blob{k}", name=f"s{k}")(later).with_inputs(previous=f"blob{k - 1}")

    nodes = [link(k) for k in range(a.n)]
    flow = Flow("big", nodes, durability="strong")
    with Host(url(a)) as host:
        with Timer() as t:
            result = host.run(flow)
        assert result.status == "completed", result.error
    return finish(timed(t, a.n), a, a.n)


def w7(a: Any) -> Any:
    a.n = 1
    return w1(a)


def cpu(a: Any) -> Any:
    flow = chain(a.n, "strong")
    with Host(url(a)) as host:
        return least_cpu(lambda: host.run(flow, {"v0": 0}), a.n)


WORKLOADS = {"w1": w1, "w2": w2, "w3": w3, "w4c": w4c, "w4r": w4r, "w5": w5, "w6": w6, "w7": w7, "cpu": cpu}

if __name__ == "__main__":
    main("everstep", WORKLOADS)
