"""What must hold after every schedule, each with a name.

They are asked of what the ledger saw and what the store keeps; none of them knows what went wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from everstep.client.host import AsyncHost
from everstep.codec.records import glance
from everstep.engine.keyframe import snapshot
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord, Counters, StepRecord
from everstep.model.waits import SettledBy, WaitRow, WaitStatus
from everstep.ports.store import CheckpointStore, RunFilter, RunRow, WaitFilter
from everstep.ports.system import Clock, Ids, System
from everstep.registry import Opened
from everstep.runtime.drive.context import RunContext
from everstep.runtime.integrity.keyframe_check import difference
from everstep.runtime.integrity.run_check import Checking
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.system import RealSystem, SystemClock
from everstep.runtime.travel.explain import Explanation
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.ledger import Body, Visit
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
    "budgets": "what was spent is on record, to the cent and once",
    "leases": "no lease is left behind",
    "fold": "the records fold to what the process had in memory",
    "durable": "a checkpoint that the store said it keeps is still there, unless its run was erased",
    "spool": "what waited on a machine is in the store in the end",
    "abandoned": "a run is given up only if an owner died that drove nothing else",
    "verify": "verify finds nothing wrong",
    "store": "the store itself is whole",
    "explain": "explain told what the resume then did",
    "progress": "nothing that can start is left unstarted: every accepted run ends or waits",
    "no surprises": "no process ends with an error, and no thread",
}


class Kept:
    """What the store has of one run when all is over."""

    def __init__(self, row: RunRow, records: list[CheckpointRecord], folded: Rehydrated | None) -> None:
        self.row = row
        self.records = records
        self.folded = folded
        self.ids = {record.sequence: record.checkpoint_id for record in records}
        self.flaws: list[str] = []
        self.waits: list[WaitRow] = []

    def steps(self) -> Iterator[tuple[CheckpointRecord, StepRecord]]:
        """Yield each step with the record that has it."""
        for record in self.records:
            for step in record.steps:
                yield record, step


class Switched:
    """A store that is changed for that of another world."""

    def __init__(self, store: CheckpointStore) -> None:
        self.capabilities = store.capabilities
        self.turn_to(store)

    def turn_to(self, store: CheckpointStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _AtOnce(RealSystem):
    """A system with one thread: what would be done on another is done at once."""

    @staticmethod
    async def to_thread(work: Callable[..., T], /, *arguments: Any) -> T:
        return work(*arguments)


class _ReadingHost(AsyncHost):
    def _system_of(self, clock: Clock | None, ids: Ids | None) -> System:
        return _AtOnce(clock, ids)


class Reader:
    """Reads what worlds leave behind. One for many worlds, as a host costs more than what is read."""

    def __init__(self) -> None:
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
        return {row.run_id: self._read(row) for row in self._now(self._store.list(RunFilter(limit=10_000)))}

    def _read(self, row: RunRow) -> Kept:
        services, runs = self._host._services, self._host._runs
        checking = Checking(services, runs.reader, blobs=True)
        shared = self._now(checking._ancestors(row))
        own = self._now(checking._own(row, shared))
        kept = Kept(row, self._records(row), own.folded)
        kept.flaws = [flaw.message for one, last in shared for flaw in one.up_to(last)]
        kept.flaws += [flaw.message for flaw in own.flaws]
        kept.waits = self._now(self._store.waits(WaitFilter(run_id=row.run_id, limit=10_000)))
        return kept

    def _records(self, row: RunRow) -> list[CheckpointRecord]:
        """Return what records say of steps. Those of a fork begin with what it shares."""
        if row.forked_at is not None:
            return self._now(self._host.history(row.run_id))
        stored = self._now(self._store.get(row.run_id))
        seen = [glance(it.body, row.run_id, it.checkpoint_id) for it in stored if not it.is_stub]
        return [it.record for it in seen]

    def differs(self, kept: Kept, live: RunContext) -> str:
        """Return in what a run in memory differs from what its records fold to; empty if in nothing."""
        if kept.folded is None:
            return "everything: its records do not fold"
        live.space._blobs = self._host._services.blobs  # those of its process went with it
        values, _ = live.space.snapshot()
        told = msgspec.structs.replace(
            kept.records[-1],
            keyframe=True,
            trigger=Trigger.STEP,
            state=snapshot(live.state, values),
            counters=Counters(live.state.total),
        )
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
            for record, step in kept.steps():
                at = self.ledger.puts.get((run_id, record.sequence))
                if step.status in _DONE and at is not None and record.sequence > first:
                    found.setdefault((run_id, step.path, step.visit), at)
        return found

    def all(self, explained: list[Told]) -> Iterator[Broken]:
        """Yield what is broken of all that can be told without knowing the flow."""
        yield from self.surprises()
        yield from (Broken("store", flaw) for flaw in self.world.store.flaws())
        yield from self.durable()
        for kept in self.kept.values():
            yield from self.verified(kept)
            yield from self.leases(kept)
            yield from self.progress(kept)
            yield from self.waits(kept)
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
        if row.status is Status.RUNNING:
            yield Broken("progress", f"run {row.run_id!r} is running, and no process drives it.")
        now = self.world.store.clock.now()
        if row.status is Status.HALTED:
            if not any(wait.status is not WaitStatus.CLOSED for wait in kept.waits):
                yield Broken("progress", f"run {row.run_id!r} is halted, and waits for nothing.")
            ripe = [
                wait.path for wait in kept.waits if wait.status is not WaitStatus.CLOSED and wait.is_ripe(now)
            ]
            if ripe:
                yield Broken(
                    "progress", f"run {row.run_id!r} could go on at {', '.join(ripe)}, and does not."
                )
        if self.world.store_is_empty_of_spools(row.run_id):
            return
        yield Broken("progress", f"checkpoints of run {row.run_id!r} still wait on a machine.")

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
        paths = {(step.path, step.visit) for _, step in kept.steps()}
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
        ended = [one for one in self.ledger.ended if one.body.is_effect and one.body.run_id not in spooled]
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
        ends = {id(one.body): one.order for one in self.ledger.ended}
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
        for record, step in kept.steps():
            if record.sequence <= first:
                continue
            place = (step.path, step.visit)
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
            if kept is None or live.journal.head.sequence != kept.row.checkpoints or live.journal.steps:
                continue  # another went on since, or it did not come to write what it had done
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


def _name(body: Body) -> str:
    visit = f" (visit {body.visit})" if body.visit > 1 else ""
    return f"{body.path}{visit} of run {body.run_id!r}"
