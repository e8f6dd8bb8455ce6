"""What a run has spent, what it may spend, and how its breakers stand."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from everstep.codec.wire import to_wire
from everstep.engine.books import Books
from everstep.model.budgets import ZERO, add
from everstep.model.ledger import BreakerAt, BreakerState, Guarded
from everstep.model.shapes import HIDDEN, Count, Instant, shown
from everstep.ports.store import Counts as Counts


class _WasTuple(msgspec.Struct, frozen=True, kw_only=True):
    """What 0.1 had as a tuple, and as a `to_json` of its own."""

    to_json = to_wire

    def __iter__(self) -> Iterator[Any]:
        message = f"{type(self).__name__} is no tuple from 0.3 on; use its fields by name"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return (getattr(self, name) for name in self.__struct_fields__)


class BudgetInfo(_WasTuple, frozen=True, kw_only=True):
    """How much of a budget is left."""

    spent: Decimal
    limit: Decimal
    """What may be spent in all, with what was approved since."""
    raised: Decimal
    """What was approved since."""

    @shown
    def left(self) -> Decimal:
        """What may still be spent; 0 if more was spent than that."""
        return max(ZERO, add(self.limit, self.spent.copy_negate()))

    @property
    def share(self) -> float:
        """How much of it is spent, as a part of 1."""
        return float(self.spent / self.limit) if self.limit else 1.0


class BreakerInfo(_WasTuple, frozen=True, kw_only=True):
    """How a breaker stands."""

    name: Annotated[str, HIDDEN]
    state: BreakerState
    since: Instant | None
    reason: str
    """Why it opened last."""
    trips: Count
    """How often it has opened."""
    failures: Count
    """Calls that failed in a row."""

    @classmethod
    def of(cls, name: str, at: BreakerAt) -> BreakerInfo:
        """Return what is to be seen of a breaker."""
        return cls(
            name=name,
            state=at.state,
            since=at.since,
            reason=at.reason,
            trips=at.trips,
            failures=at.failures,
        )


class GuardedInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did to the guards of its run."""

    limits: Mapping[str, Decimal]
    raised: Mapping[str, Decimal]
    breakers: Mapping[str, BreakerInfo]

    @classmethod
    def of(cls, guarded: Guarded) -> GuardedInfo:
        """Describe what a record says."""
        breakers = {name: BreakerInfo.of(name, at) for name, at in guarded.breakers.items()}
        return cls(limits=guarded.limits, raised=guarded.raised, breakers=breakers)


class RunGuards(_WasTuple, frozen=True, kw_only=True):
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
                spent=books.spent.get(name, ZERO),
                limit=books.limit_of(name) or ZERO,
                raised=books.raised.get(name, ZERO),
            )
            for name in books.limits
        }
        breakers = {name: BreakerInfo.of(name, at) for name, at in books.breakers.items()}
        return cls(spent=dict(books.spent), budgets=budgets, breakers=breakers)

    def __bool__(self) -> bool:
        return bool(self.spent or self.budgets or self.breakers)
