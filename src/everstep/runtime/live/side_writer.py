"""A thread of a host that writes beside the store what all its runs have to say: at once after a pause, then
every so often. What cannot be written waits, and is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from everstep.errors import EverstepError
from everstep.ports.live import LiveRing
from everstep.ports.system import System, Thread

T = TypeVar("T")
log = logging.getLogger("everstep")
AGAIN = 1.0
"""Seconds after which a write that failed is tried again."""
PATIENCE = 1.0
"""Seconds that the end of a run waits for what it said to be written."""


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class SideWriter(ABC, Generic[T]):
    """Takes what is said on any thread, and writes it on one of its own."""

    def __init__(
        self,
        system: System,
        ring: Callable[[], LiveRing],
        *,
        what: str,
        every: float,
        thread: str,
        hurries: bool = False,
    ) -> None:
        self._system = system
        self._ring = ring
        self._what = what
        self._every = every
        self._hurries = hurries
        """True if the end of a run does not wait for the time of the next write."""
        self._name = thread
        self._changed = system.condition()
        self._added = self._gone = 0
        """How much was said, and up to where that was written or dropped."""
        self._settling: list[tuple[int, Callable[[], None]]] = []
        self._thread: Thread | None = None
        self._is_idle = self._is_closed = False
        self._is_well = True
        self.writes = 0
        """How many writes were made."""

    @abstractmethod
    def _take(self) -> T | None:
        """Return all that waits, which waits no longer; none if nothing does. Under the lock."""

    @abstractmethod
    def _take_back(self, taken: T) -> None:
        """Let wait again what could not be written. Under the lock."""

    @abstractmethod
    def _put(self, ring: LiveRing, taken: T) -> None:
        """Write something."""

    def _note_added(self) -> None:
        """Have what was said written soon. Under the lock."""
        self._added += 1
        if self._thread is None and not self._is_closed:
            self._thread = self._system.spawn(self._work, self._name)
        elif self._is_idle:
            self._changed.notify_all()

    async def settle(self) -> None:
        """Return once what was said is written, or it cannot be for now."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve, done)

        with self._changed:
            if self._gone >= self._added or not self._is_well or self._is_closed:
                return
            self._settling.append((self._added, tell))
            if self._hurries:
                self._changed.notify_all()
        await asyncio.wait([done], timeout=PATIENCE)

    def _work(self) -> None:
        while True:
            with self._changed:
                while (taken := self._take()) is None:
                    if self._is_closed:
                        return
                    self._is_idle = True
                    self._changed.wait()
                    self._is_idle = False
                upto = self._added
            is_written = self._write(taken)
            with self._changed:
                if is_written:
                    self._gone = upto
                else:
                    self._take_back(taken)
                self._tell_settled()
                if self._is_closed:
                    return
                if not (is_written and self._hurries and self._settling):
                    self._changed.wait(self._every if is_written else AGAIN)

    def _tell_settled(self) -> None:
        kept = []
        for upto, tell in self._settling:
            if self._gone >= upto or not self._is_well:
                tell()
            else:
                kept.append((upto, tell))
        self._settling = kept

    def _write(self, taken: T) -> bool:
        try:
            self._put(self._ring(), taken)
            self.writes += 1
        except EverstepError as error:
            if self._is_well:
                log.warning("%s not written; retrying: %s", self._what, error)
            self._is_well = False
            return False
        self._is_well = True
        return True

    def close(self) -> None:
        """Write what waits, and stop."""
        with self._changed:
            thread, self._is_closed = self._thread, True
            self._changed.notify_all()
        if thread is not None:
            thread.join(PATIENCE)
