"""What is known of one resumption of a run, for events, responses and whoever traces it."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from everstep.engine.state import RunState
from everstep.graph.flow import Flow
from everstep.model.amounts import spelled
from everstep.model.records import FlowFrontier
from everstep.runtime.journal import Journal
from everstep.runtime.phase_progress import PhaseProgress, progress_of
from everstep.runtime.services import Services
from everstep.runtime.values import ValueSpace


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
    phases: PhaseProgress | None = None
    """How far it had come, if its flow is made of phases."""

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
        rest: dict[str, Any] = {
            "frontier": self.frontier,
            "attempt": self.attempt,
            "resumed_at": self.resumed_at,
            "spent": spelled(self.spent),
        }
        if self.phases is not None:
            rest["phases"] = self.phases
        encoded = msgspec.json.encode({"labels": self.labels, "resume": rest})
        wire: dict[str, Any] = msgspec.json.decode(encoded)
        return wire


def resumed_of(
    services: Services,
    journal: Journal,
    flow: Flow,
    state: RunState,
    space: ValueSpace,
    start: str | None = None,
) -> Resumed:
    """Say where a run stands that is about to go on, at the node where it is to start if one is given."""
    lease = journal.lease
    return Resumed(
        run_id=journal.run_id,
        resume_id=services.ids.new_id(),
        checkpoint_id=journal.head.checkpoint_id or "",
        frontier=state.frontier(),
        attempt=max(1, lease.takeovers if lease is not None else 1),
        resumed_at=services.clock.now(),
        spent=dict(state.books.spent),
        phases=progress_of(flow, state, space, start),
    )
