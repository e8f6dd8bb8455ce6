"""The events of a run as its records tell them: ordered, complete, and readable from any point on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from everstep.errors import BadRequest
from everstep.model.enums import Status, Trigger
from everstep.model.records import FORK, CheckpointRecord
from everstep.runtime.events import Event, EventKind, news_of, step_event
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.system import pause

LOOK = 0.1
"""Seconds between two looks at whether somebody wrote to the store."""


def events_of(run_id: str, record: CheckpointRecord) -> list[Event]:
    """Return what a checkpoint tells of; an event's id is its sequence and its place in it."""
    found: list[Event] = []

    def add(kind: EventKind, data: dict[str, Any]) -> None:
        found.append(Event(kind=kind, run_id=run_id, at=record.created_at, data=data))

    if record.trigger is Trigger.ADMISSION:
        add("run_started", {"flow": record.flow_id})
    elif record.trigger is Trigger.RESUME:
        add("run_resumed", {"sequence": record.sequence})
    for step in record.steps:
        if step.path == FORK:
            add("run_started", {"flow": record.flow_id, "forked_from": record.parent_run_id})
        elif step.path[0] != "@":
            found.append(step_event(run_id, step, step.ended_at or step.started_at or record.created_at))
    for kind, data in news_of(record.trigger, record.metadata):
        add(kind, data)
    add("checkpoint", {"sequence": record.sequence, "trigger": record.trigger.value})
    if record.status is Status.HALTED:
        add("run_halted", {})
    elif record.status.is_final:
        error = record.error.message if record.error is not None else None
        add("run_ended", {"status": record.status.value, "error": error})
    return [event.called(f"{record.sequence}.{n}") for n, event in enumerate(found, 1)]


async def follow(
    services: Services, runs: Runs, run_id: str, after: str | None, *, live: bool
) -> AsyncIterator[Event]:
    """Yield the events of a run that come after one of them, by its id; by default all.

    With `live`, those still to come too, until the run has ended.
    """
    sequence, place = _split(after)
    while True:
        seen = services.store.changes()
        row = await runs.row(run_id)
        first = max(sequence, row.trimmed_before, 1)
        for _, opened in await runs.lineage.open(row, first, None):
            if opened is None:
                continue
            record = opened.record
            for n, event in enumerate(events_of(row.run_id, record), 1):
                if (record.sequence, n) > (sequence, place):
                    sequence, place = record.sequence, n
                    yield event
        if row.status.is_final or not live:
            return
        while services.store.changes() == seen:
            await pause(LOOK)


def _split(after: str | None) -> tuple[int, int]:
    if after is None:
        return 0, 0
    sequence, dot, place = after.partition(".") if isinstance(after, str) else ("", "", "")
    if not (sequence.isdecimal() and dot and place.isdecimal()) or len(after) > 20:
        raise BadRequest(f"{str(after)[:40]!r} is not the id of an event.", fix="They look like 12.3.")
    return int(sequence), int(place)
