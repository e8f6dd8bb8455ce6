"""The table of the audit log. Apart from the store, as few acts are named; who calls has the connection."""

from __future__ import annotations

from everstep.model.acts import AuditRow
from everstep.ports.audit import AuditFilter
from everstep.stores.columns import read_audit, to_int
from everstep.stores.postgres.columns import read_text, some_text, text
from everstep.stores.postgres.connections import Connection, rows


def add_audit(db: Connection, sql: dict[str, str], row: AuditRow, now: int | None) -> None:
    """Keep a row, once; in the transaction of what it tells of, if there is one."""
    given = (row.audit_id, row.act, text(row.by), some_text(row.run_id), row.details(), now)
    db.execute(sql["add_audit"], given)


def was_told(db: Connection, sql: dict[str, str], row: AuditRow) -> bool:
    """True if a row of this id is there; in a transaction. None comes until that is over."""
    db.execute(sql["lock_audit"], (row.audit_id,))
    return bool(rows(db, sql["has_audit"], (row.audit_id,)))


def add_first(db: Connection, sql: dict[str, str], row: AuditRow, now: int | None) -> None:
    """Keep a row by itself, before or after what asks `was_told` of it, and not in the midst."""
    with db.transaction():
        db.execute(sql["lock_audit"], (row.audit_id,))
        add_audit(db, sql, row, now)


def list_audit(db: Connection, sql: dict[str, str], wanted: AuditFilter) -> list[AuditRow]:
    """Return the rows that match, by their numbers."""
    of_run = "" if wanted.run_id is None else "_of_run"
    query = f"audit{of_run}_newest" if wanted.after is None else f"audit{of_run}_after"
    narrowed = (some_text(wanted.run_id), some_text(wanted.by), some_text(wanted.act))
    times = (to_int(wanted.since), to_int(wanted.until))
    found = [
        read_audit(number, audit_id, at, act, read_text(by), None if run is None else read_text(run), details)
        for number, audit_id, at, act, by, run, details in rows(
            db, sql[query], (*narrowed, *times, wanted.limit, wanted.after)
        )
    ]
    return found if wanted.after is not None else found[::-1]
