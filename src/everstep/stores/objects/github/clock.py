"""The time by GitHub's clock, as its answers tell it. Apart from the calls, which each tell it the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from threading import Lock

from everstep.ports.system import Clock, time_for_store

_START = datetime(1970, 1, 1, tzinfo=UTC)


class ServerTime:
    """Follows another machine's clock by the dates of its answers, which are cut to whole seconds.

    Every answer narrows down how far that clock is ahead of ours: it showed its date, or up to a second more,
    at some moment between question and answer. As long as this machine's clock agrees with all of them it is
    taken as right, so that machines set by NTP agree to the millisecond.

    A server's clock is nothing that a test can move: with a clock that it moves, this machine's is looked at.
    """

    def __init__(self, clock: Clock) -> None:
        is_moved = time_for_store(clock) is not None
        self.monotonic = time.monotonic if is_moved else clock.monotonic
        self._wall = _machine_time if is_moved else lambda: clock.now().timestamp()
        self._lock = Lock()
        self._ahead: float | None = None

    @property
    def is_known(self) -> bool:
        return self._ahead is not None

    def note(self, date: str | None, asked: float, answered: float) -> None:
        """Take note of an answer's date; both times are those of `monotonic`."""
        try:
            shown = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        least, most = shown - answered, shown + 1 - asked
        with self._lock:
            ahead = self._wall() - self.monotonic() if self._ahead is None else self._ahead
            self._ahead = min(max(ahead, least), most)

    def now(self) -> datetime:
        """Return the time there; ours if it never told."""
        ahead = self._wall() - self.monotonic() if self._ahead is None else self._ahead
        return _START + timedelta(seconds=self.monotonic() + ahead)


def _machine_time() -> float:
    return time.clock_gettime(time.CLOCK_REALTIME)
