"""Removing what a run no longer needs."""

from __future__ import annotations

from everstep.errors import BadRequest
from everstep.ports.store import CheckpointStore, RunFilter, RunRow
from everstep.runtime.reader import RunReader

_PAGE = 1000


async def clean_up(store: CheckpointStore, runs: RunReader, run_id: str, keep: int) -> int:
    """Remove what lies before the newest keyframe that covers the last `keep` checkpoints; returns how many.

    Nothing is appended, so as much is left over as lies between two keyframes. What a fork needs stays, and
    all of a run that may still be undone.
    """
    if type(keep) is not int or keep < 1:
        raise BadRequest(f"keep is {keep!r}.", fix="Keep at least 1.")
    row = await runs.row(run_id)
    covered = await _oldest_needed(store, row, keep)
    if covered < row.first or covered < row.trimmed_before:
        return 0
    own = await store.tail(run_id, at=covered)
    if not own or not own[0].keyframe:
        return 0
    before = own[0].sequence
    # What is to be read from now on must be readable, or the older ones are all there is.
    folded = await runs.rehydrate(row, await runs.plan_at(row, before), at=before)
    if folded.state.undo is not None and folded.state.undo.needs_past(row.status):
        return 0
    return await store.trim(run_id, before=before)


async def _oldest_needed(store: CheckpointStore, row: RunRow, keep: int) -> int:
    """Return the oldest checkpoint that must stay readable."""
    oldest = row.checkpoints - keep + 1
    before: str | None = None
    while True:
        forks = await store.list(RunFilter(parent_run_id=row.run_id, limit=_PAGE, before=before))
        oldest = min([oldest, *(f.forked_at for f in forks if f.forked_at is not None)])
        if len(forks) < _PAGE:
            return oldest
        before = forks[-1].run_id
