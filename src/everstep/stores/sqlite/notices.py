"""The table of notices. Apart, as most runs have none. The caller holds the connection."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import apsw
import msgspec

from everstep.engine.notices.rows import is_same_try, rows_told, taken
from everstep.model.commits import NoticeRow, Told
from everstep.ports.notices import NoticeFilter
from everstep.stores.columns import to_int
from everstep.stores.notice_rows import NOTICES, SET, NoticeRows, read_told, told_text
from everstep.stores.sqlite.columns import READ
from everstep.stores.sqlite.database import Queries, rows
from everstep.stores.sqlite.side_tables import SideTables

_HERE = Path(__file__).parent
_NEW = tuple(name for name in NOTICES.names if name != "number")
_MEANINGS = {
    "{notices}": ", ".join(f"notices.{name}" for name in NOTICES.names),
    "{notice_columns}": ", ".join(_NEW),
    "{notice_values}": ", ".join(f":{name}" for name in _NEW),
    "{notice_changes}": ", ".join(f"{name} = :{name}" for name in SET),
}


@cache
def _queries() -> Queries:
    text = (_HERE / "notices.sql").read_text()
    for name, meaning in _MEANINGS.items():
        text = text.replace(name, meaning)
    return Queries(text)


class SqliteNotices:
    """The notices of every run."""

    def __init__(self, db: apsw.Connection, side: SideTables) -> None:
        self._db = db
        self._sql = _queries()
        self._side = side
        self._rows = NoticeRows(keep={}, read=READ)

    def admit(self, key: int, told: Told) -> None:
        """Keep who is told of a run that was just admitted."""
        self._side.need()
        self._db.execute(self._sql["set_told"], (key, told_text(told)))

    def told_of(self, run_id: str) -> Told:
        """Return who is told of a run."""
        found = rows(self._db, self._sql["told_of"], (run_id,)) if self._side.are_there() else []
        return read_told(found[0][0]) if found else {}

    def tell(self, key: int, tells: Iterable[NoticeRow], now: datetime) -> None:
        """Write the notices that an act on a run means; the caller has begun a transaction."""
        tells = tuple(tells)
        if not self._side.are_there() and not any(row.notifier for row in tells):
            return  # no run of this file has any who are told
        self._side.need()
        text, newest = rows(self._db, self._sql["told"], (key,))[0]
        told = read_told(text)
        for given in tells:
            for row in rows_told(told, given, now):
                kept = self._rows.kept(msgspec.structs.replace(row, sequence=newest or 0))
                self._db.execute(self._sql["add_notice"], kept | {"run_key": key})

    def listed(self, wanted: NoticeFilter) -> list[NoticeRow]:
        """Return the notices that match, the newest first."""
        if not self._side.are_there():
            return []
        state = None if wanted.state is None else str(wanted.state)
        query, given = "notices" if state is None else f"notices_{state}", (wanted.before, wanted.limit)
        if wanted.run_id is None:
            found = rows(self._db, self._sql[query], given)
        else:
            found = rows(self._db, self._sql["notices_of_run"], (*given, wanted.run_id, state))
        return [self._rows.row(*row) for row in found]

    def take(
        self, notifiers: Collection[str], hold: timedelta, limit: int, run_id: str | None, now: datetime
    ) -> list[NoticeRow]:
        """Take what is due; in a transaction of its own."""
        names = msgspec.json.encode(sorted(notifiers)).decode()
        asked = (to_int(now), names, limit)
        if run_id is None:
            found = rows(self._db, self._sql["due_notices"], asked)
        else:
            found = rows(self._db, self._sql["due_notices_of_run"], (*asked, run_id))
        held = [taken(self._rows.row(*row), now + hold) for row in found]
        for row in held:
            self._write(row)
        return held

    def has_due(self, now: datetime) -> bool:
        """True if some notice is due, for any notifier."""
        return self._side.are_there() and bool(rows(self._db, self._sql["has_due_notices"], (to_int(now),)))

    def change(self, row: NoticeRow, to: NoticeRow | None) -> bool:
        """Replace how a notice stands, or remove it; in a transaction of its own."""
        if not self._side.are_there():
            return False
        found = rows(self._db, self._sql["notice"], (row.number, row.run_id))
        if not is_same_try(row, self._rows.row(*found[0]) if found else None):
            return False
        if to is None:
            self._db.execute(self._sql["drop_notice"], (row.number,))
        else:
            self._write(msgspec.structs.replace(to, number=row.number))
        return True

    def _write(self, row: NoticeRow) -> None:
        kept = self._rows.kept(row)
        given = {name: kept[name] for name in SET} | {"number": row.number}
        self._db.execute(self._sql["change_notice"], given)
