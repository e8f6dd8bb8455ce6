"""Writes buffered steps that have waited long enough while the driving thread is inside user code."""

from __future__ import annotations

import threading
from types import TracebackType

from everstep.engine.flush import FlushPolicy
from everstep.model.enums import Trigger
from everstep.runtime.journal import Journal
from everstep.runtime.services import Services


class LateFlush:
    """`with late: call the node` lets a thread write the journal meanwhile, if its steps get too old.

    Only policies with a deadline need it; for the others it does nothing.
    """

    def __init__(self, journal: Journal, policy: FlushPolicy, services: Services) -> None:
        self._journal = journal
        self._limit = policy.max_seconds if policy.has_deadline else None
        self._may_write = services.blocking is not None and self._limit is not None
        self.lock = threading.Lock()
        """Held by whoever writes while the drive is inside user code."""
        self._is_away = False
        """True while the driving thread is inside user code and the journal is ours."""
        self._error: BaseException | None = None
        self._closed: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def seconds_left(self) -> float | None:
        """Return how long the buffered steps may still wait; none without steps or without a limit."""
        if self._limit is None or not self._journal.steps:
            return None
        return max(0.0, self._limit - self._journal.age())

    def __enter__(self) -> None:
        if not self._may_write or not self._journal.steps:
            return
        if self._thread is None:
            self._closed = threading.Event()
            self._thread = threading.Thread(target=self._watch, name="everstep-late", daemon=True)
            self._thread.start()
        with self.lock:
            self._is_away = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_away:
            return
        with self.lock:
            self._is_away = False
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        if self._closed is not None:
            self._closed.set()

    def _watch(self) -> None:
        assert self._limit is not None and self._closed is not None
        while not self._closed.wait(self._limit / 4):
            with self.lock:
                if self._is_away and self._error is None and self.seconds_left() == 0.0:
                    try:
                        self._journal.flush_blocking(Trigger.INTERVAL)
                    except BaseException as error:
                        self._error = error
