"""What outlives the processes that run a random flow, and what they come to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from everstep import Host
from everstep.client.views import Values
from everstep.registry import Opened
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests.unit.random_flows import Built, Case, Log

RUN = "run-1"
LEASE = timedelta(seconds=30)


class World:
    """What outlives a process: the data and the time."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.clock = ManualClock(auto=True)
        self.data = MemoryData()

    def host(self, killer: Killer | None = None) -> Host:
        store = MemoryStore(self.clock, self.data)
        return Host(killing(Opened(store, store, "memory:"), by=killer or Killer()), clock=self.clock)

    def inputs(self) -> dict[str, Any]:
        return {"x": self.case.x}

    def live(self, log: Log | None = None, at: int | None = None) -> dict[str, Any] | None:
        """Run or resume; none if the process crashed."""
        built = Built(self.case, log)
        with self.host(Killer(at, act=crash)) as host:
            try:
                result = host.run(built.flow, self.inputs(), run_id=RUN, channel={"seed": 1})
            except Crashed:
                self.clock.advance(LEASE * 2)
                return None
            return seen(host, RUN, result, built)

    def recorded(self, run_id: str = RUN) -> tuple[set[tuple[str, int]], set[tuple[str, int, int]]]:
        """Return the visits that are completed in the chain, and the attempts that failed."""
        if run_id not in self.data.runs:
            return set(), set()
        with self.host() as host:
            steps = [step for record in host.history(run_id) for step in record.steps if step.ended_at]
        done = {(s.path, s.visit) for s in steps if s.status.value == "completed"}
        return done, {(s.path, s.visit, s.attempts) for s in steps if s.status.value == "retrying"}


def seen(host: Host, run_id: str, result: Any, built: Built) -> dict[str, Any]:
    """Return what a run came to, without what is a matter of luck."""
    state = host.state(run_id)
    values = {name: state[name] for name in state}
    if "@channel/log" in values:
        values["@channel/log"] = sorted(values["@channel/log"])
    return {
        "status": result.status.value,
        "error": result.error and result.error.message,
        "result": without(plain(result), built.racy),
        "values": without(values, built.racy),
        "versions": without(state.versions, built.racy),
        "visits": without(state.counters.visits, built.racy),
    }


def plain(values: Values) -> dict[str, Any]:
    """Return the values of a result, those of inner flows included, as dicts."""
    return {k: plain(v) if isinstance(v, Values) else v for k, v in values.items()}


def without(values: Any, racy: set[str]) -> Any:
    """Leave out what belongs to nodes that luck decides about."""
    if not isinstance(values, dict):
        return values
    return {
        name: without(value, racy)
        for name, value in values.items()
        if racy.isdisjoint(re.split(r"[/@#:]", name)) and name.removesuffix("_out") not in racy
    }


def around(path: str, visit: int) -> Iterator[tuple[str, int]]:
    """Yield the visits after whose completion this one must not begin again: itself and those around it."""
    yield path, visit
    so_far, (*outer, last) = "", path.split("/")
    for segment in [*outer, *([last] if "#" in last else [])]:
        address, _, item = segment.partition("#")
        name, _, number = address.partition("@")
        yield so_far + name, int(number or 1)
        if item:
            yield so_far + segment, 1
        so_far += segment + "/"
