"""Events in a bucket, and the waits that they are brought to. Apart from the store, as few runs wait for any.

No act spans two objects here, and still none of the two misses the other, wherever a client dies:

- Who opens a wait marks it first, with the place of the log that is to open it. Then it looks for events that
  are kept, and the entry that opens the wait settles it with what was found.
- Who publishes keeps the event first, and looks for marks afterwards. A wait that is there it settles. One
  that is not there yet is about to be opened by a client that may have looked too early: the publisher takes
  the place that the mark names, so that this client finds it taken, and looks again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from everstep.ports.events import EventRow, Wanted
from everstep.stores.columns import to_int
from everstep.stores.objects import names
from everstep.stores.objects.drafts import Draft
from everstep.stores.objects.entries import Standing, opened, read, sealed
from everstep.stores.objects.lines import Lines

_events = msgspec.msgpack.Decoder(EventRow)
_MOST = 10_000
"""So many events are remembered, without their values: what a name stands for is written once."""


class ObjectEvents:
    """Brings events and waits together."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._shapes: dict[str, str] = {}
        self._known: dict[str, EventRow] = {}

    # -- who publishes ------------------------------------------------------------

    def keep(self, event: EventRow) -> list[str]:
        """Keep an event, once, and return the shapes of waits for its name."""
        if event.expires_at is not None:
            self._keep(event, event.expires_at - event.published_at)
        found = self._lines.bucket.names(names.shapes_prefix(event.name))
        return self._lines.each(self._shape, found)

    def _keep(self, event: EventRow, span: timedelta) -> None:
        now, bucket = self._lines.now(), self._lines.bucket
        name = names.event_name(event.name, event.event_id, now + span)
        if all(_is_over(there, now) for there in bucket.names(f"{name.rpartition('~')[0]}~")):
            kept = msgspec.structs.replace(event, published_at=now, expires_at=now + span)
            bucket.create(name, sealed(msgspec.msgpack.encode(kept)))

    def _shape(self, name: str) -> str:
        if name not in self._shapes:
            found = self._lines.bucket.get(name)
            self._shapes[name] = "[]" if found is None else opened(found.data, name).decode()
        return self._shapes[name]

    def settle(self, event: EventRow, topics: Collection[str]) -> int:
        """Settle open waits that listen for one of these topics."""
        marks: list[str] = []
        for wanted in map(Wanted.of, topics):
            assert wanted is not None
            marks += self._lines.bucket.names(names.topic_prefix(wanted))
        stale: list[str] = []
        given = sum(self._lines.each(lambda mark: self._offer(mark, event, stale), marks, syncs=True))
        if stale:
            self._lines.bucket.delete(stale)
        return given

    def _offer(self, name: str, event: EventRow, stale: list[str]) -> int:
        mark = names.read_topic(name)
        line = self._lines.known(mark.run_id)
        self._lines.try_place(line, mark.place)  # a run that has halted stands where its wait was opened
        given = self._lines.write(mark.run_id, lambda draft: draft.offer(event, mark.place), stale=stale)
        head = line.head
        if head is not None and head.place >= mark.place and not _listens(head.standing, name):
            stale.append(name)
        return given

    # -- who opens a wait ---------------------------------------------------------

    def hear(self, draft: Draft) -> None:
        """Mark the waits that a draft opens, and settle them with events that are kept."""
        for wanted in draft.listening.values():
            self._lines.keep_shape(wanted)
        self._lines.bucket.mark(list(draft.listening))
        draft.marks = [name for name in draft.marks if name not in draft.listening]
        draft.give(self._kept(draft.listening.values()))

    def hear_late(self, run_id: str, wanted: Collection[Wanted]) -> None:
        """Settle open waits of a run that was not there when they were marked: its log had no place yet."""
        self._lines.write(run_id, lambda draft: draft.give(self._kept(wanted)))

    def _kept(self, wanted: Collection[Wanted]) -> list[EventRow]:
        """Return events that are kept and that waits for one of these are for, in their order."""
        now, bucket = self._lines.now(), self._lines.bucket
        topics = [one.topic for one in wanted]
        there = [
            name
            for event in sorted({one.name for one in wanted})
            for name in bucket.names(names.events_prefix(event))
        ]
        if over := [name for name in there if _is_over(name, now)]:
            bucket.delete(over)
        met = self._lines.each(lambda name: self._met(name, topics), (n for n in there if n not in over))
        return sorted((event for event in met if event is not None), key=lambda event: event.published_at)

    def _met(self, name: str, topics: Sequence[str]) -> EventRow | None:
        """Return an event that a wait for one of these topics is for; it is read if that is not known."""
        known = self._known.get(name)
        if known is not None and not any(map(known.meets, topics)):
            return None
        found = self._lines.bucket.get(name)
        if found is None:
            return None
        event = read(_events, found.data, name)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[name] = msgspec.structs.replace(event, value=b"")
        return event if any(map(event.meets, topics)) else None


def _listens(standing: Standing, name: str) -> bool:
    return any(wait.heard == name for wait in standing.waits)


def _is_over(name: str, now: datetime) -> bool:
    """True if an event is no longer kept."""
    return names.kept_until(name) <= (to_int(now) or 0)
