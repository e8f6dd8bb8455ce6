"""The part of the store that is about pinning and erasing runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from everstep.engine.trimming import judge_erasure
from everstep.errors import StateCorrupted
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.ports.retention import TombstoneFilter
from everstep.stores.columns import EPOCH, to_time
from everstep.stores.postgres.columns import read_text, run_row, some_text, text
from everstep.stores.postgres.connections import Connection, rows


class RetentionCalls:
    """Removes runs, each in one transaction."""

    _sql: dict[str, str]
    _now: Callable[[], int | None]
    _aside: Callable[..., Awaitable[Any]]
    _rows: Callable[..., Awaitable[list[tuple[Any, ...]]]]

    async def erase(self, run_id: str, *, head: int, reason: str, summary: bytes | None = None) -> Erasure:
        told = (text(reason), summary)
        verdict: Erasure = await self._aside(lambda db: self._erase(db, text(run_id), head, *told))
        return verdict

    def _erase(self, db: Connection, run_id: str, head: int, reason: str, summary: bytes | None) -> Erasure:
        sql = self._sql
        with db.transaction():
            # Locked first, and read by the next statement: what others wrote until then is seen.
            rows(db, sql["lock_to_erase"], (run_id,))
            found = rows(db, sql["run_now"], (run_id, self._now()))
            row = run_row(found[0]) if found else None
            now = found[0][-1] if found else 0
            verdict = judge_erasure(
                is_there=row is not None,
                checkpoints=row.checkpoints if row is not None else 0,
                head=head,
                lease=row.lease if row is not None else None,
                now=to_time(now) or EPOCH,
                has_forks=bool(rows(db, sql["has_forks"], (run_id,))[0][0]),
                pinned=row.pinned if row is not None else None,
            )
            if verdict is Erasure.ERASED:
                key = found[0][0]
                db.execute(sql["bury"], (key, now, reason, summary))
                for query in ("erase_waits", "erase_records", "erase_run"):
                    db.execute(sql[query], (key,))
            return verdict

    async def tombstone(self, run_id: str) -> Tombstone | None:
        found = await self._rows("tombstone", text(run_id))
        return _tombstone(found[0]) if found else None

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        narrowed = (some_text(wanted.flow_id), some_text(wanted.before), wanted.limit)
        return [_tombstone(row) for row in await self._rows("tombstones", *narrowed)]

    async def forget(self, run_ids: Sequence[str]) -> int:
        return len(await self._rows("forget", [text(run_id) for run_id in run_ids]))

    async def pin(self, run_id: str, reason: str | None) -> bool:
        return bool(await self._rows("pin", text(run_id), some_text(reason)))

    async def note(self, removal: Removal) -> None:
        said = msgspec.json.encode(removal)
        await self._aside(lambda db: db.execute(self._sql["note_removal"], (said,)))

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        return [(number, _removal(said)) for number, said in await self._rows("removals", before, limit)]

    async def tidy(self, *, limit: int = 1000) -> int:
        return 0


def _tombstone(row: tuple[Any, ...]) -> Tombstone:
    try:
        run_id, flow_id, created, erased, reason, summary = row
        return Tombstone(
            run_id=read_text(run_id),
            flow_id=read_text(flow_id),
            created_at=to_time(created) or EPOCH,
            erased_at=to_time(erased) or EPOCH,
            reason=read_text(reason),
            summary=summary,
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"what is left of run {row[0]!r} was altered: {error}.") from error


def _removal(said: bytes) -> Removal:
    try:
        return msgspec.json.decode(said, type=Removal)
    except (msgspec.DecodeError, TypeError) as error:
        raise StateCorrupted(f"the log of what went was altered: {error}.") from error
