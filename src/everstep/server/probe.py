"""Whether the store behind the service answers. Apart from the metrics, which count and never ask."""

from __future__ import annotations

import asyncio

from everstep.client.host import AsyncHost
from everstep.errors import EverstepError, RunNotFound

PATIENCE = 2.0
"""Seconds that the store has to answer in."""
FRESH = 1.0
"""Seconds for which its answer counts, so that asking often costs the store nothing."""
_NO_RUN = "everstep.readyz"


class Probe:
    """Asks the store for a run that is not there, once at a time and once a second at most."""

    def __init__(self) -> None:
        self._asked: tuple[float, asyncio.Future[str | None]] | None = None
        """When it was asked last, and what came of it."""

    async def what_is_wrong(self, host: AsyncHost) -> str | None:
        """Return why the store does not answer; none if it does."""
        now = host.clock.monotonic()
        if self._asked is None or (self._asked[1].done() and now - self._asked[0] >= FRESH):
            self._asked = now, asyncio.ensure_future(_asked(host))
        return await asyncio.shield(self._asked[1])


async def _asked(host: AsyncHost) -> str | None:
    try:
        await asyncio.wait_for(host.info(_NO_RUN), PATIENCE)
    except TimeoutError:
        return "store.slow"
    except RunNotFound:
        return None  # it answered
    except EverstepError as error:
        return error.code
    return None
