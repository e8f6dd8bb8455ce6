"""What is to be done once a store itself was put back from a backup, before anything drives its runs again.

Between the backup and the restore runs went on, and the store knows nothing of it. Owners of that time may
live still, links of waits that were answered then lead to waits that are open again, and what was called then
is called once more. The first two are ended here; of the third it is said which runs it may concern.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from everstep.codec.notes import DETAILS, close_note, open_wait
from everstep.errors import BadRequest
from everstep.model.acts import BY_PROGRAM, AuditRow, Known
from everstep.model.enums import Status
from everstep.model.waits import WaitChange, WaitRow, WaitStatus
from everstep.ports.audit import AuditFilter
from everstep.ports.restoring import FENCED_BY, FencingStore
from everstep.ports.store import RunFilter, RunRow, WaitFilter
from everstep.runtime.operations.acting import audit_store
from everstep.runtime.operations.untaken import alive
from everstep.runtime.services import Services
from everstep.runtime.waits.tokens import hash_of
from everstep.runtime.waits.voting import change_details

T = TypeVar("T")
PAGE = 500
AT_ONCE = 16
"""So many runs or waits are changed at a time: a store on another machine takes a round trip for each."""
NAMED = 1000
"""So many runs are named; the others are counted."""
GENERATIONS = 1 << 16
"""How far the generation of a token is raised, at least: with a key, one generation is one token, and those
that came after the backup must not come back. It becomes a multiple of this, so that one that was given since
can be told."""
ACT = "after_restore"
"""What the audit log calls it."""
_OPEN = (Status.RUNNING, Status.HALTED, Status.FAILED, Status.ABANDONED)


class AfterRestore(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a store that was put back from a backup, or would be."""

    dry_run: bool
    fenced: int
    """Runs that no owner from before can write to any more."""
    tokens: int
    """Open waits whose token, and any that they had after the backup, is worthless now."""
    told_again: int
    """Those of them of which notifiers are told again, with another token, by the next worker."""
    rescheduled: int
    """Open waits whose time another scheduler is given again."""
    running: tuple[str, ...]
    """Runs that were under way at the backup, the newest first, at most a thousand: what they did since may
    happen a second time."""
    running_count: int
    halted_count: int
    """Runs that waited at the backup. What became of those that were answered since is not known here."""
    known_until: datetime | None
    """The newest time that the store knows of: the backup is not older. None of an empty store."""
    workers: int
    """Workers that are alive, and should not be: they would be driving with what is being changed."""
    done_at: datetime | None = None
    """When this was done before, if the store has been used since: tokens that were told since would die."""


async def after_restore(
    services: Services, *, dry_run: bool, again: bool, say: Callable[[str], object] | None
) -> AfterRestore:
    """Fence every owner from before, and let every token die; with `dry_run` only say what that would be.

    Where it was done before and the store was used since, it takes `again`.
    """
    store = services.store
    if not isinstance(store, FencingStore):
        raise BadRequest(
            "this store cannot keep owners from before a restore from writing.",
            fix="Let it declare `fences`: everstep.ports.restoring.FencingStore.",
        )
    planned = await _go_through(services, store, dry_run=True, say=None)
    if dry_run:
        return planned
    if planned.done_at is not None and not again:
        raise BadRequest(
            f"this was done at {planned.done_at:%Y-%m-%d %H:%M:%S} UTC, and the store was used since: tokens "
            "that were told since would be worthless.",
            fix="If the store was put back from a backup once more since: again=True, or --again at a shell.",
        )
    done = await _go_through(services, store, dry_run=False, say=say)
    await _note(services)
    return msgspec.structs.replace(done, done_at=planned.done_at)


async def _note(services: Services) -> None:
    """Keep in the audit log that it was done: what was cut off is not."""
    if services.store.capabilities.audits:
        row = AuditRow(audit_id=services.ids.new_id(), act=ACT, by=BY_PROGRAM, how=Known.UNNAMED)
        await audit_store(services.store).note_audit(row)


async def _done_at(services: Services) -> datetime | None:
    if not services.store.capabilities.audits:
        return None
    found = await audit_store(services.store).audit(AuditFilter(act=ACT, limit=1))
    return found[-1].at if found else None


