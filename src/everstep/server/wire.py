"""What the service says: runs, waits, events and errors as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from everstep.codec.plain_json import jsonable
from everstep.codec.wire import wire
from everstep.errors import EverstepError, StoreError, TooSlow, Unauthorized
from everstep.server.redaction import without_tokens
from everstep.server.shapes import Error

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def answer(
    body: Struct | dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response: a struct, or what has its JSON form already."""
    body = wire(body) if isinstance(body, Struct) else body
    return _response(json.dumps(body, ensure_ascii=False, allow_nan=False), status, headers)


def _response(text: str, status: int, headers: Mapping[str, str] | None) -> Response:
    body = text.encode("utf-8", "backslashreplace")
    return Response(body, status, {**HEADERS, **(headers or {})}, media_type="application/json")


def failure(error: EverstepError, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as the response it stands for."""
    extra = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}
    if isinstance(error, TooSlow):
        extra = {"Connection": "close"}  # what may still come is no other request
    told = _OUT_OF_REACH | {"code": error.code} if isinstance(error, StoreError) else error.to_wire()
    text = json.dumps(jsonable(told), ensure_ascii=False, allow_nan=False)
    return _response(without_tokens(text), error.http_status, {**extra, **(headers or {})})


_OUT_OF_REACH = {
    "message": "the store of this service is busy or out of reach.",
    "fix": "Try again in a moment; the service's log says more.",
    "details": {},
}
"""What a client is told of any error of the store: the error itself names addresses, files and users."""


def internal() -> Response:
    """Return the response to a request that met a bug; the log has the rest."""
    message, fix = "something went wrong here.", "See the service's log."
    return answer(Error(code="internal", message=message, fix=fix, details={}), 500)
