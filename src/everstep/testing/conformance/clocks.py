"""Clients that were given different times: leases may end early or late, and nothing may be lost by that.

Those of `Clocks` share a clock that is set; those of `ClockSkew` run, and the store on another machine goes
by its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from everstep.errors import LeaseConflict
from everstep.model.leases import Lease, Quota
from everstep.model.waits import SettledBy, WaitStatus
from everstep.ports.store import TimedStore, Verdict
from everstep.testing.clock import ManualClock
from everstep.testing.conformance.kit import TTL, Client, StoreKit, Suite, bodies_of, for_many_writers

HOUR = timedelta(hours=1)
SHORT = timedelta(milliseconds=200)


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


class SkewedClock:
    """A clock that runs, and is wrong."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def monotonic(self) -> float:
        return self.now().timestamp()

    async def sleep_until(self, at: datetime) -> None:
        raise AssertionError("a store does not sleep")


Opener = Callable[[timedelta], Client]


class ClockSkew(Suite):
    @pytest.fixture
    def ahead(self, store_kit: StoreKit) -> Iterator[Opener]:
        """Open clients whose clock is ahead by so much; a negative span is behind."""
        if not store_kit.capabilities.remote:
            pytest.skip("this store has no clock of its own: its clients share that of their machine")
        open_at, opened = store_kit.open_at, list[Client]()
        assert open_at is not None, "the kit of a remote store opens clients with other clocks"

        def open_one(ahead: timedelta) -> Client:
            clock = ManualClock(datetime.now(UTC) + ahead)
            opened.append(Client(replace(store_kit, open=lambda: open_at(SkewedClock(ahead)), clock=clock)))
            return opened[-1]

        yield open_one
        for client in opened:
            client.close()

    def test_a_clock_that_is_ahead_ends_nobodys_lease(self, ahead: Opener) -> None:
        owner, other = ahead(timedelta(0)), ahead(HOUR)
        chain = owner.admit("run")
        with pytest.raises(LeaseConflict) as caught:
            other.claim("run")
        left = caught.value.details["seconds_left"]
        assert isinstance(left, float) and 0 < left <= TTL.total_seconds()
        assert other.due() == []
        owner.extend(chain, [b"undisturbed"])

    def test_a_lease_of_a_clock_that_is_ahead_lasts_no_longer(self, ahead: Opener) -> None:
        owner, other = ahead(HOUR), ahead(-HOUR)
        chain = owner.admit("run")
        [held] = owner.renew(chain.lease(), ttl=SHORT)
        assert isinstance(held, Lease)
        threading.Event().wait(2 * SHORT.total_seconds())
        assert other.claim("run").epoch == 2
        assert owner.renew(held) == [Verdict.FENCED]
        assert owner.put(chain.following()) == [Verdict.FENCED]

    def test_a_lease_of_a_clock_that_is_behind_lasts_as_long(self, ahead: Opener) -> None:
        owner, other = ahead(-HOUR), ahead(timedelta(0))
        chain = owner.admit("run")
        with pytest.raises(LeaseConflict):
            other.claim("run")
        owner.release(chain.lease())
        [(_, lease)] = owner.claim_due()
        assert other.due() == []
        assert owner.renew(lease, ttl=TTL) != [Verdict.FENCED]
        with pytest.raises(LeaseConflict):
            other.claim("run")

    def test_a_run_admitted_by_a_clock_that_is_ahead_is_due_at_once(self, ahead: Opener) -> None:
        early, right = ahead(HOUR), ahead(timedelta(0))
        early.admit("run", has_lease=False)
        assert right.due() == ["run"]

    def test_clients_hear_the_stores_time_whatever_theirs_is(self, ahead: Opener) -> None:
        for client in (ahead(-HOUR), ahead(timedelta(0)), ahead(HOUR)):
            assert isinstance(client.store, TimedStore)
            said = client.call(client.store.now())
            assert said is not None and abs(said - datetime.now(UTC)) < HOUR / 2

    def test_an_answer_is_late_when_the_stores_clock_says_so(self, ahead: Opener) -> None:
        late, early = ahead(-2 * HOUR), ahead(2 * HOUR)
        right = ahead(timedelta(0))
        right.halted("over", "a", due_in=-1)
        right.halted("open", "b", due_in=HOUR.total_seconds())
        assert late.settle("a", b"late") is False
        assert early.settle("b", b"in time") is True

    def test_a_wait_is_due_when_the_stores_clock_says_so(self, ahead: Opener) -> None:
        right, late, early = ahead(timedelta(0)), ahead(-2 * HOUR), ahead(2 * HOUR)
        right.halted("past", "a", due_in=-1)
        right.halted("future", "b", due_in=HOUR.total_seconds())
        assert early.fire("future") == []
        assert early.due() == ["past"]
        right.halted("past too", "c", due_in=-1)
        assert late.due() == ["past too"]
