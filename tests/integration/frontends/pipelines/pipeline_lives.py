"""The lives of an example pipeline's run, in this process or in ones that are killed.

`python -m tests.integration.frontends.pipelines.pipeline_lives NAME FOLDER` kills a process at every point
of the run with SIGKILL, lets another go on, and prints for each point how the run ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from everstep import Flow, Host
from everstep.model.enums import Status
from everstep.registry import Opened, open_store
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Killer, killing

FOLDER = Path(__file__).resolve().parents[4] / "examples"
MARKS = {"fail": "!", "partial_success": "~"}


class Ended(NamedTuple):
    """What a run leaves."""

    status: str
    trace: list[str]
    context: dict[str, Any]
    stages: dict[str, Any]


class World:
    """A store that outlives the processes, and their clock."""

    def __init__(self, name: str, opened: Callable[[ManualClock], Opened] | None = None) -> None:
        self.name = name
        data = MemoryData()
        self._opened = opened or (lambda clock: Opened(MemoryStore(clock, data), None, "memory:"))
        self._clock = ManualClock(auto=True)

    def later(self) -> None:
        """Let a while pass, so that an owner that died has lost the run."""
        self._clock.advance(timedelta(minutes=2))

    def live(self, killer: Killer) -> Ended:
        """Drive the run until it ends, saying yes to whatever is asked."""
        file = FOLDER / f"{self.name}.dot"
        flow = Flow.from_dot(file.read_text(encoding="utf-8"), file=str(file))
        self._clock.advance(timedelta(minutes=2))
        with Host(killing(self._opened(self._clock), by=killer), clock=self._clock) as host:
            result = host.run(flow, run_id="a")
            while result.status is Status.HALTED:
                for asked in host.waits("a"):
                    host.answer(asked.id, "yes" if "Yes" in str(asked.options) else "approve")
                result = host.resume("a", flow)
            return _ended(host, result.status)


def _ended(host: Host, status: Status) -> Ended:
    channel = host.channel("a")
    # Right after a resume a stage is told less of what came before; that is meant, and kept with it.
    stages = {
        key: {k: v for k, v in value.items() if k not in ("fidelity", "degraded_from", "preamble")}
        for key, value in channel.items()
        if key.startswith("stages.")
    }
    hidden = ("stages.",)
    context = {key: value for key, value in channel.items() if not key.startswith(hidden)}
    return Ended(status.value, _steps(host), context, stages)


def _steps(host: Host) -> list[str]:
    """Return the steps that ended, from the records of the run, each with how its stage did."""
    found: list[str] = []
    for record in host.history("a"):
        state = host.state("a", record.sequence)
        for step in record.steps:
            if step.status is Status.COMPLETED and step.path != "@inputs":
                stage = state.get(f"@channel/stages.{step.path}") or {}
                found.append(step.path + MARKS.get(stage.get("status", ""), ""))
    beside = sorted(path for path in found if path.startswith("split/"))
    return [beside.pop(0) if path.startswith("split/") else path for path in found]


def _child(work: Callable[[], object]) -> int:
    """Do something in a process of its own; return how that ended."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def main(name: str, folder: Path) -> None:
    """Kill, go on, and tell."""
    noted, told = folder / "points.json", folder / "ended.json"

    def world(number: int) -> World:
        return World(name, lambda clock: open_store(f"sqlite:///{folder}/{number}.db", clock))

    def whole() -> None:
        killer = Killer()
        told.write_text(json.dumps(world(0).live(killer)))
        noted.write_text(json.dumps(killer.points))

    _child(whole)
    # What lasts before a write is what lasted after the one before it.
    points = [point for point in json.loads(noted.read_text()) if point.startswith("after")]
    lives = {"": json.loads(told.read_text())}
    for number, point in enumerate(points, 1):
        died = _child(lambda number=number, point=point: world(number).live(Killer(point)))  # type: ignore[misc]
        if os.WIFSIGNALED(died) and os.WTERMSIG(died) == signal.SIGKILL:
            after = world(number)
            told.unlink()
            _child(lambda after=after: (after.later(), told.write_text(json.dumps(after.live(Killer())))))  # type: ignore[misc]
            lives[point] = json.loads(told.read_text())
    sys.stdout.write(json.dumps(lives))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
