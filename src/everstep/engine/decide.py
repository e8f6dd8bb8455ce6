"""Decide what an event does to a run.

Pure: the same state and event always give the same records. Time and chance arrive inside the event, so a
replay next year decides alike.
"""

from __future__ import annotations

from datetime import datetime

from everstep.engine.state import RunState
from everstep.errors import LimitExceeded
from everstep.model.enums import Status
from everstep.model.records import ErrorInfo, StepRecord, Written


def completed(
    state: RunState,
    i: int,
    *,
    reads: dict[str, int],
    writes: tuple[Written, ...],
    decision: tuple[str, ...] | None,
    key: str | None,
    started_at: datetime,
    ended_at: datetime,
) -> StepRecord:
    """Return the record of a visit that succeeded."""
    return StepRecord(
        state.plan.paths[i],
        state.visits[i] + 1,
        Status.COMPLETED,
        state.attempts[i] + 1,
        reads,
        writes,
        decision,
        key,
        None,
        None,
        started_at,
        ended_at,
    )


def failed(
    state: RunState,
    i: int,
    *,
    error: ErrorInfo,
    can_retry: bool,
    chance: float,
    reads: dict[str, int],
    key: str | None,
    started_at: datetime,
    ended_at: datetime,
) -> StepRecord:
    """Return the record of a failed attempt: to be tried again after a pause, or the end of the visit."""
    failures = state.attempts[i] + 1
    policy = state.plan.nodes[i].retry
    again = can_retry and failures <= policy.times
    return StepRecord(
        path=state.plan.paths[i],
        visit=state.visits[i] + 1,
        status=Status.RETRYING if again else Status.FAILED,
        attempts=failures,
        reads=reads,
        key=key,
        error=error,
        retry_at=ended_at + policy.pause(failures, chance) if again else None,
        started_at=started_at,
        ended_at=ended_at,
    )


def announced(state: RunState, i: int, key: str) -> StepRecord:
    """Return the record that announces a visit whose key could not be worked out again."""
    return StepRecord(path=state.plan.paths[i], visit=state.visits[i] + 1, status=Status.RUNNING, key=key)


def check_limits(state: RunState, i: int, *, max_steps: int, max_visits: int | None) -> None:
    """Raise `LimitExceeded` if the run may not visit this node once more."""
    if state.steps >= max_steps:
        raise LimitExceeded(
            f"the run reached {max_steps} steps before {state.plan.paths[i]!r}.",
            fix="Check the gate that should end the loop, or raise max_steps on the flow and resume.",
        )
    own = state.plan.nodes[i].max_visits or max_visits
    if own is not None and state.visits[i] >= own:
        raise LimitExceeded(
            f"node {state.plan.paths[i]!r} was visited {own} times.",
            fix="Check the gate that should end the loop, or raise max_visits and resume.",
        )
