"""The table of waits. Apart from that of runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw

from everstep.engine.commits import closes_waits
from everstep.engine.settling import changed, settled
from everstep.model.enums import Status
from everstep.model.waits import SettledBy, WaitChange, WaitRow
from everstep.ports.store import Commit, RecodedWait, WaitFilter
from everstep.stores.columns import to_int
from everstep.stores.sqlite.columns import due_time, wait_row, wait_values
from everstep.stores.sqlite.database import rows


class SqliteWaits:
    """The waits of every run. The caller holds the connection."""

    def __init__(self, db: apsw.Connection, sql: dict[str, str]) -> None:
        self._db = db
        self._sql = sql

    def take(self, run_key: int, commit: Commit) -> None:
        """Open and close what an accepted commit says."""
        for wait in commit.waits:
            self._db.execute(self._sql["open_wait"], wait_values(wait, run_key))
        for wait_id in commit.closed:
            self._db.execute(self._sql["close_wait"], (run_key, wait_id))

    def follow(self, run_key: int, status: Status) -> None:
        """Let the waits of a run go with its new status."""
        # Most runs have none; to look costs a microsecond, an update that finds nothing thirty.
        if not rows(self._db, self._sql["has_waits"], (run_key,)):
            return
        if closes_waits(status):
            query = "close_waits"
        else:
            query = "rouse_waits" if status is Status.HALTED else "quiet_waits"
        self._db.execute(self._sql[query], (run_key,))

    def get(self, wait_id: str) -> WaitRow | None:
        """Return one wait."""
        found = rows(self._db, self._sql["wait"], (wait_id,))
        return wait_row(found[0]) if found else None

    def of_token(self, token_hash: bytes) -> WaitRow | None:
        """Return the wait that a token belongs to."""
        found = rows(self._db, self._sql["wait_of_token"], (token_hash,))
        return wait_row(found[0]) if found else None

    def settle(
        self,
        wait_id: str,
        by: SettledBy,
        answer: bytes | None,
        token_hash: bytes | None,
        now: datetime,
        details: bytes | None = None,
        was: bytes | None = None,
    ) -> bool:
        """Give an open wait its answer; true if this did it. In a transaction of its own."""
        wait = settled(self.get(wait_id), by, answer, token_hash, now, details, was)
        if wait is None or wait.settled_by is None:
            return False
        given = (wait_id, to_int(now), wait.settled_by.value, wait.answer, wait.details)
        self._db.execute(self._sql["settle"], given)
        return wait.settled_by is by

    def has_due(self, run_id: str, now: datetime) -> bool:
        """True if the clock would settle a wait of this run."""
        return bool(rows(self._db, self._sql["has_due"], (run_id, to_int(now))))

    def settle_due(self, run_id: str, now: datetime) -> None:
        """Settle what is due of a run."""
        self._db.execute(self._sql["settle_due"], (run_id, to_int(now)))

    def change(
        self, wait_id: str, change: WaitChange, was: bytes | None = None
    ) -> tuple[bool, WaitRow | None]:
        """Change an open wait; says whether it did, and how it is now."""
        old = self.get(wait_id)
        new = None if old is None else changed(old, change, was)
        if new is None:
            return False, old
        self._db.execute(
            self._sql["change_wait"],
            (
                wait_id,
                new.token_hash,
                to_int(new.token_expires_at),
                new.generation,
                new.single_use,
                new.schedule_id,
                to_int(new.notified_at),
                to_int(new.due_at),
                new.details,
            ),
        )
        return True, self.get(wait_id)

    def recode(self, waits: Sequence[RecodedWait]) -> int:
        """Give waits that still say what was read other bytes for it; returns how many were given some."""
        replaced = 0
        for new in waits:
            self._db.execute(self._sql["recode_wait"], (new.wait_id, *new.was, new.details, new.answer))
            replaced += self._db.changes()
        return replaced

    def next_due(self, after: datetime | None) -> datetime | None:
        """Return when the next open wait of a halted run is due."""
        return due_time(rows(self._db, self._sql["next_due"], (to_int(after) or 0,))[0][0])

    def list(self, wanted: WaitFilter) -> list[WaitRow]:
        """Return the waits that match, the oldest first."""
        if wanted.is_untold:
            query = "untold_waits"
        elif wanted.run_id is not None:
            query = "unclosed_waits_of_run" if wanted.leaves_out_closed else "waits_of_run"
        elif wanted.leaves_out_closed:
            query = "unclosed_waits"
        else:
            query = "waits"
        status = wanted.status.value if wanted.status is not None else None
        bindings = (wanted.run_id, wanted.flow_id, wanted.kind, status, wanted.after, wanted.limit)
        return [wait_row(row) for row in rows(self._db, self._sql[query], bindings)]
