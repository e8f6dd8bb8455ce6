"""What is wrong with a JSON value, by a JSON Schema as msgspec and pydantic write them."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, TypeGuard
from uuid import UUID

import msgspec

Json = Any
"""None, a bool, a number, text, a list of these, or a dict of text and these."""

_DEEPEST: Final = 100
_MOST_CHECKS: Final = 500_000
"""A schema that refers to itself twice can grow without end; this is the end."""
_MOST_COMPLAINTS: Final = 20

_WORDS: Final = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}
TYPES: Final = tuple(_WORDS)
"""The types that a schema can ask for."""
_Check = Callable[[str], object]
_FORMATS: Final[dict[str, tuple[_Check, str]]] = {
    "date-time": (
        lambda text: msgspec.convert(text, Annotated[datetime, msgspec.Meta(tz=True)]),
        "a time with an offset, such as 2030-01-31T09:00:00Z",
    ),
    "date": (lambda text: msgspec.convert(text, date), "a date such as 2030-01-31"),
    "time": (lambda text: msgspec.convert(text, time), "a time of day such as 09:00:00"),
    "duration": (lambda text: msgspec.convert(text, timedelta), "a duration such as P2DT4H"),
    "uuid": (lambda text: msgspec.convert(text, UUID), "a UUID"),
    "decimal": (lambda text: msgspec.convert(text, Decimal), "a decimal number"),
    "ipv4": (ipaddress.IPv4Address, "an IPv4 address"),
    "ipv6": (ipaddress.IPv6Address, "an IPv6 address"),
}


def complaints(value: Json, schema: Json, *, where: str = "answer") -> list[str]:
    """Say what is wrong with a JSON value, each by its path; nothing if it fits.

    Never raises. What is not understood in a schema is not held against a value.
    """
    return _Judge(schema).judge(value, schema, where, 0)[:_MOST_COMPLAINTS]


class _Judge:
    """One look at one value."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._left = _MOST_CHECKS

    def judge(self, value: Json, schema: Json, path: str, depth: int) -> list[str]:
        if schema is False:
            return [f"{path}: nothing is expected here"]
        if not isinstance(schema, dict):
            return []
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return [f"{path}: nested too deeply to be checked"]
        if value is None and schema.get("nullable") is True:
            return []
        found = list(self._all_of(value, schema, path, depth))
        found += _type_and_choice(value, schema, path)
        if found:
            return found
        found += self._union(value, schema, path, depth)
        match value:
            case str():
                found += _text(value, schema, path)
            case int() | float() if not isinstance(value, bool):
                found += _number(value, schema, path)
            case list() | tuple():
                found += self._list(value, schema, path, depth)
            case dict():
                found += self._object(value, schema, path, depth)
        return found

    def _all_of(self, value: Json, schema: dict[str, Json], path: str, depth: int) -> Iterator[str]:
        if "$ref" in schema:
            yield from self.judge(value, self._resolve(schema["$ref"]), path, depth + 1)
        for part in _list_of(schema.get("allOf")):
            yield from self.judge(value, part, path, depth + 1)

    def _union(self, value: Json, schema: dict[str, Json], path: str, depth: int) -> list[str]:
        for keyword in ("anyOf", "oneOf"):
            choices = _list_of(schema.get(keyword))
            if not choices:
                continue
            chosen = self._discriminated(value, schema)
            if chosen is not None:
                return self.judge(value, chosen, path, depth + 1)
            tried = [(self.judge(value, choice, path, depth + 1), choice) for choice in choices]
            fitting = sum(not found for found, _ in tried)
            if keyword == "oneOf" and fitting > 1:
                return [f"{path}: fits more than one of the shapes, where one is expected"]
            if not fitting:
                return self._none_fits(value, tried, path)
        return []

    def _discriminated(self, value: Json, schema: dict[str, Json]) -> Json:
        """Return the choice that the value names itself; if it names none of them, what it should name."""
        rule = schema.get("discriminator")
        if not isinstance(rule, dict) or not isinstance(value, dict):
            return None
        name, mapping = rule.get("propertyName"), rule.get("mapping")
        if not isinstance(name, str) or not isinstance(mapping, dict):
            return None
        tag = value.get(name)
        if isinstance(tag, str) and tag in mapping:
            return self._resolve(mapping[tag])
        if name in value and not isinstance(tag, str):
            return None
        return {"required": [name], "properties": {name: {"enum": list(mapping)}}}

    def _none_fits(self, value: Json, tried: list[tuple[list[str], Json]], path: str) -> list[str]:
        kind = _kind(value)
        near = [found for found, choice in tried if kind in self._kinds(choice, 0)]
        if near:
            return min(near, key=len)
        words = list(dict.fromkeys(word for _, choice in tried for word in self._words(choice)))
        return [f"{path}: expected {' or '.join(words) or 'something else'}, got {_got(value)}"]

    def _kinds(self, schema: Json, depth: int) -> set[str]:
        """Return the JSON types that a schema may take, by a first look."""
        self._left -= 1
        if not isinstance(schema, dict) or depth > _DEEPEST or self._left < 0:
            return set()
        kinds = {*_types(schema), *(_kind(option) for option in _options(schema))}
        for part in (
            self._resolve(schema.get("$ref")),
            *_list_of(schema.get("anyOf")),
            *_list_of(schema.get("oneOf")),
        ):
            kinds |= self._kinds(part, depth + 1)
        return kinds | {"integer"} if "number" in kinds else kinds

    def _words(self, choice: Json) -> list[str]:
        kinds = self._kinds(choice, 0)
        return [
            word
            for kind, word in _WORDS.items()
            if kind in kinds and not (kind == "integer" and "number" in kinds)
        ]

    def _resolve(self, ref: Json) -> Json:
        """Return what a `#/...` pointer leads to; an unknown one asks for nothing."""
        if not isinstance(ref, str) or not ref.startswith("#"):
            return None
        target = self._root
        for part in ref.removeprefix("#").split("/")[1:]:
            if not isinstance(target, dict):
                return None
            target = target.get(part.replace("~1", "/").replace("~0", "~"))
        return target

    def _list(
        self, value: list[Json] | tuple[Json, ...], schema: dict[str, Json], path: str, depth: int
    ) -> Iterator[str]:
        yield from _size(len(value), schema, path, "Items", "items")
        if schema.get("uniqueItems") is True and _has_twins(value):
            yield f"{path}: expected no item twice"
        items = schema.get("items", True)
        first = _list_of(schema.get("prefixItems"))
        if isinstance(items, list):
            first, items = items, schema.get("additionalItems", True)
        for at, item in enumerate(value):
            yield from self.judge(item, first[at] if at < len(first) else items, f"{path}[{at}]", depth + 1)

    def _object(
        self, value: dict[str, Json], schema: dict[str, Json], path: str, depth: int
    ) -> Iterator[str]:
        yield from _size(len(value), schema, path, "Properties", "entries")
        known = _dict_of(schema.get("properties"))
        for name in _list_of(schema.get("required")):
            if isinstance(name, str) and name not in value:
                yield f"{_inside(path, name)}: missing"
        patterns = _dict_of(schema.get("patternProperties"))
        for name, item in value.items():
            inside = _inside(path, name)
            if "propertyNames" in schema:
                yield from self.judge(
                    name, schema["propertyNames"], f"the name {_quoted(name)} in {path}", depth + 1
                )
            parts = [part for pattern, part in patterns.items() if _matches(pattern, name)]
            if name in known:
                parts.append(known[name])
            if not parts:
                rest = schema.get("additionalProperties", True)
                if rest is False:
                    yield f"{inside}: not expected"
                    continue
                parts = [rest]
            for part in parts:
                yield from self.judge(item, part, inside, depth + 1)


