"""The order in which the nodes of a flow are shown: upstream first, what a gate leads to below the gate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from everstep.client.projection import NodeLine, Projection
from everstep.client.views import RunState
from everstep.graph.author.node import END, Gate, Node
from everstep.graph.compile.plan import Plan
from everstep.model.address import plain_of
from everstep.model.enums import Status


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


def node_at(plan: Plan, path: str) -> Node | None:
    """Return the node at a path without visits and items."""
    found = plan_around(plan, path)
    i = found.index.get(path.rpartition("/")[2]) if found is not None else None
    return found.nodes[i] if found is not None and i is not None else None


def plan_around(plan: Plan, path: str) -> Plan | None:
    """Return the flow that a node is in."""
    for name in path.split("/")[:-1]:
        child = plan.children.get(plan.index.get(name, -1))
        if child is None:
            return None
        plan = child.plan
    return plan


def split_pending(plan: Plan, pending: Iterable[str]) -> tuple[list[str], list[str]]:
    """Tell the nodes that come next from those that wait; of a flow under way, those inside it."""
    scopes: dict[str, list[str]] = {}
    for path in dict.fromkeys(pending):
        head, slash, name = path.rpartition("/")
        if "#" not in name:
            scopes.setdefault(head + slash, []).append(name)
    open_flows = {_visited(prefix[:-1]) for prefix in scopes if prefix}
    coming: list[str] = []
    waiting: list[str] = []
    for prefix, names in scopes.items():
        flow = plan_around(plan, f"{plain_of(prefix)}-")
        if flow is None:
            continue
        mask = sum(1 << flow.index[name] for name in names)
        for name in names:
            i = flow.index[name]
            if flow.blockers[i] & mask & ~(1 << i):
                waiting.append(prefix + name)
            elif prefix + name not in open_flows:
                coming.append(prefix + name)
    return coming, waiting


def _visited(path: str) -> str:
    """Return the path of a flow's node, whichever visit and item its last part names."""
    head, slash, name = path.rpartition("/")
    return head + slash + plain_of(name)


def next_of(state: RunState) -> tuple[list[str], list[str]]:
    """Return the nodes that came next, without those that wait for an answer, and those that stood behind."""
    coming, behind = split_pending(state.plan, state.frontier.pending)
    asking = {path for path, node in state.nodes.items() if node.wait is not None}
    return [path for path in coming if path not in asking], behind


class Outline(NamedTuple):
    """The nodes of a run in order, and where those stand that are still to come."""

    nodes: list[NodeLine]
    pending: tuple[str, ...]
    """The paths that are due or wait, as the frontier has them."""
    coming: list[str]
    """Those among them that come next."""
    waiting: list[str]

    @property
    def due(self) -> set[str]:
        """The nodes that are still to come, by their paths without visits and items."""
        return set(map(plain_of, self.pending))


def standing_of(told: Projection, state: RunState) -> Outline:
    """List the nodes that ran and those that did not, as `show` does."""
    is_over = state.status in (Status.COMPLETED, Status.CANCELLED)
    pending = () if is_over else state.frontier.pending
    coming, waiting = next_of(state) if pending else ([], [])
    plan = [] if state.part is not None else [place.name for place in outline(state.plan)]
    return Outline(told.nodes([*map(plain_of, (*coming, *waiting)), *plan]), pending, coming, waiting)


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
