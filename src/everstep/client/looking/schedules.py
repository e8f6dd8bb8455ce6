"""What callers see of schedules. Apart from the calls, which are made into sync ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from everstep.model.shapes import Count, Instant, Value


class BackfillInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How far a schedule has come with times gone by."""

    after: Instant
    """Times up to here are done."""
    until: Instant
    started: Count
    there: Count
    """Times whose run was there before."""
    left: Count
    """So many more may be started."""


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, and how far it has come."""

    schedule_id: str
    """Also the id of the run that it is."""
    flow: str
    cron: str | None
    every: str | None
    zone: str
    overlap: str
    catch_up: str
    jitter: str
    time_input: str | None
    priority: int
    group: str | None
    tags: Mapping[str, str]
    """What its runs are called by, besides its own name."""
    declared: bool
    """True if it was declared beside its flow."""
    status: str
    """`halted` while it waits for its next time; `completed` once no time will come any more."""
    paused: bool
    next: Instant | None
    """The next time, jitter left out; none while it is paused, or over."""
    last: Instant | None
    """The time that was started last."""
    last_run: str | None
    started: Count
    skipped: Count
    """Times at which a run before was not over."""
    missed: Count
    """Times that came too late."""
    pending: Count
    """Times that wait for runs before them."""
    refused: Count
    """Times whose run could not be started."""
    said: str
    """Why the last of those could not."""
    backfill: BackfillInfo | None


class AppliedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about a schedule so that it is as it was declared."""

    schedule_id: str
    flow: str
    act: Literal["create", "change", "pause", "unpause", "none"]
    """`pause` if it is declared no more, `unpause` if it is again."""
    before: Mapping[str, Value] = {}
    """What it said of what is changed."""
    after: Mapping[str, Value] = {}
