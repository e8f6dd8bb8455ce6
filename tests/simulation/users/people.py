"""Users of a simulated fleet, who do everything at random times; and what must come of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import msgspec

from everstep import Host
from everstep.client.views import RunInfo, WaitInfo
from everstep.errors import (
    BadRequest,
    CheckpointPinned,
    FlowChanged,
    LeaseConflict,
    RunEnded,
    RunNotFound,
    RunPaused,
    StoreError,
    TokenInvalid,
    TokenUsed,
    WaitClosed,
    WaitSettled,
)
from everstep.graph.author.flow import Flow
from everstep.model.enums import Status
from everstep.model.records import StepRecord
from everstep.model.retention import Retention
from everstep.model.waits import SettledBy
from everstep.runtime.drive.context import RunContext
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.ledger import Body, Ledger
from everstep.testing.simulation.trial import End, compared, ends_of
from everstep.testing.simulation.world import Here, World
from tests.simulation.stores import place
from tests.simulation.users.flows import NEW, OLD, OLD_NAMES, UNANSWERED

LOOK = 1.0
"""Seconds between two looks of a user at their runs."""
LATE = (WaitSettled, WaitClosed, TokenUsed, TokenInvalid)
"""What who answers hears if another answer, the clock or a cancel was first."""


@dataclass(frozen=True)
class Wish:
    """A run, and what its user does about it. Times are in seconds since the world began."""

    run_id: str
    flow: str
    x: int
    by: str
    """Whether users start and answer it, or the service does for them."""
    starts: float
    answers: float
    """How long they take to answer."""
    cancels: float | None = None
    forks: float | None = None
    is_pinned: bool = False
    removal: str | None = None
    """`erase` or `gc`, once it has ended."""
    pauses: tuple[float, float] | None = None
    """When it is paused, and let go on."""

    @property
    def fork_id(self) -> str:
        return f"{self.run_id}-fork"


@dataclass(frozen=True)
class Script:
    """What happens in a fleet besides faults."""

    wishes: tuple[Wish, ...]
    deploys: float | None
    """When a worker with new versions of flows begins, beside the old ones."""
    replaces: float | None
    """When a worker is told to stop; another has begun by then."""
    drains: float
    """When an operator drains what waits on a machine."""
    holds: tuple[str, float, float] | None = None
    """A flow that is paused as a whole: when, and until when."""


def script(seed: int, *, pauses: bool = False) -> Script:
    """Return what happens, as it follows from a seed."""
    chance = Random(seed)
    pausing = Random(~seed)
    wishes = []
    for number in range(chance.randint(3, 6)):
        flow = chance.choice(list(OLD))
        starts = round(chance.uniform(0, 4), 3)
        then = partial(lambda low: round(low + chance.expovariate(0.7), 3), starts + 0.001)
        is_cancelled, is_forked = chance.random() < 0.2, chance.random() < 0.2
        may_go = not is_forked and flow != "endures"  # forks go on from it, or may have to
        wishes.append(
            Wish(
                run_id=f"R{number}",
                flow=flow,
                x=chance.randint(0, 9),
                by=chance.choice(["users", "service"]),
                starts=starts,
                answers=chance.choice([0.5, 3, 7.9, 8.1]),
                cancels=then() if is_cancelled else None,
                forks=then() if is_forked else None,
                is_pinned=chance.random() < 0.2,
                removal=chance.choice([None, None, "erase", "gc"]) if may_go else None,
                pauses=_while(pausing, starts) if pauses and pausing.random() < 0.4 else None,
            )
        )
    held = pausing.choice(list(OLD)) if pauses and pausing.random() < 0.4 else None
    return Script(
        tuple(wishes),
        deploys=round(chance.uniform(0, 6), 3) if chance.random() < 0.4 else None,
        replaces=round(chance.uniform(0, 6), 3) if chance.random() < 0.5 else None,
        drains=round(chance.uniform(0, 8), 3),
        holds=None if held is None else (held, *_while(pausing, 0)),
    )


def _while(chance: Random, starts: float) -> tuple[float, float]:
    """Return from when until when something is paused."""
    since = round(starts + 0.001 + chance.expovariate(0.5), 3)
    return since, round(since + chance.uniform(0.5, 6), 3)


def answer_to(run_id: str, node: str) -> int:
    """Return what a wait is answered with, by whomever and whenever."""
    return zlib.crc32(f"{run_id} {node}".encode()) % 1000


class Person:
    """Users at their terminal, or the service that acts for others: a program of its own."""

    def __init__(self, name: str, plan: Script, elsewhere: str) -> None:
        self._name = name
        self._plan = plan
        self._elsewhere = elsewhere
        """The machine of new workers."""
        self._mine = [wish for wish in plan.wishes if wish.by == name]

    def __call__(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            visit = Visit(world, here, host, self._plan)
            for at, label, act in sorted(self._agenda(visit), key=lambda it: it[:2]):
                here.sleep(max(0.0, at - world.hub.now / SECOND))
                visit.once(label, act)
            visit.care_for(self._mine)

    def _agenda(self, visit: Visit) -> Iterator[tuple[float, str, Any]]:
        for wish in self._mine:
            yield wish.starts, f"start {wish.run_id}", partial(visit.start, wish)
            if wish.cancels is not None:
                yield wish.cancels, f"cancel {wish.run_id}", partial(visit.host.cancel, wish.run_id)
            if wish.forks is not None:
                yield wish.forks, f"fork {wish.run_id}", partial(visit.fork, wish)
            if wish.pauses is not None:
                since, until = wish.pauses
                yield since, f"pause {wish.run_id}", partial(visit.pause, wish.run_id)
                yield until, f"unpause {wish.run_id}", partial(visit.unpause, wish.run_id)
            if wish.is_pinned:
                yield wish.starts + 0.002, f"pin {wish.run_id}", partial(visit.pin, wish.run_id)
        if self._name == "users":
            yield from self._operations(visit)

    def _operations(self, visit: Visit) -> Iterator[tuple[float, str, Any]]:
        """Yield what an operator does."""
        plan, world = self._plan, visit.world
        if plan.deploys is not None:
            newer = WorkerPlace(list(NEW.values()), self._elsewhere)
            yield plan.deploys, "deploy", partial(world.hire, "worker-new", newer)
        if plan.replaces is not None:
            another = WorkerPlace(list(OLD.values()), "m1")
            yield plan.replaces, "replace", partial(world.hire, "worker-4", another)
            yield plan.replaces + 0.001, "dismiss", partial(world.dismiss, "worker-2")
        yield plan.drains, "drain", visit.host.storage.drain
        if plan.holds is not None:
            flow, since, until = plan.holds
            yield since, "hold", partial(visit.host.fleet.pause, flow=flow)
            yield until, "let go", partial(visit.host.fleet.unpause, flow=flow)


class Visit:
    """One life of a person: what they do with a host."""

    def __init__(self, world: FleetWorld, here: Here, host: Host, plan: Script) -> None:
        self.world = world
        self.here = here
        self.host = host
        self._plan = plan
        self._notes = world.notes

    def once(self, label: str, act: Any) -> None:
        """Do something until it is known to be done; what a life before this one knew to be done is not."""
        if label not in self._notes:
            self._notes[label] = persist(self.here, act)

    def start(self, wish: Wish) -> RunInfo:
        try:
            return self.host.start(OLD[wish.flow], {"x": wish.x}, run_id=wish.run_id)
        except FlowChanged:  # the life before this one did, and a worker took it over to the new version
            return self.host.info(wish.run_id)

    def fork(self, wish: Wish) -> RunInfo:
        """Fork a run as it stands, with another input: what comes of it does not depend on how it stood."""
        try:
            return self.host.fork(wish.run_id, inputs={"x": wish.x + 50}, fork_id=wish.fork_id)
        except BadRequest:  # the reply was lost, or the life that made it
            return self.host.info(wish.fork_id)

    def pause(self, run_id: str) -> int | None:
        """Pause a run, and say how many nodes had been called a second later; none if it had ended."""
        try:
            self.host.fleet.pause(run_id)
        except (BadRequest, RunEnded, RunNotFound):
            return None
        self.here.sleep(1.0)
        return len(self.world.ledger.bodies)

    def unpause(self, run_id: str) -> int:
        """Let a run go on, and say how many nodes had been called until then."""
        called: int = self._notes.setdefault(f"called {run_id}", len(self.world.ledger.bodies))
        with suppress(RunNotFound):  # it has ended, and was removed
            self.host.fleet.unpause(run_id)
        return called

    def pin(self, run_id: str) -> RunInfo:
        return self.host.retention.pin(run_id)

    def care_for(self, wishes: list[Wish]) -> None:
        """Answer, reopen and remove, until everything has come to its end."""
        ids = {run_id for wish in wishes for run_id in (wish.run_id, wish.fork_id)}
        by_id = {wish.run_id: wish for wish in wishes} | {wish.fork_id: wish for wish in wishes}
        while True:
            self.here.sleep(LOOK)
            for opened in persist(self.here, partial(self.host.waits, limit=100)):
                if opened.run_id in ids and opened.kind != "timer":
                    self._answer(opened, by_id[opened.run_id])
            rows = persist(self.here, partial(self.host.runs, limit=100))
            if self._plan.holds is not None and "let go" in self._notes:
                persist(self.here, partial(self.host.fleet.unpause, flow=self._plan.holds[0]))  # likewise
            for row in rows:
                if row.run_id in ids:
                    self._look_after(row, by_id[row.run_id])
            if self._is_done(rows, wishes):
                return

    def _answer(self, opened: WaitInfo, wish: Wish) -> None:
        seen = self._notes.setdefault(f"saw {opened.id}", self.world.hub.now)
        if self.world.hub.now < seen + round((wish.answers - LOOK) * SECOND):
            return
        said = answer_to(opened.run_id, opened.node)
        try:
            if wish.by == "users":
                self.host.answer(opened.id, said)
            else:
                self._deliver(opened, said, is_driven=wish.x % 3)
        except LATE:
            return
        except (StoreError, LeaseConflict, RunPaused) as error:
            self.world.ledger.tell(f"{self.here.process.tag} hears: {error}")

    def _deliver(self, opened: WaitInfo, said: int, is_driven: int) -> None:
        """Answer as the service does: with the token alone, or with what a queue brought."""
        token = self.host.waiting.reissue(opened.id).token
        if is_driven == 0:
            self.host.answer(token, said)
        else:
            message = {"token": token, "answer": said}
            self.host.deliver(message, list(OLD.values()), drive=is_driven == 1)

    def _look_after(self, row: RunInfo, wish: Wish) -> None:
        if row.paused_at is not None and f"unpause {row.run_id}" in self._notes:
            # The request that paused it reached the store once more, after it was let go on.
            persist(self.here, partial(self.unpause, row.run_id))
        elif row.status is Status.FAILED and row.flow == "fails":
            self._notes["fixed"] = True
            self._try_to_reopen(row, OLD[row.flow])
        elif row.status.is_final and row.run_id == wish.run_id and wish.removal is not None:
            self.once(f"remove {row.run_id}", partial(self._remove, row, wish.removal))

    def _try_to_reopen(self, row: RunInfo, flow: Flow) -> None:
        try:
            if row.run_id.endswith("-fork"):
                self.host.resume(row.run_id, flow, at_once=True)
            else:
                self.host.fleet.reopen(row.run_id, flow)
        except (StoreError, LeaseConflict, RunPaused) as error:
            self.world.ledger.tell(f"{self.here.process.tag} hears: {error}")

    def _remove(self, row: RunInfo, how: str) -> str:
        """Remove a run, and say what came of that."""
        try:
            if how == "erase":
                self.host.retention.erase(row.run_id)
                return "removed"
            said = self.host.retention.gc(row.run_id, retention=Retention(keep_for="1ms"))
            return "removed" if said.runs else "kept"
        except CheckpointPinned:
            return "kept"
        except RunNotFound:
            return "removed"

    def _is_done(self, rows: list[RunInfo], wishes: list[Wish]) -> bool:
        there = {row.run_id: row for row in rows}
        for row in rows:
            if not row.status.is_final or (row.status is Status.FAILED and row.flow == "fails"):
                return False
        for wish in wishes:
            is_there = wish.run_id in there and f"remove {wish.run_id}" not in self._notes
            if wish.removal is not None and is_there:
                return False
        return not self.world.has_spooled()


class UsersTrial(FleetTrial):
    """Three workers on two machines, and people who follow a script. A local store is on one machine."""

    def __init__(self, plan: Script, *, is_remote: bool = False, skew: float = 0.0) -> None:
        flows, elsewhere = list(OLD.values()), "m2" if is_remote else "m1"
        workers = {
            "worker-1": WorkerPlace(flows, "m1", concurrency=2),
            "worker-2": WorkerPlace(flows, elsewhere),
            "worker-3": WorkerPlace(flows, elsewhere, concurrency=1),
        }
        people = {name: Person(name, plan, elsewhere) for name in ("users", "service")}
        super().__init__(workers, people, is_remote=is_remote, skew=skew)
        self._plan = plan

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        assert isinstance(world, FleetWorld)
        _give_old_names(world.ledger)
        judge = Judge(world, OldNames(reader))
        broken = list(judge.all(world.explained))
        for wish in self._plan.wishes:
            broken += self._judged(wish, world, judge.kept)
        broken += self.of_others(judge.kept)
        if whole is not None:
            broken += self._compared(ends_of(judge.kept), whole)
        return broken

    def of_others(self, kept: Mapping[str, Kept]) -> Iterator[Broken]:
        """Yield what did not come of what others asked for who are there, too."""
        yield from ()

    def _judged(self, wish: Wish, world: FleetWorld, kept: Mapping[str, Kept]) -> Iterator[Broken]:
        """Yield what did not come of what was asked for."""
        run_id, notes = wish.run_id, world.notes
        if run_id not in kept:
            if wish.is_pinned or wish.removal is None:
                yield Broken("result", f"run {run_id!r} is gone, though no one was to remove it.")
            return
        if notes.get(f"remove {run_id}") == "removed":
            yield Broken("result", f"run {run_id!r} was removed, and is there again.")
        status = kept[run_id].row.status
        paused, until = notes.get(f"pause {run_id}"), notes.get(f"unpause {run_id}")
        if paused is not None and until is not None and not world.ledger.taken:
            for body in world.ledger.bodies[paused:until]:
                if body.run_id == run_id:
                    yield Broken("progress", f"{body.path} of {run_id!r} was called while it was paused.")
        if notes.get(f"cancel {run_id}") is Status.CANCELLED and status is not Status.CANCELLED:
            yield Broken("result", f"run {run_id!r} was cancelled, and is {status.value}.")
        if wish.cancels is None and status is not Status.COMPLETED:
            yield Broken("result", f"run {run_id!r} is {status.value}.")
        for one in (run_id, wish.fork_id):
            if one in kept:
                yield from self._answered(kept[one])

    def _answered(self, kept: Kept) -> Iterator[Broken]:
        """Yield waits that have another answer than they were given."""
        if kept.row.status is not Status.COMPLETED or kept.folded is None:
            return
        for opened in kept.waits:
            if opened.kind == "timer" or opened.settled_by is None:
                continue
            is_answered = opened.settled_by is SettledBy.ANSWER
            expected = answer_to(kept.row.run_id, opened.path) if is_answered else UNANSWERED
            found = kept.folded.space.peek("said", "")
            if found != expected:
                said = f"{opened.path} of {kept.row.run_id!r} got {expected}, and has {found}."
                yield Broken("waits", said)

    def _compared(self, found: Mapping[str, End], whole: Mapping[str, End]) -> Iterator[Broken]:
        """Yield in what runs came out otherwise than in an uninterrupted world."""
        for wish in self._plan.wishes:
            if wish.cancels is not None or wish.flow == "hurries":
                continue
            for run_id in (wish.run_id, wish.fork_id):
                if run_id in found and run_id in whole:
                    is_loose = run_id == wish.fork_id or wish.flow in ("orders", "fails")
                    ends = [found[run_id], whole[run_id]]
                    one, other = map(_loose, ends) if is_loose else ends
                    yield from compared({run_id: one}, {run_id: other})


class OldNames(Reader):
    """Reads what worlds leave behind, with the names that nodes had before a deploy."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def kept(self, world: World) -> dict[str, Kept]:
        found = self._reader.kept(world)
        for kept in found.values():
            kept.take(
                [
                    msgspec.structs.replace(record, steps=tuple(map(_old_step, record.steps)))
                    for record in kept.records
                ]
            )
        return found

    def differs(self, kept: Kept, live: RunContext) -> str:
        return self._reader.differs(kept, live)


def _give_old_names(ledger: Ledger) -> None:
    bodies = {id(body): _old_body(body) for body in ledger.bodies}
    ledger.bodies = list(bodies.values())
    ledger.ended = [ended._replace(body=bodies[id(ended.body)]) for ended in ledger.ended]


def _old_body(body: Body) -> Body:
    behind = tuple((OLD_NAMES.get(path, path), visit) for path, visit in body.behind)
    return body._replace(path=OLD_NAMES.get(body.path, body.path), behind=behind)


def _old_step(step: StepRecord) -> StepRecord:
    return msgspec.structs.replace(step, path=OLD_NAMES.get(step.path, step.path))


def _loose(end: End) -> End:
    """Return what a run came to without its steps: which failed, and how they are called in which version,
    depends on when it was taken up.
    """
    values = {name: value for name, value in end.values().items() if "/" not in name}
    return end._replace(steps=frozenset(), values=lambda: values)


def trial(seed: int, store: str) -> UsersTrial:
    """Return what happens in a fleet, as it follows from a seed."""
    return UsersTrial(script(seed, pauses=True), **place(seed, store))
