"""What `everstep bench` measures of maps, inner flows and forks. Apart from the chains that `command` has, as
it needs flows of its own.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

from everstep import END, Flow, Host, ifelse, node
from everstep.cli.bench.flows import BEFORE_EFFECTS, step, url
from everstep.cli.bench.raw import commit_together, journal, row
from everstep.cli.bench.values import BRANCHES_A_COMMIT, Sample, bytes_in, small

FORKS = 20
"""Forks that are made of one run; a single one is over too soon to be measured."""
SHORT = 100


@node(output="doubled")
def double(number: int) -> int:
    return 2 * number


def mapped(folder: Path, n: int) -> Sample:
    """Go over a list of n numbers with a trivial function."""
    flow = Flow("map", [double.map_over("number")], durability="strong")
    with Host(url(folder)) as host:
        began = perf_counter()
        result = host.run(flow, {"number": list(range(n))})
        seconds = perf_counter() - began
        assert result.raise_for_status()["doubled"][-1] == 2 * n - 2
    return Sample(seconds / n, bytes_in(folder) / n)


def mapped_raw(folder: Path, n: int) -> Sample:
    """Write n small rows, many to a commit."""
    with journal(folder) as db:
        began = perf_counter()
        for first in range(0, n, BRANCHES_A_COMMIT):
            steps = range(first, min(first + BRANCHES_A_COMMIT, n))
            commit_together(db, [row(0, k, 2 * k) for k in steps])
        seconds = perf_counter() - began
    return Sample(seconds / n, bytes_in(folder) / n)


def nested(folder: Path, n: int) -> Sample:
    """Run n flows of one node in a row, each inside the run."""
    inner = Flow("inner", [step])
    links = [
        inner.as_node(name=f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}") for k in range(n)
    ]
    flow = Flow("chain", links, durability="strong", max_steps=n + 10)
    with Host(url(folder)) as host:
        began = perf_counter()
        host.run(flow, {"v0": 0}).raise_for_status()
        return Sample((perf_counter() - began) / n)


@node(output=("i", "value"), effects="pure")
def count(i: int) -> tuple[int, dict[str, Any]]:
    return i + 1, small(i)


@ifelse(when_true="count", when_false=END, effects="pure")
def more(i: int, n: int) -> bool:
    return i < n


def forked(folder: Path, n: int) -> Sample:
    """Fork a run of n steps, at its end, with an edited value."""
    flow = Flow("long", [count, more], entry="count", durability=BEFORE_EFFECTS, max_steps=2 * n + 10)
    with Host(url(folder)) as host:
        host.run(flow, {"i": 0, "n": n // 2}, run_id="long").raise_for_status()
        began = perf_counter()
        for _ in range(FORKS):
            host.fork("long", state={"n": n})
        return Sample((perf_counter() - began) / FORKS)


def forked_short(folder: Path, n: int) -> Sample:
    """Do the same to a short run, however long the other is."""
    return forked(folder, SHORT)