def _type_and_choice(value: Json, schema: dict[str, Json], path: str) -> Iterator[str]:
    types = _types(schema)
    if types and not any(_is(value, kind) for kind in types) and not _is_decimal(value, schema):
        words = dict.fromkeys(_WORDS[kind] for kind in types)
        yield f"{path}: expected {' or '.join(words)}, got {_got(value)}"
    elif types == ["number"] and isinstance(value, int) and not _is_float(value):
        yield f"{path}: the number is too large"
    options = _options(schema)
    if options and not any(_same(value, option, 0) for option in options):
        shown = ", ".join(_quoted(option) for option in options[:10]) + (", ..." if len(options) > 10 else "")
        yield f"{path}: expected {'one of ' if len(options) > 1 else ''}{shown}, got {_quoted(value)}"


def _text(value: str, schema: dict[str, Json], path: str) -> Iterator[str]:
    yield from _size(len(value), schema, path, "Length", "characters")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        yield f"{path}: expected text that matches {_quoted(pattern)}"
    named = schema.get("format")
    if isinstance(named, str) and named in _FORMATS:
        check, words = _FORMATS[named]
        if not _passes(check, value):
            yield f"{path}: expected {words}"
    if schema.get("contentEncoding") == "base64" and not _passes(_base64, value):
        yield f"{path}: expected base64"


def _number(value: float, schema: dict[str, Json], path: str) -> Iterator[str]:
    bounds: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
        ("minimum", lambda number, bound: number >= bound, "at least"),
        ("maximum", lambda number, bound: number <= bound, "at most"),
        ("exclusiveMinimum", lambda number, bound: number > bound, "more than"),
        ("exclusiveMaximum", lambda number, bound: number < bound, "less than"),
    )
    for keyword, holds, words in bounds:
        bound = schema.get(keyword)
        if _is_number(bound) and not holds(value, bound):
            yield f"{path}: expected {words} {_quoted(bound)}, got {_quoted(value)}"
    step = schema.get("multipleOf")
    if _is_number(step) and step > 0 and not _is_multiple(value, step):
        yield f"{path}: expected a multiple of {_quoted(step)}, got {_quoted(value)}"


