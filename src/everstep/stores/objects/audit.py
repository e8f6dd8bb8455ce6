"""The audit log of a bucket. Apart from the store, as few acts are named.

A row rides in the entry of the run's log that it tells of, so one is there if and only if the other is. Names
that lead to it are there before, and say in which order rows came; one whose entry never came leads nowhere.
A row of no run, or of an act that was refused, lies under its name. There, too, go the rows of a run that is
erased, before its log is emptied.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from everstep.errors import StateCorrupted
from everstep.model.acts import AuditRow
from everstep.ports.audit import AuditFilter
from everstep.stores.objects import names
from everstep.stores.objects.entries import read, sealed
from everstep.stores.objects.lines import Lines
from everstep.stores.objects.names import AuditMark

Rows = list[AuditRow]
Marks = list[AuditMark]
_rows = msgspec.msgpack.Decoder(AuditRow)
_PAGE = 1000
_CHUNK = 32
_AGAIN = 3
"""So many of the newest rows of a run are looked at for one whose reply was lost."""


class ObjectAudit:
    """Who did what."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def add(self, row: AuditRow) -> None:
        """Keep a row by itself, once."""
        of_run = AuditFilter(run_id=row.run_id, limit=_AGAIN)
        known = [one.audit_id for one in self.list(of_run)] if row.run_id is not None else []
        if row.audit_id not in known:
            while not self._keep(AuditMark(self._lines.tick(), row.run_id, 0), row):
                continue

    def has(self, row: AuditRow) -> bool:
        """True if a row of this id is there."""
        found = self._newest_first(row.run_id, 0)
        return any(one.audit_id == row.audit_id for some in found for one in some)

    def _keep(self, mark: AuditMark, row: AuditRow) -> bool:
        kept = msgspec.structs.replace(row, number=mark.number, at=row.at or self._lines.now(), once=False)
        self._lines.bucket.mark(mark.names[1:])
        return self._lines.bucket.create(mark.name, sealed(msgspec.msgpack.encode(kept)))

    def list(self, wanted: AuditFilter) -> Rows:
        """Return the rows that match, by their numbers. What is not found by its name is read."""
        found: list[AuditRow] = []
        for rows in self._newest_first(wanted.run_id, wanted.after or 0):
            found += [row for row in rows if wanted.matches(row)]
            if wanted.after is None and len(found) >= wanted.limit:
                break
            if wanted.since is not None and rows and all(row.at and row.at < wanted.since for row in rows):
                break
        return found[: wanted.limit][::-1] if wanted.after is None else found[::-1][: wanted.limit]

    def _newest_first(self, run_id: str | None, after: int) -> Iterator[Rows]:
        """Yield rows behind a number, a few at a time."""
        seen: set[int] = set()
        for page in self._pages(run_id):
            marks = [mark for mark in page if mark.number > after]
            for k in range(0, len(marks), _CHUNK):
                rows = self._lines.each(self._row, marks[k : k + _CHUNK])
                # While a run is erased, two names lead to a row.
                fresh = [row for row in rows if row is not None and row.number not in seen]
                yield [*{row.number: row for row in fresh}.values()]
                seen.update(row.number for row in fresh)
            if len(marks) < len(page):
                return

    def _pages(self, run_id: str | None) -> Iterator[Marks]:
        prefix, last = names.audit_prefix(run_id), ""
        while page := self._lines.bucket.names(prefix, after=last, limit=_PAGE):
            last = page[-1]
            yield [names.read_audit(name) for name in page]

    def _row(self, mark: AuditMark) -> AuditRow | None:
        """Return the row that a name leads to; none if the act was not done, or what is there is damaged."""
        try:
            if mark.place == 0:
                found = self._lines.bucket.get(mark.name)
                return None if found is None else read(_rows, found.data, mark.name)
            entry = self._lines.logs.at(self._lines.known(mark.run_id or ""), mark.place)
        except StateCorrupted:
            return None
        rows = entry.audit if entry is not None else ()
        return next((row for row in rows if row.number == mark.number), None)

    def keep_of(self, run_id: str, last: int) -> None:
        """Take the rows of a run out of its log, up to a place, as it is about to be emptied."""
        for page in [*self._pages(run_id)]:
            riding = [mark for mark in page if 0 < mark.place <= last]
            for mark, row in zip(riding, self._lines.each(self._row, riding), strict=True):
                if row is not None:
                    self._keep(AuditMark(mark.number, run_id, 0), row)
            if riding:
                self._lines.bucket.delete([name for mark in riding for name in mark.names])

    def forget(self, before: datetime, limit: int) -> int:
        """Remove the oldest rows from before a time. In a log a row stays that no name leads to."""
        marks = [mark for page in self._pages(None) for mark in page][::-1]
        gone, done = [], 0
        for mark in marks:
            row = self._row(mark)
            if row is not None and row.at is not None and row.at >= before:
                break
            if row is not None:
                done += 1
                gone += mark.names
            if done >= limit:
                break
        if gone:
            self._lines.bucket.delete(gone)
        return done
