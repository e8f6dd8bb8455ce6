"""The right to drive a run for a while, and the workers that have it."""

from datetime import datetime

import msgspec

RELEASE = "0.2.0.dev0"
"""Which everstep this is, as workers say it: the layers below `everstep` cannot ask that for its version."""
SKEW = 1.0
"""Seconds between the clocks of a machine and of a store from which on it is reported."""


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


class Lease(msgspec.Struct, frozen=True, gc=False):
    """One owner's right to write to a run. Every takeover raises the epoch, which every put names."""

    run_id: str
    owner: str
    epoch: int
    expires_at: datetime
    process: Process | None = None
    takeovers: int = 0
    """How many owners in a row, this one included, began without progress since the one before.

    Those whose process drove other runs too count up to two, as any of these may have been the reason."""


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs of a flow may be driven at once, by all workers together."""

    running: int | None = None
    """Of the flow."""
    per_group: int | None = None
    """Of each of its groups; runs without a group are not counted."""


class Driven(msgspec.Struct, frozen=True, kw_only=True):
    """One run that a worker drives."""

    run_id: str
    flow_id: str
    since: datetime


class Taken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version of a flow whose runs a worker takes."""

    flow_id: str
    flow_hash: str
    flow_version: str = ""
    """Empty for an older version, whose runs go over to the one that the worker has."""


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself."""

    worker_id: str
    host: str
    """The name of its machine."""
    pid: int
    flows: tuple[str, ...]
    concurrency: int
    """How many runs it drives at once at most."""
    started_at: datetime
    driving: int = 0
    """How many it drives."""
    longest: tuple[Driven, ...] = ()
    """Those that it has driven for the longest, the oldest first; at most 100."""
    is_stopping: bool = False
    """It claims nothing more."""
    is_slowed: bool = False
    """It claims less than it could, as the store is slow."""
    process: Process | None = None
    skew_seconds: float = 0.0
    """How far the store's clock is ahead of its machine's; 0 if the store has none."""
    seen_at: datetime | None = None
    """When it last said so, by the store's clock. The store fills it in."""
    release: str = ""
    """The version of everstep; empty for 0.1.0, which says none."""
    records: int = 1
    """The newest version of records that it reads."""
    takes: tuple[Taken, ...] = ()
    """The versions of its flows whose runs it takes; 0.1.0 says none."""
    cleans: bool = False
    """It cleans up from time to time, if it is the longest serving of those that do."""
