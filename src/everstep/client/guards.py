"""What a run has spent, what it may spend, and how its breakers stand, as a host shows it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from everstep.engine.books import Books
from everstep.model.amounts import ZERO, add, plain, spelled
from everstep.model.ledger import BreakerAt, BreakerState, Guarded
from everstep.ports.store import Counts as Counts


class BudgetInfo(NamedTuple):
    """How much of a budget is left."""

    spent: Decimal
    limit: Decimal
    """What may be spent in all, with what was approved since."""
    raised: Decimal
    """What was approved since."""

    @property
    def left(self) -> Decimal:
        """What may still be spent; 0 if more was spent than that."""
        return max(ZERO, add(self.limit, self.spent.copy_negate()))

    @property
    def share(self) -> float:
        """How much of it is spent, as a part of 1."""
        return float(self.spent / self.limit) if self.limit else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return it with amounts as text, so that no JSON reader rounds them."""
        return {
            "spent": plain(self.spent),
            "limit": plain(self.limit),
            "raised": plain(self.raised),
            "left": plain(self.left),
        }


class BreakerInfo(NamedTuple):
    """How a breaker stands."""

    name: str
    state: BreakerState
    since: datetime | None
    reason: str
    """Why it opened last."""
    trips: int
    """How often it has opened."""
    failures: int
    """Calls that failed in a row."""

    @classmethod
    def of(cls, name: str, at: BreakerAt) -> BreakerInfo:
        """Return what is to be seen of a breaker."""
        return cls(name, at.state, at.since, at.reason, at.trips, at.failures)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "state": self.state.value,
            "since": None if self.since is None else self.since.isoformat(),
            "reason": self.reason,
            "trips": self.trips,
            "failures": self.failures,
        }


def guarded_json(guarded: Guarded) -> dict[str, Any]:
    """Return what a step did to the guards of its run as plain data."""
    return {
        "limits": spelled(guarded.limits),
        "raised": spelled(guarded.raised),
        "breakers": {name: BreakerInfo.of(name, at).to_json() for name, at in guarded.breakers.items()},
    }


class RunGuards(NamedTuple):
    """The guards of a run at one checkpoint."""

    spent: Mapping[str, Decimal]
    """What was spent, by name, budget or not."""
    budgets: Mapping[str, BudgetInfo]
    breakers: Mapping[str, BreakerInfo]

    @classmethod
    def of(cls, books: Books) -> RunGuards:
        """Return what is to be seen of a run's books."""
        budgets = {
            name: BudgetInfo(
                books.spent.get(name, ZERO), books.limit_of(name) or ZERO, books.raised.get(name, ZERO)
            )
            for name in books.limits
        }
        breakers = {name: BreakerInfo.of(name, at) for name, at in books.breakers.items()}
        return cls(dict(books.spent), budgets, breakers)

    def __bool__(self) -> bool:
        return bool(self.spent or self.budgets or self.breakers)

    def to_json(self) -> dict[str, Any]:
        """Return them as plain data; amounts are text, so that no JSON reader rounds them."""
        return {
            "spent": spelled(self.spent),
            "budgets": {name: budget.to_json() for name, budget in self.budgets.items()},
            "breakers": {name: breaker.to_json() for name, breaker in self.breakers.items()},
        }
