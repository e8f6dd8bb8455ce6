"""What may be removed from a run. Every store asks here."""

from __future__ import annotations

from everstep.errors import BadRequest, CheckpointPinned


def check_trim(run_id: str, *, before: int, is_keyframe: bool, oldest_fork: int | None) -> None:
    """Raise unless the run can be read from `before` on, and no fork goes on from what lies before it.

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
