"""The killer kills the drive, on whichever thread a point is reached."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from everstep import Flow, Host, node
from everstep.model.leases import Lease
from everstep.registry import Opened
from everstep.stores.memory import MemoryStore
from everstep.testing import ManualClock
from everstep.testing.killing import BlockingKillingStore, Crashed, Killer, crash, killing

LEASE = Lease("other", "me", 1, datetime(2030, 1, 1, tzinfo=UTC), None)


@pytest.mark.parametrize("at", ["before renew 1", "after renew 1"])
def test_a_crash_while_a_lease_is_renewed_is_one_of_the_drive(at: str) -> None:
    clock, killer = ManualClock(auto=True), Killer(at, act=crash)
    memory = MemoryStore(clock)
    opened = killing(Opened(memory, memory.artifacts, "memory:"), by=killer)
    store = opened.store
    assert isinstance(store, BlockingKillingStore)

    @node(output="y")
    def work(x: int) -> int:
        before = memory.data.writes
        for _ in range(2):
            assert store.renew_blocking([LEASE], timedelta(seconds=30)) == [LEASE]
        assert memory.data.writes - before == at.startswith("after")
        return x

    with Host(opened, clock=clock) as host, pytest.raises(Crashed):
        host.run(Flow("f", [work], durability="strong"), {"x": 1}, run_id="r")
    assert killer.points[-1] == at
