"""What the OpenAPI document says of the body of `POST /bulk` is what the service takes."""

from __future__ import annotations

import asyncio
from typing import Any

import jsonschema_rs
import pytest

from everstep.server.openapi import document
from everstep.server.routes import ENDPOINTS
from tests.integration.server.serving import code_of, serving

PINS = {"act": "pin", "where": "id = nothing"}
TAGS = {"act": "tag", "where": "id = nothing"}


def is_valid(body: dict[str, Any]) -> bool:
    schemas = document(ENDPOINTS, base_url="", has_token=True)["components"]["schemas"]
    return jsonschema_rs.is_valid(
        {"$ref": "#/components/schemas/Bulk", "components": {"schemas": schemas}}, body
    )


def answered(body: dict[str, Any]) -> Any:
    async def ask() -> Any:
        async with serving() as s:
            return await s.client.post("/bulk", json=body)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "body",
    [
        PINS | {"where": ""},
        PINS | {"where": " \n"},
        PINS | {"where": "id = nothing or " * 400 + "id = nothing"},
        PINS | {"act": "reticulate"},
        PINS | {"per_second": 0},
        PINS | {"per_second": 0.0001},
        PINS | {"per_second": 1e6},
        PINS | {"at_most": 0},
        PINS | {"at_most": 1.5},
        PINS | {"sample": 0},
        PINS | {"sample": 1001},
        PINS | {"reason": ""},
        PINS | {"reason": " "},
        PINS | {"reason": "x" * 501},
        PINS | {"by": "x" * 201},
        PINS | {"nothing": 1},
        TAGS | {"add": ["no blank"]},
        TAGS | {"remove": [""]},
        {"where": "id = nothing"},
    ],
    ids=lambda body: repr(body)[:60],
)
def test_what_the_document_does_not_allow_is_refused(body: dict[str, Any]) -> None:
    assert not is_valid(body)
    assert code_of(answered(body)) == (400, "request.invalid")


@pytest.mark.parametrize(
    "body",
    [
        PINS,
        PINS | {"reason": "a dispute", "per_second": 0.001, "at_most": 1, "sample": 1000},
        PINS | {"per_second": 100_000, "reason": None, "by": None},
        TAGS | {"add": ["vip", "team.x"], "remove": ["old:1"]},
        TAGS | {"add": {"vip": "", "team": "blue"}},
        {"act": "fork", "where": "id = nothing", "inputs": {"x": 1}, "at": 1, "keep_keys": True},
    ],
    ids=lambda body: repr(body)[:60],
)
def test_what_the_document_allows_is_taken(body: dict[str, Any]) -> None:
    assert is_valid(body)
    assert answered(body).status_code == 202
    assert answered(body | {"dry_run": True}).status_code == 200
