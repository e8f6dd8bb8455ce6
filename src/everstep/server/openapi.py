"""The OpenAPI document, from the route table. Apart from `app`, which serves it like any other answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from everstep.codec.wire import schemas
from everstep.server.access.roles import Role
from everstep.server.checks import (
    ADDRESS,
    BREAKER_NAME,
    EVENT_NAME,
    FLOW_NAME,
    NOTICE_ID,
    PART,
    STEP,
    TOKEN,
    WAIT_ID,
)
from everstep.server.endpoint import Answer, Endpoint, Guard
from everstep.server.schemas import TEXT, Shape, pattern, schema_of, structs_of
from everstep.server.shapes import Error

VERSION = "1"

MEANINGS = {
    400: "The request cannot mean anything, or the answer has another shape than the wait asks for.",
    401: "No credential, a wrong one, or one whose time is over.",
    403: "The role does not suffice; or the service asks for no token, and this did not come to localhost.",
    404: "There is no such thing.",
    408: "The body does not come in.",
    409: "It is over already, another process has it, or no live worker has its flow.",
    413: "The body is too large.",
    422: "The flow does not take these inputs.",
    503: "The store is busy or out of reach, or no worker answered in time.",
}

PATH_PARAMETERS = {
    "run_id": pattern(PART),
    "address": pattern(STEP),
    "wait_id": pattern(WAIT_ID),
    "notice_id": pattern(NOTICE_ID),
    "token": pattern(TOKEN),
    "breaker": pattern(BREAKER_NAME),
    "event": pattern(EVENT_NAME),
    "flow": pattern(FLOW_NAME),
}


ENCODED = r"([ !-$&-~]|%[2-7][0-9A-E]|%C3%[89AB][0-9A-F]){0,200}"
"""Text in a header; more of UTF-8 is taken than this says."""
SIGNATURE = tuple(
    {"name": name, "in": "header", "schema": pattern(ENCODED), "description": description}
    for name, description in (
        ("Everstep-By", "Who sends it, percent-encoded; kept with what it does."),
        ("Everstep-Comment", "Why, percent-encoded."),
    )
)


def document(
    endpoints: Sequence[Endpoint], *, base_url: str, has_token: bool, user_header: str | None = None
) -> dict[str, Any]:
    """Return the document for the public part of the table; a proxy may name users in `user_header`."""
    schemes: dict[str, Any] = {"bearer": {"type": "http", "scheme": "bearer"}}
    if user_header is not None:
        told = "The user, as the proxy in front sets it; from other addresses it does not count."
        schemes["user"] = {"type": "apiKey", "in": "header", "name": user_header, "description": told}
    security: list[dict[str, Any]] = [{"bearer": []}] if has_token else []
    security += [{"user": []}] if user_header is not None else []
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        if endpoint.is_public:
            operation = _operation(endpoint, security)
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "everstep",
            "version": VERSION,
            "summary": "Durable graph flows: start runs, watch them, answer what they wait for.",
        },
        **({"servers": [{"url": base_url}]} if base_url else {}),
        "paths": paths,
        "components": {
            "schemas": schemas(structs_of(_shapes(endpoints))),
            "securitySchemes": schemes,
        },
    }


def _shapes(endpoints: Sequence[Endpoint]) -> Iterator[Shape]:
    """Yield what the public endpoints take and give."""
    yield Error
    for endpoint in endpoints:
        if endpoint.is_public:
            yield from (shape for answer in endpoint.answers.values() for shape in answer.content.values())
            if endpoint.body is not None:
                yield endpoint.body.shape


def _operation(endpoint: Endpoint, security: list[dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": endpoint.name, "summary": endpoint.summary}
    names = re.findall(r"{(\w+)}", endpoint.path)
    forms = PATH_PARAMETERS | ({"run_id": pattern(ADDRESS)} if endpoint.looks_back else {})
    operation["parameters"] = [
        *({"name": n, "in": "path", "required": True, "schema": forms[n]} for n in names),
        *(
            {"name": q.name, "in": "query", "schema": q.schema, "description": q.description}
            | ({"required": True} if q.is_required else {})
            for q in endpoint.query
        ),
        *(SIGNATURE if endpoint.is_signed else ()),
    ]
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.body.required,
            "content": {endpoint.body.media: {"schema": schema_of(endpoint.body.shape)}},
        }
    responses = {str(status): _answer(answer) for status, answer in endpoint.answers.items()}
    responses |= {str(status): _error(endpoint, status) for status in statuses_of(endpoint)}
    operation["responses"] = responses
    operation["security"] = security if endpoint.guard is Guard.BEARER else []
    if endpoint.guard is Guard.BEARER:
        operation["x-everstep-role"] = (endpoint.role or Role.ADMIN).value
    return operation


def statuses_of(endpoint: Endpoint) -> list[int]:
    """Return the statuses of the errors that an endpoint may give."""
    found = set(endpoint.errors)
    if endpoint.guard is Guard.BEARER:
        found |= {401, 403}
    if endpoint.guard is Guard.TOKEN:
        found |= {401}
    if endpoint.body is not None:
        found |= {400, 408, 413}
    if endpoint.query or endpoint.is_signed or "{run_id}" in endpoint.path:
        found |= {400}
    if endpoint.guard is not Guard.NONE:
        found |= {503}
    return sorted(found)


def _answer(answer: Answer) -> dict[str, Any]:
    described: dict[str, Any] = {"description": answer.description}
    if answer.content:
        content = answer.content.items()
        described["content"] = {media: {"schema": schema_of(shape)} for media, shape in content}
    if answer.headers:
        described["headers"] = {
            name: {"description": text, "schema": TEXT} for name, text in answer.headers.items()
        }
    return described


def _error(endpoint: Endpoint, status: int) -> dict[str, Any]:
    schema = schema_of(Error) if endpoint.errors_in == "application/json" else TEXT
    return {"description": MEANINGS[status], "content": {endpoint.errors_in: {"schema": schema}}}
