"""Do some works on one store in this process, count what they cost, and print it as JSON.

`python -m tests.budgets.count URL WORK...`, where URL may be `sqlite:` or `file:` for a place of its own
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from everstep import Context, Flow
from tests.budgets.meters import Allocations, Calls, Meter, Statements, Syncs
from tests.budgets.wire import Wire
from tests.budgets.works import WORKS, Work, agent, bytes_of, chain

MEMORY = Path("/dev/shm")
STEPS = 1000
"""Of the chain whose size is looked at, as the benchmarks do."""
Counts = dict[str, Counter[str]]
"""What was counted, by the kind of cost and by what it consists of."""


def count(url: str, names: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Return what each work costs, by its name, the kind of cost, and what that consists of."""
    gc.disable()
    Context.marks = None  # loading the helpers is what some works do, and others do without
    place = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place, prefix="everstep-budgets-") as made:
        folder = Path(made)
        # First what is counted without anything between us and the store.
        alone = {name: _each_size(_alone, WORKS[name], url, folder) for name in names}
        watch = _watched_files() if url in ("sqlite:", "file:") else _watched_wire
        watched = {name: _each_size(watch, WORKS[name], url, folder) for name in names}
        found = {name: alone[name] | watched[name] for name in names}
        if url == "sqlite:" and "w1" in names:
            found["w1"]["bytes"] = {"file": round(bytes_of(folder, chain(STEPS), {"v0": 0}, STEPS), 1)}
        if url == "sqlite:" and "calls" in names:
            flow = Flow("calls", [agent], durability="strong")
            found["calls"]["bytes"] = {"file": round(bytes_of(folder, flow, {"n": STEPS}, STEPS), 1)}
    return found


def _each_size(
    measure: Callable[[Work, str, int], Counts], work: Work, url: str, folder: Path
) -> dict[str, dict[str, float]]:
    """Count the work at its sizes, and return what one unit of it costs."""
    sizes = (work.n,) if work.is_whole else (work.n, 2 * work.n)
    costs = [measure(work, _place(url, folder), n) for n in sizes]
    more, less = costs[-1], costs[0] if len(costs) == 2 else {}
    units = work.n if len(costs) == 2 else 1
    return {kind: _over(units, counts, less.get(kind, {})) for kind, counts in more.items()}


def _over(units: int, more: Mapping[str, int], less: Mapping[str, int]) -> dict[str, float]:
    each = {what: round((more[what] - less.get(what, 0)) / units, 4) for what in sorted(more)}
    return {what: cost for what, cost in each.items() if cost}


def _place(url: str, folder: Path) -> str:
    """Return a URL of that kind with nothing in it; a server is given with its own."""
    name = quote(str(Path(tempfile.mkdtemp(dir=folder)) / "runs"))
    return {"sqlite:": f"sqlite:///{name}.db?synchronous=full", "file:": f"file://{name}"}.get(url, url)


def _alone(work: Work, url: str, n: int) -> Counts:
    with work.begin(url, n) as go:
        go(_nothing)
        [calls] = _counted(go, [Calls()])
        if not Allocations.IS_KNOWN:
            return {"calls": calls}
        [allocations] = _counted(go, [Allocations()])
    return {"calls": calls, "allocations": allocations}


def _watched_files() -> Callable[[Work, str, int], Counts]:
    statements, syncs = Statements(), Syncs()

    def measure(work: Work, url: str, n: int) -> Counts:
        with work.begin(url, n) as go:
            go(_nothing)
            asked, synced = _counted(go, [statements, syncs])
        return {"statements": asked, "syncs": synced} if url.startswith("sqlite:") else {"syncs": synced}

    return measure


def _watched_wire(work: Work, url: str, n: int) -> Counts:
    with Wire(url) as wire, work.begin(wire.url, n) as go:
        go(_nothing)
        asked, turns = _counted(go, [wire.asked, wire.trips])
    return {"statements": asked, "round trips": turns}


def _nothing() -> None:
    pass


def _counted(go: Callable[[Callable[[], None]], object], meters: Sequence[Meter]) -> list[Counter[str]]:
    """Do the work once, and return what the meters counted until it ended, or said that it had."""
    counts: list[Counter[str]] = []

    def stop() -> None:
        if not counts:
            counts.extend([meter.stop() for meter in meters])

    gc.collect()
    for meter in meters:
        meter.start()
    try:
        go(stop)
    finally:
        stop()
    return counts


if __name__ == "__main__":
    json.dump(count(sys.argv[1], sys.argv[2:]), sys.stdout)
