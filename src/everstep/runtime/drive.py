"""Drive one run: start what is ready, record what finished, until nothing is active.

The drive is the run's only sequencer. While a put is in flight, running nodes go on; whatever they finish
rides in the next one.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Any

from everstep.engine import decide
from everstep.engine.flush import FlushPolicy
from everstep.engine.keys import declared_key, must_announce, reads_inputs
from everstep.engine.state import RunState
from everstep.errors import EverstepError, InputNeverCame, RunCancelled, ValueUnreadable
from everstep.graph.flow import Flow
from everstep.graph.node import Node
from everstep.model.enums import Effects, Status, Trigger
from everstep.model.records import ErrorInfo
from everstep.runtime.events import Teller
from everstep.runtime.invoke import (
    Call,
    Overdue,
    call_anywhere,
    call_async,
    call_here,
    call_in_thread,
    describe_error,
    give_context,
)
from everstep.runtime.journal import Journal
from everstep.runtime.late import LateFlush
from everstep.runtime.patience import patiently
from everstep.runtime.services import Services
from everstep.runtime.settle import draft_outputs, step_of
from everstep.runtime.values import Slot, ValueSpace

log = logging.getLogger("everstep")


class Drive:
    """One owner's work on one run, from where it stands to where it ends or stops."""

    def __init__(
        self, services: Services, flow: Flow, journal: Journal, state: RunState, space: ValueSpace
    ) -> None:
        self._services = services
        self._clock = services.clock
        self._flow = flow
        self._journal = journal
        self._state = state
        self._space = space
        self._policy = FlushPolicy(flow.durability)
        self._late = LateFlush(journal, self._policy, services)
        self._teller = Teller(services.listener, services.clock, journal.run_id)
        self._missed = {name for name in space.slots if space.is_missed(name)}
        """Transient values lost with an earlier process."""
        self._finished: list[Call] = []
        self._waker: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._overdue: dict[int, asyncio.Future[None]] = {}
        """Threads of effectful nodes that outlived their time limit; not tried again before they end."""
        self._loop: asyncio.AbstractEventLoop
        self._awaiting: asyncio.Task[Any] | None = None
        """The drive's own task while it awaits a lone node, and may be interrupted."""
        self._stop: BaseException | None = None
        self.failure: ErrorInfo | None = state.error
        """Why the run fails, once it does."""
        self.exception: BaseException | None = None
        """The live exception behind it, for the caller in this process."""

    async def run(self) -> Status:
        """Go on until the run has ended; returns its final status."""
        self._loop = asyncio.get_running_loop()
        try:
            try:
                await self._advance()
                return await self._end()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if self._stop is None or (task is not None and task.uncancel() > 0):
                    raise
                raise self._stop from None
        except (KeyboardInterrupt, asyncio.CancelledError):
            await self._keep_finished()
            raise
        except RunCancelled:
            await self._stop_running()
            await self._take_in()
            await self._journal.flush(Trigger.CANCELLED, status=Status.CANCELLED, changes_status=True)
            return Status.CANCELLED
        finally:
            self._late.close()
            await self._stop_running()

    def stop(self, reason: EverstepError) -> None:
        """Ask the drive to stop, from any thread: the lease is lost, or somebody cancelled the run."""
        self._stop = reason
        self._loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        self._wake()
        if self._awaiting is not None:
            self._awaiting.cancel()

    async def _advance(self) -> None:
        """Start and record steps until nothing is active, or a step fails for good."""
        state = self._state
        while self.failure is None:
            if self._stop is not None:
                raise self._stop
            ready = self._pick()
            if ready:
                if len(ready) == 1 and not state.running:
                    await self._run_alone(ready[0])
                else:
                    for i in ready:
                        self._spawn(await self._prepare(i))
                    await self._wait(None)
            elif state.running or self._overdue or state.retry_at:
                await self._wait(state.next_retry())
            else:
                break
            if self._finished:
                await self._absorb()
        self._check_starved()

    def _pick(self) -> list[int]:
        """Choose what to start now, within the flow's limits."""
        state, flow = self._state, self._flow
        ready = state.ready(self._clock.now() if state.retry_at else None)
        if not ready and not state.retry_at:
            ready = state.oldest()
        if self._overdue:
            ready = [i for i in ready if i not in self._overdue]
        if flow.max_concurrency is not None:
            del ready[max(0, flow.max_concurrency - len(state.running)) :]
        if state.steps + len(ready) > flow.max_steps or state.has_limits(flow.max_visits):
            try:
                for i in ready:
                    decide.check_limits(state, i, max_steps=flow.max_steps, max_visits=flow.max_visits)
            except EverstepError as error:
                self._fail(error)
                return []
        return ready

    def _check_starved(self) -> None:
        starved = self._state.starved()
        if starved and self.failure is None:
            parts = "; ".join(f"{path!r} waits for {', '.join(names)}" for path, names in starved)
            self._fail(
                InputNeverCame(
                    f"a chosen node waits for a value that can no longer come: {parts}.",
                    fix="Give it a default, pass it as an input, or write it before the gate.",
                )
            )

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = describe_error(error)
            self.exception = error

    async def _end(self) -> Status:
        """Record what still runs, then write the last checkpoint."""
        while self._state.running:
            if self._stop is not None:
                raise self._stop
            await self._wait(None)
            await self._absorb()
        ended = (Trigger.FAILED, Status.FAILED) if self.failure else (Trigger.COMPLETED, Status.COMPLETED)
        await self._journal.flush(ended[0], status=ended[1], error=self.failure, changes_status=True)
        return ended[1]

    async def _keep_finished(self) -> None:
        """Write what has finished before an interrupted process lets go of the run, if the store lets us."""
        await self._stop_running()
        try:
            await self._take_in()
            if self._journal.steps:
                await self._journal.flush(Trigger.INTERRUPTED)
        except EverstepError as error:
            log.warning(
                "run %r was interrupted, and its last steps were not kept: %s", self._journal.run_id, error
            )

    async def _stop_running(self) -> None:
        """Stop what still runs. Threads cannot be stopped; what they return is dropped."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- starting -----------------------------------------------------------------------------------------

    async def _run_alone(self, i: int) -> None:
        """Run the only ready node with as few detours as its kind allows."""
        call = await self._prepare(i)
        node, services = call.node, self._services
        on_chunk = self._teller.chunks(call) if self._teller.is_heard else None
        if call.error is not None:
            self._finish(call)
        elif node.is_async and not (self._policy.has_deadline and self._journal.steps):
            self._awaiting = asyncio.current_task()
            try:
                await call_async(call, on_chunk)
            finally:
                self._awaiting = None
            self._finish(call)
        elif node.is_async or node.timeout or not services.owns_loop or services.committer.drives > 1:
            self._spawn(call)
            await self._wait(None)
        else:
            if self._policy.has_deadline and self._journal.steps:
                with self._late:
                    call_here(call, on_chunk)
            else:
                call_here(call, on_chunk)
            self._finish(call)

    async def _prepare(self, i: int) -> Call:
        """Gather a node's arguments and key; flush first where the policy wants that."""
        state, journal = self._state, self._journal
        node = state.plan.nodes[i]
        if self._policy.before_effects and node.effects is Effects.EFFECTFUL:
            trigger = self._policy.before(node, steps=len(journal.steps))
            if trigger is not None:
                await journal.flush(trigger)
        lost = await self._make_up(i) if self._missed else None
        call = self._call_of(i, node) if lost is None else self._failed_call(i, node, lost)
        if node.idempotency_key is not None and lost is None:
            await self._find_key(call)
        if node.context_param is not None:
            give_context(call, journal.run_id, journal.key_run, node.name, call.visit)
        state.begin(i)
        call.started_at = self._clock.now()
        if self._teller.is_heard:
            self._teller.step_started(call)
        return call

    async def _make_up(self, i: int) -> Exception | None:
        """Make the transient values that a node reads again, if they were lost with an earlier process."""
        state, space = self._state, self._space
        for p in state.plan.nodes[i].params:
            source = p.source
            if source not in self._missed or not space.is_missed(source):
                continue
            w = next(w for w in reversed(state.plan.writers[source]) if state.visits[w])
            newer = sorted(n for n, version in state.reads[w].items() if state.versions[n] != version)
            if newer:
                return ValueUnreadable(
                    f"{source!r} was not kept and cannot be made again: {', '.join(newer)} changed since.",
                    fix=f"Drop persist='no' from {state.plan.paths[w]!r}.",
                )
            lost = await self._make_up(w)
            if lost is not None:
                return lost
            call = self._call_of(w, state.plan.nodes[w])
            if call.node.context_param is not None:
                journal = self._journal
                give_context(call, journal.run_id, journal.key_run, call.node.name, state.visits[w])
            await call_anywhere(call, self._services.pool)
            if call.error is not None:
                return call.error
            try:
                values = call.node.spread(call.returned)
            except EverstepError as error:
                return error
            for name, value in zip(call.node.outputs, values, strict=True):
                space.make_up(name, value)
        return None

    def _failed_call(self, i: int, node: Node, error: Exception) -> Call:
        call = Call(i, node, self._state.visits[i] + 1, self._state.attempts[i] + 1, {}, {})
        call.error = error
        return call

    def _call_of(self, i: int, node: Node) -> Call:
        """Return the next attempt at a node with the values it reads."""
        state, take = self._state, self._space.take
        versions, attempt = state.versions, state.attempts[i] + 1
        reads: dict[str, int] = {}
        kwargs: dict[str, Any] = {}
        for name, source, _, _ in node.params:
            if source in versions:
                reads[source] = versions[source]
                kwargs[name] = take(source, is_first_attempt=attempt == 1)
        return Call(i, node, state.visits[i] + 1, attempt, kwargs, reads)

    async def _find_key(self, call: Call) -> None:
        """Work the key out, or use the announced one again. A key of the user's making is announced first."""
        state, journal, i = self._state, self._journal, call.index
        call.key = state.keys.get(i)
        if call.key is not None:
            return
        if reads_inputs(call.node) and journal.steps:
            # The key is made of values that a crash would still change.
            await journal.flush(Trigger.BEFORE_EFFECT)
        try:
            call.key = declared_key(call.node, journal.key_run, call.visit, call.kwargs, fork=state.key_run)
        except Exception as error:  # the user's function or template; it fails the node like its body would
            call.error = error
            return
        if must_announce(call.node):
            journal.add(decide.announced(state, i, call.key or ""), ())
            await journal.flush(Trigger.BEFORE_EFFECT)

    def _spawn(self, call: Call) -> None:
        self._services.committer.tasks += 1
        task = self._loop.create_task(self._run_beside(call))
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._services.committer.tasks -= 1
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._stop = task.exception()
            self._wake()

    async def _run_beside(self, call: Call) -> None:
        try:
            if call.error is not None:
                pass
            elif call.node.is_async:
                await call_async(call, self._teller.chunks(call))
            else:
                await call_in_thread(call, self._services.pool, self._teller.chunks(call))
        except Overdue as overdue:
            call = call.given_up(overdue.error)
            if call.node.effects is Effects.EFFECTFUL:
                self._overdue[call.index] = overdue.thread
                overdue.thread.add_done_callback(lambda _: self._thread_ended(call.index))
        self._finish(call)

    def _thread_ended(self, i: int) -> None:
        self._overdue.pop(i, None)
        self._wake()

    def _finish(self, call: Call) -> None:
        call.ended_at = self._clock.now()
        self._finished.append(call)
        if self._waker is not None:
            self._wake()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def _wait(self, until: datetime | None) -> None:
        """Sleep until a node finishes, a pause ends, or buffered steps have waited long enough."""
        if self._finished or self._stop is not None:
            return
        self._waker = self._loop.create_future()
        sleeper: asyncio.Task[None] | None = None
        try:
            seconds = self._late.seconds_left()
            if until is None and seconds is None:
                await self._waker
                return
            watched: set[asyncio.Future[None]] = {self._waker}
            if until is not None:
                sleeper = self._loop.create_task(self._clock.sleep_until(until))
                watched.add(sleeper)
            done, _ = await asyncio.wait(watched, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waker = None
            if sleeper is not None:
                sleeper.cancel()
        if not done:
            await self._journal.flush(Trigger.INTERVAL)

    # -- recording ----------------------------------------------------------------------------------------

    async def _absorb(self) -> None:
        """Record every finished call, and write if the policy says so."""
        trigger = await self._take_in()
        # The last put also says that the run has ended, so what is left for it waits for `_end`.
        goes_on = self._state.active if self.failure is None else self._state.running
        if trigger is not None and goes_on and self._journal.steps:
            await self._flush(trigger, None)

    async def _flush(self, trigger: Trigger, metadata: dict[str, Any] | None) -> None:
        pending = self._journal.flush_soon(trigger, metadata, self._clock.now())
        if pending is not None:
            await pending

    async def _take_in(self) -> Trigger | None:
        """Buffer the steps of all finished calls; returns why to write them, if at all.

        A checkpoint that a node asked for is written at once, with its metadata.
        """
        calls, self._finished = self._finished, []
        trigger: Trigger | None = None
        for call in calls:
            drafts = draft_outputs(call, self._space)
            for draft in drafts:
                if draft.spill is not None:
                    await self._write_aside(draft)
            wanted = self._record(call, drafts)
            if wanted is Trigger.MANUAL:
                await self._flush(wanted, call.checkpoint_metadata())
            else:
                trigger = trigger or wanted
        return trigger

    def _record(self, call: Call, drafts: tuple[Slot, ...]) -> Trigger | None:
        """Buffer the step of a finished call; returns the trigger if it wants to be written."""
        journal, policy = self._journal, self._policy
        chance = self._services.ids.chance() if call.error is not None else 0.0
        step = step_of(call, drafts, self._state, chance)
        journal.add(step, drafts)
        if step.status is Status.FAILED and self.failure is None:
            self.failure, self.exception = step.error, call.error
        if self._teller.is_heard:
            self._teller.step_ended(call, step)
        asked = (
            call.context is not None and call.context.checkpoint_request is not None and call.error is None
        )
        if policy.every_step and not asked and call.error is None:
            return Trigger.STEP
        if asked and not policy.writes:
            log.warning(
                "node %r asked for a checkpoint, but its run is kept nowhere (durability off).", step.path
            )
        return policy.after(
            call.node,
            step.status,
            steps=len(journal.steps),
            size=journal.size,
            seconds=journal.age(),
            asked=asked,
        )

    async def _write_aside(self, draft: Slot) -> None:
        """Write an artifact here if nothing else waits for this thread, else on another."""
        services, space = self._services, self._space
        is_alone = len(self._state.running) <= 1 and services.committer.drives <= 1

        async def write() -> None:
            if is_alone:
                space.write_aside(draft)
            else:
                await self._loop.run_in_executor(services.pool, space.write_aside, draft)

        await patiently(self._clock, write)
