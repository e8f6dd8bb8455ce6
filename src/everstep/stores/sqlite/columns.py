"""What the columns of the tables mean to SQLite, which takes any value in any of them."""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import Any

import msgspec

from everstep.errors import StateCorrupted
from everstep.model.removal import Tombstone
from everstep.model.waits import SignalRow, WaitRow
from everstep.ports.store import RunRow, StoredRecord
from everstep.stores.columns import to_time
from everstep.stores.tables import RUNS, SIGNALS, TOMBSTONES, WAITS, Converts, FoundRun, Held, Rows

SPAN = 1 << 32
"""How many positions each run has in the table of checkpoints."""
LARGE_STRUCTURE = 16 << 10
"""From how many bytes on the structure of a flow is compressed: 0.1 reads only what is not."""
_LARGEST_STRUCTURE = 1 << 28
"""How much becomes of one at most: no flow is that large, but an altered file may say anything."""
MOST_RUNS = 1 << 31
"""A run's number and a position of its own must fit into one integer of SQLite's."""


def stored(sequence: int, checkpoint_id: str, keyframe: int, body: bytes, is_stub: int) -> StoredRecord:
    whole = memoryview(body).tobytes()
    if is_stub:
        return StoredRecord(sequence, str(checkpoint_id), False, b"", whole)
    return StoredRecord(sequence, str(checkpoint_id), bool(keyframe), whole)


def packed_structure(blueprint: bytes) -> bytes:
    """Return the structure of a flow as it is kept, once per hash: JSON, compressed if it is large."""
    return blueprint if len(blueprint) < LARGE_STRUCTURE else zlib.compress(blueprint, 1)


def read_structure(kept: bytes) -> bytes:
    """Return the structure of a flow as JSON; what cannot be read is left as it is, and its hash tells."""
    if kept[:1] == b"{":
        return kept
    try:
        return zlib.decompressobj().decompress(kept, _LARGEST_STRUCTURE)
    except zlib.error:
        return kept


def run_values(row: RunRow, epoch: int) -> tuple[Any, ...]:
    """Return the columns of a run that is new here, besides its key."""
    return (*_RUNS.values(row), *Held.of(row, epoch))


def run_row(row: tuple[Any, ...]) -> RunRow:
    """Read a row of runs with the position of its newest record."""
    try:
        found = FoundRun.of(row)
        held, start = found.held, _number(found.key) * SPAN
        for number in (held.epoch, held.takeovers, held.claimed_sequence):
            _number(number)
        newest = start if found.newest is None else _number(found.newest)
        lease = held.lease(found.values[0], _text)
        return _RUNS.row(found.values, checkpoints=newest - start, lease=lease)
    except (ValueError, TypeError, OverflowError, msgspec.DecodeError) as error:
        raise StateCorrupted(f"the row of run {row[1]!r} was altered: {error}.") from error


def wait_values(wait: WaitRow, run_key: int) -> dict[str, Any]:
    """Return the columns of a wait."""
    return _WAITS.kept(wait) | {"run_key": run_key}


def wait_row(row: tuple[Any, ...]) -> WaitRow:
    """Read a row of waits that the id of its run precedes."""
    try:
        return _WAITS.row(row[1:], run_id=_text(row[0]))
    except (ValueError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"the row of wait {row[1]!r} was altered: {error}.") from error


def signal_row(row: tuple[Any, ...]) -> SignalRow:
    """Read a row of the inbox."""
    try:
        return _SIGNALS.row(row)
    except (ValueError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"the row of signal {row[0]!r} was altered: {error}.") from error


def tombstone(row: tuple[Any, ...]) -> Tombstone:
    """Read a row of tombstones."""
    try:
        return _TOMBSTONES.row(row)
    except (ValueError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"what is left of run {row[0]!r} was altered: {error}.") from error


def due_time(at: Any) -> datetime | None:
    try:
        return to_time(at)
    except (TypeError, OverflowError) as error:
        raise StateCorrupted(f"the row of a wait was altered: {error}.") from error


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r:.40} where text belongs")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.40} where a number belongs")
    return value


def _flag(value: Any) -> bool:
    return bool(_number(value))


def _bytes(value: Any) -> bytes:
    return memoryview(value).tobytes()


READ: Converts = {str: _text, int: _number, bool: _flag, bytes: _bytes}
_RUNS = Rows(RUNS, keep={}, read=READ)
_WAITS = Rows(WAITS, keep={}, read=READ)
_SIGNALS = Rows(SIGNALS, keep={}, read=READ)
_TOMBSTONES = Rows(TOMBSTONES, keep={}, read=READ)
