"""Keys and values of a run, of which there may be too many to be in every entry of its log: a tree of pages.

An entry holds the pages that it changed, down from the root, and these name the others by the entries that
hold them. So entries grow with the depth of the tree alone, nothing that was written changes, and what an
entry says of a run is whole when the entry is there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import msgspec

_MOST = 16
"""So many keys are in one page."""


class Ref(NamedTuple):
    """Where a page is: the place of an entry, and which page of that."""

    place: int
    number: int


class Page(msgspec.Struct, frozen=True, array_like=True):
    """Some keys in order, with their values, or with the pages of what begins there."""

    keys: tuple[bytes, ...]
    values: tuple[bytes, ...] = ()
    below: tuple[Ref, ...] = ()


class _Draft:
    """A page while it is changed."""

    __slots__ = ("below", "keys", "values")

    def __init__(self, keys: list[bytes], values: list[bytes], below: list[_Part]) -> None:
        self.keys = keys
        self.values = values
        self.below = below

    def child_of(self, key: bytes) -> int:
        return max(bisect_right(self.keys, key) - 1, 0)

    def split(self, key: bytes) -> _Draft | None:
        """Keep no more than a page holds, and return the rest; what grows at its end stays full."""
        if len(self.keys) <= _MOST:
            return None
        at = _MOST if self.keys[-1] <= key else len(self.keys) // 2
        rest = _Draft(self.keys[at:], self.values[at:], self.below[at:])
        del self.keys[at:], self.values[at:], self.below[at:]
        return rest


_Part: TypeAlias = "Ref | _Draft"


class Tree:
    """Values by keys, as an entry of a log tells of them, and what is changed of them."""

    def __init__(self, root: Ref | None, read: Callable[[Ref], Page]) -> None:
        self._root: _Part | None = root
        self._read = read

    @property
    def is_empty(self) -> bool:
        return self._root is None

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; none if it is not there."""
        part = self._root
        while part is not None:
            page = self._look(part)
            if not page.below:
                at = bisect_left(page.keys, key)
                return page.values[at] if page.keys[at : at + 1] == [key] else None
            part = page.below[page.child_of(key)]
        return None

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield what has keys that begin so and come after another, in their order."""
        if self._root is not None:
            yield from self._scan(self._root, prefix, after)

    def _scan(self, part: _Part, prefix: bytes, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        page, first = self._look(part), max(prefix, after)
        at = page.child_of(first) if page.below else bisect_left(page.keys, first)
        for k in range(at, len(page.keys)):
            key = page.keys[k]
            if key > prefix and not key.startswith(prefix):
                return
            if page.below:
                yield from self._scan(page.below[k], prefix, after)
            elif key > after:
                yield key, page.values[k]

    def set(self, key: bytes, value: bytes) -> None:
        """Give a key a value."""
        if self._root is None:
            self._root = _Draft([key], [value], [])
            return
        top = self._own(self._root)
        rest = self._set(top, key, value)
        self._root = top if rest is None else _Draft([top.keys[0], rest.keys[0]], [], [top, rest])

    def _set(self, page: _Draft, key: bytes, value: bytes) -> _Draft | None:
        """Set it in a page, and return what that has no room for."""
        if not page.below:
            at = bisect_left(page.keys, key)
            if page.keys[at : at + 1] == [key]:
                page.values[at] = value
                return None
            page.keys.insert(at, key)
            page.values.insert(at, value)
            return page.split(key)
        at = page.child_of(key)
        child = page.below[at] = self._own(page.below[at])
        rest = self._set(child, key, value)
        page.keys[at] = child.keys[0]
        if rest is None:
            return None
        page.keys.insert(at + 1, rest.keys[0])
        page.below.insert(at + 1, rest)
        return page.split(key)

    def remove(self, key: bytes) -> None:
        """Take a key out that is there."""
        assert self._root is not None
        top = self._own(self._root)
        self._remove(top, key)
        self._root = top if top.keys else None
        while isinstance(self._root, _Draft) and len(self._root.below) == 1:
            self._root = self._root.below[0]

    def _remove(self, page: _Draft, key: bytes) -> None:
        if not page.below:
            at = bisect_left(page.keys, key)
            assert page.keys[at] == key
            del page.keys[at], page.values[at]
            return
        at = page.child_of(key)
        child = page.below[at] = self._own(page.below[at])
        self._remove(child, key)
        if child.keys:
            page.keys[at] = child.keys[0]
        else:
            del page.keys[at], page.below[at]

    def written(self, place: int) -> tuple[Ref | None, tuple[Page, ...]]:
        """Return the root, and the pages that the entry at a place has to hold."""
        pages: list[Page] = []

        def write(part: _Part) -> Ref:
            if isinstance(part, Ref):
                return part
            below = tuple(write(child) for child in part.below)
            pages.append(Page(tuple(part.keys), tuple(part.values), below))
            return Ref(place, len(pages) - 1)

        root = None if self._root is None else write(self._root)
        return root, tuple(pages)

    def _look(self, part: _Part) -> _Draft:
        return part if isinstance(part, _Draft) else _draft(self._read(part))

    def _own(self, part: _Part) -> _Draft:
        """Return a page that may be changed."""
        return self._look(part)


def _draft(page: Page) -> _Draft:
    return _Draft([*page.keys], [*page.values], [*page.below])
