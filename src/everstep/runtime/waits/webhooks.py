"""Telling another system of a wait or a run by a signed POST, and checking the signature there."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import ipaddress
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from copy import copy
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from everstep.errors import BadRequest, NotifyFailed
from everstep.model.durations import Span, seconds_of
from everstep.ports.durability import Notice
from everstep.ports.system import Clock
from everstep.runtime.drive.node_threads import apart
from everstep.runtime.system import SystemClock, spawn

SIGNATURE: Final = "X-Everstep-Signature"
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 60.0
_LONGEST: Final = 3600.0
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\xa0-\xff\t]*")


class _Reply(NamedTuple):
    """What came of one attempt."""

    is_delivered: bool
    is_final: bool
    words: str
    pause: float = 0.0
    """What the other side asked for."""


class Webhook:
    """Posts a notice as JSON, signed if there is a secret, and tries again while the other side is unwell.

    `Idempotency-Key` is the id of the notice, or of the wait: one may come more than once.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | bytes | None = None,
        attempts: int = 3,
        timeout: Span = 10.0,
        headers: Mapping[str, str] | None = None,
        allow_http: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._host = _checked_host(url, allow_http)
        self._url = url
        self._secret = None if secret is None else _bytes(secret)
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise BadRequest(f"attempts is {attempts!r}.", fix="Give a whole number from 1 on.")
        seconds = seconds_of(timeout, "timeout")
        if seconds >= _LONGEST:
            raise BadRequest(f"timeout is {timeout!r:.60}.", fix="Give less than an hour, such as '10s'.")
        self._attempts = attempts
        self._timeout = seconds
        self._headers = _checked_headers(headers or {})
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Webhook to {self._host}>"

    def with_clock(self, clock: Clock) -> Self:
        """Return the same webhook on this clock, unless it has one of its own."""
        if self._clock is not None:
            return self
        twin = copy(self)
        twin._clock = clock
        return twin

    def trying_once(self) -> Self:
        """Return the same webhook for who tries again himself."""
        twin = copy(self)
        twin._attempts = 1
        return twin

    def _body(self, notice: Notice) -> bytes:
        return msgspec.json.encode(notice, enc_hook=str)

    async def __call__(self, notice: Notice) -> None:
        """Deliver a notice, or raise `NotifyFailed`."""
        clock = self._clock or SystemClock()
        body = self._body(notice)
        pause = _FIRST_PAUSE
        for attempt in range(1, self._attempts + 1):
            request = self._request(notice, body, clock.now())
            reply = await asyncio.wrap_future(apart(spawn, partial(_post, request, self._timeout)))
            if reply.is_delivered:
                return
            if reply.is_final or attempt == self._attempts:
                times = "once" if attempt == 1 else f"{attempt} times"
                raise NotifyFailed(f"{self._host} {reply.words} (tried {times}).", host=self._host)
            await clock.sleep_until(clock.now() + timedelta(seconds=max(pause, reply.pause)))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _request(self, notice: Notice, body: bytes, now: datetime) -> urllib.request.Request:
        headers = {
            **self._headers,
            "Content-Type": "application/json",
            "User-Agent": "everstep",
            "Idempotency-Key": notice.key,
        }
        if self._secret is not None:
            headers[SIGNATURE] = sign(body, self._secret, now=now)
        return urllib.request.Request(self._url, data=body, headers=headers, method="POST")


def sign(body: bytes, secret: str | bytes, *, now: datetime) -> str:
    """Return the signature of a body, as `X-Everstep-Signature` carries it."""
    sent_at = str(int(now.timestamp()))
    return f"t={sent_at},v1={_digest(sent_at, body, _bytes(secret))}"


def verify(
    body: bytes, signature: str | None, secret: str | bytes, *, now: datetime, tolerance: float = 300
) -> bool:
    """Say whether a body was signed with this secret, at most `tolerance` seconds ago or ahead."""
    fields = [part.strip().partition("=") for part in (signature or "").split(",")[:10]]
    times = [value for name, _, value in fields if name == "t"]
    if len(times) != 1 or not re.fullmatch(r"[0-9]{1,15}", times[0], re.ASCII):
        return False
    if abs(now.timestamp() - int(times[0])) > tolerance:
        return False
    expected = _digest(times[0], body, _bytes(secret)).encode()
    given = [value.encode("utf-8", "surrogatepass") for name, _, value in fields if name == "v1"]
    return any(hmac.compare_digest(expected, one) for one in given)


def _digest(sent_at: str, body: bytes, secret: bytes) -> str:
    return hmac.new(secret, f"{sent_at}.".encode() + body, hashlib.sha256).hexdigest()


def _bytes(secret: str | bytes) -> bytes:
    if not isinstance(secret, str | bytes) or not secret:
        raise BadRequest(
            "a webhook's secret is empty.", fix="Give text or bytes that the receiver knows too."
        )
    return secret if isinstance(secret, bytes) else secret.encode("utf-8", "surrogatepass")


def _post(request: urllib.request.Request, timeout: float) -> _Reply:
    """Make one attempt. Blocking."""
    # Only these: nothing is followed elsewhere, and no other scheme is known.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
    ):
        opener.add_handler(handler)
    try:
        response = opener.open(request, timeout=timeout)
    except urllib.error.URLError as error:
        return _Reply(False, False, f"could not be reached: {error.reason}")
    except (OSError, http.client.HTTPException) as error:
        return _Reply(False, False, f"could not be reached: {type(error).__name__}")
    if response is None:
        return _Reply(False, True, "could not be reached: its scheme is unknown")
    with response:
        status = response.status
        asked = response.headers.get("Retry-After", "")
    if 200 <= status < 300:
        return _Reply(True, True, "")
    pause = min(float(asked), _LONGEST_PAUSE) if re.fullmatch(r"[0-9]{1,9}", asked, re.ASCII) else 0.0
    hint = ", and redirects are not followed" if 300 <= status < 400 else ""
    return _Reply(False, status < 500 and status != 429, f"answered {status}{hint}", pause)


def _checked_host(url: str, allow_http: bool) -> str:
    """Return scheme and host, which may be shown; the rest of a URL may hold a secret."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        scheme, host, port = "", None, None
    if scheme not in ("http", "https") or not host or re.search(r"[\x00-\x20\x7f-\U0010ffff]", url):
        raise BadRequest("a webhook needs a URL.", fix="Give one such as https://example.com/hook.")
    if parts.username is not None or parts.password is not None:
        raise BadRequest(
            "a webhook's URL holds a user or a password.", fix="Give headers={'Authorization': ...}."
        )
    if scheme == "http" and not allow_http and not _is_loopback(host):
        raise BadRequest(
            f"http://{host} would get tokens unencrypted.", fix="Use https, or say allow_http=True."
        )
    return f"{scheme}://{host}" + (f":{port}" if port is not None else "")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise BadRequest(f"{name!r} cannot be the name of a header.")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise BadRequest(f"the value of header {name!r} cannot be sent.", fix="Give one line of text.")
    return dict(headers)
