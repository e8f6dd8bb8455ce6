"""What this process takes from its machine. Apart from the families, as it is read and not counted.

The names are those that all clients of Prometheus have for it. What a system does not tell is left out.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version

from everstep.runtime.metrics.exposition import Family, Sample, one

_PROC = Path("/proc/self")


def process_families() -> Iterator[Family]:
    """Yield processor, memory, open files, when it began, and what it is."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield Family(
        "process_cpu_seconds_total",
        "counter",
        "Seconds of processor used.",
        one(float(used.ru_utime + used.ru_stime)),
    )
    yield Family(
        "process_resident_memory_bytes", "gauge", "Memory in use, in bytes.", one(_memory(used.ru_maxrss))
    )
    yield Family("process_open_fds", "gauge", "Open files and connections.", one(_open_files()))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield Family(
        "process_max_fds",
        "gauge",
        "How many files and connections may be open.",
        one(None if most == resource.RLIM_INFINITY else most),
    )
    yield Family(
        "process_start_time_seconds",
        "gauge",
        "When the process began, in seconds since 1970.",
        one(_began()),
    )
    labels = (("version", _release()), ("python", python_version()))
    yield Family(
        "everstep_build_info",
        "gauge",
        "The versions of everstep and Python: always 1.",
        [Sample("", labels, "1")],
    )


def _release() -> str:
    try:
        return version("everstep")
    except PackageNotFoundError:  # a source tree that was not installed
        return "unknown"


def _memory(most: int) -> int:
    """Return what is in use; where that is not told, what was at most."""
    try:
        return int((_PROC / "statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return most if sys.platform == "darwin" else most * 1024


def _open_files() -> int | None:
    try:
        return sum(1 for _ in (_PROC / "fd").iterdir())
    except OSError:
        return None


def _began() -> float | None:
    try:
        ticks = int((_PROC / "stat").read_text().rpartition(")")[2].split()[19])
        booted = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line[:5] == "btime"
        )
    except OSError:
        return None
    return booted + ticks / os.sysconf("SC_CLK_TCK")
