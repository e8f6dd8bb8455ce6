"""What may be removed from a run. Every store asks here."""

from __future__ import annotations

from datetime import datetime

from everstep.errors import BadRequest, CheckpointPinned
from everstep.model.leases import Lease
from everstep.model.removal import Erasure


def judge_erasure(
    *,
    is_there: bool,
    checkpoints: int,
    head: int,
    lease: Lease | None,
    now: datetime,
    has_forks: bool,
    pinned: str | None,
) -> Erasure:
    """Return whether a run may be erased as a whole, and why not: the first reason that holds."""
    if not is_there:
        return Erasure.GONE
    if checkpoints != head:
        return Erasure.MOVED
    if lease is not None and lease.expires_at > now:
        return Erasure.LEASED
    if has_forks:
        return Erasure.FORKED
    return Erasure.ERASED if pinned is None else Erasure.PINNED


def check_trim(
    run_id: str, *, before: int, is_keyframe: bool, oldest_fork: int | None, pinned: str | None = None
) -> None:
    """Raise unless the run can be read from `before` on, and what lies before it is not needed.

    `oldest_fork` is the smallest sequence that a fork of the run goes on from.
    """
    if not is_keyframe:
        raise BadRequest(
            f"checkpoint {before} of run {run_id!r} is no keyframe.",
            fix="Only what lies before a keyframe can be removed.",
        )
    if oldest_fork is not None and oldest_fork < before:
        raise CheckpointPinned(
            f"a fork goes on from checkpoint {oldest_fork} of run {run_id!r}.",
            fix=f"Remove no more than what lies before a keyframe up to {oldest_fork}.",
            run_id=run_id,
            forked_at=oldest_fork,
        )
    if pinned is not None:
        raise CheckpointPinned(
            f"run {run_id!r} is pinned: {pinned}.",
            fix=f"Unpin it first: everstep unpin {run_id}",
            run_id=run_id,
        )
