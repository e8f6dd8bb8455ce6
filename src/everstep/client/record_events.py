"""The events of a run as its records tell them: ordered, complete, and readable from any point on. Apart from
what a drive tells while it goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

from everstep.errors import BadRequest
from everstep.model.enums import Status, Trigger
from everstep.model.records import FORK, CheckpointRecord
from everstep.ports.store import RunRow
from everstep.runtime.events import Event, EventKind, checkpoint_data, news_of, step_event, with_who
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

LOOK = 0.1
"""Seconds between two looks at whether the store was written to."""
PAGE = 32
"""How many records are read at once. A client that does not read holds no more in memory."""


def events_of(run_id: str, record: CheckpointRecord) -> list[Event]:
    """Return what a checkpoint tells of; an event's id is its sequence and its place in it."""
    found: list[Event] = []

    def add(kind: EventKind, data: dict[str, Any]) -> None:
        found.append(Event(kind=kind, run_id=run_id, at=record.created_at, data=data))

    if record.trigger is Trigger.ADMISSION:
        add("run_started", with_who({"flow": record.flow_id}, record.act))
    elif record.trigger is Trigger.RESUME:
        add("run_resumed", with_who({"sequence": record.sequence}, record.act))
    for step in record.steps:
        if step.path == FORK:
            forked = {"flow": record.flow_id, "forked_from": record.parent_run_id}
            add("run_started", with_who(forked, record.act))
        elif step.path[0] != "@":
            found.append(step_event(run_id, step, step.ended_at or step.started_at or record.created_at))
    for kind, data in news_of(record.trigger, record.metadata):
        add(kind, data)
    add("checkpoint", checkpoint_data(record))
    if record.status is Status.HALTED:
        add("run_halted", {"resume_after": record.resume_after.isoformat()} if record.resume_after else {})
    elif record.status.is_final:
        error = record.error.message if record.error is not None else None
        ended = {"status": record.status.value, "error": error}
        add("run_ended", with_who(ended, record.act if record.status is Status.CANCELLED else None))
    return [event.called(f"{record.sequence}.{n}") for n, event in enumerate(found, 1)]


class Tailing:
    """Follows the runs of a host. However many follow one, its row is read once after each change."""

    def __init__(self, services: Services, runs: RunReader) -> None:
        self._services = services
        self._runs = runs
        self._known: dict[str, tuple[int, RunRow]] = {}
        """Of each run that is followed: the count of changes before its row was read, and the row."""
        self._followers: Counter[str] = Counter()

    async def follow(self, run_id: str, after: str | None, *, live: bool) -> AsyncGenerator[Event, None]:
        """Yield the events of a run that come after one of them, by its id; by default all.

        With `live`, those still to come too, until the run has ended. Records are read a few at a time, as
        they are asked for, and between two pages others have their turn.
        """
        seen_last = _split(after)
        seen = self._services.store.changes()
        row = await self._runs.row(run_id)
        told = seen_last[0] - 1
        self._followers[run_id] += 1
        try:
            while True:
                async for event in self._between(row, told, seen_last):
                    yield event
                told = max(told, row.checkpoints)
                if row.status.is_final or not live:
                    return
                while (changes := self._services.store.changes()) == seen:
                    await self._services.system.pause(LOOK)
                seen = changes
                row = await self._row(run_id, seen)
        finally:
            self._followers[run_id] -= 1
            if not self._followers[run_id]:
                del self._followers[run_id]
                self._known.pop(run_id, None)

    async def _row(self, run_id: str, seen: int) -> RunRow:
        known = self._known.get(run_id)
        if known is None or known[0] != seen:
            known = self._known[run_id] = (seen, await self._runs.row(run_id))
        return known[1]

    async def _between(
        self, row: RunRow, told: int, seen_last: tuple[int, int]
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the records after one, up to the newest that the row knows of."""
        first = max(told + 1, row.trimmed_before, 1)
        while first <= row.checkpoints:
            last = min(first + PAGE - 1, row.checkpoints)
            for _, opened in await self._runs.lineage.open(row, first, last):
                if opened is None:
                    continue
                for n, event in enumerate(events_of(row.run_id, opened.record), 1):
                    if (opened.record.sequence, n) > seen_last:
                        yield event
            first = last + 1
            await self._services.system.pause(0)


def _split(after: str | None) -> tuple[int, int]:
    if after is None:
        return 0, 0
    sequence, dot, place = after.partition(".") if isinstance(after, str) else ("", "", "")
    if not (sequence.isdecimal() and dot and place.isdecimal()) or len(after) > 20:
        raise BadRequest(f"{str(after)[:40]!r} is not the id of an event.", fix="They look like 12.3.")
    return int(sequence), int(place)
