"""What is kept of keys of limits goes once nothing counts for them. Apart, as rules for runs know no keys."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final, cast

from everstep.engine.limits.rates import micros_at, who_may_count
from everstep.engine.limits.slots import GRACE
from everstep.model.leases import KeyState, slots_of
from everstep.ports.limits import LimitingStore
from everstep.runtime.services import Services

_PAGE: Final = 1_000
_OF_STARTS: Final = "run "
_OF_RUNS: Final = ("one ", "soon ")
"""What begins the names of states that list runs, of singletons and of those that wait for another start."""


async def drop_idle_keys(services: Services) -> int:
    """Remove what is kept of keys for which nothing counts any more; returns of how many."""
    if not services.store.capabilities.limits:
        return 0
    store, dropped = cast("LimitingStore", services.store), 0
    for prefix in (_OF_STARTS, *_OF_RUNS):
        after = ""
        while page := await store.limit_states(prefix, limit=_PAGE, after=after):
            for key, body in page.items():
                idle = _are_over if prefix in _OF_RUNS else _has_no_start
                if await idle(services, body):
                    dropped += await store.change_limit(key, partial(_without, body))
            after = max(page)
    return dropped


def _without(seen: bytes, body: bytes | None, now: datetime) -> tuple[bytes | None, int]:
    """Keep nothing, unless a start has come meanwhile."""
    return (None, 1) if body == seen else (body, 0)


async def _has_no_start(services: Services, body: bytes) -> bool:
    holders = who_may_count(KeyState.of(body), micros_at(services.time.now()))
    return holders is not None and all([await _is_over(services, run_id) for run_id in holders])


async def _are_over(services: Services, body: bytes) -> bool:
    oldest = micros_at(services.time.now()) - 2 * GRACE  # one that is newer may yet be admitted
    slots = slots_of(body)
    return all(slot.at < oldest for slot in slots) and all(
        [await _is_over(services, slot.run_id) for slot in slots]
    )


async def _is_over(services: Services, run_id: str) -> bool:
    row = await services.store.run(run_id)
    return row is None or row.status.is_final
