"""The events of a run as its records tell them: ordered, complete, and readable from any point on; for those
who follow it, with what its nodes emit. Apart from what a drive tells while it goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from everstep.errors import EverstepError
from everstep.model.enums import Status, Trigger
from everstep.model.records import FORK, CheckpointRecord
from everstep.on_demand import on_demand
from everstep.ports.live import NOT_HERE, LiveBatch, Offset, Position
from everstep.ports.store import RunRow
from everstep.runtime.events import Event, EventKind, checkpoint_data, news_of, step_event, with_who
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.runtime.live.entries import LiveEntry, open_batch
else:
    open_batch = on_demand("everstep.runtime.live.entries:open_batch")

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
        self._known: dict[str, tuple[int, asyncio.Future[RunRow]]] = {}
        """Of each run that is followed: the count of changes before its row was asked for, and the row."""
        self._followers: Counter[str] = Counter()

    async def follow(
        self, run_id: str, after: str | None, *, live: bool, with_emitted: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a run that come after one of them, by its id; by default all.

        With `live`, those still to come too, until the run has ended. Records are read a few at a time, as
        they are asked for, and between two pages others have their turn. `with_emitted` adds what its nodes
        emit, as far as it is kept; an id then tells where a reader stands in both.
        """
        position = Position.of(after)
        seen_last = position.sequence, position.place
        seen = self._services.store.changes()
        row = await self._runs.row(run_id)
        told = seen_last[0] - 1
        emitted = Emitted(self._services, run_id, position) if with_emitted else None
        self._followers[run_id] += 1
        try:
            while True:
                recorded = self._between(row, told, seen_last)
                # What was emitted before the run came as far as the row says is there by now.
                async for event in recorded if emitted is None else emitted.among(recorded):
                    yield event
                told = max(told, row.checkpoints)
                if row.status.is_final or not live:
                    return
                while True:
                    if (changes := self._services.store.changes()) != seen:
                        seen = changes
                        row = await self._row(run_id, seen)
                        if row.checkpoints > told or row.status.is_final:
                            break
                    if emitted is None or not emitted.is_kept:
                        await self._services.system.pause(LOOK)
                        continue
                    for event in await emitted.next():
                        yield event
        finally:
            self._followers[run_id] -= 1
            if not self._followers[run_id]:
                del self._followers[run_id]
                if run_id in self._known:
                    self._known.pop(run_id)[1].cancel()

    async def _row(self, run_id: str, seen: int) -> RunRow:
        """Return the row as it is after a change. Those who ask while it is read wait for the same answer."""
        known = self._known.get(run_id)
        if known is None or known[0] != seen:
            asked = asyncio.ensure_future(self._runs.row(run_id))
            asked.add_done_callback(_heard)
            known = self._known[run_id] = (seen, asked)
        return await asyncio.shield(known[1])

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


def _heard(asked: asyncio.Future[RunRow]) -> None:
    """Take note of an error that no follower is left to hear."""
    if not asked.cancelled():
        asked.exception()


class _AtOffset(NamedTuple):
    offset: Offset
    event: Event


class Emitted:
    """What the nodes of one run emit, for one reader; knows how far the reader has come.

    Nothing is kept for a reader: one that is slow asks later, and what is gone by then is a gap.
    """

    def __init__(self, services: Services, run_id: str, position: Position) -> None:
        self._services = services
        self._run_id = run_id
        self._at = position
        """How far the reader has come."""
        self._read = position.offset
        """How far was read for it."""
        self._is_told = False

    @property
    def is_kept(self) -> bool:
        """True if the store keeps what nodes emit."""
        return self._services.live.is_there

    async def among(self, recorded: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """Yield what is there already among events of records, each where its time puts it."""
        so_far = self._so_far()
        waiting = await anext(so_far, None)
        async for event in recorded:
            while waiting is not None and waiting.event.at <= event.at:
                yield self._placed(waiting)
                waiting = await anext(so_far, None)
            sequence, _, place = event.id.partition(".")
            self._at = self._at._replace(sequence=int(sequence), place=int(place))
            yield event.called(str(self._at))
        while waiting is not None:
            yield self._placed(waiting)
            waiting = await anext(so_far, None)

    async def next(self) -> list[Event]:
        """Return what came, after waiting a moment for it."""
        reader = self._services.live.reader
        assert reader is not None
        return [self._placed(one) for one in self._opened(await reader.next(self._run_id, self._read))]

    async def _so_far(self) -> AsyncGenerator[_AtOffset, None]:
        reader = self._services.live.reader
        if reader is None:
            if not self._is_told:
                self._is_told = True
                yield self._gap(self._read, self._services.clock.now(), {"reason": NOT_HERE})
            return
        while batches := await reader.now(self._run_id, self._read):
            for one in self._opened(batches):
                yield one

    def _placed(self, one: _AtOffset) -> Event:
        self._at = self._at._replace(offset=one.offset)
        return one.event.called(str(self._at))

    def _opened(self, batches: Sequence[LiveBatch]) -> Iterator[_AtOffset]:
        for batch in batches:
            if batch.offset <= self._read:
                continue
            try:
                entries = open_batch(self._services.codecs, batch)
            except EverstepError as error:
                lost = self._missing(batch.epoch, batch.last + 1)
                self._read = batch.offset
                told = {"lost": lost, "reason": error.message}
                yield self._gap(batch.offset, self._services.clock.now(), told)
                continue
            for number, entry in enumerate(entries, batch.last - batch.count + 1):
                if Offset(batch.epoch, number) > self._read:
                    yield from self._entry(Offset(batch.epoch, number), entry)

    def _entry(self, offset: Offset, entry: LiveEntry) -> Iterator[_AtOffset]:
        lost = self._missing(offset.epoch, offset.number)
        if lost:
            yield self._gap(Offset(offset.epoch, offset.number - 1), entry.at, {"lost": lost})
        self._read = offset
        event = Event(
            kind="chunk" if entry.kind == "chunk" else "emitted",
            run_id=self._run_id,
            at=entry.at,
            node=entry.node,
            visit=entry.visit,
            attempt=entry.attempt,
            data=entry.data,
        )
        yield _AtOffset(offset, event)

    def _missing(self, epoch: int, number: int) -> int:
        """Return how many of an epoch are missing before a number."""
        before = self._read
        return number - 1 - (before.number if before.epoch == epoch else 0)

    def _gap(self, offset: Offset, at: datetime, data: dict[str, Any]) -> _AtOffset:
        return _AtOffset(offset, Event(kind="gap", run_id=self._run_id, at=at, data=data))
