"""Getting the right to drive a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, cast

from everstep.engine.leases import beside
from everstep.errors import EverstepError, LeaseConflict, NoRoom
from everstep.model.durability import Durability
from everstep.model.leases import Lease
from everstep.ports.store import CheckpointStore, RunRow, TakenUp, is_resuming
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.services import Services
from everstep.runtime.workers.lease_renewal import LeaseKeeper

if TYPE_CHECKING:
    from everstep.model.leases import KeyLimit
    from everstep.ports.limits import LimitingStore

log = logging.getLogger("everstep")
Ask = Callable[..., Coroutine[Any, Any, TakenUp]]
"""Asks the store for the lease of one run."""


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
    ask = partial(_lease_alone, services.store, run_id)
    taken = await _owned(services, keeper, run_id, durability, ask, None, waits=waits, on_wait=on_wait)
    return taken.lease


async def take_up(
    services: Services,
    keeper: LeaseKeeper,
    run_id: str,
    durability: Durability,
    known: Lease | None,
    *,
    waits: bool,
    on_wait: Callable[[datetime], None],
) -> TakenUp:
    """Claim a run as `claim` does, and read it on the way if that saves the store a round trip.

    `known` is the lease that it had when it was looked at: whose owner is gone by now is not asked about.
    """
    store = services.store
    ask = partial(store.take_up if is_resuming(store) else partial(_lease_alone, store), run_id)
    return await _owned(services, keeper, run_id, durability, ask, known, waits=waits, on_wait=on_wait)


async def take_up_within(
    services: Services,
    keeper: LeaseKeeper,
    row: RunRow,
    durability: Durability,
    limits: Sequence[KeyLimit],
    *,
    waits: bool,
    on_wait: Callable[[datetime], None],
) -> TakenUp:
    """Claim a run as `take_up` does if its limits leave room for it, else raise `NoRoom`."""
    store = cast("LimitingStore", services.store)

    async def ask(**how: Any) -> TakenUp:
        return TakenUp(await store.lease_within(row.run_id, limits=limits, **how))

    return await _owned(
        services, keeper, row.run_id, durability, ask, row.lease, waits=waits, on_wait=on_wait
    )


async def _lease_alone(store: CheckpointStore, run_id: str, **how: Any) -> TakenUp:
    return TakenUp(await store.lease(run_id, **how))


async def _owned(
    services: Services,
    keeper: LeaseKeeper,
    run_id: str,
    durability: Durability,
    ask: Ask,
    known: Lease | None,
    *,
    waits: bool,
    on_wait: Callable[[datetime], None],
) -> TakenUp:
    owner = services.ids.new_id()
    owner = beside(owner) if keeper.is_busy else owner
    ask = partial(ask, owner=owner)
    try:
        taken = await _claim(services, keeper, ask, known, durability, waits=waits, on_wait=on_wait)
    except (LeaseConflict, NoRoom):
        raise
    except BaseException:
        # It may have been granted all the same, and must not keep this process from asking again.
        keeper.leave_behind(run_id, owner)
        raise
    keeper.forget_left_behind(run_id)
    return taken


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
    ask: Ask,
    known: Lease | None,
    durability: Durability,
    *,
    waits: bool,
    on_wait: Callable[[datetime], None],
) -> TakenUp:
    ask = partial(ask, ttl=durability.lease_ttl)
    void = known.epoch if known is not None and _is_void(services, keeper, known) else None
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
            if _is_void(services, keeper, held):
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


def _is_void(services: Services, keeper: LeaseKeeper, held: Lease) -> bool:
    """True if no drive has this lease any more: its process is gone, or it was left behind here."""
    is_gone = held.process is not None and services.processes.is_gone(held.process)
    return is_gone or keeper.is_left_behind(held)


async def _asked(services: Services, ask: Callable[[], Coroutine[Any, Any, TakenUp]]) -> TakenUp:
    """Ask the store. If the caller gives up meanwhile, what was granted all the same is given back."""
    work = patiently(services.clock, ask)
    if services.blocking is None or services.store.capabilities.remote:
        asking = asyncio.ensure_future(work)
    else:
        try:
            waits_for = work.send(None)  # a store on this machine mostly answers at once: that needs no task
        except StopIteration as answered:
            taken: TakenUp = answered.value
            return taken
        asking = asyncio.ensure_future(_rest_of(work, waits_for))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        if not asking.cancelled():
            with suppress(EverstepError):
                await services.store.release_lease((await asking).lease)
        raise


@coroutine
def _rest_of(work: Coroutine[Any, Any, TakenUp], waits_for: Any) -> Generator[Any, Any, TakenUp]:
    """Go on with work that has begun, once what it waits for is there."""
    try:
        yield waits_for
        return (yield from work.__await__())
    finally:
        work.close()
