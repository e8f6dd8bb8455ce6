"""A store of objects whose pins people may set in a file, and whose log of removals they can read."""

from __future__ import annotations

import builtins
import logging
from typing import Any

import msgspec

from everstep.errors import StoreError
from everstep.model.acts import AuditRow
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.ports.retention import TombstoneFilter
from everstep.ports.store import RunFilter, RunRow
from everstep.ports.system import Clock
from everstep.stores.objects.bucket import Bucket
from everstep.stores.objects.readable import PRESERVED, RETENTION_LOG, as_json
from everstep.stores.objects.store import ObjectStore

log = logging.getLogger("everstep")

BY_HAND = f"it is named in {PRESERVED}"
"""The reason of a pin that was set in the file."""
_TOLD = 1000
"""How many removals the log for people tells of, the newest ones."""
_PAGE = 1000


class ReadableStore(ObjectStore):
    """Heeds `preserved_runs.json` before anything is removed, and writes it when a run is pinned."""

    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        super().__init__(bucket, clock)
        self._heeded: bytes | None = None
        self._is_log_due = False

    async def erase(
        self,
        run_id: str,
        *,
        head: int,
        reason: str,
        summary: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> Erasure:
        await self.heed()
        verdict = await super().erase(run_id, head=head, reason=reason, summary=summary, audit=audit)
        self._is_log_due = self._is_log_due or verdict is Erasure.ERASED
        return verdict

    async def trim(self, run_id: str, *, before: int) -> int:
        await self.heed()
        return await super().trim(run_id, before=before)

    async def list(self, wanted: RunFilter) -> builtins.list[RunRow]:
        try:
            await self.heed()
        except StoreError as error:
            log.warning("%s", error)
        return await super().list(wanted)

    async def pin(
        self, run_id: str, reason: str | None, *, head: int | None = None, audit: AuditRow | None = None
    ) -> bool:
        try:
            await self.heed()
        except StoreError as error:
            log.warning("%s", error)
            return await super().pin(run_id, reason, head=head, audit=audit)
        is_there = await super().pin(run_id, reason, head=head, audit=audit)
        if is_there:
            await self._aside(lambda: self._tell_of_pin(run_id, is_pinned=reason is not None))
        return is_there

    async def note(self, removal: Removal) -> None:
        await super().note(removal)
        self._is_log_due = True

    async def tidy(self, *, limit: int = 1000) -> int:
        await self._tell_of_removals()
        return await super().tidy(limit=limit)

    async def close(self) -> None:
        await self._tell_of_removals()
        await super().close()

    async def heed(self) -> None:
        """Pin what was added to the file, and unpin what was taken out of it."""
        found = await self._aside(lambda: self.bucket.get(PRESERVED))
        data = None if found is None else found.data
        if data is None or data == self._heeded:
            return
        wanted = _runs_in(data, self.bucket.place)
        for run_id in wanted:
            row = await self.run(run_id)
            if row is not None and row.pinned is None:
                await super().pin(run_id, BY_HAND)
        pinned = await super().list(RunFilter(pinned=True, limit=_PAGE))
        for row in pinned:
            if row.pinned == BY_HAND and row.run_id not in wanted:
                await super().pin(row.run_id, None)
        self._heeded = data

    def _tell_of_pin(self, run_id: str, *, is_pinned: bool) -> None:
        found = self.bucket.get(PRESERVED)
        known = [] if found is None else _runs_in(found.data, self.bucket.place)
        if (run_id in known) != is_pinned:
            told = [*known, run_id] if is_pinned else [each for each in known if each != run_id]
            self._heeded = as_json(told)
            self.bucket.put(PRESERVED, self._heeded)

    async def _tell_of_removals(self) -> None:
        """Write the log for people; as it follows from what counts, nothing stops if that fails."""
        if not self._is_log_due:
            return
        self._is_log_due = False
        try:
            lines = [removal for _, removal in await self.removals(limit=_TOLD)]
            lines += map(_line_of, await self.tombstones(TombstoneFilter(limit=_TOLD)))
            newest = sorted(lines, key=lambda line: line.at)[-_TOLD:]
            await self._aside(lambda: self.bucket.put(RETENTION_LOG, as_json(newest)))
        except StoreError as error:
            log.warning("log not written: %s: %s", RETENTION_LOG, error)


def _line_of(tombstone: Tombstone) -> Removal:
    return Removal(
        at=tombstone.erased_at,
        what="run",
        run_id=tombstone.run_id,
        flow_id=tombstone.flow_id,
        reason=tombstone.reason,
    )


def _runs_in(data: bytes, place: str) -> builtins.list[str]:
    """Return the runs that the file names: a list of ids, or an object with ids as its keys."""
    try:
        told: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError):
        told = None
    runs: builtins.list[Any] = [*told] if isinstance(told, builtins.list | dict) else [None]
    if not all(isinstance(run_id, str) for run_id in runs):
        raise StoreError(
            f"{PRESERVED} in {place} is not a list of runs, so nothing is removed.",
            fix='Write a JSON list of their ids: ["run-1", "run-2"].',
        )
    return runs
