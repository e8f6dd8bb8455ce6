"""Who may call what."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

from everstep.errors import BadRequest, Forbidden, Unauthorized

SHORTEST_TOKEN = 16


def check_bearer(request: Request, token: str | None) -> None:
    """Raise unless the request has the bearer token; without one, unless it comes from this machine's user.

    Without a token anybody on the machine may call. A web page that this person happens to look at may not:
    a browser says where a page comes from, and by which name it reached us.
    """
    if token is None:
        _check_local(request)
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not _same(given.strip(), token):
        raise Unauthorized(
            "this needs the bearer token of the service.", fix="Send Authorization: Bearer TOKEN."
        )


def _same(given: str, token: str) -> bool:
    """Compare in constant time; hashed, so that the time tells nothing of the length either."""
    digests = [hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest() for text in (given, token)]
    return hmac.compare_digest(*digests)


def _check_local(request: Request) -> None:
    origin = request.headers.get("origin")
    if not is_loopback(_host_of(f"//{request.headers.get('host', '')}")) or (
        origin is not None and not is_loopback(_host_of(origin))
    ):
        raise Forbidden(
            "this service has no token, and takes requests for localhost only.",
            fix="Call it as localhost and not from a web page, or give it a token.",
        )


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Say whether a host name or address means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(token: str, where: str) -> str:
    """Return a bearer token that is worth having, or raise."""
    token = token.strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise BadRequest(
            f"the token in {where} is not {SHORTEST_TOKEN} or more letters, digits and signs.",
            fix="Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return token
