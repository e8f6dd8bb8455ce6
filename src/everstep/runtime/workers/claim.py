"""Getting the right to drive a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from everstep.engine.leases import beside
from everstep.errors import EverstepError, LeaseConflict
from everstep.model.durability import Durability
from everstep.model.leases import Lease
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.services import Services
from everstep.runtime.workers.lease_renewal import LeaseKeeper

log = logging.getLogger("everstep")


async def claim(
    services: Services,
    keeper: LeaseKeeper,
    run_id: str,
    durability: Durability,
    *,
    waits: bool,
    on_wait: Callable[[datetime], None],
) -> Lease:
    """Claim a run: at once if its owner is dead or gone, after its time-out if it lives elsewhere."""
    owner = services.ids.new_id()
    owner = beside(owner) if keeper.is_busy else owner
    try:
        lease = await _claim(services, keeper, run_id, owner, durability, waits=waits, on_wait=on_wait)
    except LeaseConflict:
        raise
    except BaseException:
        # It may have been granted all the same, and must not keep this process from asking again.
        keeper.leave_behind(run_id, owner)
        raise
    keeper.forget_left_behind(run_id)
    return lease


async def give_back(services: Services, keeper: LeaseKeeper, lease: Lease) -> None:
    """Give a lease back. Where the store is in trouble it expires, and is void for this host until then."""
    try:
        await services.store.release_lease(lease)
    except Exception as error:
        log.warning("lease release failed: run %r: %s", lease.run_id, error)
        keeper.leave_behind(lease.run_id, lease.owner)


async def _claim(
    services: Services,
    keeper: LeaseKeeper,
    run_id: str,
    owner: str,
    durability: Durability,
    *,
    waits: bool,
    on_wait: Callable[[datetime], None],
) -> Lease:
    ask = partial(services.store.lease, run_id, owner=owner, ttl=durability.lease_ttl)
    void: int | None = None
    seen: Lease | None = None
    tries = durability.retry_on_lease_conflict
    while True:
        try:
            return await _asked(
                services, partial(ask, process=services.holder(durability.lease_ttl), void_epoch=void)
            )
        except LeaseConflict as conflict:
            held = conflict.details["lease"]
            assert isinstance(held, Lease)
            is_gone = held.process is not None and services.processes.is_gone(held.process)
            if is_gone or keeper.is_left_behind(held):
                if void == held.epoch:
                    raise
                void = held.epoch
                continue
            is_elsewhere = held.process is None or not services.processes.is_here(held.process)
            may_be_dead = is_elsewhere and (seen is None or seen == held)
            if not waits or not (may_be_dead or tries > 0):
                raise
            tries -= 0 if may_be_dead else 1
            # How long it lasts is said by the store's clock, which need not be ours.
            left = timedelta(seconds=float(str(conflict.details["seconds_left"])))
            seen, now = held, services.clock.now()
            until = now + (left if is_elsewhere else min(left, timedelta(seconds=1)))
            on_wait(until)
            log.warning("%s Waiting until %s.", conflict.message, until.strftime("%H:%M:%S UTC"))
            await services.clock.sleep_until(until + timedelta(milliseconds=1))


async def _asked(services: Services, ask: Callable[[], Coroutine[Any, Any, Lease]]) -> Lease:
    """Ask the store. If the caller gives up meanwhile, what was granted all the same is given back."""
    asking = asyncio.ensure_future(patiently(services.clock, ask))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        if not asking.cancelled():
            with suppress(EverstepError):
                await services.store.release_lease(await asking)
        raise
