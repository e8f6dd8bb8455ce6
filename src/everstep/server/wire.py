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
from everstep.model.acts import without_tokens
from everstep.server.access.withheld import without_values
from everstep.server.endpoint import Endpoint
from everstep.server.shapes import Error

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def answer(
    body: Struct | dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Answer:
    """Return a JSON response: a struct, or what has its JSON form already."""
    shown = wire(body) if isinstance(body, Struct) else body
    response = _response(json.dumps(shown, ensure_ascii=False, allow_nan=False), status, headers)
    response.told = body
    return response


class Answer(Response):
    """A JSON response, and what it says."""

    told: Struct | dict[str, Any] | None = None


def for_viewer(response: Response, endpoint: Endpoint) -> Response:
    """Return a response without values. One that cannot be looked into is sent only where that is said."""
    if not isinstance(response, Answer) or not isinstance(response.told, Struct):
        if endpoint.cuts_itself:
            return response
        raise TypeError(f"{type(response).__name__} may have values that a viewer is not shown")
    kept = {name: value for name, value in response.headers.items() if name not in _OF_BODY}
    return answer(without_values(response.told), response.status_code, kept)


_OF_BODY = ("content-length", "content-type")


def _response(text: str, status: int, headers: Mapping[str, str] | None) -> Answer:
    body = text.encode("utf-8", "backslashreplace")
    return Answer(body, status, {**HEADERS, **(headers or {})}, media_type="application/json")


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
