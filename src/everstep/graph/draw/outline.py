"""The order in which the nodes of a flow are shown: upstream first, what a gate leads to below the gate."""

from __future__ import annotations

from typing import NamedTuple

from everstep.graph.author.node import END, Gate
from everstep.graph.compile.plan import Plan


class OutlinePlace(NamedTuple):
    """Where a node stands in the outline."""

    name: str
    """Its path without visits and items."""
    depth: int


def outline(plan: Plan) -> list[OutlinePlace]:
    """List every node once, each after those it waits for; loops are entered where they begin.

    What is inside a flow stands below it, unless the flow is gone over item by item.
    """
    places: list[OutlinePlace] = []
    todo = [(plan, "", place) for place in reversed(_of_one(plan))]
    while todo:
        around, prefix, place = todo.pop()
        places.append(OutlinePlace(prefix + place.name, place.depth))
        child = around.children.get(around.index[place.name])
        if child is not None and child.over is None:
            inner = [p._replace(depth=p.depth + place.depth + 1) for p in _of_one(child.plan)]
            todo += [(child.plan, f"{prefix}{place.name}/", p) for p in reversed(inner)]
    return places


def order_within(plan: Plan) -> list[int]:
    """Return the nodes of one flow in that order, by number."""
    return [plan.index[place.name] for place in _of_one(plan)]


def _of_one(plan: Plan) -> list[OutlinePlace]:
    order = sorted(_upstream_first(plan), key=lambda i: i in plan.tasks)
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
    places: list[OutlinePlace] = []
    stack = [(i, 0) for i in reversed(order) if i not in nested]
    while stack:
        i, depth = stack.pop()
        places.append(OutlinePlace(plan.paths[i], depth))
        stack.extend(
            (child, depth + 1) for child in sorted(children.get(i, ()), key=rank.__getitem__, reverse=True)
        )
    return places


def _upstream_first(plan: Plan) -> list[int]:
    """Sort by dependencies, among equals by the order in the flow; `blockers` leaves out the way back."""
    count = len(plan.nodes)
    pending = (1 << count) - 1
    behind: dict[int, list[int]] = {}
    """By a node that stands in their way: those that are looked at again once it is placed."""
    order: list[int] = []
    placed: set[int] = set()
    lowest, asked = 0, list(range(count))
    while len(order) < count:
        free: list[int] = []
        for i in asked:
            in_its_way = plan.blockers[i] & pending & ~(1 << i)
            if in_its_way:
                behind.setdefault(in_its_way.bit_length() - 1, []).append(i)
            elif i not in placed:
                free.append(i)
        while not free and lowest in placed:
            lowest += 1
        free = sorted(free) or [lowest]
        order += free
        placed.update(free)
        for i in free:
            pending &= ~(1 << i)
        asked = [j for i in free for j in behind.pop(i, ())]
    return order
