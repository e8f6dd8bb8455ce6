"""The part of a host that looks after breakers which its runs share."""

from __future__ import annotations

import msgspec

from everstep.client.guards import BreakerInfo
from everstep.model.acts import act_of
from everstep.ports.store import Counts
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services


async def counted(services: Services) -> Counts:
    """Return what a store keeps, and what its runs that are driven here have spent."""
    spent, warnings, trips = services.tally.counts()
    found = await services.store.counts()
    return msgspec.structs.replace(found, spent=spent, warnings=warnings, trips=trips)


class HostGuards:
    """What may be done about shared breakers."""

    _runs: Runs

    async def breakers(self) -> dict[str, BreakerInfo]:
        """Return the shared breakers of the store that ever changed, by name."""
        return {name: BreakerInfo.of(name, at) for name, at in (await self._runs.shared.all()).items()}

    async def reset_breaker(
        self, name: str, *, by: str | None = None, comment: str | None = None
    ) -> BreakerInfo:
        """Close a shared breaker; what it has counted is forgotten. Runs that wait for review still do."""
        return BreakerInfo.of(name, await self._runs.shared.reset(name, act_of(by, comment)))
