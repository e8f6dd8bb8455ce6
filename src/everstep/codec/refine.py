"""What msgspec checks of a type but does not say in its JSON Schema: times, and keys other than text.

An answer is judged by the schema alone, where its type is not at hand, so the schema must say it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec.inspect as mi


def refine(kind: Any, schema: dict[str, Any]) -> None:
    """Add to the schema of a type what it leaves out; what is not understood stays as it is."""
    _Refiner(schema.get("$defs", {})).add(mi.type_info(kind), schema)


class _Refiner:
    def __init__(self, parts: dict[str, Any]) -> None:
        self._parts = parts
        self._done: set[str] = set()

    def add(self, info: mi.Type, schema: Any) -> None:
        """Go through a type and its schema side by side."""
        if not isinstance(schema, dict):
            return
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            if name not in self._done:
                self._done.add(name)
                self._fields(info, self._parts.get(name, {}))
            return
        match info:
            case mi.Metadata():
                self.add(info.type, schema)
            case mi.DateTimeType(tz=None):
                schema.setdefault("format", "date-time")
            case mi.TimeType(tz=None):
                schema.setdefault("format", "time")
            case mi.ListType() | mi.SetType() | mi.FrozenSetType() | mi.VarTupleType():
                self.add(info.item_type, schema.get("items"))
            case mi.TupleType():
                self._row(info.item_types, schema)
            case mi.DictType():
                self.add(info.value_type, schema.get("additionalProperties"))
                names = _names(info.key_type)
                if names:
                    schema.setdefault("propertyNames", names)
            case mi.UnionType():
                options = list(_options(schema))
                for member in info.types:
                    self._member(member, options)

    def _fields(self, info: mi.Type, schema: dict[str, Any]) -> None:
        while isinstance(info, mi.Metadata):
            info = info.type
        if isinstance(info, mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType):
            if "prefixItems" in schema:
                self._row([field.type for field in info.fields], schema)
            for field in info.fields:
                self.add(field.type, schema.get("properties", {}).get(field.encode_name))

    def _row(self, infos: Sequence[mi.Type], schema: dict[str, Any]) -> None:
        parts = schema.get("prefixItems", [])
        # A tag stands before the fields.
        for info, part in zip(infos, parts[len(parts) - len(infos) :], strict=False):
            self.add(info, part)

    def _member(self, info: mi.Type, options: list[dict[str, Any]]) -> None:
        """Find a member of a union among its options: no two of one JSON type, except classes with a name."""
        while isinstance(info, mi.Metadata):
            info = info.type
        name = getattr(getattr(info, "cls", None), "__name__", None)
        for option in options:
            if "$ref" in option:
                part = self._parts.get(option["$ref"].removeprefix("#/$defs/"), {})
                is_it = name is not None and part.get("title") == name
            elif isinstance(info, mi.DateTimeType | mi.TimeType):
                is_it = option.get("type") == "string"
            elif isinstance(info, mi.DictType):
                is_it = option.get("type") == "object"
            else:
                is_it = isinstance(info, mi.CollectionType | mi.TupleType) and option.get("type") == "array"
            if is_it:
                self.add(info, option)


def _options(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for option in schema.get("anyOf", ()):
        if "anyOf" in option:
            yield from _options(option)
        else:
            yield option


def _names(info: mi.Type) -> dict[str, Any]:
    """Return the schema of a dict's keys, which JSON has as text."""
    while isinstance(info, mi.Metadata):
        info = info.type
    match info:
        case mi.IntType():
            return {"pattern": r"^-?[0-9]+(?![\s\S])"}  # `$` would let a last newline through
        case mi.EnumType():
            return {"enum": [str(member.value) for member in info.cls]}
        case mi.LiteralType():
            return {"enum": [str(value) for value in info.values]}
        case mi.UUIDType():
            return {"format": "uuid"}
        case mi.DateType():
            return {"format": "date"}
        case mi.DateTimeType(tz=None | True):
            return {"format": "date-time"}
        case mi.DecimalType():
            return {"format": "decimal"}
    return {}
