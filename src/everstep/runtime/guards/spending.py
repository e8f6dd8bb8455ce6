"""What nodes say they have cost: recorded at once, wherever they run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from everstep.engine import decide
from everstep.errors import LeaseLost, StoreUnavailable
from everstep.graph.author.context import Spent
from everstep.model.enums import Trigger
from everstep.model.ledger import Guarded
from everstep.model.records import StepRecord
from everstep.on_demand import on_demand
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.flushing import LateFlush
from everstep.runtime.drive.invoke import Call, soon

if TYPE_CHECKING:
    from everstep.graph.author.guards import check_known
else:
    check_known = on_demand("everstep.graph.author.guards:check_known")


News = tuple[Trigger, dict[str, Any]]
"""Why a checkpoint is due, and what it says."""
Owe = Callable[[Trigger, dict[str, Any] | None], None]


class SpendingWatch(Protocol):
    """What looks after the budgets and breakers of a run."""

    def spending(self, call: Call, amounts: Mapping[str, Decimal]) -> tuple[Guarded | None, News | None]: ...


class Spending:
    """The spending of one drive. Amounts are recorded on its loop, or on the thread that holds it up."""

    def __init__(self, run: RunContext, late: LateFlush, guards: SpendingWatch | None, owe: Owe) -> None:
        self._services = run.services
        self._journal = run.journal
        self._state = run.state
        self._teller = run.teller
        self._late = late
        self._guards = guards
        self._owe = owe
        self._loop = run.loop
        self._thread = self._services.system.thread_id()
        self._is_over = False
        self._waiting: set[Future[None]] = set()
        self.gave_up: StoreUnavailable | None = None
        """Why the drive stops, if what a node spent could not be kept: no outage is the failure of a node."""
        self.alone: Call | None = None
        """The call that the drive makes itself, and does nothing meanwhile."""
        may_write = run.services.blocking is not None and run.journal.outbox is None
        self._may_write_here = guards is None and may_write

    def may_run_alone(self, call: Call) -> bool:
        """True if the drive may make a call itself: what that spends can be written on the spot."""
        return call.context is None or self._can_write_here()

    def _can_write_here(self) -> bool:
        services = self._services
        return self._may_write_here and (services.owns_loop or services.committer.is_free())

    def of(self, call: Call, *, waits: bool = True) -> Callable[[dict[str, Decimal]], Spent]:
        """Return what a call spends with. One whose drive waits for it does not wait for the put."""
        return partial(self._spend, call, waits=waits)

    def go_on(self) -> None:
        """Let the drive write again: the call is over; what that left behind waits."""
        with self._late.lock:
            self.alone = None

    def close(self) -> None:
        """Release all waiters: what was not written by now will not be."""
        self._is_over = True
        for future in tuple(self._waiting):
            if not future.done():
                future.set_exception(_too_late())
        self._waiting.clear()

    def _spend(self, call: Call, amounts: dict[str, Decimal], *, waits: bool) -> Spent:
        check_known(call.path, amounts, self._state.books.limits)
        if self._is_over:
            raise _too_late()
        is_on_loop = self._services.system.thread_id() == self._thread
        may_write = is_on_loop or not call.node.is_async
        if self.alone is call and may_write and self._write_here(call, amounts):
            return Spent()
        written: Future[None] = Future()
        self._waiting.add(written)
        written.add_done_callback(self._waiting.discard)
        if is_on_loop:
            self._note(call, amounts, written)
            return Spent(_heeded(asyncio.wrap_future(written)))
        try:
            self._loop.call_soon_threadsafe(self._note, call, amounts, written)
        except RuntimeError:
            raise _too_late() from None
        if waits:
            self._services.system.wait_for([written])
            written.result()
        return Spent()

    def _note(self, call: Call, amounts: dict[str, Decimal], written: Future[None]) -> None:
        """Buffer what was spent; the drive writes it as soon as it comes to it."""
        if self._is_over:
            if not written.done():
                written.set_exception(_too_late())
            return
        try:
            # A drive that awaits a lone call would come to it only after that, which may wait for this.
            may_write = self.alone is not None and self._can_write_here()
            is_written = may_write and self._write_here(call, amounts, self.alone)
            news = None if is_written else self._record(call, amounts)
        except Exception as error:  # the caller of `ctx.spend` waits for an answer, whatever it is
            if not written.done():
                written.set_exception(error)
            return
        if is_written or not self._journal.writes:
            if not written.done():
                written.set_result(None)
            return
        self._journal.watch(lambda: None if written.done() else written.set_result(None))
        self._owe(*(news or (Trigger.SPENT, None)))

    def _write_here(self, call: Call, amounts: dict[str, Decimal], alone: Call | None = None) -> bool:
        """Record what was spent and write it, while the drive makes a call; false if that is over."""
        with self._late.lock:
            if self.alone is not (alone or call):
                return False
            trigger, about = self._record(call, amounts) or (Trigger.SPENT, None)
            if self._journal.writes and not self._journal.flush_blocking(trigger, about):
                self._insist(call)
        return True

    def _insist(self, call: Call) -> None:
        """Hold a node up until what it spent is durable, for as long as an outage is waited out."""
        if self._journal.wait_until_sure():
            return
        self.gave_up = StoreUnavailable(
            f"the store is out of reach, and what {call.path!r} spent is not recorded.",
            fix="Resume it when the store is back: the node is called again, and counts what it spends.",
        )
        raise self.gave_up

    def _record(self, call: Call, amounts: dict[str, Decimal]) -> News | None:
        scope, now = call.scope, self._services.clock.now()
        guarded, news = (None, None) if self._guards is None else self._guards.spending(call, amounts)
        is_shown = not (scope.is_hidden or call.is_dropped) and scope.awaits(call.index)
        if is_shown and call.visit == scope.visits[call.index] + 1:
            step = decide.spent(scope, call.index, amounts, guards=guarded, now=now)
        else:
            step = decide.spent_aside(call.path, amounts, guards=guarded, now=now)
        self._journal.add(step, ())
        self._services.tally.spend(amounts)
        self._tell(step)
        return news

    def _tell(self, step: StepRecord) -> None:
        if self._teller.is_heard and step.path[0] != "@":
            with suppress(RuntimeError):
                soon(self._loop, lambda: self._teller.step_ended(step))


def _heeded(future: asyncio.Future[None]) -> asyncio.Future[None]:
    """Return the future; if it is never awaited, no warning says so."""
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
    return future


def _too_late() -> LeaseLost:
    return LeaseLost(
        "this process no longer drives the run, so what was spent is not recorded.",
        fix="The run's next owner counts what it spends itself.",
    )
