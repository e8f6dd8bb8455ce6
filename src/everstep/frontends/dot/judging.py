"""Whether a condition holds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from everstep.frontends.dot.conditions import (
    Comparison,
    Condition,
    Constant,
    Every,
    Expression,
    Key,
    Not,
    Some,
)

MISSING: Final = object()
"""What a lookup returns for a key that is not there."""
Lookup = Callable[[str], Any]

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def evaluate(condition: Condition | Expression, lookup: Lookup) -> bool:
    """Say whether a condition holds; `lookup` returns the value of a key, or `MISSING`."""
    if isinstance(condition, Condition):
        return condition.root is None or _holds(condition.root, lookup)
    return _holds(condition, lookup)


def lookup_in(outcome: Mapping[str, Any], context: Mapping[str, Any]) -> Lookup:
    """Look a key up in the outcome, then in the context; `context.key` means the context only.

    `outcome` alone is the status of the outcome. Dots are part of a key: contexts are flat.
    """

    def lookup(key: str) -> Any:
        if key == "outcome" and key not in outcome:
            return outcome.get("status", context.get(key, MISSING))
        if key.startswith("context."):
            return context.get(key, context.get(key.removeprefix("context."), MISSING))
        return outcome.get(key, context.get(key, MISSING))

    return lookup


def is_true(value: object) -> bool:
    """Say whether a key on its own counts as true."""
    if value is MISSING or value is None:
        return False
    if isinstance(value, bool | int | float | str | list | tuple | dict | set | frozenset):
        return bool(value)
    return True


def as_string(value: object) -> str:
    """Return a value as the short grammar compares it."""
    if value is MISSING or value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _holds(expression: Expression, lookup: Lookup) -> bool:
    match expression:
        case Every():
            return all(_holds(part, lookup) for part in expression.parts)
        case Some():
            return any(_holds(part, lookup) for part in expression.parts)
        case Not():
            return not is_true(_worth(expression.operand, lookup))
        case Comparison():
            return _compares(expression, lookup)
        case _:
            return is_true(_worth(expression, lookup))


def _worth(expression: Expression, lookup: Lookup) -> Any:
    match expression:
        case Key(name=name):
            return lookup(name)
        case Constant(value=value):
            return value
        case _:
            return _holds(expression, lookup)


def _compares(comparison: Comparison, lookup: Lookup) -> bool:
    left, right = _worth(comparison.left, lookup), _worth(comparison.right, lookup)
    sign = comparison.operator
    if sign == "=" or (sign == "!=" and comparison.is_short):
        return (as_string(left) == as_string(right)) is (sign == "=")
    if left is MISSING or right is MISSING:
        return False
    match sign:
        case "==":
            return same(left, right)
        case "!=":
            return not same(left, right)
        case "IN":
            return _has(right, left)
        case "CONTAINS":
            return right in left if _are(str, left, right) else _has(left, right)
        case "STARTS_WITH":
            return _are(str, left, right) and left.startswith(right)
        case "ENDS_WITH":
            return _are(str, left, right) and left.endswith(right)
    if _are(str, left, right) or (_is_number(left) and _is_number(right)):
        return _ORDERS[sign](left, right)
    return False


def same(left: object, right: object) -> bool:
    """Say whether two values are equal without converting either: `1` is not `true`, and not `"1"`."""
    pairs = [(left, right)]
    while pairs:
        a, b = pairs.pop()
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            if len(a) != len(b):
                return False
            pairs.extend(zip(a, b, strict=True))
        elif isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                return False
            pairs.extend((a[key], b[key]) for key in a)
        elif (_is_number(a) and _is_number(b)) or _are(str, a, b):
            if a != b:
                return False
        elif type(a) is not type(b) or a != b:
            return False
    return True


def _has(many: object, one: object) -> bool:
    return isinstance(many, list | tuple | set | frozenset) and any(same(item, one) for item in many)


def _are(kind: type, *values: object) -> bool:
    return all(isinstance(value, kind) for value in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
