"""How many schedules of a flow of five nodes are simulated in a minute, on all cores or as many as are named.

    python benchmarks/simulation.py [--seconds 20] [--processes 2] [--store local] [--whole]

One schedule is one fault, one recovery, and all checks: the process of the flow dies at one of its points,
before or after a write or in the body of a node, begins anew, asks `explain` what it will do, resumes; then
every invariant of `everstep.testing.simulation.checks` is asked. The points are gone through again and again.
What led to a death is the same each time, and taken from a snapshot; with --whole it is driven each time.

The last line is the figure: schedules a minute.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import time
from typing import NamedTuple

from everstep import Flow, node
from everstep.testing.simulation import ITSELF
from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.trial import FlowTrial


@node(output="order")
def take(customer: str) -> str:
    return f"order of {customer}"


@node(output="price")
def price(order: str) -> int:
    return len(order)


@node(output="receipt", effects="effectful", idempotency_key="auto")
def charge(order: str, price: int) -> str:
    return f"{order}: {price} paid"


@node(output="parcel")
def pack(order: str, receipt: str) -> list[str]:
    return [order, receipt]


@node(output="thanks")
def thank(parcel: list[str]) -> str:
    return ", ".join(parcel)


FIVE = Flow("five", [take, price, charge, pack, thank], durability="strong")


class Done(NamedTuple):
    """What one process has simulated."""

    schedules: int
    seconds: float
    processor: float
    """Seconds of processor time, which other programs on the machine change less."""


def simulate_for(seconds: float, store: str, is_whole: bool) -> Done:
    """Simulate for a while."""
    trial = FlowTrial(FIVE, {"customer": "ada"}, doubles=ITSELF, is_remote=store == "remote")
    explorer = Explorer(trial)
    deaths = [taken for taken in explorer.single_faults() if taken.choice == Fault.CRASH]
    count = 0
    with without_collector():
        began, used = time.perf_counter(), time.process_time()
        for taken in itertools.cycle(deaths):
            tried = explorer.try_chosen([taken]) if is_whole else explorer.try_fault(taken)
            if tried.broken or len(tried.taken) != 1:
                raise SystemExit(f"{taken}: {tried.broken or 'nothing went wrong'}")
            count += 1
            if count % 16 == 0 and time.perf_counter() - began > seconds:
                break
        done = Done(count, time.perf_counter() - began, time.process_time() - used)
    explorer.close()
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to simulate")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--store", choices=["local", "remote"], default="local")
    parser.add_argument("--whole", action="store_true", help="drive what led to each death anew")
    said = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(said.processes) as pool:
        given = [(said.seconds, said.store, said.whole)] * said.processes
        found = pool.starmap(simulate_for, given)
    for number, done in enumerate(found, start=1):
        wall, processor = (part / done.schedules * 1e6 for part in (done.seconds, done.processor))
        each = f"{wall:.0f} µs each ({processor:.0f} of processor)"
        print(f"process {number}: {done.schedules} schedules in {done.seconds:.1f} s, {each}")
    print(f"{sum(done.schedules / done.seconds for done in found) * 60:.0f} schedules a minute")


if __name__ == "__main__":
    main()
