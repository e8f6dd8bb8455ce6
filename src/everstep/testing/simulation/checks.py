"""What must hold after every schedule, each with a name.

They are asked of what the ledger saw and what the store keeps; none of them knows what went wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from everstep.client.host import AsyncHost
from everstep.codec.records import glance
from everstep.engine.keyframe import snapshot
from everstep.engine.leases import SUSPECT
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.model.enums import Status, Trigger
from everstep.model.records import (
    ATTRIBUTE,
    INBOX,
    RESULT,
    CheckpointRecord,
    Counters,
    SerializedState,
    StepRecord,
    visit_path,
)
from everstep.model.waits import EVENT_KIND, HadEvent, SettledBy, SignalRow, WaitRow, WaitStatus
from everstep.ports.events import EventRow, EventStore
from everstep.ports.labels import LabelStore
from everstep.ports.store import CheckpointStore, RunFilter, RunRow, WaitFilter
from everstep.ports.system import Clock, Ids, System
from everstep.registry import Opened
from everstep.runtime.drive.attributes import attributes_in
from everstep.runtime.drive.context import RunContext
from everstep.runtime.integrity.chain_check import ChainBase, Examined, Walk
from everstep.runtime.integrity.keyframe_check import difference, value_difference
from everstep.runtime.integrity.run_check import Checking
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.system import RealSystem, SystemClock
from everstep.runtime.travel.explain import Explanation
from everstep.runtime.waits.inbox import all_signals
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.ledger import Body, Visit
from everstep.testing.simulation.snapshots import KnownWalk, Routes
from everstep.testing.simulation.world import World

T = TypeVar("T")
_DONE = (Status.COMPLETED, Status.CANCELLED)


class Broken(NamedTuple):
    """A promise that a schedule broke."""

    invariant: str
    """Which, by its name."""
    message: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.message}"


INVARIANTS: Mapping[str, str] = {
    "result": "the run ends with the result of an uninterrupted one",
    "no step twice": "a recorded step does not run again",
    "effects": "an effect is repeated only with the same inputs and the same key",
    "kept": "what an effect gave is kept before it is used, and no worker that lives drops it",
    "one owner": "an effect begins only in the process that has the run, as far as that can know",
    "attempts": "failed attempts count on across crashes",
    "waits": "a wait is settled once, and from its due time on only by the clock",
    "signals": "no signal is lost, none is taken twice, and what takes it is in the chain",
    "events": "an event settles each wait that is for it, and no node of a run has one twice",
    "budgets": "what was spent is on record, to the cent and once",
    "leases": "no lease is left behind",
    "fold": "the records fold to what the process had in memory",
    "durable": "a checkpoint that the store said it keeps is still there, unless its run was erased",
    "spool": "what waited on a machine is in the store in the end",
    "abandoned": "a run is given up only when it killed too many owners, one that drove nothing else",
    "verify": "verify finds nothing wrong",
    "store": "the store itself is whole",
    "explain": "explain told what the resume then did",
    "progress": "nothing that can start is left unstarted: every accepted run ends or waits",
    "no surprises": "no process ends with an error, and no thread",
}


def _is_over(step: StepRecord) -> bool:
    """True of a step that ends its visit; a wait also ends with what it cannot take."""
    return step.status in _DONE or step.status is Status.FAILED


class Kept:
    """What the store has of one run when all is over."""

    def __init__(self, row: RunRow, records: list[CheckpointRecord], folded: Rehydrated | None) -> None:
        self.row = row
        self.folded = folded
        self.take(records)
        self.flaws: list[str] = []
        self.waits: list[WaitRow] = []
        self.signals: list[SignalRow] = []
        self.had: list[HadEvent] = []
        """Which events its nodes had, as paths and ids."""

    def take(self, records: list[CheckpointRecord]) -> None:
        """Have these records."""
        self.records = records
        self.ids = {record.sequence: record.checkpoint_id for record in records}
        self.steps = [(record, step) for record in records for step in record.steps]
        """Each step with the record that has it."""


class Switched:
    """A store that is changed for that of another world."""

    def __init__(self, store: CheckpointStore) -> None:
        self.capabilities = store.capabilities
        self.turn_to(store)

    def turn_to(self, store: CheckpointStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


for _call in ("get", "inbox", "list", "run", "waits"):  # what is asked of every world, found sooner
    setattr(Switched, _call, property(attrgetter(f"_store.{_call}")))


class _AtOnce(RealSystem):
    """A system with one thread: what would be done on another is done at once."""

    @staticmethod
    async def to_thread(work: Callable[..., T], /, *arguments: Any) -> T:
        return work(*arguments)


class _ReadingHost(AsyncHost):
    _environ: Mapping[str, str] = {}

    def _system_of(self, clock: Clock | None, ids: Ids | None) -> System:
        return _AtOnce(clock, ids)


class _Rereading(Checking):
    """A check of a run that may begin with what the run had in the first world that was read."""

    def __init__(self, host: AsyncHost, routes: Routes, *, learns: bool) -> None:
        super().__init__(host._services, host._runs.reader)
        self._routes = routes
        self._learns = learns

    async def _own(self, row: RunRow, shared: list[tuple[Examined, int]]) -> Examined:
        found = await self._walk(row, shared, row.checkpoints)  # no process goes on with it meanwhile
        await self._check_row(found, shared)
        return found

    def _walk_along(self, row: RunRow, before: ChainBase, on_page: Callable[[int], object] | None) -> Walk:
        walk = KnownWalk(self._services, self._runs, row, before, self._blobs, on_page)
        return walk.along(self._routes, learns=self._learns)


class Reader:
    """Reads what worlds leave behind. One for many worlds, as a host costs more than what is read.

    The first one should be the uninterrupted world: others begin with records that it has, too.
    """

    def __init__(self) -> None:
        self._routes: Routes | None = None
        memory = MemoryStore(SystemClock(), MemoryData())
        self._switched = Switched(memory)
        self._store = cast(CheckpointStore, self._switched)
        opened = Opened(self._store, memory.artifacts, "memory:")
        self._host = _ReadingHost(opened, owns_loop=True, compress=False, encrypt=False)
        self._loop = asyncio.AbstractEventLoop()  # type: ignore[abstract]  # nothing is ever scheduled on it

    def kept(self, world: World) -> dict[str, Kept]:
        """Return all that a world's store has."""
        store, blobs, _ = world.store.plain()
        self._switched.turn_to(store)
        services = self._host._services
        if services.blobs is not None and blobs is not None:
            services.blobs = type(services.blobs)(blobs, services.codecs)
        learns, self._routes = self._routes is None, self._routes or {}
        return self._now(self._all(_Rereading(self._host, self._routes, learns=learns)))

    async def _all(self, checking: Checking) -> dict[str, Kept]:
        rows = await self._store.list(RunFilter(limit=10_000))
        return {row.run_id: await self._read(row, checking) for row in rows}

    async def _read(self, row: RunRow, checking: Checking) -> Kept:
        shared = await checking._ancestors(row)
        own = await checking._own(row, shared)
        kept = Kept(row, await self._records(row, own), own.folded)
        kept.flaws = [flaw.message for one, last in shared for flaw in one.up_to(last)]
        kept.flaws += [flaw.message for flaw in own.flaws]
        kept.waits = await self._waits(row) if own.waits is None else own.waits
        if own.folded is not None and ATTRIBUTE in own.folded.space.areas:
            labels = await cast(LabelStore, self._store).labels([row.run_id])
            there = labels[row.run_id].attributes if row.run_id in labels else ()
            if there != attributes_in(own.folded.space):
                kept.flaws.append(f"the row has other attributes than the records: {there}")
        if self._store.capabilities.has_inbox:
            kept.signals = await all_signals(self._store, row.run_id)
        if self._store.capabilities.has_events and any(wait.kind == EVENT_KIND for wait in kept.waits):
            kept.had = await cast(EventStore, self._store).had_events(row.run_id)
        return kept

    async def _records(self, row: RunRow, own: Examined) -> list[CheckpointRecord]:
        """Return what records say of steps, as they were read to be verified.

        Those of a fork begin with what it shares. Where something is wrong, they are read once more, and the
        first that says nothing is an error.
        """
        if row.forked_at is not None:
            return await self._host.history(row.run_id)
        if not own.flaws and own.records is not None:
            return own.records
        stored = await self._store.get(row.run_id)
        seen = [glance(it.body, row.run_id, it.checkpoint_id) for it in stored if not it.is_stub]
        return [it.record for it in seen]

    async def _waits(self, row: RunRow) -> list[WaitRow]:
        return await self._store.waits(WaitFilter(run_id=row.run_id, limit=10_000))

    def differs(self, kept: Kept, live: RunContext) -> str:
        """Return in what a run in memory differs from what its records fold to; empty if in nothing."""
        if kept.folded is None:
            return "everything: its records do not fold"
        live.space._blobs = self._host._services.blobs  # those of its process went with it
        values, _ = live.space.snapshot()
        is_alike = _are_alike(live.state, kept.folded.state)
        told = msgspec.structs.replace(
            kept.records[-1],
            keyframe=True,
            trigger=Trigger.STEP,
            state=SerializedState(values) if is_alike else snapshot(live.state, values),
            counters=Counters(live.state.total),
        )
        if is_alike:  # then a keyframe would say the same of both, but for their values
            return value_difference(kept.folded.space, told, self._host._services.values)
        return difference(kept.folded, told, self._host._services.values)

    def _now(self, asking: Coroutine[Any, Any, T]) -> T:
        """Return what a call gives that never waits."""
        asyncio._set_running_loop(self._loop)
        try:
            asking.send(None)
        except StopIteration as done:
            found: T = done.value
            return found
        finally:
            asyncio._set_running_loop(None)
        raise AssertionError("a store in memory does not wait")


