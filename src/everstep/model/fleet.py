"""Workers as they report themselves, and how many runs they may drive together."""

from __future__ import annotations

from datetime import datetime

import msgspec

from everstep.model.leases import Process

SKEW = 1.0
"""Seconds between the clocks of a machine and of a store from which on it is reported."""


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
