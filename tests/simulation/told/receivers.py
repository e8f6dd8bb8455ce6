"""A simulated fleet whose runs fail, are cancelled or erased; its receiver is down half of the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import NamedTuple

from everstep import Flow, Host, node, wait
from everstep.client.views import RunInfo
from everstep.errors import EverstepError, LeaseConflict, RunErased, RunNotFound
from everstep.graph.tells import Tell
from everstep.model.commits import NoticeRow, NoticeState
from everstep.model.enums import Status
from everstep.ports.durability import Notice
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader
from everstep.testing.simulation.faults import Decider
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.trial import End
from everstep.testing.simulation.world import Here, World
from tests.simulation.stores import place

LOOK = 5.0
DOWN = 47 * SECOND
"""So long it is up, and then so long down."""
STEADY = 600 * SECOND
"""From then on it is up: pauses grow to hours, and to wait for one costs a world more than it tells."""
BEGUN = 130 * SECOND
"""What was taken to be sent may still arrive that long after its run was erased, and nothing else."""
TELLS = Tell("ops", on=["failed", "cancelled"])


@node(output="x")
def fails(a: int) -> int:
    raise ValueError(f"{a} is too much")


FAILING = Flow("failing", [fails], notify=TELLS)
ASKING = Flow("asking", [wait.approval("ok", notify="ops", remind="2m")], notify=TELLS)
QUIET = Flow("quiet", [fails])
FLOWS: Mapping[str, Flow] = {flow.name: flow for flow in (FAILING, ASKING, QUIET)}


class Wish(NamedTuple):
    """A run that is started, and what becomes of it."""

    run_id: str
    flow: str
    starts: float
    erases: float | None


class Delivered(NamedTuple):
    """A notice as the receiver got it, and when."""

    notice_id: str
    run_id: str
    occasion: str
    at: int


def script(seed: int) -> tuple[Wish, ...]:
    """Return what is started, as it follows from a seed."""
    chance = Random(seed)
    return tuple(
        Wish(
            f"R{number}",
            chance.choice(("failing", "failing", "asking", "quiet")),
            chance.uniform(0, 90),
            chance.uniform(5, 60) if chance.random() < 0.3 else None,
        )
        for number in range(chance.randint(3, 7))
    )


class ReceiverOfNotices:
    """Gets notices while it is up."""

    def __init__(self) -> None:
        self.world: FleetWorld | None = None
        self.got: list[Delivered] = []

    def __call__(self, notice: Notice) -> None:
        assert self.world is not None
        now = self.world.hub.now
        if now < STEADY and now // DOWN % 2:
            raise ConnectionError("the receiver is down")
        self.got.append(Delivered(notice.id, notice.run_id, notice.occasion, now))


class Operator:
    """Who starts, cancels and erases, and stays until every notice was sent."""

    def __init__(self, wishes: tuple[Wish, ...]) -> None:
        self._wishes = wishes

    def __call__(self, world: FleetWorld, here: Here) -> None:
        with here.host(notifiers={"ops": world.notes["receiver"]}) as host:
            for wish in sorted(self._wishes, key=lambda it: it.starts):
                here.sleep(max(0.0, wish.starts - world.hub.now / SECOND))
                if f"start {wish.run_id}" not in world.notes:
                    flow = FLOWS[wish.flow]
                    inputs = {} if flow is ASKING else {"a": 1}
                    persist(here, partial(host.start, flow, inputs, run_id=wish.run_id))
                    world.notes[f"start {wish.run_id}"] = True
            while not self._is_done(world, here, host):
                here.sleep(LOOK)

    def _is_done(self, world: FleetWorld, here: Here, host: Host) -> bool:
        rows: dict[str, RunInfo] = {row.run_id: row for row in persist(here, host.runs)}
        for wish in self._wishes:
            row = rows.get(wish.run_id)
            if row is None:
                continue
            if row.status is Status.HALTED and world.hub.now > (wish.starts + 150) * SECOND:
                persist(here, partial(_cancel, host, wish.run_id))
                return False
            if wish.erases is not None and row.status.is_final and f"erased {wish.run_id}" not in world.notes:
                if world.hub.now < (wish.starts + wish.erases) * SECOND:
                    return False
                if persist(here, partial(_erase, host, wish.run_id)):
                    world.notes[f"erased {wish.run_id}"] = world.hub.now
                return False
        if not all(row.status.is_final for row in rows.values()) or world.has_spooled():
            return False
        return not persist(here, partial(host.notices.find, state="pending"))


def _cancel(host: Host, run_id: str) -> None:
    try:
        host.cancel(run_id)
    except LeaseConflict:
        return


def _erase(host: Host, run_id: str) -> bool:
    try:
        host.retention.erase(run_id)
    except (RunErased, RunNotFound):
        return True  # a life before this one did, and did not hear of it
    except (LeaseConflict, EverstepError) as error:
        if error.code.startswith("store"):
            raise
        return False
    return True


class ToldTrial(FleetTrial):
    """Two workers that send notices, and one who starts runs and erases some."""

    def __init__(self, wishes: tuple[Wish, ...], *, is_remote: bool = False, skew: float = 0.0) -> None:
        flows, elsewhere = list(FLOWS.values()), "m2" if is_remote else "m1"
        workers = {"worker-1": WorkerPlace(flows, "m1"), "worker-2": WorkerPlace(flows, elsewhere)}
        super().__init__(workers, {"operator": Operator(wishes)}, is_remote=is_remote, skew=skew)
        self._wishes = wishes

    def world(self, seed: int, decider: Decider) -> FleetWorld:
        receiver = ReceiverOfNotices()
        self._options = {"notifiers": {"ops": receiver}}
        receiver.world = world = super().world(seed, decider)
        world.notes["receiver"] = receiver
        return world

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        assert isinstance(world, FleetWorld)
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        got: list[Delivered] = world.notes["receiver"].got
        broken += _ids(got)
        rows = notices_of(world)
        for wish in self._wishes:
            mine = [one for one in got if one.run_id == wish.run_id]
            erased_at: int | None = world.notes.get(f"erased {wish.run_id}")
            if erased_at is not None:
                late = [one for one in mine if one.at > erased_at + BEGUN]
                if late:
                    broken.append(Broken("told", f"{late} came after run {wish.run_id!r} was erased."))
            if wish.run_id in judge.kept:
                there = [row for row in rows if row.run_id == wish.run_id]
                broken += _told(wish, judge.kept[wish.run_id], there, mine)
        return broken


def notices_of(world: World) -> list[NoticeRow]:
    """Return every notice that the store has."""
    store = world.store.plain().store
    return [
        row.changed(run_id=run_id)
        for run_id, line in ((it.run_id, it) for it in store._listing.all())  # type: ignore[attr-defined]
        if line.standing is not None
        for row in line.standing.notices
    ]


def _ids(got: list[Delivered]) -> Iterator[Broken]:
    meant: dict[str, set[tuple[str, str]]] = {}
    for one in got:
        if one.notice_id:  # a wait that is told of for the first time has none
            meant.setdefault(one.notice_id, set()).add((one.run_id, one.occasion))
    for notice_id, what in meant.items():
        if len(what) > 1:
            yield Broken("told", f"notice {notice_id!r} is of {sorted(what)}.")


def _told(wish: Wish, kept: Kept, rows: list[NoticeRow], mine: list[Delivered]) -> Iterator[Broken]:
    run_id, status = wish.run_id, kept.row.status
    ids = {one.notice_id for one in mine}
    for row in rows:
        if row.state is not NoticeState.SENT and row.occasion != "reminder":
            yield Broken("told", f"notice {row.notice_id} of run {run_id!r} is {row.state.value} in the end.")
        elif row.occasion != "reminder" and row.notice_id not in ids:
            yield Broken("told", f"notice {row.notice_id} of run {run_id!r} counts as sent, and never came.")
    ends = [row for row in rows if row.occasion == status.value]
    if wish.flow != "quiet" and status in (Status.FAILED, Status.CANCELLED) and len(ends) != 1:
        yield Broken("told", f"run {run_id!r} is {status.value}, and has {len(ends)} notices of that.")
    if wish.flow == "quiet" and (rows or mine):
        yield Broken("told", f"run {run_id!r} has no one to tell, and {mine} came.")


def trial(seed: int, store: str) -> ToldTrial:
    """Return what happens in a fleet, as it follows from a seed."""
    return ToldTrial(script(seed), **place(seed, store))
