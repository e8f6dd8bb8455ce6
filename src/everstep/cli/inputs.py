"""From `--input name=value` and `--inputs-file` to the inputs of a run."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from everstep import Flow
from everstep.errors import BadRequest, InputError
from everstep.graph.hints import UNKNOWN, fits, hints_of, spell

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NOT_JSON = object()


def gather_inputs(flow: Flow, pairs: Iterable[str], file: str | None) -> dict[str, Any] | None:
    """Return the inputs of a run, or none if nothing was given. A pair overrides what the file says."""
    pairs = list(pairs)
    if not pairs and file is None:
        return None
    inputs = _read_file(file) if file is not None else {}
    seen: set[str] = set()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise BadRequest(f"--input {pair!r} is not NAME=VALUE.", fix="Write --input count=3.")
        if name in seen:
            fix = f"Give it once; a list is written as JSON: --input '{name}=[1, 2]'."
            raise BadRequest(f"--input {name} is given twice.", fix=fix)
        seen.add(name)
        inputs[name] = read_value(name, text, flow.input_hints(name))
    return {name: _shaped(name, value, flow.input_hints(name)) for name, value in inputs.items()}


def gather_channel(flow: Flow, pairs: Iterable[str]) -> dict[str, Any] | None:
    """Return what the channel of a run begins with, or none if nothing was given."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise BadRequest(f"--channel {pair!r} is not KEY=VALUE.", fix="Write --channel user=ann.")
        if key in found:
            raise BadRequest(f"--channel {key} is given twice.", fix="Give it once.")
        hint = (flow.channel or {}).get(key)
        hints = [] if hint is None else [hint]
        found[key] = _shaped(key, read_value(key, text, hints, option="--channel"), hints)
    return found or None


def _shaped(name: str, value: Any, hints: list[Any]) -> Any:
    """Build the dataclass that all readers of an input want from the object that was given."""
    return build(name, value, hints[0]) if hints and all(hint == hints[0] for hint in hints) else value


def build(where: str, value: Any, hint: Any) -> Any:
    """Return the value with JSON objects turned into the dataclasses that the hint names."""
    for option in _options(hint):
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


def _read_file(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadRequest(f"--inputs-file {file} cannot be read: {reason}.", fix="Check the path.") from error
    try:
        inputs = json.loads(text)
    except ValueError as error:
        raise BadRequest(
            f"--inputs-file {file} is not JSON: {error}.", fix='Write {"name": value}.'
        ) from error
    if not isinstance(inputs, dict):
        raise BadRequest(f"--inputs-file {file} is not a JSON object.", fix='Write {"name": value}.')
    return inputs


def read_value(name: str, text: str, hints: list[Any], *, option: str = "--input") -> Any:
    """Read what stands after `name=`: text for a str, else JSON if it parses, else text."""
    options = [option for hint in hints for option in _options(hint)]
    if str in map(_plain, hints):
        return text
    for kind in (int, float, bool):
        if hints and all(_plain(hint) is kind for hint in hints):
            return _convert(name, text, kind, option)
    parsed = _parse(text)
    if parsed is _NOT_JSON:
        return text
    is_unclear = option == "--input" and str in options and not isinstance(parsed, str)
    if is_unclear and any(fits(parsed, o) for o in options):
        expected = " | ".join(dict.fromkeys(spell(o) for o in options))
        raise InputError(
            f"{option} {name}={text} may be text or {type(parsed).__name__}, and {name!r} takes {expected}.",
            fix="Say which with --inputs-file, where text stands in quotes.",
        )
    return parsed


def _plain(hint: Any) -> Any:
    return _plain(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def _options(hint: Any) -> list[Any]:
    hint = _plain(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return [option for part in get_args(hint) for option in _options(part)]
    return [hint]


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return _NOT_JSON


def _convert(name: str, text: str, kind: type, option: str) -> Any:
    if kind is bool:
        word = text.strip().lower()
        if word in _TRUE | _FALSE:
            return word in _TRUE
        wanted = "true or false"
    else:
        try:
            return kind(text)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
    raise InputError(f"{option} {name}={text} is not {wanted}.", fix=f"{name!r} takes {kind.__name__}.")