_APART = frozenset({"books", "busy", "gone", "missing", "plan", "restless", "running", "waits"})
"""What is compared in another way, or is not where a run stands but how it is driven."""
_standing_of = attrgetter(
    *(name for kind in (Scope, RunState) for name in kind.__slots__ if name not in _APART)
)


def _are_alike(live: RunState, folded: RunState) -> bool:
    """True if two states of a run without open flows inside are the same, field by field.

    A quick way to find out what is so nearly always. If it is false they may still stand for the same.
    """
    if live.opened or folded.opened or live.plan.paths != folded.plan.paths:
        return False
    is_same: bool = _standing_of(live) == _standing_of(folded)
    return is_same and live.books.to_ledger() == folded.books.to_ledger()


class Told(NamedTuple):
    """What was explained of a run before a process took it up."""

    order: int
    tag: str
    explanation: Explanation


class Judge:
    """Checks one world that is over."""

    def __init__(self, world: World, reader: Reader) -> None:
        self.world = world
        self.ledger = world.ledger
        self.reader = reader
        self.kept = reader.kept(world)
        self._recorded = self._when_recorded()
        # A run that is over waits for no one, so a lease that could not be given back may run out.
        self._excused = {death.pid for death in self.ledger.deaths}
        self._excused |= {process.pid for process in world.processes if process.was_cut_off}

    def _when_recorded(self) -> dict[Visit, int]:
        """Return when each visit was recorded for good."""
        found: dict[Visit, int] = {}
        for run_id, kept in self.kept.items():
            first = kept.row.forked_at or 0
            for record, step in kept.steps:
                at = self.ledger.puts.get((run_id, record.sequence))
                if is_call(step.path) and (step.status is not Status.COMPLETED or _is_brief(step)):
                    continue  # another attempt at its node makes it again
                if step.status in _DONE and at is not None and record.sequence > first:
                    found.setdefault((run_id, step.path, step.visit), at)
        return found

    def all(self, explained: list[Told]) -> Iterator[Broken]:
        """Yield what is broken of all that can be told without knowing the flow."""
        ledger = self.ledger
        yield from self.surprises()
        yield from (Broken("store", flaw) for flaw in self.world.store.flaws())
        yield from self.durable()
        for kept in self.kept.values():
            yield from self.verified(kept)
            yield from self.leases(kept)
            yield from self.progress(kept)
            if kept.waits or ledger.settled:
                yield from self.waits(kept)
            if kept.signals or ledger.sent:
                yield from self.signals(kept)
            if kept.had or ledger.missed or ledger.published:
                yield from self.events(kept)
            yield from self.attempts(kept)
            yield from self.abandoned(kept)
        yield from self.steps_once()
        yield from self.effects()
        yield from self.effects_kept()
        yield from self.effects_dropped()
        yield from self.spooled()
        yield from self.owners()
        yield from self.budgets()
        yield from self.folds()
        for told in explained:
            yield from self.explained(told)

    def surprises(self) -> Iterator[Broken]:
        for trouble in self.world.troubles:
            yield Broken("no surprises", trouble)

    def durable(self) -> Iterator[Broken]:
        for run_id, sequence, checkpoint_id in self.ledger.accepted:
            kept = self.kept.get(run_id)
            if kept is None:
                if not self.ledger.has_erased:
                    yield Broken("durable", f"run {run_id!r} was kept at checkpoint {sequence}, and is gone.")
                continue
            first = kept.records[0].sequence if kept.records else 0  # what is older was trimmed
            if sequence >= first and kept.ids.get(sequence) != checkpoint_id:
                found = "another" if sequence in kept.ids else "none"
                yield Broken("durable", f"checkpoint {run_id}@{sequence} was kept, and now there is {found}.")

    def verified(self, kept: Kept) -> Iterator[Broken]:
        for flaw in kept.flaws:
            yield Broken("verify", flaw)

    def leases(self, kept: Kept) -> Iterator[Broken]:
        lease = kept.row.lease
        if lease is not None and (lease.process is None or lease.process.pid not in self._excused):
            yield Broken("leases", f"run {kept.row.run_id!r} is over, and {lease.owner} still has it.")

    def progress(self, kept: Kept) -> Iterator[Broken]:
        row = kept.row
        if row.status is Status.RUNNING and not row.is_paused:
            yield Broken("progress", f"run {row.run_id!r} is running, and no process drives it.")
        now = self.world.store.clock.now()
        if row.status is Status.HALTED:
            if not any(wait.status is not WaitStatus.CLOSED for wait in kept.waits):
                yield Broken("progress", f"run {row.run_id!r} is halted, and waits for nothing.")
            ripe = [
                wait.path for wait in kept.waits if wait.status is not WaitStatus.CLOSED and wait.is_ripe(now)
            ]
            if ripe and not row.is_paused:
                yield Broken(
                    "progress", f"run {row.run_id!r} could go on at {', '.join(ripe)}, and does not."
                )
        if self.world.store_is_empty_of_spools(row.run_id):
            return
        yield Broken("progress", f"checkpoints of run {row.run_id!r} still wait on a machine.")

    def signals(self, kept: Kept) -> Iterator[Broken]:
        run_id = kept.row.run_id
        sent = {signal_id for sent_to, signal_id in self.ledger.sent if sent_to == run_id}
        there = [signal.signal_id for signal in kept.signals]
        for signal_id in sorted(sent.difference(there)):
            yield Broken("signals", f"signal {signal_id!r} was sent to run {run_id!r}, and is gone.")
        if len(set(there)) != len(there) or [s.number for s in kept.signals] != [*range(1, len(there) + 1)]:
            yield Broken("signals", f"the signals of run {run_id!r} are numbered with gaps, or twice.")
        taking = [step for _, step in kept.steps if step.path == INBOX or (step.wait and _is_over(step))]
        taken = [signal for signal in kept.signals if signal.taken_at is not None]
        if taken and not taking:
            yield Broken("signals", f"run {run_id!r} has taken signals, and no step of it has.")
        for signal in taken:
            if signal.taken_at not in kept.ids:
                at = f"{run_id}@{signal.taken_at}"
                yield Broken("signals", f"signal {signal.signal_id!r} was taken by {at}, which is not there.")
        for signal in kept.signals:
            named = self.ledger.took.get((run_id, signal.signal_id), [])
            if len(named) > 1:
                said = f"signal {signal.signal_id!r} of run {run_id!r} is taken by checkpoints {named}."
                yield Broken("signals", said)
            elif named and signal.taken_at is None:
                said = (
                    f"signal {signal.signal_id!r} of run {run_id!r} is in checkpoint {named[0]}, and unread."
                )
                yield Broken("signals", said)

    def events(self, kept: Kept) -> Iterator[Broken]:
        run_id = kept.row.run_id
        for one in {one for one in kept.had if kept.had.count(one) > 1}:
            said = f"{one.path} of run {run_id!r} has event {one.event_id!r} twice."
            yield Broken("events", said)
        missed = [(event_id, wait) for event_id, wait in self.ledger.missed if wait.run_id == run_id]
        for event in self.ledger.published.values():
            if event.expires_at is not None:
                missed += [(event.event_id, wait) for wait in waits_for(event, kept.waits, kept.had)]
        for event_id, wait in missed:
            said = f"{wait.path} of run {run_id!r} is open, though event {event_id!r} is for it."
            yield Broken("events", said)

    def steps_once(self) -> Iterator[Broken]:
        recorded = self._recorded
        for body in self.ledger.bodies:
            at = recorded.get(body.place)
            if at is not None and body.order > at and body.is_sure:
                yield Broken("no step twice", f"{_name(body)} is recorded, and {body.tag} called it again.")

    def effects(self) -> Iterator[Broken]:
        made: dict[Visit, Body] = {}
        for body in self.ledger.bodies:
            if not body.is_effect:
                continue
            first = made.setdefault(body.place, body)
            if first.given != body.given:
                yield Broken("effects", f"{_name(body)} was made with {first.given}, then with {body.given}.")
            if first.key != body.key:
                yield Broken("effects", f"{_name(body)} had key {first.key}, then {body.key}.")
        for (run_id, path, visit), body in made.items():
            kept = self.kept.get(run_id)
            if kept is not None and kept.row.status is Status.COMPLETED and not self._is_known(kept, body):
                yield Broken(
                    "effects", f"{path} visit {visit} was made, and run {run_id!r} knows nothing of it."
                )

    def _is_known(self, kept: Kept, body: Body) -> bool:
        """True if a record has the effect, or the atomic flow around it."""
        paths = {(step.path, step.visit) for _, step in kept.steps}
        if (body.path, body.visit) in paths:
            return True
        outer = body.path
        while "/" in outer or "#" in outer:
            outer = max(outer.rpartition("/")[0], outer.rpartition("#")[0], key=len)
            if any(path == outer or path.partition("@")[0] == outer.partition("@")[0] for path, _ in paths):
                return True
        return False

    def effects_kept(self) -> Iterator[Broken]:
        spooled = {run_id for run_id, _ in self.ledger.spooled}
        ended = [
            one
            for one in self.ledger.ended
            if one.body.is_effect and one.body.run_id not in spooled and not is_call(one.body.path)
        ]
        for body in self.ledger.bodies if ended else ():
            for path, visit in body.behind:
                made = [
                    one.body
                    for one in ended
                    if one.order < body.order
                    and one.body.tag == body.tag
                    and one.body.run_id == body.run_id
                    and (one.body.path == path or one.body.path.startswith(f"{path}/"))
                ]
                at = self._recorded.get((body.run_id, path, visit))
                if made and body.run_id in self.kept and (at is None or at > body.order):
                    said = f"{_name(body)} was called before {path}, whose value it takes, was kept."
                    yield Broken("kept", said)

    def effects_dropped(self) -> Iterator[Broken]:
        ends = {id(one.body): one.order for one in self.ledger.ended if not one.is_left}
        made: dict[tuple[Visit, str, int], Body] = {}
        for body in self.ledger.bodies:
            if not (body.is_effect and body.endures):
                continue
            which = (body.place, body.tag, body.attempt)
            first = made.setdefault(which, body)
            ended = ends.get(id(first))
            if first is body or ended is None or ended > body.order:
                continue
            claims = [
                c for c in self.ledger.claims if c.run_id == body.run_id and ended < c.order < body.order
            ]
            ttl = self.ledger.driven[body.tag, body.run_id].flow.durability.lease_ttl
            least = round(ttl.total_seconds() * SECOND)
            if claims and all(c.tag == body.tag and c.since is not None and c.since < least for c in claims):
                yield Broken("kept", f"{body.tag} had made {_name(body)}, dropped that, and makes it again.")

    def spooled(self) -> Iterator[Broken]:
        found = {id for kept in self.kept.values() for id in kept.ids.values()}
        for run_id, checkpoint_id in self.ledger.spooled:
            if checkpoint_id not in found:
                yield Broken("spool", f"checkpoint {checkpoint_id} of run {run_id!r} was kept, and is gone.")

    def abandoned(self, kept: Kept) -> Iterator[Broken]:
        run_id = kept.row.run_id
        if kept.row.status is Status.ABANDONED and all(d.driving - {run_id} for d in self.ledger.deaths):
            yield Broken("abandoned", f"run {run_id!r} was given up, and others were driven at each death.")
        for record in kept.records:
            if record.trigger is Trigger.ABANDONED:
                yield from self._given_up(run_id, record.sequence)

    def _given_up(self, run_id: str, sequence: int) -> Iterator[Broken]:
        puts = self.ledger.puts
        since, until = puts.get((run_id, sequence - 1), 0), puts.get((run_id, sequence), self.ledger.order)
        owners = sum(c.run_id == run_id and since < c.order < until for c in self.ledger.claims)
        drives = [live for (_, driven), live in self.ledger.driven.items() if driven == run_id]
        if owners <= min((live.flow.durability.max_resume_attempts for live in drives), default=SUSPECT):
            said = f"run {run_id!r} was given up after {owners} owners that wrote nothing."
            yield Broken("abandoned", said)

    def owners(self) -> Iterator[Broken]:
        for body in self.ledger.bodies:
            if body.beside is not None and body.is_sure:
                yield Broken(
                    "one owner", f"{body.tag} makes {_name(body)}, and {body.beside} is still at it."
                )
            if body.owner is not None and body.is_sure:
                yield Broken(
                    "one owner", f"{body.tag} makes {_name(body)}, though {body.owner} has the run by now."
                )

    def attempts(self, kept: Kept) -> Iterator[Broken]:
        failed: dict[tuple[str, int], int] = {}
        first = kept.row.forked_at or 0  # a fork begins anew with what it runs again
        for record in kept.records:
            if record.trigger is Trigger.ABANDONED:
                failed.clear()  # who reopens a run that was given up gives its nodes all their attempts again
            for step in record.steps if record.sequence > first else ():
                yield from self._attempt(step, failed)

    def _attempt(self, step: StepRecord, failed: dict[tuple[str, int], int]) -> Iterator[Broken]:
        place = (step.path, step.visit)
        if step.error is not None and failed and not is_call(step.path):
            inside = f"{visit_path(*place)}/{RESULT}"  # the next attempt makes anew what failed inside
            for call in [call for call in failed if call[0].startswith(inside)]:
                del failed[call]
        if step.status is Status.RETRYING and step.error is not None:  # not one that was asked for
            if step.attempts <= failed.get(place, 0):
                yield Broken("attempts", f"attempt {step.attempts} of {step.path} failed twice.")
            failed[place] = step.attempts
        elif step.status is Status.COMPLETED and place in failed and step.attempts <= failed[place]:
            said = f"{step.path} succeeded at attempt {step.attempts}, after {failed[place]} had failed."
            yield Broken("attempts", said)

    def waits(self, kept: Kept) -> Iterator[Broken]:
        for wait in kept.waits:
            if wait.settled_by is not SettledBy.ANSWER or wait.due_at is None or wait.settled_at is None:
                continue
            if wait.settled_at >= wait.due_at and not self.world.clocks_were_moved:
                said = f"{wait.path} was answered at {wait.settled_at}, though it was due at {wait.due_at}."
                yield Broken("waits", said)
        settled: dict[str, int] = {}
        for wait_id in self.ledger.settled:
            settled[wait_id] = settled.get(wait_id, 0) + 1
        for wait_id, count in settled.items():
            if count > 1:
                yield Broken("waits", f"wait {wait_id} was settled {count} times.")

    def budgets(self) -> Iterator[Broken]:
        begun: dict[tuple[str, str], Decimal] = {}
        counted: dict[tuple[str, str], Decimal] = {}
        for spent in self.ledger.spends:
            into = counted if spent.is_counted else begun
            for name, amount in spent.amounts.items():
                into[spent.run_id, name] = into.get((spent.run_id, name), Decimal(0)) + amount
        for (run_id, name), most in begun.items():
            kept = self.kept.get(run_id)
            if kept is None or kept.folded is None:
                continue
            found, least = (
                kept.folded.state.books.spent.get(name, Decimal(0)),
                counted.get((run_id, name), Decimal(0)),
            )
            if not least <= found <= most:
                said = (
                    f"run {run_id!r} has spent {found} {name} on record, of {least} counted and {most} begun."
                )
                yield Broken("budgets", said)

    def folds(self) -> Iterator[Broken]:
        for (tag, run_id), live in self.ledger.driven.items():
            kept = self.kept.get(run_id)
            head = live.journal.head
            if kept is None or head.sequence != kept.row.checkpoints or live.journal.steps:
                continue  # another went on since, or it did not come to write what it had done
            if kept.ids.get(head.sequence) != head.checkpoint_id:
                continue  # another went on, and what waited on this machine became a fork
            where = self.reader.differs(kept, live)
            if where:
                yield Broken("fold", f"run {run_id!r} as {tag} had it differs from its records in {where}.")

    def explained(self, told: Told) -> Iterator[Broken]:
        said = told.explanation
        bodies = [
            b
            for b in self.ledger.bodies
            if b.tag == told.tag and b.run_id == said.run_id and b.order > told.order
        ]
        again = {(b.path, b.visit) for b in bodies}
        for step in said.recorded:
            for visit in range(1, step.visits + 1):
                if step.of_items is None and (step.path, visit) in again and step.path not in said.remade:
                    yield Broken("explain", f"{step.path} was said to be skipped, and {told.tag} called it.")
        # Once a run was given back, by who made the effect or a later owner, its records cannot tell what was
        # begun before.
        killed = {process.tag for process in self.world.processes if process.was_killed}
        given_back = max((order for _, order in self.ledger.released if order < told.order), default=0)
        before = {
            b.place
            for b in self.ledger.bodies
            if given_back < b.order < told.order and b.is_effect and b.tag in killed
        }
        expected = {step.path for step in (*said.starts, *said.pending) if step.may_repeat}
        for body in bodies:
            if body.is_effect and body.place in before and body.path not in expected and said.starts:
                planned = {step.path for step in (*said.starts, *said.pending)}
                if body.path in planned and not any(
                    s.asks for s in (*said.starts, *said.pending) if s.path == body.path
                ):
                    yield Broken("explain", f"{body.path} was made twice, and was not said to be able to.")


def waits_for(event: EventRow, waits: Iterable[WaitRow], had: Collection[HadEvent]) -> Iterator[WaitRow]:
    """Yield the open waits that an event is for, unless their nodes had it."""
    for wait in waits:
        is_for_it = wait.status is WaitStatus.OPEN and wait.topic is not None and event.meets(wait.topic)
        if is_for_it and event.had_by(wait.path) not in had:
            yield wait


def is_call(path: str) -> bool:
    """True of a durable call inside a node."""
    return f"/{RESULT}" in path


def _is_brief(step: StepRecord) -> bool:
    return step.unit is not None and step.unit.is_brief


def _name(body: Body) -> str:
    visit = f" (visit {body.visit})" if body.visit > 1 else ""
    return f"{body.path}{visit} of run {body.run_id!r}"
