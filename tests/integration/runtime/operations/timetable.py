"""Many schedules around the clock changes of zones, the runs they must have, and a worker of their fleet.

`python -m tests.integration.runtime.operations.timetable URL FOLDER SKEW` works until it is killed, by a
clock that a file in the folder moves on, and that many seconds ahead.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo

from everstep import AsyncHost, Flow, node
from everstep.runtime.operations.schedules.deciding import run_for
from everstep.runtime.system import SystemClock
from tests.unit.runtime.operations.test_calendar import changes, minute_by_minute

YEAR = 2025
CHANGING = (
    *("Europe/Berlin", "America/New_York", "America/St_Johns", "America/Santiago"),
    *("Africa/Cairo", "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Chatham"),
)
BEGAN = datetime(YEAR, 1, 10, tzinfo=UTC)
BEFORE, BEHIND = timedelta(hours=30), timedelta(hours=54)
"""So far around the day of a change a schedule has its times."""


@node(output="was")
def note(due: datetime) -> str:
    return due.isoformat()


NOTING = Flow("noting", [note])


class Entry(NamedTuple):
    """A schedule for one clock change of a zone."""

    schedule_id: str
    cron: str
    zone: str
    change: datetime
    """The day of it, in UTC."""

    def times(self) -> list[datetime]:
        """Return when it is due, by a calendar that looks at every minute."""
        return list(_times(self.cron, self.zone, self.change))


@cache
def _times(cron: str, zone: str, change: datetime) -> tuple[datetime, ...]:
    return tuple(minute_by_minute(cron, zone, change - BEFORE, change + BEHIND))


def table(size: int, seed: int) -> list[Entry]:
    """Return so many schedules, shared out over the clock changes of all zones."""
    chance, places = Random(seed), [(zone, day) for zone in CHANGING for day in changes(zone, YEAR)]
    found = []
    for k in range(size):
        zone, day = places[k % len(places)]
        # The day on which it changes there begins or ends in what is one day in UTC.
        local = (day + chance.choice([timedelta(), timedelta(hours=24)])).astimezone(ZoneInfo(zone))
        hour = "*/6" if chance.random() < 0.1 else str(chance.randrange(5))
        cron = f"{chance.randrange(0, 60, 10)} {hour} {local.day} {local.month} *"
        found.append(Entry(f"s{k}", cron, zone, day))
    return found


def expected(entries: list[Entry]) -> dict[str, datetime]:
    """Return the ids of all runs that there must be, with what each is for."""
    return {run_for(one.schedule_id, at): at for one in entries for at in one.times()}


def steps(by: timedelta) -> Iterator[datetime]:
    """Yield the moments to which time is moved: in steps around each change, else past what is between."""
    days = sorted({day for zone in CHANGING for day in changes(zone, YEAR)})
    now = BEGAN
    for day in days:
        now = max(now, day - BEFORE)
        while now < day + BEHIND:
            yield now
            now += by
    yield now


class FleetClock(SystemClock):
    """A clock that a file moves on, for all processes alike but for their skew."""

    is_manual = True

    def __init__(self, folder: Path, skew: float = 0.0) -> None:
        self._file = os.open(folder / "now", os.O_RDWR | os.O_CREAT)
        self._skew = timedelta(seconds=skew)

    def set(self, at: datetime) -> None:
        os.pwrite(self._file, struct.pack("d", at.timestamp()), 0)

    def now(self) -> datetime:
        kept = os.pread(self._file, 8, 0)
        return datetime.fromtimestamp(struct.unpack("d", kept)[0], UTC) + self._skew

    async def sleep_until(self, at: datetime) -> None:
        while self.now() < at:
            await asyncio.sleep(0.05)


async def work(url: str, folder: Path, skew: float) -> None:
    """Drive schedules and their runs until the process is killed."""
    async with AsyncHost(url, clock=FleetClock(folder, skew)) as host:
        await host.work([NOTING], concurrency=64)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])))
