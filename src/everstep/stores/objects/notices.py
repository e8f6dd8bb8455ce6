"""Notices of runs in a bucket: each run has its own, and a name leads to it while some were not sent.

Apart, as most runs have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import timedelta

import msgspec

from everstep.errors import StateCorrupted
from everstep.model.commits import NoticeRow, NoticeState
from everstep.ports.notices import NoticeFilter
from everstep.stores.objects import names
from everstep.stores.objects.drafts import is_due_notice
from everstep.stores.objects.entries import Standing
from everstep.stores.objects.lines import Lines
from everstep.stores.objects.listing import RunListing

Rows = list[NoticeRow]
_CHUNK = 32


def list_notices(listing: RunListing, lines: Lines, wanted: NoticeFilter) -> Rows:
    """Return the notices that match, the newest first. For those that were sent every run is looked at."""
    if wanted.run_id is not None:
        found = [_standing(lines, wanted.run_id)]
    elif wanted.state in (NoticeState.PENDING, NoticeState.DEAD):
        found = lines.each(lambda run_id: _standing(lines, run_id), _marked(lines, names.NOTICES + "~"))
    else:
        found = [line.standing for line in listing.all()]
    rows = [
        msgspec.structs.replace(row, run_id=standing.row.run_id)
        for standing in found
        if standing is not None and not standing.gone
        for row in standing.notices
    ]
    matching = sorted(filter(wanted.matches, rows), key=lambda row: row.number, reverse=True)
    return matching[: wanted.limit]


def take_notices(
    lines: Lines, notifiers: Collection[str], hold: timedelta, limit: int, run_id: str | None
) -> Rows:
    """Take notices that are due, the longest first."""
    found: Rows = []
    now = lines.now()
    runs = [run_id] if run_id is not None else list(_marked(lines, names.notices_bound(now)))
    for k in range(0, len(runs), _CHUNK):
        chunk = runs[k : k + _CHUNK]
        for one, standing in zip(chunk, lines.each(lambda one: _standing(lines, one), chunk), strict=True):
            rows = standing.notices if standing is not None and not standing.gone else ()
            left = limit - len(found)
            if left > 0 and any(is_due_notice(row, notifiers, now) for row in rows):
                found += lines.write(one, lambda draft: draft.take_notices(notifiers, hold, left))  # noqa: B023  # called at once
    return found


def _marked(lines: Lines, bound: str) -> Iterator[str]:
    """Return the runs that have notices, each once, those that are due first."""
    marked = (name for name in lines.bucket.names(names.NOTICES) if name < bound)
    yield from dict.fromkeys(names.run_with_notices(name) for name in marked)


def _standing(lines: Lines, run_id: str) -> Standing | None:
    """Return how a run stands; none if it cannot be read, which must not stop others."""
    try:
        return lines.fresh(run_id).standing
    except StateCorrupted:
        return None
