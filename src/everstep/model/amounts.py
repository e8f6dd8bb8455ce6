"""Amounts that runs spend: exact, never a float."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Final

from everstep.errors import BadRequest
from everstep.model.durations import span_of

SECONDS: Final = "seconds"
"""The name of wall time, which the runtime measures by itself."""
ZERO: Final = Decimal(0)
_EXACT: Final = Context(prec=80, traps=[Inexact, InvalidOperation, Overflow])
_MOST: Final = Decimal(10) ** 24
_PLACES: Final = 18
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


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
    if not isinstance(name, str) or not _NAME.fullmatch(name):
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
