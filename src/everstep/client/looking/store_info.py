"""How a store is, and what it keeps. Apart from the calls, of which the sync twins are made."""

from __future__ import annotations

import msgspec

from everstep.model.shapes import Count, Instant
from everstep.ports.health import Finding


class FlowRules(msgspec.Struct, frozen=True, kw_only=True):
    """How long runs of a flow are kept by its own rules."""

    flow: str
    rules: dict[str, int | str]


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is, and what it keeps."""

    looked_at: Instant
    url: str
    """Where it is, without a password."""
    server: str
    """Product and version."""
    is_well: bool
    durable: bool
    single_writer: bool
    write_ms: float | None
    """How long a durable write takes; none if it could not be tried."""
    skew_seconds: float | None
    """How far its clock is ahead of this machine's."""
    findings: list[Finding]
    size_bytes: Count | None
    """How much room runs take in it; none if it cannot say."""
    runs: dict[str, int]
    """By status."""
    waits: dict[str, int]
    """Those that are open, by kind."""
    rules: dict[str, int | str]
    """How long runs are kept of flows that say nothing; without any, for ever."""
    flows: list[FlowRules]
    """The rules of flows that say something."""
