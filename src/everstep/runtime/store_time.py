"""The time by which a store judges what is due, as a host knows it."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from everstep.errors import StoreError
from everstep.ports.store import CheckpointStore, TimedStore
from everstep.ports.system import Clock, time_for_store

log = logging.getLogger("everstep")
TRUSTED_FOR = 60.0
"""Seconds after which the store is asked again."""
PROMPT, TRIES = 0.05, 3
"""Seconds within which an answer tells the time well enough, and how often it is asked for one."""


class StoreTime:
    """A clock that shows the store's time; the host's where the store has none, or a test moves it.

    The store is asked now and then; in between the monotonic clock counts on. Due times are made and
    compared by it, so that a machine whose clock is wrong lets nothing time out early or late. It is never
    ahead of the store's: what is due by it, the store finds due too.
    """

    def __init__(self, store: CheckpointStore, clock: Clock) -> None:
        self._clock = clock
        self._store = store if isinstance(store, TimedStore) and time_for_store(clock) is None else None
        self._heard: tuple[datetime, float] | None = None
        """What the store said, and when by the monotonic clock."""

    async def hear(self) -> None:
        """Ask the store what time it is, if that was not done lately. Never raises."""
        monotonic = self._clock.monotonic
        if self._store is None or (self._heard and monotonic() - self._heard[1] < TRUSTED_FOR):
            return
        best: float | None = None
        for _ in range(TRIES):
            asked = monotonic()
            try:
                said = await self._store.now()
            except StoreError as error:
                log.debug("store clock unavailable: %s", error)
                return
            heard = monotonic()
            if best is None or heard - asked < best:
                best = heard - asked
                # When it was said, at the latest: the question may have waited long, as for a connection.
                self._heard = (said, heard) if said is not None else None
            if best <= PROMPT:
                return

    @property
    def ahead(self) -> timedelta:
        """How far the store's clock is ahead of the host's; none if it has none or was not asked yet."""
        if self._heard is None:
            return timedelta(0)
        said, at = self._heard
        return said + timedelta(seconds=self._clock.monotonic() - at) - self._clock.now()

    def now(self) -> datetime:
        """Return the time by the store's clock."""
        return self._clock.now() + self.ahead

    def monotonic(self) -> float:
        """Return the host's seconds."""
        return self._clock.monotonic()

    def here(self, at: datetime) -> datetime:
        """Return what the host's clock shows when the store's shows this."""
        return at - self.ahead

    async def sleep_until(self, at: datetime) -> None:
        """Return once the store's clock shows this."""
        await self._clock.sleep_until(self.here(at))
