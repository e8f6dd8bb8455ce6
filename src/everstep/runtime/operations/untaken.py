"""Runs that are due and that no live worker will take: which they are, why, and what to do about it.

A claim names flows with the hashes of their structure, and workers say which they take. What that comes to is
decided in `judge`, for listings, for `explain` and for metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from everstep.codec.records import version_of
from everstep.errors import StateCorrupted
from everstep.model.enums import Status
from everstep.model.leases import WorkerRow
from everstep.model.waits import WaitStatus
from everstep.ports.store import RunFilter, RunRow, WaitFilter
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

LOOKED_INTO = 20
"""Of so many runs that workers would take the newest record is looked at, whether they can read it."""


class WhyUntaken(StrEnum):
    """Why no live worker takes a run."""

    NO_WORKER = "no_worker"
    """None has its flow."""
    VERSION = "version"
    """They have its flow in versions that do not take over this one."""
    PINNED = "pinned"
    """It stays with its version, and they have others."""
    RECORDS = "records"
    """Its records are of a version that they cannot read."""


class Untaken(msgspec.Struct, frozen=True, kw_only=True):
    """A run that no live worker will take."""

    run_id: str
    flow: str
    flow_version: str
    why: WhyUntaken
    text: str
    fix: str


def alive(services: Services, workers: Iterable[WorkerRow]) -> list[WorkerRow]:
    """Return the workers that claim runs: those that live, and are not about to stop."""
    is_gone = services.processes.is_gone
    return [w for w in workers if not w.is_stopping and (w.process is None or not is_gone(w.process))]


def takers(workers: Sequence[WorkerRow], flow_id: str, flow_hash: str) -> list[WorkerRow]:
    """Return the workers that claim runs of this version of a flow, as far as they say what they take."""

    def takes(worker: WorkerRow) -> bool:
        if not worker.takes:  # 0.1.0 names flows alone
            return flow_id in worker.flows
        return any((it.flow_id, it.flow_hash) == (flow_id, flow_hash) for it in worker.takes)

    return [worker for worker in workers if takes(worker)]


def judge(
    workers: Sequence[WorkerRow],
    *,
    flow_id: str,
    flow_hash: str,
    is_pinned: bool = False,
    records: int | None = None,
) -> WhyUntaken | None:
    """Say why none of these live workers will take runs of a version of a flow; none if one will.

    `records` is the version of a run's newest record, if that is known.
    """
    found = takers(workers, flow_id, flow_hash)
    if found:
        can_read = records is None or any(worker.records >= records for worker in found)
        return None if can_read else WhyUntaken.RECORDS
    if not any(flow_id in worker.flows for worker in workers):
        return WhyUntaken.NO_WORKER
    return WhyUntaken.PINNED if is_pinned else WhyUntaken.VERSION


async def due(services: Services, limit: int) -> list[RunRow]:
    """Return runs that are due as far as the store's listings say so: some of them may be driven right now.

    Those that run, the newest first, and those that halt for a wait that is settled, or over by its clock.
    """
    store, now = services.store, services.time.now()
    rows = {row.run_id: row for row in await store.list(RunFilter(status=Status.RUNNING, limit=limit))}
    for status in (WaitStatus.SETTLED, WaitStatus.OPEN):
        for wait in await store.waits(WaitFilter(status=status, limit=limit)):
            if wait.run_id not in rows and wait.is_ripe(now):
                row = await store.run(wait.run_id)
                if row is not None and row.status is Status.HALTED:
                    rows[row.run_id] = row
    return [row for row in rows.values() if row.needs_repair is None][:limit]


async def untaken(services: Services, runs: RunReader, rows: Iterable[RunRow]) -> list[Untaken]:
    """Say which of these runs, which have no owner, no live worker will take, and why."""
    rows = list(rows)
    workers = alive(services, await services.store.workers()) if rows else []
    found: list[Untaken] = []
    looks = 0 if services.store.capabilities.rationed else LOOKED_INTO
    for row in rows:
        records, is_pinned = None, False
        candidates = takers(workers, row.flow_id, row.flow_hash)
        if candidates and looks:
            looks -= 1
            newest = await services.store.get(row.run_id, first=row.checkpoints)
            records = version_of(newest[-1].body) if newest else None
        elif not candidates:
            is_pinned = await _is_pinned(runs, row)
        why = judge(
            workers, flow_id=row.flow_id, flow_hash=row.flow_hash, is_pinned=is_pinned, records=records
        )
        if why is not None:
            found.append(_said(row, why, workers, records))
    return found


async def _is_pinned(runs: RunReader, row: RunRow) -> bool:
    try:
        return (await runs.plan(row)).pinned is not None
    except StateCorrupted:  # of which a resume speaks
        return False


def _said(row: RunRow, why: WhyUntaken, workers: Sequence[WorkerRow], records: int | None) -> Untaken:
    flow, version = repr(row.flow_id), repr(row.flow_version)
    theirs = _versions(workers, row.flow_id)
    over = f"or take it over to theirs: everstep migrate {row.run_id} FILE.py"
    match why:
        case WhyUntaken.NO_WORKER:
            text = f"no live worker has flow {flow}." if workers else "no worker is alive."
            fix = f"Start one: everstep worker FILE.py; or drive it now: everstep resume {row.run_id}"
        case WhyUntaken.PINNED:
            text = f"it is pinned to version {version} of flow {flow}; live workers have {theirs}."
            fix = f"Start a worker with version {version}, {over}"
        case WhyUntaken.VERSION:
            text = (
                f"it goes by a version {version} of flow {flow} that live workers do not take over; "
                f"they have {theirs}."
            )
            fix = f"Start a worker with that version, {over}"
        case WhyUntaken.RECORDS:
            known = max(worker.records for worker in takers(workers, row.flow_id, row.flow_hash))
            text = f"its records are of version {records}; live workers with flow {flow} read up to {known}."
            fix = "Start workers of the everstep that wrote it, or of a newer one."
    return Untaken(
        run_id=row.run_id, flow=row.flow_id, flow_version=row.flow_version, why=why, text=text, fix=fix
    )


def _versions(workers: Iterable[WorkerRow], flow_id: str) -> str:
    found = {
        it.flow_version
        for worker in workers
        for it in worker.takes
        if it.flow_id == flow_id and it.flow_version
    }
    listed = ", ".join(map(repr, sorted(found)))
    return f"version {listed}" if listed else "others"
