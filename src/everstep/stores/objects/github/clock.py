"""The time by GitHub's clock, as its answers tell it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from threading import Lock

from everstep.ports.system import Clock

_START = datetime(1970, 1, 1, tzinfo=UTC)


class ServerTime:
    """Follows another machine's clock by the dates of its answers, which are cut to whole seconds.

    Every answer narrows down how far that clock is ahead of ours: it showed its date, or up to a second more,
    at some moment between question and answer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._ahead: float | None = None

    @property
    def is_known(self) -> bool:
        return self._ahead is not None

    def note(self, date: str | None, asked: float, answered: float) -> None:
        """Take note of an answer's date; both times are those of `Clock.monotonic`."""
        try:
            shown = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        least, most = shown - answered, shown + 1 - asked
        with self._lock:
            if self._ahead is None:
                self._ahead = (least + most) / 2
            else:
                self._ahead = min(max(self._ahead, least), most)

    def now(self) -> datetime:
        """Return the time there; ours if it never told."""
        if self._ahead is None:
            return self._clock.now()
        return _START + timedelta(seconds=self._clock.monotonic() + self._ahead)
