"""Who still names which artifact, and which of them may go."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from everstep.codec.records import digest_of, header_of, unseal
from everstep.errors import ServiceMissing, StateCorrupted, StoreError
from everstep.model.enums import Status
from everstep.model.records import KEPT, ArtifactRef, CheckpointRecord
from everstep.ports.retention import SHARED_MARK, RetainingBlobStore, RetainingStore
from everstep.ports.store import RunFilter, RunRow
from everstep.ports.system import System
from everstep.runtime.drive.external_channel import artifacts_of
from everstep.runtime.services import Services

PAGE = 256
_RECORDS = 64
MARGIN = timedelta(hours=1)
"""How far the clocks of a store and of those who write to it may be apart."""
MARGIN_HERE = timedelta(minutes=1)
"""The same where all of them are on this machine, and its clock was set."""
SLOW = 60.0
"""Seconds from artifacts to the record that names them, after which the writer looks for them again."""
COMES_BACK = timedelta(days=7)
"""A process whose lease expired so long ago, and was not taken over, is not coming back."""


async def every_run(services: Services, **wanted: str | Status) -> AsyncIterator[RunRow]:
    """Yield runs, newest first. Those that are erased meanwhile do not cut it short."""
    store = services.store
    narrowed = RunFilter(limit=PAGE, **wanted)  # type: ignore[arg-type]  # what it is narrowed by
    rows = await store.list(narrowed)
    while rows:
        # The next page is asked for before the caller can erase the run that it goes on from.
        last, is_full = rows[-1].run_id, len(rows) == PAGE
        following = await store.list(_from(narrowed, last)) if is_full else []
        if is_full and not following and not await _is_known(services, last):
            raise StoreError("runs were removed while they were looked at.", fix="Try again.")
        for row in rows:
            await asyncio.sleep(0)  # a local store never lets others on the loop have a turn
            yield row
        rows = following


def _from(narrowed: RunFilter, before: str) -> RunFilter:
    return RunFilter(flow_id=narrowed.flow_id, status=narrowed.status, limit=PAGE, before=before)


async def _is_known(services: Services, run_id: str) -> bool:
    if await services.store.run(run_id) is not None:
        return True
    if not services.store.capabilities.retains:
        return False
    return await cast(RetainingStore, services.store).tombstone(run_id) is not None


def name_of(key: str) -> str:
    """Return what an artifact is called wherever it lies; some stores put a folder before it."""
    return key.rpartition("/")[2]


def names_in(ref: ArtifactRef) -> tuple[str, str]:
    """Return what an artifact may be called where it lies: a run that was copied names it as elsewhere."""
    return ref.checksum, name_of(ref.key)


async def names_of(services: Services, row: RunRow) -> AsyncIterator[str]:
    """Yield what the artifacts are called that a run's own records and its channel name, more than once.

    Raises `StateCorrupted` if one of its records cannot be read: what it names is unknown then.
    """
    keeps_channel = False
    async for record in own_records(services, row):
        for write in record.writes():
            keeps_channel = keeps_channel or write.name.startswith(KEPT)
            for name in names_in(write.artifact) if write.artifact is not None else ():
                yield name
    if keeps_channel:
        for name in await _in_channel(services, row.run_id):
            yield name


async def own_records(services: Services, row: RunRow) -> AsyncIterator[CheckpointRecord]:
    """Yield a run's own records up to the newest one there is when it is reached, each checked."""
    first, digest = row.first, await _digest_before(services, row)
    while True:
        page = await services.store.get(row.run_id, first=first, last=first + _RECORDS - 1)
        for stored in page:
            if stored.is_stub:
                digest = stored.digest or b""
                continue
            where = f"checkpoint {stored.sequence} of run {row.run_id!r}"
            opened = unseal(stored.body, where, digest, stored.checkpoint_id)
            digest = opened.digest
            yield opened.record
        if len(page) < _RECORDS:
            return
        first = page[-1].sequence + 1


