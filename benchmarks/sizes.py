"""What things cost against how large a run, a flow or a family of runs is; see docs/performance.md.

    python benchmarks/sizes.py [--long] [--only steps,map] [--json]

Each section measures the same work at three sizes. The exponent is log(t2/t1) / log(n2/n1) from the second
size to the third: 0 is flat, 1 is linear. Times are of the processor and the best of a few, so that they hold
on a busy machine; memory is the peak of a process of its own, less what it had before. Without `--long` the
sizes are small, so that all of it takes less than a minute.

A section is a function that yields `Measured`; `SECTIONS` has them by name. What must hold is next to each
figure: `flat`, or `linear`.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from everstep import END, Flow, Host, ifelse, node, validate

FLAT, LINEAR = "flat", "linear"
_ROOM = {FLAT: 0.15, LINEAR: 1.15}
"""How large an exponent may be before it counts as more."""


class Measured(NamedTuple):
    """One figure at several sizes."""

    what: str
    unit: str
    wanted: str
    by_size: Mapping[int, float]

    @property
    def exponent(self) -> float:
        (n1, v1), (n2, v2) = sorted(self.by_size.items())[-2:]
        return math.log(max(v2, 1e-9) / max(v1, 1e-9)) / math.log(n2 / n1)

    @property
    def holds(self) -> bool:
        return self.exponent <= _ROOM[self.wanted]


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
def opened(folder: Path, name: str = "runs") -> Iterator[Host]:
    """Open a store whose commits are not synced: what is measured is the work, not the disk."""
    with Host(f"sqlite:///{folder}/{name}.db?synchronous=off") as host:
        yield host


def peak(work: Callable[..., Any], *arguments: Any) -> float:
    """Return by how many MB a process of its own grows while it does some work."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_grown, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    grown = float(ours.recv())
    process.join()
    return grown


