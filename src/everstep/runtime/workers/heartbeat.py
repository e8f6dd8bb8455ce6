"""Lets others see that a worker is alive, and what it drives. Apart from its loop, which nodes hold up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from everstep.errors import StoreError
from everstep.model.leases import WorkerRow
from everstep.runtime.services import Services
from everstep.runtime.workers.lease_renewal import Beat, LeaseKeeper

log = logging.getLogger("everstep")
BEAT = 10.0
"""Seconds between two reports."""
SOONEST = 2.0
"""Seconds between two reports of a worker that has begun or ended a run."""
LASTS = timedelta(seconds=35)
"""How long a report counts: three may be missed."""


class Presence:
    """Reports a worker for as long as it works, on the thread that keeps leases: nodes may hold its own."""

    def __init__(self, services: Services, keeper: LeaseKeeper, describe: Callable[[], WorkerRow]) -> None:
        self._services = services
        self._keeper = keeper
        self._describe = describe
        self._beat: Beat | None = None
        self._is_over = False

    async def begin(self) -> None:
        """Report now, and from now on."""
        self._is_over = False
        await self.tell()
        self._beat = self._keeper.beat(BEAT, self._reporter(asyncio.get_running_loop()))

    def changed(self) -> None:
        """Report soon: there is something new."""
        if self._beat is not None:
            self._beat.hasten(SOONEST)

    async def tell(self) -> None:
        """Report now, unless it is too late."""
        if self._is_over:
            return
        try:
            await self._services.time.hear()
            await self._services.store.report(self._describe(), LASTS)
            if self._is_over:  # it ended meanwhile
                await self._services.store.leave(self._describe().worker_id)
        except StoreError as error:
            log.debug("worker heartbeat failed: %s", error)

    async def end(self) -> None:
        """Deregister the worker."""
        self._is_over = True
        if self._beat is not None:
            self._beat.end()
        try:
            await self._services.store.leave(self._describe().worker_id)
        except StoreError as error:
            log.debug("worker deregistration failed: %s; it is listed until its heartbeat expires", error)

    def _reporter(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        def report() -> None:
            blocking = self._services.blocking
            if blocking is None:
                asyncio.run_coroutine_threadsafe(self.tell(), loop)
                return
            try:
                blocking.report_blocking(self._describe(), LASTS)
            except StoreError as error:
                log.debug("worker heartbeat failed: %s", error)

        return report
