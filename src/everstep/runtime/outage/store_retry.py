"""Asking a store again while it is out of reach. Whatever is asked must be safe to ask twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from everstep.errors import StoreNotWritable, StoreUnavailable
from everstep.ports.store import CheckpointStore
from everstep.ports.system import Clock

T = TypeVar("T")
PAUSES = tuple(timedelta(seconds=s) for s in (0.05, 0.2, 1.0))
HURRY = sum(PAUSES, timedelta())
OUTAGE = (*PAUSES, *(timedelta(seconds=2) for _ in range(14)))
"""Half a minute, in which a server restarts or another takes its place, and our runs cannot be taken over."""


def outage(store: CheckpointStore) -> tuple[timedelta, ...]:
    """Return how long what was done is held for a store to come back."""
    return OUTAGE if store.capabilities.remote else PAUSES


async def patiently(
    clock: Clock,
    ask: Callable[[], Awaitable[T]],
    pauses: tuple[timedelta, ...] = PAUSES,
    within: timedelta | None = None,
    *,
    at_stake: bool = False,
    failed: StoreUnavailable | None = None,
) -> T:
    """Return what `ask` gives, asking a few times more while the store is unavailable.

    A store may take long to say so; `within` is how long after the first time it is asked again at all. For
    room in a store that is full, only those wait who have something `at_stake`: work that was done.
    `failed` is what came of the first time, if it was asked already.
    """
    begun = clock.now()
    for pause in pauses:
        try:
            if failed is not None:
                raise failed
            return await ask()
        except StoreUnavailable as error:
            is_late = within is not None and clock.now() - begun > within
            if is_late or (isinstance(error, StoreNotWritable) and not at_stake):
                raise
            await clock.sleep_until(clock.now() + pause)
            failed = None
    return await ask()
