"""Checks what is said of a node when it is declared."""

from __future__ import annotations

from typing import Any

from everstep.errors import BadRequest


def is_text(value: object) -> bool:
    """True for text that is not empty."""
    return isinstance(value, str) and value != ""


def names_of(output: Any, name: str) -> tuple[str, ...]:
    """Return the names of what a node writes or requires."""
    if output is None:
        return ()
    if not isinstance(output, (list, tuple)) or not all(isinstance(o, str) for o in output):
        raise BadRequest(f"node {name!r}: output is {output!r}.", fix="Give a name, or a tuple of names.")
    return tuple(output)


def count_of(value: Any, field: str, name: str) -> int | None:
    """Return a whole number from 1 on, or none."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadRequest(f"node {name!r}: {field} is {value!r}.", fix="Give a whole number of at least 1.")
    return value


def word_of(kind: Any, value: Any, field: str, name: str) -> Any:
    """Return one of the words of an enum."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(k)) for k in kind)
        raise BadRequest(f"node {name!r}: {field} is {value!r}.", fix=f"Use one of {known}.") from None


def flag_of(value: Any, field: str, name: str) -> bool:
    """Return a yes or no."""
    if not isinstance(value, bool):
        raise BadRequest(f"node {name!r}: {field} is {value!r}.", fix="Say True or False.")
    return value
