"""Sending notices: each is taken, sent, and noted as sent, or tried again later.

Who dies before it is noted sends it twice; who dies earlier leaves it to others, once the hold is over.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

import msgspec

from everstep.engine.notices.sending import after_failure, after_sending
from everstep.errors import EverstepError, StoreError
from everstep.model.commits import NoticeRow
from everstep.model.waits import TIME_TO_TELL
from everstep.ports.notices import NoticeStore
from everstep.runtime.services import Services
from everstep.runtime.waits.notices.content import content_of
from everstep.runtime.waits.notices.told import notice_store

log = logging.getLogger("everstep")
HOLD: Final = 4 * TIME_TO_TELL
"""How long no other sends a notice that one has taken."""
MOST_BESIDE: Final = 64
"""Of so many runs notices are sent at a time beside those that are driven."""
AT_ONCE: Final = 16
"""How many are taken together: each is sent right after it was taken."""


class SentNotices(msgspec.Struct, frozen=True):
    """What became of notices that were due."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0
    """Those that are to be told no more: the wait was answered, or the run has ended in time."""


async def send_due(services: Services, run_id: str | None = None) -> SentNotices:
    """Send what is due and for one of this host's notifiers, of a run or of all. Raises `StoreError`."""
    store, slow = notice_store(services), set[str]()
    found = SentNotices()
    while aliases := services.notifiers.aliases - slow:  # one that hangs does not hold up the others
        rows = await store.take_notices(aliases, hold=HOLD, limit=AT_ONCE, run_id=run_id)
        outcomes = await asyncio.gather(*(_send(services, store, row, slow) for row in rows))
        found = SentNotices(
            *(had + outcomes.count(k) for k, had in enumerate(msgspec.structs.astuple(found)))
        )
        if len(rows) < AT_ONCE:
            break
    return found


_SENT, _FAILED, _DROPPED = range(3)


async def _send(services: Services, store: NoticeStore, row: NoticeRow, slow: set[str]) -> int:
    """Send one that was taken; notes a notifier that takes too long."""
    try:
        async with asyncio.timeout(TIME_TO_TELL.total_seconds()):
            notice = await content_of(services, row)
            failures = [] if notice is None else await services.notifiers.tell_once(row.notifier, notice)
    except StoreError:
        raise
    except Exception as error:  # one that cannot be read is no reason not to send the others
        why = str(error) if isinstance(error, EverstepError) else f"it cannot be read: {type(error).__name__}"
        if isinstance(error, TimeoutError):
            slow.add(row.notifier)
            why = "it took too long"
        await store.change_notice(row, after_failure(row, why, services.time.now()))
        return _FAILED
    if notice is None:
        await store.change_notice(row, None)
        return _DROPPED
    if failures:
        later = after_failure(row, failures[0].error, services.time.now())
        if later.due_at is None:
            log.error("notice %s cannot be sent to %r, and is tried no more", row.notice_id, row.notifier)
        await store.change_notice(row, later)
        return _FAILED
    await store.change_notice(row, after_sending(row, services.time.now()))
    return _SENT


async def send_of(services: Services, run_id: str) -> None:
    """Send what is due of a run right away. Never raises: a sweep sends what is left."""
    try:
        async with asyncio.timeout(2 * TIME_TO_TELL.total_seconds()):
            await send_due(services, run_id)
    except (EverstepError, TimeoutError) as error:
        log.warning("notices of run %r were not sent: %s", run_id, error)


class Beside:
    """Sends notices of runs that have ended beside those that a worker drives: a notifier may hang."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def tell(self, run_id: str) -> None:
        """Begin to send what is due of a run. Where too many are sent already, a sweep does so later."""
        if asyncio.get_running_loop() is not self._loop:
            await send_of(self._services, run_id)
        elif len(self._tasks) < MOST_BESIDE:
            task = self._loop.create_task(send_of(self._services, run_id))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def end(self, patience: float | None = None) -> bool:
        """Return once what was begun is sent, or after `patience` seconds; false if nothing was.

        What is not sent by then is left to others.
        """
        tasks = [*self._tasks]
        if tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await asyncio.wait(tasks)
        self.let_go()
        return bool(tasks)

    def let_go(self) -> None:
        """Leave to others what is not sent."""
        for task in self._tasks:
            task.cancel()
