"""Telling schedulers and notifiers of a wait. Whatever fails here is tried again by a sweep."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.notes import DETAILS, close_note, open_wait
from everstep.errors import ScheduleNotFound, StoreError
from everstep.model.waits import TIME_TO_TELL, SettledBy, TokenConfig, WaitChange, WaitRow, WaitStatus
from everstep.on_demand import on_demand
from everstep.ports.durability import Notice
from everstep.ports.store import WaitFilter
from everstep.runtime.services import Services
from everstep.runtime.waits.tokens import handle_of

if TYPE_CHECKING:
    from everstep.runtime.waits.voting import change_details
else:
    change_details = on_demand("everstep.runtime.waits.voting:change_details")

log = logging.getLogger("everstep")
_PAGE = 1000


async def announce(services: Services, row: WaitRow, token: str | None) -> None:
    """Hand a durable wait to its scheduler and its notifiers, and note that it was done. Never raises.

    A notifier that takes too long is called again later, like one that fails: neither runs nor workers wait.
    """
    try:
        async with asyncio.timeout(TIME_TO_TELL.total_seconds()):
            await _schedule(services, row)
            await _notify(services, row, token)
    except TimeoutError:
        log.warning("notification timed out: wait %s of run %r", row.wait_id, row.run_id)
    except Exception as error:
        # The wait is safe in the store; only the notification is missing.
        log.warning("notification failed: wait %s of run %r: %s", row.wait_id, row.run_id, error)


async def _schedule(services: Services, row: WaitRow) -> None:
    if not row.scheduler or row.due_at is None or row.schedule_id is not None:
        return
    scheduler = services.schedulers.of(row.scheduler)
    schedule_id = await scheduler.schedule_at(await handle_of(services.store, row), row.due_at)
    await services.store.change_wait(row.wait_id, WaitChange(schedule_id=schedule_id))


async def call_off(services: Services, run_id: str, closed: Collection[str], *, is_over: bool) -> None:
    """Let schedulers forget the times of waits that a run has closed: these, or all if it is over.

    Never raises.
    """
    if not services.schedulers.has_others:
        return
    after: str | None = None
    try:
        while closed or is_over:
            wanted = WaitFilter(run_id=run_id, status=WaitStatus.CLOSED, limit=_PAGE, after=after)
            page = await services.store.waits(wanted)
            for row in page:
                if row.wait_id in closed or (is_over and row.settled_at is None):
                    await forget(services, row)
            if len(page) < _PAGE:
                return
            after = page[-1].wait_id
    except StoreError as error:
        log.warning("cancelling the schedules of run %r failed: %s", run_id, error)


async def forget(services: Services, row: WaitRow) -> None:
    """Let the scheduler of a wait that is over forget its time, if that has not come yet. Never raises."""
    if not row.scheduler or row.schedule_id is None or row.due_at is None:
        return
    if row.settled_by is SettledBy.CLOCK and row.settled_at is not None and row.settled_at >= row.due_at:
        return
    try:
        async with asyncio.timeout(TIME_TO_TELL.total_seconds()):
            await services.schedulers.of(row.scheduler).cancel(row.schedule_id)
    except ScheduleNotFound:
        pass
    except Exception as error:
        # It will fire in vain: a wait that is over takes no answer.
        log.warning("cancelling schedule %r of wait %s failed: %s", row.schedule_id, row.wait_id, error)


async def _notify(services: Services, row: WaitRow, token: str | None) -> None:
    if not row.notifies or row.notified_at is not None:
        return
    details = msgspec.json.decode(open_wait(services.codecs, row).details)
    wanted, told = details.get("notify", []), details.get("told", [])
    others = [alias for alias in dict.fromkeys(wanted) if alias not in told]
    for alias in others:
        services.notifiers.of(alias)  # before a token in use is replaced by one that is never sent
    if token is None:
        token = services.tokens.shown(row) or await _another_token(services, row, is_known=bool(told))
    if token is None:
        log.warning(
            "wait %s of run %r: %s will be told without a token, as another would take the place of the one "
            "given out or revoked before. To make one: everstep answer %s --reissue",
            row.wait_id,
            row.run_id,
            ", ".join(map(repr, others)),
            row.wait_id,
        )
    notice = notice_of(services, row, details, token)
    just_told: list[str] = []
    try:
        await services.notifiers.tell(others, notice, just_told.append)
    finally:  # also if one takes too long: who was notified is not notified again
        if len(just_told) == len(others):
            await services.store.change_wait(row.wait_id, WaitChange(notified_at=services.clock.now()))
        elif just_told:
            names = [*told, *just_told]
            make = partial(_noting, services.codecs, names)
            await change_details(services.store, services.codecs, row, make)


def _noting(codecs: Codecs, told: list[str], row: WaitRow) -> WaitChange:
    """Return the change with which a wait says who was told of it."""
    noted = {**msgspec.json.decode(open_wait(codecs, row).details), "told": told}
    return WaitChange(details=close_note(codecs, row.wait_id, DETAILS, msgspec.json.encode(noted)))


async def _another_token(services: Services, row: WaitRow, *, is_known: bool) -> str | None:
    """Return a new token in place of one that was not sent; none if it was, or was revoked."""
    if is_known or row.token_hash is None:
        return None
    ttl = None if row.token_expires_at is None else row.token_expires_at - row.opened_at
    handle = await handle_of(services.store, row)
    return await services.tokens.create_token(handle, TokenConfig(ttl=ttl, single_use=row.single_use))


def notice_of(services: Services, row: WaitRow, details: dict[str, Any], token: str | None) -> Notice:
    """Return the content of a wait's notification."""
    return Notice(
        wait_id=row.wait_id,
        run_id=row.run_id,
        flow=row.flow_id,
        node=row.path,
        kind=row.kind,
        context=details.get("context"),
        prompt=details.get("prompt", ""),
        due_at=row.due_at,
        token=token,
        link=services.link(token),
    )
