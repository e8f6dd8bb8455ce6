"""What a run may spend, and amounts: exact, never a float."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Final

from everstep.errors import BadRequest
from everstep.model.durations import span_of

Amount = int | float | str | Decimal
SECONDS: Final = "seconds"
"""The name of wall time, which the runtime measures by itself."""
ZERO: Final = Decimal(0)
_EXACT: Final = Context(prec=80, traps=[Inexact, InvalidOperation, Overflow])
_MOST: Final = Decimal(10) ** 24
_PLACES: Final = 18
_NAME: Final = r"[a-z][a-z0-9_]{0,39}"


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


def amount_of(given: Any, what: str) -> Decimal:
    """Read an amount: a whole number, text such as "0.12", a `Decimal`, or a float as it is written."""
    fix = 'Give a number from 0 on: 3, "0.12" or Decimal("0.12").'
    if isinstance(given, bool) or not isinstance(given, (int, float, str, Decimal)):
        raise BadRequest(f"{what} is {given!r:.60}.", fix=fix)
    try:
        amount = Decimal(repr(given) if isinstance(given, float) else given)
    except (InvalidOperation, ValueError):
        raise BadRequest(f"{what} is {given!r:.60}.", fix=fix) from None
    if not amount.is_finite() or amount < 0:
        raise BadRequest(f"{what} is {given!r:.60}.", fix=fix)
    exponent = amount.as_tuple().exponent
    if amount > _MOST or (isinstance(exponent, int) and exponent < -_PLACES):
        raise BadRequest(
            f"{what} is {given!r:.60}, which is too large or too fine.",
            fix=f"Give at most 10^24, with at most {_PLACES} decimal places.",
        )
    return amount


def named_amount(name: str, given: Any, what: str) -> Decimal:
    """Read an amount of something by its name: seconds may be a span of time, such as "10m"."""
    if name == SECONDS and isinstance(given, (str, timedelta)):
        return seconds_of(span_of(given, what))
    return amount_of(given, what)


def seconds_of(span: timedelta) -> Decimal:
    """Return a span in seconds, to the microsecond."""
    return _EXACT.divide(Decimal(span // timedelta(microseconds=1)), Decimal(1_000_000))


def check_name(name: Any, what: str) -> str:
    """Return what is spent, if it can be a name: `usd`, `tokens`."""
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise BadRequest(
            f"{what} is called {name!r:.60}.", fix="Use small letters, digits and _: usd, tokens, calls."
        )
    return name


def add(one: Decimal, other: Decimal) -> Decimal:
    """Return the exact sum."""
    return _EXACT.add(one, other)


def times(one: Decimal, other: Decimal) -> Decimal:
    """Return the exact product."""
    return _EXACT.multiply(one, other)


def past(spent: Decimal, limit: Decimal, by: Decimal) -> Decimal:
    """Return what raises a limit past what is spent: an amount, as often as that takes."""
    over = _EXACT.add(spent, limit.copy_negate())
    return times(by, add(_EXACT.divide_int(over, by), Decimal(1)))


def add_to(sums: dict[str, Decimal], amounts: Mapping[str, Decimal]) -> None:
    """Add amounts to sums, name by name."""
    for name, amount in amounts.items():
        sums[name] = add(sums.get(name, ZERO), amount)


def spelled(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    """Return amounts as JSON says them: as text, so that no JSON reader rounds them."""
    return {name: plain(amount) for name, amount in amounts.items()}


def plain(amount: Decimal) -> str:
    """Write an amount without an exponent."""
    return format(amount, "f")
