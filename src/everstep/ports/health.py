"""How a store is, as far as it can tell."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec


class Level(StrEnum):
    """How much a finding matters."""

    FINE = "fine"
    WARNING = "warning"
    """Something acknowledged can be lost, or is likely to fail soon."""
    PROBLEM = "problem"
    """Runs cannot be kept here as they should be."""


class Finding(msgspec.Struct, frozen=True):
    """One thing worth knowing about a store, in plain words."""

    level: Level
    text: str
    fix: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What a store says of itself."""

    server: str
    """Product and version."""
    now: datetime | None = None
    """The server's clock; none if the store goes by the clock of this machine."""
    findings: tuple[Finding, ...] = ()
    size_bytes: int | None = None
    """How much room runs take in it, artifacts beside it left out; none if that takes long to find out."""


@runtime_checkable
class CheckedStore(Protocol):
    """A store that can say how it is."""

    async def health(self) -> Health:
        """Say what the store promises as it is set up now, and what that can lose."""

    async def write_probe(self) -> None:
        """Write something as durably as a put does, and leave nothing behind."""
