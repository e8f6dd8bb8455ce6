"""Which runs a worker gets to drive, when, and how it learns that there is something to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

import pytest

from everstep.model.enums import Status
from everstep.model.leases import Lease, Process
from everstep.model.waits import SettledBy, WaitStatus
from everstep.ports.store import BacklogStore, StopRequest, Verdict
from everstep.testing.conformance.kit import TTL, Chain, Client, StoreKit, Suite, for_many_writers

WORKERS = 4
EACH = 15
MANY = 10_000
PATIENCE = 10.0
"""Real seconds within which a change must be heard of."""
REST = 0.6
"""Real seconds without a change after which none is to be expected."""


@for_many_writers
class Due(Suite):
    def test_a_halted_run_is_due_once_its_wait_is_settled(self, clients: Callable[[], Client]) -> None:
        client, other = clients(), clients()
        client.halted("run", "w")
        assert client.due() == []
        other.settle("w", b"yes")
        process = Process("boot", "pid:[1]", 7, 99)
        [(row, lease)] = client.claim_due(new_owner=lambda: "me", process=process)
        assert lease == Lease("run", "me", 2, client.clock.now() + TTL, process)
        assert row == other.row("run")
        assert (row.lease, row.status) == (lease, Status.HALTED)
        assert client.wait("w").answer == b"yes"
        assert client.due() == other.due() == []

    def test_a_halted_run_is_due_at_the_time_of_its_wait(self, client: Client) -> None:
        chain = client.admit("run")
        at = client.clock.now() + timedelta(seconds=10)
        client.halt(
            chain,
            chain.wait("due", due_at=at),
            chain.wait("later", due_at=at + timedelta(microseconds=1)),
            chain.wait("foreign", due_at=at, scheduler="cron"),
            chain.wait("timeless"),
        )
        client.clock.advance(timedelta(seconds=10, microseconds=-1))
        assert client.due() == []
        client.clock.advance(timedelta(microseconds=1))
        assert client.due() == ["run"]
        row = client.wait("due")
        assert (row.status, row.settled_by, row.settled_at) == (WaitStatus.SETTLED, SettledBy.CLOCK, at)
        assert client.waits(status=WaitStatus.OPEN) == ["later", "foreign", "timeless"]

    def test_a_run_that_is_admitted_as_halted_is_due_at_the_time_of_its_wait(self, client: Client) -> None:
        chain = Chain("run", client.clock, has_lease=False)
        at = client.clock.now() + timedelta(seconds=10)
        begins = chain.wait("begins", path="@start", kind="timer", due_at=at)
        ends = chain.wait("ends", path="@deadline", kind="deadline", due_at=at + timedelta(seconds=5))
        opened = chain.admission(status=Status.HALTED, waits=(begins, ends))
        client.accept(chain, opened)
        row = client.row("run")
        assert (row.status, row.lease, row.checkpoints) == (Status.HALTED, None, 1)
        assert client.waits(run_id="run", is_unclosed=True) == ["begins", "ends"]
        assert client.put(opened) == [Verdict.ACCEPTED]
        client.clock.advance(timedelta(seconds=10, microseconds=-1))
        assert client.due() == []
        assert client.next_due() == at
        client.clock.advance(timedelta(microseconds=1))
        [(claimed, lease)] = client.claim_due()
        assert (claimed.run_id, claimed.status, lease.epoch, lease.takeovers) == ("run", Status.HALTED, 1, 0)
        assert client.waits(status=WaitStatus.SETTLED) == ["begins"]

    def test_what_waits_open_with_an_admission_is_closed_with_the_end(self, client: Client) -> None:
        chain = Chain("run", client.clock)
        at = client.clock.now() + timedelta(seconds=10)
        client.accept(chain, chain.admission(waits=(chain.wait("ends", kind="deadline", due_at=at),)))
        assert client.due() == []
        client.clock.advance(10)
        assert client.due() == []  # its owner knows
        client.accept(chain, chain.following(status=Status.FAILED, ended_at=at, closed=("ends",)))
        assert client.wait("ends").status is WaitStatus.CLOSED
        assert client.due() == []

    def test_a_run_that_halts_with_an_answer_is_due_at_once(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.following(waits=(chain.wait("w"),)))
        client.settle("w", b"early")
        assert client.due() == []
        client.accept(chain, chain.following(status=Status.HALTED))
        assert client.due() == ["run"]

    def test_a_wait_of_another_scheduler_is_due_only_when_it_is_settled(self, client: Client) -> None:
        chain = client.admit("run")
        client.halt(chain, chain.wait("w", due_at=client.clock.now(), scheduler="cron"))
        client.clock.advance(100)
        assert client.due() == []
        client.change("w", due_at=client.clock.now())
        assert client.due() == []
        assert client.next_due() is None
        client.settle("w", None, by=SettledBy.CLOCK)
        assert client.due() == ["run"]

    def test_a_running_run_is_due_when_its_lease_expires(self, client: Client) -> None:
        client.admit("run")
        client.clock.advance(TTL - timedelta(microseconds=1))
        assert client.due() == []
        client.clock.advance(timedelta(microseconds=1))
        [(row, lease)] = client.claim_due()
        assert (row.run_id, lease.epoch, lease.takeovers) == ("run", 2, 1)
        assert client.due() == []
        client.clock.advance(TTL)
        assert [lease.takeovers for _, lease in client.claim_due()] == [2]

    def test_a_running_run_without_a_lease_is_due_at_once(self, client: Client) -> None:
        client.admit("accepted", has_lease=False)
        released = client.admit("released")
        client.release(released.lease())
        client.admit("driven")
        claimed = client.claim_due()
        assert {row.run_id: lease.epoch for row, lease in claimed} == {"accepted": 1, "released": 2}

    def test_a_halted_run_that_was_asked_to_stop_is_due(self, client: Client) -> None:
        client.halted("run", "w")
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        [(row, _)] = client.claim_due()
        assert (row.run_id, row.stop_request) == ("run", StopRequest.CANCEL)
        assert client.wait("w").status is WaitStatus.OPEN

    def test_what_is_due_is_counted_by_version_with_since_when(self, client: Client) -> None:
        store = client.store
        if not isinstance(store, BacklogStore):
            pytest.skip("this store does not count what is due")
        start = client.clock.now()
        client.admit("expired")
        client.admit("other", has_lease=False, flow_id="other", flow_hash="newer")
        client.halted("timed", "w1", due_in=20.0)
        client.halted("settled", "w2")
        client.halted("later", "w3", due_in=1e6)
        damaged = client.admit("damaged")
        assert client.set_aside("damaged", damaged.epoch)
        client.clock.advance(5)
        client.settle("w2", b"yes")
        client.clock.advance(max(TTL, timedelta(seconds=20)))
        driven = client.admit("driven")
        found = {(part.flow_id, part.flow_hash): part for part in client.call(store.backlog())}
        mine = found.pop((driven.flow_id, driven.flow_hash))
        assert mine.many == 3
        assert mine.since == start + timedelta(seconds=5)
        [theirs] = found.values()
        assert (theirs.flow_id, theirs.flow_hash, theirs.many) == ("other", "newer", 1)
        assert start <= theirs.since <= start + timedelta(seconds=1)
        while client.claim_due():
            pass
        found = {(part.flow_id, part.flow_hash): part for part in client.call(store.backlog())}
        assert (driven.flow_id, driven.flow_hash) not in found

    def test_a_stopping_run_with_an_owner_is_left_to_it(self, client: Client) -> None:
        client.admit("run")
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        assert client.due() == []
        client.clock.advance(TTL)
        assert client.due() == ["run"]

    def test_a_run_whose_lease_holds_is_never_claimed(self, client: Client) -> None:
        chain = client.halted("run", "w", due_in=1)
        held = client.claim("run")
        client.clock.advance(2)
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        assert client.due() == []
        assert client.wait("w").status is WaitStatus.OPEN
        assert client.row("run").lease == held
        client.clock.advance(TTL)
        assert client.due() == ["run"]
        assert client.put(chain.following(epoch=held.epoch)) == [Verdict.FENCED]

    def test_waits_of_a_run_that_lost_its_owner_are_settled_on_the_way(self, client: Client) -> None:
        chain = client.admit("run")
        at = client.clock.now() + timedelta(seconds=10)
        client.accept(chain, chain.following(waits=(chain.wait("due", due_at=at), chain.wait("open"))))
        client.clock.advance(10)
        assert client.due() == []
        client.clock.advance(TTL)
        assert client.due() == ["run"]
        assert client.waits(status=WaitStatus.SETTLED) == ["due"]

    def test_only_runs_of_the_flows_asked_for_are_claimed(self, client: Client) -> None:
        for flow in ("a", "b", "c"):
            client.admit(f"run of {flow}", flow_hash=flow, has_lease=False)
            client.halted(f"halted of {flow}", f"wait of {flow}", due_in=0, flow_hash=flow)
        assert client.due(flows=[]) == client.due(flows=["unknown"]) == []
        assert sorted(client.due(flows={"a", "c", "x"})) == [
            "halted of a",
            "halted of c",
            "run of a",
            "run of c",
        ]
        assert client.wait("wait of b").status is WaitStatus.OPEN
        assert client.due(flows=["b"], flow_id="another flow") == []
        assert sorted(client.due(flows=["b"])) == ["halted of b", "run of b"]

    def test_runs_to_be_left_alone_are_left_alone(self, client: Client) -> None:
        for number in range(3):
            client.halted(f"run-{number}", f"w{number}", due_in=0)
            client.admit(f"other-{number}", has_lease=False)
        mine = ["run-0", "other-2", "unknown"]
        assert sorted(client.due(apart_from=mine)) == ["other-0", "other-1", "run-1", "run-2"]
        assert client.wait("w0").status is WaitStatus.OPEN

    def test_the_longest_due_come_first_whatever_they_are_due_for(self, client: Client) -> None:
        client.halted("timer at 40", "a", due_in=40)
        client.halted("answered at 10", "b")
        both = client.admit("answered at 8")
        later = client.clock.now() + timedelta(seconds=50)
        client.halt(both, both.wait("timer", due_at=later), both.wait("ask"))
        client.admit("lease until 30")
        client.halted("timer at 5", "c", due_in=5)
        client.clock.advance(8)
        client.settle("ask")
        client.clock.advance(2)
        client.settle("b")
        client.clock.advance(10)
        client.admit("accepted at 20", has_lease=False)
        client.clock.advance(100)
        order = ["timer at 5", "answered at 8", "answered at 10"]
        order += ["accepted at 20", "lease until 30", "timer at 40"]
        assert client.due(0) == []
        assert client.due(3) == order[:3]
        assert client.due(1) == order[3:4]
        assert client.due(9) == order[4:]

    def test_a_run_with_many_due_waits_is_one_run(self, client: Client) -> None:
        for number in range(3):
            chain = client.admit(f"run-{number}")
            now = client.clock.now()
            client.halt(chain, *(chain.wait(f"{number} {k}", due_at=now) for k in range(5)))
        client.call(client.store.request_stop("run-2", StopRequest.CANCEL))
        assert client.due(2) == ["run-2", "run-0"]
        assert len(client.waits(status=WaitStatus.SETTLED)) == 10
        assert client.due(2) == ["run-1"]

    def test_every_claim_has_an_owner_of_its_own(self, client: Client) -> None:
        for number in range(3):
            client.admit(f"run-{number}", has_lease=False)
        numbers = count()
        claimed = client.claim_due(new_owner=lambda: f"owner {next(numbers)}")
        assert sorted(lease.owner for _, lease in claimed) == ["owner 0", "owner 1", "owner 2"]
        assert client.claim_due(new_owner=lambda: f"owner {next(numbers)}") == []
        assert next(numbers) == 3

    def test_the_owner_that_halted_the_run_is_fenced_once_it_was_claimed(self, client: Client) -> None:
        chain = client.halted("run", "w", due_in=0)
        [(_, lease)] = client.claim_due()
        assert client.put(chain.following()) == [Verdict.FENCED]
        assert client.put(chain.following(status=Status.HALTED)) == [Verdict.FENCED]
        assert client.renew(chain.lease()) == [Verdict.FENCED]
        chain.epoch = lease.epoch
        client.accept(chain, chain.following(status=Status.RUNNING, closed=("w",)))
        assert client.renew(lease) == [lease]

    def test_workers_that_claim_at_once_get_different_runs(
        self, clients: Callable[[], Client], store_kit: StoreKit
    ) -> None:
        watcher = clients()
        for number in range(WORKERS * EACH):
            watcher.halted(f"run-{number}", f"w{number}", due_in=0)
        start = threading.Barrier(WORKERS)
        claimed: list[tuple[str, Lease]] = []
        failures: list[BaseException] = []

        def work() -> None:
            try:
                client = Client(store_kit)
                start.wait(30)
                while batch := client.claim_due(4):
                    claimed.extend((row.run_id, lease) for row, lease in batch)
                client.close()
            except BaseException as error:
                failures.append(error)
                start.abort()

        threads = [threading.Thread(target=work) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert sorted(run_id for run_id, _ in claimed) == sorted(f"run-{n}" for n in range(WORKERS * EACH))
        assert all(watcher.row(run_id).lease == lease for run_id, lease in claimed)
        assert watcher.waits(status=WaitStatus.OPEN) == []

    def test_ten_thousand_halted_runs_hide_none_that_is_due(self, client: Client) -> None:
        many = client.crowd(MANY)
        later = client.clock.now() + timedelta(days=1)
        chains = [Chain(f"run-{number}", client.clock) for number in range(many)]
        for k, chain in enumerate(chains):
            chain.head = chain.admission(status=Status.HALTED, waits=(chain.wait(f"w{k}", due_at=later),))
        assert set(client.put(*(chain.head for chain in chains if chain.head))) == {Verdict.ACCEPTED}
        assert client.due() == []
        client.settle(f"w{many // 2}")
        client.change(f"w{many - 1}", due_at=client.clock.now())
        assert sorted(client.due()) == sorted([chains[many // 2].run_id, chains[many - 1].run_id])
        client.clock.advance(timedelta(days=1))
        assert len(set(client.due(many))) == many
        assert client.due() == []


class Endings(Suite):
    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.CANCELLED])
    def test_a_run_that_is_over_closes_its_waits(self, client: Client, status: Status) -> None:
        other = client.halted("other", "theirs")
        chain = client.admit("run")
        at = client.clock.now()
        client.halt(chain, chain.wait("open"), chain.wait("due", due_at=at), chain.wait("settled"))
        client.settle("settled", b"yes")
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.final(status, closed=("open",)))
        assert client.waits(status=WaitStatus.CLOSED) == ["open", "due", "settled"]
        assert client.wait("settled").answer == b"yes"
        assert client.settle("open") is False
        assert client.fire("run") == client.due() == []
        assert client.next_due() is None
        assert client.wait("theirs").status is WaitStatus.OPEN
        assert client.row(other.run_id).status is Status.HALTED

    @pytest.mark.parametrize("status", [Status.FAILED, Status.ABANDONED])
    def test_a_run_that_may_be_resumed_leaves_its_waits(self, client: Client, status: Status) -> None:
        chain = client.admit("run")
        at = client.clock.now() + timedelta(seconds=10)
        client.halt(chain, chain.wait("open"), chain.wait("due", due_at=at), chain.wait("settled"))
        client.settle("settled")
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.final(status))
        client.clock.advance(100)
        assert client.due() == []
        assert client.next_due() is None
        assert client.waits(status=WaitStatus.OPEN) == ["open", "due"]
        assert client.settle("open", b"late, but welcome") is True
        assert client.change("due", generation=2) is not None
        assert client.due() == []
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(status=Status.RUNNING))
        assert client.due() == []
        assert client.fire("run") == ["open", "due", "settled"]

    def test_a_failed_run_that_halts_again_is_due_again(self, client: Client) -> None:
        chain = client.halted("run", "w", due_in=10)
        client.accept(chain, chain.final(Status.FAILED))
        client.clock.advance(100)
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(status=Status.RUNNING))
        assert client.next_due() is None
        client.accept(chain, chain.following(status=Status.HALTED))
        assert client.next_due() == client.wait("w").due_at
        assert client.due() == ["run"]

    @pytest.mark.parametrize("status", [s for s in Status if s.is_final])
    def test_a_run_that_ended_is_never_due(self, client: Client, status: Status) -> None:
        chain = client.admit("run")
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        client.accept(chain, chain.final(status))
        client.clock.advance(1000)
        assert client.due() == []

    def test_the_next_time_is_that_of_the_first_open_wait_of_a_halted_run(self, client: Client) -> None:
        def at(seconds: float) -> datetime:
            return began + timedelta(seconds=seconds)

        began = client.clock.now()
        assert client.next_due() is None
        client.halted("late", "late", due_in=50)
        client.halted("early", "early", due_in=20)
        client.halted("answered", "answered", due_in=5)
        client.halted("timeless", "timeless")
        running = client.admit("running")
        client.accept(running, running.following(waits=(running.wait("w", due_at=at(1)),)))
        client.settle("answered")
        assert client.next_due() == at(20)
        client.change("late", due_at=at(10.000001))
        assert client.next_due() == at(10.000001)
        client.change("late", due_at=None)
        assert client.next_due() == at(20)
        client.accept(running, running.following(status=Status.HALTED))
        assert client.next_due() == at(1)
        client.clock.advance(1)
        assert sorted(client.due()) == ["answered", "running"]
        assert client.next_due() == at(20)

    def test_the_next_time_after_what_is_due_already_can_be_asked_for(self, client: Client) -> None:
        now = client.clock.now()
        for seconds in (10, 20, 30):
            client.halted(f"run-{seconds}", f"w{seconds}", due_in=seconds)
        client.clock.advance(25)
        assert client.next_due() == now + timedelta(seconds=10)
        assert client.next_due(after=client.clock.now()) == now + timedelta(seconds=30)
        assert client.next_due(after=now + timedelta(seconds=20, microseconds=-1)) == now + timedelta(
            seconds=20
        )
        assert client.next_due(after=now + timedelta(seconds=30)) is None


@for_many_writers
class Changes(Suite):
    def test_whatever_another_client_writes_is_seen_as_a_change(self, clients: Callable[[], Client]) -> None:
        watcher, writer = clients(), clients()
        seen = watcher.store.changes()

        def has_changed() -> bool:
            nonlocal seen
            before, ends = seen, time.monotonic() + PATIENCE
            while seen == before and time.monotonic() < ends:
                seen = watcher.store.changes()
            return before != seen

        assert watcher.store.changes() == seen
        chain = writer.admit("run")
        assert has_changed()
        writer.extend(chain, [b"2"])
        assert has_changed()
        at = writer.clock.now() + timedelta(seconds=1)
        writer.halt(chain, chain.wait("a"), chain.wait("b", due_at=at))
        assert has_changed()
        writer.settle("a")
        assert has_changed()
        writer.change("b", generation=2)
        assert has_changed()
        writer.clock.advance(2)
        assert writer.fire("run") == ["a", "b"]
        assert has_changed()
        [(_, lease)] = writer.claim_due()
        assert has_changed()
        writer.release(lease)
        assert has_changed()
        writer.call(writer.store.request_stop("run", StopRequest.CANCEL))
        assert has_changed()

    def test_looking_is_no_change(self, clients: Callable[[], Client]) -> None:
        watcher, reader = clients(), clients()
        unheard, ends = watcher.store.changes(), time.monotonic() + PATIENCE
        reader.halted("run", "w", due_in=10)
        while watcher.store.changes() == unheard:  # until it is heard of, nothing is at rest
            assert time.monotonic() < ends
        before = _changes_at_rest(watcher, rest=4 * REST)
        for client in (watcher, reader):
            client.waits()
            client.wait("w")
            client.next_due()
            client.row("run")
            assert client.due() == []
        assert _changes_at_rest(watcher) == before


def _changes_at_rest(watcher: Client, rest: float = REST) -> int:
    """Return the number once it stands still: who is told of changes may hear of one a little later."""
    seen, rests = watcher.store.changes(), rest if watcher.store.capabilities.remote else 0.0
    since = time.monotonic()
    while time.monotonic() - since < rests:
        if (now := watcher.store.changes()) != seen:
            seen, since = now, time.monotonic()
        threading.Event().wait(0.01)
    return seen
