"""What tracing adds to a step's processor time: off, with OpenTelemetry's API only, with an SDK.

    python benchmarks/tracing.py [STEPS] [ROUNDS]

The three take turns, and the quickest round of each counts.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider

from everstep import Flow, Host, node
from everstep.types import Tracing


def loop_of(steps: int) -> Flow:
    nodes: list[Any] = [node(output=f"v{k + 1}")(_step(k)) for k in range(steps)]
    return Flow("chain", nodes, durability="strong")


def _step(k: int) -> Any:
    names: dict[str, Any] = {}
    exec(f"def step{k}(v{k}: int) -> int:\n    return v{k} + 1\n", names)
    return names[f"step{k}"]


def microseconds(flow: Flow, steps: int, tracing: Tracing | None) -> float:
    """Return what a step costs of the processor."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        Host(f"sqlite:///{Path(folder)}/runs.db", tracing=tracing or False) as host,
    ):
        host.run(flow, {"v0": 0})
        began = time.process_time()
        host.run(flow, {"v0": 0})
        return (time.process_time() - began) / steps * 1e6


def main(steps: int, rounds: int) -> None:
    flow = loop_of(steps)
    kinds = {
        "off": None,
        "api only": Tracing(tracer_provider=NoOpTracerProvider()),
        "sdk": Tracing(tracer_provider=TracerProvider()),
    }
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(rounds):
        for name, tracing in kinds.items():
            best[name] = min(best[name], microseconds(flow, steps, tracing))
    for name, cost in best.items():
        print(f"{name:9} {cost:7.1f} µs a step  {cost / best['off'] - 1:+.1%}")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(given or [500, 12]))
