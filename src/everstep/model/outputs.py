"""What the built-in halt nodes write once they are settled."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from everstep.model.items import OMITTED
from everstep.model.waits import Vote


@dataclass(frozen=True, slots=True)
class TimerOutput:
    """A timer fired: what it carried, when its run went on, and how much later than planned."""

    payload: Any
    resumed_at: datetime
    drift_ms: int


@dataclass(frozen=True, slots=True)
class ApprovalOutput:
    """Approved, rejected, or timed out."""

    approved: bool
    approver: str | None
    comment: str | None
    decided_at: datetime
    votes: tuple[Vote, ...] = field(default=(), metadata={OMITTED: True})
    """Who decided, of an approval that keeps count of it; also those before its time was over."""


@dataclass(frozen=True, slots=True)
class CallbackOutput:
    """The payload of the callback."""

    payload: Any
    received_at: datetime
