"""A clock that tests move."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

from everstep.errors import BadRequest
from everstep.model.durations import Span, seconds_of

START = datetime(2030, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until it is moved; a sleeper on it, in any thread, wakes when due.

    With `auto`, a sleeper moves the time itself and goes on at once, so that a flow with an hour of backoff
    runs in no time.
    """

    is_manual = True
    """Stores go by this clock too, even those that have their own."""

    def __init__(self, start: datetime = START, *, auto: bool = False) -> None:
        if start.tzinfo is None:
            raise BadRequest(f"{start} has no time zone.", fix="Give an aware datetime.")
        self.auto = auto
        self._start = self._now = start.astimezone(UTC)
        self._changed = threading.Condition()
        self._sleepers: list[_Sleeper] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start).total_seconds()

    def advance(self, by: Span) -> None:
        """Move the time forward, by a span such as "2h" or by seconds, and wake all whose time has come."""
        span = timedelta(seconds=seconds_of(by, "the time to move by", least=0))
        with self._changed:
            self._move_to(self._now + span)

    async def sleep_until(self, at: datetime) -> None:
        """Return once the time was moved to `at`; with `auto`, move it there."""
        if self.auto:
            with self._changed:
                self._move_to(max(at, self._now))
        await self.reached(at)

    async def reached(self, at: datetime) -> None:
        """Return once the time was moved to `at`, by another thread or task."""
        with self._changed:
            sleeper = _Sleeper(at)
            if at > self._now:
                self._sleepers.append(sleeper)
                self._changed.notify_all()
            else:
                sleeper.wake()
        try:
            await sleeper.woken
        finally:
            with self._changed:
                if sleeper in self._sleepers:
                    self._sleepers.remove(sleeper)

    def wait_until(self, at: datetime) -> None:
        """Hold this thread up until the time was moved to `at`; with `auto`, move it there."""
        with self._changed:
            if self.auto:
                self._move_to(max(at, self._now))
            while self._now < at:  # it may be moved by who does not hold the lock
                self._changed.wait(0.02)

    def wait_for_sleepers(self, count: int = 1, *, patience: float = 10.0) -> None:
        """Block until that many are asleep, for at most `patience` real seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._sleepers) >= count, patience):
                raise TimeoutError(f"{len(self._sleepers)} sleep on the clock, {count} were expected.")

    def _move_to(self, now: datetime) -> None:
        self._now = now
        due = [s for s in self._sleepers if s.at <= now]
        self._sleepers = [s for s in self._sleepers if s.at > now]
        for sleeper in due:
            sleeper.wake()


class _Sleeper:
    """One waiting task and the loop it lives on."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        self._loop = asyncio.get_running_loop()
        self.woken: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        """Wake the task from whatever thread we are on; one whose loop is closed sleeps on."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)
