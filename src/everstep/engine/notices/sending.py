"""What becomes of a notice that was tried: it was sent, is tried later, or is a dead letter.

A reminder is none: its next one tells the same.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from everstep.graph.tells import LONGEST_ERROR
from everstep.model.commits import NoticeRow

MOST_TRIES: Final = 12
"""A notice that failed so often is a dead letter."""
_FIRST_PAUSE: Final = timedelta(seconds=10)
_LONGEST_PAUSE: Final = timedelta(hours=6)


def after_sending(row: NoticeRow, now: datetime) -> NoticeRow:
    """Return a notice that was sent; one of a wait that goes on is due again."""
    if not row.every:
        return row.changed(due_at=None, sent_at=now, error="")
    again, first = timedelta(microseconds=row.every), row.at or now
    passed = max((now - first) // again, 0)  # those that were missed are not made up for
    return row.changed(
        due_at=first + again * (passed + 1), sent_at=now, tries=0, round=row.round + 1, error=""
    )


def after_failure(row: NoticeRow, error: str, now: datetime) -> NoticeRow:
    """Return a notice that could not be sent: it is tried later, or no more."""
    if row.tries >= MOST_TRIES and row.every:
        # Who is asked for an answer hears of it the next time: an outage of a day does not end that for good.
        return after_sending(row, now).changed(sent_at=row.sent_at, error=error[:LONGEST_ERROR])
    if row.tries >= MOST_TRIES:
        return row.changed(due_at=None, sent_at=None, error=error[:LONGEST_ERROR])
    return row.changed(due_at=now + pause_after(row.tries), error=error[:LONGEST_ERROR])


def pause_after(tries: int) -> timedelta:
    """Return how long after so many tries the next one comes."""
    times: int = 4 ** max(tries - 1, 0)
    return min(_FIRST_PAUSE * times, _LONGEST_PAUSE)


def asked_again(row: NoticeRow, now: datetime) -> NoticeRow:
    """Return a notice that is to be sent once more, whatever became of it."""
    return row.changed(due_at=now, tries=0, sent_at=None)
