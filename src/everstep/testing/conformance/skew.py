"""Clients whose clocks differ: a store that is on another machine goes by its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from everstep.errors import LeaseConflict
from everstep.model.leases import Lease
from everstep.ports.store import TimedStore, Verdict
from everstep.testing.clock import ManualClock
from everstep.testing.conformance.kit import TTL, Client, StoreKit, Suite

HOUR = timedelta(hours=1)
SHORT = timedelta(milliseconds=200)


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
