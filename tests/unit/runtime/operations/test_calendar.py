"""The times of a schedule, compared with a calendar that looks at every minute there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest

from everstep.errors import BadRequest
from everstep.runtime.operations.schedules.calendar import Cron, Every, times

ZONES = {
    "Europe/Berlin": 2025,
    "America/New_York": 2025,
    "America/St_Johns": 2025,
    "America/Santiago": 2025,  # at midnight
    "Africa/Cairo": 2025,  # at midnight
    "Africa/Casablanca": 2025,
    "Asia/Beirut": 2025,
    "Asia/Tehran": 2021,
    "Australia/Lord_Howe": 2025,  # half an hour
    "Antarctica/Troll": 2025,  # two hours
    "Pacific/Chatham": 2025,
    "Pacific/Apia": 2011,  # a day that never was
    "UTC": 2025,
    "Asia/Kolkata": 2025,
}
MINUTE = timedelta(minutes=1)
RANGES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


@cache
def fields_of(expression: str) -> list[set[int]]:
    """Read an expression by the book."""
    found = []
    for text, (least, most) in zip(expression.split(), RANGES, strict=True):
        said: set[int] = set()
        for part in text.split(","):
            span, _, step = part.partition("/")
            low, _, high = span.partition("-")
            begin = least if low == "*" else int(low)
            end = most if low == "*" or (step and not high) else int(high or low)
            said |= set(range(begin, end + 1, int(step or 1)))
        found.append(said)
    return found


def is_named(expression: str, naive: datetime) -> bool:
    minutes, hours, days, months, weekdays = fields_of(expression)
    _, _, day, _, weekday = expression.split()
    on_day = naive.day in days, naive.isoweekday() % 7 in weekdays
    fits = all(on_day) if day.startswith("*") or weekday.startswith("*") else any(on_day)
    return naive.minute in minutes and naive.hour in hours and naive.month in months and fits


@cache
def wall_clock(zone: str, begin: datetime, end: datetime) -> dict[datetime, datetime]:
    """Return what the clock on the wall says in each minute."""
    moments = [begin + k * MINUTE for k in range(int((end - begin) / MINUTE) + 1)]
    return {one: one.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0) for one in moments}


def minute_by_minute(expression: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    """Return the times of an expression by looking at every minute, and at every minute of the wall clock."""
    wall: dict[datetime, datetime] = {}
    named = []
    for moment, naive in wall_clock(zone, begin, end).items():
        wall.setdefault(naive, moment)
        if is_named(expression, naive):
            named.append(moment)
    if expression.split()[1].startswith("*"):
        return named
    found, naive, last = set(), min(wall), max(wall)
    while naive <= last:
        if is_named(expression, naive):
            later = naive
            while later not in wall:
                later += MINUTE
            found.add(wall[later])
        naive += MINUTE
    return sorted(found)


def changes(zone: str, year: int) -> list[datetime]:
    """Return the days on which clocks of a zone change in a year."""
    days = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=k) for k in range(366)]
    where = ZoneInfo(zone)
    return [
        one
        for one, after in pairwise(days)
        if one.astimezone(where).utcoffset() != after.astimezone(where).utcoffset()
    ]


def some_expression(chance: Random) -> str:
    def some(least: int, most: int) -> str:
        low = chance.randint(least, most)
        return chance.choice(
            [
                "*",
                str(low),
                f"{low}-{chance.randint(low, most)}",
                f"*/{chance.randint(2, 9)}",
                f"{low},{most}",
            ]
        )

    hours = chance.choice([some(0, 23), some(0, 4), "*", "2", "1-3", "0"])
    return " ".join([some(0, 59), hours, chance.choice(["*", "*", some(1, 31)]), "*", some(0, 6)])


@pytest.mark.parametrize("zone", ZONES)
def test_times_are_those_of_a_calendar_that_looks_at_every_minute(zone: str) -> None:
    chance, year = Random(zone), ZONES[zone]
    days = changes(zone, year) or [datetime(year, 6, 1, tzinfo=UTC)]
    written = ["30 2 * * *", "0 0 * * *", "*/15 * * * *", "*/20 2 * * *", "0 */2 * * *", "59 23 * * *"]
    for day in days[:2]:
        begin, end = day - timedelta(hours=36), day + timedelta(hours=60)
        for expression in [*written, *(some_expression(chance) for _ in range(2))]:
            expected = minute_by_minute(expression, zone, begin, end)
            # What lies in a gap at the edge of the window, or before it, is not looked at.
            expected = [one for one in expected if begin + timedelta(days=1) < one <= end - timedelta(days=1)]
            found, at, calendar = [], begin + timedelta(days=1), Cron(expression, zone)
            while (following := calendar.after(at)) is not None and following <= end - timedelta(days=1):
                found.append(following)
                at = following
            assert found == expected, (expression, day)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"])
def test_the_next_time_is_the_same_from_every_moment_before_it(zone: str) -> None:
    chance = Random(zone)
    for day in changes(zone, ZONES[zone]):
        for expression in ("30 2 * * *", "*/10 1-2 * * *", "15 * * * *"):
            calendar, begin = Cron(expression, zone), day - timedelta(days=1)
            every = list(times(calendar, begin, 200))
            for _ in range(50):
                moment = begin + timedelta(seconds=chance.uniform(0, 2 * 86400))
                expected = next((one for one in every if one > moment), None)
                if expected is not None:
                    assert calendar.after(moment) == expected


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def test_a_fixed_time_runs_right_after_the_gap_and_once_in_the_fold() -> None:
    berlin = Cron("30 2 * * *", "Europe/Berlin")
    assert list(times(berlin, utc(2026, 3, 28, 12), 2)) == [utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]
    assert list(times(berlin, utc(2026, 10, 24, 12), 2)) == [
        utc(2026, 10, 25, 0, 30),
        utc(2026, 10, 26, 1, 30),
    ]


def test_wildcard_hours_and_intervals_follow_absolute_time() -> None:
    hourly = list(times(Cron("30 * * * *", "Europe/Berlin"), utc(2026, 10, 24, 23), 4))
    assert hourly == [utc(2026, 10, 24, 23, 30), *(utc(2026, 10, 25, hour, 30) for hour in range(3))]
    every = Every(timedelta(hours=6), utc(2026, 3, 28, 21))
    assert list(times(every, utc(2026, 3, 28, 20), 3)) == [
        utc(2026, 3, 28, 21),
        utc(2026, 3, 29, 3),
        utc(2026, 3, 29, 9),
    ]


def test_a_time_years_away_is_found_and_one_that_never_comes_is_none() -> None:
    assert Cron("0 12 29 2 *", "Europe/Berlin").after(utc(2026, 1, 1)) == utc(2028, 2, 29, 11)
    assert Cron("0 * 1 7 *", "Europe/Berlin").after(utc(2026, 8, 1)) == utc(2027, 6, 30, 22)
    assert Cron("@daily", "UTC").after(utc(2026, 8, 1)) == utc(2026, 8, 2)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "60 * * * *",
        "0 0 31 2 *",
        "* * * * * *",
        "a b c d e",
        "* * * * ٣",
        "* " * 200,
        5,
        "5-1 * * * *",
    ],
)
def test_what_is_no_cron_expression_is_refused_by_name(expression: object) -> None:
    with pytest.raises(BadRequest, match="no cron expression"):
        Cron(expression, "UTC")  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "Europe"])
def test_an_unknown_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(BadRequest, match="no time zone"):
        Cron("0 0 * * *", zone)
