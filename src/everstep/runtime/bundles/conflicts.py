"""What a run meets where it goes: nothing, itself, an older state of itself, or another run of its id."""

from __future__ import annotations

from typing import NamedTuple, cast

from everstep.errors import RunTaken
from everstep.model.bundles import COPIED, IMPORTED
from everstep.model.removal import Erasure
from everstep.model.waits import WaitStatus
from everstep.ports.restoring import Restored, WholeRun, judge_there
from everstep.ports.retention import RetainingStore
from everstep.ports.store import CheckpointStore, RunFilter, RunRow, WaitFilter


class RunConflict(NamedTuple):
    """How a run that is there stands to one that comes; none if there is none."""

    judged: Restored | None = None
    row: RunRow | None = None


async def meet(store: CheckpointStore, run: WholeRun) -> RunConflict:
    """Look for a run of the same id; `RunTaken` if it must stay, and this one cannot come."""
    row = await store.run(run.row.run_id)
    if row is None:
        return RunConflict()
    pages = [await store.get(row.run_id, first=at, last=at) for at in {row.checkpoints, run.head.sequence}]
    ids = {record.sequence: record.checkpoint_id for page in pages for record in page}
    judged = judge_there(run, row.checkpoints, ids.get)
    if judged is Restored.TAKEN or (judged is Restored.BEHIND and not await _is_replaceable(store, row)):
        raise taken(row.run_id, judged)
    return RunConflict(judged, row)


async def _is_replaceable(store: CheckpointStore, row: RunRow) -> bool:
    """True if an older state has nothing of its own: it was not driven, answered or forked here."""
    is_idle = row.status.is_final or row.needs_repair in (COPIED, IMPORTED)
    if not is_idle or not store.capabilities.retains or row.pinned is not None:
        return False
    answered = WaitFilter(run_id=row.run_id, status=WaitStatus.SETTLED, limit=1)
    return not await store.waits(answered) and not await store.list(
        RunFilter(parent_run_id=row.run_id, limit=1)
    )


async def make_room(store: CheckpointStore, met: RunConflict) -> None:
    """Remove an older state, for the newer one to come."""
    if met.judged is not Restored.BEHIND or met.row is None:
        return
    run_id, reason = met.row.run_id, "a newer state of it comes"
    erased = await cast(RetainingStore, store).erase(run_id, head=met.row.checkpoints, reason=reason)
    if erased not in (Erasure.ERASED, Erasure.GONE):
        raise taken(run_id, Restored.BEHIND)


def taken(run_id: str, judged: Restored) -> RunTaken:
    """Say that a run cannot be restored where it is to be."""
    if judged is Restored.BEHIND:
        return RunTaken(
            f"an older state of run {run_id!r} is there already, and may be in use.",
            fix="Erase that one first, or bring the run to another store.",
            run_id=run_id,
        )
    return RunTaken(
        f"another run is called {run_id!r} there.",
        fix="A run keeps its id: it is part of what is hashed. Bring it to another store, and fork it there.",
        run_id=run_id,
    )
