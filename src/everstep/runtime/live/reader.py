"""Reads what runs emit elsewhere, for all followers of a host at once: one read at a time, on one thread.
Apart from the writer, as those who follow a run need not drive any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from everstep.errors import EverstepError
from everstep.ports.live import LiveBatch, LiveRing, Offset
from everstep.ports.system import System, Thread

log = logging.getLogger("everstep")
LOOK = 0.1
"""Seconds that one read waits for something to come."""
GATHER = 0.002
"""Seconds that a read waits for others who follow to join it."""
IDLE, AGAIN = 5.0, 1.0
"""Seconds without a follower after which the thread ends; seconds after a read that failed."""
Found = list[LiveBatch]


def _resolve(future: asyncio.Future[Found], batches: Found) -> None:
    if not future.done():
        future.set_result(batches)


class _Asked(NamedTuple):
    run_id: str
    after: Offset
    give: Callable[[Found], None]


class LiveReader:
    """Shared by all event loops of a host. Those who follow ask again and again; nothing is kept for them."""

    def __init__(self, system: System, ring: Callable[[], LiveRing]) -> None:
        self._system = system
        self._ring = ring
        self._changed = system.condition()
        self._asked: list[_Asked] = []
        self._thread: Thread | None = None
        self._is_closed = False
        self._is_well = True

    async def next(self, run_id: str, after: Offset) -> Found:
        """Return what a run emitted behind an offset; nothing if none came for a moment."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Found] = loop.create_future()

        def give(batches: Found) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve, found, batches)

        with self._changed:
            if self._is_closed:
                return []
            self._asked.append(_Asked(run_id, after, give))
            if self._thread is None:
                self._thread = self._system.spawn(self._work, "everstep-follow")
            else:
                self._changed.notify_all()
        return await found

    async def now(self, run_id: str, after: Offset) -> Found:
        """Return what is there already, without waiting for more."""
        return await self._system.to_thread(self._ring().read, {run_id: after}, 0.0)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._asked and not self._is_closed:
                    self._changed.wait(IDLE)
                if self._asked and not self._is_closed:
                    self._changed.wait(GATHER)
                asked, self._asked = self._asked, []
                if not asked or self._is_closed:
                    self._thread = None
                    for one in asked:
                        one.give([])
                    return
            self._read(asked)

    def _read(self, asked: list[_Asked]) -> None:
        after: dict[str, Offset] = {}
        for one in asked:
            after[one.run_id] = min(one.after, after.get(one.run_id, one.after))
        found: dict[str, Found] = {}
        try:
            for batch in self._ring().read(after, LOOK):
                found.setdefault(batch.run_id, []).append(batch)
        except EverstepError as error:
            if self._is_well:
                log.warning("live data not read; retrying: %s", error)
            self._is_well = False
            self._system.event().wait(AGAIN)
        else:
            self._is_well = True
        for one in asked:
            one.give([batch for batch in found.get(one.run_id, ()) if batch.offset > one.after])

    def close(self) -> None:
        """Let those who wait go."""
        with self._changed:
            thread, self._is_closed = self._thread, True
            self._changed.notify_all()
        if thread is not None:
            thread.join(AGAIN)
