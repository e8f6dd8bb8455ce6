"""What nodes have recorded while they are under way: what they cost, and their durable calls.

The drive is the only writer of its run. What a node says meanwhile is recorded on the drive's loop, or on the
thread that holds it up, and who said it may wait until it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from everstep.engine import decide
from everstep.engine.scope import Scope
from everstep.errors import EverstepError, LeaseLost, StoreUnavailable
from everstep.graph.author.context import Spent
from everstep.graph.author.wait_options import Wait
from everstep.model.enums import Trigger
from everstep.model.ledger import Guarded
from everstep.model.records import StepRecord
from everstep.on_demand import on_demand
from everstep.ports.system import wait_until
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.flushing import LateFlush
from everstep.runtime.drive.invoke import Call, soon
from everstep.runtime.events import news_of

if TYPE_CHECKING:
    from everstep.graph.author.guards import check_known
else:
    check_known = on_demand("everstep.graph.author.guards:check_known")


News = tuple[Trigger, dict[str, Any] | None]
"""Why a checkpoint is due, and what it says."""
_SPENT: News = (Trigger.SPENT, None)
Owe = Callable[[Trigger, dict[str, Any] | None], None]
Became = Literal["written", "noted", "nothing"]
"""What became of what was said: it is durable, or buffered as the store is out of reach, or neither."""
Record = Callable[[], News | None]
"""Buffers a step, and says why it is to be written; none if it may wait."""


class SpendingWatch(Protocol):
    """What looks after the budgets and breakers of a run."""

    def spending(self, call: Call, amounts: Mapping[str, Decimal]) -> tuple[Guarded | None, News | None]: ...

    def ask(self, scope: Scope, i: int, under_way: Call | None = None) -> Wait | EverstepError | None: ...


class Midway:
    """What the calls of one drive have recorded before they end."""

    is_paused = False
    """True once no durable call is to begin."""

    def __init__(
        self,
        run: RunContext,
        late: LateFlush,
        guards: SpendingWatch | None,
        owe: Owe,
        open_units: Callable[[Midway, Call], Any],
    ) -> None:
        self.run = run
        self.open_units = open_units
        self._services = run.services
        self._journal = run.journal
        self._state = run.state
        self._teller = run.teller
        self._late = late
        self._guards = guards
        self.is_guarded = guards is not None
        """True if a guard may stand before what a node does."""
        self._owe = owe
        self._loop = run.loop
        self._thread = self._services.system.thread_id()
        self._is_over = False
        self._waiting: dict[Future[None], None] = {}
        """Who waits for a put, in this order: they are told in it, too."""
        self._shared: list[Future[None]] = []
        """Who waits for the put that several durable calls share."""
        self.gave_up: EverstepError | None = None
        """Why the drive stops, if what a node said could not be kept: no outage is the failure of a node."""
        self.late_writing: asyncio.Task[None] | None = None
        """Writes what an async node said while the store was out of reach, and holds nothing up."""
        self._why_late: News = _SPENT
        """Why that is written."""
        self.alone: Call | None = None
        """The call that the drive makes itself, and does nothing meanwhile."""
        self.own_task: asyncio.Task[Any] | None = None
        """The task in which the drive awaits such a call."""
        self.may_write = run.services.blocking is not None and run.journal.outbox is None
        """True if what a call says may be written while the drive makes it."""

    def may_run_alone(self, call: Call) -> bool:
        """True if the drive may make a call itself: what that says can be written meanwhile."""
        if call.context is None:
            return call.opens is None or self.may_write
        return self._can_write_here()

    def _can_write_here(self) -> bool:
        services = self._services
        return self.may_write and (services.owns_loop or services.committer.is_free())

    def of(self, call: Call, *, waits: bool = True) -> Says:
        """Return what a call speaks through. One whose drive waits for it does not wait for the put."""
        return Says(self, call, waits)

    def go_on(self) -> None:
        """Let the drive write again: the call is over; what that left behind waits."""
        with self._late.lock:
            self.alone = None

    async def settle(self, *, is_stopped: bool) -> None:
        """Let what is being written come to its end, or stop it, before the drive writes anything itself."""
        writing = self.late_writing
        if writing is None:
            return
        if is_stopped:
            writing.cancel()
        try:
            await asyncio.wait([writing])
        except asyncio.CancelledError:
            writing.cancel()
            await asyncio.wait([writing])
            raise

    def close(self) -> None:
        """Release all waiters: what was not written by now will not be."""
        self._is_over = True
        for future in tuple(self._waiting):
            if not future.done():
                future.set_exception(_too_late())
        self._waiting.clear()

    @cached_property
    def _naps(self) -> dict[object, Callable[[], None]]:
        """What wakes those that pause before a retry."""
        return {}

    def pause(self) -> None:
        """Let no durable call begin, and none be tried again; may be called from any thread."""
        self.is_paused = True
        for wake in list(self._naps.values()):
            wake()

    async def nap(self, until: datetime) -> None:
        """Let time pass before a retry, unless the run is paused meanwhile."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._naps[woken] = partial(_wake, woken)
        sleeper = asyncio.ensure_future(self._services.clock.sleep_until(until))
        try:
            if not self.is_paused:
                await asyncio.wait([sleeper, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._naps[woken]
            sleeper.cancel()
            woken.cancel()

    def nap_blocking(self, until: datetime) -> None:
        """Hold this thread up for as long, unless the run is paused meanwhile."""
        woken = self._services.system.event()
        self._naps[woken] = woken.set
        if not self.is_paused:
            wait_until(self._services.clock, self._services.system, until, woken)
        del self._naps[woken]

    def held(self, call: Call) -> Wait | None:
        """Return what a person is asked before a node under way may do more, if a guard stands before it."""
        asks = None if self._guards is None else self._guards.ask(call.scope, call.index, call)
        if isinstance(asks, EverstepError):
            raise asks
        return asks

    def open_for(self, call: Call) -> None:
        """Let a call have durable calls. Its threads may ask at once, and share what one of them opens."""
        with self._late.lock:
            if call.units is None:
                call.units = self.open_units(self, call)

    @property
    def is_on_loop(self) -> bool:
        """True on the thread of the drive's loop."""
        return self._services.system.thread_id() == self._thread

    def holds_loop(self, call: Call) -> bool:
        """True if a sync node is made on the thread of the loop, which does nothing until it ends.

        Threads of such a node may be waited for by it, so they cannot wait for the loop, either.
        """
        return self.alone is call or self.is_on_loop

    # -- writing ------------------------------------------------------------------------------------------

    def write(self, call: Call, record: Record, *, waits: bool = True, is_shared: bool = False) -> Spent:
        """Have something recorded, at once or on the drive's loop; on another thread, wait until it is kept.

        What is shared is put together with what others say in the same turn of the loop.
        """
        if self._is_over:
            raise _too_late()
        if self.gave_up is not None:
            raise self.gave_up
        is_on_loop = self._services.system.thread_id() == self._thread
        may_write = (is_on_loop or not call.node.is_async) and not is_shared
        # By now other runs may need the loop that an async node is on.
        may_write = may_write and (not call.node.is_async or self._can_write_here())
        if self.alone is call and may_write and self.late_writing is None:
            found = self._write_here(call, record, may_hold=not (is_on_loop and call.node.is_async))
            if found == "written":
                return Spent()
            if found == "noted":
                written = self._future()
                self._write_later(written)
                return Spent(_heeded(asyncio.wrap_future(written)))
        written = self._future()
        if is_on_loop:
            self._note(call, record, written, is_shared=is_shared)
            return Spent(_heeded(asyncio.wrap_future(written)))
        try:
            self._loop.call_soon_threadsafe(self._note, call, record, written)
        except RuntimeError:
            raise _too_late() from None
        if waits:
            self._services.system.wait_for([written])
            written.result()
        return Spent()

    def buffer(self, record: Record) -> None:
        """Record something on the loop's thread that is written with what comes next.

        A thread may be writing, of a sync node that holds the loop up or of the drive.
        """
        with self._late.lock:
            record()

    def _future(self) -> Future[None]:
        written: Future[None] = Future()
        self._waiting[written] = None
        written.add_done_callback(lambda done: self._waiting.pop(done, None))
        return written

    def _note(self, call: Call, record: Record, written: Future[None], *, is_shared: bool = False) -> None:
        """Buffer what was said; the drive writes it as soon as it comes to it."""
        if self._is_over:
            if not written.done():
                written.set_exception(_too_late())
            return
        found: Became = "nothing"
        try:
            # A drive that awaits a lone call would come to it only after that, which may wait for this.
            is_alone = self.alone is not None
            if is_alone and self.late_writing is None and self._can_write_here():
                if is_shared:
                    self._share(record, written)
                    return
                found = self._write_here(call, record, self.alone, may_hold=False)
            news = record() if found == "nothing" else None
            self._why_late = news or self._why_late
        except Exception as error:  # who said it waits for an answer, whatever it is
            if not written.done():
                written.set_exception(error)
            return
        if found == "noted" or (is_alone and news is not None and self._journal.writes):
            self._write_later(written)
        elif news is None or not self._journal.writes:
            if not written.done():
                written.set_result(None)
        else:
            self._journal.watch(lambda: None if written.done() else written.set_result(None))
            self._owe(*news)

    def _share(self, record: Record, written: Future[None]) -> None:
        """Buffer what was said, and write it when the loop has come round, with what others say by then."""
        with self._late.lock:
            news = record()
        if news is None or not self._journal.writes:
            written.set_result(None)
            return
        self._shared.append(written)
        if len(self._shared) == 1:
            self._loop.call_soon(self._write_shared, news)

    def _write_shared(self, news: News) -> None:
        shared, self._shared = self._shared, []
        error: BaseException | None = None
        try:
            with self._late.lock:
                is_written = self.late_writing is None and self._journal.flush_blocking(*news)
        except Exception as found:  # those who wait hear of it
            error = found
        if error is None and is_written and self._teller.is_heard:
            self._tell_news(news)
        for written in shared:
            if written.done():
                continue
            if error is not None:
                written.set_exception(error)
            elif is_written:
                written.set_result(None)
            else:
                self._write_later(written)

    def _write_later(self, written: Future[None]) -> None:
        """See to it that what is buffered is written soon, and hold the loop up no longer."""
        self._journal.watch(lambda: None if written.done() else written.set_result(None))
        if self.late_writing is None:
            self.late_writing = self._loop.create_task(self._write_late())

    async def _write_late(self) -> None:
        """Write what is buffered while the drive makes a call, for as long as an outage is waited out."""
        try:
            while self._journal.steps:
                (trigger, about), self._why_late = self._why_late, _SPENT
                await self._journal.flush(trigger, metadata=about)
                if self._teller.is_heard:
                    self._tell_news((trigger, about))
        except EverstepError as error:
            self.gave_up = _out_of_reach("what a node said") if isinstance(error, StoreUnavailable) else error
            for future in tuple(self._waiting):
                if not future.done():
                    future.set_exception(self.gave_up)
        finally:
            self.late_writing = None

    def _write_here(self, call: Call, record: Record, alone: Call | None = None, *, may_hold: bool) -> Became:
        """Record what was said and write it, while the drive makes a call, if that is not over."""
        with self._late.lock:
            if self.alone is not (alone or call):
                return "nothing"
            news = record()
            if news is not None and self._journal.writes and not self._journal.flush_blocking(*news):
                self._why_late = news
                if not may_hold:
                    return "noted"
                self._insist(f"what {call.path!r} said", news)
        if self._teller.is_heard:
            self._tell_news(news)
        return "written"

    def _insist(self, what: str, news: News) -> None:
        """Hold a node up until what it said is durable, for as long as an outage is waited out."""
        if not self._journal.persist_blocking(*news):
            self.gave_up = _out_of_reach(what)
            raise self.gave_up

    def _tell_news(self, news: News | None) -> None:
        """Tell who listens that a guard spoke up, once that is written."""
        for kind, data in () if news is None else news_of(*news):
            with suppress(RuntimeError):
                soon(self._loop, partial(self._teller.tell, kind, data=data))

    def tell(self, step: StepRecord) -> None:
        """Tell who listens of a step that was recorded."""
        if self._teller.is_heard and step.path[0] != "@":
            with suppress(RuntimeError):
                soon(self._loop, lambda: self._teller.step_ended(step))

    # -- spending -----------------------------------------------------------------------------------------

    def spend(self, call: Call, amounts: dict[str, Decimal], *, waits: bool) -> Spent:
        """Record what a node says it has cost."""
        check_known(call.path, amounts, self._state.books.limits)
        return self.write(call, lambda: self._record_spent(call, amounts), waits=waits)

    def _record_spent(self, call: Call, amounts: dict[str, Decimal]) -> News | None:
        scope, now = call.scope, self._services.clock.now()
        guarded, news = (None, None) if self._guards is None else self._guards.spending(call, amounts)
        is_shown = not (scope.is_hidden or call.is_dropped) and scope.awaits(call.index)
        if is_shown and call.visit == scope.visits[call.index] + 1:
            step = decide.spent(scope, call.index, amounts, guards=guarded, now=now)
        else:
            step = decide.spent_aside(call.path, amounts, guards=guarded, now=now)
        self._journal.add(step, ())
        self._services.tally.spend(amounts)
        self.tell(step)
        return news or _SPENT


class Says(msgspec.Struct, eq=False):
    """What one attempt at a node speaks through while it is under way."""

    midway: Midway
    call: Call
    waits: bool

    def spend(self, amounts: dict[str, Decimal]) -> Spent:
        """Record what the node says it has cost."""
        return self.midway.spend(self.call, amounts, waits=self.waits)

    @property
    def units(self) -> Any:
        """The durable calls of this attempt."""
        if self.call.units is None:
            self.midway.open_for(self.call)
        return self.call.units


def _wake(woken: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # its loop is closed
        woken.get_loop().call_soon_threadsafe(_resolve, woken)


def _resolve(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _heeded(future: asyncio.Future[None]) -> asyncio.Future[None]:
    """Return the future; if it is never awaited, no warning says so."""
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
    return future


def _out_of_reach(what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store is out of reach, and {what} is not recorded.",
        fix="Resume it when the store is back: the node is called again.",
    )


def _too_late() -> EverstepError:
    return LeaseLost(
        "this process no longer drives the run, so what the node says is not recorded.",
        fix="The run's next owner calls the node again.",
    )
