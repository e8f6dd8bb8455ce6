"""The clock of a server that tells the time only by when something was written. Apart from the bucket, which
folders have without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from everstep.errors import StoreError
from everstep.ports.system import Clock, time_for_store

TRUSTED_FOR = 600.0
"""Seconds after which the server is asked again."""
_FINE = 0.05
"""Seconds within which the time must be known once the clocks are seen to differ."""
_PATIENCE = 3.0
"""Seconds that finding out may take: whole seconds change once in one, and a server may be slow."""
_PAUSE = 0.02


class ServerClock:
    """Tells the server's time, from this machine's clock and how far the two are apart.

    Servers give the time of a write in whole seconds. If this machine's clock agrees with that, it is taken
    as right, so that machines set by NTP agree to the millisecond. If not, a few more writes find the moment
    at which the server's second changes. In between, the monotonic clock counts on.

    A server's clock is nothing that a test can move: with a clock that it moves, this machine's is looked at.
    """

    def __init__(self, clock: Clock, write: Callable[[], Callable[[], datetime]]) -> None:
        """`write` writes something, and returns what tells when the server says that was."""
        is_moved = time_for_store(clock) is not None
        self._monotonic = time.monotonic if is_moved else clock.monotonic
        self._wall = _machine_time if is_moved else lambda: clock.now().timestamp()
        self._write = write
        self._lock = threading.Lock()
        self._ahead: float | None = None
        """The server's time minus our monotonic clock."""
        self._asked_at = 0.0

    def now(self) -> datetime:
        """Return the server's time."""
        ahead = self._ahead
        if ahead is None or self._monotonic() - self._asked_at > TRUSTED_FOR:
            ahead = self._ask_once()
        return datetime.fromtimestamp(self._monotonic() + ahead, UTC)

    def _ask_once(self) -> float:
        with self._lock:
            now = self._monotonic()
            if self._ahead is not None and now - self._asked_at <= TRUSTED_FOR:
                return self._ahead
            try:
                self._ahead = self._ask()
            except StoreError:
                if self._ahead is None:
                    raise
            self._asked_at = now
            return self._ahead

    def _ask(self) -> float:
        began = self._monotonic()
        bounds = self._look()
        ours = self._wall() - self._monotonic()
        if bounds[0] <= ours <= bounds[1]:
            return ours
        while bounds[1] - bounds[0] > _FINE and self._monotonic() - began < _PATIENCE:
            threading.Event().wait(_PAUSE)
            lower, upper = self._look()
            narrowed = max(bounds[0], lower), min(bounds[1], upper)
            bounds = narrowed if narrowed[0] <= narrowed[1] else (lower, upper)
        return (bounds[0] + bounds[1]) / 2

    def _look(self) -> tuple[float, float]:
        """Write, and return how far the server can be ahead at least and at most."""
        before = self._monotonic()
        tell = self._write()
        after = self._monotonic()
        written = tell()
        unit = timedelta(milliseconds=1) if written.microsecond else timedelta(seconds=1)
        return written.timestamp() - after, (written + unit).timestamp() - before


def _machine_time() -> float:
    return time.clock_gettime(time.CLOCK_REALTIME)
