"""Decide what an event does to a run.

Pure: the same state and event always give the same records. Time and chance arrive inside the event, so a
replay next year decides alike.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from everstep.engine.scope import OpenedVisit, Scope
from everstep.model.enums import Status
from everstep.model.ledger import Guarded
from everstep.model.records import (
    SPENT,
    ErrorInfo,
    QueuedTask,
    StepRecord,
    StreamAt,
    UnitFacts,
    Written,
    visit_path,
)
from everstep.model.waits import WaitOpened


def completed(
    scope: Scope,
    i: int,
    *,
    reads: dict[str, int],
    writes: tuple[Written, ...],
    decision: tuple[str, ...] | None,
    key: str | None,
    started_at: datetime,
    ended_at: datetime,
    queued: tuple[QueuedTask, ...] = (),
    task: int | None = None,
    goto: bool = False,
    ends: bool = False,
    wait: WaitOpened | None = None,
    outcome: str = "",
) -> StepRecord:
    """Return the record of a visit that succeeded."""
    return StepRecord(
        path=scope.path_of(i),
        visit=scope.visits[i] + 1,
        status=Status.COMPLETED,
        attempts=scope.attempts[i] + 1,
        reads=reads,
        writes=writes,
        decision=decision,
        key=key,
        started_at=started_at,
        ended_at=ended_at,
        queued=queued,
        task=task,
        goto=goto,
        ends=ends,
        wait=wait,
        outcome=outcome,
    )


def failed(
    scope: Scope,
    i: int,
    *,
    error: ErrorInfo,
    can_retry: bool,
    chance: float,
    reads: dict[str, int],
    key: str | None,
    started_at: datetime,
    ended_at: datetime,
    task: int | None = None,
    wait: WaitOpened | None = None,
    has_reported: bool = True,
    at_least: timedelta = timedelta(),
    ahead: timedelta = timedelta(),
    writes: tuple[Written, ...] = (),
    outcome: str = "",
) -> StepRecord:
    """Return the record of a failed attempt: to be tried again after a pause, or the end of the visit.

    A pause ends by the store's clock, which is `ahead` of the one that showed `ended_at`.
    """
    failures = scope.attempts[i] + 1
    policy = scope.plan.nodes[i].retry
    again = can_retry and failures <= policy.times
    return StepRecord(
        path=scope.path_of(i),
        visit=scope.visits[i] + 1,
        status=Status.RETRYING if again else Status.FAILED,
        attempts=failures,
        reads=reads,
        writes=writes,
        key=key,
        error=error,
        retry_at=ended_at + ahead + max(policy.pause(failures, chance), at_least) if again else None,
        started_at=started_at,
        ended_at=ended_at,
        task=task,
        wait=wait,
        outcome=outcome,
        unknown=not has_reported,
    )


def streamed(
    scope: Scope, i: int, *, at: StreamAt, writes: tuple[Written, ...], started_at: datetime, now: datetime
) -> StepRecord:
    """Return the record of how far a stream has come."""
    return StepRecord(
        path=scope.path_of(i),
        visit=scope.visits[i] + 1,
        status=Status.RUNNING,
        attempts=scope.attempts[i] + 1,
        writes=writes,
        started_at=started_at,
        ended_at=now,
        stream=at,
    )


def unit(
    scope: Scope,
    i: int,
    name: str,
    occurrence: int,
    *,
    status: Status,
    attempts: int,
    facts: UnitFacts,
    writes: tuple[Written, ...] = (),
    error: ErrorInfo | None = None,
    retry_at: datetime | None = None,
    started_at: datetime | None = None,
    ended_at: datetime | None = None,
    wait: WaitOpened | None = None,
) -> StepRecord:
    """Return the record of a durable call that a visit under way has made."""
    return StepRecord(
        path=f"{visit_path(scope.path_of(i), scope.visits[i] + 1)}/{name}",
        visit=occurrence,
        status=status,
        attempts=attempts,
        writes=writes,
        error=error,
        retry_at=retry_at,
        started_at=started_at,
        ended_at=ended_at,
        wait=wait,
        unit=facts,
    )


def spent(
    scope: Scope, i: int, amounts: dict[str, Decimal], *, guards: Guarded | None, now: datetime
) -> StepRecord:
    """Return the record of what a visit under way has cost so far, since it last said so."""
    return StepRecord(
        path=scope.path_of(i),
        visit=scope.visits[i] + 1,
        status=Status.RUNNING,
        attempts=scope.attempts[i] + 1,
        ended_at=now,
        spent=amounts,
        guards=guards,
    )


def spent_aside(
    path: str, amounts: dict[str, Decimal], *, guards: Guarded | None, now: datetime
) -> StepRecord:
    """Return the record of what was spent where no visit of its own is recorded."""
    return StepRecord(path=SPENT, decision=(path,), ended_at=now, spent=amounts, guards=guards)


def halted(
    scope: Scope,
    i: int,
    *,
    wait: WaitOpened,
    reads: dict[str, int],
    writes: tuple[Written, ...],
    key: str | None,
    started_at: datetime,
    ended_at: datetime,
    task: int | None = None,
) -> StepRecord:
    """Return the record of a visit that waits for an answer; `ended_at` is when it began to wait."""
    return StepRecord(
        path=scope.path_of(i),
        visit=scope.visits[i] + 1,
        status=Status.HALTED,
        attempts=scope.attempts[i] + 1,
        reads=reads,
        writes=writes,
        key=key,
        started_at=started_at,
        ended_at=ended_at,
        task=task,
        wait=wait,
        unknown=wait.guard != "" and i in scope.begun,
    )


def again(
    scope: Scope,
    i: int,
    *,
    wait: WaitOpened | None,
    key: str | None,
    now: datetime,
    guards: Guarded | None = None,
) -> StepRecord:
    """Return the record that lets a visit be attempted once more, at no cost to its budget."""
    return StepRecord(
        path=scope.path_of(i),
        visit=scope.visits[i] + 1,
        status=Status.RETRYING,
        attempts=scope.attempts[i],
        key=key,
        ended_at=now,
        wait=wait,
        unknown=wait is not None and wait.guard != "" and i in scope.begun,
        guards=guards,
    )


def announced(scope: Scope, i: int, key: str | None) -> StepRecord:
    """Return the record that announces a visit whose key could not be worked out again."""
    return StepRecord(path=scope.path_of(i), visit=scope.visits[i] + 1, status=Status.RUNNING, key=key)


def opened(scope: Scope, i: int, *, reads: dict[str, int], items: int | None, now: datetime) -> StepRecord:
    """Return the record that opens an inner flow."""
    task = scope.task_of(i)
    return StepRecord(
        path=scope.path_of(i),
        visit=scope.visits[i] + 1,
        status=Status.RUNNING,
        reads=reads,
        items=items,
        started_at=now,
        task=None if task is None else task.number,
    )


def item_begun(visit: OpenedVisit, item: int) -> StepRecord:
    """Return the record that announces an item that is an atomic flow."""
    return StepRecord(path=visit.prefix_of(item)[:-1], status=Status.RUNNING)


def item_ended(visit: OpenedVisit, item: int, error: ErrorInfo | None, now: datetime) -> StepRecord:
    """Return the record that ends one item of a map of flows."""
    status = Status.COMPLETED if error is None else Status.FAILED
    return StepRecord(path=visit.prefix_of(item)[:-1], status=status, error=error, ended_at=now)


def closed(
    scope: Scope,
    i: int,
    visit: OpenedVisit,
    *,
    writes: tuple[Written, ...],
    error: ErrorInfo | None,
    now: datetime,
) -> StepRecord:
    """Return the record that ends a visit to an inner flow."""
    return StepRecord(
        path=scope.path_of(i),
        visit=visit.visit,
        status=Status.COMPLETED if error is None else Status.FAILED,
        reads=visit.reads,
        writes=writes,
        error=error,
        started_at=visit.started_at,
        ended_at=now,
        task=visit.task,
    )


def cancelled(scope: Scope, i: int, *, reason: ErrorInfo | None, now: datetime) -> StepRecord:
    """Return the record of a visit that was called off."""
    return StepRecord(
        path=scope.path_of(i),
        visit=scope.visits[i] + 1,
        status=Status.CANCELLED,
        attempts=scope.attempts[i] + 1,
        error=reason,
        ended_at=now,
    )
