"""When a run is to begin, and by when it is to have ended: as people say it, and as its records keep it.

Both are waits for a time, at `@start` and `@deadline`: rows that the store keeps, and that workers find due.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from everstep.codec.notes import DETAILS, close_note, sealed_due
from everstep.engine.state import RunState
from everstep.errors import BadRequest, ServiceMissing
from everstep.graph.author.flow import Flow
from everstep.model.durations import Ends, Span, is_span, moment_of, span_of
from everstep.model.enums import Status
from everstep.model.records import DEADLINE, START, StepRecord
from everstep.model.waits import DEADLINE_KIND, WaitOpened, WaitRow
from everstep.runtime.drive.chain_writer import Journal
from everstep.runtime.services import Services

_NO_TIME: Final = timedelta()
_SAID: Final = {
    START: "The run begins then.",
    DEADLINE: "The run is ended then, if it has not ended by itself.",
}


class Times(msgspec.Struct, frozen=True):
    """When a run is to begin, and by when it is to have ended, each as a moment or as a span from now on."""

    begins: datetime | timedelta | None = None
    ends: Ends | None = None
    """If it is a span, it counts from when the run begins."""


def times_of(
    at: datetime | str | None = None,
    after: Span | None = None,
    deadline: Span | datetime | None = None,
) -> Times | None:
    """Return what was said of the times of a run; none if nothing was."""
    if at is not None and after is not None:
        raise BadRequest("a run is to start `at` a time and `after` a while.", fix="Give one of them.")
    begins: datetime | timedelta | None = None
    if at is not None:
        begins = moment_of(at, "at")
    elif after is not None:
        begins = span_of(after, "after")
    ends = None if deadline is None else deadline_of(deadline)
    return None if begins is None and ends is None else Times(begins, ends)


def plain_times(
    at: datetime | str | None, after: Span | None, deadline: Span | datetime | None
) -> dict[str, str | float]:
    """Return what was said of the times of a run as values that any record can keep."""
    times = times_of(at, after, deadline) or Times()
    said = {"at" if at is not None else "after": times.begins, "deadline": times.ends}
    return {name: _plain(one) for name, one in said.items() if one is not None}


def _plain(said: Ends) -> str | float:
    return said.isoformat() if isinstance(said, datetime) else said.total_seconds()


def times_kept(kept: Mapping[str, Any]) -> Times | None:
    """Return what `plain_times` made values of."""
    return times_of(**kept)


def deadline_of(said: Span | datetime) -> Ends:
    """Read a deadline: a span from the start of the run, or a moment."""
    is_moment = isinstance(said, datetime) or (isinstance(said, str) and not is_span(said) and "T" in said)
    if is_moment:
        return moment_of(said, "deadline")
    span = span_of(said, "deadline")
    if span <= _NO_TIME:
        raise BadRequest(
            f"deadline is {said!r:.60}: the run would end at once.", fix='Give a span like "2h".'
        )
    return span


async def opened_times(
    journal: Journal, services: Services, flow: Flow, times: Times | None
) -> list[tuple[StepRecord, WaitRow]]:
    """Return the waits that a run is admitted with: for when it begins, and for when it is ended."""
    opened: list[tuple[StepRecord, WaitRow]] = []
    times = Times() if times is None else times
    ends = flow.deadline if times.ends is None else times.ends
    if times.begins is None and ends is None:
        return opened
    now = await _now(journal, services)
    begins = _moment(times.begins, now, "after") if times.begins is not None else now
    if begins > now:
        if not journal.writes:
            raise BadRequest(
                f"flow {flow.name!r} is kept nowhere (durability off), so none of its runs can begin later.",
                fix="Start it when it is to begin, or use another durability.",
            )
        opened.append(_opened(journal, services, START, "timer", begins, now))
    if ends is not None:
        at = _moment(ends, max(begins, now), "deadline")
        if at <= max(begins, now):
            raise BadRequest(
                f"deadline is {at.isoformat()}, and the run begins at {max(begins, now).isoformat()}.",
                fix="Give one that comes later.",
            )
        opened.append(_opened(journal, services, DEADLINE, DEADLINE_KIND, at, now))
    return opened


async def give_deadline(journal: Journal, services: Services, state: RunState, ends: Ends) -> None:
    """Buffer a new deadline of a run that goes on, in place of the one it has."""
    if state.undo is not None and state.undo.has_begun:
        raise BadRequest(
            f"run {journal.run_id!r} undoes what it did, which no deadline ends.",
            fix="Leave the deadline out.",
        )
    now = await _now(journal, services)
    at = _moment(ends, now, "deadline")
    if at <= now:
        raise BadRequest(
            f"deadline is {at.isoformat()}, which has gone by.", fix="Give one that comes later."
        )
    journal.lift_deadline()
    step, row = _opened(journal, services, DEADLINE, DEADLINE_KIND, at, now)
    journal.add(step, ())
    if journal.writes:
        journal.waits.append(row)


async def _now(journal: Journal, services: Services) -> datetime:
    await services.time.hear()
    if services.time.is_missing:
        await journal.ask_time()
    return services.time.now()


def _moment(said: datetime | timedelta, since: datetime, what: str) -> datetime:
    if isinstance(said, datetime):
        return said
    try:
        return since + said
    except OverflowError:
        raise BadRequest(f"{what} lies past the end of the calendar.", fix="Wait less long.") from None


def _opened(
    journal: Journal, services: Services, path: str, kind: str, at: datetime, now: datetime
) -> tuple[StepRecord, WaitRow]:
    """Return the step that waits for a time, and the row that goes with it."""
    if journal.writes and not services.store.capabilities.holds_waits:
        raise ServiceMissing(
            "this store keeps no times at which runs go on.", fix="Leave the time out, or use another store."
        )
    opened = WaitOpened(services.ids.new_id(), kind, at)
    details = sealed_due(services.codecs, msgspec.json.encode({"prompt": _SAID[path]}), at)
    row = WaitRow(
        wait_id=opened.wait_id,
        run_id=journal.run_id,
        flow_id=journal.flow_id,
        path=path,
        visit=1,
        kind=kind,
        opened_at=now,
        details=close_note(services.codecs, opened.wait_id, DETAILS, details),
        due_at=at,
    )
    return StepRecord(path=path, status=Status.HALTED, wait=opened, ended_at=now), row
