"""The JSON schemas of parameters, and of whatever the route table names, derived from its structs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from everstep.codec.wire import schema_name

Schema = dict[str, Any]
Shape = Schema | type[Struct]
"""A schema, or the struct that it is derived from."""

ANY: Schema = {}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}


def pattern(text: str) -> Schema:
    return {"type": "string", "pattern": f"^({text})$"}


def schema_of(shape: Shape) -> Schema:
    """Return a schema, or where that of a struct is."""
    return shape if isinstance(shape, dict) else {"$ref": f"#/components/schemas/{schema_name(shape)}"}


def structs_of(shapes: Iterable[Shape]) -> list[type[Struct]]:
    """Return the structs among them."""
    return [shape for shape in shapes if not isinstance(shape, dict)]
