"""What a run has spent, may spend, and how its breakers stand, as records keep it."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Self

import msgspec


class BreakerState(StrEnum):
    """Whether what a breaker guards may start."""

    CLOSED = "closed"
    OPEN = "open"
    """It waits for a person, or for its cooldown to be over."""
    HALF_OPEN = "half_open"
    """One call may try whether it works again."""


class BreakerAt(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a breaker stands."""

    state: BreakerState = BreakerState.CLOSED
    since: datetime | None = None
    """When it came into that state."""
    reason: str = ""
    """Why it opened last."""
    trips: int = 0
    """How often it has opened."""
    failures: int = 0
    """Calls that failed in a row."""
    recent: tuple[bool, ...] = ()
    """Of the last calls, whether each succeeded."""
    spent: dict[str, Decimal] = {}
    """What the calls that it guards have cost since it was closed, with their time as `seconds`."""
    decided: dict[str, tuple[str, ...]] = {}
    """What gates chose lately, by a digest of what they read."""

    def changed(self, **changes: object) -> Self:
        """Return the breaker with some of this otherwise."""
        return msgspec.structs.replace(self, **changes)


class Guarded(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step did to the guards of its run."""

    limits: dict[str, Decimal] = {}
    """The budgets that hold from here on, if they are others."""
    raised: dict[str, Decimal] = {}
    """By how much an approval raised budgets."""
    breakers: dict[str, BreakerAt] = {}
    """How the breakers stand that changed."""


class Ledger(msgspec.Struct, frozen=True, omit_defaults=True):
    """The guards of a run, as a keyframe keeps them."""

    spent: dict[str, Decimal] = {}
    limits: dict[str, Decimal] = {}
    raised: dict[str, Decimal] = {}
    breakers: dict[str, BreakerAt] = {}
