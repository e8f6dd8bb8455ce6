"""Faults that are planted in the running code, one at a time. No trial and no invariant knows of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import msgspec

from everstep.engine import keyframe, leases
from everstep.errors import StoreNotWritable
from everstep.graph.author.node import Node
from everstep.graph.author.subflow import Subflow
from everstep.graph.check import structure
from everstep.model.enums import Status
from everstep.model.waits import WaitStatus
from everstep.ports.store import Verdict
from everstep.runtime import runs
from everstep.runtime.drive import chain_writer, loop, midway, prepare
from everstep.runtime.outage import outbox
from everstep.runtime.outcome import Outcome
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.workers import worker
from everstep.runtime.workers.lease_renewal import LeaseKeeper
from everstep.stores.objects import drafts, lines


@contextmanager
def instead(owner: Any, name: str, other: Callable[[Any], Any]) -> Iterator[None]:
    """Put something in the place of an attribute; `other` makes it of what was there."""
    before = vars(owner)[name]
    setattr(owner, name, other(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def all_of(*plants: AbstractContextManager[None]) -> Iterator[None]:
    """Plant several things that make one fault."""
    if not plants:
        yield
        return
    with plants[0], all_of(*plants[1:]):
        yield


async def _nothing(*_: Any, **__: Any) -> None:
    return


# -- chosen ones ------------------------------------------------------------------------------------------


def unfenced() -> AbstractContextManager[None]:
    """A put is taken from an owner whose run another has claimed, as long as that has written nothing yet."""

    def careless(judge: Any) -> Any:
        def judged(commit: Any, *, epoch: int, **how: Any) -> Verdict | None:
            found: Verdict | None = judge(commit, epoch=commit.epoch, **how)
            return found

        return judged

    return all_of(instead(drafts, "judge", careless), instead(lines, "judge", careless))


def unannounced() -> AbstractContextManager[None]:
    """An effect is called before the key that a user's function made for it is durable."""

    def hasty(secure: Any) -> Any:
        async def secured(self: Any, calls: Any) -> None:
            self._preparer.has_announced = False
            await secure(self, calls)

        return secured

    return instead(loop.Drive, "_secure", hasty)


def shifting_key() -> AbstractContextManager[None]:
    """The key of an effect is another one once its run was resumed."""

    def shifting(find_key: Any) -> Any:
        async def found(self: Any, call: Any) -> None:
            await find_key(self, call)
            if call.key is not None and self._taken_up:
                call.key += "-resumed"

        return found

    return instead(prepare.Preparer, "_find_key", shifting)


def answered_twice() -> AbstractContextManager[None]:
    """A wait that has its answer takes another one."""

    def forgetful(settled: Any) -> Any:
        def again(wait: Any, *how: Any) -> Any:
            if wait is not None and wait.status is WaitStatus.SETTLED:
                wait = msgspec.structs.replace(wait, status=WaitStatus.OPEN)
            return settled(wait, *how)

        return again

    return instead(drafts, "settled", forgetful)


def forgotten_attempts() -> AbstractContextManager[None]:
    """A resume begins with a full budget of attempts."""

    def forgetful(fold: Any) -> Any:
        def folded(self: Any, *given: Any, **how: Any) -> None:
            fold(self, *given, **how)
            for scope in self.state.scopes():
                scope.attempts = [0] * len(scope.attempts)

        return folded

    return instead(Rehydrated, "fold", forgetful)


def unrenewed() -> AbstractContextManager[None]:
    """Leases are claimed and never renewed."""
    return instead(LeaseKeeper, "_renew", lambda _: lambda self, some, ttl: _put_off(some, ttl))


def _put_off(some: Any, ttl: Any) -> None:
    for held in some:
        held.due += ttl.total_seconds() / 2


def waits_without_rows() -> AbstractContextManager[None]:
    """A step that waits is written without the row of its wait."""

    def lossy(seal: Any) -> Any:
        def sealed(self: Any, *given: Any) -> Any:
            commit, digest = seal(self, *given)
            return msgspec.structs.replace(commit, waits=()), digest

        return sealed

    return instead(chain_writer.Journal, "_seal", lossy)


def rows_without_steps() -> AbstractContextManager[None]:
    """The row of a wait is written without the step that waits."""

    def lossy(seal: Any) -> Any:
        def sealed(self: Any, record: Any, *given: Any) -> Any:
            steps = tuple(step for step in record.steps if step.status is not Status.HALTED)
            return seal(self, msgspec.structs.replace(record, steps=steps), *given)

        return sealed

    return instead(chain_writer.Journal, "_seal", lossy)


