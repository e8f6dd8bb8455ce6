"""Who may drive a run. Every store asks here."""

from __future__ import annotations

from datetime import datetime, timedelta

from everstep.errors import LeaseConflict
from everstep.model.leases import Lease, Process


def claim(
    held: Lease | None,
    *,
    run_id: str,
    owner: str,
    process: Process | None,
    now: datetime,
    ttl: timedelta,
    newest_epoch: int,
    has_progressed: bool,
    void_epoch: int | None,
) -> Lease:
    """Return the lease a claimant gets, or raise `LeaseConflict` while another's holds.

    `has_progressed` says whether the run was written to since the last claim: owners that die without
    having written anything are counted, so that a run which kills its owners is found out.
    """
    if held is not None and held.owner != owner and held.expires_at > now and held.epoch != void_epoch:
        raise conflict(held, now)
    return Lease(
        run_id=run_id,
        owner=owner,
        epoch=newest_epoch + 1,
        expires_at=now + ttl,
        process=process,
        takeovers=0 if has_progressed or held is None else held.takeovers + 1,
    )


def renewed(held: Lease | None, mine: Lease, *, now: datetime, ttl: timedelta) -> Lease | None:
    """Return the prolonged lease, or none if it is not ours. An expired one nobody took still is."""
    if held is None or held.epoch != mine.epoch or held.owner != mine.owner:
        return None
    return Lease(
        run_id=held.run_id,
        owner=held.owner,
        epoch=held.epoch,
        expires_at=now + ttl,
        process=held.process,
        takeovers=held.takeovers,
    )


def conflict(held: Lease, now: datetime) -> LeaseConflict:
    """Name the owner and how long to wait."""
    left = max(0.0, (held.expires_at - now).total_seconds())
    who = f"process {held.process.pid}" if held.process is not None else f"owner {held.owner[:8]}"
    return LeaseConflict(
        f"run {held.run_id!r} is being driven by {who}; its lease lasts {left:.0f} s more.",
        fix="Wait for it, or stop that process.",
        run_id=held.run_id,
        lease=held,
        seconds_left=left,
    )
