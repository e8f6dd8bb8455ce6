"""Phases of a run: how they are named, and which keys of the channel are theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from everstep.graph.author.node import Node

NAMESPACE: Final = "phase"
"""Under which a node says where it stands among phases."""
GATES: Final = "gate_history"
"""The channel key that keeps what every gate decided, in order."""
WARNINGS: Final = "warnings"
HEALTH: Final = "health"
LESSONS: Final = "lessons"
LESSONS_GIVEN: Final = "lessons_given"
"""The lessons that the flow was built with when the run began, or when they were last seen to differ."""
MONEY: Final = "usd"
"""What a node spends as, for it to count as the cost of a run."""
COST_KEYS: Final = ("cost_accumulated", "cost", "total_cost_usd")
"""Channel keys that tell the cost of a run in which no money was spent by that name."""
RAW: Final = "__raw__"
"""Stands between a phase and a value in the name of what a flow wrote before a contract corrected it."""
BREAKERS: Final = "circuit_breaker_state"
RESERVED: Final[Mapping[str, Any]] = {
    HEALTH: [],
    "errors": [],
    LESSONS: [],
    "api_metrics": {},
    "fallback_flags": {},
    WARNINGS: [],
}
"""Keys of the channel that mean something to phases, each with what stands for nothing."""


class PhasePlace(NamedTuple):
    """What a node is among phases: which phase it belongs to, and what it does there."""

    number: str
    """As it is written in names: `1`, or `0_5`."""
    name: str
    role: str
    """`phase`, `check`, `done`, `gate`, `review`, `again` or `next`."""

    @property
    def key(self) -> str:
        """What the outputs of the phase are called, as `phase_0_5`."""
        return f"phase_{self.number}"

    @property
    def label(self) -> str:
        """The phase by number and name, as `phase_0_5_hardening`."""
        return f"phase_{self.number}_{self.name}"


def place_of(node: Node) -> PhasePlace | None:
    """Return where a node stands among phases; none if it does not."""
    said = node.extension.get(NAMESPACE)
    return None if said is None else PhasePlace(*said)
