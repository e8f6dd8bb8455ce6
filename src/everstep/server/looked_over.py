"""How the store was when it was looked over last: looking writes to it, so it is done now and then. Apart
from the probe, which says only whether it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from everstep.client.host import AsyncHost
from everstep.graph.author.flow import Flow
from everstep.results import StoreInfo

FRESH = 30.0
"""Seconds for which what was seen counts."""


class LookedOver:
    """Looks a store over for all who ask, once at a time and now and then."""

    def __init__(self) -> None:
        self._asked: tuple[float, asyncio.Future[StoreInfo]] | None = None

    async def seen(self, host: AsyncHost, flows: Iterable[Flow]) -> StoreInfo:
        """Return what was seen last, or look."""
        now = asyncio.get_running_loop().time()
        known = self._asked
        has_failed = known is not None and known[1].done() and known[1].exception() is not None
        if known is None or has_failed or (known[1].done() and now - known[0] >= FRESH):
            known = self._asked = now, asyncio.ensure_future(host.storage.info(flows=[*flows]))
        return await asyncio.shield(known[1])
