"""Connections to one Redis, scripts called on them, and plain words for what goes wrong."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import redis

from everstep.stores.redis.address import RedisAddress
from everstep.stores.redis.trouble import explain
from everstep.stores.redis.wire import Argument, Wire

_LUA = Path(__file__).parent / "lua"
_TELLING = (
    *("settle", "request_stop", "change_wait", "ack", "erase", "pin"),
    *("send", "tag", "keep_event", "settle_event", "note_audit"),
)
_PARTS = {
    "put": ["auditing", "opening", "telling"],
    "restore": ["auditing", "opening", "placing"],
    "change_notice": ["auditing", "placing", "telling"],
    **{name: ["auditing"] for name in (*_TELLING, "pause_lane")},
    **{name: ["marks"] for name in ("claim", "held", "list")},
    "set_aside": ["marks", "telling"],
    **{name: ["auditing", "marks"] for name in ("mark", "request_stop")},
    "claim_within": ["marks", "within"],
}
"""What a script begins with besides the prelude."""
_BODIES = {"claim_within": "claim"}
"""Scripts that go on as another does."""


class Script:
    """One of our scripts, known to a server by the hash of its text."""

    def __init__(self, name: str) -> None:
        body = (_LUA / f"{_BODIES.get(name, name)}.lua").read_text()
        # Each call makes the functions of the prelude anew; what every step calls does without.
        parts = [] if name == "step" else ["prelude", *_PARTS.get(name, ())]
        self.text = "".join((_LUA / f"{part}.lua").read_text() for part in parts) + body
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=64)
def script(name: str) -> Script:
    """Return a script by the name of its file."""
    return Script(name)


class Links:
    """A few connections that threads share: each takes one, uses it, and puts it back."""

    def __init__(self, address: RedisAddress) -> None:
        self.address = address
        self._keys = address.keys.encode()
        self._free: deque[Wire] = deque()
        self._pid = os.getpid()
        self._is_closed = False

    def call(self, name: str, *arguments: Argument, once: bool = False) -> Any:
        """Run a script and return what it gives.

        A connection that broke is replaced and the script called again, unless it may run only `once`.
        """
        known = script(name)
        return self._ask(lambda wire: _run(wire, known, self._keys, arguments), once=once)

    def command(self, *words: Argument) -> Any:
        """Send one command and return the reply; it must be idempotent: it may be sent again."""
        return self._ask(lambda wire: wire.ask(*words), once=False)

    def _ask(self, work: Callable[[Wire], Any], *, once: bool) -> Any:
        wire, is_old = self._take(is_checked=once)
        try:
            reply = work(wire)
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            wire.disconnect()
            if once or not is_old or isinstance(error, redis.TimeoutError):
                self._fail(error)
            self._drop_free()
            return self._ask_anew(work)
        except redis.RedisError as error:
            # After a failover the same name may lead to the new primary: connect anew.
            self._put_back(wire, is_sound=not isinstance(error, redis.ReadOnlyError))
            self._fail(error)
        except BaseException:
            wire.disconnect()
            raise
        self._put_back(wire)
        return reply

    def _ask_anew(self, work: Callable[[Wire], Any]) -> Any:
        wire = self._connect()
        try:
            reply = work(wire)
        except (redis.RedisError, OSError) as error:
            wire.disconnect()
            self._fail(error)
        except BaseException:
            wire.disconnect()
            raise
        self._put_back(wire)
        return reply

    def _take(self, *, is_checked: bool) -> tuple[Wire, bool]:
        if self._pid != os.getpid():
            # A forked child must not talk on its parent's connections.
            self._free, self._pid = deque(), os.getpid()
        while True:
            try:
                wire = self._free.pop()
            except IndexError:
                return self._connect(), False
            if is_checked and _is_broken(wire):
                wire.disconnect()
                continue
            return wire, True

    def _put_back(self, wire: Wire, *, is_sound: bool = True) -> None:
        if self._is_closed or not is_sound:
            wire.disconnect()
        else:
            self._free.append(wire)

    def _connect(self) -> Wire:
        wire = Wire(self.address)
        try:
            wire.connect()
        except (redis.RedisError, OSError) as error:
            wire.disconnect()
            self._fail(error)
        return wire

    def _drop_free(self) -> None:
        """Close what lies ready: whatever broke one connection broke the others too."""
        while self._free:
            try:
                self._free.pop().disconnect()
            except IndexError:
                return

    def _fail(self, error: Exception) -> NoReturn:
        raise explain(error, self.address) from None

    def close(self) -> None:
        """Close what lies ready; a later call gets a connection of its own."""
        self._is_closed = True
        self._drop_free()


def _run(wire: Wire, known: Script, keys: bytes, arguments: tuple[Argument, ...]) -> Any:
    try:
        return wire.ask("EVALSHA", known.sha, 1, keys, *arguments)
    except redis.exceptions.NoScriptError:
        return wire.ask("EVAL", known.text, 1, keys, *arguments)


def _is_broken(wire: Wire) -> bool:
    """True if the other end has hung up: there is something to read although nothing was asked."""
    try:
        return wire.has_more()
    except (redis.RedisError, OSError):
        return True
