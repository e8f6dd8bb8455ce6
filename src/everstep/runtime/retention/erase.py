"""Removing one run for good."""

from __future__ import annotations

import msgspec

from everstep.codec.wire import to_wire as _to_wire
from everstep.errors import (
    BadRequest,
    CheckpointPinned,
    IncompatibleVersion,
    LeaseConflict,
    RunErased,
    StateCorrupted,
)
from everstep.model.acts import Act, AuditRow, split_act, with_act
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.ports.retention import RetainingStore
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.after_run import retaining_store
from everstep.runtime.drive.external_channel import forget_channel
from everstep.runtime.operations.acting import riding, told, written
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.reader import RunReader
from everstep.runtime.retention.references import names_of
from everstep.runtime.retention.sweep import sweep_some
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.services import Services

ASKED = "on request"
IMPORT = "import"
"""What the log says of a run that came with a bundle."""
_PAGE = 1000


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """What went with a run that was erased."""

    run_id: str
    checkpoints: int
    artifacts: int = 0
    """Those that only this run named."""
    artifacts_left: int = 0
    """Named by nothing any more, but put so recently that `gc` removes them later."""

    to_wire = _to_wire


async def erase(
    services: Services, runs: RunReader, run_id: str, act: Act | None = None, *, dry_run: bool = False
) -> Erased:
    """Remove a run that has ended, with the artifacts that no other run names; its id stays taken."""
    retaining_store(services)
    while True:
        row = await runs.row(check_run_id(run_id))
        check_erasable(services, row)
        await check_not_needed(services, row)
        if dry_run:
            names = await _names(services, row)
            return Erased(run_id=run_id, checkpoints=row.checkpoints - row.first + 1, artifacts=len(names))
        erased = await erase_at(services, row, act)
        if erased is not None:
            return erased


async def erase_at(services: Services, row: RunRow, act: Act | None) -> Erased | None:
    """Remove a run that has ended and still is as it was looked at; none if it has gone on since."""
    store, run_id = retaining_store(services), row.run_id
    check_erasable(services, row)
    await check_not_needed(services, row)
    names, audit = await _names(services, row), riding(act, run_id)
    verdict = await erase_run(services, store, row, with_act(ASKED, act), None, audit)
    written(audit, is_done=verdict is Erasure.ERASED)
    if verdict is Erasure.MOVED:
        return None
    if verdict is Erasure.GONE:
        raise RunErased(f"run {run_id!r} was just removed by another process.")
    if verdict is not Erasure.ERASED:
        raise await refused(services, row, verdict)
    swept = await sweep_some(services, names, apart_from=run_id)
    return Erased(
        run_id=run_id,
        checkpoints=row.checkpoints - row.first + 1,
        artifacts=swept.removed,
        artifacts_left=swept.too_new,
    )


async def erase_run(
    services: Services,
    store: RetainingStore,
    row: RunRow,
    reason: str,
    summary: bytes | None,
    audit: AuditRow | None = None,
) -> Erasure:
    """Remove a run as it was looked at, and its channel if that lies elsewhere."""

    async def ask() -> Erasure:
        head, row_of = row.checkpoints, told(audit)
        return await store.erase(row.run_id, head=head, reason=reason, summary=summary, **row_of)

    verdict = await patiently(services.clock, ask)
    if verdict is Erasure.ERASED:
        await forget_channel(services, row.run_id)
    return verdict


def check_erasable(services: Services, row: RunRow) -> None:
    """Raise unless a run has ended, here too."""
    if not row.status.is_final:
        raise BadRequest(
            f"run {row.run_id!r} is {row.status.value}.", fix=f"Cancel it first: everstep cancel {row.run_id}"
        )
    if services.spool.has(row.run_id):
        raise BadRequest(
            f"checkpoints of run {row.run_id!r} wait on this machine.",
            fix="Write them to the store first: everstep drain",
        )


async def is_needed(services: Services, row: RunRow) -> bool:
    """True if the run whose node started this one has not ended: it may still ask what became of it."""
    if row.started_by is None:
        return False
    starter = await services.store.run(row.started_by.run)
    return starter is not None and not starter.status.is_final


async def check_not_needed(services: Services, row: RunRow) -> None:
    """Raise if a run is to be removed whose starter has not ended."""
    if row.started_by is not None and await is_needed(services, row):
        starter = row.started_by.run
        raise CheckpointPinned(
            f"run {row.run_id!r} cannot be removed: run {starter!r}, which has started it, has not ended.",
            fix=f"Wait for that, or cancel it: everstep cancel {starter}",
            run_id=row.run_id,
        )


async def imported_runs(services: Services) -> set[str]:
    """Return the runs that came with a bundle, also those that have gone on since or were erased.

    What such a run says of itself is the word of those who made the bundle. This reads the whole log.
    """
    found: set[str] = set()
    if not services.store.capabilities.retains:
        return found
    store, before = retaining_store(services), None
    while True:
        page = await store.removals(limit=_PAGE, before=before)
        found.update(line.run_id for _, line in page if line.what == IMPORT and line.run_id is not None)
        if not page:
            return found
        before = page[-1][0]


def erased_line(left: Tombstone) -> Removal:
    """Return a tombstone as a line of the log of what went."""
    reason, act = split_act(left.reason)
    return Removal(
        at=left.erased_at, what="run", run_id=left.run_id, flow_id=left.flow_id, reason=reason, act=act
    )


async def _names(services: Services, row: RunRow) -> set[str]:
    """Return what a run names; nothing for one that is damaged, so that `gc` finds it later."""
    try:
        return {name async for name in names_of(services, row)}
    except (StateCorrupted, IncompatibleVersion):
        return set()


async def refused(services: Services, row: RunRow, verdict: Erasure) -> Exception:
    """Say who needs a run that was to be removed."""
    name = row.run_id
    if verdict is Erasure.FORKED:
        forks = await services.store.list(RunFilter(parent_run_id=name, limit=5))
        named = ", ".join(fork.run_id for fork in forks)
        return CheckpointPinned(
            f"run {name!r} cannot be removed: {named} {'go' if len(forks) > 1 else 'goes'} on from it.",
            fix="Remove its forks first.",
            run_id=name,
        )
    if verdict is Erasure.PINNED:
        fresh = await services.store.run(name)
        why, _ = split_act((fresh.pinned if fresh is not None else row.pinned) or "")
        return CheckpointPinned(
            f"run {name!r} is pinned: {why}.",
            fix=f"Unpin it first: everstep unpin {name}",
            run_id=name,
        )
    if verdict is Erasure.LEASED:
        return LeaseConflict(
            f"run {name!r} has an owner that is writing to it.",
            fix="Wait for it, or stop it: everstep cancel",
            run_id=name,
        )
    return StateCorrupted(f"run {name!r} could not be removed: {verdict.value}.")
