"""Which nodes of a pipeline run at its top, and which inside the branches of a parallel node."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from everstep.graph.pipelines.choice import Way
from everstep.graph.pipelines.reading import Pipeline


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
class Level:
    """The nodes that are driven side by side with each other: the top of a pipeline, or one branch."""

    nodes: tuple[str, ...]
    """In the order they are declared."""
    regions: dict[str, Region]

    def region_of(self, node: str) -> Region | None:
        """Return the first region in which a node lies that is not at this level itself."""
        return next((region for region in self.regions.values() if node in region.inside), None)


def branches_of(pipeline: Pipeline, node: str) -> list[Way]:
    """Return the edges along which a parallel node forks; those with a condition say what comes after it."""
    seen: dict[str, Way] = {}
    for way in pipeline.specs[node].ways:
        if way.condition is None and not way.is_for_failure:
            seen.setdefault(way.target, way)
    return list(seen.values())


def level_of(pipeline: Pipeline, entry: str, stop: str = "") -> Level:
    """Return what runs from a node on, up to but without `stop`; what branches hold is left to them."""
    found: dict[str, None] = {}
    regions: dict[str, Region] = {}
    _walk(pipeline, [entry], stop, found, regions)
    while True:
        inside = frozenset().union(*(region.inside for region in regions.values()))
        more = [
            target
            for name in found
            for target in pipeline.specs[name].returns
            if target in pipeline.specs and target not in found and target not in inside and target != stop
        ]
        if not more:
            break
        if stop:  # from inside a branch nothing leads out of it
            more = [target for target in more if _stays_inside(pipeline, target, entry, stop)]
            if not more:
                break
        _walk(pipeline, more, stop, found, regions)
    return Level(tuple(sorted(found, key=pipeline.order.__getitem__)), regions)


def _stays_inside(pipeline: Pipeline, target: str, entry: str, stop: str) -> bool:
    return target in reach(pipeline, [entry], stop)


def _walk(
    pipeline: Pipeline, entries: Iterable[str], stop: str, found: dict[str, None], regions: dict[str, Region]
) -> None:
    todo = deque(entries)
    while todo:
        name = todo.popleft()
        if name in found or name == stop:
            continue
        found[name] = None
        ways = pipeline.specs[name].ways
        if pipeline.kinds[name] != "parallel":
            todo.extend(way.target for way in ways)
            continue
        region = regions[name] = _region(pipeline, name, stop)
        forks = set(region.heads)
        if region.meets_at:
            todo.append(region.meets_at)
        todo.extend(way.target for way in ways if way.target not in forks)


def _region(pipeline: Pipeline, node: str, stop: str) -> Region:
    heads = tuple(way.target for way in branches_of(pipeline, node))
    meets_at = _meeting(pipeline, node, heads, stop)
    inside = reach(pipeline, [head for head in heads if head != meets_at], meets_at, but=node)
    return Region(node, heads, meets_at, frozenset(inside))


def _meeting(pipeline: Pipeline, node: str, heads: tuple[str, ...], stop: str) -> str:
    """Return the nearest node that every branch comes to, a fan-in if there is one."""
    spreads = [_Spread(pipeline, head, node) for head in heads]
    count: Counter[str] = Counter()
    far: dict[str, int] = {}
    steps = 0
    # All go on step by step together, so the first fan-in that all have come to is the nearest.
    while any(spread.edge for spread in spreads):
        for spread in spreads:
            count.update(spread.edge)
        met = [name for spread in spreads for name in spread.edge if count[name] == len(heads)]
        far.update((name, steps) for name in met if name not in far)
        fans = [name for name in met if pipeline.kinds[name] == "fan_in"]
        if fans:
            return min(fans)
        for spread in spreads:
            spread.go_on()
        steps += 1
    if len(heads) < 2:
        return stop if stop in far else ""
    if stop in far:
        return stop
    behind = far.keys() - set(heads) or far.keys()
    return min(behind, key=lambda name: (far[name], name), default="")


class _Spread:
    """What a branch comes to, step by step."""

    def __init__(self, pipeline: Pipeline, head: str, but: str) -> None:
        self._pipeline = pipeline
        self._found = {head, but}
        self.edge = [head]
        """What it came to with the last step."""

    def go_on(self) -> None:
        further: dict[str, None] = {}
        for name in self.edge:
            further.update((way.target, None) for way in self._pipeline.specs[name].ways)
        self.edge = [name for name in further if name not in self._found]
        self._found.update(self.edge)


def reach(pipeline: Pipeline, entries: Iterable[str], stop: str, but: str = "") -> set[str]:
    """Return what can be reached along edges without passing `stop` or `but`."""
    found: set[str] = set()
    todo = [entry for entry in entries if entry not in (stop, but)]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        todo.extend(way.target for way in pipeline.specs[name].ways if way.target not in (stop, but))
    return found
