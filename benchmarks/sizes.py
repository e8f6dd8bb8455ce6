"""What things cost against how large a run, a flow, a family of runs or a store is; see docs/performance.md.

    python -m benchmarks.sizes [--long] [--only steps,map] [--postgres URL] [--json]

Each section measures the same work at two or three sizes. The exponent is log(t2/t1) / log(n2/n1) between
the last two: 0 is flat, 1 is linear. Times are of the processor and the best of a few, so that they hold on
a busy machine; what `postgres` takes is waited for. Memory is by how much a process of its own
grows. Without `--long` the sizes are small, so that all of it takes less than a minute. `postgres` needs a
server, on which it makes schemas of its own and drops them.

A section measures one size and returns its figures by name; `SECTIONS` says in which unit each is and how it
may grow. `tests/budgets/test_sizes.py` holds the same sections to that by counting what is done.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import many_runs
from everstep import END, Flow, Host, ifelse, node, validate

FLAT, LINEAR = "flat", "linear"
_MOST = {FLAT: 0.15, LINEAR: 1.15}
"""How large an exponent may be before it is marked."""


class Section(NamedTuple):
    """What is measured at each of some sizes."""

    measure: Callable[[int], Mapping[str, float]]
    figures: Mapping[str, tuple[str, str]]
    """By name: the unit, and how it may grow."""
    small: tuple[int, ...]
    real: tuple[int, ...]


def exponent(by_size: Mapping[int, float]) -> float:
    """Return how a figure grows from the second largest size to the largest."""
    (n1, v1), (n2, v2) = sorted(by_size.items())[-2:]
    return math.log(max(v2, 1e-9) / max(v1, 1e-9)) / math.log(n2 / n1)


def cpu(work: Callable[[], Any], times: int = 1) -> float:
    """Return the processor time of some work in milliseconds, the best of several times."""
    best = math.inf
    for _ in range(times):
        gc.collect()
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best * 1000


@contextmanager
def opened(folder: Path) -> Iterator[Host]:
    """Open a store whose commits are not synced: what is measured is the work, not the disk."""
    with Host(f"sqlite:///{folder}/runs.db?synchronous=off") as host:
        yield host


@contextmanager
def fresh() -> Iterator[Path]:
    """Make a folder that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


class Apart(NamedTuple):
    """What some work took in a process of its own."""

    grown: float
    """By how many MB the process grew."""
    spent: float
    """Its processor time in ms."""


