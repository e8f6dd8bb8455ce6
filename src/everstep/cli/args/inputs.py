"""From `--input name=value` and `--inputs-file` to the inputs of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from everstep import Flow
from everstep.client.shaping import options_of, plain_hint, shaped, shaped_inputs, takes_text
from everstep.errors import BadRequest, InputError
from everstep.graph.check.hints import fits, spell

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
    return shaped_inputs(inputs, flow.input_hints)


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
        found[key] = shaped(key, read_value(key, text, hints, option="--channel"), hints)
    return found or None


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
    """Read what stands after `name=`: text for a str and whatever a text makes, else JSON if it parses."""
    options = [option for hint in hints for option in options_of(hint)]
    if str in map(plain_hint, hints):
        return text
    for kind in (int, float, bool):
        if hints and all(plain_hint(hint) is kind for hint in hints):
            return _convert(name, text, kind, option)
    parsed = _parse(text)
    if parsed is _NOT_JSON or (str not in options and takes_text(text, hints)):
        return text  # a date, a decimal, a member of an enum: as JSON it would be something else
    is_unclear = option == "--input" and str in options and not isinstance(parsed, str)
    if is_unclear and any(fits(parsed, o) for o in options):
        expected = " | ".join(dict.fromkeys(spell(o) for o in options))
        raise InputError(
            f"{option} {name}={text} may be text or {type(parsed).__name__}, and {name!r} takes {expected}.",
            fix="Say which with --inputs-file, where text stands in quotes.",
        )
    return parsed


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
