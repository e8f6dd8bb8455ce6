"""Which notices an act on a run means, and who may have one to send. Every store goes by this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from everstep.graph.tells import Occasion, Tell
from everstep.model.commits import NoticeRow, Told
from everstep.model.enums import Status


def told_of(tells: Iterable[Tell], flow: str, tags: Mapping[str, str]) -> Told:
    """Return who is told on which occasion of a run of this flow with these tags, each once."""
    found: dict[str, dict[str, None]] = {}
    for tell in tells:
        if tell.concerns(flow, tags):
            for occasion in tell.occasions:
                found.setdefault(str(occasion), {})[tell.notifier] = None
    return {occasion: tuple(aliases) for occasion, aliases in sorted(found.items())}


def overdue_notices(
    tells: Iterable[Tell], flow: str, tags: Mapping[str, str], now: datetime
) -> list[NoticeRow]:
    """Return the notices that a run brings when it is admitted: each is sent only if it goes on so long."""
    first: dict[str, timedelta] = {}
    for tell in tells:
        if tell.overdue is not None and tell.concerns(flow, tags):
            first[tell.notifier] = min(tell.overdue, first.get(tell.notifier, tell.overdue))
    return [
        NoticeRow(notifier=alias, occasion=Occasion.OVERDUE, at=now + span, due_at=now + span)
        for alias, span in first.items()
    ]


def status_told(before: Status | None, status: Status | None) -> str | None:
    """Return the occasion that another status is; none if it is the same, or the run goes on."""
    if status is None or status is before or status is Status.RUNNING:
        return None
    return status.value


def still_wanted(rows: Iterable[NoticeRow]) -> tuple[NoticeRow, ...]:
    """Return the notices of a run that has ended: it is overdue no more."""
    return tuple(row for row in rows if row.occasion != Occasion.OVERDUE or row.sent_at is not None)


def rows_told(told: Mapping[str, Iterable[str]], given: NoticeRow, now: datetime) -> list[NoticeRow]:
    """Return the notices that one of a commit means: itself, or one for each who wants to be told."""
    if given.notifier:
        return [given]
    aliases = told.get(given.occasion, ())
    return [
        given.changed(notifier=alias, at=given.at or now, due_at=given.due_at or now) for alias in aliases
    ]


def taken(row: NoticeRow, until: datetime) -> NoticeRow:
    """Return a notice that is about to be sent."""
    return row.changed(tries=row.tries + 1, due_at=until)


def is_same_try(row: NoticeRow, there: NoticeRow | None) -> bool:
    """True if a notice has not been tried, sent or asked for since it was read."""
    return there is not None and (row.tries, row.round, row.sent_at) == (
        there.tries,
        there.round,
        there.sent_at,
    )