def _grown(pipe: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work(*arguments)
    pipe.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


class Stopped(BaseException):
    """Ends a drive as Ctrl-C would: the run can go on."""


# -- a run of many steps ------------------------------------------------------------------------------------


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


def _drive_steps(folder: Path, n: int) -> None:
    with opened(folder) as host, suppress(Stopped):
        host.run(looping(n // 2 - 1), {"i": 0, "n": n}, run_id="r")


def _resume(folder: Path, n: int) -> float:
    """Return the time from opening the store to the first call."""
    ended: list[float] = []
    flow = looping(n // 2 - 1, lambda: ended.append(time.process_time()))
    gc.collect()
    began = time.process_time()
    with opened(folder) as host, suppress(Stopped):
        host.run(flow, run_id="r")
    return (ended[0] - began) * 1000


def steps(sizes: tuple[int, ...]) -> Iterator[Measured]:
    """A run of so many steps, each a commit."""
    figures: dict[str, dict[int, float]] = {}

    def note(what: str, n: int, value: float) -> None:
        figures.setdefault(what, {})[n] = value

    for n in sizes:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            note("memory", n, peak(_drive_steps, folder, n))
            note("bytes", n, (folder / "runs.db").stat().st_size / n)
            note("resume", n, min(_resume(folder, n) for _ in range(5)))
            with opened(folder) as host:
                newest = host.info("r").checkpoints
                reads: dict[str, Callable[[], Any]] = {
                    "newest page": lambda: host.history("r", count=50),
                    "page": lambda: host.history("r", count=50, after=newest // 2),
                    "page of steps": lambda: host.debug.steps("r", after=newest // 2, limit=50),
                    "state": lambda: host.state("r", at=newest // 2 + 7),
                    "at a glance": lambda: host.debug.nodes("r"),
                    "fork": lambda: host.fork("r", at=newest // 2 + 7),
                }
                for what, read in reads.items():
                    note(what, n, cpu(read, 3))
    yield Measured("memory while it is driven", "MB", FLAT, figures["memory"])
    yield Measured("bytes kept a step", "B", FLAT, figures["bytes"])
    yield Measured("resume to the first call", "ms", FLAT, figures["resume"])
    yield Measured("newest 50 checkpoints", "ms", FLAT, figures["newest page"])
    yield Measured("50 checkpoints in the middle", "ms", FLAT, figures["page"])
    yield Measured("50 steps in the middle", "ms", FLAT, figures["page of steps"])
    yield Measured("state in the middle", "ms", FLAT, figures["state"])
    yield Measured("nodes at a glance", "ms", FLAT, figures["at a glance"])
    yield Measured("fork in the middle", "ms", FLAT, figures["fork"])


def shell(sizes: tuple[int, ...]) -> Iterator[Measured]:
    """Whole processes of the command line on a run of so many steps."""
    commands = {
        "log --last 20": ("log", "r", "--last", "20"),
        "log": ("log", "r"),
        "show": ("show", "r"),
        "state": ("state", "r"),
        "state --at": ("state", "r@{middle}"),
    }
    figures: dict[str, dict[int, float]] = {name: {} for name in commands}
    for n in sizes:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            _drive_steps(folder, n)
            for name, words in commands.items():
                figures[name][n] = min(_shell(folder, words, n // 2) for _ in range(2))
    for name, by_size in figures.items():
        yield Measured(f"everstep {name}, whole process", "ms", LINEAR if name == "log" else FLAT, by_size)


def _shell(folder: Path, words: tuple[str, ...], middle: int) -> float:
    command = [sys.executable, "-m", "everstep", *(word.format(middle=middle) for word in words)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, "--store", f"{folder}/runs.db"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


# -- a map of many items, a flow of many nodes ----------------------------------------------------------------


@node(output="y")
def item(x: int) -> int:
    return x + 1


def _drive_map(folder: Path, n: int) -> None:
    flow = Flow("mapped", [item.map_over("x")])
    with opened(folder) as host:
        assert host.run(flow, {"x": list(range(n))}, run_id="r").status == "completed"


def mapped(sizes: tuple[int, ...]) -> Iterator[Measured]:
    """A map of so many items."""
    memory: dict[int, float] = {}
    driven: dict[int, float] = {}
    state: dict[int, float] = {}
    page: dict[int, float] = {}
    for n in sizes:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            memory[n] = peak(_drive_map, folder, n)
            (folder / "runs.db").unlink()
            driven[n] = cpu(lambda n=n, folder=folder: _drive_map(folder, n))  # type: ignore[misc]
            with opened(folder) as host:
                state[n] = cpu(lambda host=host: host.state("r"))  # type: ignore[misc]
                page[n] = cpu(lambda host=host: host.debug.steps("r", after=0, limit=50), 2)  # type: ignore[misc]
    yield Measured("memory while it is driven", "MB", LINEAR, memory)
    yield Measured("drive", "ms", LINEAR, driven)
    yield Measured("state at its end", "ms", LINEAR, state)
    yield Measured("its first 50 steps", "ms", FLAT, page)


def chain(n: int) -> Flow:
    """Return a flow of so many nodes, each of which reads the one before it."""
    nodes = [item.with_name(f"n{k}").with_inputs(x=f"v{k}").with_outputs(f"v{k + 1}") for k in range(n)]
    return Flow("chain", nodes, durability="strong", max_steps=n + 10)


def nodes(sizes: tuple[int, ...]) -> Iterator[Measured]:
    """A flow of so many nodes, one after the other."""
    figures: dict[str, dict[int, float]] = {}
    for n in sizes:
        with tempfile.TemporaryDirectory() as place, opened(Path(place)) as host:
            made: list[Flow] = []
            figures.setdefault("build", {})[n] = cpu(lambda n=n, made=made: made.append(chain(n)), 3)  # type: ignore[misc]
            figures.setdefault("validate", {})[n] = cpu(lambda made=made: validate(made[-1]))  # type: ignore[misc]
            figures.setdefault("run", {})[n] = cpu(
                lambda host=host, made=made: host.run(made[-1], {"v0": 0}, run_id="r")  # type: ignore[misc]
            )
            figures.setdefault("state", {})[n] = cpu(lambda host=host: host.state("r"))  # type: ignore[misc]
        figures.setdefault("bytes", {})[n] = 0.0
    for what in ("build", "validate", "run", "state"):
        yield Measured(what, "ms", LINEAR, figures[what])


# -- a family of runs -------------------------------------------------------------------------------------------


def forks(sizes: tuple[int, ...]) -> Iterator[Measured]:
    """So many forks of one run."""
    figures: dict[str, dict[int, float]] = {}
    flow = chain(20)
    for n in sizes:
        with tempfile.TemporaryDirectory() as place, opened(Path(place)) as host:
            host.run(flow, {"v0": 0}, run_id="r")
            fork = [""]

            def more_forks(count: int, host: Host = host, fork: list[str] = fork) -> None:
                for _ in range(count):
                    fork[0] = host.fork("r", at=10).run_id

            more_forks(n - 20)
            figures.setdefault("fork", {})[n] = cpu(lambda more=more_forks: more(20)) / 20  # type: ignore[misc]
            listed = cpu(lambda host=host: host.runs(parent="r", limit=50), 3)  # type: ignore[misc]
            figures.setdefault("list", {})[n] = listed
            compared = cpu(lambda host=host, fork=fork: host.debug.diff("r", fork[0]), 3)  # type: ignore[misc]
            figures.setdefault("compare", {})[n] = compared
            figures.setdefault("resume", {})[n] = cpu(
                lambda host=host, fork=fork: host.resume(fork[0], flow)  # type: ignore[misc]
            )
            figures.setdefault("gc", {})[n] = cpu(lambda host=host: host.retention.gc())  # type: ignore[misc]
    for what, wanted in (("fork", FLAT), ("list", FLAT), ("compare", FLAT), ("resume", FLAT), ("gc", LINEAR)):
        label = {"list": "the newest 50 of them", "gc": "gc of the store", "resume": "drive one"}
        yield Measured(label.get(what, what), "ms", wanted, figures[what])


# -- much state, and tiny steps -----------------------------------------------------------------------------------


def state(sizes: tuple[int, ...]) -> Iterator[Measured]:
    """Tiny steps of a run that has so many bytes of other values."""
    one: dict[int, float] = {}
    many: dict[int, float] = {}
    for n in sizes:
        one[n] = _tiny_steps({"big": "x" * n})
        many[n] = _tiny_steps({f"v{k}": "x" * 1000 for k in range(n // 1000)})
    yield Measured("a step beside one large value", "µs", FLAT, one)
    yield Measured("a step beside many small values", "µs", FLAT, many)


def _tiny_steps(besides: Mapping[str, Any], rounds: int = 2000) -> float:
    """Return the processor time of a step, without what the run costs before its first and behind its last."""

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
    with tempfile.TemporaryDirectory() as place, opened(Path(place)) as host:
        gc.collect()
        host.run(flow, {**besides, "n": rounds}, run_id="r")
    return (times[-1] - times[rounds // 10]) / (rounds * 9 // 10) / 2 * 1e6


Section = Callable[[tuple[int, ...]], Iterator[Measured]]
SECTIONS: dict[str, tuple[Section, tuple[int, ...], tuple[int, ...]]] = {
    "steps": (steps, (500, 2_000, 8_000), (10_000, 100_000, 1_000_000)),
    "shell": (shell, (500, 2_000, 8_000), (1_000, 10_000, 100_000)),
    "map": (mapped, (500, 1_000, 2_000), (2_000, 20_000, 200_000)),
    "nodes": (nodes, (250, 500, 1_000), (200, 2_000, 20_000)),
    "forks": (forks, (50, 100, 200), (50, 500, 5_000)),
    "state": (state, (50_000, 500_000, 2_000_000), (500_000, 5_000_000, 50_000_000)),
}
"""Each section with its small sizes and its real ones."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--long", action="store_true", help="the sizes of docs/performance.md")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for name in asked.only.split(","):
        section, small, real = SECTIONS[name]
        sizes = real if asked.long else small
        print(f"\n{name}: {section.__doc__}", file=sys.stderr)
        if not asked.json:
            print(f"\n| {name} | {' | '.join(f'{n:,}' for n in sizes)} | exponent | wanted |")
            print("|---|" + "---|" * (len(sizes) + 2))
        for found in section(sizes):
            if asked.json:
                told = {"section": name, **found._asdict(), "exponent": round(found.exponent, 2)}
                print(json.dumps(told), flush=True)
                continue
            values = " | ".join(_shown(value, found.unit) for _, value in sorted(found.by_size.items()))
            mark = "" if found.holds else " **more**"
            line = f"| {found.what} | {values} | {found.exponent:.2f}{mark} | {found.wanted} |"
            print(line, flush=True)


def _shown(value: float, unit: str) -> str:
    return (
        f"{value:,.0f} {unit}"
        if value >= 100
        else f"{value:.2g} {unit}"
        if value < 10
        else f"{value:.0f} {unit}"
    )


if __name__ == "__main__":
    main()
