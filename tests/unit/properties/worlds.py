"""What outlives the processes that run a random flow, and what they come to."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

from everstep import Host, wait
from everstep.client.views import Values, WaitInfo
from everstep.registry import Opened
from everstep.results import RunResult
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests import inside_memory
from tests.unit.properties.flows import Built, Case, Log, number_in

RUN = "run-1"
LEASE = timedelta(seconds=30)
TAG = "zz"
"""What the names of a flow's next version end with."""


class World:
    """What outlives a process: the data and the time."""

    def __init__(self, case: Case, whim: int = 0) -> None:
        self.case = case
        self._whims = Random(whim)
        self.clock = ManualClock(auto=True)
        self.data = MemoryData()

    def host(self, killer: Killer | None = None) -> Host:
        store = MemoryStore(self.clock, self.data)
        return Host(
            killing(Opened(store, store.artifacts, "memory:"), by=killer or Killer()), clock=self.clock
        )

    def inputs(self) -> dict[str, Any]:
        return {"x": self.case.x}

    def live(self, log: Log | None = None, at: int | None = None) -> dict[str, Any] | None:
        """Run or resume; none if the process crashed."""
        built = Built(self.case, log)
        with self.host(Killer(at, act=crash)) as host:
            try:
                result = host.run(built.flow, self.inputs(), run_id=RUN, channel={"seed": 1})
                result = self.answer(host, result, built)
            except Crashed:
                self.clock.advance(LEASE * 2)
                return None
            return seen(host, RUN, result, built)

    def answer(self, host: Host, result: RunResult, built: Built) -> RunResult:
        """Answer some of what is open, as chance wants it, until the run has ended."""
        while result.status == "halted":
            waits = host.waits(result.run_id, limit=1000)
            for opened in [w for w in waits if self._whims.random() < 0.5] or waits[:1]:
                if opened.kind != "timer":
                    host.answer(opened.id, answer_to(opened))
                elif opened.due_at is not None and self._whims.random() < 0.5:
                    self.clock.advance(max(opened.due_at - self.clock.now(), timedelta(0)))
                else:
                    host.waiting.fire(opened.id)
            result = host.resume(result.run_id, built.flow)
        return result

    def recorded(self, run_id: str = RUN) -> tuple[set[tuple[str, int]], set[tuple[str, int, int]]]:
        """Return the visits that are completed in the chain or wait, and the attempts that failed."""
        if not inside_memory.has_run(self.data, run_id):
            return set(), set()
        with self.host() as host:
            steps = [step for record in host.history(run_id) for step in record.steps if step.ended_at]
        done = {(s.path, s.visit) for s in steps if s.status.value in ("completed", "halted")}
        return done, {(s.path, s.visit, s.attempts) for s in steps if s.status.value == "retrying"}


def answer_to(opened: WaitInfo) -> Any:
    """Return what this wait is answered with in every life."""
    node = opened.node.replace(TAG, "")
    number = zlib.crc32(f"{node} {opened.visit} {opened.context}".encode()) % 97
    return {"approved": bool(number % 2)} if opened.kind == "approval" else number


def timeless(value: Any) -> Any:
    """Return what a wait wrote without when that was."""
    if isinstance(value, list):
        return [timeless(item) for item in value]
    is_output = isinstance(value, (wait.TimerOutput, wait.ApprovalOutput, wait.CallbackOutput))
    return (type(value).__name__, number_in(value)) if is_output else value


def seen(host: Host, run_id: str, result: Any, built: Built) -> dict[str, Any]:
    """Return what a run came to, without what is a matter of luck."""
    state = host.state(run_id)
    values = {name: timeless(state[name]) for name in state}
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
    return {k: plain(v) if isinstance(v, Values) else timeless(v) for k, v in values.items()}


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
