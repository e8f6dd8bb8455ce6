"""Starting, continuing, reopening and cancelling runs: everything around a drive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from everstep.engine.leases import beside, is_hopeless
from everstep.engine.state import RunState
from everstep.errors import (
    BadRequest,
    EverstepError,
    HostClosed,
    LeaseConflict,
    LeaseLost,
    NoRoom,
    RunAbandoned,
    RunCancelled,
    RunErased,
    RunPaused,
    StoreError,
)
from everstep.graph.author.flow import Flow
from everstep.model.durability import Durability
from everstep.model.durations import Ends
from everstep.model.enums import Mode, Status, Trigger
from everstep.model.leases import Lease, lane_of
from everstep.model.records import START, ErrorInfo, StepRecord
from everstep.model.waits import child_in
from everstep.on_demand import on_demand
from everstep.ports.store import Commit, RunRow, StopRequest, TakenUp, Verdict
from everstep.runtime.drive.chain_writer import Journal
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.invoke import describe_error
from everstep.runtime.drive.loop import Drive
from everstep.runtime.drive.values import Slot, ValueSpace
from everstep.runtime.events import Event, EventKind, Listener, tell
from everstep.runtime.inputs import Given, check_kept, check_same_flow, check_same_inputs, draft_run
from everstep.runtime.outcome import Outcome
from everstep.runtime.preflight import preflight
from everstep.runtime.run_ids import check_run_id, check_still_here
from everstep.runtime.services import Services
from everstep.runtime.workers.lease_renewal import LeaseKeeper

if TYPE_CHECKING:
    from everstep.codec.notes import close_act
    from everstep.engine.commits import first_row
    from everstep.engine.limits.slots import key_alone
    from everstep.graph.limits import Debounce, Singleton, debounce_of, key_value, limited_group, singleton_of
    from everstep.model.acts import Act
    from everstep.model.waits import WaitRow
    from everstep.ports.pausing import PausingStore
    from everstep.runtime.at_rest import RestingRuns
    from everstep.runtime.drive.channel import first_values
    from everstep.runtime.drive.children.cancelling import heeding_starter
    from everstep.runtime.drive.children.family import Family
    from everstep.runtime.drive.external_channel import attach
    from everstep.runtime.drive.timed.times import Times, give_deadline
    from everstep.runtime.drive.undo.rules import may_undo
    from everstep.runtime.guards.shared_breakers import SharedBreakers
    from everstep.runtime.guards.singletons import Key, Soon, begun, is_yet_to_begin
    from everstep.runtime.guards.slots import note_unfinished
    from everstep.runtime.integrity.run_check import newest_valid
    from everstep.runtime.judges import is_other
    from everstep.runtime.operations.acting import concerning, riding, written
    from everstep.runtime.operations.pausing import Pauses, run_paused
    from everstep.runtime.outage.outbox import waits_here
    from everstep.runtime.reader import RunReader
    from everstep.runtime.resume import Resumed, resume_points, resumed_of, start_marks
    from everstep.runtime.stay import stay
    from everstep.runtime.tracing.spans import Tracer
    from everstep.runtime.travel.migrate import migrated
    from everstep.runtime.waits.announce import announce, call_off
    from everstep.runtime.waits.answers import open_waits
    from everstep.runtime.waits.notices.send import send_of
    from everstep.runtime.workers.claim import give_back
else:
    newest_valid = on_demand("everstep.runtime.integrity.run_check:newest_valid")
    migrated = on_demand("everstep.runtime.travel.migrate:migrated")
    close_act = on_demand("everstep.codec.notes:close_act")
    first_row = on_demand("everstep.engine.commits:first_row")
    key_alone = on_demand("everstep.engine.limits.slots:key_alone")
    limited_group = on_demand("everstep.graph.limits:limited_group")
    debounce_of = on_demand("everstep.graph.limits:debounce_of")
    key_value = on_demand("everstep.graph.limits:key_value")
    singleton_of = on_demand("everstep.graph.limits:singleton_of")
    Soon = on_demand("everstep.runtime.guards.singletons:Soon")
    is_yet_to_begin = on_demand("everstep.runtime.guards.singletons:is_yet_to_begin")
    begun = on_demand("everstep.runtime.guards.singletons:begun")
    Key = on_demand("everstep.runtime.guards.singletons:Key")
    note_unfinished = on_demand("everstep.runtime.guards.slots:note_unfinished")
    RestingRuns = on_demand("everstep.runtime.at_rest:RestingRuns")
    Pauses = on_demand("everstep.runtime.operations.pausing:Pauses")
    run_paused = on_demand("everstep.runtime.operations.pausing:run_paused")
    concerning = on_demand("everstep.runtime.operations.acting:concerning")
    riding = on_demand("everstep.runtime.operations.acting:riding")
    written = on_demand("everstep.runtime.operations.acting:written")
    first_values = on_demand("everstep.runtime.drive.channel:first_values")
    heeding_starter = on_demand("everstep.runtime.drive.children.cancelling:heeding_starter")
    attach = on_demand("everstep.runtime.drive.external_channel:attach")
    Family = on_demand("everstep.runtime.drive.children.family:Family")
    SharedBreakers = on_demand("everstep.runtime.guards.shared_breakers:SharedBreakers")
    send_of = on_demand("everstep.runtime.waits.notices.send:send_of")
    is_other = on_demand("everstep.runtime.judges:is_other")
    waits_here = on_demand("everstep.runtime.outage.outbox:waits_here")
    RunReader = on_demand("everstep.runtime.reader:RunReader")
    resume_points = on_demand("everstep.runtime.resume:resume_points")
    resumed_of = on_demand("everstep.runtime.resume:resumed_of")
    start_marks = on_demand("everstep.runtime.resume:start_marks")
    stay = on_demand("everstep.runtime.stay:stay")
    Times = on_demand("everstep.runtime.drive.timed.times:Times")
    give_deadline = on_demand("everstep.runtime.drive.timed.times:give_deadline")
    may_undo = on_demand("everstep.runtime.drive.undo.rules:may_undo")
    announce = on_demand("everstep.runtime.waits.announce:announce")
    call_off = on_demand("everstep.runtime.waits.announce:call_off")
    open_waits = on_demand("everstep.runtime.waits.answers:open_waits")
    give_back = on_demand("everstep.runtime.workers.claim:give_back")

log = logging.getLogger("everstep")
_PATIENCE, _LOOK = 30.0, 0.005
"""Seconds that closing waits for what is driven, and between two looks."""
_REOPENABLE = (Status.FAILED, Status.ABANDONED)
_UNDER_WAY = (None, Status.RUNNING)
"""What a drive comes to that was stopped, or whose run is paused."""


class Ready(msgspec.Struct, frozen=True):
    """A run that is claimed and folded, to be driven."""

    journal: Journal
    state: RunState
    space: ValueSpace
    resumed: Resumed | None = None
    """How it was taken up, if it was there before."""
    stop: StopRequest | None = None
    """What it was asked for, if that is for its drive to answer: it undoes what it did."""


class Runs:
    """The runs of one host."""

    family: Family | None = None
    """The runs that are driven here beside one that has started them, if these are for that."""

    def __init__(self, services: Services, keeper: LeaseKeeper) -> None:
        self._services = services
        self.keeper = services.keeper = keeper

    # A run that begins here and ends needs none of these.

    @cached_property
    def reader(self) -> RunReader:
        """Reads runs back."""
        return RunReader(self._services, newest_valid)

    @cached_property
    def resting(self) -> RestingRuns:
        """What is done to runs that are not driven."""
        return RestingRuns(self._services, self.keeper, self.reader)

    @cached_property
    def pauses(self) -> Pauses:
        """What is paused."""
        return Pauses(self._services, self.reader, self.keeper)

    @cached_property
    def shared(self) -> SharedBreakers:
        """Breakers that runs share."""
        return SharedBreakers(self._services, self.resting)

    async def stop(self) -> None:
        """Let what is driven on this loop stop and keep what has finished; wait until its leases are free."""
        services, left = self._services, _PATIENCE
        driving = services.driving
        for drive in driving.copy():
            drive.stop(host_closed())
        # A store that is awaited needs this loop to get back the lease of an effect that no one can stop.
        if services.blocking is None:
            self.keeper.lend(asyncio.get_running_loop())
        while left > 0 and (driving or (services.blocking is None and self.keeper.lingers)):
            await self._services.system.pause(_LOOK)
            left -= _LOOK

    async def close(self) -> None:
        """Stop renewing leases. The thread that does may wait for this loop, which must not wait for it."""
        thread = self.keeper.close()
        if thread is not None and self._services.blocking is not None:
            thread.join()
        elif thread is not None:
            await self._services.system.to_thread(thread.join)

    async def run(self, flow: Flow, given: Given, run_id: str | None, *, wait: bool = False) -> Outcome:
        """Start a run, continue it if it is unfinished, or return what it came to if it has ended."""
        flow = preflight(flow, self._services)
        if run_id is not None:
            check_run_id(run_id)
        if flow.starts and self.family is None:
            twin = self._with_family(flow)
            assert twin.family is not None
            return await twin.family.see_through(partial(twin.run, flow, given, run_id), run_id, wait=wait)
        async with self._services.committer.turn:
            outcome = await self._run(flow, given, run_id)
        if outcome.waits:
            outcome = await self._with_its_own(outcome, flow, wait=wait)
        return await self._stay(outcome, flow) if wait else outcome

    async def start(
        self,
        flow: Flow,
        given: Given,
        run_id: str | None,
        *,
        compares_inputs: bool = True,
        is_in_turn: bool = False,
    ) -> RunRow:
        """Accept a run durably, for others to drive. One that was accepted before is left as it is.

        `is_in_turn` of a run whose flow has a singleton if that has judged it.
        """
        flow = preflight(flow, self._services)
        if flow.durability.mode is Mode.OFF:
            raise BadRequest(
                f"flow {flow.name!r} is kept nowhere (durability off), so no worker could drive its runs.",
                fix="Use host.run, or another durability.",
            )
        if flow.limits and not is_in_turn:
            if (soon := debounce_of(flow.limits)) is not None:
                return await self._start_soon(flow, soon, given, run_id, compares_inputs=compares_inputs)
            if (rule := singleton_of(flow.limits)) is not None:
                return await self._start_alone(flow, rule, given, run_id, compares_inputs=compares_inputs)
        run_id = self._services.ids.new_id() if run_id is None else check_run_id(run_id)
        inputs = given.check(flow)
        journal, _, _, drafts = await draft_run(self._services, flow, given, run_id)
        if self._services.tracing is not None:
            journal.note = self._services.tracing.caller_note()
        if await journal.admit(drafts, None) is Verdict.ACCEPTED:
            if not journal.is_halted:  # else it is due later
                await self._services.ring(run_id, flow.name)
            return _admitted(journal)
        row = await self.reader.row(run_id)
        await check_same_flow(self.reader, row, flow)
        if compares_inputs:
            await check_same_inputs(self._services, self.reader, row, flow, drafts, inputs)
        return row

    async def _start_alone(
        self,
        flow: Flow,
        rule: Singleton,
        given: Given,
        run_id: str | None,
        *,
        compares_inputs: bool = True,
    ) -> RunRow:
        """Accept a run of a flow with a singleton, or return the run that has its key. Raises `KeyTaken`."""
        inputs, encrypts = given.check(flow), self._services.codecs.encrypts
        key = key_alone(limited_group(flow.limits, inputs, encrypts=encrypts))
        name = self._services.ids.new_id() if run_id is None else check_run_id(run_id)
        accept = partial(self.start, flow, given, name, compares_inputs=compares_inputs, is_in_turn=True)
        is_free = rule.on_conflict == "queue" or key is None
        if is_free or (run_id is not None and await self._services.store.run(name) is not None):
            return begun(await accept())
        assert key is not None
        own = Key(self._services, flow.name, key, name)
        found = await own.take(rule, partial(self.cancel, act=given.act))
        if isinstance(found, RunRow):
            return begun(found, joined=True)
        try:
            row = await accept()
        except RunErased:
            if run_id is not None:
                raise
            # This took so long that the start was given up: again, under another id.
            return await self._start_alone(flow, rule, given, None, compares_inputs=compares_inputs)
        except EverstepError as error:
            if not isinstance(error, StoreError):  # it may be there all the same
                await own.leave()
            raise
        return begun(row, replaced=found)

    async def _start_soon(
        self, flow: Flow, rule: Debounce, given: Given, run_id: str | None, *, compares_inputs: bool
    ) -> RunRow:
        """Accept a run that begins if no other of its key is started soon, in place of those before it."""
        key = key_value(rule, given.check(flow), encrypts=self._services.codecs.encrypts)
        name = self._services.ids.new_id() if run_id is None else check_run_id(run_id)
        accept = partial(self.start, flow, compares_inputs=compares_inputs, is_in_turn=True)
        if key is None:
            return begun(await accept(given, name))
        is_there = run_id is not None and await self._services.store.run(name) is not None
        if not is_there and given.times is not None and given.times.begins is not None:
            raise BadRequest(
                f"flow {flow.name!r} has a debounce, which says when its runs begin.",
                fix="Leave `at` and `after` out.",
            )
        # Of one that is there the process may have died before it could replace those before it.
        row = await accept(given, name) if is_there else None
        if row is not None and not is_yet_to_begin(row):
            return begun(row)
        own = Soon(self._services, flow.name, f"{rule.name}={key}", name)
        before, begins = await own.wait_for_more(rule)
        if row is None:
            ends = None if given.times is None else given.times.ends
            try:
                row = await accept(given.timed(Times(begins, ends)), name)
            except RunErased:
                if run_id is not None:
                    raise
                return await self._start_soon(flow, rule, given, None, compares_inputs=compares_inputs)
            except EverstepError as error:
                if not isinstance(error, StoreError):  # it may be there all the same
                    await own.leave()
                raise
        # Only now: of what was accepted nothing is lost, whatever happens meanwhile.
        replaced = [other.run_id for other in before if await self.cancel_at(other, given.act)]
        return begun(row, replaced=replaced)

    async def _run(self, flow: Flow, given: Given, run_id: str | None) -> Outcome:
        row, is_off = None, flow.durability.mode is Mode.OFF
        if run_id is not None and (given.inputs is None or is_off):
            row = await self._services.store.run(run_id)
        if row is not None and not (row.status.is_final and given.inputs is None):
            check_kept(row, flow)
        if (
            row is None
            and (flow.limits or (given.times is not None and given.times.begins is not None))
            and not is_off
        ):
            row = await self.start(flow, given, run_id)
            if row.flow_hash != flow.plan.hash:
                await check_same_flow(self.reader, row, flow)  # it has joined another
            if row.status is Status.HALTED and (row.__class__ is RunRow or row.checkpoints == 1):
                return await self._as_it_rests(row)  # it begins later
        elif row is None:
            inputs = given.check(flow)
            started = await self._start(flow, given, run_id or self._services.ids.new_id())
            if isinstance(started, Outcome):
                return started
            assert run_id is not None
            row = await self.reader.row(run_id)
            await check_same_flow(self.reader, row, flow)
            await check_same_inputs(self._services, self.reader, row, flow, started, inputs)
        else:
            await check_same_flow(self.reader, row, flow)
        if row.status.is_final:
            return await self.reader.recorded(row)
        return await self._continue(row, flow, reopens=False, act=given.act)

    async def _as_it_rests(self, row: RunRow) -> Outcome:
        """Return a run that is to begin later."""
        waits = await open_waits(self._services.store, row.run_id)
        return (await self.reader.recorded(row))._replace(waits=tuple(waits))

    async def resume(
        self,
        run_id: str,
        flow: Flow,
        start: str | None = None,
        *,
        wait: bool = False,
        is_patient: bool = True,
        reopens: bool = True,
        act: Act | None = None,
        ends: Ends | None = None,
    ) -> Outcome:
        """Continue an unfinished run, or reopen one that failed at the node where it failed.

        It may be named by its newest checkpoint, or by a token of one of its waits.

        With `start` it begins at that node instead, whatever was due. An impatient caller gets the
        `LeaseConflict` at once; a caller that reopens nothing gets what a failed run came to. `ends` is its
        deadline from now on.
        """
        flow = preflight(flow, self._services)
        if flow.starts and self.family is None:
            twin = self._with_family(flow)
            assert twin.family is not None
            how: dict[str, Any] = {"is_patient": is_patient, "reopens": reopens, "act": act, "ends": ends}
            begin = partial(twin.resume, run_id, flow, start, **how)
            name = (await self._row_for(run_id, flow, start)).run_id
            return await twin.family.see_through(begin, name, wait=wait)
        async with self._services.committer.turn:
            outcome = await self._resume(
                run_id, flow, start, is_patient=is_patient, reopens=reopens, act=act, ends=ends
            )
        if outcome.waits:
            outcome = await self._with_its_own(outcome, flow, wait=wait)
        return await self._stay(outcome, flow) if wait else outcome

    async def _with_its_own(self, outcome: Outcome, flow: Flow, *, wait: bool) -> Outcome:
        """Drive what a run waits for that has started runs of its own flow, which need not be declared."""
        if self.family is not None or not any(child_in(row.topic) for row in outcome.waits):
            return outcome
        twin = self._with_family(flow)
        assert twin.family is not None

        async def begun() -> Outcome:
            return outcome

        return await twin.family.see_through(begun, outcome.run_id, wait=wait)

    def _with_family(self, flow: Flow) -> Runs:
        """Return the same, with what is driven beside a run of this flow until that is over."""
        twin = copy(self)
        vars(twin).pop("resting", None)
        twin.family = Family(self._services, twin, flow)
        twin.resting.on_nudge = twin.family.nudge
        return twin

    async def _stay(self, outcome: Outcome, flow: Flow) -> Outcome:
        again = partial(self.resume, outcome.run_id, flow, reopens=False)
        return await stay(self._services, self.reader, outcome, again)

    async def drive_claimed(self, row: RunRow, lease: Lease, flow: Flow) -> Outcome:
        """Continue a run that was claimed already, as a worker does: what has finished outlasts an outage."""
        async with self._services.committer.turn:
            if row.status.is_final:
                # Only a caller that names it reopens a run; a store that was raced gave it all the same.
                self.keeper.drop(lease)
                await give_back(self._services, self.keeper, lease)
                return await self.reader.recorded(row)
            return await self._take_up(row, TakenUp(lease), flow, endures=True)

    async def _resume(
        self,
        run_id: str,
        flow: Flow,
        start: str | None,
        *,
        is_patient: bool,
        reopens: bool,
        act: Act | None,
        ends: Ends | None,
    ) -> Outcome:
        row = await self._row_for(run_id, flow, start)
        if act is not None or self._services.notes_unnamed:
            concerning(act, row.run_id)
        if _is_over(row, start, reopens=reopens):
            return await self.reader.recorded(row)
        return await self._continue(
            row, flow, start, is_patient=is_patient, reopens=reopens, act=act, ends=ends
        )

    async def _row_for(self, run_id: str, flow: Flow, start: str | None) -> RunRow:
        """Return a run that is to go on with this flow, perhaps at a node of it."""
        row = await self.reader.named(run_id)
        await check_same_flow(self.reader, row, flow)
        if start is not None and start not in flow.plan.index:
            known = sorted(flow.plan.index)
            raise BadRequest(f"flow {flow.name!r} has no node {start!r}.", fix=f"It has {known}.")
        return row

    async def reopen(
        self,
        run_id: str,
        flow: Flow | None,
        start: str | None = None,
        *,
        act: Act | None = None,
        ends: Ends | None = None,
    ) -> RunRow:
        """Let a run that failed or was abandoned go on, or any run at `start`, and leave it to workers."""
        if flow is None:
            return await self._reopen_at_rest(run_id, start, act, ends)
        flow = preflight(flow, self._services)
        row = await self._row_for(run_id, flow, start)
        if start is None and row.status not in _REOPENABLE:
            if ends is None or row.status.is_final:
                return row  # it is theirs already, or has nothing to go on with
            return await self._reopen_at_rest(run_id, None, act, ends)
        claimed = await self._claimed(row, flow, start, is_patient=False, reopens=True, drives=False)
        if not isinstance(claimed, Outcome):
            row, taken = claimed
            ready = await self._taken_up(row, taken, flow, start, act=act, ends=ends)
            if not isinstance(ready, Outcome):
                if ready.journal.trace is not None:
                    ready.journal.trace.end(Status.RUNNING, None)
                self.keeper.drop(taken.lease)
                await self.resting.release(taken.lease)
        return await self.reader.row(row.run_id)

    async def _reopen_at_rest(
        self, run_id: str, start: str | None, act: Act | None, ends: Ends | None
    ) -> RunRow:
        """Do that without the code of its flow, which only beginning at a node takes."""
        if start is not None:
            raise BadRequest(
                "to begin at a node takes the code of the flow.", fix="Give the flow, or leave the node out."
            )
        row = check_still_here(await self.reader.named(run_id))
        if ends is not None and not row.status.is_final:
            await self.resting.give_deadline(row, act, ends)
        if row.status in _REOPENABLE and not await self.resting.reopen(row, act, ends):
            raise LeaseConflict(f"run {row.run_id!r} has gone on meanwhile.", fix="Look at it again.")
        return await self.reader.row(row.run_id)

    async def cancel(self, run_id: str, act: Act | None = None) -> Status:
        """Cancel a run. Its owner, if it has a live one, stops at its next write; else it ends at once."""
        if isinstance(run_id, str) and "/" in run_id:
            raise BadRequest(
                f"{run_id!r:.80} is a part of a run and shares its lease: it is not cancelled by itself.",
                fix=f"To cancel the whole run: everstep cancel {run_id.partition('/')[0]}",
            )
        row = check_still_here(await self.reader.row(run_id))
        if row.status.is_final or not await self._ask_to_stop(row, act):
            return (await self.reader.row(run_id)).status
        return await self.end_if_asked(row)

    async def cancel_at(self, row: RunRow, act: Act | None) -> bool:
        """Cancel a run that still is as it was looked at; false if it has gone on since, or ended."""
        if not await self._ask_to_stop(check_still_here(row), act, head=row.checkpoints):
            return False
        await self.end_if_asked(row)
        return True

    async def undo(self, run_id: str, act: Act | None = None) -> Status:
        """Undo what a run did: one that is unfinished is cancelled, and one that failed undoes what is left.

        Who has its code does that; at rest, the records are made to say so.
        """
        if isinstance(run_id, str) and "/" in run_id:
            raise BadRequest(
                f"{run_id!r:.80} is a part of a run: it is not undone by itself.",
                fix=f"To undo the whole run: everstep undo {run_id.partition('/')[0]}",
            )
        row = check_still_here(await self.reader.row(run_id))
        if row.status.is_final:
            return await self.resting.begin_undo(row, act)
        if not await self._ask_to_stop(row, act, StopRequest.UNDO):
            return (await self.reader.row(run_id)).status
        return await self.end_if_asked(row)

    async def _ask_to_stop(
        self, row: RunRow, act: Act | None, wanted: StopRequest = StopRequest.CANCEL, **said: Any
    ) -> bool:
        note, audit = None, None
        if act is not None:
            note = close_act(self._services.codecs, row.run_id, act)
        if act is not None or self._services.notes_unnamed:
            audit = riding(act, row.run_id)
        if audit is not None:
            said["audit"] = audit
        if not await self._services.store.request_stop(row.run_id, wanted, note, **said):
            return False
        if audit is not None:
            written(audit)
        return True

    async def end_if_asked(self, row: RunRow) -> Status:
        """End a run that was asked to stop, unless it has an owner, which does so at its next write."""
        run_id = row.run_id
        drive = self.keeper.drive_of(run_id)
        if drive is not None:
            drive.stop(RunCancelled(f"run {run_id!r} was cancelled."))
            return Status.RUNNING
        try:
            lease = await self.resting.claim(run_id, Durability(), waits=False)
        except LeaseConflict:
            await self._services.ring(run_id, row.flow_id)
            return Status.RUNNING
        row = await self.reader.row(run_id)
        if row.status.is_final:
            await self.resting.release(lease)  # it had ended, and what said so waited on this machine
        else:
            with suppress(LeaseLost):  # who has it by now was asked to end it, too
                if not await self.resting.end_cancelled(row, lease):
                    await self.resting.release(lease)  # who has its code undoes what it did
        return (await self.reader.row(run_id)).status

    # -- starting and continuing --------------------------------------------------------------------------

    async def _start(self, flow: Flow, given: Given, run_id: str) -> Outcome | tuple[Slot, ...]:
        """Admit and drive a run; if its id is taken, return the encoded inputs instead."""
        services = self._services
        if services.looks_first:
            await self._look_first()
        journal, state, space, drafts = await draft_run(services, flow, given, run_id)
        if services.tracing is not None:
            self._trace(services.tracing, journal, flow)
        try:
            verdict = await journal.admit(drafts, self._new_owner())
        except BaseException:
            # It may have been admitted all the same; it has no owner then.
            if journal.lease is not None:
                await self.resting.release(journal.lease)
            raise
        if verdict is Verdict.EXISTS:
            return drafts
        if given.traits.group is not None:
            journal.group = given.traits.group
        self._emit("run_started", run_id, {"flow": flow.name})
        return await self._drive(flow, Ready(journal, state, space))

    async def _continue(
        self,
        row: RunRow,
        flow: Flow,
        start: str | None = None,
        *,
        is_patient: bool = True,
        reopens: bool,
        act: Act | None = None,
        ends: Ends | None = None,
    ) -> Outcome:
        claimed = await self._claimed(row, flow, start, is_patient=is_patient, reopens=reopens)
        if isinstance(claimed, Outcome):
            return claimed
        return await self._take_up(*claimed, flow, start, act=act, ends=ends)

    async def _claimed(
        self,
        row: RunRow,
        flow: Flow,
        start: str | None = None,
        *,
        is_patient: bool = True,
        reopens: bool,
        drives: bool = True,
    ) -> tuple[RunRow, TakenUp] | Outcome:
        check_kept(row, flow)
        await self._check_paused(row)
        was_left_alone = flow.limits and (row.status.is_final or row.needs_repair is not None)
        asked = self._services.clock.monotonic()
        if drives and flow.limits and row.group is not None:
            taken = await self.resting.take_up_within(check_still_here(row), flow, waits=is_patient)
        else:
            taken = await self.resting.take_up(check_still_here(row), flow.durability, waits=is_patient)
        self.keeper.keep(taken.lease, flow.durability.lease_ttl, asked)
        try:
            row = taken.row or await self.reader.row(row.run_id)
            if row.needs_repair is not None:
                await self._check_paused(row)  # it was paused meanwhile
        except BaseException:
            self.keeper.drop(taken.lease)
            await self.resting.release(taken.lease)
            raise
        if _is_over(row, start, reopens=reopens):
            self.keeper.drop(taken.lease)
            await self.resting.release(taken.lease)  # its owner ended it while we waited
            return await self.reader.recorded(row)
        if was_left_alone:
            await note_unfinished(self._services, row.flow_id, row.group, row.run_id)
        return row, taken

    async def _check_paused(self, row: RunRow) -> None:
        """Raise if a run is not to go on now."""
        if row.is_paused:
            raise run_paused(row)
        if row.status.is_final:
            return
        if self._services.looks_first:
            await self._look_first()
        if lane_of(self.keeper.lanes, row.flow_id, row.group) is None:
            return
        # Lanes are not looked at while nothing is driven here: it may have been let go on since.
        self.keeper.take_pauses(await cast("PausingStore", self._services.store).held(()))
        if (lane := lane_of(self.keeper.lanes, row.flow_id, row.group)) is not None:
            raise run_paused(row, lane)

    async def _look_first(self) -> None:
        """Look at what is paused before this host drives its first run, if it is told to."""
        looks = self._services.looks_first and not self.keeper.has_looked
        if looks and self._services.store.capabilities.pauses:
            self.keeper.take_pauses(await cast("PausingStore", self._services.store).held(()))

    async def _take_up(
        self,
        row: RunRow,
        taken: TakenUp,
        flow: Flow,
        start: str | None = None,
        *,
        endures: bool = False,
        act: Act | None = None,
        ends: Ends | None = None,
    ) -> Outcome:
        ready = await self._taken_up(row, taken, flow, start, endures=endures, act=act, ends=ends)
        if isinstance(ready, Outcome):
            return ready
        outcome = await self._drive(flow, ready)
        return outcome._replace(resumed=ready.resumed) if ready.resumed is not None else outcome

    async def _taken_up(
        self,
        row: RunRow,
        taken: TakenUp,
        flow: Flow,
        start: str | None = None,
        *,
        endures: bool = False,
        act: Act | None = None,
        ends: Ends | None = None,
    ) -> Ready | Outcome:
        """Fold a claimed run, so that it can be driven; if it was cancelled, end it."""
        services, lease = self._services, taken.lease
        begun: Journal | None = None
        self.keeper.keep(lease, flow.durability.lease_ttl)
        try:
            row = row if row.started_by is None else await heeding_starter(services, row)
            stop = row.stop_request
            if stop is not None and is_other(row, flow) and not await self.resting.has_to_undo(row):
                await self.resting.end_cancelled(row, lease)  # it would not be taken over to this flow now
                self.keeper.drop(lease)
                return await self.reader.recorded(await self.reader.row(row.run_id))
            if is_other(row, flow):
                journal, state, space = await migrated(self._services, self.reader, row, lease, flow)
            else:
                folded = await self.reader.rehydrate(row, flow.plan, flow.durability, tail=taken.tail)
                journal = await self.resting.journal_of(row, folded, flow.plan, flow.durability, lease)
                state, space = folded.state, folded.space
            journal.endures, journal.act, begun = endures, act, journal
            if lease.epoch > 1 and row.status is Status.RUNNING:
                machine, pid = services.processes.here()
                journal.took_over = {"epoch": lease.epoch, "host": machine, "pid": pid}
            if stop is not None and not may_undo(flow, state, stop):
                self.keeper.drop(lease)
                return await self._call_off(journal, state, space)
            if services.tracing is not None:
                self._trace(services.tracing, journal, flow)
            if space.has_channel_elsewhere:
                journal.elsewhere = await attach(self._services, row.run_id, space)
            starts = resume_points(row, flow, state, space, start)
            # A worker has no caller to tell of it.
            is_told = not endures or services.listener is not None
            resumed = resumed_of(services, journal, flow, state, space, start) if is_told else None
            if ends is not None:
                await give_deadline(journal, services, state, ends)
            if starts:
                said = start_marks(flow, starts, is_told=start is not None)
                marks = first_values(state, space, services.system, said, None)
                writes = tuple([mark.written for mark in marks])
                journal.add(StepRecord(path=START, writes=writes, decision=starts), tuple(marks))
                await journal.flush(Trigger.RESUME, changes_status=True)
            elif row.status in _REOPENABLE:
                state.reopen()
                await journal.flush(Trigger.RESUME, changes_status=True)
            elif ends is not None:
                await journal.flush(Trigger.STEP)
            elif is_hopeless(lease, flow.durability.max_resume_attempts):
                await self._abandon(journal, lease)
        except BaseException as error:
            if begun is not None and begun.trace is not None:
                begun.trace.fail(error, describe_error(error))
            self.keeper.drop(lease)
            await give_back(self._services, self.keeper, lease)
            raise
        if services.listener is not None and resumed is not None:
            self._tell_resumed(services.listener, flow.name, journal, state, resumed)
        return Ready(journal, state, space, resumed, stop)

    def _tell_resumed(
        self, listener: Listener, flow: str, journal: Journal, state: RunState, resumed: Resumed
    ) -> None:
        data = {"flow": flow, "sequence": journal.head.sequence, "steps": state.total}
        if calls := sum(len(units.at) for scope in state.scopes() for units in scope.units.values()):
            data["calls"] = calls
        self._emit("run_resumed", journal.run_id, data | resumed.to_wire())
        for path, visit in state.done():
            at = resumed.resumed_at
            tell(listener, Event(kind="step_replayed", run_id=journal.run_id, at=at, node=path, visit=visit))

    async def _call_off(self, journal: Journal, state: RunState, space: ValueSpace) -> Outcome:
        """End a run that was cancelled by a caller that could not claim it, or died before."""
        await journal.call_off()
        await call_off(self._services, journal.run_id, journal.closed, is_over=True)
        if journal.started_by is not None or journal.stopped:
            await self.resting.ended(journal, Status.CANCELLED)
        self._emit("run_ended", journal.run_id, {"status": Status.CANCELLED.value, "error": None})
        return Outcome(journal.run_id, Status.CANCELLED, state, space)

    async def _abandon(self, journal: Journal, lease: Lease) -> None:
        message = (
            f"run {lease.run_id!r} was taken over {lease.takeovers} times without writing anything: "
            "its owners died while they drove it."
        )
        error = ErrorInfo(type="RunAbandoned", message=message, code=RunAbandoned.code)
        journal.lift_deadline()
        await journal.flush(Trigger.ABANDONED, status=Status.ABANDONED, error=error, changes_status=True)
        if journal.started_by is not None:
            await self.resting.ended(journal, Status.ABANDONED)
        raise RunAbandoned(message, fix="Find out what kills its owners, then: everstep resume")

    async def _drive(self, flow: Flow, ready: Ready) -> Outcome:
        """Drive a run to its end, or until it waits for something that has not come yet.

        What a run halts for may be there already, and again after that: each time it is taken up anew,
        however often, and the stack does not grow. A wait that could be taken in and was not, because its
        row says something else than the record of the run, is no reason to try once more.
        """
        tokens: dict[str, str] = {}
        tried: set[str] = set()
        while True:
            outcome = await self._drive_once(flow, ready)
            if outcome.paused is not None:
                taken = await self._unpaused(flow, outcome, endures=ready.journal.endures)
                if isinstance(taken, Ready):
                    ready = taken
                    continue
                outcome = taken or outcome
            if outcome.status is not Status.HALTED or outcome.spooled:
                return outcome
            tokens |= outcome.tokens
            tokens = {row.wait_id: tokens[row.wait_id] for row in outcome.waits if row.wait_id in tokens}
            taken = await self._taken_up_again(flow, outcome, tried, endures=ready.journal.endures)
            if not isinstance(taken, Ready):
                halted = taken or await self._halted(outcome, tokens)
                return halted._replace(tokens=tokens)
            ready = taken

    async def _unpaused(self, flow: Flow, paused: Outcome, *, endures: bool) -> Ready | Outcome | None:
        """Take up a run that was let go of as it was paused, if it is no longer; else say that it is."""
        try:
            row = await self.reader.row(paused.run_id)
            self.keeper.take_pauses(await cast("PausingStore", self._services.store).held(()))
        except StoreError:
            return paused
        if row.is_paused or lane_of(self.keeper.lanes, row.flow_id, row.group) is not None:
            self._emit("run_paused", paused.run_id, {"flow": flow.name})
            return paused
        paused = paused._replace(paused=None)
        if paused.status is not Status.RUNNING:
            return paused
        try:
            claimed = await self._claimed(row, flow, is_patient=False, reopens=False)
        except (LeaseConflict, NoRoom, RunPaused):
            return paused  # a worker was quicker, or others have its room
        return (
            claimed if isinstance(claimed, Outcome) else await self._taken_up(*claimed, flow, endures=endures)
        )

    async def _taken_up_again(
        self, flow: Flow, halted: Outcome, tried: set[str], *, endures: bool
    ) -> Ready | Outcome | None:
        """Take up a run that halted, if an answer came while it did or it was cancelled; none if not."""
        run, now = await self.reader.row(halted.run_id), self._services.time.now()
        ripe = {row.wait_id for row in halted.waits if row.is_ripe(now)}
        if run.stop_request is None and ripe <= tried:
            return None
        tried |= ripe
        try:
            claimed = await self._claimed(run, flow, reopens=False)
        except (LeaseConflict, RunPaused):
            return None  # another process has seen it too, or it is not to go on
        return (
            claimed if isinstance(claimed, Outcome) else await self._taken_up(*claimed, flow, endures=endures)
        )

    async def _halted(self, halted: Outcome, tokens: Mapping[str, str]) -> Outcome:
        """Tell of what a run waits for, also those whom its owner before forgot."""
        now = self._services.time.now()
        for row in halted.waits:
            if row.wait_id not in tokens and row.is_forgotten(now):
                await announce(self._services, row, None)
        self._emit("run_halted", halted.run_id, {"waits": len(halted.waits)})
        return halted

    async def _drive_once(self, flow: Flow, ready: Ready) -> Outcome:
        journal, state, space = ready.journal, ready.state, ready.space
        if self.family is not None:
            journal.on_started = self.family.take
        run = RunContext(self._services, flow, journal, state, space)
        drive = Drive(run, self.shared if flow.breakers else None)
        lease, driving = journal.lease, self._services.driving
        status: Status | None = None
        if ready.stop is not None:
            drive.stop(RunCancelled(f"run {journal.run_id!r} was cancelled."))
        try:
            driving.add(drive)
            if lease is not None:
                ttl, outlives = flow.durability.lease_ttl, journal.outbox is not None
                self.keeper.hold(lease, ttl, drive, outlives_store=outlives)
                await self.keeper.confirm(lease)
            is_surrounded = flow.logs or journal.trace is not None or self._services.notes_at_work
            status = await (drive.run_surrounded() if is_surrounded else drive.run())
            if journal.trace is not None:
                journal.trace.end(status, drive.failure)
        except BaseException as stopped:
            if journal.trace is not None:
                journal.trace.fail(stopped, describe_error(stopped))
            raise
        finally:
            try:
                if lease is not None and status in _UNDER_WAY:
                    await self._let_go(lease, drive.threads())
                elif lease is not None:
                    self.keeper.drop(lease)
            finally:
                driving.discard(drive)
        if self._services.schedulers.has_others:
            await call_off(self._services, journal.run_id, journal.closed, is_over=_ends_waits(status))
        spooled = await journal.empty_outbox()
        if (journal.started_by is not None or journal.stopped) and status.is_final and not spooled:
            await self.resting.ended(journal, status)
        if (flow.notify or self._services.notify) and self._services.notifiers.aliases and not spooled:
            telling = self._services.telling
            await (
                send_of(self._services, journal.run_id) if telling is None else telling.tell(journal.run_id)
            )
        if status is Status.HALTED and not spooled:
            waits = tuple(await open_waits(self._services.store, journal.run_id))
            outcome = Outcome(journal.run_id, status, state, space, waits=waits, tokens=drive.tokens)
            return outcome if drive.paused is None else outcome._replace(paused=drive.paused)
        if status is Status.RUNNING:
            return await self._paused(Outcome(journal.run_id, status, state, space, spooled=spooled), drive)
        if status.is_final and journal.writes and self._services.after_run is not None:
            self._services.after_run(flow)
        error = drive.failure
        self._emit(
            "run_ended", journal.run_id, {"status": status.value, "error": error.message if error else None}
        )
        outcome = Outcome(journal.run_id, status, state, space, error, drive.exception, spooled=spooled)
        if status is Status.HALTED:
            return outcome._replace(waits=await self._waits_of(journal.run_id), tokens=drive.tokens)
        return outcome

    async def _paused(self, outcome: Outcome, drive: Drive) -> Outcome:
        """Return what a drive came to that let go of a paused run."""
        outcome = outcome._replace(paused=drive.paused)
        if not outcome.state.waits:
            return outcome
        return outcome._replace(waits=await self._waits_of(outcome.run_id), tokens=drive.tokens)

    async def _let_go(self, lease: Lease, threads: Sequence[Future[None]]) -> None:
        """Give the lease of a run back that is not over, once no thread of it makes an effect any more."""
        if threads:
            self.keeper.linger(lease, threads)
            return
        self.keeper.drop(lease)
        await self.resting.release(lease)

    async def _waits_of(self, run_id: str) -> tuple[WaitRow, ...]:
        """Return what a run waits for whose last steps are kept here, as far as the store can be asked."""
        closed = {wait_id for commit in self._services.spool.of(run_id) for wait_id in commit.closed}
        rows: list[WaitRow] = []
        with suppress(StoreError):
            rows = await open_waits(self._services.store, run_id)
        return (*(row for row in rows if row.wait_id not in closed), *waits_here(self._services, run_id))

    def _trace(self, tracing: Tracer, journal: Journal, flow: Flow) -> None:
        """Begin the trace of a drive that is about to begin."""
        epoch = journal.lease.epoch if journal.lease is not None else 1
        journal.trace, journal.note = tracing.begin(flow.name, journal.run_id, epoch, journal.noted)

    def _new_owner(self) -> str:
        owner = self._services.ids.new_id()
        return beside(owner) if self.keeper.is_busy else owner

    def _emit(self, kind: EventKind, run_id: str, data: dict[str, Any]) -> None:
        if self._services.listener is not None:
            event = Event(kind=kind, run_id=run_id, at=self._services.clock.now(), data=data)
            tell(self._services.listener, event)


def _admitted(journal: Journal) -> RunRow:
    """Return the row of a run that was just admitted without an owner; the store need not be asked for it."""
    head, admission = journal.head, journal.admission
    assert admission is not None and head.checkpoint_id is not None
    opening = Commit(journal.run_id, head.sequence, head.checkpoint_id, None, 0, b"", admission=admission)
    row = first_row(opening, admission.created_at)
    return row.changed(status=Status.HALTED) if journal.is_halted else row


def host_closed() -> HostClosed:
    return HostClosed(
        "the host was closed while it drove this run. What had finished is kept.",
        fix="Go on with resume, on another host.",
    )


def _is_over(row: RunRow, start: str | None, *, reopens: bool) -> bool:
    """True if a run is not to go on, not even as one that failed and is reopened."""
    return start is None and row.status.is_final and not (reopens and row.status in _REOPENABLE)


def _ends_waits(status: Status) -> bool:
    return status in (Status.COMPLETED, Status.CANCELLED)
