"""The table of checkpoints, apart from putting them. Apart from the hot path."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from everstep.codec.records import digest_of
from everstep.engine.trimming import check_trim
from everstep.errors import StateCorrupted
from everstep.ports.store import Recoded, StoredRecord
from everstep.stores.sqlite.columns import SPAN, stored
from everstep.stores.sqlite.database import rows


class RecordTable:
    """The records of every run, by the run's key. The caller holds the connection."""

    def __init__(self, db: apsw.Connection, sql: dict[str, str], where: object) -> None:
        self._db = db
        self._sql = sql
        self._where = where

    def between(self, key: int, first: int, last: int | None) -> list[StoredRecord]:
        """Return records between two sequences, in order."""
        last = SPAN - 1 if last is None else last
        try:
            found = rows(self._db, self._sql["records"], (key * SPAN, first, last))
            return [stored(*row) for row in found]
        except (UnicodeDecodeError, TypeError) as error:
            raise StateCorrupted(f"{self._where} holds a record that is no bytes: {error}.") from error

    def tail(self, key: int, at: int | None) -> list[StoredRecord]:
        """Return the newest keyframe not after `at` and what follows it, or everything."""
        last = SPAN - 1 if at is None else at
        found = rows(self._db, self._sql["newest_keyframe"], (key * SPAN, key * SPAN + last))
        return self.between(key, found[0][0] - key * SPAN if found else 1, last)

    def trim(self, run_id: str, before: int) -> int | None:
        """Turn records into stubs and return how many; none if there is no such run."""
        found = rows(self._db, self._sql["trimmable"], (run_id, before))
        if not found:
            return None
        key, since, is_keyframe, oldest_fork, pinned = found[0]
        check_trim(
            run_id, before=before, is_keyframe=bool(is_keyframe), oldest_fork=oldest_fork, pinned=pinned
        )
        self._db.execute(self._sql["trim"], (key, since, before))
        trimmed = self._db.changes()
        if trimmed:
            self._db.execute(self._sql["note_trim"], (key, before))
        return trimmed

    def recode(self, key: int, records: Sequence[Recoded]) -> int:
        """Give records other bytes with the same digest; returns how many were given some."""
        replaced = 0
        for new in records:
            for old in self.between(key, new.sequence, new.sequence):
                if old.is_stub or old.checkpoint_id != new.checkpoint_id:
                    continue
                if digest_of(old.body) == digest_of(new.body):
                    self._db.execute(self._sql["recode"], (key * SPAN + new.sequence, new.body))
                    replaced += 1
        return replaced
