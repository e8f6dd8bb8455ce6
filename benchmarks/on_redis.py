"""What a durable step costs on Redis, beside the least that any engine must do: append 300 bytes and wait.

    python benchmarks/on_redis.py redis://localhost:6379/0 [--steps 100] [--rounds 40] [--json]

Both sides take turns on the same server, under `appendfsync` always and everysec. Given are the fastest round
of each, so that whatever else runs on the machine counts least, and the median of the ratios of neighbours.
Use a server of your own: its settings are changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

import redis

from everstep import AsyncHost, Flow, Host, node

REST = "x" * 200
AT_ONCE = 50


def small(k: int) -> dict[str, Any]:
    return {"id": k, "name": f"item {k}", "ok": True, "score": k * 0.5}


@node(output="out")
def step(previous: Any) -> dict[str, Any]:
    return small(1)


async def async_step(previous: Any) -> dict[str, Any]:
    return small(1)


def chain(n: int, first: Any = step) -> Flow:
    nodes = [
        first.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}") for k in range(n)
    ]
    return Flow("chain", nodes, durability="strong", max_steps=n + 10)


def ours(url: str, flow: Flow, n: int) -> float:
    with Host(url) as host:
        began = perf_counter()
        assert host.run(flow, {"v0": 0}).status == "completed"
        return (perf_counter() - began) / n


def raw(client: redis.Redis, n: int) -> float:
    key, began = f"raw:{uuid4()}", perf_counter()
    for k in range(n):
        client.rpush(key, json.dumps(["run", k, "step", REST, small(k)]))
    return (perf_counter() - began) / n


async def ours_at_once(url: str, flow: Flow, runs: int) -> float:
    async with AsyncHost(url) as host:
        room = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with room:
                await host.run(flow, {"v0": 0})

        began = perf_counter()
        await asyncio.gather(*(one() for _ in range(runs)))
        return (perf_counter() - began) / runs


def measure(url: str, steps: int, rounds: int) -> dict[str, dict[str, float]]:
    client = redis.Redis.from_url(url)
    flow, short = chain(steps), chain(5, node(output="out")(async_step))
    found = {}
    for syncs in ("always", "everysec"):
        client.config_set("appendonly", "yes")
        client.config_set("appendfsync", syncs)
        mine, least, many = [], [], []
        for _ in range(rounds):
            mine.append(ours(url, flow, steps))
            least.append(raw(client, steps))
        for _ in range(5):
            many.append(asyncio.run(ours_at_once(url, short, 200)))
        found[syncs] = {
            "step_us": round(min(mine) * 1e6, 1),
            "raw_us": round(min(least) * 1e6, 1),
            "ratio_of_the_fastest": round(min(mine) / min(least), 2),
            "median_ratio": round(median(a / b for a, b in zip(mine, least, strict=True)), 2),
            "runs_a_second_50_at_once": round(1 / min(many)),
        }
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("url")
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--rounds", type=int, default=40)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    found = measure(given.url, given.steps, given.rounds)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for syncs, facts in found.items():
        print(f"appendfsync {syncs}")
        for name, value in facts.items():
            print(f"{name:>28}  {value}")


if __name__ == "__main__":
    main()
