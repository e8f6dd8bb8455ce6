"""Runs that may be what killed their last owners: each is driven alone, so that no other run dies with it.
Apart from claiming, which knows no suspicion.

Which they are, and how long they rest, is decided in `engine.leases`.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import NamedTuple

from everstep.engine.leases import SUSPECT, rest_of
from everstep.model.leases import Lease
from everstep.ports.store import RunRow
from everstep.runtime.services import Services
from everstep.runtime.workers.lease_renewal import LeaseKeeper
from everstep.runtime.workers.reclaim import Takeover

log = logging.getLogger("everstep")
PATIENCE = 60.0
"""Seconds for which a worker claims nothing more, so that a suspect can be alone."""
LOOK = 1.0
"""Seconds between two looks at whether the run that is driven alone has written something."""


class _Waiting(NamedTuple):
    row: RunRow
    lease: Lease
    ttl: timedelta
    since: float
    due: float


class Suspects:
    """The suspects that one worker has claimed. Between two of them other runs have a turn."""

    def __init__(self, services: Services, keeper: LeaseKeeper, takeover: Takeover) -> None:
        self._services = services
        self._keeper = keeper
        self._takeover = takeover
        self._waiting: dict[str, _Waiting] = {}
        self._alone: RunRow | None = None
        self._looked = 0.0
        self._last_turn = 0.0
        self.had_turn = False
        """True if the last that began was a suspect."""

    def add(self, row: RunRow, lease: Lease, ttl: timedelta) -> None:
        """Let a run that was claimed wait until nothing else is driven."""
        log.warning(
            "run %r is driven alone: its last %d owners died without writing anything.",
            row.run_id,
            lease.takeovers,
        )
        now = self._now()
        self._waiting[row.run_id] = _Waiting(row, lease, ttl, now, now + rest_of(lease).total_seconds())

    def _now(self) -> float:
        return self._services.clock.monotonic()

    def names(self) -> list[str]:
        """Return the runs that wait."""
        return list(self._waiting)

    def _due(self) -> list[_Waiting]:
        """Return those that have rested; those that have killed the fewest owners come first."""
        now = self._now()
        due = [one for one in self._waiting.values() if one.due <= now]
        return sorted(due, key=lambda one: (one.lease.takeovers, one.since))

    def end_rests(self) -> bool:
        """Let those that rest have their turn now; false if none rests.

        For a worker that has nothing else to do and is about to end. In the next process the rest would begin
        anew, and where each ends as soon as it is idle, no suspect would ever be tried again.
        """
        now = self._now()
        resting = [one for one in self._waiting.values() if one.due > now]
        self._waiting |= {one.row.run_id: one._replace(due=now) for one in resting}
        return bool(resting)

    @property
    def has_due(self) -> bool:
        """True if one waits that has rested enough."""
        return bool(self._due())

    def holds_claims(self) -> bool:
        """True while nothing more is to be claimed, so that what is under way ends and one can be alone."""
        now = self._now()
        return any(now - max(one.due, self._last_turn) < PATIENCE for one in self._due())

    def holds(self, is_driving: bool) -> bool:
        """True if nothing else is to begin now: one is driven alone, or is to be next."""
        return self._alone is not None or self.holds_claims() or (not is_driving and self.has_due)

    async def is_alone(self) -> bool:
        """True while one is driven that has written nothing yet; once it has, it is no suspect any more."""
        now, alone = self._now(), self._alone
        if alone is not None and now - self._looked >= LOOK:
            self._looked = now
            row = await self._services.store.run(alone.run_id)
            # It may have ended while the store was asked.
            if self._alone is alone and (row is None or row.checkpoints > alone.checkpoints):
                self._alone = None
        return self._alone is not None

    async def take(self) -> tuple[RunRow, Lease] | None:
        """Claim the next suspect for an owner that drives nothing else; none if there is none."""
        for one in self._due():
            asked = self._now()
            taken = await self._takeover.succeed(one.lease, one.ttl, self._services.ids.new_id())
            del self._waiting[one.row.run_id]
            self._keeper.drop_unbegun(one.lease)
            if taken is not None:
                self._keeper.keep(taken[1], one.ttl, asked)
                self._alone, self._looked = taken[0], self._now()
                self._last_turn, self.had_turn = self._now(), True
                return taken
        return None

    def take_beside(self) -> tuple[RunRow, Lease] | None:
        """Return one that could not be alone for long, to be driven beside others; none if there is none.

        Not one that has killed an owner which drove nothing else: it waits until it can be alone.
        """
        if self.holds_claims():
            return None
        for one in self._due():
            if one.lease.takeovers <= SUSPECT:
                del self._waiting[one.row.run_id]
                self._last_turn = self._now()
                return one.row, one.lease
        return None

    def ended(self, run_id: str) -> None:
        """Note that a run is no longer driven."""
        if self._alone is not None and self._alone.run_id == run_id:
            self._alone = None

    def leave(self) -> None:
        """Let go of those that wait. Their leases run out: to give them back would forget what is known."""
        for one in self._waiting.values():
            self._keeper.drop_unbegun(one.lease)
        self._waiting.clear()
