"""Waits: they come with a put, are settled once, and are told apart for as long as the run is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everstep.errors import StoreError
from everstep.model.enums import Status
from everstep.model.waits import SettledBy, WaitChange, WaitRow, WaitStatus
from everstep.ports.store import StopRequest, Verdict
from everstep.testing.conformance.kit import Client, StoreKit, Suite, for_many_writers

RACERS = 4
ROUNDS = 8
MANY = 10_000


def comparing(client: Client) -> Client:
    """Return a client of a store that changes a wait only if it is as it was read."""
    if not client.store.capabilities.compares:
        pytest.skip("it declares that it counts no votes")
    return client


class Waits(Suite):
    def test_a_wait_comes_back_as_it_was_opened(self, clients: Callable[[], Client]) -> None:
        writer, reader = clients(), clients()
        chain = writer.admit("run")
        now = writer.clock.now()
        bare = chain.wait("bare")
        full = chain.wait(
            "full",
            flow_id="inner",
            path="outer/ask",
            visit=7,
            kind="question",
            details=b'{"prompt":"why?"}',
            due_at=now + timedelta(days=40_000),
            scheduler="cron",
            schedule_id="job 1",
            notifies=True,
            notified_at=now + timedelta(seconds=1),
            token_hash=b"\0\xff" * 16,
            token_expires_at=now + timedelta(hours=1),
            generation=3,
            single_use=False,
        )
        writer.accept(chain, chain.following(waits=(bare, full)))
        for client in (writer, reader):
            assert (client.wait("bare"), client.wait("full")) == (bare, full)
            assert client.waits() == ["bare", "full"]

    def test_the_times_of_a_wait_keep_microseconds_in_utc(self, client: Client) -> None:
        client.clock.advance(timedelta(microseconds=123_457))
        chain = client.admit("run")
        at = client.clock.now() + timedelta(microseconds=1)
        wait = chain.wait("w", due_at=at, token_expires_at=at, notified_at=at)
        client.halt(chain, wait)
        client.settle("w")
        row = client.wait("w")
        times = (row.opened_at, row.due_at, row.token_expires_at, row.notified_at, row.settled_at)
        assert times == (wait.opened_at, at, at, at, client.clock.now())
        assert all(t is not None and t.utcoffset() == timedelta(0) for t in times)

    def test_of_two_changes_to_what_was_read_the_first_counts(self, clients: Callable[[], Client]) -> None:
        first, second = comparing(clients()), clients()
        first.halted("run", "w")
        first.change("w", details=b"0")
        change, settle = WaitChange(details=b"1"), second.store.settle
        changed = first.call(first.store.change_wait("w", change, was=b"0"))
        assert changed is not None and changed.details == b"1"
        late = second.call(second.store.change_wait("w", WaitChange(details=b"2"), was=b"0"))
        assert late is not None and late.details == b"1"
        given: dict[str, Any] = {"by": SettledBy.ANSWER, "answer": b"yes", "details": b"3"}
        is_done, row = second.call(settle("w", was=b"0", **given))
        assert (is_done, row) == (False, changed)
        is_done, row = second.call(settle("w", was=b"1", **given))
        assert is_done and row is not None and (row.answer, row.details) == (b"yes", b"3")
        again = first.call(first.store.change_wait("w", change, was=b"3"))
        assert again == row

    def test_what_was_read_does_not_hold_up_the_clock(self, client: Client) -> None:
        comparing(client).halted("run", "w", due_in=10)
        client.change("w", details=b"0")
        client.clock.advance(10)
        given: dict[str, Any] = {"by": SettledBy.ANSWER, "answer": b"yes", "details": b"1", "was": b"0"}
        is_done, row = client.call(client.store.settle("w", **given))
        assert not is_done and row is not None
        assert (row.settled_by, row.details) == (SettledBy.CLOCK, b"0")

    def test_of_many_who_change_what_they_read_one_at_a_time_comes_through(
        self, clients: Callable[[], Client]
    ) -> None:
        many = [comparing(clients()) for _ in range(RACERS)]
        many[0].halted("run", "w")
        many[0].change("w", details=b"")

        def add(client: Client, mark: bytes) -> None:
            while True:
                was = client.wait("w").details
                change = WaitChange(details=was + mark)
                now = client.call(client.store.change_wait("w", change, was=was))
                if now is not None and mark in now.details:
                    return

        threads = [threading.Thread(target=add, args=(c, b"%d" % k)) for k, c in enumerate(many)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(many[0].wait("w").details) == sorted(b"0123"[:RACERS])

    def test_a_wait_may_be_opened_with_the_admission(self, client: Client) -> None:
        chain = client.admit("template")
        chain.run_id = "run"
        first = chain.admission(status=Status.HALTED, waits=(chain.wait("w"),))
        assert client.put(first) == [Verdict.ACCEPTED]
        assert client.wait("w").run_id == "run"
        row = client.row("run")
        assert (row.status, row.lease) == (Status.HALTED, None)

    def test_a_wait_that_another_client_opened_is_closed_with_the_run(
        self, clients: Callable[[], Client]
    ) -> None:
        first, second = clients(), clients()
        chain = first.admit("run")
        first.accept(chain, chain.following())
        second.accept(chain, chain.following(waits=(chain.wait("w"),)))
        first.accept(chain, chain.final())
        assert first.wait("w").status is WaitStatus.CLOSED

    def test_a_refused_put_opens_and_closes_no_wait(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.following(waits=(chain.wait("kept"),)))
        about: dict[str, Any] = {"waits": (chain.wait("new"),), "closed": ("kept",)}
        refused = [
            (chain.following(epoch=9, **about), Verdict.FENCED),
            (chain.following(base="elsewhere", **about), Verdict.MOVED),
            (chain.admission(**about), Verdict.EXISTS),
            (chain.following(run_id="unknown", **about), Verdict.UNKNOWN_RUN),
        ]
        for commit, verdict in refused:
            assert client.put(commit) == [verdict]
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        assert client.put(chain.following(**about)) == [Verdict.STOP_REQUESTED]
        assert client.waits() == client.waits(status=WaitStatus.OPEN) == ["kept"]

    def test_of_several_commits_only_the_accepted_open_their_waits(self, client: Client) -> None:
        mine, lost = client.admit("mine"), client.admit("lost")
        verdicts = client.put(
            lost.following(epoch=2, waits=(lost.wait("no"),)),
            mine.following(status=Status.HALTED, waits=(mine.wait("yes"),)),
        )
        assert verdicts == [Verdict.FENCED, Verdict.ACCEPTED]
        assert client.waits() == ["yes"]

    def test_a_put_whose_reply_was_lost_opens_its_waits_once(self, clients: Callable[[], Client]) -> None:
        client, other = clients(), clients()
        chain = client.admit("run")
        halt = client.halt(chain, chain.wait("w"))
        for again in (client, other):
            assert again.put(halt) == [Verdict.ACCEPTED]
            assert again.waits() == ["w"]
        assert client.settle("w") is True
        settled = client.wait("w")
        assert client.put(halt) == [Verdict.ACCEPTED]
        assert client.wait("w") == settled
        chain.epoch = client.claim("run").epoch
        closing = client.accept(chain, chain.following(status=Status.RUNNING, closed=("w",)))
        for late in (halt, closing):
            assert other.put(late) == [Verdict.ACCEPTED]
            assert other.waits(status=WaitStatus.CLOSED) == ["w"]

    def test_a_put_that_opens_a_wait_which_exists_keeps_nothing(self, client: Client) -> None:
        client.halted("other", "taken")
        chain = client.admit("run")
        waits = (chain.wait("new"), chain.wait("taken"))
        for commit in (chain.following(waits=waits), chain.following(waits=waits, status=Status.HALTED)):
            with pytest.raises(StoreError):
                client.put(commit)
        assert client.waits() == ["taken"]
        assert client.wait("taken").run_id == "other"
        row = client.row("run")
        assert (row.checkpoints, row.status) == (1, Status.RUNNING)
        client.accept(chain, chain.following(waits=waits[:1]))

    def test_a_put_closes_the_waits_it_names_and_no_others(self, client: Client) -> None:
        chain, other = client.admit("run"), client.admit("other")
        client.accept(chain, chain.following(waits=(chain.wait("a"), chain.wait("b"))))
        client.accept(other, other.following(waits=(other.wait("theirs"),)))
        client.accept(chain, chain.following(closed=("a", "theirs", "unknown")))
        assert client.waits(status=WaitStatus.CLOSED) == ["a"]
        assert client.waits(status=WaitStatus.OPEN) == ["b", "theirs"]

    def test_a_put_may_close_one_wait_and_open_the_next(self, client: Client) -> None:
        chain = client.halted("run", "first")
        client.settle("first")
        chain.epoch = client.claim("run").epoch
        second = chain.wait("second", visit=2)
        client.accept(chain, chain.following(status=Status.HALTED, waits=(second,), closed=("first",)))
        assert client.wait("second") == second
        assert client.wait("first").status is WaitStatus.CLOSED
        assert client.due() == []

    @pytest.mark.parametrize(
        "details",
        [b"", b"\0", b"\xff\xfe\0\x80", '"\U0001f600\u202e\\";--\''.encode(), b"x" * 2_000_000],
        ids=["empty", "nul", "no text", "ugly text", "2 MB"],
    )
    def test_details_and_answers_are_bytes_that_nothing_reads(self, client: Client, details: bytes) -> None:
        chain = client.admit("run")
        client.halt(chain, chain.wait("w", details=details))
        assert client.settle("w", details) is True
        row = client.wait("w")
        assert (row.details, row.answer) == (details, details)

    @pytest.mark.parametrize("text", ["", "'; DROP TABLE waits; --", "a\0b", "ä\U0001f600\u202e", "x" * 5000])
    def test_names_of_a_wait_are_any_text(self, client: Client, text: str) -> None:
        chain = client.admit("run", flow_id=text)
        wait = chain.wait("id " + text, path=text, kind=text, scheduler=text, schedule_id=text)
        client.halt(chain, wait)
        assert client.wait("id " + text) == wait
        assert client.waits(flow_id=text, kind=text) == [wait.wait_id]

    def test_a_token_leads_to_its_wait_for_as_long_as_it_is_the_token(self, client: Client) -> None:
        chain = client.admit("run")
        client.halt(chain, chain.wait("w", token_hash=b"old" * 10), chain.wait("none"))
        lookup = client.store.wait_of_token
        assert client.call(lookup(b"old" * 10)) == client.wait("w")
        assert client.call(lookup(b"old")) is client.call(lookup(b"")) is None
        client.change("w", token_hash=b"new", generation=2)
        assert client.call(lookup(b"old" * 10)) is None
        client.settle("w")
        assert client.call(lookup(b"new")) == client.wait("w")
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.final(closed=("w",)))
        found = client.call(lookup(b"new"))
        assert found is not None and found.status is WaitStatus.CLOSED

    def test_ten_thousand_waits_are_listed_and_settled(self, client: Client) -> None:
        many = client.crowd(MANY)
        chain = client.admit("run")
        waits = tuple(chain.wait(f"w{k}", token_hash=b"%d" % k) for k in range(many))
        client.halt(chain, *waits)
        assert client.waits(limit=many + 1) == [wait.wait_id for wait in waits]
        assert client.waits(status=WaitStatus.OPEN, after=f"w{many - 3}") == [f"w{many - 2}", f"w{many - 1}"]
        found = client.call(client.store.wait_of_token(b"%d" % (many // 2)))
        assert found == waits[many // 2]
        assert client.settle(f"w{many // 2}") is True
        assert len(client.waits(run_id="run", status=WaitStatus.OPEN, limit=many)) == many - 1
        assert client.fire("run") == [f"w{many // 2}"]


class Settling(Suite):
    def test_the_first_answer_counts(self, clients: Callable[[], Client]) -> None:
        client, other = clients(), clients()
        client.halted("run", "w")
        client.clock.advance(5)
        at = client.clock.now()
        assert client.settle("w", b"first") is True
        other.clock.advance(5)
        assert other.settle("w", b"second") is False
        assert other.settle("w", None, by=SettledBy.CLOCK) is False
        row = other.wait("w")
        assert (row.status, row.answer, row.settled_at) == (WaitStatus.SETTLED, b"first", at)
        assert row.settled_by is SettledBy.ANSWER

    def test_details_come_with_the_answer_that_counts(self, client: Client) -> None:
        chain = client.admit("run")
        waits = (chain.wait("w"), chain.wait("late", due_at=client.clock.now()))
        client.accept(chain, chain.following(status=Status.HALTED, waits=waits))
        for details in (b'{"first": 1}', b'{"second": 2}'):
            client.call(client.store.settle("w", by=SettledBy.ANSWER, answer=b"1", details=details))
        client.call(client.store.settle("late", by=SettledBy.ANSWER, answer=b"1", details=b"{}"))
        assert client.wait("w").details == b'{"first": 1}'
        assert (client.wait("late").settled_by, client.wait("late").details) == (
            SettledBy.CLOCK,
            waits[1].details,
        )

    def test_the_clock_settles_without_an_answer(self, client: Client) -> None:
        client.halted("run", "w")
        assert client.settle("w", None, by=SettledBy.CLOCK) is True
        row = client.wait("w")
        assert (row.settled_by, row.answer) == (SettledBy.CLOCK, None)

    def test_an_unknown_wait_cannot_be_settled(self, client: Client) -> None:
        assert client.settle("unknown") is False
        assert client.call(client.store.wait("unknown")) is None

    def test_a_wait_is_settled_only_by_its_token(self, client: Client) -> None:
        chain = client.admit("run")
        client.halt(chain, chain.wait("w", token_hash=b"right"), chain.wait("bare"))
        before = client.wait("w")
        for wrong in (b"wrong", b"", b"righ", b"right\0"):
            assert client.settle("w", token_hash=wrong) is False
            assert client.settle("bare", token_hash=wrong) is False
        assert client.wait("w") == before
        client.change("w", token_hash=None)
        assert client.settle("w", token_hash=b"right") is False
        client.change("w", token_hash=b"newer")
        assert client.settle("w", token_hash=b"newer") is True

    def test_a_closed_wait_refuses_answers_and_keeps_the_one_it_had(self, client: Client) -> None:
        chain = client.admit("run")
        client.halt(chain, chain.wait("answered"), chain.wait("dropped"))
        client.settle("answered", b"yes")
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(closed=("answered", "dropped")))
        for wait_id in ("answered", "dropped"):
            assert client.settle(wait_id, b"late") is False
            assert client.wait(wait_id).status is WaitStatus.CLOSED
        answered, dropped = client.wait("answered"), client.wait("dropped")
        assert (answered.answer, answered.settled_by) == (b"yes", SettledBy.ANSWER)
        assert (dropped.answer, dropped.settled_at) == (None, None)

    @pytest.mark.parametrize("late", [timedelta(0), timedelta(microseconds=1), timedelta(days=9)])
    @pytest.mark.parametrize("scheduler", ["", "cron"])
    def test_from_its_due_time_on_an_answer_is_the_clocks(
        self, clients: Callable[[], Client], late: timedelta, scheduler: str
    ) -> None:
        client, other = clients(), clients()
        chain = client.admit("run")
        at = client.clock.now() + timedelta(seconds=10)
        asked = [chain.wait(f"w{k}", due_at=at, scheduler=scheduler, token_hash=b"%d" % k) for k in range(3)]
        client.halt(chain, *asked)
        client.clock.advance(timedelta(seconds=10) - timedelta(microseconds=1))
        assert client.settle("w0", b"in time", token_hash=b"0") is True
        client.clock.advance(timedelta(microseconds=1) + late)
        now = client.clock.now()
        assert client.settle("w1", b"late", token_hash=b"wrong") is False
        assert other.wait("w1") == asked[1]
        for wait_id, token_hash in (("w1", b"1"), ("w2", None)):
            assert client.settle(wait_id, b"late", token_hash=token_hash) is False
            row = other.wait(wait_id)
            assert (row.status, row.settled_by) == (WaitStatus.SETTLED, SettledBy.CLOCK)
            assert (row.answer, row.settled_at) == (None, now)
        row = other.wait("w0")
        assert (row.settled_by, row.answer) == (SettledBy.ANSWER, b"in time")
        assert client.fire("run") == ["w0", "w1", "w2"]
        assert client.due() == ["run"]

    def test_an_answer_that_another_store_took_in_time_is_taken_over_later(self, client: Client) -> None:
        chain = client.admit("run")
        at = client.clock.now() + timedelta(seconds=10)
        client.halt(chain, chain.wait("w", due_at=at), chain.wait("late", due_at=at))
        client.clock.advance(60)
        given = at - timedelta(seconds=1)
        settle = client.store.settle
        done, row = client.call(settle("w", by=SettledBy.ANSWER, answer=b"yes", at=given))
        assert done and row is not None
        assert (row.settled_by, row.answer, row.settled_at) == (SettledBy.ANSWER, b"yes", given)
        assert client.call(settle("late", by=SettledBy.ANSWER, answer=b"yes", at=at))[0] is False
        assert client.wait("late").settled_by is SettledBy.CLOCK

    def test_a_wait_of_a_running_run_can_be_settled(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.following(waits=(chain.wait("w"),)))
        assert client.settle("w", b"early") is True
        assert client.due() == []
        client.extend(chain, [b"goes on"])
        assert client.fire("run") == ["w"]

    @for_many_writers
    def test_of_many_answers_at_once_exactly_one_counts(
        self, clients: Callable[[], Client], store_kit: StoreKit
    ) -> None:
        watcher = clients()
        chain = watcher.admit("run")
        watcher.halt(chain, *(chain.wait(f"w{number}") for number in range(ROUNDS)))
        won, failures = _race(store_kit, lambda client, racer, n: client.settle(f"w{n}", b"%d" % racer))
        assert failures == []
        assert sorted(number for number, _ in won) == list(range(ROUNDS))
        for number, racer in won:
            assert watcher.wait(f"w{number}").answer == b"%d" % racer

    def test_firing_settles_what_is_due_of_one_run_and_returns_all_that_is_settled(
        self, client: Client
    ) -> None:
        chain, other = client.admit("run"), client.admit("other")
        at = client.clock.now() + timedelta(seconds=10)
        client.halt(
            chain,
            chain.wait("due", due_at=at),
            chain.wait("later", due_at=at + timedelta(microseconds=1)),
            chain.wait("answered", due_at=at),
            chain.wait("foreign", due_at=at, scheduler="cron"),
            chain.wait("timeless"),
            chain.wait("closed", due_at=at),
        )
        client.halt(other, other.wait("theirs", due_at=at))
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(closed=("closed",)))
        assert client.fire("run") == []
        client.settle("answered", b"yes")
        client.clock.advance(10)
        assert client.fire("run") == ["due", "answered"]
        assert client.waits(status=WaitStatus.OPEN) == ["later", "foreign", "timeless", "theirs"]
        row = client.wait("due")
        assert (row.settled_by, row.settled_at, row.answer) == (SettledBy.CLOCK, at, None)
        client.clock.advance(1)
        assert client.fire("run") == ["due", "later", "answered"]
        assert client.wait("due") == row
        assert client.wait("answered").answer == b"yes"
        assert client.fire("unknown") == []

    def test_a_time_long_past_is_due(self, client: Client) -> None:
        for number, at in enumerate([datetime(1960, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]):
            chain = client.admit(f"run-{number}")
            client.halt(chain, chain.wait(f"w{number}", due_at=at))
            assert client.due() == [f"run-{number}"]
            assert client.fire(f"run-{number}") == [f"w{number}"]
            assert client.wait(f"w{number}").due_at == at

    def test_an_open_wait_can_be_changed(self, clients: Callable[[], Client]) -> None:
        client, other = clients(), clients()
        client.halted("run", "w", due_in=10)
        at = client.clock.now() + timedelta(microseconds=77)
        changes: dict[str, Any] = {
            "token_hash": b"hash",
            "token_expires_at": at,
            "generation": 2,
            "single_use": False,
            "schedule_id": "job",
            "notified_at": at,
            "details": b"{}",
            "due_at": at,
        }
        for name, value in changes.items():
            before = client.wait("w")
            changed = client.change("w", **{name: value})
            assert changed == other.wait("w")
            expected = {field: getattr(before, field) for field in before.__struct_fields__} | {name: value}
            assert changed == WaitRow(**expected)
        for name in ("token_hash", "token_expires_at", "schedule_id", "notified_at", "due_at"):
            cleared = client.change("w", **{name: None})
            assert cleared is not None and getattr(cleared, name) is None
        assert client.change("w") == other.wait("w")
        assert client.change("unknown", generation=2) is None

    def test_a_wait_that_is_not_open_cannot_be_changed(self, client: Client) -> None:
        chain = client.admit("run")
        client.halt(chain, chain.wait("settled"), chain.wait("closed"))
        client.settle("settled")
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(closed=("closed",)))
        for wait_id in ("settled", "closed"):
            before = client.wait(wait_id)
            assert client.change(wait_id, token_hash=b"new", generation=5) == before
            assert client.wait(wait_id) == before


class WaitListing(Suite):
    def test_waits_are_listed_in_the_order_they_were_opened(self, client: Client) -> None:
        for wait_id in ("c", "a", "b"):
            client.halted(f"run of {wait_id}", wait_id)
        assert client.waits() == client.waits(status=WaitStatus.OPEN) == ["c", "a", "b"]
        client.settle("c")
        assert client.waits() == ["c", "a", "b"]

    def test_a_listing_of_waits_can_be_narrowed(self, client: Client) -> None:
        chains = [client.admit(f"run-{k}", flow_id="odd" if k % 2 else "even") for k in range(3)]
        for k, chain in enumerate(chains):
            client.halt(chain, chain.wait(f"timer-{k}", kind="timer"), chain.wait(f"ask-{k}"))
        client.settle("ask-0")
        client.accept(chains[1], chains[1].following(closed=("ask-1",)))
        status = WaitStatus
        assert client.waits(run_id="run-1") == ["timer-1", "ask-1"]
        assert client.waits(run_id="run-1", status=status.OPEN) == ["timer-1"]
        assert client.waits(run_id="run-1", kind="approval", status=status.CLOSED) == ["ask-1"]
        assert client.waits(flow_id="even") == ["timer-0", "ask-0", "timer-2", "ask-2"]
        assert client.waits(flow_id="even", status=status.OPEN) == ["timer-0", "timer-2", "ask-2"]
        assert client.waits(kind="timer", limit=2) == ["timer-0", "timer-1"]
        assert client.waits(kind="approval", status=status.SETTLED) == ["ask-0"]
        assert client.waits(status=status.CLOSED) == ["ask-1"]
        assert client.waits(run_id="run-1", flow_id="even") == client.waits(run_id="unknown") == []
        assert client.waits(flow_id="e%") == client.waits(kind="time") == []

    def test_what_a_run_still_waits_for_is_listed_without_what_it_has_closed(self, client: Client) -> None:
        chain, other = client.admit("run"), client.admit("other")
        waits = [chain.wait(f"w{number}", kind="k" if number % 2 else "j") for number in range(9)]
        client.accept(chain, chain.following(waits=tuple(waits)))
        client.accept(other, other.following(waits=(other.wait("theirs"),)))
        client.settle("w4")
        client.accept(chain, chain.following(closed=("w0", "w3", "w5", "w8")))
        left = ["w1", "w2", "w4", "w6", "w7"]
        assert client.waits(run_id="run", is_unclosed=True) == left
        assert client.waits(run_id="run", is_unclosed=True, limit=2) == left[:2]
        assert client.waits(run_id="run", is_unclosed=True, limit=2, after="w2") == left[2:4]
        assert client.waits(run_id="run", is_unclosed=True, after="w5") == left[3:]
        assert client.waits(run_id="run", is_unclosed=True, kind="k") == ["w1", "w7"]
        assert client.waits(run_id="run", is_unclosed=True, status=WaitStatus.SETTLED) == ["w4"]
        assert client.waits(run_id="run", status=WaitStatus.OPEN) == ["w1", "w2", "w6", "w7"]
        assert client.waits(run_id="unknown", is_unclosed=True) == []

    @pytest.mark.parametrize("narrowed", [{}, {"status": WaitStatus.OPEN}, {"run_id": "run"}, {"kind": "k"}])
    def test_pages_cover_every_wait_once(self, client: Client, narrowed: dict[str, Any]) -> None:
        chain = client.admit("run")
        opened = [chain.wait(f"w{number}", kind="k") for number in range(10)]
        client.accept(chain, chain.following(waits=tuple(opened)))
        pages: list[list[str]] = []
        after: str | None = None
        while page := client.waits(limit=3, after=after, **narrowed):
            pages.append(page)
            after = page[-1]
            client.settle("w0")
        assert [len(page) for page in pages] == [3, 3, 3, 1]
        assert [wait_id for page in pages for wait_id in page] == [wait.wait_id for wait in opened]
        assert client.waits(after="unknown", **narrowed) == []

    def test_waits_without_a_notification_are_found(self, client: Client) -> None:
        chain = client.admit("run")
        at = client.clock.now() + timedelta(seconds=10)
        client.halt(
            chain,
            chain.wait("untold", notifies=True),
            chain.wait("told", notifies=True, notified_at=at),
            chain.wait("unknown"),
            chain.wait("unscheduled", due_at=at, scheduler="cron"),
            chain.wait("scheduled", due_at=at, scheduler="cron", schedule_id="job"),
            chain.wait("ours", due_at=at),
            chain.wait("timeless", scheduler="cron"),
            chain.wait("half", notifies=True, due_at=at, scheduler="cron", schedule_id="job"),
            chain.wait("answered", notifies=True),
        )
        client.settle("answered")
        untold = ["untold", "unscheduled", "half"]
        assert client.waits(is_untold=True) == client.waits(is_untold=True, run_id="run") == untold
        assert client.waits(is_untold=True, limit=1) == ["untold"]
        assert client.waits(is_untold=True, after="untold") == ["unscheduled", "half"]
        assert client.waits(is_untold=True, status=WaitStatus.SETTLED) == []
        assert client.waits(is_untold=True, flow_id="other") == []
        client.change("untold", notified_at=at)
        client.change("unscheduled", schedule_id="job")
        assert client.waits(is_untold=True) == ["half"]


def _race(
    kit: StoreKit, attempt: Callable[[Client, int, int], bool]
) -> tuple[list[tuple[int, int]], list[BaseException]]:
    """Let clients attempt each round at once; return (round, racer) of every success, and what failed."""
    start = threading.Barrier(RACERS)
    won: list[tuple[int, int]] = []
    failures: list[BaseException] = []

    def race(racer: int) -> None:
        try:
            client = Client(kit)
            for number in range(ROUNDS):
                start.wait(30)
                if attempt(client, racer, number):
                    won.append((number, racer))
            client.close()
        except BaseException as error:
            failures.append(error)
            start.abort()

    threads = [threading.Thread(target=race, args=(racer,)) for racer in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, failures
