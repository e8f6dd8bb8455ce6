"""Whether the branches of a parallel node meet, and at the fan-in that each of them comes to first."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from everstep.dot.resolve import Digraph, Edge
from everstep.graph.pipelines import choice

_MOST_SEARCHED: Final = 32


class Way(msgspec.Struct):
    """What lies ahead of a node, up to the first fan-in."""

    fan_in: str | None = None
    """The one that comes first; None if there is none."""
    other: str | None = None
    """Another one that can come first instead."""
    end: str | None = None
    """A node at which the pipeline can end before any fan-in."""

    def add(self, ahead: Way) -> bool:
        """Take over what lies ahead of a node further on; say whether that was new."""
        before = (self.fan_in, self.other, self.end)
        for fan_in in (ahead.fan_in, ahead.other):
            if self.fan_in is None:
                self.fan_in = fan_in
            elif fan_in not in (None, self.fan_in) and self.other is None:
                self.other = fan_in
        if self.end is None:
            self.end = ahead.end
        return before != (self.fan_in, self.other, self.end)


class Meeting(msgspec.Struct, frozen=True):
    """How the branches of a parallel node come together."""

    fan_in: str | None
    """Where all of them come first; None if they do not come to one and the same."""
    ways: Mapping[str, Way]
    """For each first node of a branch what lies ahead of it."""
    is_met: bool
    """True if there is a node that all of them come to; of one alone, if that is a fan-in."""


def meetings_of(digraph: Digraph, kinds: Mapping[str, str]) -> dict[str, Meeting]:
    """Return for each parallel node where its branches meet; linear in the size of the digraph.

    A parallel node inside a branch is passed by going on behind its own fan-in. Its edges with a condition,
    or labelled for failures, are no branches: they say what comes after it.
    """
    return _Walk(digraph, kinds).meetings()


def is_branch(edge: Edge) -> bool:
    """Say whether a parallel node forks along an edge."""
    if edge.attributes.text("condition", "").strip():
        return False
    return not choice.Way(edge.head, edge.attributes.text("label", "")).is_for_failure


class _Walk:
    """Every node learns what lies ahead of it until nothing new is learned; each can learn three things."""

    def __init__(self, digraph: Digraph, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._after: dict[str, dict[str, None]] = {name: {} for name in digraph.nodes}
        self._before: dict[str, dict[str, None]] = {name: {} for name in digraph.nodes}
        self._heads: dict[str, dict[str, None]] = {}
        """Where the branches of each parallel node begin."""
        for edge in digraph.edges:
            self._after[edge.tail][edge.head] = None
            self._before[edge.head][edge.tail] = None
            if kinds[edge.tail] == "parallel" and is_branch(edge):
                self._heads.setdefault(edge.tail, {})[edge.head] = None
        self._ways = {name: Way() for name in digraph.nodes}
        self._searched = 0
        self._inside = {name: Way() for name, kind in kinds.items() if kind == "parallel"}
        """What all branches of a parallel node come to."""
        self._waiting: dict[str, list[str]] = {}
        """Parallel nodes by what comes behind their fan-in."""

    def meetings(self) -> dict[str, Meeting]:
        todo = deque(self._first())
        while todo:
            ahead = todo.popleft()
            way = self._ways[ahead]
            for name in self._before[ahead]:
                if ahead in self._heads.get(name, ()):
                    todo.extend(self._enters(name, way))
                elif self._kinds[name] not in ("fan_in", "exit") and self._ways[name].add(way):
                    todo.append(name)
            todo.extend(name for name in self._waiting.get(ahead, ()) if self._ways[name].add(way))
        return {name: self._meeting(name) for name in self._inside}

    def _first(self) -> list[str]:
        known = []
        for name, way in self._ways.items():
            if self._kinds[name] == "fan_in":
                way.fan_in = name
            elif self._kinds[name] == "exit" or not self._after[name]:
                way.end = name
            else:
                continue
            known.append(name)
        return known

    def _enters(self, parallel: str, way: Way) -> list[str]:
        """Note what a branch comes to; return the parallel node if that tells what lies behind it."""
        inside = self._inside[parallel]
        was_open = inside.fan_in is None
        inside.add(way)
        if not was_open or inside.fan_in is None:
            return []
        changes = []
        for further in self._after[inside.fan_in]:
            self._waiting.setdefault(further, []).append(parallel)
            changes.append(self._ways[parallel].add(self._ways[further]))
        return [parallel] if any(changes) else []

    def _meeting(self, parallel: str) -> Meeting:
        ways = {first: self._ways[first] for first in self._heads.get(parallel, ())}
        met = {way.fan_in for way in ways.values()} | {way.other for way in ways.values() if way.other}
        fan_in = met.pop() if len(met) == 1 else None
        is_met = fan_in is not None or (len(ways) > 1 and self._meets_elsewhere(parallel))
        return Meeting(fan_in, ways, is_met)

    def _meets_elsewhere(self, parallel: str) -> bool:
        """Say whether all branches come to one node, whatever it is; the search is not made without end."""
        self._searched += 1
        if self._searched > _MOST_SEARCHED:
            return True
        common: set[str] | None = None
        for first in list(self._heads.get(parallel, ()))[:_MOST_SEARCHED]:
            reached = {first}
            todo = [first]
            while todo:
                new = self._after[todo.pop()].keys() - reached - {parallel}
                reached |= new
                todo.extend(new)
            common = reached if common is None else common & reached
        return bool(common)
