"""Lists that grow: tell what was appended without trusting that the rest was left alone.

A node may change an old item in place, so the old part is compared with a shadow: a copy of its containers,
made when the value was written. Python calls 1, 1.0 and True equal, so where a list holds numbers their
types are compared too.
"""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import Any

_NUMBERS = frozenset({int, float, bool})


class Shadow:
    """What a plain list looked like when it was written."""

    __slots__ = ("_columns", "_is_flat", "_items", "_kinds")

    def __init__(self, items: list[Any]) -> None:
        self._items = [copy_containers(item) for item in items]
        self._look()

    def _look(self) -> None:
        """Choose how to compare the types of numbers: by column for rows of one shape, else leaf by leaf."""
        items = self._items
        first = items[0] if items else None
        self._columns: dict[str, list[type]] = {}
        self._is_flat = (
            type(first) is dict
            and all(type(i) is dict and i.keys() == first.keys() for i in items)
            and all(type(v) not in (list, dict) for i in items for v in i.values())
        )
        self._kinds: list[list[type]] = []
        if self._is_flat and type(first) is dict:
            for key in first:
                kinds = list(map(type, map(itemgetter(key), items)))
                if not _NUMBERS.isdisjoint(kinds):
                    self._columns[key] = kinds
        else:
            self._kinds = number_types(items)

    def appended(self, items: list[Any]) -> list[Any] | None:
        """Return what was added at the end, or none if the old part is not what it was."""
        count = len(self._items)
        if len(items) < count:
            return None
        old = items[:count]
        if old != self._items or not self._has_same_types(old):
            return None
        return items[count:]

    def _has_same_types(self, old: list[Any]) -> bool:
        if self._is_flat:
            return all(
                list(map(type, map(itemgetter(k), old))) == kinds for k, kinds in self._columns.items()
            )
        return number_types(old) == self._kinds if self._kinds else True

    def extend(self, added: list[Any]) -> None:
        """Take what was appended into the shadow."""
        copies = [copy_containers(item) for item in added]
        self._items += copies
        if self._is_flat and all(self._is_row(item) for item in copies):
            for key, kinds in self._columns.items():
                kinds.extend(map(type, map(itemgetter(key), copies)))
        else:
            self._look()

    def _is_row(self, item: Any) -> bool:
        """True if an item has the shape of the rows before it, with numbers only where they had some."""
        return (
            type(item) is dict
            and item.keys() == self._items[0].keys()
            and all(type(v) not in (list, dict) for v in item.values())
            and all(key in self._columns for key, v in item.items() if type(v) in _NUMBERS)
        )


def copy_containers(value: Any) -> Any:
    """Copy lists and dicts all the way down; what they hold is shared."""
    if type(value) is dict:
        return {k: copy_containers(v) if type(v) in (dict, list) else v for k, v in value.items()}
    if type(value) is list:
        return [copy_containers(v) for v in value]
    return value


def number_types(items: list[Any]) -> list[list[type]]:
    """Return the types found on each level that holds numbers, in order."""
    found: list[list[type]] = []
    level = items
    while level:
        kinds = list(map(type, level))
        if not _NUMBERS.isdisjoint(kinds):
            found.append(kinds)
        dicts = [v for v in level if type(v) is dict]
        lists = [v for v in level if type(v) is list]
        level = list(chain(chain.from_iterable(map(dict.values, dicts)), chain.from_iterable(lists)))
    return found
