"""What it costs to stream: how long a token takes to another process, and what many streams cost.

    python -m benchmarks.streams postgresql://... redis://... [sqlite:///runs.db]

Each store is measured with the run driven in one process and followed in another. "half a core" counts the
CPU of the process that drives, of all its threads. The slow reader takes one event a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import aclosing

from everstep import AsyncHost, Context, Flow, node

TOKENS, PACE = 500, 0.02
STREAMS, SECONDS = 100, 10.0


@node
async def tokens(n: int, ctx: Context) -> int:
    """Emit at an even pace, whatever an emission takes."""
    began = time.monotonic()
    for number in range(n):
        await asyncio.sleep(max(0.0, began + number * PACE - time.monotonic()))
        ctx.emit("token", text="word ", sent=time.time())
    return n


flow = Flow("streams", [tokens], streams=True)
silent = Flow("silent", [tokens])


async def follow(url: str, run_ids: list[str], pause: float) -> None:
    """Follow runs, and print how long each token took, and how many gaps there were."""
    waits: list[float] = []
    gaps = 0

    async def one(host: AsyncHost, run_id: str) -> None:
        nonlocal gaps
        async with aclosing(host.follow(run_id)) as events:
            async for event in events:
                if event.kind == "emitted":
                    waits.append(time.time() - event.data["data"]["sent"])
                gaps += event.kind == "gap"
                if pause:
                    await asyncio.sleep(pause)

    async with AsyncHost(url) as host:
        print("ready", flush=True)
        await asyncio.gather(*(one(host, run_id) for run_id in run_ids))
    print(json.dumps({"waits": waits, "gaps": gaps, "cpu": time.process_time()}))


def follower(url: str, run_ids: list[str], pause: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.streams", "--follow", url, str(pause), *run_ids]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def heard(process: subprocess.Popen[str]) -> tuple[list[float], int, float]:
    out, _ = process.communicate(timeout=120)
    told = json.loads(out)
    return told["waits"], told["gaps"], told["cpu"]


def spread(waits: list[float]) -> str:
    p50, p99 = statistics.median(waits), statistics.quantiles(waits, n=100)[98]
    return f"p50 {p50 * 1000:6.1f} ms   p99 {p99 * 1000:6.1f} ms   max {max(waits) * 1000:6.1f} ms"


async def drive(url: str, runs: list[str], n: int, which: Flow) -> tuple[float, float]:
    """Drive runs at once; returns the CPU and the seconds that took."""
    async with AsyncHost(url) as host:
        await host.run(which, {"n": 1}, run_id=f"{runs[0]}-warm")
        cpu, began = time.process_time(), time.monotonic()
        await asyncio.gather(*(host.run(which, {"n": n}, run_id=run_id) for run_id in runs))
        return time.process_time() - cpu, time.monotonic() - began


async def admit(url: str, runs: list[str], n: int) -> None:
    async with AsyncHost(url) as host:
        for run_id in runs:
            await host.start(flow, {"n": n}, run_id=run_id)


def measure(url: str) -> None:
    name = f"{url.partition(':')[0]}-{os.getpid()}-{time.time_ns()}"
    print(url.partition("?")[0])
    asyncio.run(admit(url, [f"{name}-one"], TOKENS))
    reader = follower(url, [f"{name}-one"])
    asyncio.run(drive(url, [f"{name}-one"], TOKENS, flow))
    waits, gaps, _ = heard(reader)
    print(f"  one stream, 50 a second:    {spread(waits)}   {len(waits)} of {TOKENS} tokens, {gaps} gaps")

    n = int(SECONDS / PACE)
    runs = [f"{name}-{k}" for k in range(STREAMS)]
    asyncio.run(admit(url, runs, n))
    reader = follower(url, runs[:10])
    slow = follower(url, runs[:1], 1.0)
    cpu, took = asyncio.run(drive(url, runs, n, flow))
    waits, gaps, read = heard(reader)
    slow.kill()
    slow.communicate()
    quiet, without = asyncio.run(drive(url, [f"{name}-s{k}" for k in range(STREAMS)], n, silent))
    print(f"  {STREAMS} streams, 50 a second each: {spread(waits)}   {len(waits)} tokens, {gaps} gaps")
    print(
        f"    the process that drives: {cpu / took:.2f} of a core, {quiet / without:.2f} without streams; "
        f"the one that follows 10: {read / took:.2f}"
    )
    print(f"    beside a reader that takes one event a second: {took:.2f} s, {without:.2f} s without streams")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--follow"]:
        asyncio.run(follow(sys.argv[2], sys.argv[4:], float(sys.argv[3])))
    else:
        for given in sys.argv[1:]:
            measure(given)
