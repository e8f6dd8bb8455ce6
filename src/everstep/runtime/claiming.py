"""Claiming a run: at once if its owner is dead or gone, after its time-out if it lives elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from everstep.errors import LeaseConflict
from everstep.model.durability import Durability
from everstep.model.leases import Lease
from everstep.runtime.events import EventKind
from everstep.runtime.keeper import LeaseKeeper
from everstep.runtime.patience import patiently
from everstep.runtime.services import Services

log = logging.getLogger("everstep")
Emit = Callable[[EventKind, str, dict[str, Any]], None]


async def claim(
    services: Services, keeper: LeaseKeeper, run_id: str, durability: Durability, emit: Emit, *, waits: bool
) -> Lease:
    """Return the lease of a run, or raise `LeaseConflict` if its owner lives; `waits` gives it some time."""
    ask = partial(
        services.store.lease,
        run_id,
        owner=services.ids.new_id(),
        ttl=durability.lease_ttl,
        process=services.processes.me(),
    )
    void = keeper.left_behind.pop(run_id, None)
    seen: Lease | None = None
    tries = durability.retry_on_lease_conflict
    while True:
        try:
            return await patiently(services.clock, partial(ask, void_epoch=void))
        except LeaseConflict as conflict:
            held = conflict.details["lease"]
            assert isinstance(held, Lease)
            if held.process is not None and services.processes.is_gone(held.process):
                if void == held.epoch:
                    raise
                void = held.epoch
                continue
            is_elsewhere = held.process is None or not services.processes.is_here(held.process)
            may_be_dead = is_elsewhere and (seen is None or seen == held)
            if not waits or not (may_be_dead or tries > 0):
                raise
            tries -= 0 if may_be_dead else 1
            seen = held
            await _wait_for(services, held, conflict, emit, is_elsewhere=is_elsewhere)


async def _wait_for(
    services: Services, held: Lease, conflict: LeaseConflict, emit: Emit, *, is_elsewhere: bool
) -> None:
    clock = services.clock
    until = held.expires_at if is_elsewhere else min(held.expires_at, clock.now() + timedelta(seconds=1))
    emit("lease_wait", held.run_id, {"until": until.isoformat()})
    log.warning("%s Waiting until %s.", conflict.message, until.strftime("%H:%M:%S UTC"))
    await clock.sleep_until(until + timedelta(milliseconds=1))
