"""Staying with a run through its waits, for scripts and tests that want to see its end. Apart from `runs`,
which never waits for answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from everstep.errors import LeaseConflict, RunPaused, StoreError
from everstep.model.enums import Status
from everstep.model.waits import WaitRow
from everstep.runtime.outcome import Outcome
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import open_waits

LOOK = 0.1
"""Seconds between two looks at whether the store was written to."""


async def stay(
    services: Services, runs: RunReader, outcome: Outcome, again: Callable[[], Awaitable[Outcome]]
) -> Outcome:
    """Drive the run `again` whenever an answer comes or a time is over, until it has ended."""
    while outcome.status is Status.HALTED and outcome.paused is None:
        try:
            await _something(services, runs, outcome)
            outcome = await again()
        except RunPaused:
            row = await runs.row(outcome.run_id)
            return outcome._replace(paused=row.needs_repair or "")
        except LeaseConflict:
            await services.system.pause(LOOK)  # a worker was quicker; it will end or halt
        except StoreError:
            if not outcome.spooled:
                raise
            await services.system.pause(LOOK)  # the store is out of reach still
    return outcome


async def _something(services: Services, runs: RunReader, outcome: Outcome) -> None:
    """Wait until a wait of the run is due or settled, or the run has moved on."""
    sleeper: asyncio.Task[None] | None = None
    due = _next_due(outcome.waits)
    if due is not None:
        await services.time.hear()
        sleeper = asyncio.ensure_future(services.time.sleep_until(due))
    try:
        seen: int | None = None
        while sleeper is None or not sleeper.done():
            changes = services.store.changes()
            if changes != seen and await _has_moved(services, runs, outcome):
                return
            seen = changes
            if sleeper is None:
                await services.system.pause(LOOK)
            else:
                await asyncio.wait([sleeper], timeout=LOOK)
    finally:
        if sleeper is not None:
            sleeper.cancel()


async def _has_moved(services: Services, runs: RunReader, outcome: Outcome) -> bool:
    if (await runs.row(outcome.run_id)).status is not Status.HALTED:
        return True
    now, rows = services.time.now(), await open_waits(services.store, outcome.run_id)
    # Between two looks others may have driven it to other waits, or set other times.
    return _times(rows) != _times(outcome.waits) or any(row.is_ripe(now) for row in rows)


def _times(rows: Sequence[WaitRow]) -> dict[str, datetime | None]:
    return {row.wait_id: row.due_at for row in rows}


def _next_due(rows: Sequence[WaitRow]) -> datetime | None:
    return min((r.due_at for r in rows if r.due_at is not None and not r.scheduler), default=None)
