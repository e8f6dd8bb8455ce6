"""Leases that are kept while a drive lives: what must not end them."""

from __future__ import annotations

from everstep.errors import EverstepError
from everstep.model.leases import Lease
from everstep.ports.store import BlockingStore
from everstep.registry import open_store
from everstep.runtime.system import RealSystem
from everstep.runtime.workers.lease_renewal import LeaseKeeper
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import TTL, Client, StoreKit


class Stopped:
    """A drive that notes why it was stopped."""

    lane = ("flow", None)

    def __init__(self) -> None:
        self.reason: EverstepError | None = None

    def stop(self, reason: EverstepError) -> None:
        self.reason = reason

    def pause(self, mark: str) -> None:
        pass

    def nudge(self) -> None:
        pass

    def check_sent(self, name: str, value: object) -> None:
        pass


def test_a_drive_that_lost_its_run_does_not_end_the_lease_of_the_next_one_here() -> None:
    clock = ManualClock()
    opened = open_store("memory:", clock)
    client = Client(StoreKit(lambda: opened, clock, opened.store.capabilities))
    first_lease = client.admit("run").lease()
    assert isinstance(opened.store, BlockingStore)
    keeper, first, second = LeaseKeeper(opened.store, opened.store, RealSystem(clock)), Stopped(), Stopped()

    async def drive_twice() -> Lease:
        keeper.hold(first_lease, TTL, first)
        clock.advance(2 * TTL)  # the process was frozen
        lease = await opened.store.lease("run", owner="second", ttl=TTL, process=None)
        keeper.hold(lease, TTL, second)
        keeper.drop(first_lease)
        return lease

    lease = client.call(drive_twice())
    assert keeper.drive_of("run") is second
    keeper.drop(lease)
    assert keeper.drive_of("run") is None
    keeper.close()
    client.close()
