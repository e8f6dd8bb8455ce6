"""From JSON to the types that a flow's inputs are declared as, the way answers become what waits ask for."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from everstep.codec.schema import closed, complaints, converted, schema_of
from everstep.errors import InputError
from everstep.graph.check.hints import UNKNOWN, fits, hints_of, spell


def shaped_inputs(inputs: Mapping[str, Any], hints_for: Callable[[str], list[Any]]) -> dict[str, Any]:
    """Return each input as `shaped` does; says of all of them what cannot be."""
    found: dict[str, Any] = {}
    wrong: dict[str, InputError] = {}
    for name, value in inputs.items():
        try:
            found[name] = shaped(name, value, hints_for(name))
        except InputError as error:
            wrong[name] = error
    if len(wrong) > 1:
        raise InputError(
            " ".join(e.message for e in wrong.values()),
            fix=" ".join(
                error.fix.replace("It takes", f"{name!r} takes", 1) for name, error in wrong.items()
            ),
        )
    if wrong:
        raise next(iter(wrong.values()))
    return found


def shaped_channel(channel: Mapping[str, Any], declared: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return each entry of a channel as what it is declared as."""
    hints = declared or {}
    return {key: shaped(key, value, [hints[key]] if key in hints else []) for key, value in channel.items()}


def shaped(name: str, value: Any, hints: list[Any]) -> Any:
    """Return what was given for an input as what its readers want, or raise `InputError`.

    If they want different things, what all of them can take; if there is no such thing, the value stays and
    the check of the inputs names the reader.
    """
    wanted = [hint for k, hint in enumerate(hints) if hint is not UNKNOWN and hint not in hints[:k]]
    errors: list[InputError] = []
    for hint in wanted:
        try:
            found = _as(name, value, hint)
        except InputError as error:
            errors.append(error)
            continue
        if all(fits(found, other) for other in wanted):
            return found
    if errors and len(errors) == len(wanted):
        raise errors[0]
    return value


def _as(name: str, value: Any, hint: Any) -> Any:
    schema = schema_of(hint)
    wrong = complaints(value, closed(schema), where=name) if schema is not None else []
    try:
        found = value if wrong else converted(value, hint)
    except ValueError as error:
        wrong = [str(error).rstrip(".")]
    if wrong:
        raise InputError(
            f"input {name!r} cannot be {spell(hint)}: {'; '.join(wrong[:5])}.",
            fix=f"It takes {_takes(hint)}.",
        )
    # A whole number does for a float as it is.
    return value if type(value) is int and found == value else found


def _takes(hint: Any) -> str:
    """Spell a hint, and the fields of the dataclasses in it."""
    told = [spell(hint)]
    for option in options_of(hint):
        if isinstance(option, type) and dataclasses.is_dataclass(option):
            known = hints_of(option)
            fields = ", ".join(
                f"{f.name}: {spell(known.get(f.name, UNKNOWN))}" for f in dataclasses.fields(option)
            )
            told.append(f"{option.__name__} has {fields}")
    return "; ".join(told)


def takes_text(text: str, hints: list[Any]) -> bool:
    """True if some reader of an input declares a type that this text stands for, as it is."""
    schemas = [schema for hint in hints if (schema := schema_of(hint)) is not None]
    return any(not complaints(text, schema) for schema in schemas)


def plain_hint(hint: Any) -> Any:
    return plain_hint(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def options_of(hint: Any) -> list[Any]:
    hint = plain_hint(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return [option for part in get_args(hint) for option in options_of(part)]
    return [hint]
