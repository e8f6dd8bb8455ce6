"""everstep's side of `everstep bench`: flows as users write them, sync and undeclared by default."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import quote

from everstep import END, AsyncHost, Durability, Flow, Host, Node, ifelse, node
from everstep.cli.bench.values import DIED, STEPS_A_RUN, Sample, bytes_in, large, message, run_python, small
from everstep.model.durability import DurabilityMode
from everstep.model.enums import Flush, Mode

BEFORE_EFFECTS = Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS)
RUN = "unfinished"

HELLO = """
import argparse, json, pathlib
from everstep import Flow, Host, node
parser = argparse.ArgumentParser()
parser.add_argument("store")
@node(output="greeting")
def hello(name):
    return "hello " + name
with Host(parser.parse_args().store) as host:
    print(host.run(Flow("hello", [hello], durability="strong"), {"name": "world"})["greeting"])
"""
DIE = "import sys; from everstep.cli.bench.flows import die; die(sys.argv[1], int(sys.argv[2]))"


def url(folder: Path, synchronous: str = "full", name: str = "runs") -> str:
    return f"sqlite:///{quote(str(folder.absolute() / name))}.db?synchronous={synchronous}"


@node(output="value")
def step(previous: Any) -> dict[str, Any]:
    return small(1)


@node(output="value", name="step")
async def async_step(previous: Any) -> dict[str, Any]:
    return small(1)


@node(output="value", name="step", effects="pure")
def pure_step(previous: Any) -> dict[str, Any]:
    return small(1)


def in_a_row(nodes: Sequence[Node], durability: DurabilityMode | Durability = "strong") -> Flow:
    """Make a flow of nodes, each of which reads what the one before it wrote; the first reads `v0`."""
    links = [
        each.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}")
        for k, each in enumerate(nodes)
    ]
    return Flow("chain", links, durability=durability, max_steps=len(links) + 10)


def emptied(folder: Path) -> int:
    """Return the size of a store before anything is in it."""
    Host(url(folder)).close()
    return bytes_in(folder)


def chain(
    folder: Path,
    n: int,
    *,
    synchronous: str = "full",
    each: Node = step,
    durability: DurabilityMode | Durability = "strong",
) -> Sample:
    """Run n nodes in a row."""
    flow, empty = in_a_row([each] * n, durability), emptied(folder)
    with Host(url(folder, synchronous)) as host:
        began = perf_counter()
        host.run(flow, {"v0": 0}).raise_for_status()
        seconds = perf_counter() - began
    return Sample(seconds / n, (bytes_in(folder) - empty) / n)


def chain_normal(folder: Path, n: int) -> Sample:
    return chain(folder, n, synchronous="normal")


def chain_before_effects(folder: Path, n: int) -> Sample:
    return chain(folder, n, each=pure_step, durability=BEFORE_EFFECTS)


def chain_files(folder: Path, n: int) -> Sample:
    """Run n nodes in a row, kept as files."""
    flow = in_a_row([step] * n)
    with Host(f"file://{quote(str(folder.absolute() / 'runs'))}") as host:
        began = perf_counter()
        host.run(flow, {"v0": 0}).raise_for_status()
        seconds = perf_counter() - began
    return Sample(seconds / n, bytes_in(folder) / n)


@node(output=("messages", "i"))
def append(messages: list[Any], i: int) -> tuple[list[Any], int]:
    messages.append(message(i))
    return messages, i + 1


@ifelse(when_true="append", when_false=END, effects="pure")
def more(i: int, n: int) -> bool:
    return i < n


def appended(folder: Path, n: int) -> Sample:
    """Append n messages to a list, one a step; the gate's decision rides with the next step."""
    flow = Flow("messages", [append, more], entry="append", durability=BEFORE_EFFECTS, max_steps=2 * n + 10)
    empty = emptied(folder)
    with Host(url(folder)) as host:
        began = perf_counter()
        result = host.run(flow, {"messages": [], "i": 0, "n": n})
        seconds = perf_counter() - began
        result.raise_for_status()
        assert len(result["messages"]) == n
    return Sample(seconds / n, (bytes_in(folder) - empty) / n)


