"""What is said of things that are removed."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from everstep.model.acts import Act


class Erasure(StrEnum):
    """How a store judged that a run should be erased."""

    ERASED = "erased"
    GONE = "gone"
    """There is no such run, or not any more."""
    MOVED = "moved"
    """It has another newest record than was looked at."""
    LEASED = "leased"
    """It has an owner with a live lease."""
    FORKED = "forked"
    """A run that is still there goes on from it."""
    PINNED = "pinned"
    """It is pinned."""


class Tombstone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is left of a run that was erased. Its id stays taken."""

    run_id: str
    flow_id: str
    created_at: datetime
    """When the run was admitted."""
    erased_at: datetime
    """By the store's clock."""
    reason: str
    """Which rule, or who, wanted it."""
    summary: bytes | None = None
    """What is told of the run from now on, as JSON; none tells nothing."""


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log of what went."""

    at: datetime
    what: str
    """`run`, `checkpoints`, `artifacts` or `tombstones`; `import` for each run that came with a bundle;
    `copy`, `move`, `unpin`, `ack`, `reissue` and `revoke` where a name was given."""
    run_id: str | None = None
    """The run it belonged to; none for what belongs to no run."""
    flow_id: str | None = None
    count: int = 1
    size: int = 0
    """How many bytes, where that is known."""
    reason: str = ""
    act: Act | None = None
    """Who wanted it, and why, if that was said."""

    def to_wire(self) -> dict[str, Any]:
        """Return it as plain data. Deprecated: `everstep.results.as_json` does that for every result."""
        message = "Removal.to_wire() goes in 0.3; use everstep.results.as_json(removal)"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told


class StoredBlob(msgspec.Struct, frozen=True):
    """An artifact in a listing."""

    key: str
    """As in `ArtifactRef.key`."""
    size: int
    """How many bytes it takes where it is kept."""
    untouched_for: timedelta
    """How long ago it was put last, by the clock of its store."""
