"""Removing artifacts that no record names any more."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Collection
from datetime import timedelta
from functools import partial

import msgspec

from everstep.errors import StateCorrupted
from everstep.ports.retention import SHARED_MARK, RetainingBlobStore
from everstep.ports.store import RunFilter
from everstep.ports.system import System
from everstep.runtime.retention.references import (
    MARGIN,
    MARGIN_HERE,
    every_run,
    find_key,
    idle_enough,
    is_shared,
    name_of,
    names_of,
    spooled_names,
)
from everstep.runtime.services import Services

GRACE = timedelta(hours=24)
"""An artifact that was put less long ago may belong to a record that is about to be written."""
SHORT_GRACE = timedelta(minutes=2)
"""The same for the artifacts of one run that is to be erased now. Importing or copying a run takes
longer, and looks afterwards whether what it brought is there."""
AT_ONCE = 100_000
"""How many candidates are held in memory while the runs are gone through."""
_PAGE = 1000
Candidates = dict[str, tuple[str, int]]
"""By what an artifact is called wherever it lies: its key here, and its size."""


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What became of artifacts."""

    removed: int = 0
    size: int = 0
    too_new: int = 0
    """Unnamed, but put so recently that a record may be about to name them."""
    problem: str = ""
    """Why none was removed, if that could not be told for certain."""
    left_alone: str = ""
    """Why none was looked at, if that is as it should be."""


def retaining(services: Services) -> RetainingBlobStore | None:
    """Return the store of artifacts, if it can list and remove them."""
    return services.blobs.retaining if services.blobs is not None else None


async def sweep(
    services: Services,
    *,
    dry_run: bool,
    shared: bool,
    on_progress: Callable[[str], object] | None,
) -> Swept:
    """Remove every artifact that nothing names and that was not put for a day, or longer where it must be.

    Candidates first, then a walk through all that may name them: what is named later was put again, which a
    deletion respects. Time grows with what is kept, memory does not.
    """
    blobs = retaining(services)
    if blobs is None:
        return Swept()
    if not shared and await is_shared(services.system, blobs):
        return Swept(left_alone="other stores may keep their artifacts in the same place")
    idle = await idle_enough(services, GRACE)
    removed = size = too_new = 0
    async for candidates, new in _candidates(services.system, blobs, idle):
        too_new += new
        await _spare_named(services, candidates, on_progress)
        sizes = dict(candidates.values())
        gone = list(sizes) if dry_run else await _delete(services.system, blobs, list(sizes), idle)
        removed += len(gone)
        size += sum(sizes[key] for key in gone)
    return Swept(removed=removed, size=size, too_new=too_new)


async def sweep_some(services: Services, names: Collection[str], *, apart_from: str) -> Swept:
    """Remove those of some artifacts that nothing names, at once if no record can be about to name them."""
    blobs = retaining(services)
    if blobs is None or not names:
        return Swept()
    found = {name: key for name in names if (key := await find_key(services.system, blobs, name)) is not None}
    if await is_shared(services.system, blobs):
        return Swept(too_new=len(found))
    begun = services.clock.now()
    margin = MARGIN if services.store.capabilities.remote else MARGIN_HERE
    idle = await idle_enough(services, SHORT_GRACE, apart_from=apart_from, margin=margin)
    candidates = {name: (key, 0) for name, key in found.items()}
    newest = [row.run_id for row in await services.store.list(RunFilter(limit=1))]
    await _spare_named(services, candidates, None)
    await _spare_named(services, candidates, None, until=newest)  # by runs that came meanwhile
    # None of them may have been put again since this began.
    since = max(idle, services.clock.now() - begun)
    gone = await _delete(services.system, blobs, [key for key, _ in candidates.values()], since)
    return Swept(removed=len(gone), too_new=len(candidates) - len(gone))


async def _candidates(
    system: System, blobs: RetainingBlobStore, idle: timedelta
) -> AsyncIterator[tuple[Candidates, int]]:
    """Yield artifacts that are old enough, and how many are not, so many at a time."""
    found: Candidates = {}
    mark, new, after = hashlib.sha256(SHARED_MARK).hexdigest(), 0, ""
    while True:
        page = await system.to_thread(partial(blobs.list_checkpoint_blobs, after=after, limit=_PAGE))
        for one in page:
            name = name_of(one.key)
            if name == mark:
                continue
            if one.untouched_for >= idle:
                found[name] = one.key, one.size
            else:
                new += 1
        is_last = len(page) < _PAGE
        if (found or new) and (is_last or len(found) >= AT_ONCE):
            yield found, new
            found, new = {}, 0
        if is_last:
            return
        after = page[-1].key


async def _spare_named(
    services: Services,
    candidates: Candidates,
    on_progress: Callable[[str], object] | None,
    *,
    until: Collection[str] = (),
) -> None:
    """Take what something names out of the candidates; of runs only those that came after some."""
    if not candidates:
        return
    for name in spooled_names(services):
        candidates.pop(name, None)
    seen = 0
    async for row in every_run(services):
        if row.run_id in until:
            return
        try:
            async for name in names_of(services, row):
                candidates.pop(name, None)
        except StateCorrupted:
            if await services.store.run(row.run_id) is not None:
                raise
            # It was erased while it was read, and names nothing any more.
        seen += 1
        if on_progress is not None and seen % 1000 == 0:
            on_progress(f"{seen:,} runs looked through for artifacts")


async def _delete(system: System, blobs: RetainingBlobStore, keys: list[str], idle: timedelta) -> list[str]:
    gone: list[str] = []
    for start in range(0, len(keys), _PAGE):
        part = keys[start : start + _PAGE]
        gone += await system.to_thread(partial(blobs.delete_checkpoint_blobs, part, untouched_for=idle))
    return gone
