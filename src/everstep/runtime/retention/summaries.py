"""What is told of a run once its records are gone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from everstep.engine.state import RunState
from everstep.errors import EverstepError
from everstep.graph.author.extension import EXTENSIONS
from everstep.model.acts import Act, split_act
from everstep.model.enums import Status, Trigger
from everstep.model.records import CHANNEL
from everstep.model.removal import Tombstone
from everstep.model.shapes import Instant, understood
from everstep.ports.store import RunRow
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.retention.references import own_records
from everstep.runtime.services import Services

COST = "total_cost_usd"
"""The value, or the key of the channel, in which a flow may keep what a run has cost."""

ERRORS = "errors_count"
"""What the record that stands for removed ones says of them."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a run that retention removed."""

    run_id: str
    flow_id: str = ""
    started_at: datetime
    completed_at: datetime | None
    """When it ended."""
    phases_completed: int
    """How many steps were done, in units of the front end's own if it has some."""
    final_status: str
    total_cost_usd: float
    """What the run spent as `usd`, or kept as `total_cost_usd`, as a value or in its channel."""
    errors_count: int
    """How many attempts failed."""


class RemovedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a run that was removed."""

    run_id: str
    flow: str
    created_at: Instant
    removed_at: Instant
    reason: str
    """Which rule wanted it."""
    act: Act | None
    """Who asked for it, and why, if that was said."""
    summary: RunSummary | None
    """None if it was erased without a summary."""

    @classmethod
    def of(cls, left: Tombstone) -> RemovedRun:
        """Describe what is left."""
        reason, act = split_act(left.reason)
        return cls(
            run_id=left.run_id,
            flow=left.flow_id,
            created_at=left.created_at,
            removed_at=left.erased_at,
            reason=reason,
            act=act,
            summary=None if left.summary is None else decode(left.summary),
        )

    def __repr__(self) -> str:
        return f"<removed run {self.run_id} of {self.flow}: {self.reason}>"


async def summary_of(services: Services, runs: RunReader, row: RunRow) -> RunSummary:
    """Sum a run up. Values whose key is not at hand are left out."""
    folded = await runs.rehydrate(row, await runs.plan(row), needs_values=False)
    return RunSummary(
        run_id=row.run_id,
        flow_id=row.flow_id,
        started_at=row.created_at,
        completed_at=row.ended_at,
        phases_completed=_done(folded.state),
        final_status=row.status.value,
        total_cost_usd=float(folded.state.books.spent.get("usd", 0)) or _cost(folded),
        errors_count=await count_errors(services, row),
    )


def _done(state: RunState) -> int:
    counted = EXTENSIONS.of(state.plan.nodes).steps_done(state)
    return sum(state.counters().visits.values()) if counted is None else counted


async def count_errors(services: Services, row: RunRow) -> int:
    """Count the attempts of a run's own steps that failed; where some were removed, as was noted then."""
    errors = 0
    async for record in own_records(services, row):
        if record.trigger is Trigger.TRIM:
            errors = int((record.metadata or {}).get(ERRORS, errors))
        errors += sum(step.status in (Status.RETRYING, Status.FAILED) for step in record.steps)
    return errors


def encode(summary: RunSummary) -> bytes:
    return msgspec.json.encode(summary)


def decode(said: bytes) -> RunSummary:
    return msgspec.json.decode(said, type=understood(RunSummary))


def _cost(folded: Rehydrated) -> float:
    for prefix in ("", CHANNEL):
        if COST in folded.space.areas.get(prefix, {}):
            try:
                value: Any = folded.space.peek(COST, prefix)
            except EverstepError:
                continue
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return float(value)
    return 0.0
