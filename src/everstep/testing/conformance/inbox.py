"""Signals of runs and events by key: kept by the store, and brought to the waits that are for them."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from everstep.model.enums import Status
from everstep.model.waits import (
    MOST_UNTAKEN,
    HadEvent,
    Sending,
    SettledBy,
    SignalRow,
    WaitRow,
    WaitStatus,
    topic_of_signal,
)
from everstep.ports.events import EventRow, EventStore, fields_of, wanted_by
from everstep.ports.inbox import InboxStore
from everstep.ports.retention import RetainingStore
from everstep.ports.store import RecodedSignal, StopRequest, Verdict
from everstep.testing.conformance.kit import Chain, Client, StoreKit, Suite, for_many_writers

_IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
UGLY = "a\0:b'\"\\{}~/é🙂;%\x1a"
VALUES = ["text", "", "1", 1, 0, -2.5, True, False, "true", UGLY]
MOMENT = 5.0
"""Seconds that a thousand waits may take where nothing is slow: one would do on a quiet machine."""


class Inboxes(Suite):
    """Only for stores that declare `has_inbox`; any other must not have the methods either."""

    @pytest.fixture
    def inboxes(self, client: Client, store_kit: StoreKit) -> Client:
        has_it = client.store.capabilities.has_inbox
        assert has_it is store_kit.capabilities.has_inbox is isinstance(client.store, InboxStore)
        if not has_it:
            pytest.skip("it declares that nothing can be sent to its runs")
        return client

    def test_signals_are_numbered_in_the_order_in_which_they_come(self, inboxes: Client) -> None:
        client = inboxes
        client.admit("run")
        client.admit("other")
        assert inbox_of(client, "run") == []
        sent = [send(client, "run", f"id-{k}", f"name-{k % 2}", b"%d" % k) for k in range(4)]
        assert sent == [Sending.SENT] * 4
        send(client, "other", "id-0")
        client.clock.advance(5)
        found = inbox_of(client, "run")
        assert [(s.number, s.signal_id, s.name, s.value) for s in found] == [
            (k + 1, f"id-{k}", f"name-{k % 2}", b"%d" % k) for k in range(4)
        ]
        assert {(s.sent_at, s.wait_id, s.taken_at) for s in found} == {
            (client.clock.now() - timedelta(seconds=5), None, None)
        }
        assert [s.number for s in inbox_of(client, "run", name="name-1")] == [2, 4]
        assert [s.number for s in inbox_of(client, "run", after=1, limit=2)] == [2, 3]
        assert inbox_of(client, "run", is_taken=True) == [] and inbox_of(client, "unknown") == []

    def test_signals_that_were_not_taken_get_other_bytes(self, inboxes: Client) -> None:
        client = inboxes
        chain = client.admit("run")
        for k in range(4):
            send(client, "run", f"id-{k}", "name", b"old %d" % k)
        client.accept(chain, chain.following(taken=("id-0",)))
        client.accept(chain, chain.following(pairs=True, waits=(listening(chain, "w", "name"),)))
        new = [RecodedSignal(k + 1, b"old %d" % k, b"new %d" % k) for k in range(3)]
        unread = [RecodedSignal(4, b"other", b"new 3"), RecodedSignal(9, b"old 9", b"new 9")]
        before = inbox_of(client, "run", is_taken=True)
        assert recode(client, "run", *new, *unread) == 2
        assert recode(client, "run", *new, *unread) == recode(client, "unknown", *new) == 0
        found = inbox_of(client, "run")
        assert [(s.number, s.signal_id, s.value) for s in found] == [
            (2, "id-1", b"new 1"),
            (3, "id-2", b"new 2"),
            (4, "id-3", b"old 3"),
        ]
        assert [s.wait_id for s in found] == ["w", None, None]
        assert inbox_of(client, "run", is_taken=True) == before
        assert client.wait("w").answer == b"old 1"
        client.accept(chain, chain.following(taken=("id-1", "id-2")))
        assert [s.number for s in inbox_of(client, "run")] == [4]
        assert send(client, "run", "id-2") is Sending.SAME

    def test_ugly_names_ids_and_values_come_back_as_they_were(self, inboxes: Client) -> None:
        client, ugly = inboxes, "a\0b\x1a'\"\\{}\n\u2028é🙂;:%"
        chain = client.admit("run")
        value = bytes(range(256))
        assert send(client, "run", ugly, ugly, value) is Sending.SENT
        assert send(client, "run", ugly, "else") is Sending.SAME
        [found] = inbox_of(client, "run", name=ugly)
        assert (found.signal_id, found.name, found.value) == (ugly, ugly, value)
        client.accept(chain, chain.following(pairs=True, waits=(listening(chain, "w", ugly),)))
        assert client.wait("w").answer == value
        client.accept(chain, chain.following(taken=(ugly,)))
        assert inbox_of(client, "run") == []

    def test_the_same_id_is_the_same_signal_for_as_long_as_the_run_is_there(self, inboxes: Client) -> None:
        client = inboxes
        chain = client.admit("run")
        assert send(client, "run", "id", "a", b"1") is Sending.SENT
        assert send(client, "run", "id", "b", b"2") is Sending.SAME
        assert [(s.name, s.value) for s in inbox_of(client, "run")] == [("a", b"1")]
        client.accept(chain, chain.following(taken=("id",)))
        assert send(client, "run", "id", "a", b"1") is Sending.SAME
        assert inbox_of(client, "run") == []
        client.accept(chain, chain.final())
        assert send(client, "run", "id", "a", b"1") is Sending.SAME
        assert send(client, "run", "new") is Sending.ENDED

    @pytest.mark.parametrize("status", [s for s in Status if s.is_final])
    def test_a_run_that_ended_takes_none_and_shows_what_is_unread(
        self, inboxes: Client, status: Status
    ) -> None:
        client = inboxes
        chain = client.admit("run")
        send(client, "run", "unread")
        client.accept(chain, chain.final(status))
        assert send(client, "run", "late") is Sending.ENDED
        assert [s.signal_id for s in inbox_of(client, "run")] == ["unread"]
        assert send(client, "unknown", "x") is Sending.UNKNOWN_RUN

    def test_a_full_inbox_refuses_until_something_is_taken(self, inboxes: Client) -> None:
        client = inboxes
        chain = client.admit("run")
        sent = [send(client, "run", f"id-{k}", most=3) for k in range(4)]
        assert sent == [*[Sending.SENT] * 3, Sending.FULL]
        assert send(client, "run", "id-0", most=3) is Sending.SAME
        client.accept(chain, chain.following(taken=("id-1",)))
        assert send(client, "run", "id-3", most=3) is Sending.SENT
        assert send(client, "run", "id-4", most=3) is Sending.FULL
        assert [s.number for s in inbox_of(client, "run")] == [1, 3, 4]

    def test_what_an_accepted_put_names_is_taken_and_nothing_else(self, inboxes: Client) -> None:
        client = inboxes
        chain = client.admit("run")
        for k in range(4):
            send(client, "run", f"id-{k}", value=b"v")
        refused = chain.following(epoch=9, taken=("id-0",))
        assert client.put(refused) == [Verdict.FENCED]
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        assert client.put(chain.following(taken=("id-0",))) == [Verdict.STOP_REQUESTED]
        assert len(inbox_of(client, "run")) == 4
        taking = client.accept(chain, chain.following(answers_stop=True, taken=("id-2", "id-0", "unknown")))
        assert [s.signal_id for s in inbox_of(client, "run")] == ["id-1", "id-3"]
        gone = inbox_of(client, "run", is_taken=True)
        assert [(s.signal_id, s.value, s.taken_at) for s in gone] == [
            (name, None, taking.sequence) for name in ("id-0", "id-2")
        ]
        assert client.put(taking) == [Verdict.ACCEPTED], "its reply may be lost"
        assert [s.signal_id for s in inbox_of(client, "run")] == ["id-1", "id-3"]

    def test_a_signal_settles_the_oldest_open_wait_for_it_and_wakes_its_run(self, inboxes: Client) -> None:
        client = inboxes
        chain = client.admit("run")
        waits = [listening(chain, f"w{k}", name) for k, name in enumerate(["a", "b", "a"])]
        client.accept(chain, chain.following(status=Status.HALTED, waits=tuple(waits), pairs=True))
        assert client.due() == []
        send(client, "run", "elsewhere", "c")
        assert client.due() == []
        send(client, "run", "first", "a", b'"1"')
        assert [client.wait(f"w{k}").status for k in range(3)] == ["settled", "open", "open"]
        settled = client.wait("w0")
        assert (settled.answer, settled.settled_by, settled.settled_at) == (
            b'"1"',
            SettledBy.ANSWER,
            client.clock.now(),
        )
        assert [(s.signal_id, s.wait_id) for s in inbox_of(client, "run", name="a")] == [("first", "w0")]
        send(client, "run", "second", "a", b'"2"')
        send(client, "run", "third", "a", b'"3"')
        assert client.wait("w2").answer == b'"2"'
        assert client.due() == ["run"]
        assert client.fire("run") == ["w0", "w2"]

    def test_a_wait_that_opens_is_settled_by_the_oldest_signal_that_is_there(self, inboxes: Client) -> None:
        client = inboxes
        chain = client.admit("run")
        for k in range(3):
            send(client, "run", f"id-{k}", "a", b"%d" % k)
        waits = tuple(listening(chain, name, "a") for name in "xy")
        client.accept(chain, chain.following(status=Status.HALTED, waits=waits, pairs=True))
        assert [client.wait(name).answer for name in "xy"] == [b"0", b"1"]
        assert client.due() == ["run"]
        lease = client.row("run").lease
        assert lease is not None
        chain.epoch = lease.epoch
        going: dict[str, Any] = {"closed": ("x", "y"), "taken": ("id-0", "id-1"), "status": Status.RUNNING}
        client.accept(chain, chain.following(pairs=True, **going))
        client.halt(chain, chain.wait("unrelated"))
        assert [(s.signal_id, s.wait_id) for s in inbox_of(client, "run")] == [("id-2", None)]

    def test_a_signal_whose_wait_closed_without_it_is_free_for_the_next(self, inboxes: Client) -> None:
        client = inboxes
        chain = client.admit("run")
        waits = (listening(chain, "one", "a"), listening(chain, "two", "a"))
        client.accept(chain, chain.following(waits=waits, pairs=True))
        send(client, "run", "id", "a", b"v")
        assert (client.wait("one").status, client.wait("two").status) == ("settled", "open")
        client.accept(chain, chain.following(closed=("one",), pairs=True))
        assert client.wait("two").answer == b"v"
        assert [s.wait_id for s in inbox_of(client, "run")] == ["two"]
        client.accept(chain, chain.following(closed=("two",), taken=("id",), pairs=True))
        client.accept(chain, chain.following(waits=(listening(chain, "three", "a"),), pairs=True))
        assert client.wait("three").status is WaitStatus.OPEN, "it was taken"

    def test_a_signal_comes_too_late_for_a_wait_whose_time_is_over(self, inboxes: Client) -> None:
        client = inboxes
        chain = client.admit("run")
        soon = client.clock.now() + timedelta(seconds=5)
        waits = (listening(chain, "due", "a", due_at=soon), listening(chain, "patient", "a"))
        client.accept(chain, chain.following(status=Status.HALTED, waits=waits, pairs=True))
        client.clock.advance(5)
        send(client, "run", "id", "a", b"v")
        assert (client.wait("due").status, client.wait("patient").answer) == ("open", b"v")
        assert set(client.fire("run")) == {"due", "patient"}
        assert client.wait("due").settled_by is SettledBy.CLOCK

    def test_an_answer_settles_such_a_wait_too_and_the_signal_waits_for_another(
        self, inboxes: Client
    ) -> None:
        client = inboxes
        chain = client.admit("run")
        client.accept(chain, chain.following(waits=(listening(chain, "w", "a"),), pairs=True))
        assert client.settle("w", b"1") is True
        send(client, "run", "id", "a", b"v")
        assert (client.wait("w").answer, inbox_of(client, "run")[0].wait_id) == (b"1", None)

    def test_another_client_hears_that_a_signal_came(self, inboxes: Client, clients: Any) -> None:
        other = clients()
        inboxes.admit("run")
        other.call(other.store.run("run"))
        seen = other.store.changes()
        send(inboxes, "run", "id")
        assert hears(other, seen)

    def test_an_erased_run_leaves_no_signal_behind(self, inboxes: Client, store_kit: StoreKit) -> None:
        client = inboxes
        if not isinstance(client.store, RetainingStore):
            pytest.skip("nothing can be erased")
        chain = client.admit("run")
        send(client, "run", "id", "a")
        client.accept(chain, chain.final())
        client.call(client.store.erase("run", head=2, reason="test"))
        assert inbox_of(client, "run") == [] and send(client, "run", "id") is Sending.UNKNOWN_RUN
        client.call(client.store.forget(["run"]))
        client.admit("run")
        assert inbox_of(client, "run") == [] and send(client, "run", "id") is Sending.SENT

    @for_many_writers
    def test_random_schedules_lose_no_signal_and_give_none_twice(
        self, inboxes: Client, clients: Callable[[], Client]
    ) -> None:
        for seed in range(3):
            _Schedule(random.Random(seed), [inboxes, clients()], f"run-{seed}").play(60)


class _Schedule:
    """One owner that opens waits and takes what they are settled with, and senders beside it."""

    def __init__(self, chance: random.Random, clients: list[Client], run_id: str) -> None:
        self.chance, self.clients, self.run_id = chance, clients, run_id
        self.chain = clients[0].admit(run_id)
        self.open: list[str] = []
        self.count = 0
        self.sent: dict[str, list[str]] = {"a": [], "b": []}
        self.got: dict[str, list[str]] = {"a": [], "b": []}

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.chance.choice([self.send, self.send, self.open_one, self.take, self.drop])()
        for _ in range(len(self.open) + 1):
            self.take()
        left = [s.signal_id for s in inbox_of(self.clients[1], self.run_id, limit=10_000)]
        for name in "ab":
            unread = [signal_id for signal_id in left if signal_id in self.sent[name]]
            assert self.got[name] + unread == self.sent[name], (name, self.run_id)

    def send(self) -> None:
        name, client = self.chance.choice("ab"), self.chance.choice(self.clients)
        self.count += 1
        signal_id = f"s{self.count}"
        assert send(client, self.run_id, signal_id, name, signal_id.encode()) is Sending.SENT
        assert send(self.chance.choice(self.clients), self.run_id, signal_id, name) is Sending.SAME
        self.sent[name].append(signal_id)

    def open_one(self) -> None:
        self.count += 1
        name = self.chance.choice("ab")
        wait = listening(self.chain, f"{self.run_id}-{name}-{self.count}", name)
        self.clients[0].accept(self.chain, self.chain.following(waits=(wait,), pairs=True))
        self.open.append(wait.wait_id)

    def take(self) -> None:
        """Go on with everything that is settled, in one put, as a drive does."""
        settled = [wait_id for wait_id in self.clients[0].fire(self.run_id) if wait_id in self.open]
        values = {wait_id: self.clients[0].wait(wait_id).answer or b"" for wait_id in settled}
        if settled:
            names = tuple(value.decode() for value in values.values())
            commit = self.chain.following(closed=tuple(settled), taken=names, pairs=True)
            self.clients[0].accept(self.chain, commit)
        for wait_id, value in values.items():
            self.open.remove(wait_id)
            self.got[wait_id.split("-")[2]].append(value.decode())

    def drop(self) -> None:
        """Close the newest wait, settled or not, without taking what it has; nothing newer was taken yet."""
        if self.open:
            wait_id = self.open.pop()
            self.clients[0].accept(self.chain, self.chain.following(closed=(wait_id,), pairs=True))


def send(
    client: Client,
    run_id: str,
    signal_id: str,
    name: str = "a",
    value: bytes = b"1",
    most: int = MOST_UNTAKEN,
) -> Sending:
    assert isinstance(client.store, InboxStore)
    signal = SignalRow(signal_id=signal_id, name=name, value=value, sent_at=client.clock.now())
    return client.call(client.store.send(run_id, signal, most=most))


def recode(client: Client, run_id: str, *signals: RecodedSignal) -> int:
    assert isinstance(client.store, InboxStore)
    return client.call(client.store.recode_signals(run_id, signals))


def inbox_of(client: Client, run_id: str, **wanted: Any) -> list[SignalRow]:
    assert isinstance(client.store, InboxStore)
    return client.call(client.store.inbox(run_id, **wanted))


def hears(client: Client, seen: int) -> bool:
    """True if a client learns of a change soon."""
    pause = threading.Event()
    return any(client.store.changes() != seen or pause.wait(0.01) for _ in range(1000))


def listening(chain: Chain, wait_id: str, name: str, **changes: Any) -> WaitRow:
    return chain.wait(wait_id, kind="signal", topic=topic_of_signal(name), **changes)


class Events(Suite):
    """Only for stores that declare `has_events`; any other must not have the methods either."""

    @pytest.fixture
    def events(self, client: Client, store_kit: StoreKit) -> Client:
        has_it = client.store.capabilities.has_events
        assert has_it is store_kit.capabilities.has_events is isinstance(client.store, EventStore)
        if not has_it:
            pytest.skip("it declares that no wait can be for an event")
        return client

    def test_an_event_settles_the_waits_whose_fields_it_has(self, events: Client) -> None:
        client = events
        halt_for(client, "a", "paid", {"order": "A1"})
        halt_for(client, "b", "paid", {"order": "B2"})
        halt_for(client, "c", "paid", {"order": "A1", "amount": 12})
        halt_for(client, "d", "paid", {"order": "A1", "amount": 13})
        halt_for(client, "e", "paid", {})
        halt_for(client, "f", "sent", {"order": "A1"})
        assert publish(client, "paid", {"order": "A1", "amount": 12.0, "more": [1]}) == 3
        assert {name: client.wait(f"wait of {name}").status.value for name in "abcdef"} == {
            **dict.fromkeys("ace", "settled"),
            **dict.fromkeys("bdf", "open"),
        }
        assert client.wait("wait of a").answer == b"paid"
        assert sorted(client.due()) == ["a", "c", "e"]
        assert publish(client, "paid", {}) == 0, "nothing waits for that any more"

    @pytest.mark.parametrize("value", VALUES)
    def test_only_an_equal_value_of_the_same_kind_matches(self, events: Client, value: Any) -> None:
        client = events
        halt_for(client, "run", "happened", {"key": value})
        for other in VALUES:
            if type(other) is not type(value) or other != value:
                assert publish(client, "happened", {"key": other}) == 0, other
        assert publish(client, "happened", {"key": value}) == 1

    def test_ugly_names_of_events_and_fields_are_kept_apart(self, events: Client) -> None:
        client = events
        halt_for(client, "run", UGLY, {UGLY: UGLY})
        halt_for(client, "other", UGLY + "2", {UGLY: UGLY})
        assert publish(client, UGLY, {UGLY: UGLY}, keep=60, event_id=UGLY) == 1
        assert client.wait("wait of other").status is WaitStatus.OPEN
        halt_for(client, "late", UGLY, {UGLY: UGLY})
        assert client.wait("wait of late").status is WaitStatus.SETTLED

    def test_a_wait_that_opens_later_finds_an_event_as_long_as_it_is_kept(self, events: Client) -> None:
        client = events
        assert publish(client, "paid", {"order": "A1"}) == 0
        assert publish(client, "paid", {"order": "A1", "n": 1}, keep=60, event_id="first") == 0
        assert publish(client, "paid", {"order": "A1", "n": 2}, keep=60, event_id="second") == 0
        halt_for(client, "a", "paid", {"order": "A1"})
        halt_for(client, "b", "paid", {"order": "A1", "n": 2})
        halt_for(client, "c", "paid", {})
        halt_for(client, "d", "paid", {"order": "B1"})
        found = [client.wait(f"wait of {name}").status.value for name in "abcd"]
        assert found == ["settled", "settled", "settled", "open"]
        assert sorted(client.due()) == ["a", "b", "c"]
        client.clock.advance(60)
        halt_for(client, "late", "paid", {"order": "A1"})
        assert client.wait("wait of late").status is WaitStatus.OPEN
        publish(client, "other", {}, keep=60)
        halt_for(client, "later", "paid", {"order": "A1"})
        assert client.wait("wait of later").status is WaitStatus.OPEN

    def test_an_event_that_is_no_longer_kept_can_be_kept_again(self, events: Client) -> None:
        client = events
        for _ in range(2):  # it is kept once, for as long as was said first
            publish(client, "paid", {"order": "A1"}, keep=60, event_id="one")
            publish(client, "paid", {"order": "B2"}, keep=60, event_id="other")
            client.clock.advance(30)
        publish(client, "paid", {"order": "A1"}, keep=60, event_id="one")
        halt_for(client, "a", "paid", {"order": "A1"})
        halt_for(client, "b", "paid", {"order": "B2"})
        assert (client.wait("wait of a").status, client.wait("wait of b").status) == ("settled", "open")

    def test_an_event_is_kept_again_though_many_others_are_over(self, events: Client) -> None:
        client = events
        for k in range(102):
            publish(client, "paid", {"order": "B2"}, keep=60 + k, event_id=f"other {k}")
        publish(client, "paid", {"order": "A1"}, keep=200, event_id="one")
        client.clock.advance(300)
        publish(client, "paid", {"order": "A1"}, keep=60, event_id="one")
        halt_for(client, "a", "paid", {"order": "A1"})
        assert client.wait("wait of a").status is WaitStatus.SETTLED

    def test_an_id_is_that_of_an_event_within_its_name(self, events: Client) -> None:
        client = events
        for name in ("paid", "sent", UGLY):
            publish(client, name, {"order": "A1"}, keep=60, event_id="A1", said=f"{name} is kept")
        for name in ("paid", "sent", UGLY):
            halt_for(client, f"run-{len(name)}-{name[0]}", name, {"order": "A1"})
            found = client.wait(f"wait of run-{len(name)}-{name[0]}")
            assert found.answer == f"{name} is kept".encode()

    def test_a_node_has_events_of_two_names_under_one_id(self, events: Client) -> None:
        client = events
        chain = halt_for(client, "run", "paid", {})
        assert publish(client, "paid", {}, keep=60, event_id="e") == 1
        sent, paid = (listening_for(chain, f"w-{name}", name, {}) for name in ("sent", "paid"))
        client.accept(chain, chain.following(waits=(sent, paid), closed=("wait of run",), pairs=True))
        assert publish(client, "sent", {}, event_id="e") == 1
        assert publish(client, "paid", {}, event_id="e") == 0
        assert (client.wait("w-sent").status, client.wait("w-paid").status) == ("settled", "open")

    def test_a_wait_may_go_by_many_fields_with_long_names(self, events: Client) -> None:
        client, fields = events, {f"field {k} ".ljust(60, "é"): k for k in range(30)}
        halt_for(client, "run", "paid", fields)
        assert publish(client, "paid", fields | {next(iter(fields)): 1}) == 0
        assert publish(client, "paid", fields) == 1

    def test_a_node_of_a_run_has_an_event_once(self, events: Client) -> None:
        client = events
        chain = halt_for(client, "run", "paid", {"order": "A1"})
        assert publish(client, "paid", {"order": "A1"}, keep=60, event_id="e") == 1
        assert publish(client, "paid", {"order": "A1"}, keep=60, event_id="e") == 0
        again = listening_for(chain, "again", "paid", {"order": "A1"})
        other = listening_for(chain, "other", "paid", {"order": "A1"}, path="elsewhere")
        client.accept(chain, chain.following(waits=(again, other), closed=("wait of run",), pairs=True))
        assert (client.wait("again").status, client.wait("other").status) == ("open", "settled")
        assert publish(client, "paid", {"order": "A1"}, keep=60, event_id="e") == 0
        assert publish(client, "paid", {"order": "A1"}, event_id="f") == 1
        assert client.wait("again").status is WaitStatus.SETTLED

    def test_a_fork_has_none_of_the_events_again_that_it_is_said_to_have_had(self, events: Client) -> None:
        client = events
        parent = halt_for(client, "run", "paid", {})
        assert publish(client, "paid", {}, keep=60, event_id=UGLY) == 1
        base = client.get("run")[0]
        had = (HadEvent("ask", "paid", UGLY), HadEvent(UGLY, "paid", "e"))
        about: dict[str, Any] = {"parent_run_id": "run", "forked_at": base.sequence}
        fork = client.admit("fork", base=base.checkpoint_id, had=had, **about)
        assert client.call(client.store.had_events("fork")) == sorted(had)  # type: ignore[attr-defined]
        waits = (
            listening_for(fork, "of the node", "paid", {}),
            listening_for(fork, "of another", "paid", {}, path="else"),
        )
        client.accept(fork, fork.following(waits=waits, pairs=True))
        assert [client.wait(w.wait_id).status.value for w in waits] == ["open", "settled"]
        assert parent.run_id == "run" and publish(client, "paid", {}, keep=60, event_id="f") == 1
        assert client.wait("of the node").answer == b"paid"

    def test_an_event_comes_too_late_for_a_wait_that_is_due_closed_or_gone(self, events: Client) -> None:
        client = events
        soon = client.clock.now() + timedelta(seconds=5)
        chain = client.admit("due")
        wait = listening_for(chain, "wait of due", "paid", {}, due_at=soon)
        client.accept(chain, chain.following(status=Status.HALTED, waits=(wait,), pairs=True))
        closed = halt_for(client, "closed", "paid", {})
        client.accept(closed, closed.following(closed=("wait of closed",), pairs=True))
        ended = halt_for(client, "ended", "paid", {})
        client.accept(ended, ended.final(Status.CANCELLED))
        if isinstance(client.store, RetainingStore):
            gone = halt_for(client, "gone", "paid", {})
            client.accept(gone, gone.final(Status.FAILED))
            client.call(client.store.erase("gone", head=3, reason="test"))
        client.clock.advance(5)
        assert publish(client, "paid", {}) == 0

    def test_one_event_settles_a_thousand_waits_in_a_moment(self, events: Client) -> None:
        client = events
        many = client.crowd(1000)
        chains = [Chain(f"run-{n}", client.clock) for n in range(many)]
        for first in range(0, many, 100):
            waits = {c.run_id: listening_for(c, f"w-{c.run_id}", "paid", {"order": 1}) for c in chains}
            about: dict[str, Any] = {"status": Status.HALTED, "pairs": True}
            part = chains[first : first + 100]
            client.put(*(chain.admission(waits=(waits[chain.run_id],), **about) for chain in part))
        began = time.monotonic()
        assert publish(client, "paid", {"order": 1}) == many
        took = time.monotonic() - began
        is_quick = many == 1000 and not client.store.capabilities.remote
        assert took < MOMENT or not is_quick, took
        assert client.wait(f"w-run-{many - 1}").status is WaitStatus.SETTLED

    @for_many_writers
    def test_whichever_comes_first_the_two_meet(self, events: Client, clients: Callable[[], Client]) -> None:
        chance, other = random.Random(7), clients()
        for number in range(20):
            acts: list[Callable[[], object]] = [
                partial(halt_for, events, f"r{number}", "paid", {"order": number}),
                partial(publish, other, "paid", {"order": number}, keep=60),
            ]
            chance.shuffle(acts)
            for act in acts:
                act()
            assert events.wait(f"wait of r{number}").status is WaitStatus.SETTLED

    @for_many_writers
    @pytest.mark.parametrize("seed", range(100 if _IS_SOAK else 3))
    def test_random_schedules_bring_events_to_all_waits_that_are_for_them_and_to_none_twice(
        self, events: Client, clients: Callable[[], Client], seed: int
    ) -> None:
        _EventSchedule(random.Random(seed), [events, clients()]).play(60)


class _EventSchedule:
    """Two runs that wait at some nodes for events by key, and publishers beside them who may die midway."""

    def __init__(self, chance: random.Random, clients: list[Client]) -> None:
        self.chance, self.clients = chance, clients
        self.chains = [clients[0].admit(run_id) for run_id in ("one", "two")]
        self.count = 0
        self.open: dict[str, tuple[Chain, str, int]] = {}
        """Waits that nothing has settled: their run, node and key."""
        self.settled: dict[str, str] = {}
        """Waits that are settled and not closed, each with its event."""
        self.keys: dict[str, int] = {}
        """All events, with their keys."""
        self.kept: dict[str, datetime] = {}
        """Those that are kept, until when."""
        self.unlooked: set[str] = set()
        """Those that are kept, and whose publisher died before it looked for waits."""
        self.had: set[tuple[str, str, str]] = set()
        """Which node of which run had which event."""

    def play(self, steps: int) -> None:
        acts = [self.open_one, self.open_one, self.publish, self.publish, self.repeat, self.die, self.close]
        for _ in range(steps):
            self.chance.choice([*acts, self.pass_time])()
            self.compare()

    def open_one(self) -> None:
        """Open a wait at a node that has none, and find an event that is kept for it, if there is one."""
        self.count += 1
        chain, node, key = (
            self.chance.choice(self.chains),
            self.chance.choice("ab"),
            self.chance.choice([1, 2]),
        )
        if any(at[:2] == (chain, node) for at in self.open.values()):
            return
        wait_id, now = f"wait-{self.count}", chain.clock.now()
        wait = listening_for(chain, wait_id, "paid", {"key": key}, path=node)
        self.clients[0].accept(chain, chain.following(waits=(wait,), pairs=True))
        there = [one for one, until in self.kept.items() if until > now and self.keys[one] == key]
        new = [one for one in there if (chain.run_id, node, one) not in self.had]
        self.open[wait_id] = chain, node, key
        if new:
            found = self.clients[1].wait(wait_id)
            assert found.answer is not None and found.answer.decode() in new, (wait_id, new)
            self.give(wait_id, found.answer.decode())

    def give(self, wait_id: str, event_id: str) -> None:
        chain, node, _ = self.open.pop(wait_id)
        self.had.add((chain.run_id, node, event_id))
        self.settled[wait_id] = event_id

    def publish(self) -> None:
        self.count += 1
        event_id = f"event-{self.count}"
        self.keys[event_id] = self.chance.choice([1, 2])
        self._publish(event_id, keep=self.chance.choice([0, 60]))

    def repeat(self) -> None:
        """Publish an event again, as who is not sure that it was."""
        if self.keys:
            self._publish(self.chance.choice([*self.keys]), keep=self.chance.choice([0, 60]))

    def _publish(self, event_id: str, keep: float) -> None:
        expected = self._waiting_for(event_id)
        given = {"key": self.keys[event_id]}
        client = self.chance.choice(self.clients)
        assert publish(client, "paid", given, keep=keep, event_id=event_id, said=event_id) == len(expected)
        for wait_id in expected:
            self.give(wait_id, event_id)
        self._keep(event_id, keep)
        self.unlooked.discard(event_id)

    def _waiting_for(self, event_id: str) -> list[str]:
        return [
            wait_id
            for wait_id, (chain, node, key) in self.open.items()
            if key == self.keys[event_id] and (chain.run_id, node, event_id) not in self.had
        ]

    def _keep(self, event_id: str, keep: float) -> None:
        now = self.clients[0].clock.now()
        if keep and self.kept.get(event_id, now) <= now:
            self.kept[event_id] = now + timedelta(seconds=keep)

    def die(self) -> None:
        """Keep an event, and look for no wait: those that are open have it at the latest when it is published
        again.
        """
        self.count += 1
        event_id, keep = f"event-{self.count}", self.chance.choice([0, 60])
        self.keys[event_id] = self.chance.choice([1, 2])
        client = self.chance.choice(self.clients)
        assert isinstance(client.store, EventStore)
        event = event_of(client, "paid", {"key": self.keys[event_id]}, keep, event_id, event_id)
        client.call(client.store.keep_event(event))
        self._keep(event_id, keep)
        if keep:
            self.unlooked.add(event_id)

    def close(self) -> None:
        """Go on with a wait, settled or not."""
        there = [*self.settled, *self.open]
        if there:
            wait_id = self.chance.choice(there)
            run_id = self.clients[0].wait(wait_id).run_id
            chain = next(chain for chain in self.chains if chain.run_id == run_id)
            self.clients[0].accept(chain, chain.following(closed=(wait_id,), pairs=True))
            self.settled.pop(wait_id, None)
            self.open.pop(wait_id, None)

    def pass_time(self) -> None:
        self.clients[0].clock.advance(25)

    def compare(self) -> None:
        for wait_id in [*self.open]:
            answer = self.clients[1].wait(wait_id).answer
            for event_id in self.unlooked:
                if answer == event_id.encode() and wait_id in self._waiting_for(event_id):
                    self.give(wait_id, event_id)
                    break
            else:
                assert answer is None, (wait_id, answer)
        for wait_id, event_id in self.settled.items():
            assert self.clients[1].wait(wait_id).answer == event_id.encode(), (wait_id, event_id)


def halt_for(client: Client, run_id: str, name: str, match: dict[str, Any]) -> Chain:
    """Admit a run that halts for an event of a name with some fields."""
    chain = client.admit(run_id)
    wait = listening_for(chain, f"wait of {run_id}", name, match)
    client.accept(chain, chain.following(status=Status.HALTED, waits=(wait,), pairs=True))
    return chain


def listening_for(chain: Chain, wait_id: str, name: str, match: dict[str, Any], **changes: Any) -> WaitRow:
    return chain.wait(wait_id, kind="event", topic=wanted_by(name, match).topic, **changes)


def event_of(
    client: Client, name: str, value: dict[str, Any], keep: float, event_id: str, said: str
) -> EventRow:
    now = client.clock.now()
    return EventRow(
        event_id=event_id,
        name=name,
        value=said.encode("utf-8"),
        fields=fields_of(value),
        published_at=now,
        expires_at=now + timedelta(seconds=keep) if keep else None,
    )


def publish(
    client: Client,
    name: str,
    value: dict[str, Any],
    *,
    keep: float = 0,
    event_id: str | None = None,
    said: str | None = None,
) -> int:
    """Publish an event as a host does, and return how many waits it settled."""
    assert isinstance(client.store, EventStore)
    event = event_of(client, name, value, keep, event_id or f"{name}-{random.random()}", said or name)
    topics = event.topics(client.call(client.store.keep_event(event)))
    settled = 0
    while topics and (some := client.call(client.store.settle_event(event, topics))):
        settled += some
    return settled