def dropped_spool() -> AbstractContextManager[None]:
    """What waits on a machine is removed there before the store has it."""

    def hasty(drain: Any) -> Any:
        async def drained(services: Any, run_id: str, **how: Any) -> Any:
            waiting = services.spool.of(run_id)
            services.spool.drop(run_id, [commit.checkpoint_id for commit in waiting])
            for commit in waiting:
                await services.store.put([commit])
            return outbox.Drained(run_id, len(waiting))

        return drained

    return instead(outbox, "drain", hasty)


def spent_twice() -> AbstractContextManager[None]:
    """What a node spends is recorded twice."""

    def generous(record: Any) -> Any:
        def recorded(self: Any, call: Any, amounts: Any) -> Any:
            record(self, call, amounts)
            return record(self, call, amounts)

        return recorded

    return instead(midway.Midway, "_record_spent", generous)


def lossy_keyframe() -> AbstractContextManager[None]:
    """A keyframe tells only of nodes that are due, and leaves out how often the others were visited."""

    def lossy(nodes_of: Any) -> Any:
        def found(scope: Any) -> Any:
            return {path: node for path, node in nodes_of(scope).items() if node.is_due}

        return found

    return instead(keyframe, "_nodes", lossy)


def given_up_too_soon() -> AbstractContextManager[None]:
    """A run is given up when two owners in a row wrote nothing, however many its flow allows."""
    return instead(runs, "is_hopeless", lambda _: lambda lease, attempts: lease.takeovers >= 2)


# -- findings of the trial, undone ------------------------------------------------------------------------


def off_drives_recorded_runs() -> AbstractContextManager[None]:
    """A1: a flow that keeps nothing may drive a run that is recorded."""
    return instead(runs, "check_kept", lambda _: lambda row, flow: None)


def atomic_is_plain() -> AbstractContextManager[None]:
    """A2: an atomic flow counts as an effect only if it says so itself, whatever is inside."""
    return instead(Subflow, "_weigh", lambda _: Node._weigh)


def atomic_takes_anything() -> AbstractContextManager[None]:
    """A3: a node with a key of its own making is let into an atomic flow, where that is not kept."""
    return instead(structure, "_refusals", lambda _: lambda node, place: [])


def recursing_waits() -> AbstractContextManager[None]:
    """A5: a run whose wait is over already is taken up inside the drive that halted."""

    async def driven(self: Any, flow: Any, ready: Any, tried: frozenset[str] = frozenset()) -> Any:
        outcome = await self._drive_once(flow, ready)
        return await halted(self, flow, ready, outcome, tried)

    async def halted(self: Any, flow: Any, ready: Any, outcome: Any, tried: frozenset[str]) -> Any:
        ripe = {row.wait_id for row in outcome.waits if row.is_ripe(self._services.time.now())}
        if outcome.status is not Status.HALTED or outcome.spooled or ripe <= tried:
            return outcome
        return await gone_on(self, flow, ready, outcome, tried | ripe)

    async def gone_on(self: Any, flow: Any, ready: Any, outcome: Any, tried: frozenset[str]) -> Any:
        row = await self.reader.row(outcome.run_id)
        claimed = await self._claimed(row, flow, reopens=False)
        return claimed if isinstance(claimed, Outcome) else await taken_up(self, flow, ready, claimed, tried)

    async def taken_up(self: Any, flow: Any, ready: Any, claimed: Any, tried: frozenset[str]) -> Any:
        taken = await self._taken_up(*claimed, flow, endures=ready.journal.endures)
        return taken if isinstance(taken, Outcome) else await driven(self, flow, taken, tried)

    return instead(runs.Runs, "_drive", lambda _: driven)


def late_answers_count() -> AbstractContextManager[None]:
    """A14: an answer that comes after its due time counts if no worker came by in between."""

    def lenient(settled: Any) -> Any:
        def found(wait: Any, *how: Any) -> Any:
            timeless = None if wait is None else msgspec.structs.replace(wait, due_at=None)
            row = settled(timeless, *how)
            return None if row is None else msgspec.structs.replace(row, due_at=wait.due_at)

        return found

    return instead(drafts, "settled", lenient)


