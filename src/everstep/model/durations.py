"""How users write a span of time and a moment."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from everstep.errors import BadRequest, InvalidDelay
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from fractions import Fraction
else:
    Fraction = on_demand("fractions:Fraction")

Span = timedelta | str | float
"""What users may give for a span of time: a `timedelta`, text with units, or a number of seconds."""

Ends = timedelta | datetime
"""A deadline: a span from when a run begins or goes on, or a moment."""

LONGEST: Final = timedelta(days=365_000)
"""About a thousand years: now and the longest span still make a date."""

_MICROSECONDS: Final = {
    unit: micros
    for micros, units in (
        (604_800_000_000, "w wk wks week weeks"),
        (86_400_000_000, "d day days"),
        (3_600_000_000, "h hr hrs hour hours"),
        (60_000_000, "m min mins minute minutes"),
        (1_000_000, "s sec secs second seconds"),
        (1_000, "ms msec msecs millisecond milliseconds"),
    )
    for unit in units.split()
}
_MOST_CHARACTERS: Final = 100
_PART: Final = r"(?i)([0-9]+(?:\.[0-9]+)?)[ \t]*([a-z]+)[ \t]*(?:,[ \t]*(?=[0-9]))?"
_ISO_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_ISO: Final = (
    rf"P(?=[0-9T])(?:{_ISO_NUMBER}W)?(?:{_ISO_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_ISO_NUMBER}H)?(?:{_ISO_NUMBER}M)?(?:{_ISO_NUMBER}S)?)?"
)
_SHORTEST: Final = math.ulp(0.0)
_MOST_SECONDS: Final = LONGEST.total_seconds()
_EXAMPLE: Final = 'Write it as "2d 4h", "90m", "1.5h" or "P2DT4H", or give seconds or a timedelta.'


def span_of(value: object, what: str = "duration") -> timedelta:
    """Read a span of time: a `timedelta`, text such as `"2d 4h"`, `"90m"` or `"P2DT4H"`, or seconds."""
    match value:
        case timedelta():
            span = value
        case str():
            span = _read(value.strip(), what)
        case bool():
            raise BadRequest(f"{what} is {value!r}, which is no span of time.", fix=_EXAMPLE)
        case int() | float():
            span = _of_seconds(value, what)
        case _:
            raise BadRequest(f"{what} is {_short(value)}, which is no span of time.", fix=_EXAMPLE)
    if span < timedelta(0):
        raise _negative(value, what)
    if span > LONGEST:
        raise _too_long(value, what)
    return span


def seconds_of(value: object, what: str, *, least: float = _SHORTEST) -> float:
    """Read a span as seconds, by default one above zero."""
    try:
        seconds = span_of(value, what).total_seconds()
    except InvalidDelay:
        seconds = -1.0
    if seconds >= 0 and isinstance(value, (int, float)):
        seconds = float(value)  # to the last bit, where a timedelta is rounded
    if seconds < least:
        raise BadRequest(f"{what} is {_short(value)}, which is no time.", fix=_EXAMPLE)
    return seconds


def is_span(text: str) -> bool:
    """Say whether `span_of` takes this text."""
    try:
        span_of(text)
    except (BadRequest, InvalidDelay):
        return False
    return True


def spell(span: timedelta) -> str:
    """Write a span as `span_of` reads it, to the millisecond: `"2d 4h"`."""
    sign = "-" if span < timedelta(0) else ""
    left = round(abs(span) / timedelta(milliseconds=1))
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, _MICROSECONDS[unit] // 1_000)
        if count:
            parts.append(f"{count}{unit}")
    return sign + " ".join(parts) if parts else "0s"


def time_of(value: object, now: datetime, what: str = "the time") -> datetime:
    """Read a time as people write it: `-2d` for so long ago, `2026-01-31`, `now`, or any moment."""
    text = value.strip() if isinstance(value, str) else ""
    if text.lower() == "now":
        return now
    try:
        if text.startswith("-"):
            return now - span_of(text[1:])
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
        return moment_of(value, what)
    except (BadRequest, InvalidDelay, ValueError, OverflowError):
        raise BadRequest(
            f"{what} is {_short(value)}, which is no time.",
            fix="Write -2d or -90m for so long ago, 2026-01-31, 2026-01-31T09:00:00Z, or now.",
        ) from None


def moment_of(value: object, what: str = "until") -> datetime:
    """Read a moment as UTC: an aware `datetime`, or ISO 8601 text with an offset or Z."""
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            moment = None
    if not isinstance(moment, datetime):
        raise BadRequest(
            f"{what} is {_short(value)}, which is no moment.",
            fix='Give an aware datetime, or text such as "2030-01-01T09:00:00Z".',
        )
    if moment.utcoffset() is None:
        raise BadRequest(
            f"{what} is {_short(value)}, which says no time zone.",
            fix='Add one: "2030-01-01T09:00:00+01:00", or datetime(..., tzinfo=UTC).',
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise BadRequest(f"{what} is {_short(value)}, which lies outside the years 1 to 9999.") from None


def _of_seconds(value: float, what: str) -> timedelta:
    if value != value:
        raise BadRequest(f"{what} is {_short(value)}, which is no span of time.", fix=_EXAMPLE)
    if value < 0:
        raise _negative(_short(value), what)
    if value > _MOST_SECONDS:
        raise _too_long(value, what)
    return timedelta(seconds=value)


def _read(text: str, what: str) -> timedelta:
    is_negative = text.startswith(("-", "−"))
    rest = text[1:].lstrip() if is_negative else text
    micros = _micros(rest) if len(text) <= _MOST_CHARACTERS else None
    if micros is None:
        bare = re.fullmatch(r"[0-9]+(\.[0-9]+)?", rest[:_MOST_CHARACTERS])
        problem = "a bare number without a unit" if bare else "which is no span of time"
        raise BadRequest(f"{what} is {_short(text)}, {problem}.", fix=_EXAMPLE)
    if is_negative:
        raise _negative(text, what)
    try:
        return timedelta(microseconds=round(micros))
    except OverflowError:
        raise _too_long(text, what) from None


def _micros(text: str) -> Fraction | None:
    if found := re.fullmatch(_ISO, text):
        counts = [Fraction((number or "0").replace(",", ".")) for number in found.groups()]
        return sum((n * _MICROSECONDS[u] for n, u in zip(counts, "wdhms", strict=True)), Fraction(0))
    total, seen, at = Fraction(0), set[int](), 0
    while at < len(text):
        part = re.match(_PART, text[at:])
        size = _MICROSECONDS.get(part[2].lower()) if part else None
        if part is None or size is None or size in seen:
            return None
        seen.add(size)
        total += Fraction(part[1]) * size
        at += part.end()
    return total if seen else None


def _negative(value: object, what: str) -> InvalidDelay:
    said = spell(value) if isinstance(value, timedelta) else str(value)
    return InvalidDelay(
        f"{what} is {said}, and time does not go back.", fix='Give a span from "0s" on, or a moment.'
    )


def _too_long(value: object, what: str) -> BadRequest:
    said = spell(value) if isinstance(value, timedelta) else _short(value)
    return BadRequest(
        f"{what} is {said}, longer than {spell(LONGEST)}.", fix="Leave it out to wait for ever."
    )


def _short(value: object) -> str:
    try:
        said = str(value) if isinstance(value, datetime) else repr(value)
    except ValueError:  # an int with too many digits to print
        said = f"a very large {type(value).__name__}"
    return said if len(said) <= 60 else said[:57] + "..."
