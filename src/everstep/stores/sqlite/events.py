"""The tables of events. Apart from the others, as few runs wait for any. The caller holds the connection."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import apsw
import msgspec

from everstep.model.waits import HadEvent, SettledBy, WaitRow
from everstep.ports.events import EventRow, Wanted
from everstep.stores.columns import to_int
from everstep.stores.sqlite.columns import wait_row
from everstep.stores.sqlite.database import rows
from everstep.stores.sqlite.side_tables import SideTables
from everstep.stores.sqlite.waits import SqliteWaits

MOST = 1000
"""Waits that are settled in one transaction."""


class SqliteEvents:
    """Events that are kept, and waits for events."""

    def __init__(
        self, db: apsw.Connection, sql: dict[str, str], side: SideTables, waits: SqliteWaits
    ) -> None:
        self._db = db
        self._sql = sql
        self._side = side
        self._waits = waits

    def keep(self, event: EventRow, now: datetime) -> list[str]:
        """Keep an event; returns the shapes of open waits for its name. In a transaction of its own."""
        self._side.need()
        if event.expires_at is not None:
            self._db.execute(self._sql["drop_events"], (to_int(now),))
            self._db.execute(self._sql["drop_event"], (event.name, event.event_id, to_int(now)))
            times = (to_int(now), to_int(now + (event.expires_at - event.published_at)))
            self._db.execute(self._sql["keep_event"], (event.event_id, event.name, event.value, *times))
            if self._db.changes() == 1:
                key = self._db.last_insert_rowid()
                for field, found in event.fields.items():
                    self._db.execute(self._sql["keep_field"], (event.name, field, found, key))
        prefix, shapes = Wanted(event.name, {}).prefix, []
        after = prefix
        while (topic := rows(self._db, self._sql["next_topic"], (after,))[0][0] or "").startswith(prefix):
            wanted = Wanted.of(topic)
            assert wanted is not None
            shapes.append(wanted.shape)
            after = f"{prefix}{wanted.shape};"  # behind all of this shape
        return shapes

    def settle(self, event: EventRow, topics: Collection[str], now: datetime) -> int:
        """Settle some open waits with an event; in a transaction of its own."""
        self._side.need()
        given = msgspec.json.encode(list(topics)).decode()
        asked = (given, to_int(now), event.name, event.event_id, MOST)
        found = [wait_row(row) for row in rows(self._db, self._sql["waits_for_event"], asked)]
        # A node waits once at a time, but its items do so under one path.
        had: set[tuple[str, str]] = set()
        for wait in found:
            if (wait.run_id, wait.path) not in had:
                had.add((wait.run_id, wait.path))
                self._give(wait, event.name, event.event_id, event.value, now)
        return len(had)

    def had(self, run_id: str) -> list[HadEvent]:
        """Return which events the nodes of a run had, by their paths."""
        if not self._side.are_there():
            return []
        return [HadEvent(*row) for row in rows(self._db, self._sql["had_events"], (run_id,))]

    def restore(self, run_id: str, had: Collection[HadEvent]) -> None:
        """Keep which events the nodes of a run had that comes from another store."""
        self._side.need()
        for one in had:
            self._db.execute(self._sql["take_event"], (run_id, *one))

    def pair(self, key: int, now: datetime) -> None:
        """Settle open waits of a run with events that are kept."""
        self._side.need()
        for row in rows(self._db, self._sql["open_event_waits"], (key,)):
            wait = wait_row(row)
            wanted = Wanted.of(wait.topic)
            if wanted is None or (wait.due_at is not None and wait.due_at <= now):
                continue
            fields = msgspec.json.encode(wanted.hashes).decode()
            asked = (wanted.name, to_int(now), len(wanted.hashes), fields, key, wait.path)
            for event_id, value in rows(self._db, self._sql["kept_event"], asked):
                self._give(wait, wanted.name, event_id, memoryview(value).tobytes(), now)

    def _give(self, wait: WaitRow, name: str, event_id: str, value: bytes, now: datetime) -> None:
        if self._waits.settle(wait.wait_id, SettledBy.ANSWER, value, None, now):
            self._db.execute(self._sql["take_event"], (wait.run_id, wait.path, name, event_id))
