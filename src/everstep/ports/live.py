"""What a store keeps for a while of what nodes emit, for those who follow a run from another process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from everstep.errors import BadRequest

KEPT = timedelta(minutes=10)
"""How long a batch is kept at least, unless its run has written too many since."""
MOST = 2000
"""How many batches of one run are kept at least, of those that are not too old."""
PAGE = 256
"""How many batches of one run are read at once."""
ATTEMPTS = 10
"""How many attempts at a visit keep their logs."""
NOT_HERE = "this store keeps no live data, only what is recorded; SQLite, PostgreSQL and Redis do"
"""What those are told who ask for live data of a store without."""
_POSITION = re.compile(r"([0-9]{1,10}\.[0-9]{1,9})?(?:~([0-9]{1,19}\.[0-9]{1,12}))?")
"""A restored run begins at an epoch of 2^20 times its number in the store, so epochs may fill 63 bits."""


class Offset(NamedTuple):
    """Where something stands among what one run emits. Offsets of a run only grow."""

    epoch: int
    """That of the owner that drove the run."""
    number: int
    """Its place among what was emitted in that epoch, from 1."""


BEGINNING = Offset(0, 0)
"""Before everything."""


class LiveBatch(msgspec.Struct, frozen=True):
    """What one run emitted since it was last written."""

    run_id: str
    epoch: int
    last: int
    """The number of its last entry."""
    count: int
    body: bytes
    """The entries as JSON, or that encrypted."""

    @property
    def offset(self) -> Offset:
        """The offset of its last entry."""
        return Offset(self.epoch, self.last)


class Position(NamedTuple):
    """How far a reader of a run has come: in its records, and in what is emitted."""

    sequence: int = 0
    place: int = 0
    """The last event that was seen of that record."""
    offset: Offset = BEGINNING

    @classmethod
    def of(cls, text: str | None) -> Position:
        """Read the id of an event: `12.3`, `12.3~4.17` or `~4.17`."""
        if text is None:
            return cls()
        found = _POSITION.fullmatch(text) if isinstance(text, str) and text else None
        if found is None:
            raise BadRequest(
                f"{str(text)[:40]!r} is not the id of an event.", fix="They look like 12.3 or 12.3~4.17."
            )
        record, live = (_pair(part) for part in found.groups())
        return cls(*record, Offset(*live))

    def __str__(self) -> str:
        live = f"~{self.offset.epoch}.{self.offset.number}" if self.offset != BEGINNING else ""
        return f"{self.sequence}.{self.place}{live}"


def _pair(text: str | None) -> tuple[int, int]:
    first, _, second = (text or "0.0").partition(".")
    return int(first), int(second)


class LogPlace(NamedTuple):
    """Which attempt at a step a log belongs to. One that died has another epoch than the next."""

    run_id: str
    path: str
    visit: int
    epoch: int
    attempt: int


class KeptLog(NamedTuple):
    """What an attempt at a step logged and printed."""

    place: LogPlace
    body: bytes
    """JSON, or that encrypted."""


RecodedBatch = tuple[LiveBatch, bytes]
RecodedLog = tuple[KeptLog, bytes]
"""What was read, and other bytes for its body."""


class LiveRing(Protocol):
    """A bounded ring of batches, and the logs of steps. Blocking; each call may be made from any thread.

    The ring holds no truth and need not survive the server or the machine; the oldest batches go first. Logs
    are kept as long as their run, and survive the end of the process that wrote them. Erasing a run removes
    both.
    """

    def append(self, batches: Sequence[LiveBatch]) -> None:
        """Keep batches, in one round trip, and wake those who read. One that is there already stays."""

    def read(self, after: Mapping[str, Offset], seconds: float) -> list[LiveBatch]:
        """Return what came of these runs behind their offsets, of each run in order, the oldest first.

        If there is nothing yet, wait for it up to so many seconds.
        """

    def write_logs(self, logs: Sequence[KeptLog]) -> None:
        """Keep logs, each in the place of what was kept of it before; of a visit the newest `ATTEMPTS`."""

    def read_logs(self, run_id: str, path: str | None = None) -> list[KeptLog]:
        """Return the logs of a run, or of one of its nodes, sorted by where they belong."""

    def recode(self, batches: Sequence[RecodedBatch], logs: Sequence[RecodedLog]) -> int:
        """Replace the bytes of batches and logs by others that mean the same, and return how many were.

        Each only while it is there and says what was read.
        """

    def close(self) -> None: ...


@runtime_checkable
class LiveStore(Protocol):
    """A store with a ring beside it, as `Capabilities.live` says."""

    def live(self) -> LiveRing:
        """Return the ring; it is made, or looked for, when it is first used."""
