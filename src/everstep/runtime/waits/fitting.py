"""Whether what is sent fits what it is for: the value of a flow that takes it in, or a wait for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from everstep.codec.schema import converted
from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.graph.check.hints import UNKNOWN, fits
from everstep.model.waits import Reducer


def taken_in(flow: Flow, name: str, current: Any, signals: Sequence[Any]) -> tuple[Any, dict[int, str]]:
    """Return what signals make of a value of a flow, less those that do not fit: why, by their places.

    One that does not fit changes nothing for the others.
    """
    reducer, hints = flow.inbox[name], _hints(flow, name)
    fitting, refused = [], {}
    total = current or 0
    for k, signal in enumerate(signals):
        try:
            if reducer is Reducer.APPEND:
                if current is not None and not isinstance(current, list):
                    reducer.reduce(name, current, ())
                fitting.append(_as_declared(name, [signal], hints)[0])
            elif reducer is Reducer.ADD:
                total = _as_declared(name, _sum(name, total, signal), hints)
            else:
                fitting.append(_as_declared(name, signal, hints))
        except BadRequest as error:
            refused[k] = error.message
    if len(refused) == len(signals):
        return current, refused
    return total if reducer is Reducer.ADD else reducer.reduce(name, current, fitting), refused


def check_fits(flow: Flow, name: str, value: Any) -> None:
    """Refuse a signal that no value of that name could take in, as far as the flow itself says so."""
    if name in flow.inbox:
        _, refused = taken_in(flow, name, None, [value])
        if refused:
            raise BadRequest(refused[0], fix="Send a value that fits.")


def _sum(name: str, total: Any, signal: Any) -> Any:
    found = Reducer.ADD.reduce(name, total, [signal])
    if not math.isfinite(found):
        raise BadRequest(f"{name!r} would be {found} with {signal!r:.60} added.", fix="Send another number.")
    return found


def _hints(flow: Flow, name: str) -> list[Any]:
    found = [hint for hint in flow.input_hints(name) if hint is not UNKNOWN]
    return [hint for k, hint in enumerate(found) if hint not in found[:k]]


def _as_declared(name: str, value: Any, hints: list[Any]) -> Any:
    """Return JSON as what the nodes that read a value want; refuse it if it is for none of them."""
    wrong = ""
    for hint in hints:
        try:
            found = converted(value, hint)
        except ValueError as error:
            wrong = wrong or str(error).rstrip(".")
            continue
        if not fits(found, hint):
            wrong = wrong or "it has another type"
        elif all(fits(found, other) for other in hints):
            # A whole number does for a float as it is.
            return value if type(value) is int and found == value else found
    if wrong:
        raise BadRequest(f"{value!r:.60} does not fit {name!r}: {wrong}.", fix="Send a value that fits.")
    return value
