"""Writing large values beside the record that will name them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from everstep.runtime.patience import outage, patiently
from everstep.runtime.services import Services
from everstep.runtime.values import Slot, ValueSpace

Persist = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


async def write_aside(
    services: Services,
    space: ValueSpace,
    draft: Slot,
    *,
    is_alone: bool = True,
    persist: Persist | None = None,
) -> None:
    """Keep a large draft as an artifact: here if nothing else waits for this thread, else on another.

    `persist` is how long what a step has made is held for a store that cannot take it.
    """

    async def write() -> None:
        if is_alone:
            space.write_aside(draft)
        else:
            await asyncio.get_running_loop().run_in_executor(services.pool, space.write_aside, draft)

    if persist is None:
        await patiently(services.clock, write, outage(services.store))
    else:
        await persist(write)
