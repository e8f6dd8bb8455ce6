"""Which times of a schedule are due, which of those come too late, and what its runs are called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from everstep.engine.keys import child_id
from everstep.model.durations import span_of
from everstep.runtime.operations.schedules.calendar import Calendar
from everstep.runtime.operations.schedules.spec import ScheduleSpec

AT_ONCE = 50
"""So many times are started in one go; a signal that stops it is heard in between."""
LOOKED_AT = 1000
"""So many times that come too late are counted in one go."""


class Due(msgspec.Struct, frozen=True):
    """What is to be done at some moment."""

    start: tuple[datetime, ...]
    missed: int
    """Times that came too late."""
    after: datetime
    """All up to here is decided."""
    next: datetime | None
    """The time behind that; it may be over already, and its start put off."""
    wake: datetime | None
    """When to look again; none if no time will come."""


def due(spec: ScheduleSpec, calendar: Calendar, schedule_id: str, after: datetime, now: datetime) -> Due:
    """Say which times behind a moment are due now."""
    catch_up = span_of(spec.catch_up, "catch_up")
    start: list[datetime] = []
    missed = 0
    while True:
        at = calendar.after(after)
        wake = None if at is None else at + spec.put_off(schedule_id, at)
        is_enough = len(start) >= AT_ONCE or missed >= LOOKED_AT
        if at is None or wake is None or wake > now or is_enough:
            return Due(tuple(start), missed, after, at, wake)
        if now - wake > catch_up:
            missed += 1
        else:
            start.append(at)
        after = at


def spelled(at: datetime) -> str:
    """Write a scheduled time, as it is in the ids of runs."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def run_for(schedule_id: str, at: datetime) -> str:
    """Return what the run of a scheduled time is called: the same always."""
    return child_id(schedule_id, "schedule", 0, spelled(at))


def run_asked_for(schedule_id: str, asked: str) -> str:
    """Return what a run is called that someone asked for."""
    return child_id(schedule_id, "schedule", 0, f"now {asked}")


def pause_after(before: float) -> tuple[float, timedelta]:
    """Return how long to wait until runs that are waited for are looked at again."""
    seconds = min(max(before, 0.5) * 2, 30.0)
    return seconds, timedelta(seconds=seconds)
