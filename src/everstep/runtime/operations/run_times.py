"""What the checkpoints of ended runs say of their times.

Those of a run that has ended stay as they are, so what was read of one is kept in mind. Apart from
`durations`, as services hold what was read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import Final

import msgspec

from everstep.codec.records import header_of
from everstep.errors import StateCorrupted
from everstep.model.enums import Status
from everstep.model.records import RESULT, CheckpointRecord, StepRecord
from everstep.ports.store import CheckpointStore, RunRow

MOST_RUNS: Final = 1000
"""Of how many runs times are kept in mind."""
MOST_RECORDS: Final = 500
"""How many checkpoints are read of a run, the newest."""
_AT_ONCE: Final = 2000
"""How many checkpoints are asked for at once."""
_ENDS: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
_TIMED: Final = frozenset({Status.COMPLETED, Status.FAILED})


class VisitTimes(msgspec.Struct):
    """What a run did in one node."""

    visits: int = 0
    failures: int = 0
    retries: int = 0
    seconds: list[float] = []


class RunTimes(msgspec.Struct, frozen=True):
    """What the checkpoints of a run say of its times."""

    flow: str
    began: datetime
    ended: datetime
    waiting: float | None
    """None if not all of them could be read."""
    nodes: dict[str, VisitTimes]
    read_at: datetime

    @property
    def total(self) -> float:
        return max((self.ended - self.began).total_seconds(), 0.0)


class ReadTimes:
    """The times of runs that were read, as long as there are not too many."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, datetime], RunTimes] = {}
        """By what is another once a run has gone on: its newest checkpoint, and when it ended."""

    async def of(self, store: CheckpointStore, rows: Sequence[RunRow], now: datetime) -> list[RunTimes]:
        """Return the times of runs that have ended; what was not read before is read now, some at once."""
        keys = {(row.run_id, row.checkpoints, row.ended_at): row for row in rows if row.ended_at is not None}
        found = {key: self._known[key] for key in keys if key in self._known}
        for part in _parts([row for key, row in keys.items() if key not in found]):
            read = await asyncio.gather(*(_read(store, row, now) for row in part))
            for row, times in zip(part, read, strict=True):
                found[row.run_id, row.checkpoints, times.ended] = times
        for key in found:
            self._known.pop(key, None)  # what was asked for last goes last
        self._known |= found
        for key in list(self._known)[: max(len(self._known) - MOST_RUNS, 0)]:
            self._known.pop(key, None)
        return [found[key] for key in keys]


def _parts(rows: Sequence[RunRow]) -> Iterator[list[RunRow]]:
    """Yield runs in groups that do not have too many checkpoints together."""
    part: list[RunRow] = []
    many = 0
    for row in rows:
        own = min(row.checkpoints - row.first + 1, MOST_RECORDS)
        if part and many + own > _AT_ONCE:
            yield part
            part, many = [], 0
        part.append(row)
        many += own
    if part:
        yield part


async def _read(store: CheckpointStore, row: RunRow, now: datetime) -> RunTimes:
    """Read the newest checkpoints of a run that has ended. What of it is damaged says nothing."""
    assert row.ended_at is not None
    stored = await store.get(row.run_id, first=max(row.first, row.checkpoints - MOST_RECORDS + 1))
    records: list[CheckpointRecord] = []
    with suppress(StateCorrupted):
        for one in stored:
            if not one.is_stub:
                records.append(header_of(one.body, f"checkpoint {one.sequence} of run {row.run_id!r}"))
    is_whole = len(records) == len(stored) > 0 and records[0].sequence == row.first
    return RunTimes(
        row.flow_id,
        row.created_at,
        row.ended_at,
        _waiting(records, row.ended_at) if is_whole else None,
        _nodes(step for record in records for step in record.steps),
        now,
    )


def _waiting(records: Sequence[CheckpointRecord], ended: datetime) -> float:
    """Return for how long a run did nothing, in seconds."""
    waited = 0.0
    for k, (before, after) in enumerate(pairwise(records)):
        if k == 0 or before.status is not Status.RUNNING:
            since = before.created_at
            waited += max((min(_gone_on(after, since), ended) - since).total_seconds(), 0.0)
    return waited


def _gone_on(record: CheckpointRecord, since: datetime) -> datetime:
    """Return when a run went on, as the next checkpoint says: a step began, or took an answer."""
    times = (time for step in record.steps for time in (step.started_at, step.ended_at) if time is not None)
    return min((time for time in times if time > since), default=record.created_at)


def _nodes(steps: Iterable[StepRecord]) -> dict[str, VisitTimes]:
    found: dict[str, VisitTimes] = {}
    for step in steps:
        if step.path[0] == "@" or step.path.rpartition("/")[2][0] == RESULT:
            continue
        at = found.setdefault(_node_of(step.path), VisitTimes(seconds=[]))
        at.visits += step.status in _ENDS
        at.failures += step.status is Status.FAILED
        at.retries += step.status is Status.RETRYING
        if step.status in _TIMED and step.started_at is not None and step.ended_at is not None:
            at.seconds.append(max((step.ended_at - step.started_at).total_seconds(), 0.0))
    return found


def _node_of(path: str) -> str:
    """Return a path without visits, and its items without their numbers."""
    return re.sub(r"#\d+", "#", re.sub(r"@\d+", "", path))