async def _digest_before(services: Services, row: RunRow) -> bytes:
    if row.forked_at is None:
        return b""
    base = await services.store.get(row.parent_run_id or "", first=row.forked_at, last=row.forked_at)
    if not base:
        raise StateCorrupted(f"the records that run {row.run_id!r} goes on from are missing.")
    return base[0].digest or digest_of(base[0].body)


async def _in_channel(services: Services, run_id: str) -> list[str]:
    """Return what a channel beside the records names; raises if that cannot be told for certain."""
    if services.channels is None:
        raise ServiceMissing(
            f"run {run_id!r} keeps its channel beside its records, and this host does not know where.",
            fix='Open the host with channel="redis://…", as it was when the run began.',
        )
    kept = await services.system.to_thread(services.channels.load, run_id)
    if kept.staged:
        raise StateCorrupted(
            f"the channel of run {run_id!r} has changes that are not in force yet.",
            fix=f"Resume the run, or erase it: everstep erase {run_id}",
        )
    return [name for entry in kept.entries.values() for ref in artifacts_of(entry) for name in names_in(ref)]


def spooled_names(services: Services) -> Iterable[str]:
    """Yield what checkpoints name that wait on this machine."""
    for run_id in services.spool.runs():
        for commit in services.spool.each(run_id):
            record = header_of(commit.body, f"a spooled checkpoint of run {run_id!r}")
            for write in record.writes():
                yield from names_in(write.artifact) if write.artifact is not None else ()


def lives_here(services: Services, row: RunRow) -> bool:
    """True if a run has not ended and its owner lives on this machine, whatever has become of the lease."""
    if row.status is not Status.RUNNING or row.lease is None or row.lease.process is None:
        return False
    processes, owner = services.processes, row.lease.process
    return processes.is_here(owner) and not processes.is_gone(owner)


async def idle_enough(
    services: Services, least: timedelta, *, apart_from: str = "", margin: timedelta = MARGIN
) -> timedelta:
    """Return for how long an artifact must not have been put, so that no live run is about to name it.

    A run names an artifact only in the record after it. So what was put before the newest record of every
    driven run is named by now, or never will be.
    """
    now, longest = services.clock.now(), least
    driven = {row.run_id: row for row in await services.store.leased()}
    async for row in every_run(services, status=Status.RUNNING):
        if row.lease is not None and (row.lease.expires_at > now - COMES_BACK or lives_here(services, row)):
            driven[row.run_id] = row
    driven.pop(apart_from, None)
    for row in driven.values():
        written = await _written_at(services, row)
        if written is not None:
            longest = max(longest, now - written + margin)
    return longest


async def _written_at(services: Services, row: RunRow) -> datetime | None:
    newest = await services.store.get(row.run_id, first=row.checkpoints, last=row.checkpoints)
    if not newest or newest[0].is_stub:
        return None
    where = f"checkpoint {row.checkpoints} of run {row.run_id!r}"
    return header_of(newest[0].body, where).created_at


async def is_shared(system: System, blobs: RetainingBlobStore) -> bool:
    """True if other stores may keep their artifacts in the same place."""
    return await find_key(system, blobs, hashlib.sha256(SHARED_MARK).hexdigest()) is not None


async def gone_from(system: System, blobs: object, refs: Iterable[ArtifactRef]) -> list[ArtifactRef]:
    """Return those of these artifacts that were removed before the run came that names them."""
    if not isinstance(blobs, RetainingBlobStore):
        return []
    return [ref for ref in refs if await find_key(system, blobs, ref.checksum) is None]


async def find_key(system: System, blobs: RetainingBlobStore, name: str) -> str | None:
    """Return the key of an artifact, in whatever way the store makes keys of checksums."""
    for key in (name, f"{name[:2]}/{name}"):
        found = await system.to_thread(partial(blobs.list_checkpoint_blobs, after=key[:-1], limit=1))
        if found and found[0].key == key:
            return key
    return None
