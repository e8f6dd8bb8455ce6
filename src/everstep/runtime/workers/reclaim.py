"""Runs that are leased and not driven: of dead owners, and of claims without a reply."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from functools import partial

from everstep.errors import LeaseConflict
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process
from everstep.ports.store import RunRow
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.services import Services
from everstep.runtime.workers.claim import give_back
from everstep.runtime.workers.lease_renewal import LeaseKeeper


class Takeover:
    """What one worker may take up before leases run out."""

    def __init__(self, services: Services, keeper: LeaseKeeper) -> None:
        self._services = services
        self._keeper = keeper
        self._unanswered: dict[str, float] = {}
        """Owners that were named in claims whose reply was lost, and until when they may turn up."""
        self._neighbours: list[Process] = []
        """The other workers on this machine, as of the last look at them."""

    def lost(self, owners: Iterable[str], ttl: timedelta) -> None:
        """Remember a claim that may have been granted."""
        until = self._services.clock.monotonic() + ttl.total_seconds()
        self._unanswered |= dict.fromkeys(owners, until)

    async def found(self, ttl: timedelta) -> list[tuple[RunRow, Lease]]:
        """Return what claims without a reply were granted, with leases that last from now on."""
        if not self._unanswered:
            return []
        store, now = self._services.store, self._services.clock.monotonic()
        rows = {row.run_id: row for row in await store.leased(self._unanswered)}
        held = [row.lease for row in rows.values() if row.lease is not None]
        renewed = (
            [lease for lease in await store.renew(held, ttl) if isinstance(lease, Lease)] if held else []
        )
        taken = {lease.owner for lease in held}
        self._unanswered = {o: t for o, t in self._unanswered.items() if t > now and o not in taken}
        return [(rows[lease.run_id], lease) for lease in renewed]

    async def meet_neighbours(self) -> None:
        """Note which other workers are on this machine."""
        processes = self._services.processes
        found = {row.process for row in await self._services.store.workers() if row.process is not None}
        self._neighbours = [it for it in found - {processes.me()} if processes.is_here(it)]

    def has_lost_neighbour(self) -> bool:
        """True once for each of those workers that has died since. It asks this machine, not the store."""
        gone = [it for it in self._neighbours if self._services.processes.is_gone(it)]
        self._neighbours = [it for it in self._neighbours if it not in gone]
        return bool(gone)

    async def orphans(self, owners: Collection[str] | None = None) -> list[tuple[RunRow, Lease]]:
        """Return the runs whose owners died on this machine, or could not give their lease back.

        With `owners`, only what they still hold.
        """
        rows = await self._services.store.leased(owners)
        return [
            (row, row.lease)
            for row in rows
            if row.lease is not None
            and row.status in (Status.RUNNING, Status.HALTED)
            and self._is_orphan(row.lease)
        ]

    def _is_orphan(self, held: Lease) -> bool:
        if self._keeper.drive_of(held.run_id) is not None:
            return False
        if self._keeper.is_left_behind(held):
            return True
        return held.process is not None and self._services.processes.is_gone(held.process)

    async def succeed(self, held: Lease, ttl: timedelta, owner: str) -> tuple[RunRow, Lease] | None:
        """Claim the run of a dead owner; none if another was quicker, or it has ended meanwhile."""
        services = self._services
        claim = partial(
            services.store.lease,
            held.run_id,
            owner=owner,
            ttl=ttl,
            process=services.holder(ttl),
            void_epoch=held.epoch,
        )
        try:
            lease = await patiently(services.clock, claim)
        except LeaseConflict:
            return None
        self._keeper.forget_left_behind(held.run_id)
        now = await services.store.run(held.run_id)
        if now is None or now.status.is_final:
            await give_back(services, self._keeper, lease)
            return None
        return now, lease
