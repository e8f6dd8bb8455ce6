"""The table of the audit log. Apart, as few acts are named. The caller holds the connection."""

from __future__ import annotations

from datetime import datetime

import apsw

from everstep.model.acts import AuditRow
from everstep.ports.audit import AuditFilter
from everstep.stores.columns import read_audit, to_int
from everstep.stores.sqlite.database import rows
from everstep.stores.sqlite.side_tables import SideTables


class SqliteAudit:
    """Who did what."""

    def __init__(self, db: apsw.Connection, sql: dict[str, str], side: SideTables) -> None:
        self._db = db
        self._sql = sql
        self._side = side

    def add(self, row: AuditRow, now: datetime) -> None:
        """Keep a row, once; in the transaction of what it tells of."""
        self._side.need()
        given = (row.audit_id, to_int(now), row.act, row.by, row.run_id, row.details())
        self._db.execute(self._sql["add_audit"], given)

    def has(self, audit_id: str) -> bool:
        """True if a row of this id is there."""
        return self._side.are_there() and bool(rows(self._db, self._sql["has_audit"], (audit_id,)))

    def list(self, wanted: AuditFilter) -> list[AuditRow]:
        """Return the rows that match, by their numbers."""
        if not self._side.are_there():
            return []
        of_run = "" if wanted.run_id is None else "_of_run"
        query = f"audit{of_run}_newest" if wanted.after is None else f"audit{of_run}_after"
        times = (to_int(wanted.since), to_int(wanted.until))
        bindings = (wanted.run_id, wanted.by, wanted.act, *times, wanted.limit, wanted.after)
        found = [read_audit(*row) for row in rows(self._db, self._sql[query], bindings)]
        return found if wanted.after is not None else found[::-1]

    def forget(self, before: datetime, limit: int) -> int:
        """Remove the oldest rows from before a time."""
        if not self._side.are_there():
            return 0
        self._db.execute(self._sql["forget_audit"], (to_int(before), limit))
        return self._db.changes()
