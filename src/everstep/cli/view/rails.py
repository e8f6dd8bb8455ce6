"""A graph drawn with lines beside a list of its nodes, upstream first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from everstep.graph.draw.layers import topological

MOST_RAILS = 24
"""Beyond that a picture on the terminal is unreadable; the nodes are listed without lines."""


class Row(NamedTuple):
    """A line of the drawing: rails, and a node in one of them if it is a node's line."""

    left: str
    node: int | None
    right: str


class Drawn(NamedTuple):
    """A graph as rows, and the edges that close its loops."""

    rows: list[Row]
    back: list[tuple[int, int]]


def rails(after: Sequence[Sequence[int]]) -> Drawn:
    """Draw a graph, given who follows each node."""
    order, forward, back = topological(after)
    rows: list[Row] = []
    lanes: list[int | None] = []
    """The node that each rail leads to."""
    for n in order:
        mine = [k for k, to in enumerate(lanes) if to == n]
        at = mine[0] if mine else _free(lanes)
        for k in mine[1:]:
            lanes[k] = None
        if len(mine) > 1:
            rows.append(Row(_bridge(lanes, at, dict.fromkeys(mine[1:], "┘")), None, ""))
        lanes[at] = n
        rows.append(Row(_rails(lanes[:at]), n, _rails([None, *lanes[at + 1 :]])))
        turns = _lead_on(lanes, at, forward[n])
        if turns:
            rows.append(Row(_bridge(lanes, at, turns), None, ""))
        while lanes and lanes[-1] is None:
            lanes.pop()
        if len(lanes) > MOST_RAILS:
            return Drawn([Row("", n, "") for n in order], back)
    return Drawn(rows, back)


def _lead_on(lanes: list[int | None], at: int, targets: Sequence[int]) -> dict[int, str]:
    """Let rails lead from a node to those that follow it; returns the rails it turns to, with their signs."""
    fresh = [t for t in targets if t not in lanes]
    known = [lanes.index(t) for t in targets if t in lanes]
    lanes[at] = fresh[0] if fresh else None
    turns = {k: "┤" if k > at else "├" for k in known}
    for t in fresh[1:]:
        k = _free(lanes, at + 1)
        lanes[k] = t
        turns[k] = "┐"
    return turns


def _free(lanes: list[int | None], start: int = 0) -> int:
    for k in range(start, len(lanes)):
        if lanes[k] is None:
            return k
    lanes.extend([None] * (max(start - len(lanes), 0) + 1))
    return len(lanes) - 1


def _rails(lanes: Sequence[int | None]) -> str:
    return "".join("  " if to is None else "│ " for to in lanes)


def _bridge(lanes: Sequence[int | None], at: int, turns: dict[int, str]) -> str:
    """Draw the lines between a node's rail and others that it comes from or turns to."""
    first, last = min(at, *turns), max(at, *turns)
    goes_on = lanes[at] is not None
    signs: list[str] = []
    for k in range(max(len(lanes), last + 1)):
        is_rail = k < len(lanes) and lanes[k] is not None
        if k == at:
            left, right = first < at, last > at
            sign = {(True, True): "┼┴", (True, False): "┤┘", (False, True): "├└"}[left, right][not goes_on]
        elif k in turns:
            sign = turns[k] if k in (first, last) else {"┐": "┬", "┘": "┴"}.get(turns[k], "┼")
        elif first < k < last:
            sign = "┼" if is_rail else "─"
        else:
            sign = "│" if is_rail else " "
        signs.append(sign + ("─" if first <= k < last else " "))
    return "".join(signs)
