"""A ring of what runs emit, in a file beside the database that is never synced. Apart from the store, which
opens it only when it is asked for.

Losing it loses nothing that a run needs. Those who read look whether the file was written to.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import apsw

from everstep.ports.live import (
    ATTEMPTS,
    KEPT,
    MOST,
    PAGE,
    KeptLog,
    LiveBatch,
    LogPlace,
    Offset,
    RecodedBatch,
    RecodedLog,
)
from everstep.ports.system import Clock
from everstep.stores.columns import to_int
from everstep.stores.sqlite.database import BUSY_MS, plainly, rows, transact

LOOK = 0.01
"""Seconds between two looks of one who waits."""
TRIM_EVERY = 100
"""After how many batches of a run those of it that are too many are removed, and those that are too old."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS live (
    run_id TEXT NOT NULL, epoch INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL,
    at INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run_id, epoch, last)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS live_by_age ON live (at);
CREATE TABLE IF NOT EXISTS step_logs (
    run_id TEXT NOT NULL, path TEXT NOT NULL, visit INTEGER NOT NULL, epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run_id, path, visit, epoch, attempt));
"""
_APPEND = "INSERT OR IGNORE INTO live (run_id, epoch, last, count, at, body) VALUES (?, ?, ?, ?, ?, ?)"
_READ = (
    "SELECT run_id, epoch, last, count, body FROM live WHERE run_id = ?1 AND (epoch, last) > (?2, ?3) "
    "ORDER BY epoch, last LIMIT ?4"
)
_TRIM = (
    "DELETE FROM live WHERE run_id = ?1 AND (epoch, last) <= (SELECT epoch, last FROM live "
    "WHERE run_id = ?1 ORDER BY epoch DESC, last DESC LIMIT 1 OFFSET ?2)"
)
_LOG = (
    "INSERT OR REPLACE INTO step_logs (run_id, path, visit, epoch, attempt, body) VALUES (?, ?, ?, ?, ?, ?)"
)
_LOGS = (
    "SELECT run_id, path, visit, epoch, attempt, body FROM step_logs WHERE run_id = ?1 "
    "AND (?2 IS NULL OR path = ?2) ORDER BY path, visit, epoch, attempt"
)
_FORGET_LOG = (
    "DELETE FROM step_logs WHERE run_id = ? AND path = ? AND visit = ? AND epoch = ? AND attempt = ?"
)

_RECODE = "UPDATE live SET body = ?5 WHERE run_id = ?1 AND epoch = ?2 AND last = ?3 AND body = ?4"
_RECODE_LOG = (
    "UPDATE step_logs SET body = ?7 "
    "WHERE run_id = ?1 AND path = ?2 AND visit = ?3 AND epoch = ?4 AND attempt = ?5 AND body = ?6"
)


class SqliteRing:
    """One connection that writes and one that reads, each used by one thread at a time."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path.with_name(path.name + ".live")
        self._clock = clock
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._seen = -1
        self._counts: Counter[str] = Counter()

    def append(self, batches: Sequence[LiveBatch]) -> None:
        now = to_int(self._clock.now())
        told = [(one.run_id, one.epoch, one.last, one.count, now, one.body) for one in batches]
        with self._writing, plainly(self._path):
            db = self._opened_to_write()
            transact(db, lambda: self._write(db, told))

    def _write(self, db: apsw.Connection, told: Sequence[tuple[object, ...]]) -> None:
        db.executemany(_APPEND, told)
        self._counts.update(str(row[0]) for row in told)
        for run_id in [run_id for run_id, count in self._counts.items() if count >= TRIM_EVERY]:
            del self._counts[run_id]
            db.execute(_TRIM, (run_id, MOST))
            db.execute("DELETE FROM live WHERE at < ?", (to_int(self._clock.now() - KEPT),))

    def read(self, after: Mapping[str, Offset], seconds: float) -> list[LiveBatch]:
        pause = threading.Event()
        with self._reading, plainly(self._path):
            found = self._look(after)
            for _ in range(int(seconds / LOOK)):
                if found:
                    break
                pause.wait(LOOK)
                if self._has_changed():
                    found = self._look(after)
            return found

    def _has_changed(self) -> bool:
        db = self._opened_to_read()
        return db is not None and self._version(db) != self._seen

    def _version(self, db: apsw.Connection) -> int:
        return int(rows(db, "PRAGMA data_version")[0][0])

    def _look(self, after: Mapping[str, Offset]) -> list[LiveBatch]:
        db = self._opened_to_read()
        if db is None:
            return []
        self._seen = self._version(db)
        return [
            LiveBatch(*row)
            for run_id, offset in after.items()
            for row in rows(db, _READ, (run_id, *offset, PAGE))
        ]

    def write_logs(self, logs: Sequence[KeptLog]) -> None:
        with self._writing, plainly(self._path):
            db = self._opened_to_write()
            transact(db, lambda: self._write_logs(db, logs))

    def _write_logs(self, db: apsw.Connection, logs: Sequence[KeptLog]) -> None:
        db.executemany(_LOG, [(*log.place, log.body) for log in logs])
        old = [log.place._replace(attempt=log.place.attempt - ATTEMPTS) for log in logs]
        db.executemany(_FORGET_LOG, [place for place in old if place.attempt > 0])

    def read_logs(self, run_id: str, path: str | None = None) -> list[KeptLog]:
        with self._reading, plainly(self._path):
            db = self._opened_to_read()
            found = [] if db is None else rows(db, _LOGS, (run_id, path))
            return [KeptLog(LogPlace(*place), body) for *place, body in found]

    def recode(self, batches: Sequence[RecodedBatch], logs: Sequence[RecodedLog]) -> int:
        with self._writing, plainly(self._path):
            db = self._opened_to_write()
            return transact(db, lambda: self._recode(db, batches, logs))

    def _recode(
        self, db: apsw.Connection, batches: Sequence[RecodedBatch], logs: Sequence[RecodedLog]
    ) -> int:
        replaced = 0
        for batch, body in batches:
            db.execute(_RECODE, (batch.run_id, batch.epoch, batch.last, batch.body, body))
            replaced += db.changes()
        for log, body in logs:
            db.execute(_RECODE_LOG, (*log.place, log.body, body))
            replaced += db.changes()
        return replaced

    def forget(self, run_id: str) -> None:
        """Remove what is kept of a run that is erased."""
        with self._writing, plainly(self._path):
            db = self._opened_to_write()
            for table in ("live", "step_logs"):
                transact(db, partial(db.execute, f"DELETE FROM {table} WHERE run_id = ?", (run_id,)))

    def _opened_to_write(self) -> apsw.Connection:
        if self._writer is None:
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
            self._writer = self._connected(flags)
            transact(self._writer, lambda: self._writer and self._writer.execute(_SCHEMA))
        return self._writer

    def _opened_to_read(self) -> apsw.Connection | None:
        """Return the connection; none as long as nothing was ever written."""
        if self._reader is None and self._path.exists():
            reader = self._connected(apsw.SQLITE_OPEN_READWRITE)
            if rows(reader, "SELECT name FROM sqlite_schema WHERE name = 'live'"):
                self._reader = reader
            else:
                reader.close()  # it is just being made
        return self._reader

    def _connected(self, flags: int) -> apsw.Connection:
        connection = apsw.Connection(str(self._path), flags=flags)
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def close(self) -> None:
        with self._writing, self._reading:
            for connection in (self._writer, self._reader):
                if connection is not None:
                    connection.close()
            self._writer = self._reader = None
