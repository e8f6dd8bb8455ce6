"""Keeping only the last checkpoint of a run that has ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from everstep.codec.records import header_of
from everstep.errors import CheckpointPinned, LeaseConflict, RunNotFound
from everstep.model.durability import Durability
from everstep.model.enums import Trigger
from everstep.model.records import CheckpointRecord
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.summaries import ERRORS, count_errors

_CARRIED = ("source", "retention", "retain_completed_for")
"""What the first record says of the flow, and the one that takes its place goes on saying."""


class Begun(NamedTuple):
    """What the oldest record that is left says of a run."""

    ttl: timedelta | None
    about: dict[str, Any]
    is_known: bool
    """False if it is not the first and takes no such record's place, so that it says nothing of the flow."""


async def begun_with(services: Services, row: RunRow) -> Begun:
    """Return what a run was begun with, as far as its records still tell."""
    first = max(row.first, row.trimmed_before)
    record = await _header(services, row, first)
    said = (record.metadata or {}) if record is not None else {}
    about = {name: said[name] for name in _CARRIED if name in said}
    is_known = first == row.first or (record is not None and record.trigger is Trigger.TRIM)
    return Begun(record.ttl if record is not None else None, about, is_known)


async def _header(services: Services, row: RunRow, sequence: int) -> CheckpointRecord | None:
    found = await services.store.get(row.run_id, first=sequence, last=sequence)
    if not found or found[0].is_stub:
        return None
    return header_of(found[0].body, f"checkpoint {sequence} of run {row.run_id!r}")


async def has_forks(services: Services, row: RunRow) -> bool:
    return bool(await services.store.list(RunFilter(parent_run_id=row.run_id, limit=1)))


async def ends_with_keyframe(services: Services, row: RunRow) -> bool:
    """True if the newest record can be read without those before it."""
    newest = await services.store.get(row.run_id, first=row.checkpoints, last=row.checkpoints)
    return bool(newest) and newest[0].keyframe


async def keep_last_only(services: Services, runs: Runs, row: RunRow) -> int:
    """Turn all but the last checkpoint of an ended run into stubs; returns how many.

    Where the last one is no keyframe, one is written behind it that says the same. 0 if somebody needs more
    of the run: a fork, whoever drives it now, whoever pinned it; or if somebody else is at it.
    """
    if services.spool.has(row.run_id):
        return 0
    try:
        row = await _with_keyframe(services, runs, row)
        # What is to be read from now on must be readable, or the older ones are all there is.
        await runs.rehydrate(row, await runs.plan(row), at=row.checkpoints, needs_values=False)
        return await services.store.trim(row.run_id, before=row.checkpoints)
    except (LeaseConflict, CheckpointPinned, RunNotFound):
        return 0


async def _with_keyframe(services: Services, runs: Runs, row: RunRow) -> RunRow:
    """Return the run with a keyframe as its newest record."""
    if await ends_with_keyframe(services, row):
        return row
    begun = await begun_with(services, row)
    lease = await runs.claim(row.run_id, Durability(), waits=False)
    try:
        row = await runs.row(row.run_id)
        if not row.status.is_final or row.pinned is not None:
            raise LeaseConflict(f"run {row.run_id!r} goes on.")
        if await ends_with_keyframe(services, row):  # somebody else was faster
            await runs.release(lease)
            return row
        journal, folded = await runs.journal_at_rest(row, lease)
        about = {**begun.about, ERRORS: await count_errors(services, row)}
        await journal.compact(row, folded.error, ttl=begun.ttl, metadata=about)
    except BaseException:
        await runs.release(lease)
        raise
    return await runs.row(row.run_id)
