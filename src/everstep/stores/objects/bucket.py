"""What the object store needs of a place: named bytes, and writes that are refused if another was faster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from everstep.ports.health import Health


class Found(NamedTuple):
    """The bytes under a name, and a tag that is another one once they are replaced."""

    data: bytes
    tag: str


class Listed(NamedTuple):
    """One name in a listing."""

    name: str
    size: int
    modified_at: datetime
    """By the clock of the place."""


class Bucket(Protocol):
    """Named bytes, kept durably.

    Names are parts of `[A-Za-z0-9._~=-]` joined by `/`; no part begins with a dot.
    Every call blocks and may come from any thread. What fails raises `StoreError`; `StoreUnavailable` if
    trying again may help, and then it is unknown whether the write happened.
    """

    is_local: bool
    """True if a write is a short call that goes by the clock of this machine."""
    place: str
    """Where this is, as it may be shown: without secrets."""

    def get(self, name: str) -> Found | None:
        """Return what is kept under a name."""

    def create(self, name: str, data: bytes) -> bool:
        """Keep bytes under a name that is free; false if it is taken. Whole, durable, for one caller only."""

    def mark(self, names: Sequence[str]) -> None:
        """Make sure that these names are there, without bytes: all they say is in the name.

        They are durable once a `create` that comes later has returned, so that many cost one wait.
        """

    def swap(self, name: str, data: bytes, tag: str) -> bool:
        """Replace the bytes that had this tag; false if they were replaced or removed since."""

    def put(self, name: str, data: bytes) -> None:
        """Keep bytes under a name, whatever was there."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove what is there of these."""

    def names(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        """Return the names that begin with `prefix` and sort behind `after`, sorted by their bytes."""

    def listed(self, prefix: str) -> Iterable[Listed]:
        """Return names with sizes and times, in any order."""

    def now(self) -> datetime:
        """Return the time by the clock that everybody who uses this place shares."""

    def changes(self) -> int | None:
        """Return a number that is another one once anybody wrote; none if the place cannot tell.

        It costs next to nothing.
        """

    def health(self) -> Health:
        """Say what the place is, what it promises as it is set up now, and what that can lose."""

    def close(self) -> None: ...