def apart(work: Callable[..., Any], *arguments: Any) -> Apart:
    """Do some work in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_tell, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    told = ours.recv()
    process.join()
    return Apart(*told)


def _tell(pipe: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    def now() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    gc.collect()
    before = now()
    spent = cpu(lambda: work(*arguments))
    most = max(now(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    pipe.send(((most - before) / 2**20, spent))


class Stopped(BaseException):
    """Ends a drive as Ctrl-C would: the run can go on."""


# -- a run of many steps --


@ifelse(when_true="count", when_false=END, effects="pure")
def more(i: int, n: int) -> bool:
    return i < n


def looping(stop: int | None = None, called: Callable[[], None] = lambda: None) -> Flow:
    """Return a flow that goes round and round, two steps a round, until a round that stops its drive."""

    @node(output="i", name="count")
    def count(i: int) -> int:
        if i == stop:
            called()
            raise Stopped
        return i + 1

    return Flow("loop", [count, more], entry="count", durability="strong", max_steps=1 << 40)


def drive_steps(folder: Path, n: int) -> None:
    with opened(folder) as host, suppress(Stopped):
        host.run(looping(n // 2 - 1), {"i": 0, "n": n}, run_id="r")


def resume(folder: Path, n: int) -> float:
    """Return the time from opening the store to the first call."""
    ended: list[float] = []
    flow = looping(n // 2 - 1, lambda: ended.append(time.process_time()))
    gc.collect()
    began = time.process_time()
    with opened(folder) as host, suppress(Stopped):
        host.run(flow, run_id="r")
    return (ended[0] - began) * 1000


def steps(n: int) -> dict[str, float]:
    """A run of so many steps, each a commit."""
    with fresh() as folder:
        driven = apart(drive_steps, folder, n)
        found = {"memory while it is driven": driven.grown, "drive": driven.spent}
        found["bytes kept a step"] = (folder / "runs.db").stat().st_size / n
        found["resume to the first call"] = min(resume(folder, n) for _ in range(5))
        with opened(folder) as host:
            newest = host.info("r").checkpoints
            middle = newest // 2 + 7
            found["newest 50 checkpoints"] = cpu(lambda: host.history("r", count=50), 3)
            found["50 checkpoints in the middle"] = cpu(lambda: host.history("r", count=50, after=middle), 3)
            found["50 steps in the middle"] = cpu(lambda: host.debug.steps("r", after=middle, limit=50), 3)
            found["state in the middle"] = cpu(lambda: host.state("r", at=middle), 3)
            found["fork in the middle"] = cpu(lambda: host.fork("r", at=middle), 3)
            found["all nodes, counted over the whole run"] = cpu(lambda: host.debug.nodes("r"))
    return found


COMMANDS = {
    "log": "log r",
    "log --last 20": "log r --last 20",
    "show": "show r",
    "show RUN STEP": "show r count@{quarter}",
    "state": "state r",
    "state RUN@N": "state r@{half}",
    "checkpoints": "checkpoints r",
}


def shell(n: int) -> dict[str, float]:
    """Whole processes of the command line on a run of so many steps."""
    with fresh() as folder:
        drive_steps(folder, n)
        lines = {name: line.format(half=n // 2, quarter=n // 4) for name, line in COMMANDS.items()}
        return {name: shell_time(line, f"{folder}/runs.db") for name, line in lines.items()}


def shell_time(line: str, store: str) -> float:
    """Return the processor time of one command in milliseconds, the better of two."""
    command = [sys.executable, "-m", "everstep", *line.split(), "--store", store]
    best = math.inf
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best * 1000


# -- a map of many items, a flow of many nodes --


@node(output="y")
def item(x: int) -> int:
    return x + 1


def drive_map(folder: Path, n: int) -> None:
    with opened(folder) as host:
        result = host.run(Flow("mapped", [item.map_over("x")]), {"x": list(range(n))}, run_id="r")
        assert result.status == "completed"


def mapped(n: int) -> dict[str, float]:
    """A map of so many items."""
    with fresh() as folder:
        driven = apart(drive_map, folder, n)
        kept = (folder / "runs.db").stat().st_size / n
        with opened(folder) as host:
            middle = host.info("r").checkpoints // 2
            return {
                "memory while it is driven": driven.grown,
                "drive": driven.spent,
                "bytes kept an item": kept,
                "state in the middle": cpu(lambda: host.state("r", at=middle)),
                "state at its end": cpu(lambda: host.state("r")),
            }


def chain(n: int) -> Flow:
    """Return a flow of so many nodes, each of which reads the one before it."""
    nodes = [item.with_name(f"n{k}").with_inputs(x=f"v{k}").with_outputs(f"v{k + 1}") for k in range(n)]
    return Flow("chain", nodes, durability="strong", max_steps=n + 10)


def nodes(n: int) -> dict[str, float]:
    """A flow of so many nodes, one after the other."""
    with fresh() as folder:
        found = driven_chain(folder, n)
        with opened(folder) as host:
            found["state, the flow read back"] = cpu(lambda: host.state("r"))
            found["state once more"] = cpu(lambda: host.state("r"), 3)
        return found


def driven_chain(folder: Path, n: int) -> dict[str, float]:
    """Build, check and drive a flow, and keep nothing of it."""
    flow = chain(n)
    with opened(folder) as host:
        return {
            "build": cpu(lambda: chain(n), 3),
            "validate": cpu(lambda: validate(flow)),
            "drive": cpu(lambda: host.run(flow, {"v0": 0}, run_id="r")),
        }


def inputs(n: int) -> dict[str, float]:
    """A node that reads so many inputs."""
    given = {f"v{k}": k for k in range(n)}

    @node(output="total", inputs=list(given))
    def add(**values: int) -> int:
        return len(values)

    with fresh() as folder, opened(folder) as host:
        flow = Flow("wide", [add])
        return {
            "run": cpu(lambda: host.run(flow, given, run_id="r")),
            "state at its end": cpu(lambda: host.state("r")),
        }


# -- a family of runs --


def forks(n: int) -> dict[str, float]:
    """So many forks of one run."""
    with fresh() as folder, opened(folder) as host:
        flow = chain(20)
        host.run(flow, {"v0": 0}, run_id="r")
        for _ in range(n - 20):
            host.fork("r", at=10)
        made: list[str] = []
        fork = cpu(lambda: made.extend(host.fork("r", at=10).run_id for _ in range(20))) / 20
        return {
            "fork": fork,
            "the newest 50 of them": cpu(lambda: host.runs(parent="r", limit=50), 3),
            "compare one with its parent": cpu(lambda: host.debug.diff("r", made[0]), 3),
            "drive one": cpu(lambda: host.resume(made.pop(), flow), 3),
            "gc of the store": cpu(lambda: host.retention.gc()),
        }


# -- much state, and tiny steps --


def state(n: int) -> dict[str, float]:
    """Tiny steps of a run that has so many bytes of other values."""
    return {
        "a step beside one large value": tiny_steps({"big": "x" * n}),
        "a step beside many of 50 kB": tiny_steps(
            {f"v{k}": str(k).zfill(50_000) for k in range(n // 50_000)}
        ),
    }


def tiny_steps(besides: Mapping[str, Any], rounds: int = 2000) -> float:
    """Return the processor time of a step in µs, without what the run costs around its steps."""
    times: list[float] = []

    @node(output="i", name="count")
    def count(i: int) -> int:
        times.append(time.process_time())
        return i + 1

    @node(output="kept", inputs=list(besides))
    def keep(**values: Any) -> int:
        return len(values)

    @node(output="i")
    def begin(kept: int) -> int:
        return 0

    flow = Flow("tiny", [keep, begin, count, more], durability="strong", max_steps=1 << 40)
    with fresh() as folder, opened(folder) as host:
        gc.collect()
        host.run(flow, {**besides, "n": rounds}, run_id="r")
    return (times[-1] - times[rounds // 10]) / (rounds * 9 // 10) / 2 * 1e6


# -- a store of many runs --


def runs(n: int) -> dict[str, float]:
    """So many runs in SQLite; one in eight is due for another flow, one in twelve waits for a timer."""
    with fresh() as folder:
        return many_runs.among(f"sqlite:///{folder}/runs.db?synchronous=off", n)


def on_postgres(n: int) -> dict[str, float]:
    """So many runs in PostgreSQL; one in eight is due for another flow, one in twelve waits for a timer."""
    url = f"{SERVER[0]}{'&' if '?' in SERVER[0] else '?'}schema=sizes_{n}"
    try:
        return many_runs.among(url, n)
    finally:
        many_runs.drop(url)


SERVER: list[str] = []
"""The URL of the server for `postgres`, if one was given."""
_PAGES = dict.fromkeys(many_runs.asked(None), ("ms", FLAT))

SECTIONS: dict[str, Section] = {
    "steps": Section(
        steps,
        {
            "memory while it is driven": ("MB", FLAT),
            "drive": ("ms", LINEAR),
            "bytes kept a step": ("B", FLAT),
            "resume to the first call": ("ms", FLAT),
            "newest 50 checkpoints": ("ms", FLAT),
            "50 checkpoints in the middle": ("ms", FLAT),
            "50 steps in the middle": ("ms", FLAT),
            "state in the middle": ("ms", FLAT),
            "fork in the middle": ("ms", FLAT),
            "all nodes, counted over the whole run": ("ms", LINEAR),
        },
        (500, 2_000, 8_000),
        (10_000, 100_000, 1_000_000),
    ),
    "shell": Section(
        shell,
        dict.fromkeys(COMMANDS, ("ms", FLAT)),
        (1_000, 8_000),
        (1_000, 10_000, 100_000),
    ),
    "map": Section(
        mapped,
        {
            "memory while it is driven": ("MB", LINEAR),
            "drive": ("ms", LINEAR),
            "bytes kept an item": ("B", FLAT),
            "state in the middle": ("ms", LINEAR),
            "state at its end": ("ms", LINEAR),
        },
        (20_000, 60_000),
        (2_000, 20_000, 200_000),
    ),
    "nodes": Section(
        nodes,
        dict.fromkeys(
            ("build", "validate", "drive", "state, the flow read back", "state once more"), ("ms", LINEAR)
        ),
        (250, 1_000, 4_000),
        (200, 2_000, 20_000),
    ),
    "inputs": Section(
        inputs,
        dict.fromkeys(("run", "state at its end"), ("ms", LINEAR)),
        (250, 1_000, 4_000),
        (500, 5_000, 50_000),
    ),
    "forks": Section(
        forks,
        {
            "fork": ("ms", FLAT),
            "the newest 50 of them": ("ms", FLAT),
            "compare one with its parent": ("ms", FLAT),
            "drive one": ("ms", FLAT),
            "gc of the store": ("ms", LINEAR),
        },
        (50, 200, 800),
        (50, 500, 5_000),
    ),
    "state": Section(
        state,
        {"a step beside one large value": ("µs", FLAT), "a step beside many of 50 kB": ("µs", FLAT)},
        (50_000, 500_000, 2_000_000),
        (500_000, 5_000_000, 50_000_000),
    ),
    "runs": Section(
        runs,
        _PAGES | {many_runs.COUNTS: ("ms", LINEAR)},
        (5_000, 50_000),
        (10_000, 100_000, 1_000_000),
    ),
    "postgres": Section(on_postgres, _PAGES, (5_000, 50_000), (10_000, 100_000, 1_000_000)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--long", action="store_true", help="the sizes of docs/performance.md")
    parser.add_argument("--only", help=f"sections, separated by commas: {', '.join(SECTIONS)}")
    parser.add_argument("--postgres", metavar="URL", help="a server for the section of that name")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    SERVER.extend([given.postgres] if given.postgres else [])
    known = [name for name in SECTIONS if name != "postgres" or SERVER]
    for name in given.only.split(",") if given.only else known:
        if name not in known:
            parser.error(f"--only has {name!r}; there are {', '.join(known)}, and postgres with --postgres")
        section = SECTIONS[name]
        found = measured(section, section.real if given.long else section.small)
        if given.json:
            print(json.dumps({"section": name, "figures": found}), flush=True)
        else:
            write(name, section, found)


def measured(section: Section, sizes: Sequence[int]) -> dict[str, dict[int, float]]:
    """Return each figure of a section by size."""
    by_size = {n: section.measure(n) for n in sizes}
    return {figure: {n: by_size[n][figure] for n in sizes} for figure in section.figures}


def write(name: str, section: Section, found: Mapping[str, Mapping[int, float]]) -> None:
    """Print the figures of a section as a table."""
    sizes = next(iter(found.values()))
    print(f"\n{section.measure.__doc__}\n")
    print(f"| {name} | {' | '.join(f'{n:,}' for n in sizes)} | exponent | may be |")
    print("|---|" + "---|" * (len(sizes) + 2))
    for figure, (unit, wanted) in section.figures.items():
        grows = exponent(found[figure])
        mark = " (more)" if grows > _MOST[wanted] else ""
        values = " | ".join(f"{shown(value)} {unit}" for value in found[figure].values())
        print(f"| {figure} | {values} | {grows:.2f}{mark} | {wanted} |", flush=True)


def shown(value: float) -> str:
    """Return a number with two or three digits that count."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


if __name__ == "__main__":
    main()
