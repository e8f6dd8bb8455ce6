"""Waiting until limits leave room for a run that is driven by name. Apart: most flows have no limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from everstep.errors import NoRoom
from everstep.graph.author.flow import Flow
from everstep.graph.limits import rules_of
from everstep.ports.store import RunRow, TakenUp
from everstep.runtime.services import Services
from everstep.runtime.workers.claim import take_up_within
from everstep.runtime.workers.lease_renewal import LeaseKeeper

log = logging.getLogger("everstep")
LOOK = 0.05
"""Seconds between two looks at whether the store was written to."""
POLL = 5.0
"""Seconds after which it is asked again whatever was written: leases run out."""


async def wait_for_room(
    services: Services,
    keeper: LeaseKeeper,
    row: RunRow,
    flow: Flow,
    *,
    waits: bool,
    on_wait: Callable[[datetime], None],
) -> TakenUp:
    """Claim a run once its limits leave room for it; an impatient caller gets `NoRoom` at once."""
    rules, is_told = rules_of(flow.limits), False
    while True:
        seen = services.changes()
        try:
            return await take_up_within(
                services, keeper, row, flow.durability, rules, waits=waits, on_wait=on_wait
            )
        except NoRoom as full:
            if not waits:
                raise
            until = full.details["until"]
            if not is_told:
                is_told = True
                log.info("run %r waits: %s", row.run_id, full.message)
        await _room_may_be(services, seen, until if isinstance(until, datetime) else None)


async def _room_may_be(services: Services, seen: int, until: datetime | None) -> None:
    """Wait until a rate has room again, or what is written may have made some."""
    end = services.time.now() + timedelta(seconds=POLL)
    end = end if until is None else min(end, until)
    while services.time.now() < end and (until is not None or services.changes() == seen):
        left = (end - services.time.now()).total_seconds()
        await services.system.pause(min(LOOK, max(left, 0.001)))
        await asyncio.sleep(0)
