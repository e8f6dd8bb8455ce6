"""Learns of writes by listening: a look costs one system call and no round trip."""

from __future__ import annotations

import os
import threading

import redis

from everstep.errors import StoreError
from everstep.ports.system import Clock
from everstep.stores.redis.link import Links
from everstep.stores.redis.trouble import explain
from everstep.stores.redis.wire import Wire

PAUSE = 1.0
"""Seconds between two tries to listen again."""


class RedisWatch:
    """Counts what is said on a topic. What is missed while it cannot listen counts as one."""

    def __init__(self, links: Links, clock: Clock, *, topic: str = "changes") -> None:
        self._links = links
        self._clock = clock
        self._topic = f"{links.address.keys}{topic}"
        self._lock = threading.Lock()
        self._wire: Wire | None = None
        self._is_joining = False
        self._tried_at: float | None = None
        self._is_closed = False
        self._count = 0
        self._pid = os.getpid()

    def count(self) -> int:
        """Return a number that is soon another one once another client wrote. It neither waits nor fails."""
        with self._lock:
            if self._pid != os.getpid():
                # A forked child must not listen on its parent's connection.
                self._pid, self._wire, self._tried_at, self._is_joining = os.getpid(), None, None, False
            if self._wire is not None:
                self._hear(self._wire)
            elif self._tried_at is None:
                self._tried_at = self._clock.monotonic()
                self._join()
            elif not self._is_joining and self._clock.monotonic() - self._tried_at >= PAUSE:
                self._tried_at, self._is_joining = self._clock.monotonic(), True
                threading.Thread(target=self._join_again, name="everstep-redis-watch", daemon=True).start()
            return self._count

    def _hear(self, wire: Wire) -> None:
        try:
            while wire.has_more():
                kind, *_ = wire.read()
                self._count += kind == b"message"
        except (redis.RedisError, OSError, ValueError):
            wire.disconnect()
            self._wire = None
            self._count += 1

    def _join(self) -> None:
        try:
            self._wire = self._subscribed()
        except StoreError:
            return
        self._count += 1

    def _join_again(self) -> None:
        try:
            wire = self._subscribed()
        except StoreError:
            wire = None
        with self._lock:
            self._is_joining = False
            if wire is not None and self._is_closed:
                wire.disconnect()
            elif wire is not None:
                self._wire = wire
                self._count += 1

    def _subscribed(self) -> Wire:
        at = self._links.address
        wire = Wire(at)
        try:
            wire.connect()
            wire.ask("SUBSCRIBE", self._topic)
        except (redis.RedisError, OSError) as error:
            wire.disconnect()
            raise explain(error, at) from None
        return wire

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._wire is not None:
                self._wire.disconnect()
                self._wire = None
