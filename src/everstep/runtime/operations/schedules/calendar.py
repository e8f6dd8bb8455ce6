"""The times of a schedule: a cron expression in a time zone, or an interval. Apart, as few runs need it.

A library reads the expression and finds wall-clock times; which moments those are is found here. Hours that
are fixed name times of the wall clock: one in the gap of a spring is right after it, one in the fold of an
autumn is its first. Where the field of hours begins with `*`, each moment counts whose wall clock matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from everstep.errors import BadRequest, ServiceMissing
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from cronsim import CronSim
else:
    CronSim = on_demand("cronsim:CronSim")

LONGEST_CRON = 200
_SECOND = timedelta(seconds=1)
_STRIDE = timedelta(hours=12)
"""No zone changes its offset twice in so short a time."""
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Calendar(Protocol):
    """When something is due."""

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after a moment, in UTC; none if there is none within decades."""
        ...


class Every:
    """A time after each span, counted from a moment on and back."""

    def __init__(self, span: timedelta, start: datetime) -> None:
        self._span, self._start = span, start

    def after(self, moment: datetime) -> datetime | None:
        passed = (moment - self._start) // self._span
        try:
            return self._start + (passed + 1) * self._span
        except OverflowError:
            return None


class Cron:
    """The times that a cron expression names in a zone."""

    def __init__(self, expression: str, zone: str) -> None:
        self._text = _checked_text(expression)
        self._zone = zone_named(zone)
        self._is_fixed = not self._text.split()[1].startswith("*")
        _first(self._text, datetime(2000, 1, 1))  # raises if it cannot be read

    def after(self, moment: datetime) -> datetime | None:
        moment = moment.astimezone(UTC)
        try:
            return self._after_fixed(moment) if self._is_fixed else self._after_absolute(moment)
        except OverflowError:  # behind the year 9999
            return None

    def _after_fixed(self, moment: datetime) -> datetime | None:
        naive = _local(moment, self._zone)
        while (found := _first(self._text, naive)) is not None:
            at = self._moment_of(found)
            if at > moment:
                return at
            naive = found  # the second time that the wall clock says so
        return None

    def _moment_of(self, naive: datetime) -> datetime:
        """Return the first moment at which the wall clock says this, or has jumped over it."""
        before, after = (_offset(naive.replace(tzinfo=self._zone, fold=fold)) for fold in (0, 1))
        early, late = (naive - after).replace(tzinfo=UTC), (naive - before).replace(tzinfo=UTC)
        if after <= before:
            return late
        change = self._change_in(early, late)  # in a gap the clocks go forward between the two
        return late if change is None else change

    def _after_absolute(self, moment: datetime) -> datetime | None:
        is_inclusive = False
        while True:
            offset = _offset(moment.astimezone(self._zone))
            naive = moment.replace(tzinfo=None) + offset
            found = _first(self._text, naive - _SECOND if is_inclusive else naive)
            if found is None:
                return None
            at = (found - offset).replace(tzinfo=UTC)
            change = self._change_in(moment, at)
            if change is None:
                return at
            moment, is_inclusive = change, True

    def _change_in(self, begin: datetime, end: datetime) -> datetime | None:
        """Return the first moment after one and up to another that has another offset than the one before."""
        zone = self._zone
        offset, low = _offset(begin.astimezone(zone)), begin
        while low < end:
            high = min(low + _STRIDE, end)
            if _offset(high.astimezone(zone)) == offset:
                low = high
                continue
            while high - low > _SECOND:
                middle = low + (high - low) // 2
                if _offset(middle.astimezone(zone)) == offset:
                    low = middle
                else:
                    high = middle
            return high.replace(microsecond=0)
        return None


def times(calendar: Calendar, after: datetime, count: int) -> Iterator[datetime]:
    """Yield the next times after a moment."""
    moment: datetime | None = after
    for _ in range(count):
        moment = calendar.after(moment) if moment is not None else None
        if moment is None:
            return
        yield moment


def zone_named(name: str) -> ZoneInfo:
    """Return a time zone by its name, or raise."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise BadRequest(
            f"there is no time zone {name!r:.60}.",
            fix="Name one as the IANA does, such as Europe/Berlin or UTC. Where the machine has none: "
            "pip install tzdata",
        ) from None


def _checked_text(expression: object) -> str:
    wrong = BadRequest(
        f"cron is {expression!r:.80}, which is no cron expression.",
        fix="Give five fields: minute, hour, day of the month, month, day of the week, as in '30 2 * * 1-5'; "
        "or @hourly, @daily, @weekly, @monthly, @yearly.",
    )
    if not isinstance(expression, str) or len(expression) > LONGEST_CRON:
        raise wrong
    text = _NAMED.get(expression.strip().lower(), expression)
    if len(text.split()) != 5 or not text.isascii():
        raise wrong
    try:
        library: Any = CronSim
        library(text, datetime(2000, 1, 1))
    except ImportError:
        raise ServiceMissing(
            "cron expressions take a library that is not installed.",
            fix="Install it with: pip install 'everstep[schedules]'; or give an interval: every='1h'.",
        ) from None
    except Exception as error:  # the library's own, and what odd text makes it raise
        raise wrong from error
    return text


def _first(text: str, naive: datetime) -> datetime | None:
    """Return the first wall-clock time after one that an expression names, none within fifty years."""
    return next(iter(CronSim(text, naive)), None)


def _local(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(moment: datetime) -> timedelta:
    offset = moment.utcoffset()
    assert offset is not None
    return offset
