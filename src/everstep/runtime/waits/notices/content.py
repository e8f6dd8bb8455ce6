"""What a notice says, from its row, its run and its wait. Apart from `send`, which only takes and notes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from everstep.codec.notes import open_wait
from everstep.codec.records import header_of
from everstep.errors import EverstepError
from everstep.graph.tells import OF_WAITS, Occasion
from everstep.model.commits import NoticeRow
from everstep.model.enums import Status
from everstep.model.records import CheckpointRecord
from everstep.model.waits import DEADLINE_KIND, WaitRow, WaitStatus
from everstep.ports.durability import Notice
from everstep.ports.store import WaitFilter
from everstep.runtime.services import Services
from everstep.runtime.waits.announce import notice_of

_LONGEST = 500
"""Characters that are told of an error."""
_replace = msgspec.structs.replace


async def content_of(services: Services, row: NoticeRow) -> Notice | None:
    """Return what a notice says now; none if it is to be told no more.

    The row of the run is read last: of one that was erased meanwhile nothing is said.
    """
    if row.occasion in OF_WAITS:
        return await _of_wait(services, row)
    record = await _record(services, row)
    wait = await _first_wait(services, row) if row.occasion == Occasion.HALTED else None
    run = await services.store.run(row.run_id)
    if run is None or (row.occasion == Occasion.OVERDUE and run.status.is_final):
        return None
    told: dict[str, Any] = _of_record(record)
    base = services.base_url
    notice = Notice(
        run_id=row.run_id,
        flow=run.flow_id,
        kind="run",
        id=row.notice_id,
        occasion=row.occasion,
        at=row.at if record is None or row.occasion == Occasion.OVERDUE else record.created_at,
        status=run.status.value,
        run_link=None if base is None else f"{base}/ui/runs/{row.run_id}",
        context=_undone(record) if row.occasion == Occasion.UNDONE else None,
        **told,
    )
    return notice if wait is None else _about_wait(services, notice, wait)


async def _of_wait(services: Services, row: NoticeRow) -> Notice | None:
    wait = await services.store.wait(row.wait_id or "")
    run = await services.store.run(row.run_id)
    if run is None or run.status.is_final or wait is None or wait.status is not WaitStatus.OPEN:
        return None
    if wait.due_at is not None and wait.due_at <= services.time.now():
        return None  # its clock is about to settle it
    return _replace(
        _about_wait(services, _said(services, wait), wait),
        id=row.notice_id,
        occasion=row.occasion,
        at=wait.opened_at,
        status=run.status.value,
    )


def _said(services: Services, wait: WaitRow) -> Notice:
    """Return what a wait says of itself, with its link if this host can know it: no token is made anew,
    as that would kill the one that was given out."""
    details = msgspec.json.decode(open_wait(services.codecs, wait).details)
    return notice_of(services, wait, details, services.tokens.shown(wait))


def _about_wait(services: Services, notice: Notice, wait: WaitRow) -> Notice:
    """Return a notice with what those need who are to answer."""
    about = _said(services, wait)
    return _replace(
        notice,
        wait_id=about.wait_id,
        node=about.node,
        kind=about.kind,
        context=about.context,
        prompt=about.prompt,
        due_at=about.due_at,
        token=about.token,
        link=about.link,
    )


async def _first_wait(services: Services, row: NoticeRow) -> WaitRow | None:
    wanted = WaitFilter(run_id=row.run_id, status=WaitStatus.OPEN, limit=2)
    found = await services.store.waits(wanted)
    return next((wait for wait in found if wait.kind != DEADLINE_KIND), None)


async def _record(services: Services, row: NoticeRow) -> CheckpointRecord | None:
    """Return the record that a notice is about, if it is still there and can be read."""
    with suppress(EverstepError):
        found = await services.store.get(row.run_id, first=row.sequence, last=row.sequence)
        if found and not found[0].is_stub:
            return header_of(found[0].body, f"checkpoint {row.sequence} of run {row.run_id!r}")
    return None


def _undone(record: CheckpointRecord | None) -> dict[str, str] | None:
    """Return what came of undoing: `complete`, or `2 skipped`."""
    came_to = None if record is None else (record.metadata or {}).get("undo")
    return {"undo": came_to} if isinstance(came_to, str) else None


def _of_record(record: CheckpointRecord | None) -> dict[str, Any]:
    """Return what a record says of why a run is as it is. What is encrypted stays where it is."""
    if record is None:
        return {}
    told: dict[str, Any] = {}
    failed = [step.path for step in record.steps if step.status is Status.FAILED]
    if failed:
        told["node"] = failed[-1]
    if record.error is not None:
        message = "" if record.error.sealed else record.error.message
        told["error"] = f"{record.error.type}: {message}".strip(": ")[:_LONGEST]
    return told
