"""What it costs under `partial` that everything is durable before an effect: commits and time.

    python benchmarks/before_effects.py [--runs 200] [--rounds 5] [--json]

A run is some pure steps, an effect, and a step behind it, on SQLite with `synchronous=FULL`. The same flow
is run with and without the commit before its effect, in turns. Of each round the fastest tenth of the runs
counts, so that other programs on the machine disturb less; the ratio is the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from everstep import Flow, Host, Node, node

STEPS = (1, 5, 50)


@node(output="sent", effects="effectful", idempotency_key="auto")
def send(v: int) -> int:
    return v


@node(output="told")
def tell(sent: int) -> int:
    return sent


def flow_of(steps: int, *, is_free: bool) -> Flow:
    """Return the flow; a free one does not write before its effect, as if that did nothing to the world."""
    pure = [_step(k) for k in range(steps)]
    effect = send.with_inputs(v=f"v{steps}")
    if is_free:
        effect = effect._copy(acts_in_call=False)
    return Flow(f"steps-{steps}", [*pure, effect, tell], max_steps=1000)


def _step(k: int) -> Node:
    return node(name=f"n{k}", output=f"v{k + 1}", inputs=[f"v{k}"], effects="pure")(lambda **v: k)


def measure(steps: int, runs: int, rounds: int) -> dict[str, Any]:
    """Run both flows in turns; times are those of one run, in microseconds."""
    flows = {"with": flow_of(steps, is_free=False), "without": flow_of(steps, is_free=True)}
    with tempfile.TemporaryDirectory() as folder, Host(f"sqlite:///{Path(folder)}/runs.db") as host:
        commits = {}
        for name, flow in flows.items():
            host.run(flow, {"v0": 1}, run_id=f"{name}-first")
            commits[name] = len(host.history(f"{name}-first"))
        took = list(_rounds(host, flows, runs, rounds))
    ratios = [found["with"] / found["without"] for found in took]
    return {
        "steps": steps,
        "commits_with": commits["with"],
        "commits_without": commits["without"],
        "us_with": round(statistics.median(found["with"] for found in took)),
        "us_without": round(statistics.median(found["without"] for found in took)),
        "ratio": round(statistics.median(ratios), 2),
        "least": round(min(ratios), 2),
        "greatest": round(max(ratios), 2),
    }


def _rounds(host: Host, flows: dict[str, Flow], runs: int, rounds: int) -> Iterator[dict[str, float]]:
    for _ in range(rounds):
        times: dict[str, list[float]] = {name: [] for name in flows}
        for _ in range(runs):
            for name, flow in flows.items():
                began = time.perf_counter()
                host.run(flow, {"v0": 1})
                times[name].append(time.perf_counter() - began)
        yield {name: 1e6 * sorted(each)[len(each) // 10] for name, each in times.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    found = [measure(steps, given.runs, given.rounds) for steps in STEPS]
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for row in found:
        print(
            f"{row['steps']:>3} steps  {row['commits_with']} commits, {row['us_with']} µs a run; without "
            f"{row['commits_without']}, {row['us_without']} µs; ratio {row['ratio']} "
            f"({row['least']} to {row['greatest']})"
        )


if __name__ == "__main__":
    main()
