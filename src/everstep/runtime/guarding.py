"""Budgets and breakers while a run is driven: what may start, what it has cost, who is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec

from everstep.engine.books import Books
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.errors import BudgetExceeded, EverstepError
from everstep.graph.flow import Flow
from everstep.graph.guards import BUDGET, GuardWait, for_more
from everstep.model.amounts import SECONDS, ZERO, add, amount_of, plain
from everstep.model.enums import Trigger
from everstep.model.ledger import Guarded
from everstep.model.records import GUARDS, StepRecord
from everstep.model.waits import WaitRow
from everstep.runtime.invoke import Call
from everstep.runtime.journal import Journal
from everstep.runtime.limits import Place
from everstep.runtime.services import Services
from everstep.runtime.spending import News

_TICK = Decimal("0.001")
"""Time is counted in milliseconds."""


class Guards:
    """The budgets and breakers of one drive."""

    def __init__(
        self, services: Services, flow: Flow, journal: Journal, state: RunState, finished: Iterable[Call]
    ) -> None:
        self._services = services
        self._clock = services.clock
        self._journal = journal
        self._state = state
        self._finished = finished
        self._budgets = {budget.name: budget for budget in flow.budgets}
        self._is_timed = SECONDS in self._budgets
        self._since = self._clock.monotonic()
        self._can_ask = journal.writes and services.store.capabilities.holds_waits

    def declare(self) -> None:
        """Begin to guard: record which budgets hold, if they are others than those on record."""
        self._since = self._clock.monotonic()
        limits = {name: budget.amount for name, budget in self._budgets.items()}
        if limits != self._state.books.limits:
            self._journal.add(StepRecord(path=GUARDS, guards=Guarded(limits=limits)), ())

    # -- starting -----------------------------------------------------------------------------------------

    def allowed(self, ready: list[Place]) -> list[Place]:
        """Leave out what must not start while somebody is asked; the first to be stopped will ask."""
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

    def holds(self, scope: Scope, i: int) -> bool:
        """True if a node is to wait for what somebody else is asked."""
        guard = self._stops(scope, i)
        return guard is not None and self._is_asked(guard)

    def ask(self, scope: Scope, i: int) -> GuardWait | EverstepError | None:
        """Return what a person is asked before a node may start, or why it cannot if nobody can be asked."""
        guard = self._stops(scope, i)
        if guard is None:
            return None
        path, name, books = scope.path_of(i), guard.removeprefix(BUDGET), self._state.books
        spent, limit = books.spent.get(name, ZERO), books.limit_of(name) or ZERO
        if not self._can_ask:
            return exceeded(books, name)
        return for_more(path, name, spent, limit, books.limits[name])

    def _stops(self, scope: Scope, i: int) -> str | None:
        """Return the guard that keeps a node from starting, the first of them."""
        if scope.is_hidden or i in scope.plan.meetings:
            return None
        child = scope.plan.children.get(i)
        if child is not None and not child.is_atomic:
            return None  # what is inside will be stopped
        books = self._state.books
        for name in self._budgets:
            limit = books.limit_of(name)
            if limit is not None and books.spent.get(name, ZERO) >= limit:
                return BUDGET + name
        return None

    def _is_asked(self, guard: str) -> bool:
        for scope, i in self._state.waits.values():
            step = scope.waiting.get(i)
            if step is not None and step.wait is not None and step.wait.guard == guard:
                return True
        return any(isinstance(call.asks, GuardWait) and call.asks.guard == guard for call in self._finished)

    # -- spending -----------------------------------------------------------------------------------------

    def spending(self, call: Call, amounts: Mapping[str, Decimal]) -> tuple[Guarded | None, News | None]:
        """Say what an amount that is about to be recorded does to the guards."""
        return None, self._crossed(amounts)

    def on_step(self, call: Call, step: StepRecord) -> StepRecord:
        """Return the step with what it did to the guards, before it is recorded."""
        if call.scope.is_hidden or not self._is_timed:
            return step
        spent = {SECONDS: self._passed()}
        call.news = self._crossed(spent)
        return msgspec.structs.replace(step, spent=spent)

    def _passed(self) -> Decimal:
        """Return the time since it was last asked for, to the millisecond."""
        passed = Decimal(repr(self._clock.monotonic() - self._since)).quantize(_TICK, ROUND_DOWN)
        passed = max(passed, ZERO)
        self._since += float(passed)
        return passed

    def _crossed(self, amounts: Mapping[str, Decimal]) -> News | None:
        """Say so if these amounts take a budget past where it warns."""
        books, crossed = self._state.books, {}
        for name, amount in amounts.items():
            budget, limit = self._budgets.get(name), books.limit_of(name)
            line = budget.warns_from(limit) if budget is not None and limit is not None else None
            before = books.spent.get(name, ZERO)
            if line is not None and limit is not None and before < line <= add(before, amount):
                crossed[name] = {"spent": plain(add(before, amount)), "limit": plain(limit)}
        return (Trigger.COST_THRESHOLD, {"budgets": crossed}) if crossed else None


def exceeded(books: Books, name: str) -> BudgetExceeded:
    """Return why a run fails whose budget is spent."""
    spent, limit = books.spent.get(name, ZERO), books.limit_of(name) or ZERO
    return BudgetExceeded(
        f"{plain(spent)} of {plain(limit)} {name} are spent, and more was not approved.",
        fix="Resume the run to be asked again, or raise the budget of its flow.",
        budget=name,
    )


def take_answer(call: Call, row: WaitRow, guard: str, books: Books) -> None:
    """Take what a person said before a node: it may start, or its run fails."""
    call.is_made = False
    said: dict[str, Any] = msgspec.json.decode(row.answer or b"{}")
    name = guard.removeprefix(BUDGET)
    if not said.get("approved"):
        call.error = exceeded(books, name)
        return
    by = said.get("raise_by")
    amount = books.limits.get(name, ZERO) if by is None else amount_of(by, "raise_by")
    call.guards = Guarded(raised={name: amount})
    call.is_again = True
