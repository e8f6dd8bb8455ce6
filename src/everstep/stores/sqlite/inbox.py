"""The table of signals. Apart from the others, as few runs are sent any. The caller holds the connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import apsw

from everstep.engine.settling import judge_sending, pair
from everstep.model.enums import Status
from everstep.model.waits import Sending, SettledBy, SignalRow, signal_in
from everstep.ports.store import Commit, RecodedSignal
from everstep.stores.columns import to_int
from everstep.stores.sqlite.columns import signal_row, wait_row
from everstep.stores.sqlite.database import rows
from everstep.stores.sqlite.side_tables import SideTables
from everstep.stores.sqlite.waits import SqliteWaits


class SqliteInbox:
    """The signals of every run."""

    def __init__(
        self, db: apsw.Connection, sql: dict[str, str], side: SideTables, waits: SqliteWaits
    ) -> None:
        self._db = db
        self._sql = sql
        self._side = side
        self._waits = waits

    def send(self, run_id: str, signal: SignalRow, most: int, now: datetime) -> Sending:
        """Put a signal into a run's inbox; in a transaction of its own."""
        found = rows(self._db, self._sql["run_to_send_to"], (run_id,))
        if not found:
            return Sending.UNKNOWN_RUN
        self._side.need()
        key, status = found[0]
        is_there = bool(rows(self._db, self._sql["signal_is_there"], (key, signal.signal_id)))
        untaken = rows(self._db, self._sql["count_untaken"], (key,))[0][0]
        verdict = judge_sending(Status(status), is_there=is_there, is_full=untaken >= most)
        if verdict is Sending.SENT:
            given = (key, signal.signal_id, signal.name, signal.value, to_int(now), None, None, None)
            self._db.execute(self._sql["add_signal"], given)
            self.pair(key, now)
        return verdict

    def restore(self, key: int, signals: tuple[SignalRow, ...]) -> None:
        """Keep the signals of a run that comes from another store."""
        self._side.need()
        for signal in signals:
            about = (signal.wait_id, signal.taken_at, signal.number)
            given = (key, signal.signal_id, signal.name, signal.value, to_int(signal.sent_at), *about)
            self._db.execute(self._sql["add_signal"], given)

    def follow(self, key: int, commit: Commit, now: datetime) -> None:
        """Take what an accepted commit names, and bring free signals and open waits together."""
        self._side.need()
        for signal_id in commit.taken:
            self._db.execute(self._sql["take_signal"], (key, signal_id, commit.sequence))
        if commit.pairs:
            self.pair(key, now)

    def pair(self, key: int, now: datetime) -> None:
        """Settle open waits of a run with the signals that they are for."""
        waits = [wait_row(row) for row in rows(self._db, self._sql["open_signal_waits"], (key,))]
        wanted = Counter(signal_in(wait.topic) for wait in waits)
        free = [
            signal_row(row)
            for name, many in wanted.items()
            for row in rows(self._db, self._sql["free_signals"], (key, name, many))
        ]
        for signal, wait in pair(free, waits, now):
            self._db.execute(self._sql["give_signal"], (key, signal.number, wait.wait_id))
            self._waits.settle(wait.wait_id, SettledBy.ANSWER, signal.value, None, now)

    def recode(self, key: int, signals: Sequence[RecodedSignal]) -> int:
        """Give signals that still say what was read other bytes for it; returns how many were given some."""
        replaced = 0
        for new in signals if self._side.are_there() else ():
            self._db.execute(self._sql["recode_signal"], (key, new.number, new.was, new.value))
            replaced += self._db.changes()
        return replaced

    def list(self, run_id: str, name: str | None, after: int, limit: int, is_taken: bool) -> list[SignalRow]:
        """Return signals of a run by their numbers."""
        if not self._side.are_there():
            return []
        untaken = "untaken_signals" if name is None else "untaken_of_name"
        query = "taken_signals" if is_taken else untaken
        return [signal_row(row) for row in rows(self._db, self._sql[query], (run_id, name, after, limit))]
