"""What becomes of a notice. Every store and whoever sends goes by this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from everstep.model.commits import NoticeRow, Told
from everstep.model.enums import Status
from everstep.model.notices import LONGEST_ERROR, Occasion, Tell

MOST_TRIES: Final = 12
"""A notice that failed so often is a dead letter."""
_FIRST_PAUSE: Final = timedelta(seconds=10)
_LONGEST_PAUSE: Final = timedelta(hours=6)

_replace = msgspec.structs.replace


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


def rows_told(told: Mapping[str, Iterable[str]], given: NoticeRow, now: datetime) -> list[NoticeRow]:
    """Return the notices that one of a commit means: itself, or one for each who wants to be told."""
    if given.notifier:
        return [given]
    aliases = told.get(given.occasion, ())
    return [
        _replace(given, notifier=alias, at=given.at or now, due_at=given.due_at or now) for alias in aliases
    ]


def taken(row: NoticeRow, until: datetime) -> NoticeRow:
    """Return a notice that somebody is about to send."""
    return _replace(row, tries=row.tries + 1, due_at=until)


def is_same_try(row: NoticeRow, there: NoticeRow | None) -> bool:
    """True if a notice has not been tried, sent or asked for since it was read."""
    return there is not None and (row.tries, row.round, row.sent_at) == (
        there.tries,
        there.round,
        there.sent_at,
    )


def after_sending(row: NoticeRow, now: datetime) -> NoticeRow:
    """Return a notice that was sent; one of a wait that goes on is due again."""
    if not row.every:
        return _replace(row, due_at=None, sent_at=now, error="")
    again, first = timedelta(microseconds=row.every), row.at or now
    passed = max((now - first) // again, 0)  # those that were missed are not made up for
    return _replace(
        row, due_at=first + again * (passed + 1), sent_at=now, tries=0, round=row.round + 1, error=""
    )


def after_failure(row: NoticeRow, error: str, now: datetime) -> NoticeRow:
    """Return a notice that could not be sent: it is tried later, or no more."""
    if row.tries >= MOST_TRIES:
        return _replace(row, due_at=None, sent_at=None, error=error[:LONGEST_ERROR])
    return _replace(row, due_at=now + pause_after(row.tries), error=error[:LONGEST_ERROR])


def pause_after(tries: int) -> timedelta:
    """Return how long after so many tries the next one comes."""
    return min(_FIRST_PAUSE * 4 ** max(tries - 1, 0), _LONGEST_PAUSE)


def asked_again(row: NoticeRow, now: datetime) -> NoticeRow:
    """Return a notice that somebody wants sent once more, whatever became of it."""
    return _replace(row, due_at=now, tries=0, sent_at=None, error=row.error)
