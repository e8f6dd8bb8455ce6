"""What became of the members of a group, as far as the steps before its join say."""

from __future__ import annotations

from collections.abc import Mapping

from everstep.client.outline import node_at
from everstep.client.projection import base_of
from everstep.graph.author.joins import JoinNode
from everstep.graph.author.wiring import MemberSpec
from everstep.graph.compile.plan import Plan
from everstep.model.address import plain_of
from everstep.model.enums import Status
from everstep.model.records import NodeState, StepRecord


class Groups:
    """Follows the steps of a run and says at each join how its members stand."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._statuses: dict[str, dict[str, Status]] = {}
        """By the visit of the flow around it and the name of a node; those of a visit that ended are gone."""

    def take(self, step: StepRecord) -> None:
        """Note how a node stands now."""
        self._statuses.pop(base_of(step) + "/", None)
        self._note(step.path, step.status)

    def _note(self, path: str, status: Status) -> None:
        around, slash, name = path.rpartition("/")
        self._statuses.setdefault(around + slash, {})[name] = status

    def begin(self, nodes: Mapping[str, NodeState]) -> None:
        """Note how every node stood before the first step."""
        for path, node in nodes.items():
            if node.status is not None:
                self._note(path, node.status)

    def outcome(self, step: StepRecord) -> str:
        """Say what a join found: `join of fast (completed), slow (not done)`; empty for any other step."""
        node = node_at(self._plan, plain_of(step.path)) if step.path[0] != "@" else None
        if not isinstance(node, JoinNode):
            return ""
        prefix = step.path[: len(step.path) - len(node.name)]
        found = [(member.name, self._standing(prefix, member)) for member in node.spec.members]
        return "join of " + ", ".join(f"{name} ({standing})" for name, standing in found)

    def _standing(self, prefix: str, member: MemberSpec) -> str:
        known = self._statuses.get(prefix, {})
        found = [known.get(name) for name in dict.fromkeys((*member.nodes, *member.last))]
        if Status.FAILED in found:
            return "failed"
        if any(known.get(name) is Status.COMPLETED for name in member.last):
            return "completed"
        return "not done"


def members_of(node: JoinNode) -> str:
    """Say what a join waits for: `joins fast, slow, the first success counts`."""
    names = ", ".join(member.name for member in node.spec.members)
    rule = {
        "first_success": ": the first success",
        "any": ": any",
        "quorum": f": {node.spec.join.count} of them",
    }
    return f"joins {names}{rule.get(node.spec.join.kind, '')}"