def runs_in_turn(folder: Path, n: int, *, synchronous: str = "full") -> Sample:
    """Run a short chain n times, one run after the other."""
    flow = in_a_row([step] * STEPS_A_RUN)
    with Host(url(folder, synchronous)) as host:
        began = perf_counter()
        for _ in range(n):
            host.run(flow, {"v0": 0}).raise_for_status()
        return Sample((perf_counter() - began) / n)


def runs_in_turn_normal(folder: Path, n: int) -> Sample:
    return runs_in_turn(folder, n, synchronous="normal")


def runs_at_once(folder: Path, n: int, *, at_once: int = 50) -> Sample:
    """Run a short chain n times, many runs at a time."""
    flow = in_a_row([async_step] * STEPS_A_RUN)

    async def work() -> float:
        async with AsyncHost(url(folder)) as host:
            room = asyncio.Semaphore(at_once)

            async def one() -> None:
                async with room:
                    (await host.run(flow, {"v0": 0})).raise_for_status()

            began = perf_counter()
            await asyncio.gather(*(one() for _ in range(n)))
            return perf_counter() - began

    return Sample(asyncio.run(work()) / n)


class Stopped(BaseException):
    """Leaves a run from inside a node, without an answer."""


@ifelse(when_true="count", when_false=END, name="more")
def has_more(i: int, n: int) -> bool:
    return i < n


def counting(n: int, at_last_tenth: Callable[[], object]) -> Flow:
    """Make a flow that counts to n, and calls `at_last_tenth` when it has nine tenths."""

    @node(output="i")
    def count(i: int) -> int:
        if i == n * 9 // 10:
            at_last_tenth()
        return i + 1

    return Flow("loop", [count, has_more], entry="count", durability="strong", max_steps=3 * n + 10)


def die(store: str, n: int) -> None:
    """Count to nine tenths of n and end the process inside the next step."""
    with Host(store) as host:
        host.run(counting(n, lambda: os._exit(DIED)), {"i": 0, "n": n}, run_id=RUN)


def resumed(folder: Path, n: int) -> Sample:
    """Measure from opening a host to the first step, on a run that a dead process left."""
    run_python(DIE, url(folder, "off"), str(n), exits_with=DIED)
    reached: list[float] = []

    def stop() -> None:
        reached.append(perf_counter())
        raise Stopped

    began = perf_counter()
    with Host(url(folder)) as host, suppress(Stopped):
        host.run(counting(n, stop), run_id=RUN).raise_for_status()
    return Sample(reached[0] - began)


def branched(folder: Path, n: int) -> Sample:
    """Run n branches of one run and a node that joins them."""

    @node(output="value")
    async def branch(seed: int) -> dict[str, Any]:
        return small(seed)

    @node(output="total", inputs=[f"r{k}" for k in range(n)])
    def join(**results: Any) -> int:
        return len(results)

    branches = [branch.with_name(f"b{k}").with_outputs(f"r{k}") for k in range(n)]
    flow = Flow("branches", [*branches, join], durability="strong")
    with Host(url(folder)) as host:
        began = perf_counter()
        result = host.run(flow, {"seed": 1})
        seconds = perf_counter() - began
        result.raise_for_status()
        assert result["total"] == n
    return Sample(seconds)


def large_values(folder: Path, n: int) -> Sample:
    """Run n nodes in a row, each of which returns a large value."""

    def returning(value: str) -> Node:
        @node(output="value")
        def give(previous: Any) -> str:
            return value

        return give

    flow = in_a_row([returning(large()) for _ in range(n)])
    with Host(url(folder)) as host:
        began = perf_counter()
        host.run(flow, {"v0": ""}).raise_for_status()
        return Sample((perf_counter() - began) / n)


def started(folder: Path, n: int) -> Sample:
    """Start n Python processes, one after the other, each of which imports everstep and runs one step."""
    began = perf_counter()
    for k in range(n):
        run_python(HELLO, url(folder, name=f"hello{k}"))
    return Sample((perf_counter() - began) / n)
