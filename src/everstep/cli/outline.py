"""The order in which the nodes of a flow are shown: upstream first, what a gate leads to below the gate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from everstep.graph.node import END, Gate
from everstep.graph.plan import Plan


class Place(NamedTuple):
    """Where a node stands in the outline."""

    name: str
    depth: int


def outline(plan: Plan) -> list[Place]:
    """List every node once, each after those it waits for; loops are entered where they begin."""
    order = _upstream_first(plan)
    rank = {i: k for k, i in enumerate(order)}
    below: dict[int, list[int]] = {}
    for i in order:
        gate = plan.nodes[i]
        if isinstance(gate, Gate):
            for name in gate.targets:
                target = plan.index.get(name) if name != END else None
                if target is not None and rank[target] > rank[i]:
                    below.setdefault(target, []).append(i)
    children: dict[int, list[int]] = {}
    for target, gates in below.items():
        # Led to by two gates, it belongs to neither.
        if len(gates) == 1:
            children.setdefault(gates[0], []).append(target)
    nested = {i for targets in children.values() for i in targets}
    places: list[Place] = []
    stack = [(i, 0) for i in reversed(order) if i not in nested]
    while stack:
        i, depth = stack.pop()
        places.append(Place(plan.paths[i], depth))
        stack.extend(
            (child, depth + 1) for child in sorted(children.get(i, ()), key=rank.__getitem__, reverse=True)
        )
    return places


def split_pending(plan: Plan, pending: Iterable[str]) -> tuple[list[str], list[str]]:
    """Tell the nodes that come next from those that wait for them."""
    names = list(dict.fromkeys(pending))
    mask = sum(1 << plan.index[name] for name in names)
    coming: list[str] = []
    waiting: list[str] = []
    for name in names:
        i = plan.index[name]
        (waiting if plan.blockers[i] & mask & ~(1 << i) else coming).append(name)
    return coming, waiting


def _upstream_first(plan: Plan) -> list[int]:
    """Sort by dependencies, among equals by the order in the flow; `blockers` leaves out the way back."""
    left = set(range(len(plan.nodes)))
    order: list[int] = []
    while left:
        pending = sum(1 << i for i in left)
        free = [i for i in sorted(left) if not plan.blockers[i] & pending & ~(1 << i)] or [min(left)]
        order += free
        left.difference_update(free)
    return order
