"""Which works are counted on which store, each store in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.budgets.loads import PROGRAMS, modules_of
from tests.budgets.ratchet import Costs
from tests.budgets.works import WORKS

ROOT = Path(__file__).parents[2]
ON = {
    "sqlite": tuple(WORKS),
    "file": ("w1",),
    "postgres": ("w1", "w3", "w4", "claimed", "calls"),
    "redis": ("w1", "w3", "w4", "claimed", "calls"),
    "s3": ("w1",),
}
_THREADED = {("postgres", "w4"), ("postgres", "claimed"), ("redis", "w4"), ("redis", "claimed")}
"""What waits for threads: how often the loop turns meanwhile is up to the machine."""


def costs_on(store: str, url: str, only: Sequence[str] = (), **environment: str) -> Costs:
    """Return what works cost on a store, or only some of them."""
    works = [work for work in ON[store] if not only or work in only]
    told = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))} | environment
    command = [sys.executable, "-m", "tests.budgets.count", url, *works]
    done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    counted = json.loads(done.stdout)
    return {
        f"{work} on {store}": {k: parts for k, parts in kinds.items() if is_steady(store, work, k)}
        for work, kinds in counted.items()
    }


def is_steady(store: str, work: str, kind: str) -> bool:
    """False for what depends on how threads take turns."""
    if kind == "calls":
        return (store, work) not in _THREADED
    return kind != "allocations" or ((store, work) not in _THREADED and store != "file")


def loads_of(program: str, folder: Path, **environment: str) -> Costs:
    """Return how many modules a program loads: ours, and all."""
    loaded = modules_of(program, folder, **environment)
    ours = [module for module in loaded if module.partition(".")[0] == "everstep"]
    return {
        program: {"own modules": dict.fromkeys(ours, 1.0), "modules": dict.fromkeys(loaded, 1.0)},
    }


def unit_of(name: str) -> str:
    return "process" if name in PROGRAMS else WORKS[name.rpartition(" on ")[0]].unit
