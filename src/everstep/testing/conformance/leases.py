"""Leases, fencing and stop requests: one owner at a time, and a way to tell it to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from everstep.engine.leases import beside
from everstep.errors import LeaseConflict
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process
from everstep.ports.store import ResumingStore, StopRequest, Verdict
from everstep.testing.conformance.kit import (
    TTL,
    Chain,
    Client,
    StoreKit,
    Suite,
    bodies_of,
    for_many_writers,
)

RACERS = 4
ROUNDS = 8


class Leases(Suite):
    def test_a_claim_of_a_free_run_raises_the_epoch(self, client: Client) -> None:
        chain = client.admit("run")
        client.release(chain.lease())
        process = Process("boot", "pid:[1]", 7, 99)
        lease = client.claim("run", "me", process=process)
        assert (lease.run_id, lease.owner, lease.epoch, lease.process) == ("run", "me", 2, process)
        assert lease.expires_at == client.clock.now() + TTL
        assert client.row("run").lease == lease

    def test_a_second_claimant_learns_who_holds_the_lease_and_for_how_long(self, client: Client) -> None:
        chain = client.admit("run", process=Process("boot", "pid:[1]", 4321, 99))
        client.clock.advance(10)
        before = client.row("run")
        with pytest.raises(LeaseConflict, match=r"process 4321.* 20 s") as caught:
            client.claim("run")
        held = caught.value.details["lease"]
        assert isinstance(held, Lease)
        assert (held.owner, held.epoch) == (chain.owner, 1)
        assert caught.value.details["seconds_left"] == 20
        assert client.row("run") == before

    def test_an_expired_lease_can_be_taken_over(self, client: Client) -> None:
        client.admit("run")
        client.clock.advance(TTL - timedelta(milliseconds=1))
        with pytest.raises(LeaseConflict):
            client.claim("run")
        client.clock.advance(timedelta(milliseconds=1))
        assert client.claim("run").epoch == 2

    def test_a_run_is_claimed_together_with_what_a_resume_reads(self, client: Client) -> None:
        store = client.store
        if not isinstance(store, ResumingStore):
            pytest.skip("it is claimed and read by calls apart")
        chain = client.admit("run")
        client.extend(chain, [b"2", b"3"])
        with pytest.raises(LeaseConflict):
            client.call(store.take_up("run", owner="me", ttl=TTL, process=None))
        client.clock.advance(TTL)
        taken = client.call(store.take_up("run", owner="me", ttl=TTL, process=None))
        assert (taken.lease.owner, taken.lease.epoch) == ("me", 2)
        assert taken.row == client.row("run")
        assert taken.row.lease == taken.lease
        assert taken.tail == client.call(store.tail("run"))
        void = client.call(store.take_up("run", owner="you", ttl=TTL, process=None, void_epoch=2))
        assert void.lease.epoch == 3

    def test_the_owner_may_claim_its_own_run_again(self, client: Client) -> None:
        chain = client.admit("run")
        assert client.claim("run", chain.owner).epoch == 2

    def test_renewal_prolongs_a_lease(self, client: Client) -> None:
        chain = client.admit("run")
        client.clock.advance(20)
        [longer] = client.renew(chain.lease())
        assert isinstance(longer, Lease)
        assert (longer.epoch, longer.owner) == (1, chain.owner)
        assert longer.expires_at == client.clock.now() + TTL
        assert client.row("run").lease == longer
        client.clock.advance(29)
        with pytest.raises(LeaseConflict):
            client.claim("run")

    def test_an_expired_lease_that_was_not_taken_over_can_be_renewed(self, client: Client) -> None:
        chain = client.admit("run")
        client.clock.advance(100)
        [longer] = client.renew(chain.lease())
        assert isinstance(longer, Lease)
        assert longer.expires_at == client.clock.now() + TTL

    def test_each_lease_of_a_renewal_is_judged_alone(self, client: Client) -> None:
        mine, lost = client.admit("mine"), client.admit("lost")
        stale = lost.lease()
        client.clock.advance(31)
        client.claim("lost")
        unknown = Lease("unknown", "me", 1, client.clock.now())
        fenced, kept, missing = client.renew(stale, mine.lease(), unknown)
        assert (fenced, missing) == (Verdict.FENCED, Verdict.FENCED)
        assert isinstance(kept, Lease)
        assert kept.run_id == "mine"

    def test_a_run_that_was_claimed_anew_may_be_named_twice_in_a_renewal(self, client: Client) -> None:
        stale = client.admit("run").lease()
        client.clock.advance(31)
        newer = client.claim("run")
        client.clock.advance(10)
        for leases in ([stale, newer], [newer, stale]):
            found = dict(zip([lease.epoch for lease in leases], client.renew(*leases), strict=True))
            assert found[stale.epoch] is Verdict.FENCED
            kept = found[newer.epoch]
            assert isinstance(kept, Lease) and kept.expires_at == client.clock.now() + TTL

    def test_a_released_lease_lets_another_in_at_once(self, client: Client) -> None:
        chain = client.admit("run")
        client.release(chain.lease())
        assert client.row("run").lease is None
        assert client.claim("run").epoch == 2

    def test_a_released_lease_cannot_be_renewed(self, client: Client) -> None:
        chain = client.admit("run")
        client.release(chain.lease())
        assert client.renew(chain.lease()) == [Verdict.FENCED]
        assert client.row("run").lease is None

    def test_release_of_a_stale_or_unknown_lease_does_nothing(self, client: Client) -> None:
        chain = client.admit("run")
        stale = chain.lease()
        client.clock.advance(31)
        held = client.claim("run")
        client.release(stale)
        client.release(Lease("unknown", "me", 1, client.clock.now()))
        assert client.row("run").lease == held

    def test_a_final_put_gives_the_lease_back(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.final())
        assert client.row("run").lease is None
        assert client.renew(chain.lease()) == [Verdict.FENCED]
        assert client.claim("run").epoch == 2

    def test_a_put_that_halts_gives_the_lease_back(self, client: Client) -> None:
        chain = client.admit("run")
        held = chain.lease()
        client.accept(chain, chain.following(status=Status.HALTED))
        assert client.row("run").lease is None
        assert client.renew(held) == [Verdict.FENCED]
        claimed = client.claim("run")
        assert (claimed.epoch, claimed.takeovers) == (2, 0)

    def test_takeovers_without_progress_are_counted(self, client: Client) -> None:
        client.admit("run")
        counts: list[int] = []
        for _ in range(3):
            client.clock.advance(31)
            counts.append(client.claim("run", f"owner {len(counts)}").takeovers)
        assert counts == [1, 2, 3]
        lease = client.row("run").lease
        assert lease is not None and lease.takeovers == 3

    def test_owners_that_drove_other_runs_too_make_a_run_suspect_and_no_more(self, client: Client) -> None:
        client.admit("run")
        counts: list[int] = []
        for owner in ("a", beside("b"), beside("c"), beside("d"), "e", beside("f"), "g"):
            client.clock.advance(31)
            counts.append(client.claim("run", owner).takeovers)
        # Each counts what its predecessor was: admission's owner, a, b+, c+, d+, e, f+.
        assert counts == [1, 2, 2, 2, 2, 3, 3]

    def test_progress_ends_the_count_of_takeovers(self, client: Client) -> None:
        chain = client.admit("run")
        for owner in ("b", "c"):
            client.clock.advance(31)
            chain.epoch = client.claim("run", owner).epoch
        client.extend(chain, [b"progress"])
        client.clock.advance(31)
        assert client.claim("run", "d").takeovers == 0
        client.clock.advance(31)
        assert client.claim("run", "e").takeovers == 1

    def test_a_renewal_keeps_the_count_of_takeovers(self, client: Client) -> None:
        client.admit("run")
        client.clock.advance(31)
        lease = client.claim("run")
        assert client.renew(lease) == [lease]


@for_many_writers
class Fencing(Suite):
    def test_a_stale_owner_can_no_longer_put(self, client: Client) -> None:
        chain = client.admit("run")
        client.clock.advance(31)
        client.claim("run")
        before = client.row("run")
        assert client.put(chain.following(b"stale")) == [Verdict.FENCED]
        assert client.put(chain.final()) == [Verdict.FENCED]
        assert bodies_of(client.get("run")) == [b"first"]
        assert client.row("run") == before

    def test_a_stale_owner_is_fenced_by_another_client_too(self, clients: Callable[[], Client]) -> None:
        stale, new = clients(), clients()
        chain = stale.admit("run")
        stale.extend(chain, [b"2"])
        stale.clock.advance(31)
        taken = Chain("run", new.clock, epoch=new.claim("run").epoch, head=chain.head)
        assert stale.put(chain.following(b"stale")) == [Verdict.FENCED]
        assert stale.renew(chain.lease()) == [Verdict.FENCED]
        new.extend(taken, [b"3"])
        assert bodies_of(stale.get("run")) == [b"first", b"2", b"3"]

    def test_the_owner_that_halted_a_run_is_fenced_once_another_drives_it(
        self, clients: Callable[[], Client]
    ) -> None:
        old, new = clients(), clients()
        chain = old.admit("run")
        stale = chain.lease()
        old.accept(chain, chain.following(b"halt", status=Status.HALTED))
        held = new.claim("run")
        assert old.put(chain.following(b"stale")) == [Verdict.FENCED]
        assert old.put(chain.following(b"stale", status=Status.HALTED)) == [Verdict.FENCED]
        assert old.renew(stale) == [Verdict.FENCED]
        old.release(stale)
        assert new.row("run").lease == held
        assert bodies_of(new.get("run")) == [b"first", b"halt"]

    def test_an_epoch_that_was_never_granted_is_fenced(self, client: Client) -> None:
        chain = client.admit("run")
        assert client.put(chain.following(epoch=2)) == [Verdict.FENCED]
        assert client.put(chain.following(epoch=0)) == [Verdict.FENCED]

    def test_a_stale_owner_can_no_longer_renew(self, client: Client) -> None:
        chain = client.admit("run")
        stale = chain.lease()
        client.clock.advance(31)
        held = client.claim("run")
        assert client.renew(stale) == [Verdict.FENCED]
        assert client.row("run").lease == held

    def test_an_expired_owner_that_was_not_replaced_may_still_put(self, client: Client) -> None:
        chain = client.admit("run")
        client.clock.advance(1000)
        client.extend(chain, [b"late but alone"])

    def test_a_dead_owner_is_replaced_before_its_lease_expires(self, client: Client) -> None:
        chain = client.admit("run")
        assert client.claim("run", void_epoch=1).epoch == 2
        assert client.put(chain.following()) == [Verdict.FENCED]

    def test_only_the_epoch_known_to_be_dead_is_replaced(self, client: Client) -> None:
        client.admit("run")
        held = client.claim("run", "second", void_epoch=1)
        for epoch in (0, 1, 3):
            with pytest.raises(LeaseConflict):
                client.claim("run", "third", void_epoch=epoch)
        assert client.row("run").lease == held

    def test_of_clients_that_race_for_a_run_exactly_one_wins(
        self, clients: Callable[[], Client], store_kit: StoreKit
    ) -> None:
        watcher = clients()
        for number in range(ROUNDS):
            watcher.admit(f"run-{number}")
        watcher.clock.advance(31)
        start = threading.Barrier(RACERS)
        won: list[tuple[int, Lease]] = []
        failures: list[BaseException] = []

        def race(racer: int) -> None:
            try:
                client = Client(store_kit)
                for number in range(ROUNDS):
                    start.wait(30)
                    try:
                        won.append((number, client.claim(f"run-{number}", f"racer {racer}")))
                    except LeaseConflict:
                        continue
                client.close()
            except BaseException as error:
                failures.append(error)
                start.abort()

        threads = [threading.Thread(target=race, args=(racer,)) for racer in range(RACERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert sorted(number for number, _ in won) == list(range(ROUNDS))
        assert {lease.epoch for _, lease in won} == {2}
        for number, lease in won:
            assert watcher.row(f"run-{number}").lease == lease

    def test_of_clients_that_race_to_admit_a_run_exactly_one_wins(
        self, clients: Callable[[], Client], store_kit: StoreKit
    ) -> None:
        watcher = clients()
        start = threading.Barrier(RACERS)
        verdicts: list[Verdict] = []

        def race(racer: int) -> None:
            client = Client(store_kit)
            start.wait(30)
            verdicts.extend(client.put(Chain("run", client.clock).admission(b"%d" % racer)))
            client.close()

        threads = [threading.Thread(target=race, args=(racer,)) for racer in range(RACERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(verdicts) == [Verdict.ACCEPTED, *[Verdict.EXISTS] * (RACERS - 1)]
        assert len(watcher.get("run")) == 1


class StopRequests(Suite):
    def test_a_cancelled_owner_learns_of_it_at_its_next_put(self, client: Client) -> None:
        chain = client.admit("run")
        assert client.call(client.store.request_stop("run", StopRequest.CANCEL)) is True
        assert client.put(chain.following()) == [Verdict.STOP_REQUESTED]
        assert client.put(chain.following(status=Status.HALTED)) == [Verdict.STOP_REQUESTED]
        row = client.row("run")
        assert (row.stop_request, row.status, row.checkpoints) == (StopRequest.CANCEL, Status.RUNNING, 1)

    def test_a_cancelled_owner_learns_of_it_when_it_renews(self, client: Client) -> None:
        chain, other = client.admit("run"), client.admit("other")
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        stopping, renewed = client.renew(chain.lease(), other.lease())
        assert stopping is Verdict.STOP_REQUESTED
        assert isinstance(renewed, Lease)

    def test_a_stale_owner_of_a_cancelled_run_is_fenced(self, client: Client) -> None:
        chain = client.admit("run")
        stale = chain.lease()
        client.clock.advance(31)
        client.claim("run")
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        assert client.put(chain.following()) == [Verdict.FENCED]
        assert client.renew(stale) == [Verdict.FENCED]

    def test_a_stop_request_left_by_one_client_reaches_the_other(self, clients: Callable[[], Client]) -> None:
        owner, other = clients(), clients()
        chain = owner.admit("run")
        assert other.call(other.store.request_stop("run", StopRequest.CANCEL)) is True
        assert owner.put(chain.following()) == [Verdict.STOP_REQUESTED]

    def test_a_stop_request_carries_a_note_until_it_is_answered(self, clients: Callable[[], Client]) -> None:
        owner, other = clients(), clients()
        chain = owner.admit("run")
        assert owner.call(owner.store.stop_note("run")) is None
        assert other.call(other.store.request_stop("run", StopRequest.CANCEL, b"\x00who\xff")) is True
        assert owner.call(owner.store.stop_note("run")) == b"\x00who\xff"
        other.call(other.store.request_stop("run", StopRequest.CANCEL))
        assert owner.call(owner.store.stop_note("run")) is None
        other.call(other.store.request_stop("run", StopRequest.CANCEL, b"again"))
        owner.accept(chain, chain.following(status=Status.CANCELLED, answers_stop=True))
        assert owner.call(owner.store.stop_note("run")) is None
        assert owner.call(owner.store.stop_note("unknown")) is None

    def test_the_put_that_answers_a_stop_request_goes_through(self, client: Client) -> None:
        chain = client.admit("run")
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        client.accept(chain, chain.following(b"answer", answers_stop=True))
        assert client.row("run").stop_request is StopRequest.CANCEL
        assert client.put(chain.following()) == [Verdict.STOP_REQUESTED]

    def test_a_final_put_clears_the_stop_request(self, client: Client) -> None:
        chain = client.admit("run")
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        client.accept(chain, chain.final(Status.CANCELLED))
        row = client.row("run")
        assert (row.status, row.stop_request, row.lease) == (Status.CANCELLED, None, None)

    def test_a_commit_kept_before_the_stop_request_is_accepted_again(self, client: Client) -> None:
        chain = client.admit("run")
        commit = client.accept(chain, chain.following())
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        assert client.put(commit) == [Verdict.ACCEPTED]

    def test_a_halted_run_can_be_asked_to_stop(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.following(status=Status.HALTED))
        assert client.call(client.store.request_stop("run", StopRequest.CANCEL)) is True

    @pytest.mark.parametrize("status", [s for s in Status if s.is_final])
    def test_a_run_that_ended_cannot_be_asked_to_stop(self, client: Client, status: Status) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.final(status))
        assert client.call(client.store.request_stop("run", StopRequest.CANCEL)) is False
        assert client.row("run").stop_request is None

    def test_an_unknown_run_cannot_be_asked_to_stop(self, client: Client) -> None:
        assert client.call(client.store.request_stop("unknown", StopRequest.CANCEL)) is False
