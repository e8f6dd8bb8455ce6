"""Who may drive a run. Every store asks here."""

from __future__ import annotations

from datetime import datetime, timedelta

from everstep.errors import LeaseConflict
from everstep.model.leases import Lease, Process

_BESIDE = "+beside"
"""At the end of an owner's name: its process drives, or may drive, other runs too."""
SUSPECT = 2
"""Owners in a row that died without having written anything, from which on a run is driven alone."""
_LONGEST_REST = timedelta(seconds=60)


def beside(owner: str) -> str:
    """Return the name of an owner whose process drives other runs beside this one."""
    return owner + _BESIDE


def _takeovers(held: Lease | None, *, has_progressed: bool) -> int:
    """Count owners that died without having written anything, to find the run that kills them.

    With those that drove others beside it, any of the others may have been the reason: such deaths make a run
    suspect and no more. Only an owner that drove nothing else was killed by this run.
    """
    if held is None or has_progressed:
        return 0
    if held.owner.endswith(_BESIDE):
        return max(held.takeovers, min(held.takeovers + 1, SUSPECT))
    return held.takeovers + 1


def is_suspect(lease: Lease) -> bool:
    """True if the run may be what killed its last owners, so that nothing else should be driven beside it."""
    return lease.takeovers >= SUSPECT


def rest_of(lease: Lease) -> timedelta:
    """Return how long a suspect is left alone before it is tried again: longer after each death it caused."""
    deaths = min(lease.takeovers - SUSPECT, 10)
    return min(timedelta(seconds=2**deaths), _LONGEST_REST) if deaths > 0 else timedelta()


def is_hopeless(lease: Lease, attempts: int) -> bool:
    """True if the run has killed more owners than it may, and is abandoned."""
    return lease.takeovers > max(attempts, SUSPECT)


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

    A claimant whose process says until when it would hold the lease tells by that how late it is since boot.

    `has_progressed` says whether the run was written to since the last claim: owners that die without
    having written anything are counted, so that a run which kills its owners is found out.
    """
    uptime = (
        process.until - ttl.total_seconds() if process is not None and process.until is not None else None
    )
    if held is not None and held.owner != owner and held.epoch != void_epoch:
        left = seconds_left(held, now=now, here=process, uptime=uptime)
        if left > 0:
            raise conflict(held, left, here=process)
    return Lease(
        run_id=run_id,
        owner=owner,
        epoch=newest_epoch + 1,
        expires_at=now + ttl,
        process=process,
        takeovers=_takeovers(held, has_progressed=has_progressed),
    )


def renewed(held: Lease | None, mine: Lease, *, now: datetime, ttl: timedelta) -> Lease | None:
    """Return the prolonged lease, or none if it is not ours. An expired one is, until it is taken over."""
    if held is None or held.epoch != mine.epoch or held.owner != mine.owner:
        return None
    return Lease(
        run_id=held.run_id,
        owner=held.owner,
        epoch=held.epoch,
        expires_at=now + ttl,
        process=mine.process or held.process,
        takeovers=held.takeovers,
    )


def seconds_left(
    held: Lease, *, now: datetime, here: Process | None = None, uptime: float | None = None
) -> float:
    """Return how long a lease lasts still; nothing or less if it has ended.

    `now` may have been set ahead. A process on the same boot as the owner also knows the seconds since
    then, and what an owner noted of those holds.
    """
    left = (held.expires_at - now).total_seconds()
    owner = held.process
    if owner is None or owner.until is None or here is None or uptime is None:
        return left
    return max(left, owner.until - uptime) if owner.boot_id == here.boot_id else left


def noted(process: Process | None, uptime: float | None, ttl: timedelta) -> Process | None:
    """Return a process as the holder of a lease that lasts so long from now on."""
    if process is None or uptime is None:
        return process
    until = uptime + ttl.total_seconds()
    return Process(process.boot_id, process.pid_namespace, process.pid, process.started, until)


def conflict(held: Lease, left: float, *, here: Process | None = None) -> LeaseConflict:
    """Name the owner and how long to wait."""
    owner = held.process
    if owner is None:
        who, fix = f"owner {held.owner[:8]}", "Wait for it, or stop that process."
    elif here is not None and _is_same(owner, here):
        who, fix = "this process already", "Wait for the call or the worker that drives it."
    else:
        who, fix = f"process {owner.pid}", "Wait for it, or stop that process."
    return LeaseConflict(
        f"run {held.run_id!r} is being driven by {who}; its lease lasts {left:.0f} s more.",
        fix=fix,
        run_id=held.run_id,
        lease=held,
        seconds_left=left,
    )


def _is_same(one: Process, other: Process) -> bool:
    return (one.boot_id, one.pid_namespace, one.pid, one.started) == (
        other.boot_id,
        other.pid_namespace,
        other.pid,
        other.started,
    )
