"""Notices of runs, as stores keep them until they are sent."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Protocol, runtime_checkable

import msgspec

from everstep.model.acts import AuditRow
from everstep.model.commits import NoticeRow, NoticeState, Told


class NoticeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which notices to list, the newest first."""

    run_id: str | None = None
    state: NoticeState | None = None
    limit: int = 100
    before: int | None = None
    """Continue a listing: only those with a smaller number."""

    def matches(self, row: NoticeRow) -> bool:
        """True if a listing shows this notice. Where it ends is for the store to say."""
        return (
            self.run_id in (None, row.run_id)
            and self.state in (None, row.state)
            and (self.before is None or row.number < self.before)
        )


@runtime_checkable
class NoticeStore(Protocol):
    """A store that keeps notices. Every method is one atomic act, and needs no lease.

    Who is told comes with a run's admission (`Admission.told`), and a fork has those of its parent. The put
    that gives a run another status writes a notice for each who wants to be told of that, whichever owner
    puts it; `Commit.tells` brings others: one without a notifier is for all who want to be told of the
    occasion. With its run a notice is gone.
    """

    async def set_aside(self, run_id: str, *, epoch: int, reason: str, occasion: str = "") -> bool:
        """Mark a damaged run as `CheckpointStore.set_aside` does, and tell all who want to hear of it."""

    async def notices(self, wanted: NoticeFilter) -> list[NoticeRow]:
        """Return the notices that match, the newest first."""

    async def told_of(self, run_id: str) -> Told:
        """Return who is told of a run on which occasion; nothing if there is no such run."""

    async def take_notices(
        self, notifiers: Collection[str], *, hold: timedelta, limit: int, run_id: str | None = None
    ) -> list[NoticeRow]:
        """Take notices that are due, for one of these, and return them with one try more.

        Each is due again after `hold`: who takes it and dies has not lost it, and no other sends it
        meanwhile. With `run_id`, only of that run. Due is by the store's clock where it has one.
        """

    async def change_notice(
        self, row: NoticeRow, to: NoticeRow | None, *, audit: AuditRow | None = None
    ) -> bool:
        """Replace how a notice stands, or remove it; false if it is not there, or was tried since.

        Who it is for and what it tells of stay.
        """
