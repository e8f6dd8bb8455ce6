"""Drive one run: start what is ready, record what finished, until nothing is active.

The drive is the run's only sequencer. While a put is in flight, running nodes go on; whatever they finish
rides in the next one. Flows inside the run are driven by the same loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from everstep.engine import decide
from everstep.engine.readiness import Place, starving, within_limits
from everstep.engine.scope import Scope
from everstep.errors import (
    DeadlineExceeded,
    EverstepError,
    HostClosed,
    LeaseLost,
    RunCancelled,
    StoreError,
    StoreUnavailable,
    ValueNotStorable,
)
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.graph.author.wait_options import Wait
from everstep.model.commits import StopRequest
from everstep.model.enums import Status, Trigger, ValueForm
from everstep.model.records import RESULT, UNDO, ErrorInfo, StepRecord
from everstep.on_demand import on_demand
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.finish import draft_asked, draft_outputs, step_of
from everstep.runtime.drive.flushing import LateFlush, Owing
from everstep.runtime.drive.invoke import Call, call_async, call_here, describe_error
from everstep.runtime.drive.midway import Midway
from everstep.runtime.drive.parallel import Beside
from everstep.runtime.drive.prepare import Preparer
from everstep.runtime.drive.rest import BREATH, PAUSE, Pauses, Rest
from everstep.runtime.drive.values import Slot, ValueOutOfReach, out_of_reach, write_aside

if TYPE_CHECKING:
    from everstep.engine.undo.stack import is_to_end
    from everstep.runtime.drive.children.starts import starts_of
    from everstep.runtime.drive.inbox import DriveInbox
    from everstep.runtime.drive.streams import Streams
    from everstep.runtime.drive.subflows import Inner
    from everstep.runtime.drive.timed.keeping import KeptTimes
    from everstep.runtime.drive.undo.undoer import Undoer
    from everstep.runtime.drive.units.calls import Units
    from everstep.runtime.guards.budgets import Guards
    from everstep.runtime.guards.permits import Permits
    from everstep.runtime.guards.shared_breakers import SharedBreakers
    from everstep.runtime.live.around import Surroundings
    from everstep.runtime.waits.open import DriveWaits
else:
    is_to_end = on_demand("everstep.engine.undo.stack:is_to_end")
    starts_of = on_demand("everstep.runtime.drive.children.starts:starts_of")
    Surroundings = on_demand("everstep.runtime.live.around:Surroundings")
    DriveInbox = on_demand("everstep.runtime.drive.inbox:DriveInbox")
    Streams = on_demand("everstep.runtime.drive.streams:Streams")
    Inner = on_demand("everstep.runtime.drive.subflows:Inner")
    KeptTimes = on_demand("everstep.runtime.drive.timed.keeping:KeptTimes")
    Units = on_demand("everstep.runtime.drive.units.calls:Units")
    Guards = on_demand("everstep.runtime.guards.budgets:Guards")
    Permits = on_demand("everstep.runtime.guards.permits:Permits")
    Undoer = on_demand("everstep.runtime.drive.undo.undoer:Undoer")
    DriveWaits = on_demand("everstep.runtime.waits.open:DriveWaits")


log = logging.getLogger("everstep")
_OF_ITS_OWN = (Trigger.MANUAL, Trigger.EXPENSIVE_OP, Trigger.GATE_DECISION)
Pending = Coroutine[Any, Any, None] | None
"""What is still to be awaited; none if all of it was done on the spot."""
_AT_ONCE = frozenset({*_OF_ITS_OWN, Trigger.AUTO})
"""Triggers of checkpoints that wait for no other step."""
_STEP, _COMPLETED = Trigger.STEP, Status.COMPLETED
_NO_TIME = timedelta()
_is_hidden = attrgetter("is_hidden")


class Drive:
    """One owner's work on one run, from where it stands to where it ends or stops."""

    paused: str | None = None
    """The mark that says since when the run is paused, and who wanted it, once this drive has heard."""
    _undo: Undoer | None = None
    """What undoes the run, once the records say that it undoes."""
    _times: KeptTimes | None = None
    """When the run begins, or is ended, if that is said."""
    undoes_always = False
    """True if a person wants the run undone, whatever its flow says."""

    def __init__(self, run: RunContext, shared: SharedBreakers | None = None) -> None:
        self._run = run
        self._services, self._clock, self._journal = run.services, run.clock, run.journal
        self._state, self._space = run.state, run.space
        self._policy, self._teller = run.policy, run.teller
        self._rest = Rest(run.clock, run.loop)
        self._pauses = Pauses(run.clock, run.services.time)
        self._late = LateFlush(run)
        self._owing = Owing(run, self._rest.wake)
        self._finished = self._rest.finished
        self._guards: Guards | None = None
        if run.flow.budgets or run.flow.breakers:
            self._guards = Guards(run, self._finished, shared)
        self._permits: Permits | None = (
            Permits(run) if run.flow.plan.has_limits and self._policy.writes else None
        )
        self._inbox: DriveInbox | None = DriveInbox(run) if run.flow.inbox else None
        self._midway = Midway(run, self._late, self._guards, self._owing.owe, Units)
        self._preparer = Preparer(run, self._midway, self._guards)
        self._beside = Beside(run, self._rest)
        self._read_plan(run.flow)
        self._around: Surroundings | None = None
        self._is_watched = self._teller.is_heard or run.journal.meter is not None
        """True if anybody wants to know that a call begins."""
        self._awaiting: asyncio.Task[Any] | None = None
        """The drive's own task while it awaits a lone node, and may be interrupted."""
        self._unread: ValueOutOfReach | None = None
        """What a call could not read that is to be made again."""
        self.failure: ErrorInfo | None = run.state.error
        """Why the run fails, once it does."""
        self.exception: BaseException | None = None
        """The live exception behind it, for the caller in this process."""
        if run.state.delay is not None or run.state.deadline is not None:
            self._times = KeptTimes(run)
        if run.state.undo is not None and run.state.undo.has_begun:
            self._turn_back()

    # What only some flows have is made, and loaded, when it is met.

    @cached_property
    def _streams(self) -> Streams:
        return Streams(self._run, self._note_chunks)

    def _begin_stream(self, call: Call) -> str | None:
        return self._streams.begin(call)

    @cached_property
    def _inner(self) -> Inner:
        return Inner(self._run, self._rest.finish, self._fail_with)

    @cached_property
    def _waiting(self) -> DriveWaits:
        waiting = DriveWaits(self._run)
        self._journal.waits, self._journal.on_opened = waiting.opened, waiting.tell
        return waiting

    @property
    def _has_waited(self) -> bool:
        return "_waiting" in vars(self)

    def _read_plan(self, flow: Flow) -> None:
        """Find out once what need not be looked at with every step of this flow."""
        plan = flow.plan
        self._has_inner = bool(plan.children)
        is_counted = flow.auto_checkpoint is not None and not self._policy.every_step
        has_asides = plan.children or plan.meetings or plan.has_asides or is_counted
        is_asked = self._state.waits or self._state.units
        is_guarded = self._guards or self._permits
        self._is_plain = not (has_asides or is_asked or self._teller.is_heard or is_guarded)
        """True if a step that succeeds means nothing beyond itself, as one that ends an old wait does."""
        self._may_act = self._policy.writes and plan.has_effects
        """True if a call may have an effect, before which the run must be durable."""
        self._max_steps = flow.max_steps
        self._is_unlimited = not (
            plan.children or plan.has_visit_limits or flow.max_visits or flow.max_concurrency
        )

    async def run(self) -> Status:
        """Go on until the run has ended; returns its final status."""
        self._state.look_around()
        status: Status | None = None
        try:
            while status is None:  # it ends at once, or goes on undoing
                try:
                    if self._undo is None:
                        if self._state.opened:
                            await self._take_up()
                        if self._guards is not None:
                            self._guards.declare(self._beside.calls)
                        if self._run.flow.starts and self._state.units and not self._journal.is_halted:
                            await self._recall_starts()
                    await self._advance()
                    status = await self._end()
                except asyncio.CancelledError:
                    await self._undo_or_raise(self._why_interrupted())
                except RunCancelled as cancelled:
                    await self._undo_or_raise(cancelled)
                except DeadlineExceeded as late:
                    await self._expire(late)
            if self._has_waited:
                await self._waiting.finish()
            return status
        except (KeyboardInterrupt, SystemExit, HostClosed, asyncio.CancelledError):
            await self._keep_finished()
            raise
        except LeaseLost as lost:
            if "ran_out" in lost.details:  # perhaps no other has the run, and what is put is fenced
                await self._keep_finished()
            raise
        except RunCancelled as cancelled:
            await self._beside.stop()
            await self._take_in()
            if self._journal.starts is not None:
                await self._journal.starts.at_rest()
            if "by_node" in cancelled.details:
                self.failure = describe_error(cancelled)
            await self._journal.call_off(self.failure)
            return Status.CANCELLED
        except StoreUnavailable:
            self._tell_dropped()
            raise
        finally:
            self._midway.close()
            self._late.close()
            if self._permits is not None:
                await self._permits.close()
            if self._has_waited:
                self._waiting.close()
            await self._beside.stop()

    def _why_interrupted(self) -> BaseException | None:
        """Return why the drive was to stop, if its task was cancelled for that and for nothing else."""
        task, stop = asyncio.current_task(), self._rest.stop
        if stop is None or stop is BREATH or stop is PAUSE or (task is not None and task.uncancel() > 0):
            return None
        return stop

    def _tell_dropped(self) -> None:
        """Say what is under way and will not be kept, as the store was waited for in vain."""
        calls = [call for call in self._beside.calls.values() if call.node.is_effectful]
        if calls:
            names = ", ".join(sorted(call.path for call in calls))
            log.warning("run %r is let go, and what %s does is not kept.", self._run.run_id, names)

    async def _recall_starts(self) -> None:
        """Admit the runs that an owner has recorded as started, and that it may have died before."""
        starts = starts_of(self._run)
        await self._journal.persist(partial(self._services.system.to_thread, starts.recall))
        await starts.pay()

    async def run_surrounded(self) -> Status:
        """Do the same, with what was asked for around the code of nodes: logs, log lines that say where from,
        spans."""
        is_logged = self._run.flow.logs and self._journal.lease is not None
        logs = self._services.live.logs() if is_logged else None
        self._around = Surroundings(self._journal, logs)
        self._is_watched = True
        return await self._around.during(self.run)

    def stop(self, reason: EverstepError) -> None:
        """Ask the drive to stop, from any thread: the lease is lost, or the run was cancelled."""
        self._rest.stop = reason
        self._from_anywhere(self._interrupt)

    @property
    def lane(self) -> tuple[str, str | None]:
        """The flow and the group of the run."""
        return self._run.flow.name, self._journal.group

    def pause(self, mark: str) -> None:
        """Start nothing more, and let go of the run once what is under way is recorded; from any thread."""
        if self.paused is None:
            self.paused = mark
            self._midway.pause()
            if self._rest.stop is None or self._rest.stop is BREATH:
                self._rest.stop = PAUSE
            self._from_anywhere(self._rest.wake)

    def check_sent(self, name: str, value: Any) -> None:
        """Refuse a signal that its flow takes in and that fits not."""
        if self._inbox is not None:
            self._inbox.check(name, value)

    def nudge(self) -> None:
        """Look for answers soon; may be called from any thread."""
        if self._has_waited:
            self._waiting.nudge()
        if self._inbox is not None:
            self._inbox.nudge()
        self._from_anywhere(self._rest.wake)

    def _from_anywhere(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so the drive is over
            self._run.loop.call_soon_threadsafe(act)

    def threads(self) -> list[Future[None]]:
        """Return the effects that are still made on threads, once it was stopped."""
        return self._beside.left()

    @property
    def tokens(self) -> dict[str, str]:
        """The tokens of the waits that this drive opened."""
        return self._waiting.tokens

    def breathe(self) -> None:
        """Let the loop have its turn before the next step, so that who cancels is heard; from any thread."""
        if self._rest.stop is None:
            self._rest.stop = BREATH

    async def _heed(self, stop: BaseException) -> None:
        if stop is not BREATH and stop is not PAUSE:
            raise stop
        self._rest.stop = None
        if stop is BREATH:
            await asyncio.sleep(0)

    def _interrupt(self) -> None:
        self._rest.wake()
        is_heeded = self._rest.stop is None  # as when a run that was cancelled undoes by now
        if self._awaiting is not None and not (is_heeded or self._must_report()):
            self._awaiting.cancel()

    # -- undoing ------------------------------------------------------------------------------------------

    def _turn_back(self) -> None:
        """Go forward no more: from here on what the run did is undone, by the last one first."""
        self._undo = Undoer(self._run, self._preparer, self._pauses)
        self._midway.pause()  # what nodes have not begun is not begun any more
        self.failure, self._inbox, self._times = None, None, None
        self._is_plain, self._may_act = False, True
        if self._guards is not None:
            self._guards.stand_down()

    def _may_undo(self, ends: Status) -> bool:
        """True if a run that is about to end like this is undone before."""
        undo, when = self._state.undo, self._run.flow.undo
        if undo is None or not self._policy.writes:
            return False
        said = {Status.FAILED: "failure", Status.CANCELLED: "cancel"}
        return self.undoes_always or when in ("both", "ask", said[ends])

    def _must_report(self) -> bool:
        """True if a run was cancelled, and what it awaits is to end before it is undone."""
        call = self._midway.alone
        if call is None or not isinstance(self._rest.stop, RunCancelled):
            return False
        # Whether a person wants it undone, whatever its flow says, is not known yet.
        may_undo = self._state.undo is not None and self._policy.writes
        return self._undo is not None or (may_undo and _reports(call))

    async def _undo_or_raise(self, stop: BaseException | None) -> None:
        """Begin to undo if a run was cancelled that is undone; else raise why the drive stops."""
        if not (isinstance(stop, RunCancelled) and await self._is_to_be_undone()):
            if stop is None:
                raise
            raise stop from None
        self._rest.stop = None
        if self._undo is not None:  # it is told once more
            undo = self._state.undo
            if undo is not None and undo.asks and self.undoes_always:
                self.failure = undo.error
                await self._begin_undo(Status(undo.ends))  # a person wants it, and no other is asked any more
                return
            self._journal.undoing = None
            await self._owing.flush(Trigger.UNDO)
            self._keep_lease()
            return
        self.failure = describe_error(stop) if "by_node" in stop.details else None
        self.exception = None
        for place, call in tuple(self._beside.calls.items()):
            if not _reports(call):
                self._drop(*place)
        await self._take_in()
        await self._journal.stop_for_good()
        await self._begin_undo(Status.CANCELLED)

    async def _expire(self, late: DeadlineExceeded) -> None:
        """Fail as the deadline has come. What is to be undone is awaited first, as of a cancelled run."""
        self.failure, self.exception = describe_error(late), late
        is_undone = self._state.undo is not None and self._may_undo(Status.FAILED)
        for place, call in tuple(self._beside.calls.items()):
            if not (is_undone and _reports(call)):
                self._drop(*place)
        await self._take_in()
        assert self._times is not None
        self._times.exceed(self.failure)

    async def _is_to_be_undone(self) -> bool:
        """True if a run that was cancelled undoes what it did, as its flow says or as a person wants."""
        undo = self._state.undo
        if undo is None or not self._policy.writes or (self._undo is not None and not undo.asks):
            return self._undo is not None
        row = await self._journal.persist(partial(self._services.store.run, self._run.run_id))
        self.undoes_always = row is not None and row.stop_request is StopRequest.UNDO
        return self._undo is not None or self._may_undo(Status.CANCELLED)

    async def _begin_undo(self, ends: Status) -> None:
        """Have the records say that the run undoes, before anything is undone."""
        asks = ("ask",) if self._run.flow.undo == "ask" and not self.undoes_always else ()
        step = StepRecord(
            path=UNDO, decision=(ends.value, *asks), error=self.failure, ended_at=self._clock.now()
        )
        self._journal.add(step, ())
        self._turn_back()
        await self._owing.flush(Trigger.UNDO)
        self._keep_lease()

    def _keep_lease(self) -> None:
        """Have the lease renewed again: who renews it lets go of a run that is told to stop."""
        keeper, lease = self._services.keeper, self._journal.lease
        if keeper is not None and lease is not None:
            outlives = self._journal.outbox is not None
            keeper.hold(lease, self._run.flow.durability.lease_ttl, self, outlives_store=outlives)

    async def _end_undone(self) -> Status:
        """Let the run end as it would have, once all is undone; or let go of it until a person answers."""
        undo, journal = self._state.undo, self._journal
        assert undo is not None
        if self._owing.has_news:
            await self._owing.pay()
        if not undo.is_over and self.paused is not None:
            if journal.steps:
                await self._owing.flush(Trigger.INTERRUPTED)
            return Status.RUNNING
        if not undo.is_over:
            await self._owing.halt(self._services.store)
            return Status.HALTED
        self.failure = undo.error
        return await journal.end_undone()

    async def _advance(self) -> None:
        """Start and record steps until nothing is active, or a step fails for good."""
        state, rest = self._state, self._rest
        while self.failure is None:
            if rest.stop is not None:
                await self._heed(rest.stop)
                if self.paused is not None:
                    await self._wind_down()
                    return
            if self._times is not None and not await self._times.look():
                return
            if self._unread is not None:
                await self._until_readable(self._unread)
            if self._guards is not None and self._guards.is_shared:
                await self._guards.look()
            if self._inbox is not None and self._inbox.has_news():
                await self._take_signals(self._inbox)
                if self.failure is not None:
                    break
            try:
                ready = self._pick()
            except ValueOutOfReach as unread:  # what a map goes over
                self._unread = unread
                continue
            if self._has_inner and self._inner.unkept:
                await self._keep_items()
                continue
            if self._permits is not None and await self._permits.look():
                continue
            if self._owing.trigger is not None and (
                ready or self._beside.calls or state.next_retry() is not None
            ):
                await self._owing.pay()
            if ready:
                is_alone = len(ready) == 1 and not self._beside.calls and not self._finished
                if is_alone and not state.waits:  # a call on this thread keeps answers waiting
                    if (running := self._run_alone(*ready[0])) is not None:
                        await running
                else:
                    await self._start_together(ready)
                    if len(self._beside.calls) > 1 or not self._finished:
                        await self._wait(None)
            elif self._finished:
                pass
            elif self._permits is not None and self._permits.until is not None:
                await self._wait(self._permits.sooner(state.next_retry()))
            elif self._beside.calls or self._beside.overdue or state.next_retry() is not None:
                await self._wait(state.next_retry())
            elif state.waits:
                if not await self._take_answers():
                    break
            elif not self._unstick():
                break
            if state.waits and self._waiting.is_time():
                await self._take_answers()
            if self._finished and (writing := self._absorb()) is not None:
                await writing

    async def _wind_down(self) -> None:
        """Await and record what is under way. Nothing starts but what an atomic flow needs to end."""
        while self.failure is None:
            if self._rest.stop is not None:
                await self._heed(self._rest.stop)
            if self._has_inner and self._inner.unkept:
                await self._keep_items()
                continue
            ready = self._inside_atomic() if self._has_inner else []
            if ready:
                await self._start_together(ready)
            until = self._next_atomic_retry() if self._has_inner else None
            if not self._finished and (self._beside.calls or until is not None):
                if self._owing.trigger is not None and self._beside.calls:
                    await self._owing.pay()
                await self._wait(until)
            if not self._finished and not self._beside.calls and until is None:
                return
            if self._finished and (writing := self._absorb()) is not None:
                await writing

    def _inside_atomic(self, wanted: Callable[[Scope], bool] = _is_hidden) -> list[Place]:
        """Return what may start inside atomic flows under way: nothing of what they did is recorded yet."""
        while True:
            self._inner.refill(is_hidden=True)
            found = [place for place in self._state.startable(self._pauses.now) if wanted(place[0])]
            if self._beside.overdue:
                found = self._beside.apart_from_overdue(found)
            opening = [(scope, i) for scope, i in found if i in scope.plan.children]
            if not opening or self.failure is not None:
                return found
            for scope, i in opening:
                self._open(scope, i)

    def _next_atomic_retry(self) -> datetime | None:
        hidden = [scope for scope in self._state.scopes() if scope.is_hidden and scope.error is None]
        return min((at for scope in hidden for at in scope.retry_at.values()), default=None)

    def _is_left(self) -> bool:
        """True if a run that is paused has more to do than to wait for answers."""
        state = self._state
        if not (state.due or state.opened):
            return False
        if not state.waits:
            return True
        scopes = list(state.scopes())
        is_due = any(i not in s.waiting and i not in s.opened for s in scopes for i in s.due)
        return is_due or any(visit.next < visit.count for _, _, visit in state.fans())

    async def _take_up(self) -> None:
        """Go on with the flows that were open when the records end, once what their maps go over is read."""
        while True:
            try:
                self._inner.read_lists()
            except ValueOutOfReach as unread:
                await self._until_readable(unread)
            else:
                break
        self._inner.take_up()

    async def _keep_items(self) -> None:
        """Wait until what atomic items gave can be kept, for as long as this drive waits for a store."""
        self._awaiting = asyncio.current_task()
        try:
            while self._inner.unkept:
                scope, failed = self._inner.unkept.pop()
                await self._journal.persist(partial(self._inner.end_again, scope), failed=failed)
        finally:
            self._awaiting = None

    async def _take_signals(self, inbox: DriveInbox) -> None:
        """Take what came, for as long as this drive waits for a store: what was done is not dropped."""
        self._awaiting = asyncio.current_task()
        try:
            await (inbox.take() if self._journal.outbox is not None else self._journal.persist(inbox.take))
        except StoreError:
            if self._journal.outbox is None:
                raise
        except EverstepError as error:  # what was sent does not fit the value that it is for
            self._fail(error)
        finally:
            self._awaiting = None

    async def _until_readable(self, unread: ValueOutOfReach) -> None:
        """Wait for a value as long as this drive waits for a store, then give up, and keep what was done."""
        self._unread, self._awaiting = None, asyncio.current_task()
        try:
            await self._read_again(unread)
        except StoreUnavailable:
            await self._keep_finished()  # the records may be elsewhere, and in reach
            raise
        finally:
            self._awaiting = None

    async def _read_again(self, unread: ValueOutOfReach) -> None:
        read = partial(self._services.system.to_thread, unread.read_again)
        await self._journal.persist(read, failed=unread)

    async def _take_answers(self) -> bool:
        """Let the visits whose waits are settled go on; false if there are none."""
        is_at_stake = bool(self._beside.calls or self._finished or self._journal.steps)
        self._awaiting = asyncio.current_task()
        try:
            calls = await self._waiting.answers(is_at_stake=is_at_stake and self._journal.outbox is None)
        except StoreError:
            if self._journal.outbox is None:
                raise
            return False
        finally:
            self._awaiting = None
        for call in calls:
            call.scope.hold()
            self._finished.append(call)
        return bool(calls)

    def _pick(self) -> list[Place]:
        """Choose what to start now, within the limits of each flow; inner flows are opened on the way."""
        state, beside = self._state, self._beside
        if self._undo is not None:
            return self._pick_undo(self._undo)
        while True:
            if self._has_inner and self._inner.fans:
                self._inner.refill()
            ready = state.startable(self._pauses.now)
            if not ready:
                if beside.calls or self._finished or state.next_retry() is not None:
                    return ready
                ready = state.stuck()
            if beside.overdue:
                ready = beside.apart_from_overdue(ready)
            if self._permits is not None:
                ready = self._permits.allowed(ready, self._run.flow.max_concurrency, len(beside.calls))
            if not self._is_unlimited or state.steps + len(ready) > self._max_steps:
                ready = self._within_limits(ready)
                if self.failure is not None:
                    return []
            if self._guards is not None:
                ready = self._guards.allowed(ready)
            if not self._has_inner or all(i not in scope.plan.children for scope, i in ready):
                return ready
            for scope, i in ready:
                if i in scope.plan.children:
                    self._open(scope, i)
            if self.failure is not None:
                return []

    def _pick_undo(self, undo: Undoer) -> list[Place]:
        """Choose what to start of a run that undoes; an atomic flow to be undone comes to its end first."""
        if self._has_inner:
            self._inner.go_on_inside()
        inside = self._inside_atomic(is_to_end) if self._has_inner else []
        is_busy = bool(self._beside.calls or self._finished or inside)
        is_busy = is_busy or (self._has_inner and any(map(is_to_end, self._state.scopes())))
        ready = undo.pick(self._beside, is_busy=is_busy)
        flows = [(scope, i) for scope, i in ready if i in scope.plan.children]
        if not flows:
            return [*inside, *ready]
        for scope, i in flows:
            self._inner.fill(scope)
            self._open(scope, i)
        return [*self._inside_atomic(is_to_end), *(place for place in ready if place not in flows)]

    def _open(self, scope: Scope, i: int) -> None:
        call = self._preparer.held(scope, i) if self._guards is not None else None
        scope.begin(i)
        try:
            error = self._inner.open(scope, i) if call is None else None
        except ValueOutOfReach:
            scope.running.discard(i)
            raise
        if self._journal.meter is not None:
            self._journal.meter.step_began(scope.path_of(i))
        if error is not None:
            call = self._preparer.failed_call(scope, i, error)
        if call is not None:
            call.started_at = self._clock.now()
            scope.hold()
            self._rest.finish(call)

    def _within_limits(self, ready: list[Place]) -> list[Place]:
        """Leave out what would be too much at once; fail a flow that has gone too far."""
        allowed, broken = within_limits(ready, self._run.flow.max_concurrency, len(self._beside.calls))
        if broken is not None:
            self._fail_in(*broken)
        return allowed

    def _unstick(self) -> bool:
        """Nothing runs and nothing may start: a flow that waits for a value in vain fails."""
        if not (self._state.due or self._state.opened):
            return False
        scopes = self._state.scopes()
        found = starving(scopes if self._undo is None else filter(is_to_end, scopes))
        if found is not None:
            self._fail_in(*found)
        return found is not None

    def _fail_in(self, scope: Scope, error: EverstepError) -> None:
        if scope.parent is None:
            self._fail(error)
        else:
            self._inner.fail(scope, describe_error(error))

    def _fail(self, error: BaseException) -> None:
        if self.failure is None and self._undo is None:
            self.failure = describe_error(error)
            self.exception = error

    def _fail_with(self, error: ErrorInfo) -> None:
        if self.failure is None and self._undo is None:  # else it ends as it was to end
            self.failure = error

    async def _end(self) -> Status | None:
        """Record what still runs, then write the last checkpoint; none if the run is undone first."""
        while self._beside.calls or self._finished:
            if self._rest.stop is not None:
                await self._heed(self._rest.stop)
            if self._owing.trigger is not None and self._beside.calls:
                await self._owing.pay()
            await self._wait(None)
            if (writing := self._absorb()) is not None:
                await writing
        if self._undo is not None:
            return await self._end_undone()
        if self._owing.has_news:
            await self._owing.pay()
        if self._journal.starts is not None and self._journal.starts.owes:
            await self._start_owed()
        if self.failure is not None and self._state.undo is not None and self._may_undo(Status.FAILED):
            await self._begin_undo(Status.FAILED)
            return None
        if self._teller.outlet is not None:
            await self._teller.outlet.settle()  # those who see that it has ended have seen what it emitted
        if self.paused is not None and self.failure is None and self._is_left():
            if self._journal.steps:
                await self._owing.flush(Trigger.INTERRUPTED)
            return Status.RUNNING
        if self.failure is None and (self._state.waits or self._state.delay is not None):
            await self._owing.halt(self._services.store)
            return Status.HALTED
        if self._times is not None and self.failure is not None:
            self._journal.lift_deadline()
        ended = (Trigger.FAILED, Status.FAILED) if self.failure else (Trigger.COMPLETED, Status.COMPLETED)
        pending = self._journal.flush_soon(ended[0], status=ended[1], error=self.failure, changes_status=True)
        if pending is not None:
            await pending
        return ended[1]

    async def _keep_finished(self) -> None:
        """Write what has finished before an interrupted process lets go of the run, if the store lets us."""
        await self._beside.stop()
        self._journal.endures = False  # an interrupt does not wait for the store
        try:
            await self._take_in()
            if self._journal.steps:
                await self._journal.flush(Trigger.INTERRUPTED)
        except EverstepError as error:
            log.warning(
                "run %r was interrupted, and its last steps were not kept: %s", self._journal.run_id, error
            )

    # -- starting -----------------------------------------------------------------------------------------

    async def _start_together(self, ready: list[Place]) -> None:
        """Start what is ready, beside each other."""
        calls: list[Call] = []
        for scope, i in ready:
            if self._guards is None or not self._guards.holds(scope, i, calls):
                call = self._preparer.at_once(scope, i) or await self._prepare(scope, i)
                scope.start(i)
                calls.append(call)
        if self._may_act:
            await self._secure(calls)
        for call in calls:
            call.started_at = self._clock.now()
            if self._is_watched:
                self._note_start(call)
            self._beside.start(call)
        self._beside.go()

    async def _prepare(self, scope: Scope, i: int) -> Call:
        """Prepare a call that takes more than its arguments."""
        if self._undo is not None and (call := await self._undo.prepare(scope, i)) is not None:
            return call
        return await self._preparer.prepare(scope, i, self._begin_stream)

    async def _secure(self, calls: list[Call]) -> None:
        """Make durable what led to the effects among these calls, and their announcements, in one put.

        An effect is then only ever repeated with the same inputs and the same key. What is buffered of flows
        that were merely opened follows from what is durable, and may wait.
        """
        is_owed = self._preparer.has_announced or (self._has_inner and self._inner.has_announced)
        if not is_owed and self._journal.has_ended_steps:
            is_owed = any(
                recorded_node(call.scope, call.node).acts_in_call
                for call in calls
                if call.error is None and call.asks is None
            )
        if is_owed:
            self._preparer.has_announced = False
            if self._has_inner:
                self._inner.has_announced = False
            self._owing.owe(Trigger.BEFORE_EFFECT)
            await self._owing.pay()

    # What follows does its work on the spot if nothing has to be waited for, else returns what to await: to
    # await what does not wait costs a step as much as a few calls.

    def _run_alone(self, scope: Scope, i: int) -> Pending:
        """Run the only ready node with as few detours as its kind allows."""
        call = self._preparer.at_once(scope, i)
        if call is None or self._may_act:
            return self._run_prepared(scope, i, call)
        scope.start(i)
        return self._run_call(call)

    async def _run_prepared(self, scope: Scope, i: int, call: Call | None) -> None:
        """Run a node before which there is more to do than to gather what it reads."""
        call = call or await self._prepare(scope, i)
        scope.start(i)
        if self._may_act:
            await self._secure([call])
        if (running := self._run_call(call)) is not None:
            await running

    def _note_start(self, call: Call) -> None:
        """Let those who watch know that a call begins."""
        if self._around is not None:
            call.around = self._around.of(call)
        if self._teller.is_heard:
            self._teller.step_started(call)
        if self._journal.meter is not None:
            self._journal.meter.step_began(call.path)

    def _run_call(self, call: Call) -> Pending:
        call.started_at = self._clock.now()
        if self._is_watched:
            self._note_start(call)
        if call.error is not None or call.asks is not None:
            self._rest.finish(call)
        elif call.context is None and not call.node.is_async:
            # Nothing else happens while it holds the loop. One that may yet ask for its context can say
            # something only then, and that has to be written on the spot.
            may_say = call.opens is not None
            if (
                call.stream is not None
                or call.node.timeout
                or call.node.limit  # its place is kept by a task on the loop
                or not self._services.may_hold_loop
                or self._times is not None  # which may end it
                or (may_say and not self._midway.may_write)
            ):
                return self._run_beside(call)
            if may_say:
                self._call_marked(call)
            else:
                self._call_here(call)
        else:
            return self._make_alone(call)
        return None

    def _call_marked(self, call: Call) -> None:
        """Call a sync node on this thread that is given its context if it asks for that."""
        midway = self._midway
        midway.alone = call
        try:
            self._call_here(call)
        finally:
            midway.alone = None
            if call.context is not None:  # else none of its threads can be writing
                midway.go_on()
        if midway.gave_up is not None:
            raise midway.gave_up

    async def _make_alone(self, call: Call) -> None:
        self._midway.alone = call
        is_stopped = True
        try:
            await self._make(call)
            is_stopped = False
        finally:
            self._midway.go_on()
            if self._midway.late_writing is not None:
                await self._settle(is_stopped=is_stopped)
        if self._midway.gave_up is not None:
            raise self._midway.gave_up

    async def _settle(self, *, is_stopped: bool) -> None:
        """Let what a node said come to the store, unless this drive is stopped."""
        self._awaiting = asyncio.current_task()
        try:
            await self._midway.settle(is_stopped=is_stopped)
        finally:
            self._awaiting = None

    async def _make(self, call: Call) -> None:
        """Make a call that is async or may spend."""
        node = call.node
        if call.stream is not None or self._times is not None or not self._midway.may_run_alone(call):
            await self._run_beside(call)
        elif node.is_async and not (self._policy.has_deadline and self._journal.steps):
            self._awaiting = self._midway.own_task = asyncio.current_task()
            try:
                await call_async(call, self._teller.chunks(call))
            finally:
                self._awaiting = None
            self._rest.finish(call)
        elif node.is_async or node.timeout or not self._services.may_hold_loop:
            await self._run_beside(call)
        else:
            self._call_here(call)

    def _call_here(self, call: Call) -> None:
        """Call a sync node on this thread. Steps that get too old meanwhile are written by another."""
        on_chunk = self._teller.chunks(call) if self._teller.is_streamed else None
        if self._policy.has_deadline and self._journal.steps:
            with self._late:
                call_here(call, on_chunk)
        else:
            call_here(call, on_chunk)
        call.ended_at = self._clock.now()
        self._finished.append(call)

    async def _run_beside(self, call: Call) -> None:
        self._midway.alone = None
        self._beside.start(call)
        self._beside.go()
        await self._wait(None)

    def _note_chunks(self, call: Call, step: StepRecord, drafts: tuple[Slot, ...]) -> None:
        """Buffer what a stream has yielded, to be written soon."""
        self._inner.note(call.scope, step, drafts)
        self._owing.owe(Trigger.INTERVAL)

    async def _wait(self, until: datetime | None) -> None:
        """Sleep until a node finishes, a pause ends, or buffered steps have waited long enough."""
        is_busy = False
        if self._times is not None and self.failure is None:
            until, is_busy = self._times.sooner(until, bool(self._beside.calls))
        if until is not None:
            await self._services.time.hear()  # another machine, with another clock, may have begun the pause
        # Answers that come once it winds down are for who goes on: it would wake for them without end.
        listens = self._state.waits and self.failure is None and self.paused is None
        has_news = listens and self._waiting.is_nudged
        is_owed = self._owing.trigger is not None and self._beside.calls
        if self._finished or self._rest.stop is not None or has_news or is_owed:
            return
        pause = None
        if until is not None:
            pause, until = self._pauses.note(until), self._services.time.here(until)
        seconds, looks = self._late.seconds_left(), None
        if listens:
            due = self._waiting.next_due()
            if due is not None:
                due = self._services.time.here(due)
                if until is None or due < until:
                    until, is_busy = due, bool(self._beside.calls)
            looks = self._waiting.looks_every
        patience = min((s for s in (seconds, looks) if s is not None), default=None)
        if await self._rest.sleep(until, patience, pause, is_busy=is_busy) and patience == seconds:
            await self._journal.flush(Trigger.INTERVAL)

    # -- recording ----------------------------------------------------------------------------------------

    def _absorb(self) -> Pending:
        """Record every finished call, and write if the policy says so."""
        finished, journal, policy = self._finished, self._journal, self._policy
        trigger: Trigger | None = None
        if self._is_plain:
            while finished and self._take_plain(finished[0]):
                call = finished.popleft()
                wanted = _STEP if policy.every_step else self._wanted(call, _COMPLETED, asked=False)
                trigger = trigger or wanted
                if finished and policy.is_full(len(journal.steps), journal.size):
                    break
        return self._absorb_others(trigger) if finished else self._write(trigger)

    async def _absorb_others(self, trigger: Trigger | None) -> None:
        """Record the finished calls that take more."""
        trigger = await self._take_in(trigger)
        if (writing := self._write(trigger)) is not None:
            await writing

    def _write(self, trigger: Trigger | None) -> Pending:
        """Write what was recorded, if there is a reason."""
        # The last put also says that the run has ended, so what is left for it waits for `_end`.
        goes_on = (
            self._beside.calls or (self._state.active and self.failure is None) or self._undo is not None
        )
        if trigger is not None and goes_on and self._journal.steps:
            if self._state.waits and not self._beside.calls:
                self._owing.owe(trigger)  # perhaps nothing else can start, and the put that halts will do
            elif self._owing.trigger is not None:
                return self._owing.flush(trigger)
            else:
                return self._journal.flush_soon(trigger)
        return None

    async def _take_in(self, trigger: Trigger | None = None) -> Trigger | None:
        """Buffer the steps of all finished calls; returns why to write them, if at all.

        A checkpoint that a node asked for is written at once, with its metadata.
        """
        while self._finished:
            if self._policy.is_full(len(self._journal.steps), self._journal.size):
                await self._owing.flush(Trigger.INTERVAL)
            call = self._finished.popleft()
            if self._is_plain and call.drafts is None and self._take_plain(call):
                wanted = _STEP if self._policy.every_step else self._wanted(call, _COMPLETED, asked=False)
            elif (drafts := await self._given_by(call)) is None:
                continue
            else:
                wanted = self._record(call, drafts)
            if call.news is not None or wanted in _AT_ONCE:
                await self._write_at_once(call, wanted)
            else:
                trigger = trigger or wanted
            if self._guards is not None and (news := await self._guards.share()) is not None:
                await self._owing.flush(*news)
        return trigger

    async def _write_at_once(self, call: Call, wanted: Trigger | None) -> None:
        """Write what a guard, a node or the flow wants to have as a checkpoint of its own."""
        if call.news is not None:
            await self._owing.flush(*call.news)
        if wanted in _OF_ITS_OWN:
            await self._owing.flush(call.trigger(wanted), call.checkpoint_metadata())
        elif wanted is Trigger.AUTO and call.news is None:
            await self._owing.flush(wanted, {"auto": True})

    def _take_plain(self, call: Call) -> bool:
        """Record a call that succeeded and asked for nothing, in a run where a step means no more than that.

        False if it is no such call, or has values to be written aside first.
        """
        if call.error is not None or call.context is not None or call.task is not None or call.is_dropped:
            return False
        node, scope, i = call.node, call.scope, call.index
        if len(node.outputs) == 1 and not node.is_gate and not isinstance(call.returned, Wait):
            try:
                drafts: tuple[Slot, ...] = (
                    self._space.draft(scope, node.outputs[0], call.returned, node.persist),
                )
            except ValueNotStorable:
                return False  # whether that matters is found out where calls fail
        else:
            drafts = draft_outputs(call, self._space)
            if call.error is not None:
                return False
            if len(drafts) > 1:
                self._space.fit(drafts, self._services.record_bytes)
        writes = []
        for draft in drafts:
            if draft.spill is not None:
                call.drafts = drafts
                return False
            writes.append(draft.written)
        scope.busy -= 1
        step = StepRecord(
            path=scope.plan.paths[i],
            visit=call.visit,
            attempts=call.attempt,
            reads=call.reads,
            writes=tuple(writes),
            decision=call.decision,
            key=call.key,
            started_at=call.started_at,
            ended_at=call.ended_at,
        )
        self._journal.add_plain(step, i, drafts)
        return True

    async def _given_by(self, call: Call) -> tuple[Slot, ...] | None:
        """Return what a finished call gave, encoded, large values written aside; none if it is dropped."""
        if self._journal.starts is not None and self._journal.starts.owes:
            await self._start_owed(call)
        if call.error is not None or (not self._is_plain and (call.node.halts or call.asks is not None)):
            time = self._services.time
            await time.hear()  # what it waits for may be due some time from now
            if time.is_missing:
                await self._journal.ask_time()
            if (call.asks or call.returned).__class__ is Wait and (call.asks or call.returned).not_by_starter:
                await self._waiting.learn_starters()
        try:
            drafts = self._read(call)
        except ValueOutOfReach as unread:  # it changes a value of the channel that lies aside
            call.scope.hold()
            await self._read_again(unread)
            return await self._given_by(call)
        if drafts is None:
            return None
        if len(drafts) > 1:
            self._space.fit(drafts, self._services.record_bytes)
        for draft in drafts:
            if draft.spill is not None:
                return drafts if await self._put_aside(call, drafts) else ()
        return drafts

    async def _start_owed(self, call: Call | None = None) -> None:
        """See to it that all runs are there that were recorded as started: no one looks for them later."""
        assert self._journal.starts is not None
        try:
            await self._journal.starts.pay()
        except (StoreError, LeaseLost, RunCancelled):
            raise
        except EverstepError as error:
            if call is None:
                self._fail(error)
            elif call.error is None and call.asks is None:
                call.error = error

    def _read(self, call: Call) -> tuple[Slot, ...] | None:
        """Read a finished call's answer and encode what it gave; none if it is dropped or called off."""
        scope = call.scope
        if scope.parent is None:
            scope.busy -= 1
        else:
            scope.let_go()
        may_be_off = scope.parent is not None or scope.plan.meetings
        if call.is_dropped or (may_be_off and not scope.awaits(call.index)):
            self._run.desk.release(call)
            return None
        if call.is_held:
            self._leave_unmade(call)
            return None
        if call.error is not None and self._space.was_out_of_reach and not scope.ended:
            unread = out_of_reach(call.error, self._space)
            if unread is not None:
                self._unread = unread
                self._leave_unmade(call)
                return None
        if self._undo is not None:
            self._undo.judge(call)
        if call.error is not None and isinstance(call.error, RunCancelled) and call.context is not None:
            reason = describe_error(call.error)
            self._inner.note(scope, decide.cancelled(scope, call.index, reason=reason, now=call.ended_at), ())
            raise call.error
        asked = call.asks or (call.returned if call.node.halts else None)
        if call.error is None and isinstance(asked, Wait):
            if scope.ended:  # no wait is opened for a flow that is over
                step = decide.cancelled(scope, call.index, reason=None, now=call.ended_at)
                self._inner.note(scope, step, ())
                return None
            return self._waiting.open(call, asked, self._run.desk)
        if call.is_again:
            return ()
        if call.settled is not None:
            return (self._space.change(RESULT, 1, call.settled, ValueForm.WHOLE),)
        if call.stream is not None and call.error is not None:
            self._streams.keep_rest(call)
        drafts = draft_outputs(call, self._space) if call.drafts is None else call.drafts
        if call.context is not None:
            changes = draft_asked(call, self._space, self._state, self._run.desk)
            drafts = drafts + changes if call.error is None else changes
        return drafts

    def _leave_unmade(self, call: Call) -> None:
        """Leave a node as one that never reported: it is called again, with the same key and inputs."""
        if call.stream is not None:
            self._streams.keep_rest(call)
        self._run.desk.release(call)
        call.scope.running.discard(call.index)
        around: Scope | None = call.scope
        while around is not None:
            if around.error is not None:  # it failed meanwhile, and waited only for this call to end
                self._inner.end_if_at_rest(around)
            around = around.parent

    async def _put_aside(self, call: Call, drafts: tuple[Slot, ...]) -> bool:
        """Keep the large values of a call as artifacts; false if one is too large and fails it."""
        is_alone = not self._beside.calls and self._services.committer.drives <= 1
        try:
            for draft in drafts:
                if draft.spill is not None:
                    await write_aside(
                        self._services, self._space, draft, is_alone=is_alone, persist=self._journal.persist
                    )
        except ValueNotStorable as error:
            call.error, call.queued, call.goto = error, (), False
            return False
        return True

    def _record(self, call: Call, drafts: tuple[Slot, ...]) -> Trigger | None:
        """Buffer the step of a finished call; returns the trigger if it wants to be written."""
        journal, policy, scope = self._journal, self._policy, call.scope
        if self._permits is not None:
            self._permits.ended(call)
        chance, ahead = 0.0, _NO_TIME
        if call.error is not None:
            chance, ahead = self._services.ids.chance(), self._services.time.ahead
        before = len(journal.steps)
        if call.error is not None and scope.ended:
            # Its flow was ended while it ran, and nothing more starts there, not even another attempt.
            step = decide.cancelled(scope, call.index, reason=describe_error(call.error), now=call.ended_at)
            drafts = ()
        else:
            step = step_of(call, drafts, chance, ahead)
            if call.is_again and self._undo is not None:
                step = self._undo.again(call, step)
        if step.retry_at is not None:
            self._pauses.note(step.retry_at)
        if self._guards is not None:
            step = self._guards.on_step(call, step)
        if scope.is_hidden or self._teller.is_heard:
            self._inner.note(scope, step, drafts)
        else:
            journal.add(step, drafts)
        asked = False
        if call.given_up_on is not None:
            self._run.desk.release(call.given_up_on)
        if call.halt is not None:
            if call.context is not None:
                self._run.desk.release(call)
                call.context.close()
            self._owing.owe(*call.why_halted())
            return None
        if call.context is not None:
            self._run.desk.release(call)
            call.context.close()
            asked = call.context.checkpoint_request is not None and call.error is None
        if call.error is not None or scope.parent is not None or call.index in scope.plan.meetings:
            self._follow_up(call, step)
            if scope.is_hidden and len(journal.steps) == before:
                return None
        if call.answers is not None and call.message:
            journal.taken.append(call.message)
        if call.answers is not None and call.error is None and call.node.answered_as is not None:
            return call.node.answered_as
        if policy.every_step and not asked and call.error is None and not call.node.expensive:
            return Trigger.STEP
        if asked and not policy.writes:
            log.warning(
                "node %r asked for a checkpoint, but its run is kept nowhere (durability off).", step.path
            )
        return self._wanted(call, step.status, asked=asked)

    def _wanted(self, call: Call, status: Status, *, asked: bool) -> Trigger | None:
        journal, scope = self._journal, call.scope
        node = recorded_node(scope, call.node) if scope.is_hidden else call.node
        return self._policy.after(
            node, status, steps=len(journal.steps), size=journal.size, seconds=journal.age(), asked=asked
        )

    def _follow_up(self, call: Call, step: StepRecord) -> None:
        """See what a recorded step means beyond its own flow, and for a group that it ends."""
        scope = call.scope
        if step.status is Status.FAILED and self.exception is None:
            self.exception = call.error
        if step.status is not Status.RETRYING and call.index in scope.plan.meetings:
            self._inner.cancel_others(scope, call.index, self._drop)
        if scope.parent is not None or step.status is Status.FAILED:
            self._inner.after(scope, step)

    def _drop(self, scope: Scope, i: int) -> None:
        for call in self._beside.drop(scope, i):
            self._run.desk.release(call)
            if self._permits is not None:
                self._permits.ended(call)


def _reports(call: Call) -> bool:
    """True if a call is to end, and to be recorded, though its run was cancelled: it may change the world."""
    is_busy = call.units is not None and call.units.is_busy
    return is_busy or call.scope.is_hidden or recorded_node(call.scope, call.node).is_effectful


def recorded_node(scope: Scope, node: Node) -> Node:
    """Return the node whose step a call counts for: of one inside an atomic flow, that flow."""
    while scope.is_hidden:
        around, place = scope.parent, scope.place
        assert around is not None
        scope, node = around, around.plan.nodes[place]
    return node
