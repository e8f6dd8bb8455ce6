"""The simulated world is like the real one: the same points, and the same records after the same death.

What real processes do that are killed with SIGKILL is compared with what simulated ones do. Left out is what
the matrix itself leaves to chance: how often a lease is renewed, times, and keys that nodes make up.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Flow
from everstep.engine import flush
from everstep.runtime.outage import outbox
from everstep.runtime.waits import open as opening
from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.faults import Fault, Taken
from everstep.testing.simulation.world import Here
from tests.acceptance.crash.judge import Case
from tests.acceptance.crash.lives import SCENARIOS, chain_of, points_of
from tests.acceptance.crash.test_crash_matrix import report
from tests.simulation.matrix.scenarios import PlayedHost, ScenarioTrial

SHAPES = ("small", "own-halt", "map", "atomic", "cut-off", "steps", "undone-calls")
"""Plain; waiting; in items; inside a flow; while the store is away; inside a node; undone."""
MORE_SHAPES = (
    *("chain", "diamond", "loop", "keyframes", "retry", "exhausted", "large", "interval", "interval-loop"),
    *("before-effects", "before-effects-retry", "partial", "partial-loop", "partial-retry", "renewed"),
    *("nested", "partial-nested", "partial-atomic", "atomic-in-nested", "map-product", "map-nested"),
    *("map-nested-overlapping", "map-atomic", "map-finished", "channel", "next-iteration", "tasks"),
    *("auto-checkpoint", "resume-at-a-node", "waits", "waits-inside", "notified", "cancelled-wait"),
    *("answered-late", "probed", "asked-while-cut-off", "spending", "tripped", "chance", "acting-atomic"),
    *("acting-items", "steps-in-a-loop", "steps-at-once", "steps-in-items", "steps-around-waits"),
    *("steps-kept-by-a-retry", "partial-steps", "partial-steps-around-waits", "undone", "saga"),
    *("undone-if-asked", "undone-later"),
)
"""Those that `EVERSTEP_SOAK=1` adds."""
SIDE_BY_SIDE = ("map", "diamond", "map-nested-overlapping")
"""Flows whose branches wait for each other in their first life only; then those that end at once share a put,
and which ones do is up to the threads of the machine."""
Chains = list[list[tuple[Any, ...]]]
"""Of each run its checkpoints: the number, whether it is a keyframe, and the steps."""


class WatchedTrial(ScenarioTrial):
    """A scenario of which is noted, in each life, what was recorded at its beginning and at its end."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, SCENARIOS[name], folder)
        self.recorded: dict[int, Chains] = {}
        self.ended: dict[int, Chains] = {}

    def _run(self, here: Here, flow: Flow) -> None:
        self.recorded[here.life] = self._chains(here)
        super()._run(here, flow)
        self.ended[here.life] = self._chains(here)

    def _chains(self, here: Here) -> Chains:
        with here.host() as opened:
            host = PlayedHost.of(opened)
            return plain([chain_of(host, run, spooled=True) for run in self.scenario.runs])


def plain(chains: list[list[dict[str, Any]]]) -> Chains:
    """Return chains without keys, which some nodes make up anew in each process."""
    return [
        [(it["sequence"], it["keyframe"], *(tuple(step[:4]) for step in it["steps"])) for it in chain]
        for chain in chains
    ]


def points_in(explorer: Explorer) -> list[str]:
    """Return the points of a simulated life as the matrix calls those of a real one."""
    points = [label.partition(" ")[2] for label, _ in explorer.points]
    return points_of({"trace": [{"point": point} for point in points]})


@pytest.fixture(autouse=True)
def as_in_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be written because time has passed: the matrix does without, as machines may be slow."""
    monkeypatch.setattr(flush, "MAX_LAG", timedelta(hours=1))
    monkeypatch.setattr(outbox, "REST", 0)
    monkeypatch.setattr(opening, "LOOK", 3600.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHAPES, *(pytest.param(it, marks=pytest.mark.soak) for it in MORE_SHAPES)])
def test_simulated_and_real_processes_leave_the_same_records_wherever_they_die(
    name: str, quick_folder: Path
) -> None:
    [whole], *cases = report("matrix", name, quick_folder, "once")
    trial = WatchedTrial(name, quick_folder)
    explorer = Explorer(trial)
    try:
        assert not explorer.whole.broken
        assert points_in(explorer) == points_of(whole)
        assert trial.ended == {1: plain(whole["chains"])}
        every = points_of(whole)
        assert deaths_in(cases)[: len(every)] == every  # soak tests add one that lives in new interpreters
        for case in cases:
            compare_after_death(trial, explorer, case)
    finally:
        explorer.close()


def deaths_in(cases: list[Case]) -> list[str]:
    return [case[0]["at"] for case in cases]


def compare_after_death(trial: WatchedTrial, explorer: Explorer, case: Case) -> None:
    """Let a simulated process die where a real one did, and compare what each found and left."""
    [died, resumed] = case
    at: str = died["at"]
    trial.recorded.clear()
    trial.ended.clear()
    tried = explorer.try_chosen([Taken(f"app.1 {at}", Fault.CRASH.value)])
    assert not tried.broken, at
    assert tried.taken, f"no simulated process came to {at}"
    if died["exit"] == 0:  # a real one did not come so far before it had ended
        return
    assert trial.recorded[2] == plain(resumed["recorded"]), f"other records after a death {at}"
    found, expected = trial.ended[2], plain(resumed["chains"])
    if trial.name in SIDE_BY_SIDE:
        assert steps_of(found) == steps_of(expected), f"other steps at the end, after a death {at}"
    else:
        assert found == expected, f"other records at the end, after a death {at}"


def steps_of(chains: Chains) -> list[tuple[Any, ...]]:
    """Return all steps, in no particular order and whichever were put together."""
    return sorted(step for chain in chains for _, _, *steps in chain for step in steps)


def test_what_is_compared_has_every_part_that_a_record_may_differ_in() -> None:
    step = ["a", 1, "completed", 2, "key"]
    chains = [[{"sequence": 1, "keyframe": True, "steps": [step]}]]
    assert plain(chains) == [[(1, True, ("a", 1, "completed", 2))]]
    changed: Mapping[int, Any] = {0: "b", 1: 2, 2: "failed", 3: 1}
    for place, other in changed.items():
        another = [[{"sequence": 1, "keyframe": True, "steps": [[*step[:place], other, *step[place + 1 :]]]}]]
        assert plain(another) != plain(chains)
