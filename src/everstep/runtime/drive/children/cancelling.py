"""What becomes of the runs that a run has started when it is cancelled: they are asked to stop as well.

They are asked before its last put, and it is itself asked by then: who takes it over after a crash ends it,
and asks those that were not asked. One that is admitted later, by an owner that was thought dead, finds its
starter cancelled when it is driven for the first time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from everstep.codec.notes import close_act
from everstep.model.acts import Act
from everstep.model.commits import OnParentCancel, RunRow, StopRequest
from everstep.model.enums import Status
from everstep.ports.store import RunFilter
from everstep.runtime.services import Services

_PAGE = 500
Persist = Callable[..., Awaitable[Any]]
"""Asks a store that is out of reach for as long as the run may."""


async def stop_children(services: Services, run_id: str, act: Act | None, persist: Persist) -> list[RunRow]:
    """Ask the runs to stop that nodes of a run have started, and return those that were asked."""
    found = [row async for row in _unfinished(services, run_id, persist) if goes_down(row)]
    if not found:
        return []
    # The run is cancelled from now on whatever happens, also if one of its nodes wanted that.
    await persist(partial(services.store.request_stop, run_id, StopRequest.CANCEL))
    for row in found:
        note = None if act is None else close_act(services.codecs, row.run_id, act)
        await persist(partial(services.store.request_stop, row.run_id, StopRequest.CANCEL, note))
    return found


def goes_down(row: RunRow) -> bool:
    """True if a run is cancelled with the one whose node started it."""
    return row.started_by is not None and row.started_by.on_parent_cancel is OnParentCancel.CANCEL


async def _unfinished(services: Services, run_id: str, persist: Persist) -> Any:
    for status in (Status.RUNNING, Status.HALTED):
        before: str | None = None
        while True:
            wanted = RunFilter(started_by=run_id, status=status, limit=_PAGE, before=before)
            page = cast("list[RunRow]", await persist(partial(services.store.list, wanted)))
            for row in page:
                yield row
            if len(page) < _PAGE:
                break
            before = page[-1].run_id


async def heeding_starter(services: Services, row: RunRow) -> RunRow:
    """Return a run that is to be driven for the first time, asked to stop if its starter was cancelled."""
    if row.started_by is None or row.checkpoints > 1 or row.stop_request is not None or not goes_down(row):
        return row
    starter = await services.store.run(row.started_by.run)
    if starter is None:
        return row
    is_asked = not starter.status.is_final and starter.stop_request is StopRequest.CANCEL
    if not (is_asked or starter.status is Status.CANCELLED):
        return row
    await services.store.request_stop(row.run_id, StopRequest.CANCEL)
    return row.changed(stop_request=StopRequest.CANCEL)
