"""Lets others see that a worker is alive, and what it drives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from everstep.errors import StoreError
from everstep.model.fleet import WorkerRow
from everstep.runtime.keeper import LeaseKeeper
from everstep.runtime.services import Services

log = logging.getLogger("everstep")
BEAT = 10.0
"""Seconds between two reports."""
LASTS = timedelta(seconds=35)
"""How long a report counts: three may be missed."""


class Presence:
    """Reports a worker for as long as it works, on the thread that keeps leases: nodes may hold its own."""

    def __init__(self, services: Services, keeper: LeaseKeeper, describe: Callable[[], WorkerRow]) -> None:
        self._services = services
        self._keeper = keeper
        self._describe = describe
        self._end: Callable[[], None] | None = None

    async def begin(self) -> None:
        """Report now, and from now on."""
        await self.tell()
        self._end = self._keeper.beat(BEAT, self._reporter(asyncio.get_running_loop()))

    async def tell(self) -> None:
        """Report now."""
        try:
            await self._services.store.report(self._describe(), LASTS)
        except StoreError as error:
            log.debug("nobody sees this worker: %s", error)

    async def end(self) -> None:
        """Be gone."""
        if self._end is not None:
            self._end()
        try:
            await self._services.store.leave(self._describe().worker_id)
        except StoreError as error:
            log.debug("this worker is seen for a while longer: %s", error)

    def _reporter(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        def report() -> None:
            blocking = self._services.blocking
            if blocking is None:
                asyncio.run_coroutine_threadsafe(self.tell(), loop)
                return
            try:
                blocking.report_blocking(self._describe(), LASTS)
            except StoreError as error:
                log.debug("nobody sees this worker: %s", error)

        return report
