"""What is wrong, or odd, about the branches of a pipeline: where they meet, and where else they lead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from everstep.dot.resolve import Digraph, Node
from everstep.graph.diagnostics import Severity
from everstep.graph.pipelines.branches import Meeting, meetings_of
from everstep.graph.pipelines.findings import Findings
from everstep.graph.pipelines.kinds import Kinds
from everstep.graph.pipelines.reading import Pipeline, read_pipeline
from everstep.graph.pipelines.regions import Region, level_of

DEEPEST: Final = 20
MOST_NODES: Final = 100_000


def lint_branches(digraph: Digraph, kinds: Kinds, findings: Findings) -> None:
    """Check that branches come together, and that nothing leads out of one."""
    meetings = meetings_of(digraph, kinds)
    for name, meeting in meetings.items():
        if not meeting.ways:
            message = f"{name!r} is parallel, and has no branches."
            fix = "Draw an edge without a condition to the first node of each branch."
            findings.error("pipeline.no_branches", digraph.nodes[name], message, fix, "shape")
        elif not meeting.is_met:
            message = f"The branches of {name!r} never meet: {_ways(meeting.ways.items())}."
            fix = "Let each lead to one and the same fan-in node."
            findings.error("pipeline.branches_never_meet", digraph.nodes[name], message, fix)
    met = {meeting.fan_in for meeting in meetings.values()}
    for node in digraph.nodes.values():
        if kinds[node.id] == "fan_in" and not met & {node.id, None}:
            message = f"No branches meet at the fan-in {node.id!r}."
            fix = "Draw a parallel node before it, or give it shape=box."
            findings.warning("pipeline.unused_fan_in", node, message, fix, "shape")
    if meetings and all(found.severity != Severity.ERROR for found in findings.found):
        _Nesting(read_pipeline(digraph, kinds), findings).check()
    wrong = {found.node for found in findings.found if found.severity == Severity.ERROR}
    for name in [name for name in meetings if name not in wrong]:
        _lint_ways_out(name, meetings[name], digraph, findings)


def _lint_ways_out(name: str, meeting: Meeting, digraph: Digraph, findings: Findings) -> None:
    for head, way in meeting.ways.items():
        if meeting.fan_in is not None and way.end is not None:
            message = (
                f"The branch of {name!r} that begins with {head!r} can come to {way.end!r} "
                f"without passing {meeting.fan_in!r}: that ends the branch, not the pipeline."
            )
            fix = f"Let every way through the branch lead to {meeting.fan_in!r}."
            findings.warning("pipeline.leaves_branch", digraph.nodes[head], message, fix)


class _Nesting:
    """What branches hold, as they are run: each has copies of its own of all that it can come to."""

    def __init__(self, pipeline: Pipeline, findings: Findings) -> None:
        self._pipeline = pipeline
        self._findings = findings
        self._sizes: dict[tuple[str, str], int] = {}
        self._open: list[str] = []
        self._is_said = False

    def check(self) -> None:
        self._size(self._pipeline.start, "")

    def _size(self, entry: str, stop: str) -> int:
        """Return how many nodes run from here on, those of branches included."""
        if (entry, stop) not in self._sizes:
            level = level_of(self._pipeline, entry, stop)
            size = len(level.nodes)
            for region in level.regions.values():
                size += self._inside(region)
                if self._is_said:
                    break
            self._sizes[entry, stop] = size
        return self._sizes[entry, stop]

    def _inside(self, region: Region) -> int:
        node = self._pipeline.digraph.nodes[region.node]
        if region.node in self._open:
            message = f"A branch of {region.node!r} leads back to it, so branches would fork without end."
            fix = "Let a branch lead only forward to where all meet, and go back from there."
            self._say("pipeline.branch_returns", node, message, fix)
            return 0
        self._open.append(region.node)
        size = 0
        if len(self._open) > DEEPEST:
            fix = "Move the inner ones into a pipeline of their own."
            self._say(
                "pipeline.too_many_branches", node, f"More than {DEEPEST} forks are inside each other.", fix
            )
        for head in region.heads:
            if head != region.meets_at and not self._is_said:
                size += self._size(head, region.meets_at)
        if size > MOST_NODES:
            message = f"The branches of {region.node!r} have copies of more than {MOST_NODES:,} nodes."
            self._say(
                "pipeline.too_many_branches", node, message, "Let branches meet before they fork again."
            )
        self._open.pop()
        return size

    def _say(self, code: str, node: Node, message: str, fix: str) -> None:
        if not self._is_said:
            self._findings.error(code, node, message, fix)
        self._is_said = True


def _ways(ways: Iterable[tuple[str, object]]) -> str:
    said = []
    for first, way in list(ways)[:4]:
        fan_in, end = getattr(way, "fan_in", None), getattr(way, "end", None)
        where = f"comes to {fan_in!r}" if fan_in else f"ends at {end!r}" if end else "comes to no end"
        said.append(f"{first!r} {where}")
    return ", ".join(said) or "it has none"
