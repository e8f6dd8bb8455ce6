"""How much of a flow survives a crash, and where a run of it can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from everstep.graph.author.flow import Flow
from everstep.graph.author.profiles import Profile
from everstep.graph.check.validate import HasOffers, Offers, mode_on
from everstep.graph.compile.leaves import Leaf, Leaves
from everstep.model.breakers import Breaker
from everstep.model.budgets import Budget, plain
from everstep.model.durability import Durability
from everstep.model.enums import Flush, Mode


class Segment(NamedTuple):
    """Nodes that hang together, and behind each of which a run could go on."""

    nodes: tuple[str, ...]
    points: tuple[str, ...]
    """Those after which a checkpoint is certainly written, so a resume goes on behind the last of them."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"nodes": list(self.nodes), "points": list(self.points)}


@dataclass(frozen=True, kw_only=True)
class DurabilityReport:
    """What a crash would cost. Nodes of inner flows are named by their path; an atomic flow is one node."""

    flow: str
    mode: Mode
    coverage: float
    """Checkpointable nodes among all nodes, from 0.0 to 1.0."""
    incompatible_nodes: tuple[str, ...]
    """What stands in the way of 1.0, and of `strong`."""
    resumable_segments: tuple[Segment, ...]
    halt_nodes: tuple[str, ...]
    nodes: tuple[str, ...]
    """All that were counted."""
    reasons: Mapping[str, str]
    """Why each incompatible node is."""
    leaves: Leaves = field(repr=False, compare=False)
    """What there is to draw."""
    expensive_nodes: tuple[str, ...] = ()
    """A checkpoint is written as soon as they are done."""
    destructive_nodes: tuple[str, ...] = ()
    """A checkpoint is written before they start."""
    budgets: tuple[Budget, ...] = ()
    """What a run may spend."""
    breakers: tuple[Breaker, ...] = ()
    """What stops nodes that fail, cost or waver too much."""
    undo_nodes: tuple[str, ...] = ()
    """What they have done is undone if a run fails or is cancelled."""

    @property
    def percent(self) -> int:
        """The coverage as people say it; 100 only if nothing is missing."""
        return min(99, round(self.coverage * 100)) if self.incompatible_nodes else 100

    @cached_property
    def segment_of(self) -> Mapping[str, int]:
        """The number of each node's segment, from 1 on."""
        return {name: k for k, s in enumerate(self.resumable_segments, 1) for name in s.nodes}

    @cached_property
    def points(self) -> frozenset[str]:
        """Every node after which a checkpoint is certainly written."""
        return frozenset(name for s in self.resumable_segments for name in s.points)

    @property
    def headline(self) -> str:
        """The report in a line."""
        good = len(self.nodes) - len(self.incompatible_nodes)
        kept = "  nothing is kept" if self.mode is Mode.OFF else ""
        share = f"{self.percent}% durable ({good} of {len(self.nodes)} nodes)"
        return f"{self.flow}  {self.mode.value}  {share}{kept}"

    def __str__(self) -> str:
        lines = [self.headline]
        lines += [f"  not checkpointable: {name}: {self.reasons[name]}" for name in self.incompatible_nodes]
        if self.halt_nodes:
            lines.append(f"  halts: {', '.join(self.halt_nodes)}")
        lines += self.guard_lines()
        for k, segment in enumerate(self.resumable_segments, 1):
            lines.append(f"  segment {k}: {', '.join(segment.nodes)}")
            if segment.points != segment.nodes:
                lines.append(f"    goes on behind: {', '.join(segment.points) or 'nothing in it'}")
        return "\n".join(lines)

    def guard_lines(self) -> list[str]:
        """Say what guards the flow, a line each."""
        lines = []
        if self.expensive_nodes:
            lines.append(f"  checkpoint after: {', '.join(self.expensive_nodes)}")
        if self.destructive_nodes:
            lines.append(f"  checkpoint before: {', '.join(self.destructive_nodes)}")
        if self.undo_nodes:
            lines.append(f"  undone if a run fails or is cancelled: {', '.join(self.undo_nodes)}")
        if self.budgets:
            lines.append(f"  budgets: {', '.join(f'{plain(b.amount)} {b.name}' for b in self.budgets)}")
        return lines + [f"  breaker: {breaker.said}" for breaker in self.breakers]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "flow": self.flow,
            "mode": self.mode.value,
            "coverage": self.coverage,
            "nodes": list(self.nodes),
            "incompatible_nodes": list(self.incompatible_nodes),
            "reasons": dict(self.reasons),
            "resumable_segments": [segment.to_json() for segment in self.resumable_segments],
            "halt_nodes": list(self.halt_nodes),
            "expensive_nodes": list(self.expensive_nodes),
            "destructive_nodes": list(self.destructive_nodes),
            "budgets": [budget.to_wire() for budget in self.budgets],
            "breakers": [breaker.to_wire() for breaker in self.breakers],
            "undo_nodes": list(self.undo_nodes),
        }


