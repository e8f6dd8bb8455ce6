"""A simulated fleet whose runs begin later, or are ended by deadlines, and what must hold of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from random import Random
from typing import NamedTuple

from everstep import Context, Flow, Retry, node, wait
from everstep.model.enums import Status
from everstep.model.records import DEADLINE, START, StepRecord
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import current_thread
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.process import SimProcess
from everstep.testing.simulation.trial import End
from everstep.testing.simulation.world import Here, World
from tests.simulation.stores import place

RUNS = 6
SHORT, LONG = 15, 60
"""Seconds that delays and deadlines take."""


def note(what: str) -> None:
    """Note what code of a run does, and when by the clock of its store."""
    thread = current_thread()
    if thread is not None:
        process = thread.owner
        assert isinstance(process, SimProcess)
        world = process.world
        assert isinstance(world, FleetWorld)
        clock = world.store.clock if world.store.is_remote else process.system.clock
        world.notes.setdefault(NOTED, []).append(Noted(what, clock.now()))


NOTED = "noted"


class Noted(NamedTuple):
    """What the code of a run did, and when."""

    what: str
    at: datetime


class Order(NamedTuple):
    """A run that is started."""

    run_id: str
    flow: str
    after: float
    deadline: float | None


@node(output="a")
def act(job: str) -> str:
    note(f"act {job}")
    return job


def release(job: str, ctx: Context) -> None:
    note(f"release {job}")


@node(output="shelf", undo=release)
def reserve(job: str, ctx: Context) -> str:
    note(f"reserve {job}")
    return job


@node(output="b", retry=Retry(999, first=4, factor=1, jitter=0))
def refuse(shelf: str) -> str:
    raise ConnectionError("closed")


def flows() -> Mapping[str, Flow]:
    """One that ends by itself, one that waits for an answer in vain, and one that tries in vain."""
    asks = Flow("asks", [reserve >> wait.approval(name="ask")], durability="strong")
    return {
        "acts": Flow("acts", [act], durability="strong"),
        "asks": asks,
        "tries": Flow("tries", [reserve >> refuse]),
    }


def orders(seed: int) -> tuple[Order, ...]:
    """Return what is started, as it follows from a seed."""
    chance = Random(seed)
    found = []
    for number in range(RUNS):
        flow = chance.choice(("acts", "asks", "tries"))
        after = chance.uniform(SHORT, LONG) if flow == "acts" or chance.random() < 0.4 else 0.0
        ends = None if flow == "acts" and chance.random() < 0.7 else chance.uniform(SHORT, LONG)
        found.append(Order(f"R{number}", flow, after, ends))
    return tuple(found)


class TimedTrial(FleetTrial):
    """Two workers, and one who starts runs and looks on."""

    def __init__(self, wanted: tuple[Order, ...], *, is_remote: bool, skew: float) -> None:
        self._flows = {name: played(flow, ITSELF) for name, flow in flows().items()}
        made, elsewhere = list(self._flows.values()), "m2" if is_remote else "m1"
        workers = {"worker-1": WorkerPlace(made, "m1"), "worker-2": WorkerPlace(made, elsewhere)}
        super().__init__(workers, {"client": self._client}, is_remote=is_remote, skew=skew)
        self._orders = wanted

    def _client(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            for order in self._orders:
                start = partial(
                    host.start, self._flows[order.flow], {"job": order.run_id}, run_id=order.run_id
                )
                times = {"after": order.after} if order.after else {}
                persist(here, partial(start, **times, deadline=order.deadline))
            ids = [order.run_id for order in self._orders]
            while not all(persist(here, partial(host.info, run_id)).status.is_final for run_id in ids):
                here.sleep(2)

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        assert isinstance(world, FleetWorld)
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        noted: list[Noted] = world.notes.get(NOTED, [])
        for order in self._orders:
            if order.run_id in judge.kept:
                broken += _judged(order, judge.kept[order.run_id], noted)
        return broken


def _judged(order: Order, kept: Kept, noted: list[Noted]) -> Iterator[Broken]:
    """Yield what is wrong with when a run began, and with how it ended."""
    steps, error = [step for _, step in kept.steps], kept.records[-1].error
    begun, ended = _of(steps, START), _of(steps, DEADLINE)
    due = begun[0].wait.due_at if begun and begun[0].wait is not None else None
    if bool(order.after) != bool(begun):
        yield Broken("times", f"run {order.run_id!r} was to begin after {order.after} s: {begun}.")
    early = [one for one in noted if one.what.endswith(f" {order.run_id}") and due and one.at < due]
    if early:
        yield Broken("times", f"run {order.run_id!r} was to begin at {due}, and has begun: {early}.")
    if [step.status for step in begun] not in ([], [Status.HALTED, Status.COMPLETED]) and not ended:
        yield Broken("times", f"run {order.run_id!r} began {len(begun) - 1} times.")
    status, reached = kept.row.status, [step for step in ended if step.status is Status.FAILED]
    is_late = error is not None and error.type == "DeadlineExceeded"
    if (status is Status.FAILED) != (len(reached) == 1) or is_late != bool(reached):
        yield Broken("times", f"run {order.run_id!r} is {status.value}, by its deadline: {reached}.")
    if status is Status.COMPLETED and order.flow != "acts":
        yield Broken("times", f"run {order.run_id!r} completed, and nothing lets it.")
    made = {one.what for one in noted}
    if (
        status is Status.FAILED
        and f"reserve {order.run_id}" in made
        and f"release {order.run_id}" not in made
    ):
        yield Broken("times", f"what run {order.run_id!r} did was not undone.")


def _of(steps: list[StepRecord], path: str) -> list[StepRecord]:
    return [step for step in steps if step.path == path]


def trial(seed: int, store: str) -> TimedTrial:
    """Return the trial that follows from a seed."""
    return TimedTrial(orders(seed), **place(seed, store))
