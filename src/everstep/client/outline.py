"""Where a run stands in the outline of its flow: what ran, what comes next, what waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from everstep.client.projection import NodeLine, Projection
from everstep.client.views import RunState
from everstep.graph.author.node import Node
from everstep.graph.compile.plan import Plan
from everstep.graph.draw.outline import outline
from everstep.model.address import plain_of
from everstep.model.enums import Status


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
