"""Schedules of a simulated fleet: made, paused, changed, asked for, filled; and what came of each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

from everstep import Host, chain, wait
from everstep.errors import LeaseConflict
from everstep.graph.author.flow import Flow
from everstep.model.durations import span_of
from everstep.results import RunInfo, ScheduleInfo
from everstep.runtime.operations.schedules.deciding import run_asked_for, run_for
from everstep.runtime.operations.schedules.state import State, state_of
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.trial import End
from everstep.testing.simulation.world import Here, World
from tests.simulation.stores import place
from tests.simulation.users.flows import effect, flow

LOOK = 3.0
LATE = 300.0
"""Who was stopped while it started a run, with its schedule gone meanwhile, has started it by then."""
ASKED = "please"


def quick() -> Flow:
    """Has an effect for its time."""
    return flow("quick", [effect("note", ["at"], "noted", lambda at: at)], "partial")


def slow() -> Flow:
    """Rests for longer than some schedules do, so that its runs overlap."""
    rests = wait.timer("rest", duration=25, payload="begun", output="rested")
    begins = effect("begin", ["at"], "begun", lambda at: str(at))
    ends = effect("end", ["rested"], "ended", lambda rested: rested)
    return flow("slow", [chain(begins, rests, ends)], "strong")


FLOWS: Mapping[str, Flow] = {made.name: made for made in (quick(), slow())}


@dataclass(frozen=True)
class Plan:
    """A schedule, and what is done about it. Times are in seconds since the world began."""

    schedule_id: str
    flow: str
    every: str
    overlap: str
    jitter: str
    made: float
    until: float
    pauses: tuple[float, float] | None
    asks: float | None
    fills: float | None
    """When the times of the minute before it was made are run after all."""
    changes: float | None


def script(seed: int) -> tuple[Plan, ...]:
    """Return what happens, as it follows from a seed."""
    chance = Random(seed)

    def at(least: float, most: float, odds: float = 1.0) -> float | None:
        return round(chance.uniform(least, most), 3) if chance.random() < odds else None

    def plan(number: int) -> Plan:
        begins = at(15, 40, 0.3)
        return Plan(
            f"S{number}",
            chance.choice(list(FLOWS)),
            chance.choice(["10s", "13s", "20s"]),
            chance.choice(["skip", "queue", "replace", "allow"]),
            chance.choice(["0s", "0s", "4s"]),
            made=at(0, 4) or 0.0,
            until=round(chance.uniform(45, 75), 3),
            pauses=None if begins is None else (begins, begins + chance.uniform(1, 30)),
            asks=at(5, 50, 0.4),
            fills=at(5, 50, 0.4),
            changes=at(20, 40, 0.3),
        )

    return tuple(plan(number) for number in range(chance.randint(1, 3)))


class Operator:
    """Makes the schedules and acts on them, waits until their time is over, and ends them."""

    def __init__(self, plans: tuple[Plan, ...]) -> None:
        self._plans = plans

    def __call__(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            agenda = [step for plan in self._plans for step in self._agenda(host, plan)]
            for at, label, act in sorted(agenda, key=lambda it: it[:2]):
                here.sleep(max(0.0, at - world.hub.now / SECOND))
                if label not in world.notes:
                    persist(here, act)
                    world.notes[label] = True
            for plan in self._plans:
                while not persist(here, partial(self._is_over, world, host, plan)):
                    here.sleep(LOOK)
            here.sleep(LATE)
            while not all(row.status.is_final for row in self._rows(here, host)):
                here.sleep(LOOK)

    def _rows(self, here: Here, host: Host) -> list[RunInfo]:
        return list(persist(here, partial(host.runs, limit=1000)))

    def _agenda(self, host: Host, plan: Plan) -> Iterator[tuple[float, str, Any]]:
        name, schedules = plan.schedule_id, host.schedules
        made = {"every": plan.every, "overlap": plan.overlap, "jitter": plan.jitter, "catch_up": "1d"}
        create = partial(schedules.create, plan.flow, name, time_input="at", **made)  # type: ignore[arg-type]
        yield plan.made, f"make {name}", create
        if plan.pauses is not None:
            yield plan.pauses[0], f"pause {name}", partial(schedules.pause, name)
            yield plan.pauses[1], f"unpause {name}", partial(schedules.unpause, name)
        if plan.asks is not None:
            yield plan.asks, f"ask {name}", partial(schedules.run_now, name, id=ASKED)
        if plan.fills is not None:
            yield plan.fills, f"fill {name}", partial(self._fill, host, name)
        if plan.changes is not None:
            yield plan.changes, f"change {name}", partial(schedules.change, name, tags=["changed"])

    def _fill(self, host: Host, name: str) -> None:
        made = host.info(name).created_at
        host.schedules.backfill(name, made - timedelta(minutes=1), made, at_once=2)

    def _is_over(self, world: FleetWorld, host: Host, plan: Plan) -> bool:
        """End a schedule once it has decided all its times and done what it was asked for."""
        row = host.info(plan.schedule_id)
        if row.status.is_final:
            return True
        told: ScheduleInfo = host.schedules.get(plan.schedule_id)
        runs = {one.run_id for one in host.runs(limit=1000)}
        is_asked = plan.asks is None or run_asked_for(plan.schedule_id, ASKED) in runs
        last = row.created_at + timedelta(seconds=plan.until)
        is_filled = plan.fills is None or run_for(plan.schedule_id, _times(plan, row.created_at, -1)) in runs
        is_done = told.next is not None and told.next > last and told.backfill is None
        if not (is_done and is_asked and is_filled):
            return False
        with suppress(LeaseConflict):
            host.cancel(plan.schedule_id)
        return False


def _times(plan: Plan, created: datetime, number: int) -> datetime:
    """Return a time of a schedule, counted from when it was made."""
    return created + number * span_of(plan.every)


class TimetableTrial(FleetTrial):
    """Two workers, one of which is away from the first, and who makes schedules."""

    def __init__(self, plans: tuple[Plan, ...], *, is_remote: bool = False, skew: float = 0.0) -> None:
        flows, elsewhere = list(FLOWS.values()), "m2" if is_remote else "m1"
        workers = {"worker-1": WorkerPlace(flows, "m1"), "worker-2": WorkerPlace(flows, elsewhere)}
        super().__init__(workers, {"operator": Operator(plans)}, is_remote=is_remote, skew=skew)
        self._plans = plans

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        for plan in self._plans:
            broken += [Broken("each time once", said) for said in _judged(plan, judge.kept)]
            clocks = any(taken.choice.startswith("clock") for taken in world.ledger.taken)
            if not (self._skew or clocks):  # else the times of rows are those of several clocks
                broken += [Broken("one after the other", said) for said in _in_order(plan, judge.kept)]
        return broken


def _judged(plan: Plan, kept: Mapping[str, Kept]) -> Iterator[str]:
    """Yield what did not come of a schedule: each time has one run, or is counted as skipped."""
    name, folded = plan.schedule_id, kept[plan.schedule_id].folded
    assert folded is not None
    state: State = state_of(folded.space.peek("state", ""))
    due: list[datetime] = []
    while (at := _times(plan, state.created, len(due) + 1)) <= state.after:
        due.append(at)
    runs = _runs(plan, kept, due)
    if state.missed or state.refused:
        yield f"{name} has missed {state.missed} and refused {state.refused}: {state.said}."
    if state.skipped and plan.overlap != "skip":
        yield f"{name} has skipped {state.skipped}, and its overlap is {plan.overlap}."
    left = state.skipped + len(state.pending)
    if not len(due) - left <= len(runs) <= len(due):
        yield f"{name} was due {len(due)} times, and has run {len(runs)} and left {left}."
    if at <= state.created + timedelta(seconds=plan.until):
        yield f"{name} was not looked at to the end."
    for run in runs:
        status = run.row.status
        if status != "completed" and not (status == "cancelled" and plan.overlap == "replace"):
            yield f"{run.row.run_id} of {name} is {status}."
    if plan.asks is not None and run_asked_for(name, ASKED) not in kept:
        yield f"{name} has not started what it was asked for."
    if plan.fills is not None:
        before = [_times(plan, state.created, -k) for k in range(60 // int(plan.every[:-1]))]
        lacking = [at for at in before[1:] if run_for(name, at) not in kept]
        if lacking:
            yield f"{name} was to be filled, and has no run of {lacking}."
    ours = {run.row.run_id for run in runs} | {run_asked_for(name, ASKED)}
    ours |= {run_for(name, _times(plan, state.created, -k)) for k in range(61)}
    for run_id, run in kept.items():
        if run.row.started_by is not None and run.row.started_by.run == name and run_id not in ours:
            yield f"{name} has started {run_id!r}, which is of none of its times."


def _runs(plan: Plan, kept: Mapping[str, Kept], times: Iterable[datetime]) -> list[Kept]:
    ids = [run_for(plan.schedule_id, at) for at in times]
    return [kept[run_id] for run_id in ids if run_id in kept]


def _in_order(plan: Plan, kept: Mapping[str, Kept]) -> Iterator[str]:
    """Yield which run of a queue began before the one before it was over."""
    if plan.overlap != "queue":
        return
    made = kept[plan.schedule_id].row.created_at
    for one, other in pairwise(_runs(plan, kept, (_times(plan, made, k) for k in range(1, 100)))):
        assert one.row.ended_at is not None
        if other.row.created_at < one.row.ended_at:
            yield f"{other.row.run_id} began before {one.row.run_id} was over."


def trial(seed: int, store: str) -> TimetableTrial:
    """Return what happens in a fleet, as it follows from a seed."""
    return TimetableTrial(script(seed), **place(seed, store))
