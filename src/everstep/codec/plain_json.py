"""Any value as JSON. It never fails: what JSON has no form for becomes a tagged object."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

from everstep.codec.tags import Unreadable
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep.codec import classes
else:
    classes = on_demand("everstep.codec.classes")


DEEPEST = 200
"""How many levels of a nested value are written as JSON."""

_TEXT_OF: dict[type, Callable[[Any], str]] = {
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: str,
    Decimal: str,
    PurePath: str,
    UUID: str,
}


class Wire(dict[str, Any]):
    """What has its JSON form already, and is not converted again."""


def jsonable(value: object, depth: int = 0) -> Any:
    """Return the value as JSON has it; what JSON has no form for becomes a tagged object."""
    deeper = depth + 1
    if deeper > DEEPEST:
        return {"$type": _class_name(value), "text": "<nested too deeply>"}
    match value:
        case Wire():
            return value
        case Unreadable():
            return {"$type": "unreadable", "text": value.why}
        case Enum():
            return {"$type": _class_name(value), "text": value.name, "value": jsonable(value.value, deeper)}
        case None | bool():
            return value
        case int():
            # Python refuses to write integers of more than 4300 digits.
            return int(value) if value.bit_length() < 14_000 else {"$type": "int", "text": hex(value)}
        case float():
            return float(value) if math.isfinite(value) else {"$type": "float", "text": repr(float(value))}
        case str():
            return str.__str__(value)
        case bytes() | bytearray() | memoryview():
            return {"$type": "bytes", "base64": base64.b64encode(value).decode()}
        case Mapping():
            return _jsonable_mapping(value, deeper)
        case list() | tuple():
            return [jsonable(item, deeper) for item in value]
        case set() | frozenset():
            return {"$type": type(value).__name__, "items": [jsonable(item, deeper) for item in value]}
    return _jsonable_object(value, deeper)


def _jsonable_mapping(value: Mapping[Any, Any], depth: int) -> Any:
    if all(type(key) is str for key in value) and "$type" not in value:
        return {key: jsonable(item, depth) for key, item in value.items()}
    return {"$type": "dict", "items": [[jsonable(k, depth), jsonable(v, depth)] for k, v in value.items()]}


def _jsonable_object(value: object, depth: int) -> Any:
    if isinstance(value, classes.Stored):
        stored = {name: jsonable(field, depth) for name, field in value.fields.items()}
        return {"$type": value.type_name.replace(":", "."), **stored}
    for kind, text_of in _TEXT_OF.items():
        if isinstance(value, kind):
            return {"$type": kind.__name__, "text": text_of(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = list(getattr(value, "__struct_fields__", ()))
    if names:
        fields = {name: jsonable(getattr(value, name, None), depth) for name in names}
        return {"$type": _class_name(value), **fields}
    return {"$type": _class_name(value), "text": safe_repr(value)}


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def spelled_out(text: str) -> str:
    """Return text that has a form in UTF-8: what has none, half of a character, is written as an escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def safe_repr(value: object) -> str:
    """Return `repr(value)`, or what kept it from being made."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{_class_name(value)}: its repr raised {type(error).__name__}>"
