"""The table of notices. Apart from the others, as most runs have none; who calls has the connection."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

import msgspec

from everstep.engine.notices.rows import is_same_try, rows_told
from everstep.model.commits import NoticeRow, Told
from everstep.ports.notices import NoticeFilter
from everstep.ports.restoring import WholeRun
from everstep.stores.columns import EPOCH, span_to_int, to_time
from everstep.stores.notice_rows import NOTICES, SET, NoticeRows, read_told, told_text
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.columns import array, read_text, text
from everstep.stores.postgres.connections import Connection, rows
from everstep.stores.postgres.schema import read_queries

_NEW = tuple(name for name in NOTICES.names if name != "number")
_MEANINGS = {
    "{notices}": ", ".join(f"n.{name}" for name in NOTICES.names),
    "{notice_columns}": ", ".join(_NEW),
    "{notice_changes}": ", ".join(f"{name} = new.{name}" for name in SET),
}


class PostgresNotices:
    """The notices of every run."""

    def __init__(self, at: PostgresAddress) -> None:
        self._sql = {name: _filled(query) for name, query in read_queries(at, "notices.sql").items()}
        self._rows = NoticeRows(keep={str: text}, read={str: read_text})

    def told_of(self, db: Connection, run_id: str) -> Told:
        """Return who is told of a run."""
        found = rows(db, self._sql["told"], (text(run_id),))
        return read_told(None if not found or found[0][1] is None else read_text(found[0][1]))

    def restore(self, db: Connection, run: WholeRun) -> None:
        """Keep who is told of a run that comes from another store, and what they were not told yet."""
        if run.told:
            db.execute(self._sql["set_told"], (text(run.row.run_id), text(told_text(run.told))))
        if run.notices:
            self.tell(db, run.row.run_id, run.notices, None)

    def tell(self, db: Connection, run_id: str, tells: Iterable[NoticeRow], now: int | None) -> None:
        """Write the notices that an act on a run means; in the transaction of that."""
        found = rows(db, self._sql["told"], (text(run_id),))
        if not found:
            return
        key, kept, newest = found[0]
        told = read_told(None if kept is None else read_text(kept))
        # What is due at once is so by any clock.
        at = EPOCH if now is None else to_time(now) or EPOCH
        for given in tells:
            for row in rows_told(told, given, at):
                row = msgspec.structs.replace(
                    row, sequence=newest or 0, at=None if row.at == EPOCH else row.at
                )
                db.execute(self._sql["add_notice"], (key, _said(self._rows.kept(row))))

    def listed(self, db: Connection, wanted: NoticeFilter) -> list[NoticeRow]:
        """Return the notices that match, the newest first."""
        state = None if wanted.state is None else str(wanted.state)
        given = (wanted.before, wanted.limit)
        if wanted.run_id is not None:
            found = rows(db, self._sql["notices_of_run"], (*given, text(wanted.run_id), state or ""))
        else:
            found = rows(db, self._sql["notices" if state is None else f"notices_{state}"], given)
        return [self._row(row) for row in found]

    def take(
        self,
        db: Connection,
        notifiers: Collection[str],
        hold: timedelta,
        limit: int,
        run_id: str | None,
        now: int | None,
    ) -> list[NoticeRow]:
        """Take what is due."""
        given = (now, array([text(name) for name in notifiers]), limit, span_to_int(hold))
        if run_id is None:
            found = rows(db, self._sql["take_notices"], given)
        else:
            found = rows(db, self._sql["take_notices_of_run"], (*given, text(run_id)))
        return sorted((self._row(row) for row in found), key=lambda row: row.number)

    def change(self, db: Connection, row: NoticeRow, to: NoticeRow | None) -> bool:
        """Replace how a notice stands, or remove it."""
        with db.transaction():
            found = rows(db, self._sql["notice"], (row.number, text(row.run_id)))
            if not is_same_try(row, self._row(found[0]) if found else None):
                return False
            if to is None:
                db.execute(self._sql["drop_notice"], (row.number,))
            else:
                db.execute(self._sql["change_notice"], (row.number, _said(self._rows.kept(to))))
            return True

    def _row(self, row: Iterable[Any]) -> NoticeRow:
        run_id, *values = row
        return self._rows.row(read_text(run_id), *values)


def _filled(query: str) -> str:
    for name, meaning in _MEANINGS.items():
        query = query.replace(name, meaning)
    return query


def _said(kept: dict[str, Any]) -> str:
    return msgspec.json.encode(kept).decode()
