"""Starting, continuing, reopening and cancelling runs: everything around a drive."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from everstep.codec.notes import close_act
from everstep.engine.leases import beside, is_hopeless
from everstep.engine.state import START, RunState
from everstep.errors import (
    BadRequest,
    HostClosed,
    LeaseConflict,
    RunAbandoned,
    RunCancelled,
    RunErased,
    RunNotFound,
    StateCorrupted,
    StoreError,
)
from everstep.graph.author.flow import Flow
from everstep.graph.compile.blueprint import read_plan
from everstep.graph.compile.plan import Plan, hash_of
from everstep.model.acts import Act
from everstep.model.address import Part
from everstep.model.durability import Durability
from everstep.model.enums import Mode, Status, Trigger
from everstep.model.leases import Lease
from everstep.model.records import CheckpointRecord, ErrorInfo, StepRecord
from everstep.model.waits import WaitRow
from everstep.ports.store import RunFilter, RunRow, Signal, Verdict
from everstep.runtime.bundles.conflicts import check_still_here
from everstep.runtime.drive.chain_writer import Identity, Journal
from everstep.runtime.drive.channel import first_values
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.external_channel import attach
from everstep.runtime.drive.loop import Drive
from everstep.runtime.drive.values import Slot, ValueSpace
from everstep.runtime.events import Event, EventKind, tell
from everstep.runtime.guards.shared_breakers import SharedBreakers
from everstep.runtime.history import narrowed, newest, views
from everstep.runtime.inputs import Given, draft_run
from everstep.runtime.integrity.run_check import Checking
from everstep.runtime.lineage import Lineage, flows_met
from everstep.runtime.outage.outbox import drain, waits_here
from everstep.runtime.preflight import preflight
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.resume import Resumed, resume_points, resumed_of, start_marks
from everstep.runtime.run_ids import check_run_id, missing_run, split_address
from everstep.runtime.same_run import check_kept, check_same_flow, check_same_inputs
from everstep.runtime.services import Services
from everstep.runtime.stay import stay
from everstep.runtime.system import pause
from everstep.runtime.travel.migrate import Judges, is_other, migrated
from everstep.runtime.waits.announce import announce, call_off
from everstep.runtime.waits.answers import open_waits
from everstep.runtime.waits.tokens import looks_like_token
from everstep.runtime.workers.claim import claim, give_back
from everstep.runtime.workers.lease_renewal import LeaseKeeper

if TYPE_CHECKING:
    from everstep.runtime.integrity.fallback import Fallback

log = logging.getLogger("everstep")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PAGE, _LOOKING = 100, 5.0
"""How many runs are listed at once, and for how many seconds, to find whose an old checkpoint is."""
_PLANS = 16
"""How many wirings a host keeps in mind."""
_PATIENCE, _LOOK = 30.0, 0.005
"""Seconds that closing waits for what is driven, and between two looks."""
_REOPENABLE = (Status.FAILED, Status.ABANDONED)


class Outcome(NamedTuple):
    """A run after its drive, or as its records tell it."""

    run_id: str
    status: Status
    state: RunState
    space: ValueSpace
    error: ErrorInfo | None = None
    exception: BaseException | None = None
    waits: tuple[WaitRow, ...] = ()
    """What it waits for, if it halted."""
    spooled: int = 0
    """How many of its checkpoints wait on this machine."""
    tokens: Mapping[str, str] = {}
    """Tokens that were made for its waits just now."""
    resumed: Resumed | None = None
    """How it was taken up, if it was there before."""
    fallback: Fallback | None = None
    """If it goes on in the place of a damaged run: which one, and from where."""


class Ready(NamedTuple):
    """A run that is claimed and folded, to be driven."""

    journal: Journal
    state: RunState
    space: ValueSpace
    resumed: Resumed | None = None
    """How it was taken up, if it was there before."""


class Runs:
    """The runs of one host."""

    def __init__(self, services: Services, keeper: LeaseKeeper) -> None:
        self._services = services
        self.keeper = keeper
        self.lineage = Lineage(services.store, services.codecs)
        self.judges = Judges()
        self.shared = SharedBreakers(services, self)
        self._plans: dict[str, Plan] = {}
        """Wirings that were read back lately, by hash."""

    async def stop(self) -> None:
        """Let what is driven on this loop stop and keep what has finished; wait until its leases are free."""
        driving, left = self._services.driving, _PATIENCE
        for drive in driving.copy():
            drive.stop(host_closed())
        while driving and left > 0:
            await pause(_LOOK)
            left -= _LOOK

    def close(self) -> None:
        self.keeper.close()

    async def run(self, flow: Flow, given: Given, run_id: str | None, *, wait: bool = False) -> Outcome:
        """Start a run, continue it if it is unfinished, or return what it came to if it has ended."""
        flow = preflight(flow, self._services)
        if run_id is not None:
            check_run_id(run_id)
        async with self._services.turn():
            outcome = await self._run(flow, given, run_id)
        return await stay(self._services, self, outcome, flow) if wait else outcome

    async def start(self, flow: Flow, given: Given, run_id: str | None) -> RunRow:
        """Accept a run durably, for others to drive. One that was accepted before is left as it is."""
        flow = preflight(flow, self._services)
        if flow.durability.mode is Mode.OFF:
            raise BadRequest(
                f"flow {flow.name!r} is kept nowhere (durability off), so nobody else could drive its runs.",
                fix="Use host.run, or another durability.",
            )
        run_id = self._services.ids.new_id() if run_id is None else check_run_id(run_id)
        inputs = given.check(flow)
        journal, _, _, drafts = await draft_run(self._services, flow, given, run_id)
        verdict = await journal.admit(drafts, None)
        row = await self.row(run_id)
        if verdict is Verdict.EXISTS:
            await check_same_flow(self, row, flow)
            await check_same_inputs(self._services, self, row, flow, drafts, inputs)
        else:
            await self._services.ring(run_id, flow.name)
        return row

    async def _run(self, flow: Flow, given: Given, run_id: str | None) -> Outcome:
        row, is_off = None, flow.durability.mode is Mode.OFF
        if run_id is not None and (given.inputs is None or is_off):
            row = await self._services.store.run(run_id)
        if row is not None and not (row.status.is_final and given.inputs is None):
            check_kept(row, flow)
        if row is None:
            inputs = given.check(flow)
            started = await self._start(flow, given, run_id or self._services.ids.new_id())
            if isinstance(started, Outcome):
                return started
            assert run_id is not None
            row = await self.row(run_id)
            await check_same_flow(self, row, flow)
            await check_same_inputs(self._services, self, row, flow, started, inputs)
        else:
            await check_same_flow(self, row, flow)
        if row.status.is_final:
            return await self.recorded(row)
        return await self._continue(row, flow, reopens=False, act=given.act)

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
    ) -> Outcome:
        """Continue an unfinished run, or reopen one that failed at the node where it failed.

        It may be named by its newest checkpoint, or by a token of one of its waits.

        With `start` it begins at that node instead, whatever was due. Whoever is not patient gets the
        `LeaseConflict` at once; whoever reopens nothing gets what a failed run came to.
        """
        flow = preflight(flow, self._services)
        async with self._services.turn():
            outcome = await self._resume(run_id, flow, start, is_patient=is_patient, reopens=reopens, act=act)
        return await stay(self._services, self, outcome, flow) if wait else outcome

    async def drive_claimed(self, row: RunRow, lease: Lease, flow: Flow) -> Outcome:
        """Continue a run that was claimed already, as a worker does: what has finished outlasts an outage."""
        async with self._services.turn():
            if row.status.is_final:
                # Only somebody who names it reopens a run; a store that was raced gave it all the same.
                self.keeper.drop(lease)
                await give_back(self._services, self.keeper, lease)
                return await self.recorded(row)
            return await self._take_up(row, lease, flow, endures=True)

    async def _resume(
        self,
        run_id: str,
        flow: Flow,
        start: str | None,
        *,
        is_patient: bool,
        reopens: bool,
        act: Act | None,
    ) -> Outcome:
        row = await self._row_for(run_id, flow, start)
        if _is_over(row, start, reopens=reopens):
            return await self.recorded(row)
        return await self._continue(row, flow, start, is_patient=is_patient, reopens=reopens, act=act)

    async def _row_for(self, run_id: str, flow: Flow, start: str | None) -> RunRow:
        """Return a run that is to go on with this flow, perhaps at a node of it."""
        row = await self.named(run_id)
        await check_same_flow(self, row, flow)
        if start is not None and start not in flow.plan.index:
            known = sorted(flow.plan.index)
            raise BadRequest(f"flow {flow.name!r} has no node {start!r}.", fix=f"It has {known}.")
        return row

    async def reopen(
        self, run_id: str, flow: Flow, start: str | None = None, *, act: Act | None = None
    ) -> RunRow:
        """Let a run that failed or was abandoned go on, or any run at `start`, and leave it to workers."""
        flow = preflight(flow, self._services)
        row = await self._row_for(run_id, flow, start)
        if start is None and row.status not in _REOPENABLE:
            return row  # it is theirs already, or has nothing to go on with
        claimed = await self._claimed(row, flow, start, is_patient=False, reopens=True)
        if not isinstance(claimed, Outcome):
            lease = claimed[1]
            if not isinstance(await self._taken_up(*claimed, flow, start, act=act), Outcome):
                self.keeper.drop(lease)
                await self.release(lease)
        return await self.row(row.run_id)

    async def cancel(self, run_id: str, act: Act | None = None) -> Status:
        """Cancel a run. Its owner, if it has a live one, stops at its next write; else it ends at once."""
        if isinstance(run_id, str) and "/" in run_id:
            raise BadRequest(
                f"{run_id!r:.80} is a part of a run and shares its lease: it is not cancelled by itself.",
                fix=f"To cancel the whole run: everstep cancel {run_id.partition('/')[0]}",
            )
        row = check_still_here(await self.row(run_id))
        note = close_act(self._services.codecs, run_id, act) if act is not None else None
        if row.status.is_final or not await self._services.store.signal(run_id, Signal.CANCEL, note):
            return (await self.row(run_id)).status
        drive = self.keeper.drive_of(run_id)
        if drive is not None:
            drive.stop(RunCancelled(f"run {run_id!r} was cancelled."))
            return Status.RUNNING
        try:
            lease = await self.claim(run_id, Durability(), waits=False)
        except LeaseConflict:
            await self._services.ring(run_id, row.flow_id)
            return Status.RUNNING
        row = await self.row(run_id)
        if row.status.is_final:
            await self.release(lease)  # it had ended, and what said so waited on this machine
        else:
            await self.end_cancelled(row, lease)
        return (await self.row(run_id)).status

    async def journal_at_rest(self, row: RunRow, lease: Lease) -> tuple[Journal, Rehydrated]:
        """Return a run that nobody drives, to write something other than steps to it."""
        plan = await self.plan(row)
        folded = await self.rehydrate(row, plan)
        return await self._journal_of(row, folded, plan, Durability(), lease), folded

    async def end_cancelled(self, row: RunRow, lease: Lease) -> None:
        """End a run that nobody drives, and that is to be cancelled."""
        journal, _ = await self.journal_at_rest(row, lease)
        await journal.call_off()
        await call_off(self._services, row.run_id, journal.closed, is_over=True)

    async def named(self, name: str) -> RunRow:
        """Return the run that its id, its newest checkpoint's id, or a token of one of its waits names."""
        if looks_like_token(name):
            name = await self._services.tokens.run_of(name)
        row = await self._services.store.run(check_run_id(name))
        if row is not None:
            return row
        if not UUID.fullmatch(name):
            raise await missing_run(self._services.store, name)
        run_id = await self._services.store.run_at(name)
        return await self.row(run_id) if run_id is not None else await self._that_went_on(name)

    async def _that_went_on(self, checkpoint_id: str) -> RunRow:
        """Say which run has gone on from this checkpoint, or that none has it.

        No index leads from a checkpoint to its run: all runs are gone through, newest first, for a while.
        """
        missing = await missing_run(self._services.store, checkpoint_id)
        if isinstance(missing, RunErased):  # it is the id of a run
            raise missing
        until, before, seen = self._services.clock.monotonic() + _LOOKING, None, 0
        while page := await self._services.store.list(RunFilter(limit=_PAGE, before=before)):
            for row in page:
                sequence = None
                with suppress(StateCorrupted):
                    sequence = await self.lineage.sequence_of(row, checkpoint_id, own=True)
                if sequence is not None and sequence == row.checkpoints:
                    return row
                if sequence is not None:
                    raise gone_on(row, sequence)
                seen += 1
                if self._services.clock.monotonic() > until:
                    raise RunNotFound(
                        f"no run stands at checkpoint {checkpoint_id!r}, and none of the newest {seen:,} "
                        "ever did. Older ones were not looked through.",
                        fix="Name its run, as in: everstep fork RUN --at CHECKPOINT",
                    )
                await pause(0)
            before = page[-1].run_id
        raise missing

    async def row(self, run_id: str) -> RunRow:
        """Return what the store knows of a run."""
        row = await self._services.store.run(check_run_id(run_id))
        if row is None:
            raise await missing_run(self._services.store, run_id)
        return row

    async def plan(self, row: RunRow, flow_hash: str | None = None) -> Plan:
        """Return the wiring a run goes by, or another one that it went by, without its functions."""
        flow_hash = flow_hash or row.flow_hash
        if flow_hash in self._plans:
            return self._plans[flow_hash]
        blueprint = await self._services.store.blueprint(flow_hash)
        if blueprint is None:
            fix = "Start any run of the same flow to write it again, or restore the store from a copy."
            raise StateCorrupted(f"the structure of flow {row.flow_id!r} is missing from the store.", fix=fix)
        if hash_of(blueprint) != flow_hash:
            raise StateCorrupted(f"the structure of flow {row.flow_id!r} was altered; restore a copy.")
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        plan = self._plans[flow_hash] = read_plan(blueprint, row.flow_id)
        return plan

    async def rehydrate(
        self,
        row: RunRow,
        plan: Plan,
        durability: Durability | None = None,
        *,
        at: int | None = None,
        needs_values: bool = True,
    ) -> Rehydrated:
        """Fold a run's chain up to a checkpoint, with the wiring that was in force there."""
        links = await self.lineage.tail(row, at)
        threshold = (durability or Durability()).blob_threshold
        folded = Rehydrated(plan, self._services.values, self._services.blobs, threshold)
        try:
            folded.fold(links, needs_values=needs_values)
            if folded.head.sequence < (row.checkpoints if at is None else at):
                raise StateCorrupted(
                    f"checkpoint {folded.head.sequence + 1} of run {row.run_id!r} is missing."
                )
            return folded
        except StateCorrupted as error:
            raise await self._with_way_back(row, error) from error

    async def _with_way_back(self, row: RunRow, error: StateCorrupted) -> StateCorrupted:
        """Return the error with the newest checkpoint that is valid, if any is: there a fork can go on."""
        newest = (await Checking(self._services, self, blobs=False).run(row)).newest_valid
        if newest is None:
            return error
        way = f"everstep resume {row.run_id} --fallback, or everstep fork {row.run_id} --at {newest}"
        fix = f"Checkpoint {newest} is valid; go on from it: {way}"
        return StateCorrupted(error.message, fix=fix, newest_valid=newest)

    async def recorded(self, row: RunRow) -> Outcome:
        """Return what a run came to, from its records alone."""
        folded = await self.rehydrate(row, await self.plan(row))
        if folded.status is not row.status:
            raise StateCorrupted(
                f"run {row.run_id!r} is {row.status.value}, but its records end with {folded.status.value}.",
                fix="Some are missing; restore a copy.",
            )
        return Outcome(row.run_id, folded.status, folded.state, folded.space, folded.error)

    async def history(
        self, run_id: str, last: int | None = None, *, count: int | None = None, part: Part | None = None
    ) -> list[CheckpointRecord]:
        """Return the checkpoints of a run that were not removed, with what deltas leave out filled in.

        With `count`, only the last so many, and no more is read. With a part, those that hold steps of it.
        """
        row = await self.row(run_id)
        try:
            if count is not None:
                return await newest(self, row, count, last=last, part=part)
            return narrowed(views(await self.lineage.get(row, last=last)), part)
        except StateCorrupted as error:
            raise await self._with_way_back(row, error) from error

    async def look_back(self, run_id: str, at: int | str | None) -> Rehydrated:
        """Fold a run up to a checkpoint, given by sequence or id; by default the newest.

        Values whose key is not at hand are locked, so that the rest can be looked at.
        """
        row, sequence = await self.find(run_id, at)
        return await self.rehydrate(row, await self.plan_at(row, sequence), at=sequence, needs_values=False)

    async def plan_at(self, row: RunRow, sequence: int) -> Plan:
        """Return the wiring that a run went by at a checkpoint."""
        return await self.plan(row, (await self.lineage.flow_at(row, sequence)).flow_hash)

    async def go_on(self, folded: Rehydrated, run_id: str, first: int, last: int) -> None:
        """Fold further records of a run, also across places where it went over to another wiring."""
        row = await self.row(run_id)
        links = await self.lineage.get(row, first, last)
        for flow_hash in flows_met(links):
            folded.plans[flow_hash] = await self.plan(row, flow_hash)
        folded.fold(links, needs_values=False)

    async def find(self, run_id: str, at: int | str | None = None) -> tuple[RunRow, int]:
        """Return a run and the sequence of a checkpoint, given by sequence, id, or in the run id as RUN@N."""
        run_id, at = split_address(run_id, at)
        row = await self.row(run_id)
        sequence: int | None = None
        if at is None:
            sequence = row.checkpoints
        elif isinstance(at, str):
            sequence = await self.lineage.sequence_of(row, at)
        elif type(at) is int and 1 <= at <= row.checkpoints:
            sequence = at
        if sequence is None:
            raise RunNotFound(
                f"run {row.run_id!r} has no checkpoint {at!r}.", fix=f"It has 1 to {row.checkpoints}."
            )
        return row, sequence

    # -- starting and continuing --------------------------------------------------------------------------

    async def _start(self, flow: Flow, given: Given, run_id: str) -> Outcome | tuple[Slot, ...]:
        """Admit and drive a run; if its id is taken, return the encoded inputs instead."""
        services = self._services
        journal, state, space, drafts = await draft_run(services, flow, given, run_id)
        try:
            verdict = await journal.admit(drafts, self._new_owner())
        except BaseException:
            # It may have been admitted all the same; nobody drives it then.
            if journal.lease is not None:
                await self.release(journal.lease)
            raise
        if verdict is Verdict.EXISTS:
            return drafts
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
    ) -> Outcome:
        claimed = await self._claimed(row, flow, start, is_patient=is_patient, reopens=reopens)
        return (
            claimed if isinstance(claimed, Outcome) else await self._take_up(*claimed, flow, start, act=act)
        )

    async def _claimed(
        self, row: RunRow, flow: Flow, start: str | None = None, *, is_patient: bool = True, reopens: bool
    ) -> tuple[RunRow, Lease] | Outcome:
        check_kept(row, flow)
        lease = await self.claim(check_still_here(row).run_id, flow.durability, waits=is_patient)
        try:
            row = await self.row(row.run_id)
        except BaseException:
            await self.release(lease)
            raise
        if _is_over(row, start, reopens=reopens):
            await self.release(lease)  # its owner ended it while we waited
            return await self.recorded(row)
        return row, lease

    async def _take_up(
        self,
        row: RunRow,
        lease: Lease,
        flow: Flow,
        start: str | None = None,
        *,
        endures: bool = False,
        act: Act | None = None,
    ) -> Outcome:
        taken = await self._taken_up(row, lease, flow, start, endures=endures, act=act)
        if isinstance(taken, Outcome):
            return taken
        outcome = await self._drive(flow, taken)
        return outcome._replace(resumed=taken.resumed)

    async def _taken_up(
        self,
        row: RunRow,
        lease: Lease,
        flow: Flow,
        start: str | None = None,
        *,
        endures: bool = False,
        act: Act | None = None,
    ) -> Ready | Outcome:
        """Fold a claimed run, so that it can be driven; if it was cancelled, end it."""
        services = self._services
        self.keeper.keep(lease, flow.durability.lease_ttl)
        try:
            if row.signal is not None and is_other(row, flow):
                await self.end_cancelled(row, lease)  # it would not be taken over to this flow any more
                self.keeper.drop(lease)
                return await self.recorded(await self.row(row.run_id))
            if is_other(row, flow):
                journal, state, space = await migrated(self._services, self, row, lease, flow)
            else:
                folded = await self.rehydrate(row, flow.plan, flow.durability)
                journal = await self._journal_of(row, folded, flow.plan, flow.durability, lease)
                state, space = folded.state, folded.space
            journal.endures, journal.act = endures, act
            if row.signal is Signal.CANCEL:
                self.keeper.drop(lease)
                return await self._call_off(journal, state, space)
            journal.elsewhere = await attach(self._services, row.run_id, space)
            starts = resume_points(row, flow, state, space, start)
            resumed = resumed_of(services, journal, flow, state, space, start)
            if starts:
                said = start_marks(flow, starts, is_told=start is not None)
                marks = first_values(state, space, services.clock, said, None)
                writes = tuple([mark.written for mark in marks])
                journal.add(StepRecord(path=START, writes=writes, decision=starts), tuple(marks))
                await journal.flush(Trigger.RESUME, changes_status=True)
            elif row.status in _REOPENABLE:
                state.reopen()
                await journal.flush(Trigger.RESUME, changes_status=True)
            elif is_hopeless(lease, flow.durability.max_resume_attempts):
                await self._abandon(journal, lease)
        except BaseException:
            self.keeper.drop(lease)
            await give_back(self._services, self.keeper, lease)
            raise
        data = {"flow": flow.name, "sequence": journal.head.sequence, "steps": state.total}
        self._emit("run_resumed", row.run_id, data | resumed.to_wire())
        if services.listener is not None:
            for path, visit in state.done():
                at = resumed.resumed_at
                event = Event(kind="step_replayed", run_id=row.run_id, at=at, node=path, visit=visit)
                tell(services.listener, event)
        return Ready(journal, state, space, resumed)

    async def _call_off(self, journal: Journal, state: RunState, space: ValueSpace) -> Outcome:
        """End a run that was cancelled by somebody who could not claim it, or died before."""
        await journal.call_off()
        await call_off(self._services, journal.run_id, journal.closed, is_over=True)
        self._emit("run_ended", journal.run_id, {"status": Status.CANCELLED.value, "error": None})
        return Outcome(journal.run_id, Status.CANCELLED, state, space)

    async def _abandon(self, journal: Journal, lease: Lease) -> None:
        message = (
            f"run {lease.run_id!r} was taken over {lease.takeovers} times without writing anything: "
            "its owners died while they drove it."
        )
        error = ErrorInfo(type="RunAbandoned", message=message, code=RunAbandoned.code)
        await journal.flush(Trigger.ABANDONED, status=Status.ABANDONED, error=error, changes_status=True)
        raise RunAbandoned(message, fix="Find out what kills its owners, then: everstep resume")

    async def _journal_of(
        self, row: RunRow, folded: Rehydrated, plan: Plan, durability: Durability, lease: Lease
    ) -> Journal:
        identity = Identity(
            row.run_id, row.flow_id, row.flow_version, row.flow_hash, plan.blueprint, row.parent_run_id
        )
        journal = Journal(self._services, identity, durability, folded.state, folded.space)
        journal.head = folded.head
        journal.lease = lease
        journal.is_halted = row.status is Status.HALTED
        folded.state.gone.clear()
        journal.key_run = await self.key_run(row, folded.state)
        return journal

    async def key_run(self, row: RunRow, state: RunState) -> str:
        """Return the run whose id goes into idempotency keys."""
        if row.forked_at is None:
            return row.run_id
        # A fork that keeps its keys uses those of the run that its family began with.
        return state.key_run or (await self.lineage.root(row)).run_id

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
            if outcome.status is not Status.HALTED or outcome.spooled:
                return outcome
            tokens |= outcome.tokens
            tokens = {row.wait_id: tokens[row.wait_id] for row in outcome.waits if row.wait_id in tokens}
            taken = await self._taken_up_again(flow, outcome, tried, endures=ready.journal.endures)
            if not isinstance(taken, Ready):
                halted = taken or await self._halted(outcome, tokens)
                return halted._replace(tokens=tokens)
            ready = taken

    async def _taken_up_again(
        self, flow: Flow, halted: Outcome, tried: set[str], *, endures: bool
    ) -> Ready | Outcome | None:
        """Take up a run that halted, if an answer came while it did or it was cancelled; none if not."""
        run, now = await self.row(halted.run_id), self._services.time.now()
        ripe = {row.wait_id for row in halted.waits if row.is_ripe(now)}
        if run.signal is None and ripe <= tried:
            return None
        tried |= ripe
        try:
            claimed = await self._claimed(run, flow, reopens=False)
        except LeaseConflict:
            return None  # somebody else has seen it too
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
        run = RunContext(self._services, flow, journal, state, space)
        drive = Drive(run, self.shared)
        lease, driving = journal.lease, self._services.driving
        status: Status | None = None
        try:
            driving.add(drive)
            if lease is not None:
                ttl, outlives = flow.durability.lease_ttl, journal.outbox is not None
                self.keeper.hold(lease, ttl, drive, outlives_store=outlives)
                await self.keeper.confirm(lease)
            status = await drive.run()
        finally:
            try:
                await self._let_go(
                    lease, drive.threads() if status is None else (), is_over=status is not None
                )
            finally:
                driving.discard(drive)
        await call_off(self._services, journal.run_id, journal.closed, is_over=_ends_waits(status))
        spooled = await journal.empty_outbox()
        if status is Status.HALTED and not spooled:
            waits = tuple(await open_waits(self._services.store, journal.run_id))
            return Outcome(journal.run_id, status, state, space, waits=waits, tokens=drive.tokens)
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

    async def _let_go(self, lease: Lease | None, threads: Sequence[Future[None]], *, is_over: bool) -> None:
        if lease is None:
            return
        if threads:
            self.keeper.linger(lease, threads)
            return
        self.keeper.drop(lease)
        if not is_over:
            await self.release(lease)

    async def _waits_of(self, run_id: str) -> tuple[WaitRow, ...]:
        """Return what a run waits for whose last steps are kept here, as far as the store can be asked."""
        closed = {wait_id for commit in self._services.spool.of(run_id) for wait_id in commit.closed}
        rows: list[WaitRow] = []
        with suppress(StoreError):
            rows = await open_waits(self._services.store, run_id)
        return (*(row for row in rows if row.wait_id not in closed), *waits_here(self._services, run_id))

    async def release(self, lease: Lease) -> None:
        """Give the lease of an interrupted run back; if the store is in trouble it will expire by itself."""
        await give_back(self._services, self.keeper, lease)
        await self._services.ring(lease.run_id)

    async def claim(self, run_id: str, durability: Durability, *, waits: bool) -> Lease:
        """Get the right to drive a run, after what waits for it on this machine was written."""

        def tell(until: datetime) -> None:
            self._emit("lease_wait", run_id, {"until": until.isoformat()})

        if self._services.spool.has(run_id):
            await drain(self._services, run_id)  # before a claim makes it stale
        lease = await claim(self._services, self.keeper, run_id, durability, waits=waits, on_wait=tell)
        try:
            await self._services.take([run_id])
        except BaseException:
            await self.release(lease)
            raise
        return lease

    def _new_owner(self) -> str:
        owner = self._services.ids.new_id()
        return beside(owner) if self.keeper.is_busy else owner

    def _emit(self, kind: EventKind, run_id: str, data: dict[str, Any]) -> None:
        if self._services.listener is not None:
            event = Event(kind=kind, run_id=run_id, at=self._services.clock.now(), data=data)
            tell(self._services.listener, event)


def host_closed() -> HostClosed:
    return HostClosed(
        "the host was closed while it drove this run. What had finished is kept.",
        fix="Go on with resume, on another host.",
    )


def gone_on(row: RunRow, sequence: int) -> LeaseConflict:
    """Return what is told to whoever wants a run to go on from a checkpoint that it has left behind."""
    return LeaseConflict(
        f"run {row.run_id!r} has gone on from checkpoint {sequence}; it is at {row.checkpoints}.",
        fix=f"To go on from there as another run: everstep fork {row.run_id}@{sequence}",
    )


def _is_over(row: RunRow, start: str | None, *, reopens: bool) -> bool:
    """True if a run is not to go on, not even as one that failed and is reopened."""
    return start is None and row.status.is_final and not (reopens and row.status in _REOPENABLE)


def _ends_waits(status: Status) -> bool:
    return status in (Status.COMPLETED, Status.CANCELLED)
