"""What a durable call inside a node costs beside a plain step, and what it costs to replay one.

    python -m benchmarks.units [--calls 1000] [--rounds 5]

A plain step is one of a chain of nodes, each written at once; a call is one `ctx.step` of a single node, that
is written at once likewise. Both on SQLite, with syncs (`synchronous=full`, time that passes) and without
(`off`, time of the processor), one after the other in each round. A replay is a node that failed behind its
last call and is entered again, timed inside it.

The last lines are the ratios (median, least, greatest), and microseconds of processor a replayed call.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everstep import Context, Flow, Host, chain, node
from everstep.graph.author.node import Node

TEXT = "x" * 60
"""Arguments and results are smaller than 100 bytes."""


def look_up(n: int, text: str) -> str:
    return text


async def look_up_soon(n: int, text: str) -> str:
    return text


def step(n: int) -> Node:
    def grow(**given: str) -> str:
        return look_up(n, TEXT)

    return Node(grow, name=f"n{n}", output=f"v{n}", inputs=[f"v{n - 1}"])


def steps(count: int) -> Flow:
    return Flow("steps", [chain(*map(step, range(1, count + 1)))], durability="strong", max_steps=count + 1)


@node(output="end")
def call(count: int, ctx: Context) -> int:
    for n in range(count):
        ctx.step("look", look_up, n, TEXT)
    return count


@node(output="end")
async def call_soon(count: int, ctx: Context) -> int:
    for n in range(count):
        await ctx.step("look", look_up_soon, n, TEXT)
    return count


@node(output="seconds")
def replay(count: int, ctx: Context) -> float:
    began = time.process_time()
    for n in range(count):
        ctx.step("look", look_up, n, TEXT)
    took = time.process_time() - began
    if ctx.step("first", lambda: took) == took:  # else it is recorded, by the attempt that made the calls
        raise RuntimeError("to be entered again")
    return took


CALLS = Flow("calls", [call], durability="strong")
CALLS_SOON = Flow("calls-soon", [call_soon], durability="strong")
REPLAY = Flow("replay", [replay], durability="strong")


def timed(url: str, flow: Flow, inputs: dict[str, Any], clock: Callable[[], float]) -> float:
    with Host(url) as host:
        host.run(flow, inputs, run_id="warm")
        began = clock()
        host.run(flow, inputs, run_id="timed")
        return clock() - began


def replayed(url: str, count: int) -> float:
    """Return seconds of processor for each of so many calls that are replayed."""
    with Host(url) as host:
        try:
            host.run(REPLAY, {"count": count}, run_id="again")
        except Exception as error:
            if "entered again" not in str(error):
                raise
    with Host(url) as host:
        seconds: float = host.resume("again", REPLAY)["seconds"]
        return seconds / count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1000, help="how many in a run")
    parser.add_argument("--rounds", type=int, default=5)
    said = parser.parse_args()
    plain = steps(said.calls)
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(said.rounds):
        for level, clock in (("full", time.perf_counter), ("off", time.process_time)):
            with tempfile.TemporaryDirectory() as folder:
                urls = [f"sqlite:///{Path(folder)}/{n}.db?synchronous={level}" for n in range(3)]
                base = timed(urls[0], plain, {"v0": TEXT}, clock)
                print(f"{level}: plain step {base / said.calls * 1e6:.0f} µs")
                for name, flow, url in (("sync", CALLS, urls[1]), ("async", CALLS_SOON, urls[2])):
                    took = timed(url, flow, {"count": said.calls}, clock)
                    found.setdefault((level, name), []).append(took / base)
                    print(f"{level}: {name} call {took / said.calls * 1e6:.0f} µs")
    for (level, name), ratios in found.items():
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{name} call, synchronous={level}: {statistics.median(ratios):.2f} × a plain step ({spread})")
    for count in (1_000, 9_999):
        with tempfile.TemporaryDirectory() as folder:
            took = replayed(f"sqlite:///{Path(folder)}/runs.db?synchronous=off", count)
        print(f"replayed call of {count:,}: {took * 1e6:.1f} µs of processor")


if __name__ == "__main__":
    main()
