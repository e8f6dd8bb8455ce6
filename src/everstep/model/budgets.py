"""What a run may spend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from everstep.errors import BadRequest
from everstep.model.amounts import SECONDS, amount_of, check_name, named_amount, plain, times

Amount = int | float | str | Decimal


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of something a run may spend: `Budget("usd", "5.00")`, `Budget("seconds", "10m")`.

    At `warn_at` of it a checkpoint is written and an event is emitted; once all of it is spent nothing
    new starts before a person has approved of more.
    """

    name: str
    limit: Amount | timedelta
    warn_at: float | None = 0.8
    notify: str | Iterable[str] | None = None
    """Aliases of the host's notifiers: who is told when a person is asked."""

    def __post_init__(self) -> None:
        check_name(self.name, "a budget")
        limit = named_amount(self.name, self.limit, f"the budget {self.name!r}")
        if limit == 0:
            raise BadRequest(f"the budget {self.name!r} is 0.", fix="Give it something to spend.")
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "notify", aliases_of(self.notify, f"the budget {self.name!r}"))
        if self.warn_at is not None:
            share = amount_of(self.warn_at, f"warn_at of the budget {self.name!r}")
            if not 0 < share <= 1:
                raise BadRequest(
                    f"the budget {self.name!r}: warn_at is {self.warn_at!r}.",
                    fix="Give a part of 1, such as 0.8, or None.",
                )
            object.__setattr__(self, "warn_at", float(share))

    @property
    def amount(self) -> Decimal:
        """The limit, as an exact number."""
        assert isinstance(self.limit, Decimal)
        return self.limit

    @property
    def notified(self) -> tuple[str, ...]:
        """The aliases of those who are told."""
        return tuple(self.notify or ())

    def warns_from(self, limit: Decimal) -> Decimal | None:
        """Return from where on it warns, if this is its limit by now."""
        return None if self.warn_at is None else times(limit, Decimal(repr(self.warn_at)))

    def to_wire(self) -> dict[str, Any]:
        """Return it as the Flow IR says it."""
        told = {"notify": list(self.notified)} if self.notified else {}
        return {"name": self.name, "limit": plain(self.amount), "warn_at": self.warn_at, **told}

    @classmethod
    def of_wire(cls, ir: Mapping[str, Any]) -> Budget:
        """Read what `to_wire` wrote; seconds may be a span, such as "10m"."""
        limit = ir["limit"]
        if ir["name"] == SECONDS and isinstance(limit, str) and limit.replace(".", "", 1).isdecimal():
            limit = Decimal(limit)
        return cls(ir["name"], limit, ir.get("warn_at", 0.8), ir.get("notify"))


def aliases_of(given: Any, what: str) -> tuple[str, ...]:
    """Read who is told: an alias of a host's notifiers, or several."""
    listed = (given,) if isinstance(given, str) else given
    if listed is None:
        return ()
    if isinstance(listed, Iterable):
        found = tuple(listed)
        if all(isinstance(alias, str) and alias for alias in found):
            return found
    raise BadRequest(f"{what}: notify is {given!r:.60}.", fix="Give the alias of a notifier, or a list.")


def budgets_of(flow: str, given: Any) -> tuple[Budget, ...]:
    """Read the budgets of a flow: a list of them, or limits by name."""
    if isinstance(given, Mapping):
        given = [Budget(name, limit) for name, limit in given.items()]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadRequest(
            f"flow {flow!r}: budgets is {given!r:.60}.", fix='Write budgets=[Budget("usd", "5.00")].'
        )
    found = tuple(given)
    for budget in found:
        if not isinstance(budget, Budget):
            raise BadRequest(
                f"flow {flow!r} has {budget!r:.60} among its budgets.", fix='Write Budget("usd", "5.00").'
            )
    names = [budget.name for budget in found]
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f"flow {flow!r} has two budgets {name!r}.", fix="Keep one of them.")
    return found
