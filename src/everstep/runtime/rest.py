"""How a drive sleeps: until it is woken, until a time, or for a while."""

from __future__ import annotations

import asyncio
from datetime import datetime

from everstep.ports.system import Clock, reached


class Rest:
    """The sleep of one drive, on its loop."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._waker: asyncio.Future[None] | None = None
        self.is_asleep = False

    def wake(self) -> None:
        """End the sleep, if there is one."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def sleep(self, until: datetime | None, seconds: float | None, *, is_busy: bool = False) -> bool:
        """Sleep; true if neither a call nor the clock ended it, but the seconds were over.

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
            done, _ = await asyncio.wait(watched, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return not done
        finally:
            self._waker, self.is_asleep = None, False
            if sleeper is not None:
                sleeper.cancel()
