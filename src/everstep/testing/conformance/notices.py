"""Notices of runs: written by the act that they tell of, taken by one at a time, gone with their run."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, cast

import pytest

from everstep.engine.notices.rows import is_same_try
from everstep.engine.notices.sending import after_failure, after_sending, asked_again
from everstep.model.commits import NoticeRow, NoticeState, StopRequest, Told, Verdict
from everstep.model.enums import Status
from everstep.model.removal import Erasure
from everstep.ports.notices import NoticeFilter, NoticeStore
from everstep.ports.retention import RetainingStore
from everstep.testing.conformance.kit import Chain, Client, StoreKit, Suite, fork_of

TOLD: Told = {
    "abandoned": ("ops",),
    "budget": ("ops", "boss"),
    "cancelled": ("boss",),
    "failed": ("ops", "boss"),
    "halted": ("désk",),
    "needs_repair": ("ops",),
}
HOLD = timedelta(seconds=60)
ALL = ("ops", "boss", "désk")


class Notices(Suite):
    """Only for stores that declare `has_notices`; any other must not have the methods either."""

    @pytest.fixture
    def telling(self, client: Client, store_kit: StoreKit) -> Client:
        has_it = client.store.capabilities.has_notices
        assert has_it is store_kit.capabilities.has_notices is isinstance(client.store, NoticeStore)
        if not has_it:
            pytest.skip("it declares that none is told of its runs")
        return client

    @pytest.fixture
    def another(self, clients: Callable[[], Client]) -> Client:
        return clients()

    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (Status.FAILED, ["ops", "boss"]),
            (Status.CANCELLED, ["boss"]),
            (Status.ABANDONED, ["ops"]),
            (Status.HALTED, ["désk"]),
            (Status.COMPLETED, []),
        ],
    )
    def test_the_put_that_changes_a_status_writes_the_notices_of_it(
        self, telling: Client, status: Status, expected: list[str]
    ) -> None:
        client = telling
        chain = client.admit("run", told=TOLD)
        client.admit("quiet")
        client.extend(chain, [b"2", b"3"])
        assert listed(client) == []
        client.accept(chain, chain.final(status))
        found = listed(client, run_id="run")[::-1]
        assert [row.notifier for row in found] == expected
        assert listed(client, run_id="quiet") == []
        for row in found:
            about = (row.run_id, row.occasion, row.sequence, row.tries, row.state)
            assert about == ("run", status.value, 4, 0, NoticeState.PENDING)
        assert len({row.notice_id for row in found}) == len(found)

    def test_a_refused_put_writes_none_and_a_repeated_one_no_more(self, telling: Client) -> None:
        client = telling
        chain = client.admit("run", told=TOLD)
        more = (NoticeRow(occasion="budget"),)
        assert client.put(chain.final(Status.FAILED, epoch=9, tells=more)) == [Verdict.FENCED]
        assert client.put(chain.following(base="other", tells=more)) == [Verdict.MOVED]
        assert listed(client) == []
        last = client.accept(chain, chain.final(Status.FAILED))
        before = listed(client)
        assert client.put(last) == [Verdict.ACCEPTED]
        assert listed(client) == before
        assert len(before) == 2

    def test_the_same_status_again_is_told_of_once(self, telling: Client) -> None:
        """A keyframe that only makes room repeats the status of a run that has failed."""
        client = telling
        chain = client.admit("run", told=TOLD)
        client.accept(chain, chain.final(Status.FAILED))
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(keyframe=True, status=Status.FAILED, answers_stop=True))
        assert len(listed(client)) == 2
        client.accept(chain, chain.following(status=Status.RUNNING))
        client.accept(chain, chain.final(Status.FAILED))
        assert len({row.notice_id for row in listed(client)}) == len(listed(client)) == 4

    def test_an_owner_without_the_code_tells_of_a_cancelled_run_too(self, telling: Client) -> None:
        client = telling
        chain = client.admit("run", told=TOLD)
        client.release(chain.lease())
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.final(Status.CANCELLED))
        assert [(row.notifier, row.occasion) for row in listed(client)] == [("boss", "cancelled")]

    def test_a_put_brings_notices_of_other_things(self, telling: Client) -> None:
        client = telling
        chain = client.admit("run", told=TOLD)
        at = client.clock.now() + timedelta(hours=1)
        own = NoticeRow(notifier="désk", occasion="reminder", at=at, due_at=at, wait_id="w", every=5_000_000)
        tells = (NoticeRow(occasion="budget"), NoticeRow(occasion="undone"), own)
        client.accept(chain, chain.following(tells=tells))
        found = listed(client)[::-1]
        assert [(row.notifier, row.occasion) for row in found] == [
            ("ops", "budget"),
            ("boss", "budget"),
            ("désk", "reminder"),
        ]
        kept = found[-1]
        about = (kept.at, kept.due_at, kept.wait_id, kept.every, kept.round, kept.sequence)
        assert about == (at, at, "w", 5_000_000, 0, 2)
        assert [row.notifier for row in take(client)] == ["ops", "boss"]

    def test_an_admission_brings_notices(self, telling: Client) -> None:
        client = telling
        chain = Chain("run", client.clock, told=TOLD)
        at = client.clock.now() + timedelta(hours=2)
        late = NoticeRow(notifier="ops", occasion="overdue", at=at, due_at=at)
        client.accept(chain, chain.admission(tells=(late,)))
        assert [(row.occasion, row.due_at) for row in listed(client)] == [("overdue", at)]
        assert take(client) == []
        client.clock.advance(timedelta(hours=3))
        assert [row.occasion for row in take(client)] == ["overdue"]

    def test_a_run_that_has_ended_is_not_overdue(self, telling: Client) -> None:
        client = telling
        at = client.clock.now() + timedelta(hours=2)
        told: Told = {"overdue": ("ops",), "failed": ("ops",)}
        for run_id in ("run", "late"):
            chain = Chain(run_id, client.clock, told=told)
            late = NoticeRow(notifier="ops", occasion="overdue", at=at, due_at=at)
            client.accept(chain, chain.admission(tells=(late,)))
            client.halt(chain)
            client.accept(chain, chain.following(status=Status.RUNNING, epoch=chain.epoch))
            if run_id == "run":
                client.accept(chain, chain.final(Status.FAILED))
        there = {(row.run_id, row.occasion) for row in listed(client)}
        assert there == {("run", "failed"), ("late", "overdue")}
        client.clock.advance(timedelta(hours=3))
        found = {(row.run_id, row.occasion) for row in take(client)}
        assert found == {("run", "failed"), ("late", "overdue")}

    def test_a_damaged_run_is_told_of_as_it_is_set_aside(self, telling: Client) -> None:
        client = telling
        for run_id, told in (("run", TOLD), ("quiet", None)):
            chain = client.admit(run_id, told=told)
            aside = store_of(client).set_aside
            assert client.call(aside(run_id, epoch=chain.epoch, reason="odd", occasion="needs_repair"))
            assert not client.call(aside(run_id, epoch=9, reason="odd", occasion="needs_repair"))
        assert [(row.run_id, row.notifier, row.occasion) for row in listed(client)] == [
            ("run", "ops", "needs_repair")
        ]

    def test_a_fork_is_told_of_as_its_parent_is(self, telling: Client) -> None:
        client = telling
        parent = client.admit("run", told=TOLD)
        assert parent.head is not None
        fork = fork_of(parent.head, "fork", client.clock)
        client.accept(fork, fork.admission())
        fork.epoch = client.claim("fork").epoch
        client.accept(fork, fork.final(Status.FAILED))
        assert {row.notifier for row in listed(client, run_id="fork")} == {"ops", "boss"}
        assert listed(client, run_id="run") == []

    # -- sending ----------------------------------------------------------------------------------------

    def test_who_takes_a_notice_has_it_until_the_hold_is_over(self, telling: Client, another: Client) -> None:
        client = telling
        failed(client, "run")
        [mine] = take(client, ["ops"])
        assert (mine.notifier, mine.tries) == ("ops", 1)
        assert take(another, ["ops"]) == []
        assert [row.notifier for row in take(another, ["boss"])] == ["boss"]
        client.clock.advance(HOLD + timedelta(seconds=1))
        [again] = take(another, ["ops"])
        assert (again.notice_id, again.tries) == (mine.notice_id, 2)
        assert not change(client, mine, after_sending(mine, client.clock.now()))
        assert change(another, again, after_sending(again, client.clock.now()))
        client.clock.advance(HOLD * 10)
        assert take(client, ["ops"]) == []

    def test_only_those_are_taken_that_one_can_send(self, telling: Client) -> None:
        client = telling
        failed(client, "a")
        failed(client, "b")
        assert take(client, ["unknown"]) == take(client, []) == []
        assert [row.run_id for row in take(client, ["boss"], run_id="b")] == ["b"]
        assert len(take(client, ALL, limit=2)) == 2
        assert len(take(client, ALL, limit=9)) == 1

    def test_what_failed_is_due_later_and_at_last_a_dead_letter(self, telling: Client) -> None:
        client = telling
        failed(client, "run", {"failed": ("ops",)})
        tries = 0
        while found := take(client):
            [row] = found
            tries += 1
            assert row.tries == tries
            later = after_failure(row, "no 'one' is \"there\" ☎", client.clock.now())
            assert change(client, row, later)
            assert not take(client)
            client.clock.advance(timedelta(days=1))
        assert tries == 12
        [dead] = listed(client, state=NoticeState.DEAD)
        assert dead.error == "no 'one' is \"there\" ☎"
        assert listed(client, state=NoticeState.PENDING) == listed(client, state=NoticeState.SENT) == []
        assert change(client, dead, asked_again(dead, client.clock.now()))
        assert not change(client, dead, asked_again(dead, client.clock.now())) or listed(client)
        [row] = take(client)
        assert (row.notice_id, row.tries) == (dead.notice_id, 1)
        assert change(client, row, after_sending(row, client.clock.now()))
        [sent] = listed(client, state=NoticeState.SENT)
        assert (sent.notice_id, sent.error, sent.sent_at) == (dead.notice_id, "", client.clock.now())

    def test_a_notice_can_be_removed(self, telling: Client) -> None:
        client = telling
        failed(client, "run", {"failed": ("ops",)})
        [row] = take(client)
        assert change(client, row, None)
        assert not change(client, row, None)
        assert listed(client) == []
        chain = Chain("next", client.clock, told={"failed": ("ops",)})
        client.accept(chain, chain.admission())
        client.accept(chain, chain.final(Status.FAILED))
        assert listed(client)[0].notice_id != row.notice_id

    def test_no_notice_of_a_run_ever_has_the_id_of_one_that_was_removed(self, telling: Client) -> None:
        client = telling
        chain = client.admit("run", told={"budget": ("ops",)})
        seen: set[str] = set()
        for _ in range(3):
            client.accept(chain, chain.following(tells=(NoticeRow(occasion="budget"),)))
            [row] = take(client)
            assert row.notice_id not in seen
            seen.add(row.notice_id)
            assert change(client, row, None)

    def test_with_its_run_a_notice_is_gone(self, telling: Client) -> None:
        client = telling
        if not client.store.capabilities.retains:
            pytest.skip("it declares that it removes no runs")
        failed(client, "run")
        failed(client, "other")
        [held, _] = take(client, run_id="run")
        store = cast("RetainingStore", client.store)
        assert client.call(store.erase("run", head=2, reason="asked")) is Erasure.ERASED
        assert {row.run_id for row in listed(client)} == {"other"}
        assert {row.run_id for row in take(client)} == {"other"}
        assert not change(client, held, after_sending(held, client.clock.now()))
        client.clock.advance(HOLD * 9)
        assert {row.run_id for row in take(client)} == {"other"}

    # -- listing ----------------------------------------------------------------------------------------

    def test_pages_cover_every_notice_once(self, telling: Client) -> None:
        client = telling
        for k in range(5):
            failed(client, f"run-{k}")
        everything = listed(client, limit=100)
        numbers = [row.number for row in everything]
        assert numbers == sorted(set(numbers), reverse=True)
        assert len(everything) == 10
        found: list[NoticeRow] = []
        while page := listed(client, limit=3, before=found[-1].number if found else None):
            found += page
        assert found == everything

    @pytest.mark.parametrize("seed", [1, 2])
    def test_notices_stand_as_the_rules_say(self, telling: Client, another: Client, seed: int) -> None:
        """Random takes, sendings, failures and requests, compared with the same made in Python."""
        client, chance = telling, random.Random(seed)
        model: dict[str, NoticeRow] = {}
        held: list[NoticeRow] = []
        for k in range(4):
            failed(client, f"run-{k}")
        model = {row.notice_id: row for row in listed(client)}
        for _ in range(60):
            who = chance.choice((client, another))
            act = chance.randrange(5)
            if act == 0:
                client.clock.advance(timedelta(seconds=chance.choice((1, 59, 61, 4000))))
            elif act == 1:
                names = chance.choice((["ops"], ["boss"], ALL))
                now, limit = client.clock.now(), chance.choice((1, 2, 50))
                due = {i for i, r in model.items() if r.due_at and r.due_at <= now and r.notifier in names}
                found = take(who, names, limit=limit)
                assert {row.notice_id for row in found} <= due
                assert len(found) == min(limit, len(due))
                for row in found:
                    was = model[row.notice_id]
                    assert (row.tries, row.due_at) == (was.tries + 1, now + HOLD)
                    model[row.notice_id] = row
                held += found
            elif held:
                row = held.pop(chance.randrange(len(held)))
                now, make = client.clock.now(), chance.choice((after_sending, asked_again, failing))
                expected = is_same_try(row, model[row.notice_id])
                assert change(who, row, make(row, now)) is expected
                if expected:
                    model[row.notice_id] = make(row, now)
        assert {row.notice_id: row for row in listed(client)} == model


def failing(row: NoticeRow, now: Any) -> NoticeRow:
    return after_failure(row, "down", now)


def failed(client: Client, run_id: str, told: Told | None = None) -> Chain:
    """Admit a run that fails."""
    chain = client.admit(run_id, told=told or TOLD)
    client.accept(chain, chain.final(Status.FAILED))
    return chain


def store_of(client: Client) -> NoticeStore:
    return cast("NoticeStore", client.store)


def listed(client: Client, **wanted: Any) -> list[NoticeRow]:
    return client.call(store_of(client).notices(NoticeFilter(**wanted)))


def take(
    client: Client, notifiers: Collection[str] = ALL, *, limit: int = 100, run_id: str | None = None
) -> list[NoticeRow]:
    work = store_of(client).take_notices(notifiers, hold=HOLD, limit=limit, run_id=run_id)
    return sorted(client.call(work), key=lambda row: row.number)


def change(client: Client, row: NoticeRow, to: NoticeRow | None) -> bool:
    return client.call(store_of(client).change_notice(row, to))
