"""What both sides of `everstep bench` work with: the values they keep and what a measurement is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

STEPS_A_RUN = 5
BRANCHES_A_COMMIT = 50
LARGE = 10 * 2**20
DIED = 9
"""The exit code of a process that ends in the middle of its work, as it is meant to."""


MEASURE = """
import importlib, json, pathlib, sys
module, name, folder, n = sys.argv[1:]
print(json.dumps(getattr(importlib.import_module(module), name)(pathlib.Path(folder), int(n))))
"""


class Sample(NamedTuple):
    """One measurement of one side."""

    seconds: float
    """For one step, run or whatever the work is counted in."""
    bytes: float | None = None
    """On disk for one step, after everything was closed."""


def small(seed: int) -> dict[str, Any]:
    """Return what a trivial step returns."""
    return {"ok": True, "i": seed, "s": "hello"}


def message(number: int) -> dict[str, Any]:
    """Return a chat message of about 1 KiB."""
    return {"role": "user", "i": number, "content": f"{number:08}" + "m" * 1000}


def large() -> str:
    """Return 10 MiB of text that is unlike any other."""
    return os.urandom(LARGE // 2).hex()


def bytes_in(folder: Path) -> int:
    """Return the size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measured_apart(side: Callable[[Path, int], Sample], folder: Path, n: int) -> Sample:
    """Measure in a fresh process, so that neither side finds anything of an earlier one."""
    told = run_python(MEASURE, side.__module__, side.__qualname__, str(folder), str(n))
    return Sample(*json.loads(told))


def run_python(code: str, *arguments: str, exits_with: int = 0) -> str:
    """Run code in a process of its own, started as this one was, and return what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != exits_with:
        raise RuntimeError(f"a process of the benchmark ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
