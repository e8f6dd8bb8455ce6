"""Structs as JSON, and the JSON Schema of them: derived from their fields, written by hand for none.

Times are ISO 8601 with their offset, amounts are text so that no client rounds them, and a user's value
(`Value`) has the form of `jsonable`. A field that is `UNSET` is left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints, overload

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from everstep.codec.plain_json import Wire, jsonable
from everstep.model.budgets import plain
from everstep.model.records import Stored
from everstep.model.shapes import HOW, shown


@overload
def wire(thing: Struct) -> Wire: ...


@overload
def wire(thing: None) -> None: ...


def wire(thing: Struct | None) -> Wire | None:
    """Return a struct as JSON has it; null for none."""
    if thing is None:
        return None
    return Wire(
        (field.name, field.convert(found))
        for field in _fields(type(thing))
        if (found := getattr(thing, field.attribute)) is not UNSET
    )


def to_wire(thing: Struct) -> dict[str, Any]:
    """Return it as JSON has it. Deprecated: `everstep.results.as_json` does that for every result."""
    what = type(thing).__name__
    message = f"{what}.to_wire() and .to_json() go in 0.3; use everstep.results.as_json(...)"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return wire(thing)


class _Field(NamedTuple):
    name: str
    attribute: str
    convert: Callable[[Any], Any]
    hint: Any


@cache
def _fields(shape: type[Struct]) -> tuple[_Field, ...]:
    """Return what is shown of a struct: its fields, then the properties that are marked so."""
    is_stored = issubclass(shape, Stored)  # under short names, which people are not shown
    hints = [(f.name if is_stored else f.encode_name, f.name, f.type) for f in msgspec.structs.fields(shape)]
    for base in reversed(shape.__mro__):
        for name, found in vars(base).items():
            if isinstance(found, shown):
                hints.append((name, name, get_type_hints(found.fget, include_extras=True)["return"]))
    return tuple(
        _Field(name, attribute, _converter(hint), hint)
        for name, attribute, hint in hints
        if _how(hint) != "hidden"
    )


def _converter(hint: Any) -> Callable[[Any], Any]:
    match _how(hint):
        case "value":
            return jsonable
        case "or_null":
            return _or_null
        case dict(names):
            return partial(_called, names)
    if any(_how(part) == "value" for part in get_args(hint)):
        return _values
    return _plain


def _how(hint: Any) -> Any:
    notes = hint.__metadata__ if get_origin(hint) is Annotated else ()
    return next((note.extra[HOW] for note in notes if isinstance(note, Meta) and note.extra), None)


def _or_null(text: str) -> str | None:
    return text or None


def _called(names: Mapping[str, str], found: Any) -> Any:
    if isinstance(found, Struct):
        return Wire((names.get(key, key), part) for key, part in wire(found).items())
    return [_called(names, one) for one in found]


def _values(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {name: jsonable(value) for name, value in values.items()}
    return [jsonable(value) for value in values]


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case Struct():
            return wire(value)
        case datetime():
            return value.isoformat()
        case Decimal():
            return plain(value)
        case Path():
            return str(value)
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
    return jsonable(value)


REF = "#/components/schemas/{name}"


def schemas(shapes: Iterable[type[Struct]]) -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of structs, and of every struct inside them, by name.

    What is sent has every key; what is taken (`forbid_unknown_fields`) may leave out what has a default.
    """
    found: dict[str, dict[str, Any]] = {}
    named: dict[str, type[Struct]] = {}
    waiting = list(shapes)
    while waiting:
        shape = waiting.pop()
        name = schema_name(shape)
        if named.setdefault(name, shape) is not shape:
            raise ValueError(
                f"{named[name]} and {shape} would both be the schema {name!r}; call one otherwise"
            )
        if name not in found:
            found[name] = _taken(shape) if _is_taken(shape) else _sent(shape)
            waiting += [inner for field in _fields(shape) for inner in _structs_in(field.hint)]
    return dict(sorted(found.items()))


def schema_name(shape: type) -> str:
    """Return what a struct is called where its schema is."""
    return shape.__name__.removesuffix("Info")


def _is_taken(shape: type[Struct]) -> bool:
    return shape.__struct_config__.forbid_unknown_fields


def _taken(shape: type[Struct]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components((shape,), ref_template=REF)
    return {key: part for key, part in components[shape.__name__].items() if key != "title"}


def _sent(shape: type[Struct]) -> dict[str, Any]:
    fields = _fields(shape)
    return {
        "type": "object",
        "description": (shape.__doc__ or "").strip().partition("\n")[0],
        "properties": {field.name: _schema(field.hint) for field in fields},
        "required": [field.name for field in fields if UnsetType not in get_args(field.hint)],
        "additionalProperties": False,
    }


def _schema(hint: Any) -> dict[str, Any]:
    """Return the schema of one type; enums are written out where they are used."""
    if _how(hint) == "or_null":
        return {"type": ["string", "null"]}
    (found,), components = msgspec.json.schema_components((hint,), ref_template=REF, schema_hook=_as_text)
    named: dict[str, Any] = _named(found, {REF.format(name=name): part for name, part in components.items()})
    return named


def _as_text(kind: type) -> dict[str, Any]:
    if kind is not Path:
        raise NotImplementedError(f"{kind} has no form in JSON")
    return {"type": "string"}


def _named(schema: Any, components: Mapping[str, Any]) -> Any:
    match schema:
        case {"$ref": str(ref)} if "enum" in components.get(ref, ()):
            return {"enum": components[ref]["enum"]}
        case {"$ref": str(ref)}:
            return {"$ref": ref.removesuffix("Info")}
        case dict():
            return {key: _named(part, components) for key, part in schema.items()}
        case list():
            return [_named(part, components) for part in schema]
    return schema


def _structs_in(hint: Any) -> list[type[Struct]]:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return [hint]
    return [found for part in get_args(hint) for found in _structs_in(part)]
