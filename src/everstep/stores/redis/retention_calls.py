"""The part of the store that is about pinning and erasing runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from everstep.engine.trimming import judge_erasure
from everstep.errors import StateCorrupted
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.ports.retention import TombstoneFilter
from everstep.stores.redis.fields import Hash, hash_of, marked, moment, run_row


class RetentionCalls:
    """Removes runs, each with one script."""

    _aside: Callable[..., Awaitable[Any]]

    async def erase(self, run_id: str, *, head: int, reason: str, summary: bytes | None = None) -> Erasure:
        while True:
            now, flat, has_forks = await self._aside("erasable", run_id)
            fields = hash_of(flat)
            row = run_row(run_id, fields) if fields else None
            verdict = judge_erasure(
                is_there=row is not None,
                checkpoints=row.checkpoints if row is not None else 0,
                head=head,
                lease=row.lease if row is not None else None,
                now=moment(now),
                has_forks=bool(has_forks),
                pinned=row.pinned if row is not None else None,
            )
            if verdict is not Erasure.ERASED:
                return verdict
            seen = (head, marked(fields.get(b"expires")), marked(fields.get(b"pinned")))
            # Judged by what the row said; if it says something else by now, it is judged again.
            if await self._aside("erase", run_id, *seen, reason, marked(summary)):
                return verdict

    async def tombstone(self, run_id: str) -> Tombstone | None:
        found = hash_of(await self._aside("tombstone", run_id))
        return _tombstone(run_id, found) if found else None

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        told = (wanted.limit, marked(wanted.before), marked(wanted.flow_id))
        found = await self._aside("tombstones", *told)
        return [_tombstone(name.decode(), hash_of(flat)) for name, flat in found]

    async def forget(self, run_ids: Sequence[str]) -> int:
        gone: int = await self._aside("forget", *run_ids)
        return gone

    async def pin(self, run_id: str, reason: str | None) -> bool:
        return bool(await self._aside("pin", run_id, marked(reason)))

    async def note(self, removal: Removal) -> None:
        await self._aside("note", msgspec.json.encode(removal))

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        first, lines = await self._aside("removals", limit, "" if before is None else before)
        return [(first + k, _removal(said)) for k, said in enumerate(lines)][::-1]

    async def tidy(self, *, limit: int = 1000) -> int:
        return 0


def _tombstone(run_id: str, row: Hash) -> Tombstone:
    try:
        return Tombstone(
            run_id=run_id,
            flow_id=row[b"flow"].decode(),
            created_at=moment(row[b"created"]),
            erased_at=moment(row[b"erased"]),
            reason=row[b"reason"].decode(),
            summary=row.get(b"summary"),
        )
    except (ValueError, KeyError, OverflowError) as error:
        raise StateCorrupted(f"what is left of run {run_id!r} was altered: {error!r}.") from error


def _removal(said: bytes) -> Removal:
    try:
        return msgspec.json.decode(said, type=Removal)
    except msgspec.DecodeError as error:
        raise StateCorrupted(f"the log of what went was altered: {error}.") from error
