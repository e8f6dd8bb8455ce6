"""Learns of writes to a bucket that cannot notify: by polling now and then, while it is asked."""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from everstep.errors import EverstepError
from everstep.stores.objects import names
from everstep.stores.objects.lines import Lines

EVERY = 1.0
"""Seconds between two looks."""
_ASKED = 15.0
"""Seconds without a question after which it no longer looks."""
_FEW = 4
"""How many of the runs that are driven, and of those asked for, are looked at for new records."""


class BucketWatch:
    """Counts what it sees of what others write."""

    def __init__(self, lines: Lines, every: float = EVERY) -> None:
        self._lines = lines
        self._every = every
        self._count = 0
        self._asked_at = 0.0
        self._marks: frozenset[str] = frozenset()
        self._heads: dict[str, int] = {}
        self._wanted: deque[str] = deque(maxlen=_FEW)
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._closed: threading.Event | None = None
        """Ends the waiting of the thread, once there is one."""
        self._lock = threading.Lock()
        self._pid = 0
        """Of the process that has the thread."""

    def count(self) -> int:
        """Return a number that is soon another one once another client wrote. It neither waits nor fails."""
        bucket = self._lines.bucket
        told = bucket.changes()
        if told is not None:
            return told
        self._asked_at = time.monotonic()
        with self._lock:
            is_alive = self._thread is not None and self._thread.is_alive() and self._pid == os.getpid()
            if not is_alive and not self._is_closed:
                self._pid, self._closed = os.getpid(), threading.Event()
                self._thread = threading.Thread(
                    target=self._look, args=(self._closed,), name="everstep-watch", daemon=True
                )
                self._thread.start()
        return self._count

    def want(self, run_id: str, place: int) -> None:
        """Look at this run, too, which was just seen to end at a place."""
        with self._lock:
            if run_id not in self._wanted:
                self._wanted.append(run_id)
            # What is written before the first look at it counts, too.
            self._heads.setdefault(run_id, place)

    def _look(self, closed: threading.Event) -> None:
        while not closed.wait(self._every) and time.monotonic() - self._asked_at < _ASKED:
            try:
                self.look()
            except EverstepError:
                continue

    def look(self) -> None:
        """Look once."""
        marks = frozenset(self._lines.bucket.names(names.LIVE))
        if marks - self._marks:
            self._count += 1
        self._marks = marks
        newest = sorted((names.read_live(name) for name in marks), key=lambda m: -m.place)
        heads = {}
        for run_id in dict.fromkeys([*(marker.run_id for marker in newest[:_FEW]), *list(self._wanted)]):
            head = self._lines.fresh(run_id).head
            heads[run_id] = 0 if head is None else head.place
        with self._lock:
            if any(self._heads.get(run_id) not in (None, place) for run_id, place in heads.items()):
                self._count += 1
            unseen = {run_id: place for run_id, place in self._heads.items() if run_id in self._wanted}
            self._heads = unseen | heads

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._closed is not None:
                self._closed.set()
