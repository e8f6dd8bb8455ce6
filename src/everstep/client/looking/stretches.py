"""Which checkpoints are read where a long run is looked at in part: near a place, or between two times.
Apart from `groups.debug`, which lists calls: this is how one of them finds what it reads.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from everstep.codec.records import header_of
from everstep.model.address import Part
from everstep.model.records import CheckpointRecord
from everstep.ports.store import RunRow
from everstep.runtime.history import told_by
from everstep.runtime.reader import RunReader

CHECKPOINTS = 2000
"""How many checkpoints are read at most."""
STEPS = 20_000
"""How many steps they may hold, from which on no more are read."""
_PAGE = 250


class Stretch(NamedTuple):
    """Some checkpoints of a run that follow one another."""

    first: int
    last: int
    records: list[CheckpointRecord]


async def read_stretch(
    runs: RunReader,
    row: RunRow,
    last: int,
    *,
    at: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    part: Part | None = None,
) -> Stretch:
    """Read the newest checkpoints up to one, or those on both sides of `at`, or the newest between two times.

    With a time one more is read behind them: it may tell of what went on meanwhile. No values are read.
    """
    oldest = max(1, row.trimmed_before)
    if at is not None:
        last = min(last, max(at + CHECKPOINTS // 2, CHECKPOINTS))
    if until is not None:
        last = await _first_made(runs, row, oldest, last, until)
    if since is not None:
        oldest = await _first_made(runs, row, oldest, last, since)
    oldest = max(oldest, last - CHECKPOINTS + 1)
    found, first, steps = list[CheckpointRecord](), last + 1, 0
    while first > oldest and steps < STEPS:
        begin = max(oldest, first - _PAGE)
        page = await told_by(runs, row, begin, first - 1, part)
        found, first = [*page, *found], begin
        steps += sum(len(record.steps) for record in page)
    return Stretch(first, last, found)


async def _first_made(runs: RunReader, row: RunRow, first: int, last: int, moment: datetime) -> int:
    """Return the first checkpoint made at a time or later; the last one if all were made before."""
    while first < last:
        middle = (first + last) // 2
        [link] = await runs.lineage.get(row, middle, middle)
        if link.stored.is_stub or header_of(link.stored.body, link.where).created_at < moment:
            first = middle + 1
        else:
            last = middle
    return first
