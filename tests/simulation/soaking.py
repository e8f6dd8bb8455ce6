"""Trying many seeds of a kind: few in the first tier, with `EVERSTEP_SOAK=1` those behind `EVERSTEP_SEED`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.simulating import SimulationFailed, check
from tests.simulation.kinds import explorer_of

T = TypeVar("T")
IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0


def size(*, soak: T, first: T) -> T:
    """Return how much is tried. That of a soak takes a quarter of an hour of a processor, or less."""
    return soak if IS_SOAK else first


def seeds(count: int) -> range:
    """Return so many seeds."""
    return range(SEED * 1_000_003, SEED * 1_000_003 + count)


@contextmanager
def opened(kind: str, **said: Any) -> Iterator[Explorer]:
    """Try schedules of a trial. One that fails says how it is kept."""
    explorer = explorer_of(kind, said)
    try:
        yield explorer
    except SimulationFailed as failed:
        raise failed.because(f"To keep it:\n\n{entry(kind, said, failed.seed, failed.decisions)}") from None
    finally:
        explorer.close()


def entry(kind: str, said: dict[str, Any], drawn: int, decisions: Sequence[str]) -> str:
    """Return a failure as `failures.toml` has it."""
    told = {"story": "", "kind": kind, **said, "drawn": drawn}
    lines = ["[[failure]]", *(f"{name} = {json.dumps(value)}" for name, value in told.items())]
    return "\n".join([*lines, f"decisions = {json.dumps(list(decisions))}"])


def soak(kind: str, store: str, count: int, schedules: int) -> Counter[str]:
    """Try so many seeds of a kind, each undisturbed and then so often; return how often what went wrong."""
    tried: Counter[str] = Counter()
    with without_collector():
        for seed in seeds(count):
            with opened(kind, seed=seed, store=store) as explorer:
                check(explorer, explorer.whole)
                for number in range(schedules):
                    check(explorer, explorer.try_drawn(seed * 1000 + number, faults=3))
            tried += explorer.counts
    print(f"{tried.pop('schedules')} schedules of {kind} on a {store} store, with {dict(tried)}")
    return tried
