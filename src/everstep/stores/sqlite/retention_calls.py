"""The part of the store that is about pinning and erasing runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from everstep.engine.trimming import judge_erasure
from everstep.errors import StateCorrupted
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.ports.retention import TombstoneFilter
from everstep.ports.system import Clock
from everstep.stores.columns import EPOCH, to_int, to_time
from everstep.stores.sqlite.columns import run_row
from everstep.stores.sqlite.database import plainly, rows

T = TypeVar("T")


class RetentionCalls:
    """Removes runs, each in one transaction."""

    path: Path
    _clock: Clock
    _lock: threading.Lock
    _db: apsw.Connection
    _sql: dict[str, str]
    _in_transaction: Callable[[Callable[[], Any]], Any]
    _execute: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
    _forget: Callable[[str], None]

    async def erase(self, run_id: str, *, head: int, reason: str, summary: bytes | None = None) -> Erasure:
        with self._lock, plainly(self.path):
            verdict: Erasure = self._in_transaction(lambda: self._erase(run_id, head, reason, summary))
            self._forget(run_id)
            return verdict

    def _erase(self, run_id: str, head: int, reason: str, summary: bytes | None) -> Erasure:
        db, sql, now = self._db, self._sql, self._clock.now()
        found = rows(db, sql["run"], (run_id,))
        row = run_row(found[0]) if found else None
        verdict = judge_erasure(
            is_there=row is not None,
            checkpoints=row.checkpoints if row is not None else 0,
            head=head,
            lease=row.lease if row is not None else None,
            now=now,
            has_forks=bool(rows(db, sql["has_forks"], (run_id,))[0][0]),
            pinned=row.pinned if row is not None else None,
        )
        if verdict is Erasure.ERASED:
            key = found[0][0]
            self._drop_signal_note(run_id)
            db.execute(sql["bury"], (key, to_int(now), reason, summary))
            for query in ("note_key", "erase_waits", "erase_records", "erase_run"):
                db.execute(sql[query], (key,))
        return verdict

    def _drop_signal_note(self, run_id: str) -> None:
        if rows(self._db, self._sql["has_signal_notes"], ()):
            self._db.execute(self._sql["drop_signal_note"], (run_id,))

    async def tombstone(self, run_id: str) -> Tombstone | None:
        found = self._execute("tombstone", (run_id,))
        return _tombstone(found[0]) if found else None

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        found = self._execute("tombstones", (wanted.flow_id, wanted.before, wanted.limit))
        return [_tombstone(row) for row in found]

    async def forget(self, run_ids: Sequence[str]) -> int:
        with self._lock, plainly(self.path):
            self._db.execute(self._sql["forget"], (msgspec.json.encode(list(run_ids)).decode(),))
            return self._db.changes()

    async def pin(self, run_id: str, reason: str | None) -> bool:
        with self._lock, plainly(self.path):
            self._db.execute(self._sql["pin"], (run_id, reason))
            return self._db.changes() == 1

    async def note(self, removal: Removal) -> None:
        self._execute("note_removal", (msgspec.json.encode(removal),))

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        return [(number, _removal(said)) for number, said in self._execute("removals", (before, limit))]

    async def tidy(self, *, limit: int = 1000) -> int:
        return 0


def _tombstone(row: tuple[Any, ...]) -> Tombstone:
    try:
        run_id, flow_id, created, erased, reason, summary = row
        return Tombstone(
            run_id=run_id,
            flow_id=flow_id,
            created_at=to_time(created) or EPOCH,
            erased_at=to_time(erased) or EPOCH,
            reason=reason,
            summary=None if summary is None else memoryview(summary).tobytes(),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"what is left of run {row[0]!r} was altered: {error}.") from error


def _removal(said: bytes) -> Removal:
    try:
        return msgspec.json.decode(said, type=Removal)
    except (msgspec.DecodeError, TypeError) as error:
        raise StateCorrupted(f"the log of what went was altered: {error}.") from error
