"""What retention does to a run. Pure: rows, ranks and the time in, a fate out."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from everstep.model.durations import spell
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.model.retention import Retention

STALE = timedelta(hours=24)
"""A lease that expired so long ago and was not taken over has an owner that is not coming back."""
_ENDED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


class Action(StrEnum):
    KEEP = "keep"
    TRIM = "trim"
    """Keep the last checkpoint only."""
    ERASE = "erase"


class Fate(NamedTuple):
    """What becomes of a run, and why."""

    action: Action
    reason: str = ""


class Facts(NamedTuple):
    """What decides about a run."""

    status: Status
    rank: int
    """Its place among the runs of its flow, the newest first, from 1 on."""
    ended_at: datetime | None
    acked_at: datetime | None
    lease: Lease | None
    ttl: timedelta | None
    """Its flow's `checkpoint_ttl`, as the run was begun with."""
    is_pinned: bool
    is_trimmed: bool
    """True if nothing but its last checkpoint is there."""


KEPT = Fate(Action.KEEP)


def is_abandoned(facts: Facts, now: datetime) -> bool:
    """True if a run has not ended, and no worker will drive it unless a person resumes it."""
    if facts.status is Status.ABANDONED:
        return True
    since = _left_since(facts)
    return since is not None and now - since >= STALE


def _left_since(facts: Facts) -> datetime | None:
    """Return since when an unfinished run has no owner; none if it has one, or will."""
    if facts.status is Status.ABANDONED:
        return facts.ended_at
    if facts.status is Status.RUNNING and facts.lease is not None:
        return facts.lease.expires_at
    return None


def decide(policy: Retention, facts: Facts, now: datetime) -> Fate:
    """Return what becomes of a run.

    One that is driven, that waits for a worker or for an answer, or that is pinned is kept, whatever else.
    """
    if facts.is_pinned:
        return KEPT
    if facts.status not in _ENDED:
        return _fate_of_abandoned(policy, facts, now)
    if facts.ended_at is None:
        return KEPT
    age = now - max(facts.ended_at, facts.acked_at or facts.ended_at)
    completed_for = policy.completed_for if facts.status is Status.COMPLETED else None
    for span in (policy.keep_for, completed_for):
        if span is not None and age >= span:
            return Fate(Action.ERASE, f"it ended more than {spell(span)} ago")
    if facts.ttl is not None and age >= facts.ttl:
        return Fate(Action.ERASE, f"its checkpoints were to be kept for {spell(facts.ttl)}")
    if policy.keep_last is not None and facts.rank > policy.keep_last:
        return Fate(Action.ERASE, f"of its flow the newest {policy.keep_last} are kept")
    if policy.whole is not None and facts.rank > policy.whole and not facts.is_trimmed:
        return Fate(Action.TRIM, f"of its flow the newest {policy.whole} are kept whole")
    return KEPT


def _fate_of_abandoned(policy: Retention, facts: Facts, now: datetime) -> Fate:
    since = _left_since(facts)
    if since is None or now < since:
        return KEPT
    left_for = now - since
    if policy.abandoned_for is not None and left_for >= policy.abandoned_for:
        return Fate(Action.ERASE, f"it was abandoned more than {spell(policy.abandoned_for)} ago")
    if facts.ttl is not None and left_for >= facts.ttl:
        return Fate(Action.ERASE, f"its checkpoints were to be kept for {spell(facts.ttl)}")
    return KEPT
