"""Drive one run: start what is ready, record what finished, until nothing is active.

The drive is the run's only sequencer. While a put is in flight, running nodes go on; whatever they finish
rides in the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from everstep.engine import decide
from everstep.engine.flush import FlushPolicy
from everstep.engine.keys import automatic_key, declared_key, must_announce
from everstep.engine.state import RunState
from everstep.errors import EverstepError, InputNeverCame, LeaseLost, RunCancelled
from everstep.graph.context import Context
from everstep.graph.flow import Flow
from everstep.model.enums import Effects, Status, Trigger
from everstep.model.records import ErrorInfo, StepRecord
from everstep.runtime.events import Event, EventKind
from everstep.runtime.invoke import (
    Call,
    OnChunk,
    Overdue,
    call_async,
    call_here,
    call_in_thread,
    describe_error,
)
from everstep.runtime.journal import Journal
from everstep.runtime.services import Services
from everstep.runtime.values import Draft, ValueSpace

_NO_RETRY = (EverstepError,)
"""Errors of ours that another attempt cannot mend; a time-out is told apart below."""


class Drive:
    """One owner's work on one run, from where it stands to where it ends or stops."""

    def __init__(
        self, services: Services, flow: Flow, journal: Journal, state: RunState, space: ValueSpace
    ) -> None:
        self._services = services
        self._flow = flow
        self._journal = journal
        self._state = state
        self._space = space
        self._policy = FlushPolicy(flow.durability)
        self._finished: list[Call] = []
        self._waker: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._overdue: dict[int, asyncio.Future[None]] = {}
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: EverstepError | None = None
        self.failure: ErrorInfo | None = None
        """Why the run fails, once it does."""
        self.exception: BaseException | None = None
        """The live exception behind a failure, for the caller in this process."""

    async def run(self) -> Status:
        """Go on until the run has ended; returns its final status."""
        committer = self._services.committer
        committer.drives += 1
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        try:
            await self._advance()
            return await self._end()
        except RunCancelled:
            await self._drain(cancel=True)
            await self._journal.flush(Trigger.CANCELLED, status=Status.CANCELLED, changes_status=True)
            return Status.CANCELLED
        except asyncio.CancelledError:
            if self._stop is not None and self._task is not None and self._task.uncancel() == 0:
                raise self._stop from None
            raise
        finally:
            committer.drives -= 1
            for task in self._tasks:
                task.cancel()

    def stop(self, reason: EverstepError) -> None:
        """Ask the drive to stop, from any thread: the lease is lost, or somebody cancelled the run."""
        self._stop = reason
        self._loop.call_soon_threadsafe(self._wake_or_interrupt)

    def _wake_or_interrupt(self) -> None:
        if self._waker is not None:
            self._wake()
        elif self._task is not None and isinstance(self._stop, LeaseLost):
            self._task.cancel()

    async def _advance(self) -> None:
        """Start and record steps until nothing is active, or a step fails for good."""
        state = self._state
        while self.failure is None:
            if self._stop is not None:
                raise self._stop
            ready = self._pick()
            if len(ready) == 1 and not state.running and not self._overdue:
                await self._run_alone(ready[0])
            elif ready:
                await self._start_all(ready)
                await self._wait()
            elif state.running or self._overdue:
                await self._wait()
            elif (retry_at := state.next_retry()) is not None:
                await self._flush_overdue(Trigger.RETRY)
                await self._services.clock.sleep_until(retry_at)
            else:
                break
            if self._finished:
                await self._absorb()
        self._check_starved()

    def _pick(self) -> list[int]:
        """Choose what to start now, within the flow's limits."""
        state, flow = self._state, self._flow
        if not state.waiting:
            return []
        now = self._services.clock.now() if state.retry_at else None
        room = flow.max_concurrency - len(state.running) if flow.max_concurrency is not None else None
        ready = []
        for i in state.ready(now):
            if room is not None and len(ready) >= room:
                break
            if i in self._overdue:
                continue
            ready.append(i)
        for i in ready:
            try:
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
        await self._drain(cancel=False)
        if self.failure is not None:
            await self._journal.flush(
                Trigger.FAILED, status=Status.FAILED, error=self.failure, changes_status=True
            )
            return Status.FAILED
        await self._journal.flush(Trigger.COMPLETED, status=Status.COMPLETED, changes_status=True)
        return Status.COMPLETED

    async def _drain(self, *, cancel: bool) -> None:
        """Wait for what runs, after a failure or a cancel; a cancelled node is not recorded."""
        if cancel:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._finished.clear()
            return
        while self._state.running:
            if not self._finished:
                await self._wait()
            await self._absorb()

    # -- starting -----------------------------------------------------------------------------------------

    async def _run_alone(self, i: int) -> None:
        """Run the only ready node with as few detours as its kind allows."""
        call = await self._prepare(i)
        node = call.node
        if node.is_async and node.timeout is None and not self._has_lag():
            await call_async(call, self._on_chunk(call))
            self._finish(call)
        elif node.is_async or node.timeout is not None or not self._services.owns_loop or self._is_crowded():
            self._spawn(call)
            await self._wait()
        else:
            call_here(call, self._on_chunk(call))
            self._finish(call)

    def _is_crowded(self) -> bool:
        return self._services.committer.drives > 1 or self._has_lag()

    def _has_lag(self) -> bool:
        return False

    async def _start_all(self, ready: Iterable[int]) -> None:
        for i in ready:
            self._spawn(await self._prepare(i))

    async def _prepare(self, i: int) -> Call:
        """Gather a node's arguments and key; flush first where the policy wants that."""
        state, journal = self._state, self._journal
        node = state.plan.nodes[i]
        trigger = self._policy.before(node, steps=len(journal.steps))
        if trigger is not None:
            await journal.flush(trigger)
        attempt = state.attempts[i] + 1
        visit = state.visits[i] + 1
        reads = state.reads_now(i)
        kwargs = {
            p.name: self._space.take(p.source, is_first_attempt=attempt == 1)
            for p in node.params
            if p.source in reads
        }
        call = Call(i, node, attempt, kwargs, reads)
        if node.idempotency_key is not None:
            call.key = state.keys.get(i) or declared_key(node, journal.run_id, visit, kwargs)
            if must_announce(node) and i not in state.keys:
                journal.add(decide.announced(state, i, call.key or ""), ())
                await journal.flush(Trigger.BEFORE_EFFECT)
        if node.context_param is not None:
            key = call.key or automatic_key(journal.run_id, node.name, visit)
            call.context = Context(journal.run_id, node.name, visit, attempt, key)
            kwargs[node.context_param] = call.context
        state.begin(i)
        call.started_at = self._services.clock.now()
        if self._services.listener is not None:
            self._emit("step_started", call.node.name, visit, attempt)
        return call

    def _spawn(self, call: Call) -> None:
        self._services.committer.tasks += 1
        task = self._loop.create_task(self._run_beside(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_beside(self, call: Call) -> None:
        try:
            if call.node.is_async:
                await call_async(call, self._on_chunk(call))
            else:
                await call_in_thread(call, self._services.pool, self._on_chunk(call))
        except Overdue as overdue:
            late = Call(call.index, call.node, call.attempt, {}, call.reads)
            late.key, late.started_at, late.error = call.key, call.started_at, overdue.error
            call = late
            if call.node.effects is Effects.EFFECTFUL:
                self._overdue[call.index] = overdue.thread
                overdue.thread.add_done_callback(lambda _: self._thread_ended(call.index))
        finally:
            self._services.committer.tasks -= 1
        self._finish(call)

    def _thread_ended(self, i: int) -> None:
        self._overdue.pop(i, None)
        self._wake()

    def _finish(self, call: Call) -> None:
        call.ended_at = self._services.clock.now()
        self._finished.append(call)
        self._wake()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def _wait(self) -> None:
        """Sleep until a node finishes, a thread ends, or buffered steps have waited long enough."""
        if self._finished or self._stop is not None:
            return
        self._waker = self._loop.create_future()
        try:
            if self._policy.has_deadline and self._journal.steps:
                left = self._journal.oldest + self._policy.max_seconds - self._services.clock.monotonic()
                done, _ = await asyncio.wait([self._waker], timeout=max(0.0, left))
                if not done:
                    self._waker = None
                    await self._journal.flush(Trigger.INTERVAL)
            else:
                await self._waker
        finally:
            self._waker = None

    # -- recording ----------------------------------------------------------------------------------------

    async def _absorb(self) -> None:
        """Record every finished call, and write if the policy says so."""
        calls, self._finished = self._finished, []
        trigger: Trigger | None = None
        metadata: dict[str, Any] | None = None
        journal = self._journal
        for call in calls:
            step, drafts = await self._settle(call)
            journal.add(step, drafts)
            request = call.context.checkpoint_request if call.context is not None else None
            asked = request is not None and step.status is Status.COMPLETED
            if asked:
                elapsed = (call.ended_at - call.started_at).total_seconds()
                metadata = {**(request or {}), "node": step.path, "visit": step.visit, "elapsed": elapsed}
            wanted = self._policy.after(
                call.node,
                step.status,
                steps=len(journal.steps),
                size=journal.size,
                seconds=self._services.clock.monotonic() - journal.oldest
                if self._policy.has_deadline
                else 0.0,
                asked=asked,
            )
            trigger = wanted if trigger is None or wanted is Trigger.MANUAL else trigger
            if self._services.listener is not None:
                self._tell_step(call, step)
        if trigger is not None and self.failure is None and (trigger is Trigger.MANUAL or self._state.active):
            await journal.flush(trigger, metadata=metadata)
            if self._services.listener is not None:
                self._emit("checkpoint", data={"sequence": journal.head.sequence, "trigger": trigger.value})

    async def _settle(self, call: Call) -> tuple[StepRecord, tuple[Draft, ...]]:
        """Turn a finished call into its record and the values to keep."""
        if call.error is None:
            try:
                return await self._settle_success(call)
            except EverstepError as error:
                call.error = error
        return self._settle_failure(call, call.error), ()

    async def _settle_success(self, call: Call) -> tuple[StepRecord, tuple[Draft, ...]]:
        node, drafts = call.node, ()
        decision = node.decide(call.returned)
        if node.outputs:
            drafts = tuple(
                [
                    self._space.draft(name, value, name)
                    for name, value in zip(node.outputs, node.spread(call.returned), strict=True)
                ]
            )
            for draft in drafts:
                if draft.spill is not None:
                    await self._write_aside(draft)
        step = decide.completed(
            self._state,
            call.index,
            reads=call.reads,
            writes=tuple([d.written for d in drafts]),
            decision=decision,
            key=call.key,
            started_at=call.started_at,
            ended_at=call.ended_at,
        )
        return step, drafts

    async def _write_aside(self, draft: Draft) -> None:
        if len(self._state.running) > 1 or self._services.committer.drives > 1:
            await self._loop.run_in_executor(self._services.pool, self._space.write_aside, draft)
        else:
            self._space.write_aside(draft)

    def _settle_failure(self, call: Call, error: Exception) -> StepRecord:
        policy = call.node.retry
        can_retry = isinstance(error, policy.on) and not (
            isinstance(error, _NO_RETRY) and error.code not in ("node.timeout",)
        )
        step = decide.failed(
            self._state,
            call.index,
            error=describe_error(error),
            can_retry=can_retry,
            chance=self._services.ids.chance(),
            reads=call.reads,
            key=call.key,
            started_at=call.started_at,
            ended_at=call.ended_at,
        )
        if step.status is Status.FAILED and self.failure is None:
            self.failure = step.error
            self.exception = error
        return step

    async def _flush_overdue(self, trigger: Trigger) -> None:
        if self._journal.steps and self._policy.writes:
            await self._journal.flush(trigger)

    # -- telling ------------------------------------------------------------------------------------------

    def _on_chunk(self, call: Call) -> OnChunk | None:
        if self._services.listener is None:
            return None
        return lambda chunk: self._emit("chunk", call.node.name, data={"chunk": chunk})

    def _tell_step(self, call: Call, step: StepRecord) -> None:
        kind: EventKind = (
            "step_completed"
            if step.status is Status.COMPLETED
            else "step_retrying"
            if step.status is Status.RETRYING
            else "step_failed"
        )
        data: dict[str, Any] = {"seconds": (call.ended_at - call.started_at).total_seconds()}
        if step.error is not None:
            data["error"] = f"{step.error.type}: {step.error.message}"
        if step.decision is not None:
            data["decision"] = list(step.decision)
        self._emit(kind, step.path, step.visit, step.attempts, data)

    def _emit(
        self,
        kind: EventKind,
        node: str = "",
        visit: int = 0,
        attempt: int = 0,
        data: dict[str, Any] | None = None,
    ) -> None:
        listener = self._services.listener
        if listener is not None:
            now = self._services.clock.now()
            listener(
                Event(
                    kind=kind,
                    run_id=self._journal.run_id,
                    at=now,
                    node=node,
                    visit=visit,
                    attempt=attempt,
                    data=data or {},
                )
            )
