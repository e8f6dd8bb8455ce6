"""How the store fares, as a worker sees it: whether it answers, and whether it keeps up."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from everstep.errors import EverstepError, StoreUnavailable
from everstep.ports.system import Clock, Ids

T = TypeVar("T")
log = logging.getLogger("everstep")
FIRST, LONGEST = 0.1, 5.0
"""Seconds before a store that failed is asked again: after the first failure, and at most."""
TOO_SLOW = 0.25
"""Seconds from handing a commit over until it is durable, on average, from which on a worker claims less."""
ADJUST = 1.0
"""Seconds between two changes of how much it claims."""


class Weather:
    """Says once that the store does not answer, and once that it does again. One for all runs of a host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = 0.0
        self.error: EverstepError | None = None
        """Why it does not answer."""
        self.outages = 0
        """How often it answered again."""

    def broke(self, what: str, error: EverstepError) -> None:
        """Take note that it did not answer."""
        if self.error is None:
            self._since = self._clock.monotonic()
            log.warning("store unavailable (%s); retrying: %s", what, error)
        self.error = error

    def cleared(self) -> None:
        """Take note that it answered."""
        if self.error is not None:
            log.warning("store available again after %.1f s", self._clock.monotonic() - self._since)
            self.error = None
            self.outages += 1


def pause(failures: int, chance: float) -> float:
    """Return how many seconds to leave it alone; those that failed together come back apart."""
    longest = min(LONGEST, FIRST * float(2 ** min(failures, 20)) / 2)
    return longest * (0.5 + chance / 2)


async def enduringly(
    clock: Clock,
    ids: Ids,
    weather: Weather,
    ask: Callable[[], Awaitable[T]],
    failed: StoreUnavailable | None = None,
) -> T:
    """Return what `ask` gives, however long the store is unavailable. It must be safe to ask twice.

    `failed` is what came of the first time, if it was asked already.
    """
    failures = 0
    while True:
        try:
            if failed is not None:
                raise failed
            answer = await ask()
        except StoreUnavailable as error:
            failed = None
            failures += 1
            weather.broke("commit", error)
            await clock.sleep_until(clock.now() + timedelta(seconds=pause(failures, ids.chance())))
        else:
            if failures:
                weather.cleared()
            return answer


class Pressure:
    """How many runs a worker may drive at once while its commits are slow: half as many, then more again."""

    def __init__(self, clock: Clock, most: int, lag: Callable[[], float]) -> None:
        self._clock = clock
        self._most = most
        self._lag = lag
        self._changed = clock.monotonic() - ADJUST
        self.allowed = most

    @property
    def is_on(self) -> bool:
        return self.allowed < self._most

    def adjust(self, driving: int) -> None:
        """Look at how long commits take, and allow less or more."""
        lag, now = self._lag(), self._clock.monotonic()
        if now - self._changed < ADJUST or (lag <= TOO_SLOW and not self.is_on):
            return
        self._changed, before = now, self.is_on
        if lag > TOO_SLOW:
            self.allowed = max(1, min(self.allowed, driving or 1) // 2)
        else:
            self.allowed = min(self._most, self.allowed + max(1, self.allowed // 2))
        if before != self.is_on:
            what = f"slow ({lag:.2f} s a commit); claiming fewer runs" if self.is_on else "keeps up again"
            log.warning("store %s", what)
