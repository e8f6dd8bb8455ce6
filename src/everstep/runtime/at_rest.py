"""Runs that no drive has: claimed for a moment, written to, and released."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from everstep.errors import LeaseConflict, LeaseLost, RunCancelled, RunNotFound, StoreError
from everstep.graph.compile.plan import Plan
from everstep.model.acts import Act
from everstep.model.durability import Durability
from everstep.model.durations import Ends
from everstep.model.enums import Status, Trigger
from everstep.model.leases import ALONE, Lease
from everstep.model.records import UNDO, StepRecord
from everstep.on_demand import on_demand
from everstep.ports.store import RunRow, TakenUp
from everstep.runtime.drive.chain_writer import Identity, Journal
from everstep.runtime.events import Event
from everstep.runtime.events import tell as notify
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.services import Services
from everstep.runtime.workers.claim import claim, give_back, take_up
from everstep.runtime.workers.lease_renewal import LeaseKeeper

if TYPE_CHECKING:
    from everstep.engine.limits.slots import rules_alone
    from everstep.graph.author.flow import Flow
    from everstep.runtime.drive.children.results import EndedRun, tell_starter
    from everstep.runtime.drive.timed.times import give_deadline
    from everstep.runtime.drive.undo.rules import check_may_undo
    from everstep.runtime.guards.slots import note_unfinished
    from everstep.runtime.outage.outbox import drain
    from everstep.runtime.waits.announce import call_off
    from everstep.runtime.workers.claim import take_up_within
    from everstep.runtime.workers.room import wait_for_room
else:
    rules_alone = on_demand("everstep.engine.limits.slots:rules_alone")
    note_unfinished = on_demand("everstep.runtime.guards.slots:note_unfinished")
    take_up_within = on_demand("everstep.runtime.workers.claim:take_up_within")
    EndedRun = on_demand("everstep.runtime.drive.children.results:EndedRun")
    tell_starter = on_demand("everstep.runtime.drive.children.results:tell_starter")
    call_off = on_demand("everstep.runtime.waits.announce:call_off")
    wait_for_room = on_demand("everstep.runtime.workers.room:wait_for_room")
    give_deadline = on_demand("everstep.runtime.drive.timed.times:give_deadline")
    check_may_undo = on_demand("everstep.runtime.drive.undo.rules:check_may_undo")
    drain = on_demand("everstep.runtime.outage.outbox:drain")


class RestingRuns:
    """Claims runs and writes to them without driving them."""

    on_nudge: Callable[[str], None] | None = None
    """Told, too, of a run whose wait was settled by the end of another."""

    def __init__(self, services: Services, keeper: LeaseKeeper, reader: RunReader) -> None:
        self._services = services
        self.keeper = keeper
        self.reader = reader

    async def claim(self, run_id: str, durability: Durability, *, waits: bool) -> Lease:
        """Get the right to drive a run, after what waits for it on this machine was written."""
        await self._drained(run_id)
        tell = partial(self._tell_wait, run_id)
        lease = await claim(self._services, self.keeper, run_id, durability, waits=waits, on_wait=tell)
        return (await self._noted(TakenUp(lease))).lease

    async def take_up(self, row: RunRow, durability: Durability, *, waits: bool) -> TakenUp:
        """Get the right to drive a run that was looked at, and what of it came with that."""
        run_id, known = row.run_id, row.lease
        await self._drained(run_id)
        tell = partial(self._tell_wait, run_id)
        return await self._noted(
            await take_up(self._services, self.keeper, run_id, durability, known, waits=waits, on_wait=tell)
        )

    async def take_up_within(self, row: RunRow, flow: Flow, *, waits: bool) -> TakenUp:
        """Do the same of a run whose flow has limits, once they leave room for it."""
        await self._drained(row.run_id)
        tell = partial(self._tell_wait, row.run_id)
        return await self._noted(
            await wait_for_room(self._services, self.keeper, row, flow, waits=waits, on_wait=tell)
        )

    async def _take_up_again(self, row: RunRow) -> TakenUp:
        """Get the right to let a run that has ended go on; if one run has its key at a time, that is free."""
        if row.group is None or ALONE not in row.group or not (rules := rules_alone(row.group)):
            return await self.take_up(row, Durability(), waits=True)
        await self._drained(row.run_id)
        tell = partial(self._tell_wait, row.run_id)
        taken = await self._noted(
            await take_up_within(
                self._services, self.keeper, row, Durability(), rules, waits=True, on_wait=tell
            )
        )
        await note_unfinished(self._services, row.flow_id, row.group, row.run_id)
        return taken

    async def _drained(self, run_id: str) -> None:
        if self._services.spool.has(run_id):
            await drain(self._services, run_id)  # before a claim makes it stale

    async def _noted(self, taken: TakenUp) -> TakenUp:
        """Take a claimed run out of the queue; if that fails it is given back."""
        try:
            await self._services.take([taken.lease.run_id])
        except BaseException:
            await self.release(taken.lease)
            raise
        return taken

    def _tell_wait(self, run_id: str, until: datetime) -> None:
        services = self._services
        if services.listener is not None:
            data = {"until": until.isoformat()}
            event = Event(kind="lease_wait", run_id=run_id, at=services.clock.now(), data=data)
            notify(services.listener, event)

    async def release(self, lease: Lease) -> None:
        """Give the lease of an interrupted run back; if the store is in trouble it will expire by itself."""
        await give_back(self._services, self.keeper, lease)
        await self._services.ring(lease.run_id)

    async def journal_of(
        self, row: RunRow, folded: Rehydrated, plan: Plan, durability: Durability, lease: Lease
    ) -> Journal:
        """Return the writer of a claimed run that was folded."""
        identity = Identity(
            row.run_id,
            row.flow_id,
            row.flow_version,
            row.flow_hash,
            plan.blueprint,
            row.parent_run_id,
            started_by=row.started_by,
        )
        journal = Journal(self._services, identity, durability, folded.state, folded.space)
        journal.head = folded.head
        if row.group is not None:
            journal.group = row.group
        journal.noted, journal.noted_from = folded.note, folded.head.sequence
        journal.lease = lease
        journal.is_halted = row.status is Status.HALTED
        folded.state.gone.clear()
        journal.key_run = await self.reader.key_run(row, folded.state)
        return journal

    async def journal_at_rest(self, row: RunRow, lease: Lease) -> tuple[Journal, Rehydrated]:
        """Return a claimed run, folded, to write something other than steps to it."""
        plan = await self.reader.plan(row)
        folded = await self.reader.rehydrate(row, plan)
        return await self.journal_of(row, folded, plan, Durability(), lease), folded

    async def end_cancelled(self, row: RunRow, lease: Lease) -> bool:
        """End a claimed run that is to be cancelled; false if it has what takes its code to undo."""
        journal, folded = await self.journal_at_rest(row, lease)
        undo = folded.state.undo
        if undo is not None and not undo.is_over:
            return False
        await (journal.call_off() if undo is None else journal.end_undone())
        await call_off(self._services, row.run_id, journal.closed, is_over=True)
        await self.ended(journal, Status.CANCELLED if undo is None else Status(undo.ends))
        return True

    async def begin_undo(self, row: RunRow, act: Act | None) -> Status:
        """Let a run that has ended undo what it did, and leave it to who has its code."""
        taken = await self._take_up_again(row)
        try:
            row = taken.row or await self.reader.row(row.run_id)
            journal, folded = await self.journal_at_rest(row, taken.lease)
            check_may_undo(row, folded.state)
            journal.act = act
            if folded.state.undo is None or not folded.state.undo.is_under_way:
                ends = Status.CANCELLED if row.status is Status.CANCELLED else Status.FAILED
                error = folded.error
                step = StepRecord(
                    path=UNDO, decision=(ends.value,), error=error, ended_at=self._services.clock.now()
                )
                journal.add(step, ())
            await journal.flush(Trigger.UNDO, changes_status=True)
        finally:
            await self.release(taken.lease)
        return (await self.reader.row(row.run_id)).status

    async def has_to_undo(self, row: RunRow) -> bool:
        """True if what a run did is to be undone before it ends."""
        folded = await self.reader.rehydrate(row, await self.reader.plan(row), at=row.checkpoints)
        return folded.state.undo is not None

    async def ended(self, journal: Journal, status: Status) -> None:
        """Tell the run whose node started one of its end, and end those that were asked to stop with it."""
        if journal.started_by is not None:
            ended = EndedRun(journal.run_id, status, journal.started_by)
            await tell_starter(self._services, ended, self.nudge)
        for row in journal.stopped:
            await self._end_asked(row)

    def nudge(self, run_id: str) -> None:
        """Let the drive of a run look for answers soon, if it is driven here."""
        drive = self.keeper.drive_of(run_id)
        if drive is not None:
            drive.nudge()
        if self.on_nudge is not None:
            self.on_nudge(run_id)

    async def _end_asked(self, row: RunRow) -> None:
        """End a run that was asked to stop, unless it has an owner, which does so; else workers find it."""
        drive = self.keeper.drive_of(row.run_id)
        if drive is not None:
            drive.stop(RunCancelled(f"run {row.run_id!r} was cancelled."))
            return
        with suppress(StoreError, LeaseConflict, LeaseLost, RunNotFound):
            lease = await self.claim(row.run_id, Durability(), waits=False)
            try:
                fresh = await self.reader.row(row.run_id)
                if fresh.status.is_final or not await self.end_cancelled(fresh, lease):
                    await self.release(lease)
            except BaseException:
                await self.release(lease)
                raise

    async def give_deadline(self, row: RunRow, act: Act | None, ends: Ends) -> None:
        """Give a run that is not driven another deadline."""
        taken = await self.take_up(row, Durability(), waits=False)
        try:
            row = taken.row or await self.reader.row(row.run_id)
            if not row.status.is_final:
                journal, folded = await self.journal_at_rest(row, taken.lease)
                journal.act = act
                await give_deadline(journal, self._services, folded.state, ends)
                await journal.flush(Trigger.STEP, status=row.status, changes_status=True)
        finally:
            await self.release(taken.lease)

    async def reopen(self, row: RunRow, act: Act | None, ends: Ends | None = None) -> bool:
        """Let a run that failed go on, without its code, and leave it to workers to drive.

        False if it has gone on since it was looked at. Who has it at that moment is waited for.
        """
        taken = await self._take_up_again(row)
        try:
            fresh = taken.row or await self.reader.row(row.run_id)
            if (fresh.checkpoints, fresh.status) != (row.checkpoints, row.status):
                return False
            journal, folded = await self.journal_at_rest(fresh, taken.lease)
            journal.act = act
            if ends is not None:
                await give_deadline(journal, self._services, folded.state, ends)
            folded.state.reopen()
            await journal.flush(Trigger.RESUME, changes_status=True)
            return True
        except LeaseLost:
            return False
        finally:
            await self.release(taken.lease)
