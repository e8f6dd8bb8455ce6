"""The shape that an answer or an input must have: as JSON Schema, as complaints, as a Python object."""

from __future__ import annotations

import dataclasses
import ipaddress
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Final, Union, get_args, get_origin

import msgspec
import msgspec.inspect as mi

from everstep.codec.complaints import Json, complaints
from everstep.errors import AnswerInvalid
from everstep.model.shapes import understood

__all__ = ["closed", "complaints", "converted", "schema_of", "shaped"]

_NO_SCHEMA: Final[tuple[Any, ...]] = (None, Any, object)
_TEXTUAL: Final[dict[type, dict[str, Json]]] = {
    PurePath: {"type": "string"},
    Fraction: {"type": "string", "pattern": r"^\s*[-+]?\d+(\s*/\s*\d+|\.\d+)?\s*(?![\s\S])"},
    ipaddress.IPv4Address: {"type": "string", "format": "ipv4"},
    ipaddress.IPv6Address: {"type": "string", "format": "ipv6"},
}
"""Types that a text makes, and that msgspec does not know, each with what is said of the text."""


def schema_of(kind: Any) -> dict[str, Json] | None:
    """Return the JSON Schema of a type; none if it takes anything, or cannot be told.

    A schema stands for itself.
    """
    if isinstance(kind, dict):
        return kind or None
    if any(kind is one for one in _NO_SCHEMA):
        return None
    models = _Models()
    try:
        schema = msgspec.json.schema(kind, schema_hook=models.schema)
        refine(kind, schema)
        if models.parts:
            schema["$defs"] = {**schema.get("$defs", {}), **models.parts}
        # Through JSON and back, so that it is the same now and once it was stored.
        kept: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(schema))
    except (TypeError, RuntimeError, NameError):  # how msgspec and pydantic say that they do not know a type
        return None
    return kept or None


def closed(schema: dict[str, Json]) -> dict[str, Json]:
    """Return a schema that also refuses fields which a dataclass does not have; models say so themselves."""
    parts = {
        name: {**part, "additionalProperties": part.get("additionalProperties", False)}
        if "properties" in part and ":" not in name
        else part
        for name, part in schema.get("$defs", {}).items()
    }
    return {**schema, "$defs": parts} if parts else schema


def shaped(value: Json, kind: Any) -> Any:
    """Return a JSON value as an instance of a type, or raise `AnswerInvalid`.

    A type without a schema takes every value as it is; a schema in place of a type gives values as they are.
    """
    if isinstance(kind, dict) or (not _is_model(kind) and schema_of(kind) is None):
        return value
    try:
        return converted(value, kind)
    except ValueError as error:
        raise AnswerInvalid(
            f"the answer is no {_name(kind)}: {error}.",
            fix="Answer again, in the shape that the wait asks for.",
        ) from None


def _known(kind: Any) -> Any:
    """Return a type as msgspec knows it, or as it is where only a value tells what to say of it."""
    try:
        return understood(kind)
    except (TypeError, NameError, ValueError):
        return kind


def converted(value: Json, kind: Any) -> Any:
    """Return a JSON value as an instance of a type, or raise a `ValueError` that says what does not fit.

    Answers and inputs both become what was declared here. Of a union that could be read in two ways the first
    member that fits counts; what is no type that JSON could stand for takes every value as it is.
    """
    try:
        return msgspec.convert(value, _known(kind), str_keys=True, dec_hook=_made)
    except msgspec.ValidationError:
        raise
    except TypeError:  # how msgspec says that it does not know a type, or cannot tell its members apart
        if get_origin(kind) not in (Union, types.UnionType):
            return value
    except NameError:  # a class whose hints only a type checker can resolve
        return _built(value, kind)
    errors: list[ValueError] = []
    for member in get_args(kind):
        try:
            return converted(value, member)
        except ValueError as error:
            errors.append(error)
    raise errors[0]


def _built(value: Json, kind: Any) -> Any:
    """Return a dataclass with these fields, whatever they are; anything else stays as it is."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, dict)):
        return value
    try:
        return kind(**value)
    except TypeError as error:
        raise ValueError(str(error).rpartition("__init__() ")[2]) from None


class _Models:
    """Collects the parts of models that define their own schema, each under a name of its own."""

    def __init__(self) -> None:
        self.parts: dict[str, Json] = {}

    def schema(self, cls: type) -> dict[str, Json]:
        """Return the schema of a pydantic model, its parts go to `parts`, or of a type that a text makes."""
        said = _text_for(cls)
        if said is not None:
            return said
        if not _is_model(cls):
            raise NotImplementedError
        prefix = f"{cls.__module__}.{cls.__qualname__}".replace("/", ".").replace("~", ".")
        make: Callable[..., dict[str, Json]] = getattr(cls, "model_json_schema")  # noqa: B009
        schema = make(ref_template=f"#/$defs/{prefix}:{{model}}")
        parts = schema.pop("$defs", None) or {}
        self.parts |= {f"{prefix}:{name}": part for name, part in parts.items()}
        return schema


def _is_model(cls: object) -> bool:
    return all(callable(getattr(cls, name, None)) for name in ("model_json_schema", "model_validate"))


def _text_for(cls: type) -> dict[str, Json] | None:
    """Return what is said of the text that makes a type; none if no text does."""
    if not isinstance(cls, type):
        return None
    return next((dict(said) for known, said in _TEXTUAL.items() if issubclass(cls, known)), None)


def _made(cls: type, value: object) -> object:
    """Return a value as a type that msgspec does not know."""
    if isinstance(cls, type) and isinstance(value, cls):
        return value
    if _text_for(cls) is not None and isinstance(value, str):
        try:
            return cls(value)
        except ArithmeticError as error:
            raise ValueError(str(error)) from None
    if not _is_model(cls):
        raise ValueError(f"expected {_name(cls)}, got {type(value).__name__}")
    validate: Callable[[object], object] = getattr(cls, "model_validate")  # noqa: B009
    try:
        return validate(value)
    except ValueError as error:
        raise ValueError(_in_short(error)) from None


def _in_short(error: ValueError) -> str:
    """Say what a model found, without the input and the links that it would show."""
    details = getattr(error, "errors", None)
    if not callable(details):
        return str(error)
    found: Iterable[dict[str, Any]] = details()
    return "; ".join(
        f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg')}".lstrip(": ") for one in found
    )


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


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
