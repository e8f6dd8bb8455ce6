"""Checking what is kept: of some runs or of all, and what waits on this machine for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

import msgspec

from everstep.errors import EverstepError, StateCorrupted
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.integrity.findings import Flaw, FlawKind, Verified
from everstep.runtime.integrity.run_check import Checking, Progress
from everstep.runtime.outage.outbox import foreign
from everstep.runtime.outage.spooled_view import read_waiting
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

_PAGE = 256


class CheckListener(NamedTuple):
    """Who is told how far a check has come."""

    on_run: Callable[[Verified], object] | None = None
    on_progress: Progress | None = None

    def told(self, verified: Verified) -> Verified:
        """Tell of a run that is done."""
        if self.on_run is not None:
            self.on_run(verified)
        return verified


async def verify(
    services: Services,
    runs: RunReader,
    run_ids: Iterable[str] | None,
    watching: CheckListener,
    *,
    blobs: bool,
) -> list[Verified]:
    """Check some runs, or all of them, newest first, and what waits here for runs that the store lacks."""
    checking = Checking(services, runs, watching.on_progress, blobs=blobs, is_for_all=run_ids is None)

    async def one(row: RunRow) -> Verified:
        return watching.told(await _with_spool(services, row, await _checked(checking, row)))

    if run_ids is not None:
        return [await one(await runs.row(run_id)) for run_id in run_ids]
    found = [await one(row) async for row in _all(services)]
    for name in services.spool.runs():
        if await services.store.run(name) is None:
            lone = Verified(run_id=name, spool_problem=str(foreign(services, name)))
            found.append(watching.told(lone))
    return found


async def _checked(checking: Checking, row: RunRow) -> Verified:
    """Check one run; of one that the store can only name, say why."""
    try:
        return await checking.run(row)
    except StateCorrupted as error:
        flaw = Flaw(kind=FlawKind.ROW, message=error.message, run_id=row.run_id)
        return Verified(run_id=row.run_id, checkpoints=row.checkpoints, flaws=(flaw,))


async def _all(services: Services) -> AsyncIterator[RunRow]:
    before: str | None = None
    while True:
        rows = await services.store.list(RunFilter(limit=_PAGE, before=before))
        for row in rows:
            yield row
        if len(rows) < _PAGE:
            return
        before = rows[-1].run_id


async def _with_spool(services: Services, row: RunRow, found: Verified) -> Verified:
    """Add what waits on this machine for a run."""
    try:
        spooled = len(await read_waiting(services, row))
        return msgspec.structs.replace(found, spooled=spooled) if spooled else found
    except EverstepError as error:
        return msgspec.structs.replace(found, spool_problem=str(error))
