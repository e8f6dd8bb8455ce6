"""A ring of what runs emit, in a table that is not logged. Apart from the store, which opens it only when it
is asked for.

A write tells those who read with NOTIFY, on a channel of its own: no worker wakes up for it, and there are
few writes, as each holds what all runs of a process have emitted since the last.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import psycopg

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
from everstep.ports.system import Clock, time_for_store
from everstep.stores.columns import span_to_int, to_int
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.columns import array, read_text, text
from everstep.stores.postgres.connections import Connection, connect, explain, rows
from everstep.stores.postgres.watch import channel_of

UNTOLD = 0.03
"""Seconds between two looks where a pooler may keep notices from coming."""
TRIM_EVERY = 100
"""After how many batches of a run those of it that are too many are removed, and those that are too old."""


class PostgresRing:
    """One connection that writes and one that listens and reads, each used by one thread at a time."""

    def __init__(self, at: PostgresAddress, queries: Mapping[str, str], clock: Clock) -> None:
        self._at = at
        self._sql = queries
        self._clock = clock
        self._channel = f"{channel_of(at)}_live"
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._counts: Counter[str] = Counter()

    def append(self, batches: Sequence[LiveBatch]) -> None:
        columns = zip(*((text(b.run_id), b.epoch, b.last, b.count, b.body) for b in batches), strict=True)
        told = (*map(list, columns), self._now(), self._channel)

        def write(db: Connection) -> None:
            db.execute(self._sql["live_append"], told)
            self._counts.update(batch.run_id for batch in batches)
            self._trim(db)

        self._to_write(write)

    def _now(self) -> int | None:
        return to_int(time_for_store(self._clock))

    def _trim(self, db: Connection) -> None:
        long = [run_id for run_id, count in self._counts.items() if count >= TRIM_EVERY]
        if long:
            for run_id in long:
                del self._counts[run_id]
            db.execute(self._sql["live_trim"], (array([text(run_id) for run_id in long]), MOST))
            db.execute(self._sql["live_expire"], (self._now(), span_to_int(KEPT)))

    def read(self, after: Mapping[str, Offset], seconds: float) -> list[LiveBatch]:
        epochs, numbers = [o.epoch for o in after.values()], [o.number for o in after.values()]
        wanted = (array([text(run_id) for run_id in after]), epochs, numbers, PAGE)
        with self._reading:
            try:
                if self._reader is None:
                    self._reader = connect(self._at)
                    self._reader.execute(f"LISTEN {self._channel}")
                return self._look(self._reader, wanted, seconds)
            except psycopg.Error as error:
                self._drop_reader()
                raise explain(error, self._at) from error

    def _look(self, db: Connection, wanted: tuple[object, ...], seconds: float) -> list[LiveBatch]:
        for _ in db.notifies(timeout=0):
            pass  # what they tell of is read now
        found = rows(db, self._sql["live_read"], wanted)
        if not found and seconds > 0:
            for _ in db.notifies(timeout=seconds if db.prepares else min(seconds, UNTOLD), stop_after=1):
                pass
            found = rows(db, self._sql["live_read"], wanted)
        return [LiveBatch(read_text(run_id), *rest) for run_id, *rest in found]

    def write_logs(self, logs: Sequence[KeptLog]) -> None:
        told = ((text(p.run_id), text(p.path), p.visit, p.epoch, p.attempt, body) for p, body in logs)
        columns = list(map(list, zip(*told, strict=True)))

        def write(db: Connection) -> None:
            with db.transaction():
                db.execute("SET LOCAL synchronous_commit = off")  # what a crash of the server may lose
                db.execute(self._sql["logs_write"], (*columns, self._now()))
                db.execute(self._sql["logs_trim"], (*columns[:5], ATTEMPTS))

        self._to_write(write)

    def read_logs(self, run_id: str, path: str | None = None) -> list[KeptLog]:
        found: list[KeptLog] = []

        def read(db: Connection) -> None:
            wanted = (text(run_id), None if path is None else text(path))
            for run, node, visit, epoch, attempt, body in rows(db, self._sql["logs_read"], wanted):
                place = LogPlace(read_text(run), read_text(node), visit, epoch, attempt)
                found.append(KeptLog(place, body))

        self._to_write(read)
        return found

    def recode(self, batches: Sequence[RecodedBatch], logs: Sequence[RecodedLog]) -> int:
        replaced = 0

        def write(db: Connection) -> None:
            nonlocal replaced
            with db.transaction():
                replaced = 0
                if batches:
                    told = ((text(b.run_id), b.epoch, b.last, b.body, body) for b, body in batches)
                    columns = map(list, zip(*told, strict=True))
                    replaced += db.execute(self._sql["live_recode"], tuple(columns)).rowcount
                if logs:
                    places = ((text(p.run_id), text(p.path), *p[2:], was, body) for (p, was), body in logs)
                    columns = map(list, zip(*places, strict=True))
                    replaced += db.execute(self._sql["logs_recode"], tuple(columns)).rowcount

        self._to_write(write)
        return replaced

    def _to_write(self, work: Callable[[Connection], None]) -> None:
        with self._writing:
            try:
                if self._writer is None:
                    self._writer = connect(self._at)
                work(self._writer)
            except psycopg.Error as error:
                self._drop_writer()
                raise explain(error, self._at) from error

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def close(self) -> None:
        with self._writing, self._reading:
            self._drop_writer()
            self._drop_reader()