def _size(count: int, schema: dict[str, Json], path: str, of: str, nouns: str) -> Iterator[str]:
    least, most = schema.get(f"min{of}"), schema.get(f"max{of}")
    if _is_number(least) and count < least:
        yield f"{path}: expected at least {_quoted(least)} {nouns}, got {count}"
    if _is_number(most) and count > most:
        yield f"{path}: expected at most {_quoted(most)} {nouns}, got {count}"


def _types(schema: dict[str, Json]) -> list[str]:
    types = schema.get("type")
    return [
        kind
        for kind in (types if isinstance(types, list) else [types])
        if isinstance(kind, str) and kind in _WORDS
    ]


def _options(schema: dict[str, Json]) -> list[Json]:
    return [schema["const"]] if "const" in schema else _list_of(schema.get("enum"))


def _is(value: Json, kind: str) -> bool:
    mine = _kind(value)
    return mine == kind or (kind == "number" and mine == "integer")


def _is_number(value: Json) -> TypeGuard[float]:
    return _is(value, "number")


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
        case _:
            return ""


def _same(value: Json, option: Json, depth: int) -> bool:
    """Compare as JSON, where true is not 1; an option that is a whole number is met by one only."""
    kind, wanted = _kind(value), _kind(option)
    if depth > _DEEPEST or (kind != wanted and (kind, wanted) != ("integer", "number")):
        return False
    if kind == "array":
        return len(value) == len(option) and all(
            _same(mine, other, depth + 1) for mine, other in zip(value, option, strict=True)
        )
    if kind == "object":
        return value.keys() == option.keys() and all(_same(value[k], option[k], depth + 1) for k in value)
    return bool(value == option)


def _has_twins(items: list[Json] | tuple[Json, ...]) -> bool:
    try:
        return len({msgspec.json.encode(item, order="deterministic") for item in items}) < len(items)
    except (TypeError, ValueError, RecursionError):  # not JSON, or too deep to be compared
        return False


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        return math.fmod(value, step) == 0
    except (OverflowError, ValueError):
        return False


def _is_float(value: int) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _is_decimal(value: Json, schema: dict[str, Json]) -> bool:
    return schema.get("format") == "decimal" and _is_number(value)


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError):  # of a dialect that Python does not read
        return True


def _passes(check: _Check, text: str) -> bool:
    try:
        check(text)
    except ValueError:
        return False
    return True


def _base64(text: str) -> object:
    return msgspec.convert(text, bytes)


def _inside(path: str, name: str) -> str:
    return (
        f"{path}.{name}"
        if isinstance(name, str) and name.isidentifier() and len(name) <= 60
        else f"{path}[{_quoted(name)}]"
    )


def _got(value: Json) -> str:
    return _WORDS.get(_kind(value), type(value).__name__)


def _quoted(value: Json) -> str:
    try:
        said = repr(value)
    except (ValueError, RecursionError):
        return f"a very large {type(value).__name__}"
    return said if len(said) <= 60 else said[:57] + "..."


def _list_of(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _dict_of(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


_OTHER = "\0"
"""A text that means nothing; a schema that takes it takes any."""


def unasked(value: object, plain: Any, schema: Any) -> tuple[str, type] | None:
    """Return the place and type of a part that would silently become another one as JSON; none if none would.

    `plain` is the value as JSON has it. Where the schema asks for just that type, such as a decimal or an
    object with certain fields, the part comes back as what it was.
    """
    found: dict[str, type] = {}
    _others(value, plain, "answer", found, None)
    for where, kind in found.items():
        probe = _others(value, plain, "answer", {}, where)
        if schema is None or not complaints(probe, schema):
            return where, kind
    return None


def _others(value: object, plain: Any, where: str, found: dict[str, type], target: str | None) -> Any:
    """Note the parts that JSON changes; returns it with those at `target` replaced by something else."""
    if isinstance(value, dict) and isinstance(plain, dict) and len(value) == len(plain):
        parts = {}
        for (key, part), (name, said) in zip(value.items(), plain.items(), strict=True):
            if not isinstance(key, str):
                found.setdefault(f"a key of {where}", type(key))
                name = _OTHER if target == f"a key of {where}" else name
            parts[name] = _others(part, said, f"{where}.{key}", found, target)
        return parts
    if isinstance(value, list) and isinstance(plain, list):
        return [_others(v, p, f"{where}[]", found, target) for v, p in zip(value, plain, strict=True)]
    if value == plain:
        return plain
    found.setdefault(where, type(value))
    if target != where:
        return plain
    return {_OTHER: None} if isinstance(plain, dict) else _OTHER
