"""Lists that grow: tell what was appended without trusting that the rest was left alone.

A node may change an old item in place, so the old part is compared with a shadow: a copy of its containers,
made when the value was written. Python calls 1, 1.0 and True equal, a StrEnum member equal to its text, and
0.0 equal to -0.0, so types are compared too, and zeros by sign. The order of a dict's keys is no difference.
"""

from __future__ import annotations

import gc
import sys
from itertools import chain
from math import copysign
from typing import Any


class Shadow:
    """What a plain list looked like when it was written."""

    __slots__ = ("_items", "_kinds", "_zeros")

    def __init__(self, items: list[Any]) -> None:
        self._items = [copy_containers(item) for item in items]
        self._look()

    def _look(self) -> None:
        self._kinds = kinds_by_level(self._items)
        self._zeros = zero_signs(self._items, self._kinds)

    def appended(self, items: list[Any]) -> list[Any] | None:
        """Return what was added at the end, or none if the old part is not what it was."""
        count = len(self._items)
        old = items[:count]
        if len(items) < count or old != self._items or not self._has_same_kinds(old):
            return None
        if self._zeros and zero_signs(old, self._kinds) != self._zeros:
            return None
        return items[count:]

    def _has_same_kinds(self, old: list[Any]) -> bool:
        level: Any = old
        # It is equal, so each level holds as many as that of the shadow.
        counts = [len(kinds) for kinds, _ in self._kinds[1:]]
        for (kinds, holders), below in zip(self._kinds, [*counts, 0], strict=False):
            if list(map(type, level)) != kinds:
                return False
            level = members(level, holders, below)
        return True

    def extend(self, added: list[Any]) -> None:
        """Take what was appended into the shadow."""
        copies = [copy_containers(item) for item in added]
        new = kinds_by_level(copies)
        self._items += copies
        if _is_rows(new) and _is_rows(self._kinds) and not self._zeros and not zero_signs(copies, new):
            for (mine, _), (more, _) in zip(self._kinds, new, strict=True):
                mine += more
        elif copies:
            self._look()


Level = tuple[list[type], frozenset[type]]
"""The types found on one level, in order, and which of them hold others."""

_HOLDERS = frozenset({dict, list})
_ROWS = frozenset({dict})


def kinds_by_level(items: list[Any]) -> list[Level]:
    """Return the exact types of everything in a list, level by level."""
    found: list[Level] = []
    level: Any = items
    while level:
        kinds = list(map(type, level))
        holders = _HOLDERS & set(kinds)
        if holders == _ROWS and len(set(kinds)) > 1:
            holders = _HOLDERS  # not all are dicts, so they have to be picked out
        found.append((kinds, holders))
        level = members(level, holders)
    return found


def members(level: Any, holders: frozenset[type], count: int | None = None) -> list[Any]:
    """Return what the containers of one level hold: those of dicts, then those of lists.

    `count` is how many these are, if that is known.
    """
    if not holders:
        return []
    if holders == _ROWS:
        if sys.version_info < (3, 13):
            # One C call for all. Up to 3.12 the collector sees every value, and only keys that are no str.
            values = gc.get_referents(*level)
            if len(values) == (sum(map(len, level)) if count is None else count):
                return values
        return list(chain.from_iterable(map(dict.values, level)))
    of_dicts = chain.from_iterable(v.values() for v in level if type(v) is dict)
    return list(chain(of_dicts, chain.from_iterable(v for v in level if type(v) is list)))


def zero_signs(items: list[Any], levels: list[Level]) -> list[float]:
    """Return the sign of each zero that is a float, in order."""
    signs: list[float] = []
    level: Any = items
    for kinds, holders in levels:
        if float in kinds:
            signs += [copysign(1, v) for v in level if type(v) is float and v == 0]
        level = members(level, holders)
    return signs


def _is_rows(levels: list[Level]) -> bool:
    """True for a list of flat dicts, whose levels can be continued without looking at the old part again."""
    return len(levels) == 2 and levels[0][1] == _ROWS


def copy_containers(value: Any) -> Any:
    """Copy lists and dicts all the way down; what they hold is shared."""
    if type(value) is dict:
        return {k: copy_containers(v) if type(v) in (dict, list) else v for k, v in value.items()}
    if type(value) is list:
        return [copy_containers(v) for v in value]
    return value
