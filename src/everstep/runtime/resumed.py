"""What is known of one resumption of a run, for events, responses and whoever traces it."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from everstep.engine.state import RunState
from everstep.model.amounts import spelled
from everstep.model.leases import Lease
from everstep.model.records import FlowFrontier


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """One resumption: where the run stood, and the how manieth try from there it is."""

    run_id: str
    resume_id: str
    """Another one for each resumption."""
    checkpoint_id: str
    frontier: FlowFrontier
    attempt: int
    """1, or more if owners before this one died without progress."""
    resumed_at: datetime
    spent: dict[str, Decimal] = {}
    """What the run had spent by then."""

    @classmethod
    def now(cls, state: RunState, lease: Lease, checkpoint_id: str, resume_id: str, at: datetime) -> Resumed:
        """Return the resumption of a run that stands there, by whoever has its lease."""
        return cls(
            run_id=lease.run_id,
            resume_id=resume_id,
            checkpoint_id=checkpoint_id,
            frontier=state.frontier(),
            attempt=max(1, lease.takeovers),
            resumed_at=at,
            spent=dict(state.books.spent),
        )

    @property
    def labels(self) -> dict[str, str]:
        """The ids under the names that traces and logs know them by."""
        return {
            "everstep.run_id": self.run_id,
            "everstep.resume_id": self.resume_id,
            "everstep.checkpoint_id": self.checkpoint_id,
        }

    def to_wire(self) -> dict[str, Any]:
        """Return the labels, and the rest under `resume`, as JSON has it."""
        rest = {
            "frontier": self.frontier,
            "attempt": self.attempt,
            "resumed_at": self.resumed_at,
            "spent": spelled(self.spent),
        }
        encoded = msgspec.json.encode({"labels": self.labels, "resume": rest})
        wire: dict[str, Any] = msgspec.json.decode(encoded)
        return wire
