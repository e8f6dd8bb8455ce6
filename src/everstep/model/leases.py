"""The right to drive a run for a while."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Process(msgspec.Struct, frozen=True):
    """Which process holds a lease, told apart from any other that ever had its pid."""

    boot_id: str
    pid_namespace: str
    pid: int
    started: int
    """Start time in clock ticks since boot, as the kernel counts it."""
    until: float | None = None
    """When the lease that it holds ends, in seconds since boot, a clock that cannot be set. None if the store
    has a clock of its own, or the owner is of a version that noted none."""


class Lease(msgspec.Struct, frozen=True):
    """One owner's right to write to a run. Every takeover raises the epoch, which every put names."""

    run_id: str
    owner: str
    epoch: int
    expires_at: datetime
    process: Process | None = None
    takeovers: int = 0
    """How many owners in a row, this one included, began without progress since the one before.

    Those whose process drove other runs too count up to two, as any of these may have been the reason."""
