"""The node where the branches of a group meet."""

from __future__ import annotations

from typing import Any

from everstep.errors import GroupFailed
from everstep.graph.author.node import Node
from everstep.graph.author.wiring import JoinSpec
from everstep.model.enums import Effects


class JoinNode(Node):
    """Says whether a group has succeeded; what follows the group follows this node."""

    def __init__(self, spec: JoinSpec) -> None:
        super().__init__(self.judge, name=spec.name, effects=Effects.PURE)
        self.params = ()
        self.spec = spec

    @property
    def need(self) -> int | None:
        """How many branches must succeed before it goes on; none if all must have ended."""
        kind = self.spec.join.kind
        if kind == "all":
            return None
        return self.spec.join.count or 1

    @property
    def cancels(self) -> bool:
        """True if the branches that are still under way are stopped once it goes on."""
        return self.spec.join.kind == "first_success"

    @property
    def tolerates(self) -> bool:
        """True if a failed branch is the group's affair, not at once the run's."""
        return self.spec.policy.kind != "strict"

    def judge(self, outcomes: dict[str, str]) -> None:
        """Raise `GroupFailed` unless these outcomes satisfy the group's policy."""
        reason = self._objection(outcomes)
        if reason:
            fix = "Its members' steps say why; fix them and resume, or choose a policy that tolerates them."
            raise GroupFailed(f"group {self.name!r} failed: {reason} ({_spell(outcomes)}).", fix=fix)

    def _objection(self, outcomes: dict[str, str]) -> str:
        policy = self.spec.policy
        succeeded = [name for name, outcome in outcomes.items() if outcome == "completed"]
        if policy.kind == "critical":
            lacking = [name for name in policy.names if name not in succeeded]
            return f"critical {', '.join(map(repr, lacking))} did not succeed" if lacking else ""
        if policy.kind == "rule" and policy.rule is not None:
            return "" if policy.rule(dict(outcomes)) else "its rule refused the outcomes"
        need = policy.count if policy.kind in ("at_least", "quorum") else 1
        return "" if len(succeeded) >= need else f"{len(succeeded)} of {need} needed members succeeded"

    def describe(self) -> dict[str, Any]:
        join, policy = self.spec.join, self.spec.policy
        return {
            **super().describe(),
            "group": {
                "members": [[m.name, list(m.nodes), list(m.last)] for m in self.spec.members],
                "join": [join.kind, join.count],
                "policy": [policy.kind, list(policy.names), policy.count],
            },
        }


def _spell(outcomes: dict[str, str]) -> str:
    return ", ".join(f"{name} {outcome}" for name, outcome in outcomes.items())
