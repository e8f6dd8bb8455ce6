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
from everstep.model.enums import Status
from everstep.model.waits import WaitChange, WaitRow, WaitStatus
from everstep.ports.restoring import FENCED_BY, FencingStore
from everstep.ports.store import RunFilter, RunRow, WaitFilter
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
"""How far the generation of a token is raised: with a key, one generation is one token, and those that came
after the backup must not come back."""
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


async def after_restore(
    services: Services, *, dry_run: bool, say: Callable[[str], object] | None
) -> AfterRestore:
    """Fence every owner from before, and let every token die; with `dry_run` only say what that would be."""
    store = services.store
    if not isinstance(store, FencingStore):
        raise BadRequest(
            "this store cannot keep owners from before a restore from writing.",
            fix="Let it declare `fences`: everstep.ports.restoring.FencingStore.",
        )
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
        if not dry_run:
            await _each(page, lambda row: store.fence(row.run_id, FENCED_BY))
        fenced += len(page)
        if say is not None:
            say(f"{fenced:,} runs")
    known += [row.ended_at or row.created_at for row in await store.list(RunFilter(limit=1))]
    changed = _Changed()
    async for waits in _waits(services):
        known.append(max(wait.opened_at for wait in waits))
        await _each(waits, lambda wait: _renew(services, wait, changed, dry_run=dry_run))
        if say is not None:
            say(f"{changed.tokens:,} tokens")
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
        workers=len(alive(services, await store.workers())),
    )


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
    generation = wait.generation + GENERATIONS
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
