"""Clean-up at regular times, by one worker of a fleet. Apart, as most workers do none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from everstep.errors import EverstepError
from everstep.runtime.services import Services

log = logging.getLogger("everstep")


class Cleaning:
    """Cleans up again and again, while this worker is the longest serving of those that do.

    Two that both believe it do no harm: each removal is an act of its own, judged when it is made.
    """

    def __init__(self, services: Services, every: timedelta, clean: Callable[[], Awaitable[object]]) -> None:
        self._services = services
        self._every = every.total_seconds()
        self._clean = clean
        self.passes = 0

    async def keep_on(self, worker_id: str) -> None:
        """Clean up once so long has passed, and from then on; until it is cancelled."""
        clock = self._services.clock
        while True:
            await clock.sleep_until(clock.now() + timedelta(seconds=self._every))
            try:
                if await self._has_turn(worker_id):
                    await self._clean()
                    self.passes += 1
            except asyncio.CancelledError:
                raise
            except Exception as error:  # the next one may go well, and no caller waits to hear of this
                is_ours = isinstance(error, EverstepError)
                said = str(error) if is_ours else repr(error)
                again = "clean-up failed, and is tried again in %.0f s: %s"
                log.warning(again, self._every, said, exc_info=not is_ours)

    async def _has_turn(self, worker_id: str) -> bool:
        is_gone = self._services.processes.is_gone
        for row in await self._services.store.workers():  # the longest serving first
            if row.cleans and not row.is_stopping and (row.process is None or not is_gone(row.process)):
                return row.worker_id == worker_id
        return False
