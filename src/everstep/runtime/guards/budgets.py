"""Budgets and breakers while a run is driven: what may start, what it has cost, who is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec

from everstep.engine import breaking
from everstep.engine.books import Books
from everstep.engine.readiness import Place
from everstep.engine.scope import Scope
from everstep.errors import BreakerOpen, BudgetExceeded, EverstepError, StoreError, StoreUnavailable
from everstep.graph.author.guards import BREAKER, BUDGET, GuardWait, for_more, for_review
from everstep.model.budgets import SECONDS, ZERO, Budget, add, amount_of, past, plain
from everstep.model.enums import Trigger
from everstep.model.ledger import BreakerAt, BreakerState, Guarded
from everstep.model.records import GUARDS, StepRecord
from everstep.model.waits import SettledBy, WaitRow
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.invoke import Call
from everstep.runtime.drive.midway import News
from everstep.runtime.guards.breakers import Breakers
from everstep.runtime.guards.shared_breakers import SharedBreakers
from everstep.runtime.workers.backpressure import enduringly

_TICK = Decimal("0.001")
"""Time is counted in milliseconds."""


class Guards:
    """The budgets and breakers of one drive."""

    def __init__(self, run: RunContext, finished: Iterable[Call], shared: SharedBreakers | None) -> None:
        self._services = run.services
        self._clock = run.clock
        self._journal = run.journal
        self._state = run.state
        self._finished = finished
        self._budgets = {budget.name: budget for budget in run.flow.budgets}
        self._breakers = Breakers(run, shared)
        self._is_timed = SECONDS in self._budgets
        self._since = self._clock.monotonic()
        self._can_ask = run.journal.writes and run.services.store.capabilities.holds_waits
        self.is_shared = self._breakers.has_shared
        """True if others may have something to say about what may start."""

    def declare(self, calls: Mapping[Any, Call]) -> None:
        """Begin to guard: record which budgets hold, if they are others than those on record.

        `calls` are those under way, now and later.
        """
        self._breakers.calls = calls
        self._since = self._clock.monotonic()
        limits = {name: budget.amount for name, budget in self._budgets.items()}
        if limits and limits != self._state.books.limits:
            self._mark(Guarded(limits=limits))

    def _mark(self, guarded: Guarded) -> None:
        self._journal.add(StepRecord(path=GUARDS, ended_at=self._clock.now(), guards=guarded), ())

    # -- starting -----------------------------------------------------------------------------------------

    _is_down = False

    def stand_down(self) -> None:
        """Hold nothing any more: what a run did is undone, whatever that costs."""
        self._is_down = True

    def allowed(self, ready: list[Place]) -> list[Place]:
        """Leave out what must not start while a person is asked; the first to be stopped will ask."""
        rested = self._breakers.rested() if ready else {}
        if rested:
            self._mark(Guarded(breakers=rested))
        found: list[Place] = []
        asked: set[str] = set()
        for place in ready:
            guard = self._stops(*place)
            if guard is None:
                found.append(place)
            elif guard not in asked and not self._is_asked(guard):
                asked.add(guard)
                found.append(place)
        return found

    def holds(self, scope: Scope, i: int, starting: Sequence[Call]) -> bool:
        """True if a node is to wait for a question that is open, or for a try.

        `starting` are the calls that start together with it: one of them may be that try, or ask.
        """
        guard = self._stops(scope, i)
        if guard is not None:
            return self._is_asked(guard) or _ask(starting, guard)
        return not (self._is_down or scope.is_hidden) and self._breakers.is_tried_by(starting, scope, i)

    def ask(self, scope: Scope, i: int, under_way: Call | None = None) -> GuardWait | EverstepError | None:
        """Return what a person is asked before a node may start, or go on, or why it cannot."""
        guard = self._stops(scope, i, under_way)
        if guard is None:
            return None
        path, books, breakers = scope.path_of(i), self._state.books, self._breakers
        if guard.startswith(BREAKER):
            name = guard.removeprefix(BREAKER)
            also = [n for n in breakers.rules if n != name and breakers.at(n).state is BreakerState.OPEN]
            if not self._can_ask:
                return is_open(name, breakers.at(name))
            return for_review(path, breakers.rules[name], breakers.at(name), breakers.until(name), also)
        name = guard.removeprefix(BUDGET)
        if not self._can_ask:
            return exceeded(books, name)
        spent, limit = books.spent.get(name, ZERO), books.limit_of(name) or ZERO
        budget = self._budgets.get(name) or Budget(name, books.limits[name])
        return for_more(path, budget, spent, limit, past(spent, limit, books.limits[name]))

    def _stops(self, scope: Scope, i: int, under_way: Call | None = None) -> str | None:
        """Return the guard that keeps a node from starting, the first of them."""
        if self._is_down or scope.is_hidden or i in scope.plan.meetings:
            return None
        child = scope.plan.children.get(i)
        if child is not None and not child.is_atomic:
            return None  # what is inside will be stopped
        books = self._state.books
        for name in self._budgets:
            limit = books.limit_of(name)
            if limit is not None and books.spent.get(name, ZERO) >= limit:
                return BUDGET + name
        return self._breakers.stops(scope, i, under_way)

    def _is_asked(self, guard: str) -> bool:
        """True if a person is asked already, or a call tries what the others wait for."""
        if guard.startswith(BREAKER) and self._breakers.is_tried(guard.removeprefix(BREAKER)):
            return True
        for scope, i in self._state.waits.values():
            step = scope.waiting.get(i)
            if step is not None and step.wait is not None and step.wait.guard == guard:
                return True
        return _ask(self._finished, guard)

    # -- what happens -------------------------------------------------------------------------------------

    def spending(self, call: Call, amounts: Mapping[str, Decimal]) -> tuple[Guarded | None, News | None]:
        """Say what an amount that is about to be recorded does to the guards."""
        changed = self._breakers.after_spending(call, amounts)
        guarded = Guarded(breakers=changed) if changed else None
        return guarded, self._news(changed, amounts)

    def on_step(self, call: Call, step: StepRecord) -> StepRecord:
        """Return the step with what it did to the guards, before it is recorded."""
        if call.scope.is_hidden:
            return step
        spent = {SECONDS: self._passed()} if self._is_timed else None
        changed = self._breakers.after_step(call, step)
        if call.guards is not None:
            for name in call.guards.breakers:
                self._breakers.approve(name)
        if spent is None and not changed:
            return step
        call.news = self._news(changed, spent or {})
        self._services.tally.spend(spent or {})
        guards = step.guards if not changed else Guarded(breakers=changed)
        return msgspec.structs.replace(step, spent=spent, guards=guards)

    def _news(self, changed: Mapping[str, BreakerAt], amounts: Mapping[str, Decimal]) -> News | None:
        """Say why a checkpoint is due at once, if it is; a breaker goes before a budget."""
        tripped = {
            name: {"reason": at.reason, "trips": at.trips}
            for name, at in changed.items()
            if at.state is BreakerState.OPEN
        }
        crossed = self._crossed(amounts)
        if tripped or crossed:
            self._services.tally.speak_up(budgets=crossed, breakers=tripped)
        about: dict[str, Any] = {"budgets": crossed} if crossed else {}
        if tripped:
            return Trigger.CIRCUIT_BREAKER, {"breakers": tripped, **about}
        return (Trigger.COST_THRESHOLD, about) if crossed else None

    # -- shared breakers ----------------------------------------------------------------------------------

    async def look(self) -> None:
        """Find out how shared breakers stand, and record it if that is news to the run.

        While the store is out of reach, they are believed to stand as they did.
        """
        try:
            changed = await self._breakers.look(self._is_asked)
        except StoreError as error:
            if self._journal.outbox is None and not isinstance(error, StoreUnavailable):
                raise
            return
        if changed:
            self._mark(Guarded(breakers=changed))

    async def share(self) -> News | None:
        """Tell other runs what happened to shared breakers; returns why to write at once, if they opened."""
        if not self._breakers.has_news:
            return None
        services, tell = self._services, self._breakers.tell
        try:
            if self._journal.outbox is not None:
                changed = await tell()
            else:
                changed = await enduringly(services.clock, services.ids, services.weather, tell)
        except StoreError:
            if self._journal.outbox is None:
                raise
            return None
        if changed:
            self._mark(Guarded(breakers=changed))
        return self._news(changed, {})

    def _passed(self) -> Decimal:
        """Return the time since it was last asked for, to the millisecond."""
        passed = Decimal(repr(self._clock.monotonic() - self._since)).quantize(_TICK, ROUND_DOWN)
        passed = max(passed, ZERO)
        self._since += float(passed)
        return passed

    def _crossed(self, amounts: Mapping[str, Decimal]) -> dict[str, dict[str, str]]:
        """Return the budgets that these amounts take past where they warn."""
        books, crossed = self._state.books, {}
        for name, amount in amounts.items():
            budget, limit = self._budgets.get(name), books.limit_of(name)
            line = budget.warns_from(limit) if budget is not None and limit is not None else None
            before = books.spent.get(name, ZERO)
            if line is not None and limit is not None and before < line <= add(before, amount):
                crossed[name] = {"spent": plain(add(before, amount)), "limit": plain(limit)}
        return crossed


def _ask(calls: Iterable[Call], guard: str) -> bool:
    return any(isinstance(call.asks, GuardWait) and call.asks.guard == guard for call in calls)


def exceeded(books: Books, name: str) -> BudgetExceeded:
    """Return why a run fails whose budget is spent."""
    spent, limit = books.spent.get(name, ZERO), books.limit_of(name) or ZERO
    return BudgetExceeded(
        f"{plain(spent)} of {plain(limit)} {name} are spent, and more was not approved.",
        fix="Resume the run to be asked again, or raise the budget of its flow.",
        budget=name,
    )


def is_open(name: str, at: BreakerAt) -> BreakerOpen:
    """Return why a run fails that an open breaker stops."""
    return BreakerOpen(
        f"breaker {name!r} is open: {at.reason}.",
        fix="Fix what failed, then resume the run to be asked again.",
        breaker=name,
    )


def take_answer(call: Call, row: WaitRow, guard: str, books: Books, now: datetime) -> None:
    """Take what a person said before a node: it may start, or its run fails."""
    call.is_made = False
    said: dict[str, Any] = msgspec.json.decode(row.answer or b"{}")
    is_approved = bool(said.get("approved")) or row.settled_by is SettledBy.CLOCK
    if guard.startswith(BREAKER):
        name = guard.removeprefix(BREAKER)
        at = books.breakers.get(name, BreakerAt())
        call.guards = Guarded(breakers={name: breaking.half_open(at, now)})
        call.error = None if is_approved else is_open(name, at)
    else:
        name, by = guard.removeprefix(BUDGET), said.get("raise_by")
        if by is None:  # what was asked for, whatever the flow says by now
            asked = msgspec.json.decode(row.details or b"{}").get("context") or {}
            by = asked.get("raise_by")
        amount = books.limits.get(name, ZERO) if by is None else amount_of(by, "raise_by")
        call.guards = Guarded(raised={name: amount})
        call.error = None if is_approved else exceeded(books, name)
    call.is_again = call.error is None
    if call.error is not None:
        call.guards = None
