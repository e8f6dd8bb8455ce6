"""How many calls GitHub still allows, and what to do when it allows no more."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from threading import Lock

from everstep.errors import StoreUnavailable
from everstep.ports.system import Clock

log = logging.getLogger("everstep")
LOW = 100
"""With fewer calls left than this, several checkpoints go into one file."""
LONGEST = 300.0
"""Seconds that one call waits for the quota, all in all."""
BUFFER = 5.0
"""Seconds after the reset before GitHub is asked again."""
SECONDARY = 60.0
"""Seconds to leave GitHub alone when it is asked too often and does not say for how long."""


class RequestQuota:
    """The quota of one token, as the headers of every answer tell it."""

    def __init__(self, clock: Clock, place: str) -> None:
        self._clock = clock
        self._place = place
        self._lock = Lock()
        self.last_remaining: int | None = None
        self.last_reset: int | None = None
        """When the quota is whole again, in seconds since 1970."""
        self.calls_this_run = 0
        """How many answers came since this place was opened."""
        self._left_at = 0.0
        """When the last answer came, by the clock that never goes back."""
        self._lasts = 0.0
        """How many seconds the quota of the last answer still counted then."""
        self._closed_until = -math.inf
        self._warned_of: int | None = None

    @property
    def is_low(self) -> bool:
        """True while fewer than a hundred calls are left."""
        with self._lock:
            return self._is_current() and self.last_remaining is not None and self.last_remaining < LOW

    @property
    def seconds_closed(self) -> float:
        """For how many seconds GitHub takes no more calls, as far as is known."""
        return max(0.0, self._closed_until - self._clock.monotonic())

    def note(self, headers: Mapping[str, str]) -> None:
        """Take note of what an answer says; headers are looked up in lower case."""
        with self._lock:
            self.calls_this_run += 1
            remaining, reset = _number(headers, "remaining"), _number(headers, "reset")
            if remaining is None or reset is None:
                return
            self.last_remaining, self.last_reset = remaining, reset
            self._left_at, self._lasts = self._clock.monotonic(), reset - _time_of(headers, self._clock)
            warns = remaining < LOW and self._warned_of != reset
            if warns:
                self._warned_of = reset
        if warns:
            log.warning("quota low: %s has %d calls left until %s", self._place, remaining, self.resets)

    @property
    def resets(self) -> str:
        """When the quota is whole again, for people."""
        return "later" if self.last_reset is None else f"{_at(self.last_reset):%H:%M:%S} UTC"

    def until_allowed(self, headers: Mapping[str, str], refusals: int) -> float:
        """Return for how many seconds an answer that refused a call asks to wait."""
        after = headers.get("retry-after", "")
        if after.isdecimal():
            seconds = float(after)
        elif after:
            seconds = _date(after, self._clock) - _time_of(headers, self._clock)
        elif headers.get("x-ratelimit-remaining") == "0" and (reset := _number(headers, "reset")):
            seconds = reset - _time_of(headers, self._clock)
        else:
            seconds = SECONDARY * 2 ** (refusals - 1) - BUFFER
        return max(0.0, seconds) + BUFFER

    def close_for(self, seconds: float) -> None:
        """Ask nothing for a while: asking on is answered with a longer lockout."""
        self._closed_until = max(self._closed_until, self._clock.monotonic() + seconds)

    def used_up(self) -> StoreUnavailable:
        """Return the error of a call that cannot wait for the quota."""
        seconds = self.seconds_closed
        return StoreUnavailable(
            f"{self._place} takes no more calls for {seconds:.0f} s: the quota of this token is used up.",
            fix="What is recorded meanwhile is kept on this machine; bring it there with: everstep drain",
            retry_after=round(seconds),
        )

    def _is_current(self) -> bool:
        return self._clock.monotonic() - self._left_at < self._lasts


def is_refusal(status: int, headers: Mapping[str, str], message: str) -> bool:
    """True if an answer speaks of the rate limit; any other 403 is about rights."""
    if status == 429:
        return True
    text = message.lower()
    speaks = "rate limit" in text or "abuse detection" in text or "retry-after" in headers
    return status == 403 and (speaks or (not text and headers.get("x-ratelimit-remaining") == "0"))


def _number(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(f"x-ratelimit-{name}", "")
    return int(text) if text.isdecimal() else None


def _time_of(headers: Mapping[str, str], clock: Clock) -> float:
    """Return when an answer was given, by the server's clock: resets are given by that clock."""
    return _date(headers.get("date", ""), clock)


def _date(text: str, clock: Clock) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return clock.now().timestamp()


def _at(seconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