async def _go_through(
    services: Services, store: FencingStore, *, dry_run: bool, say: Callable[[str], object] | None
) -> AfterRestore:
    before, is_used = await _done_at(services), False
    counts = dict.fromkeys(_OPEN, 0)
    running: list[str] = []
    known: list[datetime] = []
    fenced = 0
    async for page in _runs(services):
        for row in page:
            counts[row.status] += 1
            known.append(row.ended_at or row.created_at)
            if row.status is Status.RUNNING and len(running) < NAMED:
                running.append(row.run_id)
        known = [max(known)]
        is_used = is_used or any(_is_since(before, row.created_at, row.ended_at) for row in page)
        if not dry_run:
            await _each(page, lambda row: store.fence(row.run_id, FENCED_BY))
        fenced += len(page)
        if say is not None:
            say(f"{fenced:,} runs")
    newest = await services.store.list(RunFilter(limit=1))
    known += [row.ended_at or row.created_at for row in newest]
    is_used = is_used or any(_is_since(before, row.created_at, row.ended_at) for row in newest)
    changed = _Changed()
    async for waits in _waits(services):
        known.append(max(wait.opened_at for wait in waits))
        is_used = is_used or any(_is_told(wait, before) for wait in waits)
        await _each(waits, lambda wait: _renew(services, wait, changed, dry_run=dry_run))
        if say is not None:
            say(f"{changed.tokens:,} tokens")
    workers = len(alive(services, await services.store.workers()))
    return AfterRestore(
        dry_run=dry_run,
        fenced=fenced,
        tokens=changed.tokens,
        told_again=changed.told_again,
        rescheduled=changed.rescheduled,
        running=tuple(running),
        running_count=counts[Status.RUNNING],
        halted_count=counts[Status.HALTED],
        known_until=max(known, default=None),
        workers=workers,
        done_at=before if is_used or workers else None,
    )


def _is_since(before: datetime | None, *times: datetime | None) -> bool:
    """True if one of these times is later than when it was done."""
    return before is not None and any(at is not None and at > before for at in times)


def _is_told(wait: WaitRow, before: datetime | None) -> bool:
    """True if a wait was opened, or its token given to someone, since it was done."""
    is_new = wait.generation > GENERATIONS and wait.generation % GENERATIONS != 0
    return before is not None and (is_new or _is_since(before, wait.opened_at, wait.notified_at))


async def _runs(services: Services) -> AsyncIterator[list[RunRow]]:
    """Yield the runs that may go on. Failed ones too: who reopened one since may drive it still."""
    for status in _OPEN:
        before: str | None = None
        while True:
            page = await services.store.list(RunFilter(status=status, limit=PAGE, before=before))
            if page:
                yield page
                before = page[-1].run_id
            if len(page) < PAGE:
                break


async def _waits(services: Services) -> AsyncIterator[list[WaitRow]]:
    after: str | None = None
    while True:
        page = await services.store.waits(WaitFilter(status=WaitStatus.OPEN, limit=PAGE, after=after))
        if page:
            yield page
            after = page[-1].wait_id
        if len(page) < PAGE:
            break


class _Changed(msgspec.Struct):
    tokens: int = 0
    told_again: int = 0
    rescheduled: int = 0


async def _renew(services: Services, wait: WaitRow, changed: _Changed, *, dry_run: bool) -> None:
    """Give a wait a token that was never told, so that the next worker tells it."""
    has_token, is_scheduled = wait.token_hash is not None, wait.schedule_id is not None
    generation = (wait.generation // GENERATIONS + 2) * GENERATIONS
    changed.tokens += has_token
    changed.told_again += wait.notifies
    changed.rescheduled += is_scheduled
    if dry_run or not (has_token or wait.notifies or is_scheduled):
        return
    token = services.tokens.issue(wait.wait_id, generation)

    def renewed(wait: WaitRow) -> WaitChange:
        return WaitChange(
            token_hash=hash_of(token) if has_token else msgspec.UNSET,
            generation=generation,
            notified_at=None if wait.notifies else msgspec.UNSET,
            schedule_id=None if is_scheduled else msgspec.UNSET,
            details=_untold(services, wait) if wait.notifies else msgspec.UNSET,
        )

    await change_details(services.store, services.codecs, wait, renewed)


def _untold(services: Services, wait: WaitRow) -> bytes | msgspec.UnsetType:
    """Return what a wait says of itself without who was told; unset if that says nothing of it."""
    details = msgspec.json.decode(open_wait(services.codecs, wait).details)
    if details.pop("told", None) is None:
        return msgspec.UNSET
    return close_note(services.codecs, wait.wait_id, DETAILS, msgspec.json.encode(details))


async def _each(rows: Sequence[T], work: Callable[[T], Coroutine[Any, Any, object]]) -> None:
    for first in range(0, len(rows), AT_ONCE):
        await asyncio.gather(*(work(row) for row in rows[first : first + AT_ONCE]))
