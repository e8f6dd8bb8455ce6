"""Where branches of a pipeline meet, which nodes run at its top, and which inside branches.

The linter and the builder both ask here, so what is said of branches is what is run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from everstep.frontends.dot.attributes import Attributes
from everstep.frontends.dot.resolve import Digraph, Edge, ResolvedNode
from everstep.frontends.pipelines.choice import Way

MOST_LOOKED_AT: Final = 500_000
"""Nodes that are looked at, each as often as a branch comes to it, before a digraph is too entangled."""


class TooEntangled(Exception):
    """Where the branches of a node meet was not found in time."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node


@dataclass(frozen=True)
class Region:
    """What a parallel node spans: its branches, and the node where they meet."""

    node: str
    heads: tuple[str, ...]
    """Where the branches begin, in the order of the edges."""
    meets_at: str
    """Empty if they never meet."""
    inside: frozenset[str]


@dataclass(frozen=True)
class RegionLevel:
    """The nodes that are driven side by side with each other: the top of a pipeline, or one branch."""

    nodes: tuple[str, ...]
    """In the order they are declared."""
    regions: dict[str, Region]


class Wiring:
    """What leads where in a digraph, as far as branches are concerned."""

    def __init__(self, digraph: Digraph, kinds: Mapping[str, str]) -> None:
        self.kinds = kinds
        self.order = {name: number for number, name in enumerate(digraph.nodes)}
        self.after: dict[str, dict[str, None]] = {name: {} for name in digraph.nodes}
        """Where the edges of each node lead."""
        self.heads: dict[str, dict[str, None]] = {n: {} for n, kind in kinds.items() if kind == "parallel"}
        """Where the branches of each parallel node begin."""
        self.returns = {n.id: returns_of(n, digraph.attributes) for n in digraph.nodes.values()}
        """Where a run goes from each node if it fails there and no edge is for that."""
        self._left = MOST_LOOKED_AT
        for edge in digraph.edges:
            self.after[edge.tail][edge.head] = None
            if edge.tail in self.heads and is_branch(edge):
                self.heads[edge.tail][edge.head] = None

    def level(self, entry: str, stop: str = "") -> RegionLevel:
        """Return what runs from a node on, up to but without `stop`; what branches hold is left to them."""
        found: dict[str, None] = {}
        regions: dict[str, Region] = {}
        self._walk([entry], stop, found, regions)
        while True:
            inside = frozenset().union(*(region.inside for region in regions.values()))
            more = [
                target
                for name in found
                for target in self.returns[name]
                if target in self.after and target not in found and target not in inside and target != stop
            ]
            if more and stop:  # from inside a branch nothing leads out of it
                reached = self.reach([entry], stop)
                more = [target for target in more if target in reached]
            if not more:
                break
            self._walk(more, stop, found, regions)
        return RegionLevel(tuple(sorted(found, key=self.order.__getitem__)), regions)

    def _walk(
        self, entries: Iterable[str], stop: str, found: dict[str, None], regions: dict[str, Region]
    ) -> None:
        todo = deque(entries)
        while todo:
            name = todo.popleft()
            if name in found or name == stop:
                continue
            found[name] = None
            if name not in self.heads:
                todo.extend(self.after[name])
                continue
            region = regions[name] = self.region(name, stop)
            if region.meets_at:
                todo.append(region.meets_at)
            todo.extend(target for target in self.after[name] if target not in self.heads[name])

    def region(self, node: str, stop: str = "") -> Region:
        """Return what a parallel node spans, if nothing goes on behind `stop`."""
        heads = tuple(self.heads[node])
        meets_at = self._meeting(node, heads, stop)
        inside = self.reach([head for head in heads if head != meets_at], meets_at, but=node)
        return Region(node, heads, meets_at, frozenset(inside))

    def _meeting(self, node: str, heads: tuple[str, ...], stop: str) -> str:
        """Return the nearest node that every branch comes to, a fan-in if there is one."""
        spreads = [_Spread(self.after, head, node) for head in heads]
        count: Counter[str] = Counter()
        far: dict[str, int] = {}
        steps = 0
        # All go on step by step together, so the first fan-in that all have come to is the nearest.
        while any(spread.edge for spread in spreads):
            for spread in spreads:
                count.update(spread.edge)
                self._look(node, len(spread.edge))
            met = [name for spread in spreads for name in spread.edge if count[name] == len(heads)]
            far.update((name, steps) for name in met if name not in far)
            fans = [name for name in met if self.kinds[name] == "fan_in"]
            if fans:
                return min(fans)
            for spread in spreads:
                spread.go_on()
            steps += 1
        if stop in far:
            return stop
        if len(heads) < 2:
            return ""
        behind = far.keys() - set(heads) or far.keys()
        return min(behind, key=lambda name: (far[name], name), default="")

    def _look(self, node: str, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TooEntangled(node)

    def reach(self, entries: Iterable[str], stop: str, but: str = "") -> set[str]:
        """Return what can be reached along edges without passing `stop` or `but`."""
        found: set[str] = set()
        todo = [entry for entry in entries if entry not in (stop, but)]
        while todo:
            name = todo.pop()
            if name in found:
                continue
            found.add(name)
            todo.extend(target for target in self.after[name] if target not in (stop, but))
        self._look(but or stop, len(found))
        return found


class _Spread:
    """What a branch comes to, step by step."""

    def __init__(self, after: Mapping[str, Iterable[str]], head: str, but: str) -> None:
        self._after = after
        self._found = {head, but}
        self.edge = [head]
        """What it came to with the last step."""

    def go_on(self) -> None:
        further = dict.fromkeys(target for name in self.edge for target in self._after[name])
        self.edge = [name for name in further if name not in self._found]
        self._found.update(self.edge)


def is_branch(edge: Edge) -> bool:
    """Say whether a parallel node forks along an edge; one with a condition says what comes after it."""
    if edge.attributes.text("condition", "").strip():
        return False
    return not Way(edge.head, edge.attributes.text("label", "")).is_for_failure


def returns_of(node: ResolvedNode, graph: Attributes) -> tuple[str, ...]:
    """Return where a run goes when a stage fails and no edge is for that, the first first."""
    return tuple(dict.fromkeys(_targets(node, graph)))


def _targets(node: ResolvedNode, graph: Attributes) -> Iterator[str]:
    for key in ("retry_target", "fallback_retry_target"):
        if target := node.attributes.text(key, ""):
            yield target
    for key in ("retry_target", "fallback_retry_target", "fallback"):
        if (target := graph.text(key, "")) and target != node.id:
            yield target
