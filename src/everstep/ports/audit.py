"""The audit log, as stores keep it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from everstep.model.acts import AuditRow


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of the audit log to list, by their numbers."""

    run_id: str | None = None
    by: str | None = None
    act: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Only rows from before this time."""
    limit: int = 100
    after: int | None = None
    """The first rows behind this number; without it, the newest rows."""

    def matches(self, row: AuditRow) -> bool:
        """True if a listing shows this row. Where it begins and ends is for the store to say."""
        return (
            self.run_id in (None, row.run_id)
            and self.by in (None, row.by)
            and self.act in (None, row.act)
            and (self.since is None or row.at is None or row.at >= self.since)
            and (self.until is None or row.at is None or row.at < self.until)
        )


@runtime_checkable
class AuditStore(Protocol):
    """A store that keeps who did what.

    Its calls that do something to a run take `audit`, and a commit and a whole run have it: the row is
    written in the same act, if it is done. A row whose `audit_id` is there already is not written again.
    Where the row says `once`, `mark`, `request_stop`, `pin` and `tag` then do nothing: they return what says
    that something else was faster, `Tagging.MOVED` for a tag. A commit is refused as `FENCED`, unless it is
    there already. So `note_audit` of such a row keeps it from
    being done, and of the two one comes first.
    Numbers only grow, also when rows were removed. The time is the store's.
    """

    async def note_audit(self, row: AuditRow) -> None:
        """Keep a row by itself: of an act that was refused, or wrote nothing that it could go with."""

    async def audit(self, wanted: AuditFilter) -> list[AuditRow]:
        """Return the rows that match, by their numbers. Those of runs that were erased are there, too."""

    async def forget_audit(self, *, before: datetime, limit: int = 1000) -> int:
        """Remove up to so many of the oldest rows from before a time, and return how many."""
