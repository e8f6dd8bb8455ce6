"""What happens while a run is driven, for whoever watches. Never the source of truth."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import msgspec

EventKind = Literal[
    "run_started",
    "run_resumed",
    "run_ended",
    "step_started",
    "step_completed",
    "step_failed",
    "step_retrying",
    "chunk",
    "checkpoint",
    "lease_wait",
]


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that happened."""

    kind: EventKind
    run_id: str
    at: datetime
    node: str = ""
    visit: int = 0
    attempt: int = 0
    data: dict[str, Any] = {}


Listener = Callable[[Event], None]
