"""The JSON schemas of parameters, and of whatever the route table names, derived from its structs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from everstep.codec.wire import schema_name

Schema = dict[str, Any]
Shape = Schema | type[Struct] | tuple[type[Struct], ...]
"""A schema, or the struct that it is derived from, or several of which it is one."""

ANY: Schema = {}
TEXT: Schema = {"type": "string"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}


def pattern(text: str) -> Schema:
    return {"type": "string", "pattern": f"^({text})$"}


def schema_of(shape: Shape) -> Schema:
    """Return a schema, or where that of a struct is."""
    if isinstance(shape, tuple):
        return {"anyOf": [schema_of(one) for one in shape]}
    return shape if isinstance(shape, dict) else {"$ref": f"#/components/schemas/{schema_name(shape)}"}


def structs_of(shapes: Iterable[Shape]) -> list[type[Struct]]:
    """Return the structs among them."""
    several = [shape if isinstance(shape, tuple) else (shape,) for shape in shapes]
    return [one for shape in several for one in shape if not isinstance(one, dict)]
