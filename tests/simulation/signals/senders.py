"""Users of a simulated fleet who send signals and publish events at random times; and what comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from everstep.client.views import RunInfo, WaitInfo
from everstep.errors import LeaseConflict, RunEnded, RunNotFound, StoreError
from everstep.model.enums import Status
from everstep.model.waits import EVENT_KIND, SIGNAL_KIND
from everstep.ports.events import EventRow, fields_of
from everstep.ports.store import WaitFilter
from everstep.stores.memory import MemoryStore
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader, waits_for
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.process import BEGAN
from everstep.testing.simulation.store import SharedStore, finished
from everstep.testing.simulation.trial import End
from everstep.testing.simulation.world import Here, World
from tests.simulation.signals.flows import FLOWS, HAD_AT_ONE_NODE, NAMES, TOLD, inputs_of
from tests.simulation.stores import place
from tests.simulation.users.people import LOOK, Visit, Wish
from tests.simulation.users.people import Script as FleetScript

PEOPLE = ("users", "service")
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Send:
    """A signal that a person sends to a run, once or again under the same id."""

    at: float
    by: str
    number: int
    """How many this person has sent before it, and one."""
    run_id: str
    name: str
    times: int

    @property
    def id(self) -> str:
        """What it is known by, and says."""
        return f"{self.by}:{self.number}"


@dataclass(frozen=True)
class Publish:
    """An event that a person publishes, once or again under the same id."""

    at: float
    by: str
    id: str
    order: int
    is_kept: bool
    times: int

    def row(self) -> EventRow:
        """Return it as far as waits are concerned."""
        return EventRow(
            event_id=self.id,
            name="paid",
            value=b"",
            fields=fields_of({"order": self.order, "id": self.id}),
            published_at=BEGAN,
            expires_at=BEGAN + DAY if self.is_kept else None,
        )


@dataclass(frozen=True)
class Script:
    """What happens in a fleet besides faults."""

    wishes: tuple[Wish, ...]
    sends: tuple[Send, ...]
    publishes: tuple[Publish, ...]


def script(seed: int) -> Script:
    """Return what happens, as it follows from a seed."""
    chance = Random(seed)
    wishes = tuple(_wish(chance, number) for number in range(chance.randint(2, 4)))
    sends: list[Send] = []
    publishes: list[Publish] = []
    for by in PEOPLE:
        times = sorted(round(chance.uniform(0, 9), 3) for _ in range(chance.randint(2, 6)))
        for number, at in enumerate(times, 1):
            wish = chance.choice(wishes)
            again = chance.choice([1, 1, 2])
            if wish.flow in NAMES:
                run_id = chance.choice([wish.run_id, wish.run_id, wish.fork_id])
                name = chance.choice(NAMES[wish.flow])
                sends.append(Send(at, by, number, run_id, name, again))
            else:
                is_kept = chance.random() < 0.5
                publishes.append(Publish(at, by, f"{by}:{number}", wish.x, is_kept, again))
    return Script(wishes, tuple(sends), tuple(publishes))


def _wish(chance: Random, number: int) -> Wish:
    starts = round(chance.uniform(0, 3), 3)
    then = partial(lambda: round(starts + 0.001 + chance.expovariate(0.5), 3))
    is_cancelled, is_forked = chance.random() < 0.15, chance.random() < 0.25
    return Wish(
        run_id=f"R{number}",
        flow=chance.choice(list(FLOWS)),
        x=chance.randint(0, 2),  # so that some runs wait for the same events
        by=chance.choice(PEOPLE),
        starts=starts,
        answers=chance.choice([3, 7.9]),
        cancels=then() if is_cancelled else None,
        forks=then() if is_forked else None,
    )


class Person:
    """Users at their terminal, or the service that acts for others: a program of its own."""

    def __init__(self, name: str, plan: Script) -> None:
        self._name = name
        self._plan = plan
        self._mine = [wish for wish in plan.wishes if wish.by == name]

    def __call__(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            visit = Sender(world, here, host, FleetScript((), None, None, 0))
            for at, label, act in sorted(self._agenda(visit), key=lambda it: it[:2]):
                here.sleep(max(0.0, at - world.hub.now / SECOND))
                visit.once(label, act)
            visit.care_for(self._mine)

    def _agenda(self, visit: Sender) -> Iterator[tuple[float, str, Any]]:
        for wish in self._mine:
            yield wish.starts, f"start {wish.run_id}", partial(visit.start, wish)
            if wish.cancels is not None:
                yield wish.cancels, f"cancel {wish.run_id}", partial(visit.host.cancel, wish.run_id)
            if wish.forks is not None:
                yield wish.forks, f"fork {wish.run_id}", partial(visit.fork, wish)
        for send in self._plan.sends:
            if send.by == self._name:
                yield send.at, f"send {send.id}", partial(visit.send, send)
        for event in self._plan.publishes:
            if event.by == self._name:
                yield event.at, f"publish {event.id}", partial(visit.publish, event)


class Sender(Visit):
    """One life of a person who sends and publishes."""

    def start(self, wish: Wish) -> RunInfo:
        return self.host.start(FLOWS[wish.flow], inputs_of(wish.flow, wish.x), run_id=wish.run_id)

    def send(self, send: Send) -> None:
        """Send a signal. A run that is not there, or has ended, takes none."""
        for again in range(send.times):
            try:
                sent = self.host.send(send.run_id, send.name, send.id, id=send.id)
            except (RunNotFound, RunEnded):
                return
            if again and sent.is_new:
                self.world.troubles.append(f"signal {send.id!r} was sent again, and was new.")

    def publish(self, event: Publish) -> None:
        """Publish an event, and see whether what waited for it before still does."""
        row = event.row()
        for _ in range(event.times):
            before = set(self._waiting_for(row))
            keep = DAY if event.is_kept else None
            self.host.publish("paid", {"order": event.order, "id": event.id}, id=event.id, keep=keep)
            left = self._waiting_for(row)
            missed = left if event.is_kept else {key: left[key] for key in left.keys() & before}
            self.world.ledger.missed += [(event.id, wait) for wait in missed.values()]
        self.world.ledger.published[event.id] = row

    def _waiting_for(self, event: EventRow) -> dict[str, Any]:
        """Return the open waits for an event by their ids, as the store has them."""
        shared = self.world.store
        assert isinstance(shared, SharedStore)
        store = MemoryStore(shared.clock, shared.data)
        found = {}
        for wait in finished(store.waits, (WaitFilter(kind=EVENT_KIND, limit=10_000),), {}):
            had = finished(store.had_events, (wait.run_id,), {})
            found.update({one.wait_id: one for one in waits_for(event, [wait], had)})
        return found

    def _answer(self, opened: WaitInfo, wish: Wish) -> None:
        """See to it that what is waited for comes in the end."""
        seen = self._notes.setdefault(f"saw {opened.id}", self.world.hub.now)
        if self.world.hub.now < seen + round((wish.answers - LOOK) * SECOND):
            return
        care = f"care:{opened.id}"
        try:
            if opened.kind == SIGNAL_KIND:
                self.host.send(opened.run_id, opened.listens_for, care, id=care)
            elif opened.kind == EVENT_KIND:
                order = wish.x + 50 * (opened.run_id == wish.fork_id)
                self.publish(Publish(0, wish.by, care, order, is_kept=False, times=1))
        except RunEnded:
            return
        except (StoreError, LeaseConflict) as error:
            self.world.ledger.tell(f"{self.here.process.tag} hears: {error}")


class SignalTrial(FleetTrial):
    """Three workers on two machines, and people who follow a script. A local store is on one machine."""

    def __init__(self, plan: Script, *, is_remote: bool = False, skew: float = 0.0) -> None:
        flows, elsewhere = list(FLOWS.values()), "m2" if is_remote else "m1"
        workers = {
            "worker-1": WorkerPlace(flows, "m1", concurrency=2),
            "worker-2": WorkerPlace(flows, elsewhere),
            "worker-3": WorkerPlace(flows, elsewhere, concurrency=1),
        }
        people = {name: Person(name, plan) for name in PEOPLE}
        super().__init__(workers, people, is_remote=is_remote, skew=skew)
        self._plan = plan

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        assert isinstance(world, FleetWorld)
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        for wish in self._plan.wishes:
            for run_id in (wish.run_id, wish.fork_id):
                if run_id in judge.kept:
                    broken += self.judged(wish, judge.kept[run_id])
        return broken

    def judged(self, wish: Wish, kept: Kept) -> Iterator[Broken]:
        """Yield what did not come of what was asked for."""
        run_id, status = kept.row.run_id, kept.row.status
        yield from _in_order(kept)
        if status is not Status.COMPLETED:
            if wish.cancels is None or run_id == wish.fork_id:
                yield Broken("result", f"run {run_id!r} is {status.value}.")
            return
        yield from _taken(wish.flow, kept)
        if wish.flow == HAD_AT_ONE_NODE:
            for event_id, count in Counter(_value(kept, "paid_by")).items():
                if count > 1:
                    yield Broken("events", f"a node of run {run_id!r} has event {event_id!r} {count} times.")


def _in_order(kept: Kept) -> Iterator[Broken]:
    """Yield who sent signals that came in another order."""
    for by in PEOPLE:
        ids = [signal.signal_id for signal in kept.signals if signal.signal_id.startswith(f"{by}:")]
        numbers = [int(one.partition(":")[2]) for one in ids]
        if numbers != sorted(numbers):
            yield Broken("signals", f"{by} sent {sorted(numbers)} to {kept.row.run_id!r}: {numbers} came.")


def _taken(flow: str, kept: Kept) -> Iterator[Broken]:
    """Yield signals that a completed run has otherwise than its inbox says: lost, twice, or out of order."""
    run_id, sent = kept.row.run_id, {signal.signal_id: signal for signal in kept.signals}
    told = [[one for one in _value(kept, name) if one in sent] for name in TOLD.get(flow, ())]
    counts = Counter(one for values in told for one in values)
    for signal_id, signal in sent.items():
        expected = int(signal.taken_at is not None and signal.name in NAMES[flow])
        if counts[signal_id] != expected:
            said = f"signal {signal_id!r} is {counts[signal_id]} times in run {run_id!r}, not {expected}."
            yield Broken("signals", said)
    for values in told:
        for name in NAMES[flow]:
            numbers = [sent[one].number for one in values if sent[one].name == name]
            if numbers != sorted(numbers):
                yield Broken("signals", f"signals {name!r} of run {run_id!r} were taken as {numbers}.")


def _value(kept: Kept, name: str) -> list[str]:
    assert kept.folded is not None
    found: list[str] = kept.folded.space.peek(name, "")
    return found


def trial(seed: int, store: str) -> SignalTrial:
    """Return what happens in a fleet, as it follows from a seed."""
    return SignalTrial(script(seed), **place(seed, store))
