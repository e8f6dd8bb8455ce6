"""Removing runs and what belongs to them, without losing what is still needed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

import msgspec

from everstep.model.acts import AuditRow
from everstep.model.removal import Erasure, Removal, StoredBlob, Tombstone

SHARED_MARK = b"The artifacts of several stores of everstep may be kept here.\n"
"""An artifact that says so. Where it lies, no artifact is removed for want of a record in one store."""


class TombstoneFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tombstones to list, those erased last first."""

    flow_id: str | None = None
    limit: int = 100
    before: str | None = None
    """Continue a listing: only runs erased before this one."""


@runtime_checkable
class RetainingStore(Protocol):
    """A store whose runs can be pinned and erased. Every method is one atomic act.

    `RunRow.pinned` tells whether a run is pinned, and `RunFilter.pinned` lists those that are.
    """

    async def erase(
        self,
        run_id: str,
        *,
        head: int,
        reason: str,
        summary: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> Erasure:
        """Remove a run with its records, waits, tokens and stop requests, and leave a tombstone.

        Only while its newest record has the sequence `head`, no lease of it holds by the store's clock, no
        run goes on from it and it is not pinned: judged in the same act, in the order of `Erasure`.

        From then on there is no such run: it has no row, no records and no waits, is in no listing, cannot be
        claimed, asked to stop or put to, and nothing can be forked from it. Its id stays taken: an admission
        under it is `Verdict.EXISTS`, also one that was accepted before. A listing that is continued from it
        goes on as if it were there. Artifacts are left alone: runs share them.
        """

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """Return what is left of an erased run."""

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        """Return what is left of erased runs, those erased last first."""

    async def forget(self, run_ids: Sequence[str]) -> int:
        """Remove tombstones, so that their ids are free again, and return how many were there."""

    async def pin(
        self, run_id: str, reason: str | None, *, head: int | None = None, audit: AuditRow | None = None
    ) -> bool:
        """Keep a run from being erased or trimmed until it is unpinned, which is a pin without a reason.

        False if there is no such run; with `head`, also if its newest record has another sequence. A pin that
        is there already gets the new reason.
        """

    async def note(self, removal: Removal) -> None:
        """Append a line to the log of what went."""

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        """Return the newest lines of the log and their numbers, which only grow; `before` continues."""

    async def tidy(self, *, limit: int = 1000) -> int:
        """Remove up to so many leftovers of writes that were cut off, and return how many.

        0 if nothing is left over. A store whose writes are all or nothing never has any.
        """


@runtime_checkable
class HeedingStore(Protocol):
    """A store where people write down by hand what is to be kept."""

    async def heed(self) -> None:
        """Keep what was written down; `StoreError` if it cannot be read, and then nothing is removed."""


@runtime_checkable
class RetainingBlobStore(Protocol):
    """A store of artifacts that can be listed and removed. Blocking, as its other calls; from any thread."""

    def list_checkpoint_blobs(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        """Return the artifacts whose keys sort behind `after`, sorted by key."""

    def delete_checkpoint_blobs(self, keys: Sequence[str], *, untouched_for: timedelta) -> list[str]:
        """Remove those that were not put for so long, and return their keys; others stay.

        A put of the same key touches it, and is never undone by a deletion that was judged before it.
        """
