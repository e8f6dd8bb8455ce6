"""What is wrong, or odd, about the branches of a pipeline: where they meet, and where else they lead. Apart
as one of the parts of `rules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from everstep.frontends.dot.resolve import Digraph, ResolvedNode
from everstep.frontends.pipelines.findings import Findings
from everstep.frontends.pipelines.kinds import Kinds
from everstep.frontends.pipelines.regions import Region, RegionLevel, TooEntangled, Wiring
from everstep.graph.check.diagnostics import Severity

DEEPEST: Final = 20
MOST_NODES: Final = 100_000


def lint_branches(digraph: Digraph, kinds: Kinds, findings: Findings) -> None:
    """Check that branches come together, and that nothing leads out of one."""
    wiring = Wiring(digraph, kinds)
    if not wiring.heads:
        return _lint_fan_ins(digraph, kinds, [], findings)
    nesting = Nesting(digraph, wiring)
    try:
        regions = nesting.regions(kinds.starts[0] if len(kinds.starts) == 1 else None)
    except TooEntangled as error:
        message = f"Where the branches of {error.node!r} meet takes too long to find out."
        fix = "Let branches meet soon, or move them into a pipeline of their own."
        findings.error("pipeline.too_many_branches", digraph.nodes[error.node], message, fix)
        return None
    for region in regions:
        _lint_meeting(region, wiring, digraph, findings)
    _lint_fan_ins(digraph, kinds, regions, findings)
    if nesting.problem is not None and all(f.severity != Severity.ERROR for f in findings.found):
        findings.error(*nesting.problem)
    wrong = {found.node for found in findings.found if found.severity == Severity.ERROR}
    for region in regions:
        if not wrong & {region.node, *region.inside} and kinds.get(region.meets_at) == "fan_in":
            _lint_ways_out(region, wiring, digraph, findings)
    return None


def _lint_meeting(region: Region, wiring: Wiring, digraph: Digraph, findings: Findings) -> None:
    node = digraph.nodes[region.node]
    if not region.heads:
        message = f"{region.node!r} is parallel, and has no branches."
        fix = "Draw an edge without a condition to the first node of each branch."
        findings.error("pipeline.no_branches", node, message, fix, "shape")
    elif not region.meets_at:
        message = f"The branches of {region.node!r} never meet: {_ways(region, wiring)}."
        fix = "Let each lead to one and the same fan-in node."
        findings.error("pipeline.branches_never_meet", node, message, fix)


def _lint_fan_ins(digraph: Digraph, kinds: Kinds, regions: Iterable[Region], findings: Findings) -> None:
    met = {region.meets_at for region in regions}
    if not all(kinds.get(name) == "fan_in" for name in met):
        return  # one that was meant to meet at a fan-in meets elsewhere
    for node in digraph.nodes.values():
        if kinds[node.id] == "fan_in" and node.id not in met:
            message = f"No branches meet at the fan-in {node.id!r}."
            fix = "Draw a parallel node before it, or give it shape=box."
            findings.warning("pipeline.unused_fan_in", node, message, fix, "shape")


def _lint_ways_out(region: Region, wiring: Wiring, digraph: Digraph, findings: Findings) -> None:
    for head in region.heads:
        end = _end(wiring, head, region)
        if end is not None and head != region.meets_at:
            message = (
                f"The branch of {region.node!r} that begins with {head!r} can come to {end!r} "
                f"without passing {region.meets_at!r}: that ends the branch, not the pipeline."
            )
            fix = f"Let every way through the branch lead to {region.meets_at!r}."
            findings.warning("pipeline.leaves_branch", digraph.nodes[head], message, fix)


def _end(wiring: Wiring, head: str, region: Region) -> str | None:
    """Return a node at which a branch can end before it meets the others."""
    reached = wiring.reach([head], region.meets_at, but=region.node)
    ends = [name for name in reached if wiring.kinds[name] == "exit" or not wiring.after[name]]
    return min(ends, key=wiring.order.__getitem__, default=None)


class Nesting:
    """What branches hold, as they are run: each has copies of its own of all that it can come to."""

    def __init__(self, digraph: Digraph, wiring: Wiring) -> None:
        self._nodes = digraph.nodes
        self._wiring = wiring
        self._levels: dict[tuple[str, str], RegionLevel] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._open: list[str] = []
        self.problem: tuple[str, ResolvedNode, str, str] | None = None
        """Why the branches cannot be laid out, if so."""

    def regions(self, start: str | None) -> list[Region]:
        """Return what each parallel node spans wherever it is run; of those that never are, at the top."""
        if start is not None:
            self._size(start, "")
        found = {
            (region.node, region.meets_at): region
            for level in self._levels.values()
            for region in level.regions.values()
        }
        known = {node for node, _ in found}
        return [*found.values(), *(self._wiring.region(n) for n in self._wiring.heads if n not in known)]

    def _size(self, entry: str, stop: str) -> int:
        """Return how many nodes run from here on, those of branches included."""
        if (entry, stop) not in self._sizes:
            level = self._levels[entry, stop] = self._wiring.level(entry, stop)
            size = len(level.nodes)
            for region in level.regions.values():
                size += self._inside(region)
                if self.problem is not None:
                    break
            self._sizes[entry, stop] = size
        return self._sizes[entry, stop]

    def _inside(self, region: Region) -> int:
        if region.node in self._open:
            message = f"A branch of {region.node!r} leads back to it, so branches would fork without end."
            fix = "Let a branch lead only forward to where all meet, and go back from there."
            self._say("pipeline.branch_returns", region.node, message, fix)
            return 0
        self._open.append(region.node)
        size = 0
        if len(self._open) > DEEPEST:
            fix = "Move the inner ones into a pipeline of their own."
            message = f"More than {DEEPEST} forks are inside each other."
            self._say("pipeline.too_many_branches", region.node, message, fix)
        for head in region.heads:
            if head != region.meets_at and self.problem is None:
                size += self._size(head, region.meets_at)
        if size > MOST_NODES:
            message = f"The branches of {region.node!r} have copies of more than {MOST_NODES:,} nodes."
            fix = "Let branches meet before they fork again."
            self._say("pipeline.too_many_branches", region.node, message, fix)
        self._open.pop()
        return size

    def _say(self, code: str, node: str, message: str, fix: str) -> None:
        if self.problem is None:
            self.problem = (code, self._nodes[node], message, fix)


def _ways(region: Region, wiring: Wiring) -> str:
    said = []
    for head in region.heads[:4]:
        reached = wiring.reach([head], "", but=region.node)
        fans = [name for name in reached if wiring.kinds[name] == "fan_in"]
        fan_in = min(fans, key=wiring.order.__getitem__, default=None)
        end = _end(wiring, head, region)
        where = f"comes to {fan_in!r}" if fan_in else f"ends at {end!r}" if end else "comes to no end"
        said.append(f"{head!r} {where}")
    return ", ".join(said)
