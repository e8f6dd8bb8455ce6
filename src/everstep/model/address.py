"""Addresses of steps: `node@2`, `rag@2#7/inner`, and the recorded paths they mean.

A record leaves a first visit out of a path. An address may leave out any visit, and then means the last one;
written in full, as `Address.of` does, it means one visit for good. Only the first visit of an item is left
out even then, as nearly every item has just one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from everstep.model.records import RESULT

_SEGMENT = r"(?P<name>[^/@#]+)(?:@(?P<visit>\d{1,9}))?(?:#(?P<item>\d{1,9}))?(?:@(?P<turn>\d{1,9}))?"
_ITEM = re.compile(r"#\d+")
_VISIT_OR_ITEM = re.compile(r"[@#]\d+")


class Segment(NamedTuple):
    """One node on the way, which visit to it, and which item of a map."""

    name: str
    visit: int | None = None
    item: int | None = None
    turn: int | None = None
    """Which visit of that item, if it is not the last node on the way: durable calls of an item have it."""

    def __str__(self) -> str:
        visit = "" if self.visit is None else f"@{self.visit}"
        turn = "" if self.turn is None else f"@{self.turn}"
        return self.name + visit + ("" if self.item is None else f"#{self.item}") + turn


class Address(NamedTuple):
    """Where a step is: the flows around it, the node, and which visit."""

    segments: tuple[Segment, ...]
    visit: int | None = None
    """Which visit of an item; of a node that is no item the segment says it."""

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """Read an address; none if it cannot be one."""
        found = [re.fullmatch(_SEGMENT, part) for part in text.split("/")]
        segments, turn = [], None
        for match in found:
            if match is None:
                return None
            if turn is not None:
                if match["name"][0] != RESULT:
                    return None
                segments[-1] = segments[-1]._replace(turn=turn)
            visit, item, turn = (_number(match[key]) for key in ("visit", "item", "turn"))
            if turn is not None and item is None:
                return None
            segments.append(Segment(match["name"], visit, item))
        return cls(tuple(segments), turn)

    @classmethod
    def of(cls, path: str, visit: int) -> Address:
        """Return the address of a recorded step in full: `rag@1/inner@2`."""
        read = cls.parse(path)
        assert read is not None, path
        whole = [Segment(s.name, s.visit or 1, s.item, s.turn) for s in read.segments]
        if whole[-1].item is not None:
            return cls(tuple(whole), visit)
        whole[-1] = Segment(whole[-1].name, visit)
        return cls(tuple(whole))

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes on the way, whichever visit and item."""
        return tuple(segment.name for segment in self.segments)

    def covers(self, other: Address) -> bool:
        """True if an address in full is one that this one may mean."""
        return (
            len(self.segments) == len(other.segments)
            and (self.visit is None or self.visit == other.visit)
            and all(
                mine.name == its.name
                and mine.item == its.item
                and (mine.visit or its.visit) == its.visit
                and (mine.turn or its.turn) == its.turn
                for mine, its in zip(self.segments, other.segments, strict=True)
            )
        )

    def __str__(self) -> str:
        """Write it; that an item is visited once need not be said."""
        turn = f"@{self.visit}" if self.visit is not None and self.visit > 1 else ""
        return "/".join(map(str, self.segments)) + turn


class Part(NamedTuple):
    """One visit to a node of a run, or one item of a map, with everything inside it."""

    path: str
    """As records have it."""
    visit: int
    """Which visit; 0 for all of an item's."""

    @property
    def base(self) -> str:
        """What the paths and names inside begin with."""
        return self.path + (f"@{self.visit}" if self.visit > 1 else "")

    def holds(self, path: str, visit: int | None = None) -> bool:
        """True for a step of this visit, and for one inside it; without a visit, for any of the node's."""
        return self.has_inside(path) or (
            path == self.path and (not self.visit or visit in (None, self.visit))
        )

    def has_inside(self, name: str) -> bool:
        """True for the path of a step, or the whole name of a value, that lies inside."""
        return name.startswith((f"{self.base}/", f"{self.base}#"))

    def within(self, name: str) -> str:
        """Return the whole name of something inside, or of the part itself if no name is given."""
        return f"{self.base}/{name}" if name else self.base


def part_of(address: Address, path: str, visit: int) -> Part | None:
    """Return the part that an address means if a recorded step is it or lies in it; none if it does not."""
    whole, depth = Address.of(path, visit), len(address.segments)
    if depth > len(whole.segments) or any(
        mine.name != its.name
        or (mine.visit or its.visit) != its.visit
        or (mine.item != its.item and (k < depth - 1 or mine.item is not None))
        for k, (mine, its) in enumerate(zip(address.segments, whole.segments[:depth], strict=True))
    ):
        return None
    last = address.segments[-1]
    if last.item is not None and address.visit not in (
        None,
        whole.visit if depth == len(whole.segments) else 0,
    ):
        return None
    above = [_recorded(segment) for segment in whole.segments[: depth - 1]]
    found = whole.segments[depth - 1]
    if last.item is not None:
        return Part("/".join([*above, _recorded(found)]), address.visit or 0)
    return Part("/".join([*above, found.name]), found.visit or 1)


def _recorded(segment: Segment) -> str:
    """Write a segment as records do: a first visit is left out."""
    return str(segment._replace(visit=segment.visit if (segment.visit or 1) > 1 else None))


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def find(steps: Iterable[tuple[str, int]], wanted: str) -> tuple[str, int] | None:
    """Return the recorded path and visit that an address means; what it leaves out is the last visit."""
    address = Address.parse(wanted)
    if address is None:
        return None
    key: tuple[Any, ...] = ()
    found = None
    for path, visit in steps:
        if path[0] == "@":
            continue
        whole = Address.of(path, visit)
        if address.covers(whole):
            other = tuple((s.visit or 0, s.turn or 0) for s in whole.segments), whole.visit or 0
            if found is None or other >= key:
                key, found = other, (path, visit)
    return found


def map_of(path: str) -> str | None:
    """Return the visit of the outermost map that a path leads into: `rag@2` for `rag@2#7/inner`."""
    head, mark, _ = path.partition("#")
    return head if mark else None


def item_of(path: str) -> str | None:
    """Return the item of the outermost map that a path leads into: `rag@2#7` for `rag@2#7/inner`."""
    head, mark, rest = path.partition("#")
    return f"{head}#{rest.partition('/')[0]}" if mark else None


def maps_around(path: str) -> list[tuple[str, str]]:
    """Return every map that a path leads into with its item, the outermost first.

    `rag@2`, `rag@2#7` and `rag@2#7/each`, `rag@2#7/each#1` for `rag@2#7/each#1/inner`.
    """
    first = path.find("#")
    if first < 0:
        return []
    if path.find("@", first) < 0 and path.find("#", first + 1) < 0:  # as most: no expression is needed
        end = path.find("/", first)
        return [(path[:first], path if end < 0 else path[:end])]
    return [(path[: found.start()], path[: found.end()]) for found in _ITEM.finditer(path)]


def plain_of(path: str) -> str:
    """Return a path without visits and items: where it stands in the flow."""
    return _VISIT_OR_ITEM.sub("", path) if "@" in path or "#" in path else path


def unvisited(path: str) -> str:
    """Return a path without visits."""
    return re.sub(r"@\d+", "", path)