def report(flow: Flow, host: HasOffers | Offers | None = None) -> DurabilityReport:
    """Return how durable a flow is; on a host without a store, as far as that host lets it be."""
    flow.problems.raise_for_errors()
    mode = mode_on(flow, host)
    leaves = Leaves(flow.plan)
    counted = [k for k, leaf in enumerate(leaves.nodes) if not leaf.is_join]
    profiles = {k: Profile.of(leaves.nodes[k].node) for k in counted}
    names = {k: leaves.nodes[k].path for k in counted}
    reasons = {names[k]: p.reason for k, p in profiles.items() if not p.checkpointable}
    return DurabilityReport(
        flow=flow.name,
        mode=mode,
        coverage=(len(counted) - len(reasons)) / len(counted),
        incompatible_nodes=tuple(reasons),
        resumable_segments=tuple(_segments(leaves, set(reasons), mode, flow)),
        halt_nodes=tuple(names[k] for k, p in profiles.items() if p.halts),
        nodes=tuple(names.values()),
        reasons=reasons,
        leaves=leaves,
        expensive_nodes=tuple(names[k] for k in counted if leaves.nodes[k].node.expensive),
        budgets=flow.budgets,
        breakers=flow.breakers,
        undo_nodes=tuple(path for path, n in flow.plan.deep if n.undo is not None),
        destructive_nodes=tuple(names[k] for k in counted if leaves.nodes[k].node.destructive),
    )


def _segments(leaves: Leaves, apart: set[str], mode: Mode, flow: Flow) -> list[Segment]:
    if mode is Mode.OFF:
        return []
    joined: list[list[int]] = []
    near: list[list[int]] = [list(after) for after in leaves.after]
    for u, v in leaves.edges():
        near[v].append(u)
    seen = {k for k, leaf in enumerate(leaves.nodes) if leaf.path in apart}
    for start in range(len(leaves.nodes)):
        if start in seen:
            continue
        seen.add(start)
        members, todo = [start], [start]
        while todo:
            for nxt in near[todo.pop()]:
                if nxt not in seen:
                    seen.add(nxt)
                    members.append(nxt)
                    todo.append(nxt)
        joined.append(sorted(members))
    found = [[leaves.nodes[k] for k in members if not leaves.nodes[k].is_join] for members in joined]
    return [
        Segment(
            tuple(leaf.path for leaf in part),
            tuple(leaf.path for leaf in part if _is_written(leaf, mode, flow.durability)),
        )
        for part in found
        if part
    ]


def _is_written(leaf: Leaf, mode: Mode, durability: Durability) -> bool:
    """True if a checkpoint is certainly written when the node is done."""
    node = leaf.node
    if mode is Mode.STRONG:
        waits = durability.interval is not None or (durability.flush is Flush.BEFORE_EFFECTS and node.rides)
        if not waits:
            return True
    return node.halts or node.is_effectful or node.is_kept_at_once or node.expensive
