"""Runs that are due and that no live worker will take: which they are, why, and what to do about it.

A claim names flows with the hashes of their structure, and workers say which they take. What that comes to is
decided in `judge`, for listings, for `explain` and for metrics.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from enum import StrEnum

import msgspec

from everstep.codec.records import version_of
from everstep.errors import StateCorrupted
from everstep.model.commits import BULK_FLOW, SCHEDULE_FLOW
from everstep.model.enums import Status
from everstep.model.leases import WorkerRow, lane_of
from everstep.model.waits import WaitStatus
from everstep.ports.store import Backlog, BacklogStore, RunFilter, RunRow, WaitFilter
from everstep.runtime.operations.pausing import paused_lanes
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

LOOKED_INTO = 20
"""Of so many runs that workers would take the newest record is looked at, whether they can read it."""
EXAMINED = 5000
"""So many runs of a flow, and so many of its waits, are looked at for those that no worker takes."""
_PAGE = 500


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


async def due(services: Services, limit: int, is_driven: Callable[[RunRow], bool]) -> list[RunRow]:
    """Return runs that are due as far as the store's listings say so: some of them may be driven right now.

    First come those that no worker takes, of flows of which the store says that there are some: however many
    newer ones are driven or taken, they are looked for behind them. Then the first ones of all flows.
    """
    rows: dict[str, RunRow] = {}
    workers = alive(services, await services.store.workers())
    for flow_id in await _flows_left(services, workers):
        async with aclosing(_due_of(services, flow_id, EXAMINED)) as looked_at:
            async for row in looked_at:
                if not (is_driven(row) or takers(workers, row.flow_id, row.flow_hash)):
                    rows[row.run_id] = row
                if len(rows) == limit:
                    return list(rows.values())
    async with aclosing(_due_of(services, None, limit)) as looked_at:
        async for row in looked_at:
            rows.setdefault(row.run_id, row)
    return list(rows.values())[:limit]


async def _flows_left(services: Services, workers: Sequence[WorkerRow]) -> list[str]:
    """Return the flows with due runs that none of these workers takes; none of a store that cannot tell."""
    due = None if services.store.capabilities.rationed else await backlog_of(services)
    left = (part for part in due or () if not takers(workers, part.flow_id, part.flow_hash))
    return sorted({part.flow_id for part in left})


async def backlog_of(services: Services) -> list[Backlog] | None:
    """Return what is due, but for flows that are paused; none of a store that cannot tell."""
    if not isinstance(services.store, BacklogStore):
        return None
    due = await services.store.backlog()
    paused = {lane.flow_id for lane in await paused_lanes(services) if not lane.group} if due else ()
    return [part for part in due if part.flow_id not in paused]


async def _due_of(services: Services, flow_id: str | None, most: int) -> AsyncGenerator[RunRow, None]:
    """Yield those that run, the newest first, and those that halt for a wait that is settled or over.

    So many runs are looked at, and so many waits of either kind.
    """
    store, now = services.store, services.time.now()
    before, left = None, most
    while left > 0:
        size = min(left, _PAGE)
        page = await store.list(RunFilter(status=Status.RUNNING, flow_id=flow_id, limit=size, before=before))
        for row in page:
            if row.needs_repair is None:
                yield row
        before, left = (page[-1].run_id, left - size) if len(page) == size else (None, 0)
    for status in (WaitStatus.SETTLED, WaitStatus.OPEN):
        after, left = None, most
        while left > 0:
            size = min(left, _PAGE)
            waits = await store.waits(WaitFilter(status=status, flow_id=flow_id, limit=size, after=after))
            for wait in waits:
                found = await store.run(wait.run_id) if wait.is_ripe(now) else None
                if found is not None and found.status is Status.HALTED and found.needs_repair is None:
                    yield found
            after, left = (waits[-1].wait_id, left - size) if len(waits) == size else (None, 0)


async def untaken(services: Services, runs: RunReader, rows: Sequence[RunRow]) -> list[Untaken]:
    """Say which of these runs, which have no owner, no live worker will take, and why.

    What is paused is not untaken.
    """
    lanes = await paused_lanes(services) if rows else ()
    rows = [r for r in rows if not r.is_paused and lane_of(lanes, r.flow_id, r.group) is None]
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
        elif not candidates and any(row.flow_id in worker.flows for worker in workers):
            is_pinned = await _is_pinned(runs, row)  # else it makes no difference
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
            command = "bulk --follow" if row.flow_id == BULK_FLOW else "resume"
            fix = "Start one: everstep worker FILE.py"
            if not row.flow_id.startswith(SCHEDULE_FLOW):  # which workers alone drive
                fix += f"; or drive it now: everstep {command} {row.run_id}"
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
