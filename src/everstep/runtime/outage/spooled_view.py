"""A run as it will be once what waits on this machine is written: a resume writes that first."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple, cast

import msgspec

from everstep.codec.records import OpenRecord, unseal
from everstep.codec.sealing import look_at
from everstep.errors import StateCorrupted
from everstep.model.enums import Status
from everstep.model.waits import WaitRow, WaitStatus
from everstep.ports.store import CheckpointStore, Commit, RunRow, StoredRecord, WaitFilter
from everstep.runtime.lineage import Lineage
from everstep.runtime.outage.outbox import foreign, where
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services


class SpooledCommits(NamedTuple):
    """The commits of a run that wait on this machine and are not in the store yet."""

    commits: list[Commit]
    goes_on: bool
    """False if the run has gone on without them, so that they become a fork of it."""


async def waiting_for(services: Services, row: RunRow) -> SpooledCommits:
    """Return what waits on this machine for a run."""
    if not services.spool.has(row.run_id):
        return SpooledCommits([], True)
    kept = services.spool.of(row.run_id)
    stored = {r.sequence: r.checkpoint_id for r in await _beside(services, row, kept)}
    commits = [commit for commit in kept if stored.get(commit.sequence) != commit.checkpoint_id]
    if not commits:
        return SpooledCommits([], True)
    is_next = commits[0].sequence == row.checkpoints + 1 and commits[0].base == stored.get(row.checkpoints)
    is_fenced = row.lease is not None and row.lease.epoch != commits[0].epoch
    return SpooledCommits(commits, is_next and not is_fenced)


async def _beside(services: Services, row: RunRow, kept: Sequence[Commit]) -> list[StoredRecord]:
    """Return the records of the store that lie where these commits belong, and the one before them."""
    if not kept:
        return []
    first = min(kept[0].sequence - 1, row.checkpoints)
    links = await Lineage(services.store, services.codecs).get(row, max(first, 1), kept[-1].sequence)
    return [link.stored for link in links]


async def read_waiting(services: Services, row: RunRow) -> list[OpenRecord]:
    """Return what waits for a run, each record verified against the one before it."""
    commits = (await waiting_for(services, row)).commits
    if not commits:
        return []
    try:
        link, digest = await Lineage(services.store, services.codecs).digest(row, commits[0].sequence - 1)
    except StateCorrupted:
        raise foreign(services, row.run_id) from None
    if link.stored.checkpoint_id != commits[0].base:
        raise foreign(services, row.run_id)
    found: list[OpenRecord] = []
    for commit in commits:
        opened = unseal(commit.body, where(row.run_id), digest, commit.checkpoint_id)
        found.append(look_at(opened, row.run_id, where(row.run_id), services.codecs))
        digest = found[-1].digest
    return found


async def ahead(services: Services, runs: RunReader, run_id: str) -> tuple[Services, RunReader]:
    """Return the same services and runs with what waits for one run on this machine counted in."""
    if not services.spool.has(run_id):
        return services, runs
    waiting = await waiting_for(services, await runs.row(run_id))
    if not waiting.commits or not waiting.goes_on:
        return services, runs
    seen = copy(services)
    seen.store = cast(CheckpointStore, _Ahead(services.store, run_id, waiting.commits))
    return seen, runs.over(seen)


class _Ahead:
    """Reads from a store as if some commits had been put. What it does not know it passes on."""

    def __init__(self, store: CheckpointStore, run_id: str, commits: Sequence[Commit]) -> None:
        self._store = store
        self._run_id = run_id
        self._commits = commits
        self._records = [StoredRecord(c.sequence, c.checkpoint_id, c.keyframe, c.body) for c in commits]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, run_id: str) -> RunRow | None:
        row = await self._store.run(run_id)
        if row is None or run_id != self._run_id:
            return row
        for commit in self._commits:
            row = msgspec.structs.replace(row, checkpoints=commit.sequence)
            if commit.adopts is not None:
                row = msgspec.structs.replace(
                    row,
                    flow_version=commit.adopts.flow_version,
                    flow_hash=commit.adopts.flow_hash,
                    adopted_at=commit.sequence,
                )
            if commit.status is not None:
                gives_back = commit.status.is_final or commit.status is Status.HALTED
                row = msgspec.structs.replace(
                    row,
                    status=commit.status,
                    ended_at=commit.ended_at,
                    lease=None if gives_back else row.lease,
                )
        return row

    async def blueprint(self, flow_hash: str) -> bytes | None:
        adopted = [
            c.adopts for c in self._commits if c.adopts is not None and c.adopts.flow_hash == flow_hash
        ]
        return adopted[-1].blueprint if adopted else await self._store.blueprint(flow_hash)

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        own = await self._store.get(run_id, first=first, last=last)
        return own + self._between(run_id, first, last)

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        found = await self._store.tail(run_id, at=at) + self._between(run_id, 1, at)
        starts = [k for k, record in enumerate(found) if record.keyframe]
        return found[starts[-1] :] if starts else found

    def _between(self, run_id: str, first: int, last: int | None) -> list[StoredRecord]:
        if run_id != self._run_id:
            return []
        return [r for r in self._records if r.sequence >= first and (last is None or r.sequence <= last)]

    async def waits(self, wanted: WaitFilter) -> list[WaitRow]:
        """Return the waits of the store, and on the last page those that are still to be opened."""
        found = await self._store.waits(wanted)
        if wanted.run_id != self._run_id:
            return found
        if len(found) < wanted.limit:
            found += [wait for commit in self._commits for wait in commit.waits]
        closed = {wait_id for commit in self._commits for wait_id in commit.closed}
        return [
            msgspec.structs.replace(row, status=WaitStatus.CLOSED) if row.wait_id in closed else row
            for row in found
        ]
