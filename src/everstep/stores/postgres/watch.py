"""Hearing of writes: LISTEN on a connection of its own, and slow polling for what is not announced. Apart
from the pool, as it has a connection of its own.

Only what makes a run due is told of with NOTIFY, whose commits wait for each other; a step only takes a
number from a sequence. It is taken before the step can be seen, so it counts again whenever a transaction of
that moment has ended.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable

import psycopg

from everstep.errors import EverstepError
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.connections import Connection, connect, rows

log = logging.getLogger("everstep")
LOOK = 0.2
"""Seconds between two looks, as long as it is asked."""
IDLE = 10.0
"""Seconds after the last question until looking stops."""
AGAIN = 1.0
"""Seconds before a connection that failed is tried again."""


def channel_of(at: PostgresAddress) -> str:
    """Return the name under which writers of this schema tell of work; it has to be short."""
    return "everstep_" + hashlib.sha256(at.schema.encode()).hexdigest()[:16]


class PostgresWatch:
    """Counts what others wrote, on a thread that starts with the first question."""

    def __init__(self, at: PostgresAddress, queries: dict[str, str]) -> None:
        self._at = at
        self._written = queries["written"]
        self._running = queries["running_writers"]
        self._count = 0
        self._is_closed = False
        self._wakers: list[Callable[[], None]] = []
        self._begin()

    def _begin(self) -> None:
        self._seen: int | None = None
        self._unended: set[str] = set()
        """Transactions that may have to end before what was counted can be seen."""
        self._asked = threading.Event()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def count(self) -> int:
        """Return a number that rises when another client writes. The first call waits until it listens."""
        if self._pid != os.getpid():
            self._begin()  # no thread of its parent lives in a forked child
        self._asked.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._is_closed:
                    self._thread = threading.Thread(target=self._work, name="everstep-watch", daemon=True)
                    self._thread.start()
            self._ready.wait(AGAIN)
        return self._count

    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call this when work is told of; returns what ends that."""
        self._wakers.append(wake)
        return lambda: self._wakers.remove(wake)

    def close(self) -> None:
        self._is_closed = True
        self._asked.set()
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(5 * AGAIN)

    def _work(self) -> None:
        pause, is_well = threading.Event(), True
        while not self._is_closed:
            try:
                with connect(self._at) as connection:
                    is_well = True
                    self._listen(connection)
            except (EverstepError, psycopg.Error) as error:
                if is_well and not self._is_closed:
                    log.warning("change listener lost; reconnecting: %s", type(error).__name__)
                is_well = False
                self._ready.set()
                pause.wait(AGAIN)
                self._count += 1  # whatever was written meanwhile was not heard of

    def _listen(self, connection: Connection) -> None:
        connection.execute(f"LISTEN {channel_of(self._at)}")
        self._look(connection)
        self._ready.set()
        quiet = 0.0
        while not self._is_closed:
            heard = list(connection.notifies(timeout=LOOK, stop_after=1))
            self._count += len(heard)
            for wake in [*self._wakers] if heard else ():
                wake()
            self._look(connection)
            quiet = 0.0 if self._asked.is_set() else quiet + LOOK
            self._asked.clear()
            if quiet > IDLE:
                # An open connection that waits costs the server nothing; asking it five times a second would,
                # and what is told and not read fills up the queue that all who tell share.
                connection.execute("UNLISTEN *")
                self._asked.wait()
                connection.execute(f"LISTEN {channel_of(self._at)}")
                self._count += 1
                quiet = 0.0

    def _look(self, connection: Connection) -> None:
        written = int(rows(connection, self._written)[0][0])
        is_new = written != self._seen
        if not is_new and not self._unended:
            return
        running = {xid for (xid,) in rows(connection, self._running)}
        has_ended = not self._unended <= running
        self._count += (is_new and self._seen is not None) or has_ended
        self._unended = running if is_new else self._unended & running
        self._seen = written
