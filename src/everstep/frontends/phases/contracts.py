"""What a phase takes and gives: what is wrong with values, and how a wrong output is corrected."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from everstep.codec.complaints import TYPES, complaints
from everstep.codec.plain_json import jsonable
from everstep.errors import BadRequest
from everstep.graph.check.hints import fits, spell

Contract = Mapping[str, Any]
"""Names of values, each with the type or the JSON Schema it has to be."""


def check_contract(contract: Any, what: str) -> dict[str, Any]:
    """Return a contract, or raise if it says nothing that values can be held against."""
    if not isinstance(contract, Mapping) or not all(
        isinstance(k, str) and k.isidentifier() for k in contract
    ):
        raise BadRequest(
            f"{what} is {contract!r:.80}.", fix="Give names of values, each with a type or a JSON Schema."
        )
    for name, kind in contract.items():
        if not (isinstance(kind, dict) or kind is None or isinstance(kind, type) or _is_hint(kind)):
            raise BadRequest(
                f"{what}: {name!r} is {kind!r:.80}.", fix="Give a type, or a JSON Schema as a dict."
            )
        for unknown in _unknown_types(kind):
            raise BadRequest(
                f"{what}: {name!r} has the type {unknown!r:.60}, which JSON Schema does not know.",
                fix=f"Use one of {', '.join(TYPES)}.",
            )
    return dict(contract)


def _unknown_types(schema: Any) -> Iterator[Any]:
    """Yield the types that a schema names and that nothing can be held against."""
    if not isinstance(schema, Mapping):
        return
    said = schema.get("type", [])
    yield from (one for one in (said if isinstance(said, list) else [said]) if one not in TYPES)
    for word in ("properties", "patternProperties", "$defs"):
        parts = schema.get(word)
        for part in parts.values() if isinstance(parts, Mapping) else ():
            yield from _unknown_types(part)
    for word in ("items", "additionalProperties", "not"):
        yield from _unknown_types(schema.get(word))
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        parts = schema.get(word)
        for part in parts if isinstance(parts, list) else ():
            yield from _unknown_types(part)


def check_references(refers: Any, what: str) -> dict[str, str]:
    """Return what refers to what, or raise if that is no pair of paths."""
    is_pairs = isinstance(refers, Mapping) and all(
        isinstance(text, str) and all(part.isidentifier() for part in text.split("."))
        for pair in refers.items()
        for text in pair
    )
    if not is_pairs:
        raise BadRequest(
            f"{what} is {refers!r:.80}.",
            fix='Give paths, such as {"plan.steps.finding": "discovery.findings.id"}.',
        )
    return dict(refers)


def faults(contract: Contract, refers: Mapping[str, str], values: Mapping[str, Any]) -> list[str]:
    """Say what is wrong with the inputs of a phase: missing, of another type, referring to nothing."""
    found = [
        fault for name, kind in contract.items() for fault in _missing_or_wrong(values.get(name), kind, name)
    ]
    return found or list(_dangling(refers, values))


def corrected(value: Any, kind: Any, name: str) -> tuple[Any, list[str]]:
    """Return an output with defaults in the place of what is wrong or missing, and what was done to it."""
    if isinstance(kind, dict):
        said: list[str] = []
        return _correct(value, _part(kind, kind), name, said), said
    wrong = _wrong(value, kind, name)
    return value, [f"{fault}; it has no default and was left as it is" for fault in wrong]


def _is_hint(kind: Any) -> bool:
    return (
        hasattr(kind, "__origin__")
        or type(kind).__name__ in ("UnionType", "_UnionGenericAlias")
        or kind is Any
    )


def _missing_or_wrong(value: Any, kind: Any, name: str) -> list[str]:
    wrong = _wrong(value, kind, name)
    return [f"{name} is missing"] if value is None and (wrong or kind is None) else wrong


def _wrong(value: Any, kind: Any, name: str) -> list[str]:
    if isinstance(kind, dict):
        return complaints(jsonable(value), kind, where=name)
    if kind is None or _fits_wholly(value, kind):
        return []
    return [f"{name} is {value!r:.60} ({type(value).__name__}), not {spell(kind)}"]


def _fits_wholly(value: Any, kind: Any) -> bool:
    """True if a value is what a type says, and so is everything in it."""
    if not fits(value, kind):
        return False
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fits_wholly(value, inside[0])
    if origin in (Union, UnionType):
        return any(_fits_wholly(value, option) for option in inside)
    if isinstance(value, tuple) and origin is tuple and inside[-1:] != (...,):
        return len(value) == len(inside) and all(map(_fits_wholly, value, inside))
    if isinstance(value, Mapping) and len(inside) == 2:
        return all(_fits_wholly(k, inside[0]) and _fits_wholly(v, inside[1]) for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset) and inside and origin is not Literal:
        return all(_fits_wholly(item, inside[0]) for item in value)
    return True


def _correct(value: Any, schema: Any, where: str, said: list[str]) -> Any:
    """Correct a value from the outside in: parts that have a default of their own keep the rest whole."""
    if not isinstance(schema, Mapping):
        said.extend(f"{fault}; it was left as it is" for fault in complaints(value, schema, where=where))
        return value
    parts = schema.get("properties")
    if isinstance(value, dict) and isinstance(parts, Mapping):
        return _correct_object(value, schema, parts, where, said)
    own, before = schema, len(said)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        items = _part(schema, schema["items"])
        value = [_correct(item, items, f"{where}[{k}]", said) for k, item in enumerate(value)]
        own = schema if "default" in schema else {**schema, "items": {}}
    return _settled(value, schema, complaints(jsonable(value), own, where=where), said, before)


def _settled(value: Any, schema: Mapping[str, Any], wrong: list[str], said: list[str], before: int) -> Any:
    """Return a value, or its default if something is still wrong with it; that goes for its parts, too."""
    if wrong and "default" in schema:
        default = schema["default"]
        said[before:] = [f"{wrong[0].rstrip('.')}; the default {default!r:.40} took its place"]
        return copy.deepcopy(default)
    said.extend(f"{fault.rstrip('.')}; it has no default and was left as it is" for fault in wrong)
    return value


def _part(schema: Mapping[str, Any], part: Any) -> Any:
    """Return a part of a schema so that it stands by itself, with what it refers to."""
    if not isinstance(part, Mapping):
        return part
    known = {word: schema[word] for word in ("$defs", "definitions") if isinstance(schema.get(word), Mapping)}
    _, *path = str(part.get("$ref", "")).split("/")
    meant = known.get(path[0], {}).get(path[1]) if len(path) == 2 else None
    if not isinstance(meant, Mapping):
        return {**known, **part}
    return {**known, **meant, **{word: part[word] for word in part if word != "$ref"}}


def _correct_object(
    value: dict[Any, Any],
    schema: Mapping[str, Any],
    parts: Mapping[str, Any],
    where: str,
    said: list[str],
) -> Any:
    found, before = dict(value), len(said)
    required = schema.get("required") or ()
    for name, part in parts.items():
        alone = _part(schema, part)
        if name in found:
            found[name] = _correct(found[name], alone, f"{where}.{name}", said)
        elif name in required and isinstance(alone, Mapping) and "default" in alone:
            said.append(f"{where}.{name} is missing; the default {alone['default']!r:.40} took its place")
            found[name] = copy.deepcopy(alone["default"])
    own = schema if "default" in schema else {**schema, "properties": {name: {} for name in parts}}
    return _settled(found, schema, complaints(jsonable(found), own, where=where), said, before)


def _dangling(refers: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[str]:
    for path, target in refers.items():
        known = [jsonable(one) for one in _at(values, target.split("."))]
        for one in _at(values, path.split(".")):
            if jsonable(one) not in known:
                yield f"{path} refers to {one!r:.60}, which is not among {target}"


def _at(value: Any, path: list[str]) -> Iterator[Any]:
    """Yield what lies at a path, of every item where it leads through a list."""
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _at(item, path)
    elif not path:
        if value is not None:
            yield value
    elif isinstance(value, Mapping):
        if path[0] in value:
            yield from _at(value[path[0]], path[1:])
    elif hasattr(value, path[0]):
        yield from _at(getattr(value, path[0]), path[1:])
