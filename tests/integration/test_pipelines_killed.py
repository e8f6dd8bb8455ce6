"""Every example pipeline: what it does, and that a crash at any point changes nothing of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from everstep import Flow, Host, validate
from everstep.model.enums import Status
from everstep.registry import Opened
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing

FOLDER = Path(__file__).resolve().parents[2] / "examples"

EXPECTED = {
    "backlog": "start pick mend left~ pick mend left~ pick mend left exit",
    "code_review": "start plan implement test! implement test review approve approve.next merge exit",
    "market_study": (
        "start split/demand split/demand/demand split/prices split/prices/prices split/prices/taxes "
        "split/rivals split/rivals/rivals split split.join join answer exit"
    ),
    "press_release": "begin draft check! judge! rewrite check judge editor editor.next publish",
    "release": (
        "start freeze checks/start checks/build checks/measure~ checks/report checks/build checks/measure "
        "checks/exit checks checks.next tag exit"
    ),
    "release_checks": "start build measure~ report build measure exit",
}
"""The steps in their order, those of branches by name; `!` marks a failure, `~` a partial success."""
MARKS = {"fail": "!", "partial_success": "~"}


class Ended(NamedTuple):
    """What a run leaves."""

    status: Status
    trace: list[str]
    context: dict[str, Any]
    stages: dict[str, Any]


class World:
    """A store that outlives the processes, and their clock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._data = MemoryData()
        self._clock = ManualClock(auto=True)

    def live(self, killer: Killer) -> Ended:
        """Drive the run in a process of its own until it ends, saying yes to whatever is asked."""
        file = FOLDER / f"{self.name}.dot"
        flow = Flow.from_dot(file.read_text(encoding="utf-8"), file=str(file))
        self._clock.advance(timedelta(minutes=2))
        store = killing(Opened(MemoryStore(self._clock, self._data), None, "memory:"), by=killer)
        with Host(store, clock=self._clock) as host:
            result = host.run(flow, run_id="a")
            while result.status is Status.HALTED:
                for asked in host.waits("a"):
                    host.answer(asked.id, "yes" if "Yes" in str(asked.options) else "approve")
                result = host.resume("a", flow)
            return self._ended(host, result.status)

    def _ended(self, host: Host, status: Status) -> Ended:
        channel = host.channel("a")
        stages = {
            key: {k: v for k, v in value.items() if k not in ("fidelity", "degraded_from")}
            for key, value in channel.items()
            if key.startswith("stages.")
        }
        hidden = ("stages.", "internal.history")
        context = {key: value for key, value in channel.items() if not key.startswith(hidden)}
        return Ended(status, steps_of(host), context, stages)


def steps_of(host: Host) -> list[str]:
    """Return the steps that ended, from the records of the run, each with how its stage did."""
    found: list[str] = []
    for record in host.history("a"):
        state = host.state("a", record.sequence)
        for step in record.steps:
            if step.status is Status.COMPLETED and step.path != "@inputs":
                stage = state.get(f"@channel/stages.{step.path}") or {}
                found.append(step.path + MARKS.get(stage.get("status", ""), ""))
    return sorted_branches(found)


def sorted_branches(trace: list[str]) -> list[str]:
    beside = sorted(path for path in trace if path.startswith("split/"))
    return [beside.pop(0) if path.startswith("split/") else path for path in trace]


def test_every_example_is_here() -> None:
    assert {file.stem for file in FOLDER.glob("*.dot")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_out_of_the_box(name: str) -> None:
    ended = World(name).live(Killer())
    assert ended.status is Status.COMPLETED
    assert ended.trace == EXPECTED[name].split()


@pytest.mark.parametrize("name", EXPECTED)
def test_nothing_is_odd_about_an_example(name: str) -> None:
    file = FOLDER / f"{name}.dot"
    flow = Flow.from_dot(file.read_text(encoding="utf-8"), file=str(file))
    with Host("memory:") as host:
        found = validate(flow, host)
    assert {d.code for d in found} <= {"pipeline.no_failure_route"}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_that_is_killed_anywhere_ends_as_if_nothing_had_happened(name: str) -> None:
    whole = Killer()
    expected = World(name).live(whole)
    killed = 0
    for point in whole.points:
        world = World(name)
        try:
            world.live(Killer(point, act=crash))
        except Crashed:
            killed += 1
        assert world.live(Killer()) == expected, f"killed {point}"
    assert killed > len(whole.points) * 0.9
