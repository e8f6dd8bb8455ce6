"""What a durable step costs in a folder, beside a file that is written, synced and renamed.

    python benchmarks/on_files.py FOLDER [--steps 400] [--rounds 5]

Every node of the chain writes such a file itself, so that the two sides take turns step by step, and whatever
else the disk does falls on both alike. The time between two nodes is everstep's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from everstep import Flow, Host, node

ROW = b"x" * 330
"""As many bytes as a row of the other raw stores has."""


def raw(folder: Path, name: str) -> None:
    temporary = folder / f"{name}.tmp"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(file, ROW)
    os.fsync(file)
    os.close(file)
    temporary.rename(folder / name)
    parent = os.open(folder, os.O_RDONLY)
    os.fsync(parent)
    os.close(parent)


def measure(folder: Path, steps: int) -> tuple[float, float]:
    """Return the median seconds of everstep's part of a step, and of the raw one."""
    begins: list[float] = []
    ends: list[float] = []
    (folder / "raw").mkdir()

    @node(output="v")
    def step(previous: Any) -> dict[str, Any]:
        begins.append(perf_counter())
        raw(folder / "raw", f"{len(begins):010d}")
        ends.append(perf_counter())
        return {"ok": True, "seed": 1, "text": "hello"}

    nodes = [
        step.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}") for k in range(steps)
    ]
    with Host(f"file://{folder}/runs") as host:
        flow = Flow("chain", nodes, durability="strong", max_steps=steps + 10)
        host.run(flow, {"v0": 0}).raise_for_status()
    ours = median(begin - end for end, begin in zip(ends, begins[1:], strict=False))
    return ours, median(end - begin for begin, end in zip(begins, ends, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            found.append(measure(Path(name).absolute(), given.steps))
            print(f"everstep {found[-1][0] * 1e6:,.0f} µs, raw {found[-1][1] * 1e6:,.0f} µs a step")
    ratios = sorted(ours / raw_one for ours, raw_one in found)
    print(f"ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