def effects_first() -> AbstractContextManager[None]:
    """A18: an effect starts before what led to it is durable."""
    return instead(loop.Drive, "_secure", lambda _: _nothing)


def bystanders_are_blamed() -> AbstractContextManager[None]:
    """D1: every takeover without progress counts against a run, and nothing is driven alone."""

    def strict(_: Any) -> Any:
        def counted(held: Any, *, has_progressed: bool) -> int:
            return 0 if held is None or has_progressed else held.takeovers + 1

        return counted

    return all_of(
        instead(leases, "_takeovers", strict),
        instead(worker, "is_suspect", lambda _: lambda lease: False),
    )


def idle_too_soon() -> AbstractContextManager[None]:
    """D3: a worker that ends when idle does not see what ended while it looked for work."""

    class Deaf(asyncio.Event):
        def is_set(self) -> bool:
            return False

    def deafened(init: Any) -> Any:
        def made(self: Any, *given: Any, **how: Any) -> None:
            init(self, *given, **how)
            self._ended = Deaf()

        return made

    return instead(worker.Worker, "__init__", deafened)


def full_is_final() -> AbstractContextManager[None]:
    """D7: that the store is full is an error like any other: what was done is thrown away."""

    def strict(persist: Any) -> Any:
        async def persisted(self: Any, ask: Any, *, failed: Any = None, **how: Any) -> Any:
            if isinstance(failed, StoreNotWritable):
                raise failed
            return await persist(self, ask, failed=failed, **how)

        return persisted

    return instead(chain_writer.Journal, "persist", strict)


def begun_without_lease() -> AbstractContextManager[None]:
    """E2: the lease of a run that was claimed is not looked after before its drive begins."""
    return all_of(
        instead(LeaseKeeper, "keep", lambda _: lambda self, lease, ttl: None),
        instead(LeaseKeeper, "confirm", lambda _: _nothing),
    )


def leases_by_run() -> AbstractContextManager[None]:
    """E4: a drive that ends takes the lease of every drive of its run out of the keeper's hands."""

    def careless(drop: Any) -> Any:
        def dropped(self: Any, lease: Any) -> None:
            for held in [h.lease for h in self._held.values() if h.lease.run_id == lease.run_id]:
                drop(self, held)

        return dropped

    return instead(LeaseKeeper, "drop", careless)


class Plant(NamedTuple):
    """A fault, and the trial that is tried first."""

    make: Callable[[], AbstractContextManager[None]]
    first: tuple[str, bool]
    """Its name, and whether the store is elsewhere."""


def _on(name: str, *, is_remote: bool = False) -> tuple[str, bool]:
    return name, is_remote


CHOSEN: Mapping[str, Plant] = {
    "a put is not fenced": Plant(unfenced, _on("long contest")),
    "a flush before an effect is forgotten": Plant(unannounced, _on("deliveries")),
    "a key changes between lives": Plant(shifting_key, _on("deliveries")),
    "an answer is taken twice": Plant(answered_twice, _on("answers")),
    "attempts are lost on resume": Plant(forgotten_attempts, _on("deliveries")),
    "leases are not renewed": Plant(unrenewed, _on("contest")),
    "a wait has no row": Plant(waits_without_rows, _on("approvals")),
    "a wait has no step": Plant(rows_without_steps, _on("approvals")),
    "what is spooled is dropped": Plant(dropped_spool, _on("sensors")),
    "a budget is counted twice": Plant(spent_twice, _on("papers")),
    "a keyframe leaves something out": Plant(lossy_keyframe, _on("rounds")),
    "a run is given up too soon": Plant(given_up_too_soon, _on("contest")),
}
FINDINGS: Mapping[str, Plant] = {
    "A1": Plant(off_drives_recorded_runs, _on("deploys")),
    "A2": Plant(atomic_is_plain, _on("parcels")),
    "A3": Plant(atomic_takes_anything, _on("own keys")),
    "A5": Plant(recursing_waits, _on("ticks")),
    "A14": Plant(late_answers_count, _on("approvals")),
    "A18": Plant(effects_first, _on("orders")),
    "D1": Plant(bystanders_are_blamed, _on("killers")),
    "D3": Plant(idle_too_soon, _on("groups", is_remote=True)),
    "D7": Plant(full_is_final, _on("service")),
    "E2": Plant(begun_without_lease, _on("fleet")),
    "E4": Plant(leases_by_run, _on("threads")),
}
