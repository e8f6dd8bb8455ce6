"""What the drives of one process have spent, and how often their guards spoke up, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal

from everstep.model.amounts import add_to
from everstep.ports.system import Lock


class Tally:
    """Counts since the host was opened. Never the source of truth: records are."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._spent: dict[str, Decimal] = {}
        self._warnings: Counter[str] = Counter()
        self._trips: Counter[str] = Counter()

    def spend(self, amounts: Mapping[str, Decimal]) -> None:
        """Count what was spent."""
        with self._lock:
            add_to(self._spent, amounts)

    def speak_up(self, *, budgets: Iterable[str], breakers: Iterable[str]) -> None:
        """Count budgets that warned and breakers that opened."""
        with self._lock:
            self._warnings.update(list(budgets))
            self._trips.update(list(breakers))

    def counts(self) -> tuple[dict[str, Decimal], dict[str, int], dict[str, int]]:
        """Return what was spent, how often each budget warned, and how often each breaker opened."""
        with self._lock:
            return dict(self._spent), dict(self._warnings), dict(self._trips)
