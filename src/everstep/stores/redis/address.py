"""Where a Redis is, as its URL says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from everstep.errors import BadRequest

SCHEMES: Mapping[str, bool] = {"redis": False, "rediss": True, "valkey": False, "valkeys": True}
"""Whether a URL that begins so asks for TLS."""
PORT = 6379
PREFIX = "everstep"
TIMEOUT = 10.0
"""Seconds that one answer may take."""
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RedisAddress(NamedTuple):
    """A server, a login, and the part of a database that is ours."""

    host: str
    port: int
    db: int
    username: str | None
    password: str | None
    is_tls: bool
    prefix: str
    timeout: float
    tls_files: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<{self.url}>"

    @property
    def shown(self) -> str:
        """The server as messages name it; a password is never among it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.db}"

    @property
    def url(self) -> str:
        """The URL as it may be shown: without password and options."""
        user = f"{self.username}@" if self.username else ""
        options = "" if self.prefix == PREFIX else f"?prefix={self.prefix}"
        return f"redis{'s' if self.is_tls else ''}://{user}{self.shown}{options}"

    @property
    def keys(self) -> str:
        """What every key begins with. The braces keep all of them in one slot of a cluster."""
        return f"{{{self.prefix}}}:"


def read_address(url: str) -> RedisAddress:
    """Read `redis://[user[:password]@]host[:port][/db][?prefix=...]`; rediss: asks for TLS."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _refused("cannot be read") from None
    try:
        port = parts.port or PORT
    except ValueError:
        raise _refused("has no whole number as its port") from None
    db = parts.path.strip("/") or "0"
    if not parts.hostname:
        raise _refused("names no server")
    if not db.isdecimal() or parts.fragment:
        raise _refused("does not end in the number of a database")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", PREFIX)
    if _PREFIX.fullmatch(prefix) is None:
        raise BadRequest(
            f"{prefix!r} cannot be the prefix of keys.", fix="Use 1 to 64 letters, digits, dots, '_' and '-'."
        )
    timeout = _seconds(options.pop("timeout", str(TIMEOUT)))
    files = {name: options.pop(name) for name in _TLS_FILES if name in options}
    if any("@" in name for name in options):
        raise _refused("has a '?' in its password, which is written as %3F")
    if options:
        raise BadRequest(
            f"unknown option {', '.join(options)} in the URL of a Redis.",
            fix=f"Known are prefix, timeout, {', '.join(_TLS_FILES)}.",
        )
    return RedisAddress(
        host=parts.hostname,
        port=port,
        db=int(db),
        username=_plain(parts.username),
        password=_plain(parts.password),
        is_tls=SCHEMES[parts.scheme],
        prefix=prefix,
        timeout=timeout,
        tls_files=files,
    )


def _plain(text: str | None) -> str | None:
    return unquote(text) if text else None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise BadRequest(f"timeout must be 0–3600 seconds, and is {text}.", fix="Write it as ?timeout=10.")
    return seconds


def _refused(why: str) -> BadRequest:
    return BadRequest(
        f"the URL of the Redis {why}.", fix="Write redis://user:password@host:6379/0?prefix=everstep"
    )
