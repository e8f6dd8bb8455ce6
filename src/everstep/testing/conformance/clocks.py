"""Clients that were given different times: leases may end early or late, and nothing may be lost by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from everstep.errors import LeaseConflict
from everstep.model.leases import Quota
from everstep.model.waits import SettledBy, WaitStatus
from everstep.ports.store import Verdict
from everstep.testing.clock import ManualClock
from everstep.testing.conformance.kit import TTL, Client, Suite, bodies_of, for_many_writers


@contextmanager
def off(clock: ManualClock, by: timedelta) -> Iterator[None]:
    """Let the clock differ for a while, as another machine's does."""
    clock._now += by
    try:
        yield
    finally:
        clock._now -= by


@for_many_writers
class Clocks(Suite):
    def test_a_client_ahead_takes_over_early_and_the_owner_is_fenced(
        self, clients: Callable[[], Client]
    ) -> None:
        owner, ahead = clients(), clients()
        chain = owner.admit("run")
        owner.extend(chain, [b"2"])
        with off(ahead.clock, 2 * TTL):
            lease = ahead.claim("run", "ahead")
        assert owner.put(chain.following(b"stale")) == [Verdict.FENCED]
        assert owner.renew(chain.lease()) == [Verdict.FENCED]
        chain.epoch = lease.epoch
        ahead.extend(chain, [b"3"])
        assert bodies_of(owner.get("run")) == [b"first", b"2", b"3"]

    def test_a_client_behind_gets_a_lease_that_others_see_end_early(
        self, clients: Callable[[], Client]
    ) -> None:
        behind, other = clients(), clients()
        chain = other.admit("run", has_lease=False)
        with off(behind.clock, -2 * TTL):
            first = behind.claim("run", "behind")
        second = other.claim("run", "other")
        assert second.epoch == first.epoch + 1
        chain.epoch = first.epoch
        assert behind.put(chain.following(b"stale")) == [Verdict.FENCED]
        chain.epoch = second.epoch
        other.extend(chain, [b"2"])
        with off(behind.clock, -2 * TTL), pytest.raises(LeaseConflict):
            behind.claim("run", "behind again")

    def test_epochs_rise_however_the_clocks_go(self, clients: Callable[[], Client]) -> None:
        pair = clients(), clients()
        chain = pair[0].admit("run")
        for number, shift in enumerate([3, -1, 5, 0, 9]):
            client = pair[number % 2]
            with off(client.clock, shift * 2 * TTL):
                before = chain.epoch
                chain.epoch = client.claim("run", f"owner {number}", void_epoch=before).epoch
                assert chain.epoch == before + 1
                client.extend(chain, [b"%d" % number])
        assert bodies_of(pair[0].get("run"))[1:] == [b"%d" % number for number in range(5)]

    def test_runs_and_waits_are_listed_in_the_order_they_came_in(self, clients: Callable[[], Client]) -> None:
        one, other = clients(), clients()
        for number in range(4):
            client = (one, other)[number % 2]
            with off(client.clock, timedelta(hours=-number if number % 2 else number)):
                client.halted(f"run-{number}", f"w{number}")
        assert one.listing() == other.listing() == ["run-3", "run-2", "run-1", "run-0"]
        assert one.waits() == other.waits() == ["w0", "w1", "w2", "w3"]
        assert one.listing(before="run-2") == ["run-1", "run-0"]

    def test_a_wait_is_settled_once_by_the_first_client_that_finds_it_due(
        self, clients: Callable[[], Client]
    ) -> None:
        punctual, ahead = clients(), clients()
        punctual.halted("run", "w", due_in=60)
        with off(ahead.clock, timedelta(seconds=90)):
            assert ahead.due() == ["run"]
        row = punctual.wait("w")
        assert (row.status, row.settled_by) == (WaitStatus.SETTLED, SettledBy.CLOCK)
        assert punctual.settle("w", b"late") is False
        assert punctual.due() == []

    def test_quotas_hold_for_clients_that_agree_about_the_time(self, clients: Callable[[], Client]) -> None:
        one, ahead = clients(), clients()
        quotas = {"flow": Quota(running=1)}
        for number in range(3):
            one.admit(f"run-{number}", has_lease=False)
        assert len(one.due(quotas=quotas)) == 1
        with off(ahead.clock, TTL / 2):
            assert ahead.due(quotas=quotas) == []
