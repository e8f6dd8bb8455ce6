"""How a drive sleeps, what it finds when it wakes, and how it tells that a pause is over."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime, timedelta

from everstep.ports.system import Clock, reached, uptime
from everstep.runtime.drive.invoke import Call
from everstep.runtime.services import StoreTime

UNHEARD = timedelta(seconds=1)
"""How long a pause by the clock of a store that was not heard yet lasts, until that is asked again."""
BREATH = BaseException("the loop is to have its turn")
"""Stands where the reason to stop would."""
PAUSE = BaseException("the run is paused")
"""Stands there too: nothing more is started, and what is under way is awaited."""


class Pauses:
    """When pauses end by the monotonic clock, so that setting the other one back prolongs none.

    They are recorded by the store's clock: the run may go on at a machine that shows another time.
    """

    def __init__(self, clock: Clock, time: StoreTime) -> None:
        self._clock = clock
        self._time = time
        self._ends: dict[datetime, float] = {}
        self._over: datetime | None = None

    def note(self, until: datetime) -> float | None:
        """Remember when a pause ends that lasts until then; returns how many seconds are left of it.

        None of a clock that tests move: its seconds do not pass by themselves.
        """
        now = uptime(self._clock)
        if now is None:
            return None
        if self._time.is_missing:  # how long it lasts is not known yet
            return max(0.0, min(UNHEARD.total_seconds(), (until - self._time.now()).total_seconds()))
        if until not in self._ends:
            self._ends[until] = now + (until - self._time.now()).total_seconds()
        return max(0.0, self._ends[until] - now)

    def now(self) -> datetime:
        """Return the time as far as pauses are concerned."""
        now = self._clock.monotonic()
        for until in [until for until, end in self._ends.items() if end <= now]:
            del self._ends[until]
            self._over = until if self._over is None else max(until, self._over)
        wall = self._time.now()
        return wall if self._over is None else max(wall, self._over)


class Rest:
    """The sleep of one drive, on its loop, and what it finds when it wakes.

    What runs beside a drive knows this and not the drive, which is freed as soon as it is over: objects that
    know each other stay until the garbage collector comes by.
    """

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._waker: asyncio.Future[None] | None = None
        self.is_asleep = False
        self.finished: deque[Call] = deque()
        """Calls that are over and not recorded yet."""
        self.stop: BaseException | None = None
        """Why to stop, if it must."""

    def finish(self, call: Call) -> None:
        """Take a call that is over."""
        call.ended_at = self._clock.now()
        self.finished.append(call)
        if self.is_asleep:
            self.wake()

    def fail(self, error: BaseException) -> None:
        """Let the drive stop with what came out of a call, unless it must stop already."""
        if self.stop is None or self.stop is BREATH or self.stop is PAUSE:
            self.stop = error
        self.wake()

    def wake(self) -> None:
        """End the sleep, if there is one."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def sleep(
        self,
        until: datetime | None,
        seconds: float | None,
        most: float | None = None,
        *,
        is_busy: bool = False,
    ) -> bool:
        """Sleep, at most so long; true if neither a call nor the clock ended it but the seconds are over.

        Who is busy only looks out for the time, while what it waits for is under way.
        """
        self._waker, self.is_asleep = self._loop.create_future(), True
        sleeper: asyncio.Task[None] | None = None
        try:
            if until is None and seconds is None:
                await self._waker
                return False
            watched: set[asyncio.Future[None]] = {self._waker}
            if until is not None:
                ends = reached(self._clock, until) if is_busy else self._clock.sleep_until(until)
                sleeper = self._loop.create_task(ends)
                watched.add(sleeper)
            is_capped = most is not None and (seconds is None or most < seconds)
            limit = most if is_capped else seconds
            done, _ = await asyncio.wait(watched, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            return not done and not is_capped
        finally:
            self._waker, self.is_asleep = None, False
            if sleeper is not None:
                sleeper.cancel()
