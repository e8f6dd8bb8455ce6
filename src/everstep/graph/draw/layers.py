"""Where to draw the nodes of a graph: in which layer, and in which order within it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST_BENDS = 20_000
"""With more of them edges go straight, whatever they cross."""


class NodeLayers(NamedTuple):
    """Nodes in layers, each below all that lead to it."""

    rows: list[list[int]]
    """The layers from the top. Numbers from `nodes` on are bends of edges that pass a layer."""
    links: list[tuple[int, int]]
    """What to draw between neighbouring layers."""
    back: list[tuple[int, int]]
    """Edges that close a loop, from a node to one above it."""
    nodes: int


def layered(after: Sequence[Sequence[int]]) -> NodeLayers:
    """Lay a graph out, given who follows each node."""
    forward, back = _cut_loops(after)
    layer = _depths(forward)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for n, depth in enumerate(layer):
        rows[depth].append(n)
    links: list[tuple[int, int]] = []
    bends = len(after)
    passed = sum(layer[v] - layer[u] - 1 for u, targets in enumerate(forward) for v in targets)
    for u, targets in enumerate(forward):
        for v in targets:
            here = u
            for depth in range(layer[u] + 1, layer[v]) if passed <= MOST_BENDS else ():
                rows[depth].append(bends)
                links.append((here, bends))
                here, bends = bends, bends + 1
            links.append((here, v))
    _untangle(rows, links)
    return NodeLayers(rows, links, back, len(after))


def topological(after: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]], list[tuple[int, int]]]:
    """Return the nodes upstream first, the edges that lead on, and those that close a loop."""
    forward, back = _cut_loops(after)
    layer = _depths(forward)
    return sorted(range(len(after)), key=layer.__getitem__), forward, back


def _cut_loops(after: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Tell edges that lead on from those that lead back to where the walk came from."""
    new, open_, done = 0, 1, 2
    state = [new] * len(after)
    forward: list[list[int]] = [[] for _ in after]
    back: list[tuple[int, int]] = []
    led = {v for targets in after for v in targets}
    for root in sorted(range(len(after)), key=lambda n: n in led):
        if state[root] != new:
            continue
        state[root] = open_
        work = [(root, iter(after[root]))]
        while work:
            here, targets = work[-1]
            for nxt in targets:
                if state[nxt] == open_:
                    back.append((here, nxt))
                    continue
                forward[here].append(nxt)
                if state[nxt] == new:
                    state[nxt] = open_
                    work.append((nxt, iter(after[nxt])))
                    break
            else:
                state[here] = done
                work.pop()
    return forward, back


def _depths(forward: Sequence[Sequence[int]]) -> list[int]:
    """Return the layer of each node: one below the lowest that leads to it."""
    waiting = [0] * len(forward)
    for targets in forward:
        for v in targets:
            waiting[v] += 1
    depth = [0] * len(forward)
    todo = [n for n, w in enumerate(waiting) if not w]
    while todo:
        u = todo.pop()
        for v in forward[u]:
            depth[v] = max(depth[v], depth[u] + 1)
            waiting[v] -= 1
            if not waiting[v]:
                todo.append(v)
    return depth


def _untangle(rows: list[list[int]], links: Sequence[tuple[int, int]]) -> None:
    """Order each layer by where the neighbours stand, down and up a few times."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for u, v in links:
        above.setdefault(v, []).append(u)
        below.setdefault(u, []).append(v)
    place = {n: k for row in rows for k, n in enumerate(row)}
    for sweep in range(4):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            means = {n: sum(place[m] for m in near[n]) / len(near[n]) if n in near else place[n] for n in row}
            row.sort(key=means.__getitem__)
            place.update((n, k) for k, n in enumerate(row))
