"""From JSON to the dataclasses that a flow's inputs are declared as."""

from __future__ import annotations

import dataclasses
import types
from typing import Annotated, Any, Union, get_args, get_origin

from everstep.errors import InputError
from everstep.graph.hints import UNKNOWN, fits, hints_of, spell


def shaped(name: str, value: Any, hints: list[Any]) -> Any:
    """Build the dataclass that all readers of an input want from the object that was given."""
    return build(name, value, hints[0]) if hints and all(hint == hints[0] for hint in hints) else value


def build(where: str, value: Any, hint: Any) -> Any:
    """Return the value with JSON objects turned into the dataclasses that the hint names."""
    for option in options_of(hint):
        if isinstance(option, type) and dataclasses.is_dataclass(option) and isinstance(value, dict):
            return _instance(where, value, option)
        arguments = get_args(option)
        if get_origin(option) is list and isinstance(value, list):
            return [build(f"{where}[{k}]", item, arguments[0]) for k, item in enumerate(value)]
        if get_origin(option) is dict and isinstance(value, dict):
            return {key: build(f"{where}.{key}", item, arguments[1]) for key, item in value.items()}
    return value


def _instance(where: str, value: dict[str, Any], cls: type) -> Any:
    found = hints_of(cls)
    hints = {field.name: found.get(field.name, UNKNOWN) for field in dataclasses.fields(cls)}
    try:
        instance = cls(
            **{name: build(f"{where}.{name}", part, hints.get(name)) for name, part in value.items()}
        )
    except (TypeError, ValueError) as error:
        takes = ", ".join(f"{f.name}: {spell(hints[f.name])}" for f in dataclasses.fields(cls) if f.init)
        reason = str(error).rpartition("__init__() ")[2]
        raise InputError(
            f"input {where} does not make {cls.__name__}: {reason}.", fix=f"Its fields are {takes}."
        ) from error
    for field in dataclasses.fields(cls):
        part = getattr(instance, field.name, None)
        if field.name in value and not fits(part, hints[field.name]):
            wanted = spell(hints[field.name])
            raise InputError(f"input {where}.{field.name} is {part!r:.40}.", fix=f"It takes {wanted}.")
    return instance


def plain_hint(hint: Any) -> Any:
    return plain_hint(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def options_of(hint: Any) -> list[Any]:
    hint = plain_hint(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return [option for part in get_args(hint) for option in options_of(part)]
    return [hint]
