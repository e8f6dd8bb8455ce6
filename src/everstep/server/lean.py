"""Answers that a client has already, or takes packed: `ETag` and `If-None-Match`, and gzip. Apart from `app`,
as what may be packed is a matter of its own.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib

from starlette.requests import Request
from starlette.responses import Response

PACKED_FROM = 1024
"""Bytes from which a body is packed."""
ASIDE_FROM = 128 * 1024
"""Bytes from which that is done on another thread, so that others are answered meanwhile."""
_LEVEL = 5
_PACKED = "-gz"
_KINDS = ("application/json", "text/javascript", "text/css", "text/plain", "image/svg+xml")
"""What is packed. Pages of a wait are not: they hold its token, and their length would tell of it."""


async def lean(request: Request, response: Response) -> Response:
    """Return an answer as small as the client can take it; 304 and nothing if it has it already."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    body = getattr(response, "body", None)  # a stream has none
    if response.status_code != 200 or kind not in _KINDS or not isinstance(body, bytes):
        return response
    tag = response.headers.get("etag") or f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    packs = len(body) >= PACKED_FROM and "content-encoding" not in response.headers and _takes_gzip(request)
    response.headers["ETag"] = f'{tag[:-1]}{_PACKED}"' if packs else tag
    response.headers["Vary"] = "Accept-Encoding"
    if _has(request, tag):
        return _unchanged(response)
    if packs:
        is_large = len(body) >= ASIDE_FROM
        response.body = await asyncio.to_thread(_packed, body) if is_large else _packed(body)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    return response


def _packed(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)


def _unchanged(response: Response) -> Response:
    kept = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
    return Response(status_code=304, headers=kept)


def _has(request: Request, tag: str) -> bool:
    """Say whether the client has this, packed or not."""
    said = request.headers.get("if-none-match")
    if said is None:
        return False
    tags = {one.strip().removeprefix("W/").replace(f'{_PACKED}"', '"') for one in said.split(",")}
    return "*" in tags or tag in tags


def _takes_gzip(request: Request) -> bool:
    for one in request.headers.get("accept-encoding", "").split(","):
        name, _, weight = one.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
