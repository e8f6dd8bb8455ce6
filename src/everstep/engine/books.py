"""What a run has spent and how its guards stand: the fold of what its steps say of that."""

from __future__ import annotations

from decimal import Decimal

from everstep.model.budgets import ZERO, add, add_to
from everstep.model.ledger import BreakerAt, Ledger
from everstep.model.records import StepRecord


class Books:
    """The books of one run. `take` is the only thing that changes them."""

    __slots__ = ("breakers", "limits", "raised", "spent")

    def __init__(self, kept: Ledger | None = None) -> None:
        self.spent: dict[str, Decimal] = {} if kept is None else dict(kept.spent)
        """What was spent, by name. What an attempt spent that failed later is spent all the same."""
        self.limits: dict[str, Decimal] = {} if kept is None else dict(kept.limits)
        """The budgets as they were declared."""
        self.raised: dict[str, Decimal] = {} if kept is None else dict(kept.raised)
        """By how much they were raised since."""
        self.breakers: dict[str, BreakerAt] = {} if kept is None else dict(kept.breakers)

    def take(self, step: StepRecord) -> None:
        """Take a recorded step into account."""
        if step.spent is not None:
            add_to(self.spent, step.spent)
        guarded = step.guards
        if guarded is not None:
            if guarded.limits:
                self.limits = dict(guarded.limits)
            add_to(self.raised, guarded.raised)
            self.breakers.update(guarded.breakers)

    def limit_of(self, name: str) -> Decimal | None:
        """Return how much may be spent in all by now; none if there is no limit."""
        declared = self.limits.get(name)
        return None if declared is None else add(declared, self.raised.get(name, ZERO))

    def to_ledger(self) -> Ledger | None:
        """Return what a keyframe keeps; none if there is nothing."""
        if not (self.spent or self.limits or self.raised or self.breakers):
            return None
        return Ledger(dict(self.spent), dict(self.limits), dict(self.raised), dict(self.breakers))
