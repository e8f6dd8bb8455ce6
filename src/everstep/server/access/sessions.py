"""Browsers that have logged in: a code that works once becomes a cookie, and the cookie says who it is."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from everstep.client.surroundings import new_secret

LASTS = timedelta(hours=12)
"""How long a browser stays logged in."""
CODE_LASTS = timedelta(minutes=10)
"""How long a code can be used, once."""
_MOST_CODES = 100

LOOKS = "looks"
"""Who may see everything and do nothing."""
ACTS = "acts"
"""Who may do everything: the holder of the service's token, or whom a console with `--act` was opened for."""
NAMED = "named:"
"""In front of the digest of a token of the file."""


class Session(NamedTuple):
    """What a cookie says."""

    holder: str
    """`LOOKS`, `ACTS`, or `NAMED` and the digest of a token."""
    until: datetime
    key: str = ""
    """By what it is known again: a digest of the cookie."""


class Sessions:
    """Codes and cookies of one service. A cookie is signed, and nothing of it is kept here until it is ended.

    With the same secret, cookies outlive a restart, also those of browsers that have logged out.
    """

    def __init__(self, now: Callable[[], datetime], secret: bytes | None = None, *, place: str = "") -> None:
        self._now = now
        self._key = sha256(b"everstep console\0" + (secret or new_secret().encode())).digest()
        self._codes: dict[str, Session] = {}
        self._ended: dict[str, datetime] = {}
        """Cookies of browsers that have logged out, until their time is over anyway."""
        # Cookies do not know ports: two services of one machine would take each other's.
        self.cookie = f"everstep_{sha256(place.encode()).hexdigest()[:8]}"
        """The name of the cookie."""

    def code(self, holder: str) -> str:
        """Return a code that logs one browser in, once."""
        now = self._now()
        self._codes = {code: one for code, one in self._codes.items() if one.until > now}
        while len(self._codes) >= _MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = new_secret()
        self._codes[_digest(code)] = Session(holder, now + CODE_LASTS)
        return code

    def use(self, code: str) -> str | None:
        """Return the cookie that a code stands for; none if it was used, or its time is over."""
        found = self._codes.pop(_digest(code), None)
        return None if found is None or found.until <= self._now() else self.begin(found.holder)

    def begin(self, holder: str) -> str:
        """Return a cookie for someone who has shown a credential."""
        until = int((self._now() + LASTS).timestamp())
        named = base64.urlsafe_b64encode(holder.encode()).decode().rstrip("=")
        said = f"{until}.{named}.{new_secret()}"  # no two are alike: each browser logs out by itself
        return f"{said}.{self._signature(said)}"

    def read(self, cookie: str) -> Session | None:
        """Return what a cookie says; none if it is not ours, or its time is over."""
        said, _, signature = cookie.rpartition(".")
        if not said or not hmac.compare_digest(signature.encode(), self._signature(said).encode()):
            return None
        if said.count(".") != 2:
            return None  # one that an earlier release gave out
        until, holder, _ = said.split(".")
        when = datetime.fromtimestamp(int(until), self._now().tzinfo)
        padded = holder + "=" * (-len(holder) % 4)
        found = Session(base64.urlsafe_b64decode(padded).decode(), when, _digest(cookie))
        return found if self.goes_on(found) else None

    def end(self, cookie: str) -> None:
        """Let a cookie count no more."""
        found, now = self.read(cookie), self._now()
        if found is not None:
            self._ended = {key: until for key, until in self._ended.items() if until > now}
            self._ended[found.key] = found.until

    def goes_on(self, session: Session) -> bool:
        """Say whether the time of a session is not over, and its browser has not logged out."""
        return session.until > self._now() and session.key not in self._ended

    def _signature(self, said: str) -> str:
        return hmac.new(self._key, said.encode(), sha256).hexdigest()


def _digest(code: str) -> str:
    """What a code is looked up by: the time that this takes tells nothing of others."""
    return sha256(code.encode("utf-8", "replace")).hexdigest()
