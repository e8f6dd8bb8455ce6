"""The audit log: rows that are written with what they tell of, and outlive it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from everstep.model.acts import AuditOutcome, AuditRow, Known
from everstep.model.commits import Tag, Tagging
from everstep.model.enums import Status
from everstep.model.removal import Erasure
from everstep.model.waits import Sending, SettledBy, SignalRow, WaitChange
from everstep.ports.audit import AuditFilter, AuditStore
from everstep.ports.events import EventRow, EventStore, fields_of
from everstep.ports.inbox import InboxStore
from everstep.ports.labels import LabelStore
from everstep.ports.restoring import Restored, RestoringStore
from everstep.ports.retention import RetainingStore
from everstep.ports.store import RunRow, StopRequest, Verdict
from everstep.testing.conformance.forks import sealed
from everstep.testing.conformance.kit import Chain, Client, StoreKit, Suite
from everstep.testing.conformance.labels import labels_of
from everstep.testing.conformance.restoring import whole_run

WRITERS = 4
EACH = 10


class Audits(Suite):
    """Only for stores that declare `audits`; any other must not have the methods either."""

    @pytest.fixture
    def audits(self, client: Client, store_kit: StoreKit) -> Client:
        has_it = client.store.capabilities.audits
        assert has_it is store_kit.capabilities.audits is isinstance(client.store, AuditStore)
        if not has_it:
            pytest.skip("it declares that it keeps no audit log")
        return client

    def test_a_row_comes_back_as_it_was_with_a_number_and_a_time(self, audits: Client) -> None:
        client = audits
        ugly = "a'\"\\{}\u2028é🙂;:%~/"
        told = {"how": Known.AUTHENTICATED, "comment": "two\nlines", "code": "DAG-1"}
        row = entry(act="cancel", by=ugly, run_id=ugly, about=ugly, outcome=AuditOutcome.REFUSED, **told)
        assert rows_of(client) == []
        note(client, row)
        client.clock.advance(5)
        note(client, entry(run_id=None))
        first, second = rows_of(client)
        assert msgspec.structs.replace(first, number=0, at=None) == row
        assert first.at == client.clock.now() - timedelta(seconds=5) and second.at == client.clock.now()
        assert 0 < first.number < second.number and second.run_id is None

    def test_the_same_row_is_kept_once(self, audits: Client, clients: Callable[[], Client]) -> None:
        row = entry()
        for client in (audits, audits, clients()):
            note(client, row)
        assert len(rows_of(audits)) == 1

    def test_rows_are_found_by_run_name_act_and_time(self, audits: Client) -> None:
        client = audits
        for k in range(6):
            note(client, entry(act="ab"[k % 2], by="xyz"[k % 3], run_id=f"run-{k % 2}", about=str(k)))
            client.clock.advance(10)
        now = client.clock.now()
        assert about(client) == list("012345")
        assert about(client, run_id="run-1") == ["1", "3", "5"] and about(client, run_id="run") == []
        assert about(client, act="a", by="x") == ["0"] and about(client, by="z") == ["2", "5"]
        assert about(client, since=now - timedelta(seconds=30)) == ["3", "4", "5"]
        assert about(client, until=now - timedelta(seconds=30)) == ["0", "1", "2"]
        assert about(client, run_id="run-0", since=now - timedelta(seconds=40)) == ["2", "4"]

    def test_a_listing_has_the_newest_rows_or_goes_on_behind_a_number(self, audits: Client) -> None:
        client = audits
        for k in range(7):
            note(client, entry(run_id="run" if k % 2 else None, about=str(k)))
        assert about(client, limit=2) == ["5", "6"]
        assert about(client, limit=2, run_id="run") == ["3", "5"]
        read, after = [], 0
        while page := rows_of(client, limit=3, after=after):
            read += [row.about for row in page]
            after = page[-1].number
        assert read == list("0123456")
        assert about(client, run_id="run", after=0, limit=2) == ["1", "3"]

    def test_old_rows_are_removed_and_numbers_still_grow(self, audits: Client) -> None:
        client = audits
        for k in range(5):
            note(client, entry(about=str(k)))
            client.clock.advance(10)
        newest = rows_of(client)[-1].number
        before = client.clock.now() - timedelta(seconds=25)
        assert forget(client, before=before, limit=2) == 2
        assert about(client) == about(client, run_id="run") == ["2", "3", "4"]
        assert forget(client, before=before) == 1 and forget(client, before=before) == 0
        assert forget(client, before=client.clock.now()) == 2 and rows_of(client) == []
        note(client, entry())
        assert rows_of(client)[0].number > newest

    def test_many_writers_at_once_get_a_number_each(
        self, audits: Client, clients: Callable[[], Client]
    ) -> None:
        def write(client: Client) -> None:
            for _ in range(EACH):
                note(client, entry())

        threads = [threading.Thread(target=write, args=(clients(),)) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers = [row.number for row in rows_of(audits, limit=1000)]
        assert len(set(numbers)) == WRITERS * EACH and numbers == sorted(numbers)

    # -- with what they tell of ---------------------------------------------------------------------------

    def test_a_put_brings_its_row_if_it_is_accepted(self, audits: Client) -> None:
        client = audits
        chain = admitted(client, "admission")
        client.accept(chain, chain.following(audit=entry(about="step")))
        assert about(client, run_id="run") == ["admission", "step"]
        stale = chain.following(epoch=7, audit=entry(about="stale"))
        assert client.put(stale) == [Verdict.FENCED]
        again = chain.head
        assert again is not None and client.put(again) == [Verdict.ACCEPTED]
        assert about(client) == ["admission", "step"]

    def test_rows_come_with_a_group_of_commits(self, audits: Client) -> None:
        client = audits
        chains = [client.admit(f"run-{k}") for k in range(3)]
        puts = [chain.following(audit=entry(run_id=chain.run_id)) for chain in chains]
        assert client.put(*puts) == [Verdict.ACCEPTED] * 3
        assert sorted(row.run_id or "" for row in rows_of(client)) == ["run-0", "run-1", "run-2"]

    def test_a_stop_request_brings_its_row_unless_the_run_has_ended(self, audits: Client) -> None:
        client = audits
        chain = client.admit("run")

        def stop(what: str) -> bool:
            ask = client.store.request_stop("run", StopRequest.CANCEL, b"note", audit=entry(about=what))
            return client.call(ask)

        assert stop("first")
        client.accept(chain, chain.final(Status.CANCELLED, answers_stop=True))
        assert not stop("late")
        assert about(client) == ["first"]

    def test_an_answer_brings_its_row_if_it_counts(self, audits: Client) -> None:
        client = audits
        client.halted("run", "w")
        client.halted("late", "v", due_in=10)

        def settle(wait_id: str, what: str) -> bool:
            row = entry(about=what, run_id="run" if wait_id == "w" else "late")
            ask = client.store.settle(wait_id, by=SettledBy.ANSWER, answer=b"1", audit=row)
            return client.call(ask)[0]

        assert [settle("w", "first"), settle("w", "second")] == [True, False]
        client.clock.advance(20)
        assert not settle("v", "too late")
        assert about(client) == ["first"]

    def test_a_change_of_a_wait_brings_its_row_while_that_is_open(self, audits: Client) -> None:
        client = audits
        client.halted("run", "w")
        for what in ("open", "settled"):
            change = WaitChange(token_hash=None)
            client.call(client.store.change_wait("w", change, audit=entry(about=what)))
            client.settle("w")
        assert about(client) == ["open"]

    def test_a_change_that_another_was_before_brings_no_row(self, audits: Client) -> None:
        client = audits
        if not client.store.capabilities.compares:
            pytest.skip("it declares that it counts no votes")
        client.halted("run", "w")
        client.change("w", details=b"0")
        for what, was in (("first", b"0"), ("late", b"0")):
            change = WaitChange(details=what.encode())
            client.call(client.store.change_wait("w", change, was=was, audit=entry(about=what)))
        given: dict[str, Any] = {"by": SettledBy.ANSWER, "answer": b"1"}
        client.call(client.store.settle("w", was=b"0", audit=entry(about="too late"), **given))
        client.call(client.store.settle("w", was=b"first", audit=entry(about="last"), **given))
        assert about(client) == ["first", "last"]

    def test_taking_a_result_brings_its_row(self, audits: Client) -> None:
        client = audits
        chain = client.admit("run")
        client.accept(chain, chain.final())
        client.call(client.store.ack("run", audit=entry(about="ack")))
        assert about(client) == ["ack"] and client.row("run").acked_at is not None

    def test_a_signal_brings_its_row_once(self, audits: Client) -> None:
        client = audits
        if not client.store.capabilities.has_inbox:
            pytest.skip("it declares that nothing can be sent to its runs")
        client.admit("run")
        store = cast("InboxStore", client.store)
        signal = SignalRow(signal_id="id", name="a", value=b"1", sent_at=client.clock.now())
        sent = [client.call(store.send("run", signal, audit=entry(about=what))) for what in "12"]
        assert sent == [Sending.SENT, Sending.SAME] and about(client) == ["1"]

    def test_an_event_brings_its_row(self, audits: Client) -> None:
        client = audits
        if not client.store.capabilities.has_events:
            pytest.skip("it declares that it has no events")
        store, now = cast("EventStore", client.store), client.clock.now()
        event = EventRow(
            event_id="e",
            name="paid",
            value=b"{}",
            fields=fields_of({"order": 7}),
            published_at=now,
            expires_at=now + timedelta(days=1),
        )
        client.call(store.keep_event(event, audit=entry(act="publish", about="kept", run_id=None)))
        client.call(store.settle_event(event, ["event:1:a:[]:"], audit=entry(about="brought", run_id=None)))
        assert about(client) == ["kept", "brought"]

    def test_a_pin_brings_its_row_if_the_run_is_there(self, audits: Client) -> None:
        client = audits
        if not client.store.capabilities.retains:
            pytest.skip("it declares that it does not retain")
        client.admit("run")
        store = cast("RetainingStore", client.store)
        assert client.call(store.pin("run", "kept", audit=entry(about="pin")))
        assert client.call(store.pin("run", "kept", audit=entry(about="again")))
        assert not client.call(store.pin("other", "kept", audit=entry(run_id="other")))
        assert about(client) == ["pin", "again"]

    def test_a_tag_brings_its_row_if_it_is_given(self, audits: Client) -> None:
        client = audits
        if not client.store.capabilities.has_labels:
            pytest.skip("it declares that its runs have no labels")
        client.admit("run")
        store = cast("LabelStore", client.store)

        def tag(run_id: str, what: str, *names: str) -> Tagging:
            row, add = entry(about=what, run_id=run_id), [Tag(name) for name in names]
            return client.call(store.tag(run_id, add=add, remove=["gone"], most=2, audit=row))

        assert tag("run", "first", "a", "b") is tag("run", "same", "a") is Tagging.TAGGED
        assert tag("run", "full", "c") is Tagging.FULL
        assert tag("other", "unknown", "a") is Tagging.UNKNOWN_RUN
        assert about(client) == ["first", "same"]

    def test_what_is_asked_for_twice_brings_its_row_once(self, audits: Client) -> None:
        client = audits
        client.admit("run")
        able = client.store.capabilities
        stop = client.store.request_stop
        asked: list[Any] = [partial(stop, "run", StopRequest.CANCEL, b"n", audit=entry(about="stop"))]
        if able.retains:
            pin = cast("RetainingStore", client.store).pin
            asked.append(partial(pin, "run", "why", audit=entry(about="pin")))
        if able.has_labels:
            tag = cast("LabelStore", client.store).tag
            asked.append(partial(tag, "run", add=[Tag("a")], audit=entry(about="tag")))
        for ask in asked:
            assert client.call(ask()) == client.call(ask())
        assert about(client) == [ask.keywords["audit"].about for ask in asked]

    def test_rows_of_a_run_are_still_there_when_it_was_erased(
        self, audits: Client, clients: Callable[[], Client]
    ) -> None:
        client = audits
        if not client.store.capabilities.retains:
            pytest.skip("it declares that it does not retain")
        chain = admitted(client, "admission")
        client.accept(chain, chain.final(audit=entry(about="end")))
        before = rows_of(client)
        store = cast("RetainingStore", client.store)
        refused = store.erase("run", head=1, reason="r", audit=entry(about="refused"))
        assert client.call(refused) is Erasure.MOVED
        assert (
            client.call(store.erase("run", head=2, reason="r", audit=entry(about="erased"))) is Erasure.ERASED
        )
        for one in (client, clients()):
            found = rows_of(one)
            assert found[:-1] == before and found[-1].about == "erased"
            assert rows_of(one, run_id="run") == found
        assert client.call(store.forget(["run"])) == 1
        chain = admitted(client, "another")
        client.accept(chain, chain.final())
        assert client.call(store.erase("run", head=2, reason="r")) is Erasure.ERASED
        assert about(client, run_id="run") == ["admission", "end", "erased", "another"]
        assert forget(client, before=client.clock.now() + timedelta(seconds=1)) == 4

    def test_a_trimmed_run_keeps_its_rows(self, audits: Client) -> None:
        client = audits
        chain = Chain("run", client.clock)
        client.accept(chain, chain.admission(sealed(1)[0], audit=entry(about="admission")))
        client.accept(chain, chain.following(sealed(2)[0], keyframe=True, audit=entry(about="step")))
        client.call(client.store.trim("run", before=2))
        assert about(client) == ["admission", "step"]

    def test_a_run_from_another_store_brings_its_row_once(self, audits: Client) -> None:
        client = audits
        if not client.store.capabilities.restores:
            pytest.skip("it declares that it does not restore")
        run = msgspec.structs.replace(whole_run("run", client.clock), audit=entry(act="copy", about="here"))
        store = cast("RestoringStore", client.store)
        assert client.call(store.restore(run)) is Restored.RESTORED
        again = msgspec.structs.replace(run, audit=entry(act="copy", about="again"))
        assert client.call(store.restore(again)) is Restored.SAME
        assert about(client, run_id="run") == ["here"]


_count = iter(range(10**9))


def entry(**said: Any) -> AuditRow:
    """Return a row as a host makes it."""
    fields: dict[str, Any] = {"audit_id": f"row-{next(_count)}", "act": "act", "by": "ada", "run_id": "run"}
    return AuditRow(**(fields | said))


def admitted(client: Client, what: str) -> Chain:
    """Admit a run by a named act."""
    chain = Chain("run", client.clock)
    client.accept(chain, chain.admission(audit=entry(about=what)))
    return chain


def note(client: Client, row: AuditRow) -> None:
    client.call(cast("AuditStore", client.store).note_audit(row))


def rows_of(client: Client, **wanted: Any) -> list[AuditRow]:
    return client.call(cast("AuditStore", client.store).audit(AuditFilter(**wanted)))


def about(client: Client, **wanted: Any) -> list[str]:
    return [row.about for row in rows_of(client, **wanted)]


def forget(client: Client, **how: Any) -> int:
    return client.call(cast("AuditStore", client.store).forget_audit(**how))


class Heads(Suite):
    """What is done to a run only while it is at a checkpoint; for stores that declare `takes_head`."""

    @pytest.fixture
    def heads(self, client: Client, store_kit: StoreKit) -> Client:
        assert client.store.capabilities.takes_head is store_kit.capabilities.takes_head
        if not client.store.capabilities.takes_head:
            pytest.skip("it declares that it takes no head")
        return client

    def test_a_run_that_has_gone_on_is_not_asked_to_stop(self, heads: Client) -> None:
        client = heads
        chain = client.admit("run")
        client.accept(chain, chain.following())

        def stop(run_id: str, head: int) -> bool:
            audit = told_of(client, f"stop-{run_id}-{head}", run_id)
            ask = client.store.request_stop(run_id, StopRequest.CANCEL, b"note", head=head, **audit)
            return client.call(ask)

        assert not stop("run", 1) and not stop("run", 3) and not stop("other", 1)
        assert client.row("run").stop_request is None and client.call(client.store.stop_note("run")) is None
        client.accept(chain, chain.following())  # no stop request stands in its way
        assert stop("run", 3)
        assert client.row("run").stop_request is StopRequest.CANCEL
        assert client.call(client.store.put([chain.following()])) == [Verdict.STOP_REQUESTED]
        assert audited(client) == ["stop-run-3"]

    def test_a_run_that_has_ended_is_not_asked_to_stop_at_its_head(self, heads: Client) -> None:
        client = heads
        chain = client.admit("run")
        client.accept(chain, chain.final())
        assert not client.call(client.store.request_stop("run", StopRequest.CANCEL, head=2))
        assert client.row("run").stop_request is None

    def test_a_run_that_has_gone_on_is_not_pinned(self, heads: Client) -> None:
        client = heads
        if not client.store.capabilities.retains:
            pytest.skip("it declares that it does not retain")
        chain = client.admit("run")
        client.accept(chain, chain.following())
        store = cast("RetainingStore", client.store)

        def pin(run_id: str, head: int, reason: str | None = "kept") -> bool:
            audit = told_of(client, f"pin-{run_id}-{head}", run_id)
            return client.call(store.pin(run_id, reason, head=head, **audit))

        assert not pin("run", 1) and not pin("run", 3) and not pin("other", 1)
        assert client.row("run").pinned is None
        assert pin("run", 2) and client.row("run").pinned == "kept"
        assert not pin("run", 1, None) and client.row("run").pinned == "kept"
        assert audited(client) == ["pin-run-2"]

    def test_a_run_that_has_gone_on_is_not_tagged(self, heads: Client) -> None:
        client = heads
        if not client.store.capabilities.has_labels:
            pytest.skip("it declares that its runs have no labels")
        chain = client.admit("run")
        client.accept(chain, chain.following())
        store = cast("LabelStore", client.store)

        def tag(run_id: str, head: int, most: int = 20) -> Tagging:
            audit = told_of(client, f"tag-{run_id}-{head}", run_id)
            add = [Tag("vip"), Tag("team", "blue")]
            return client.call(store.tag(run_id, add=add, remove=["old"], most=most, head=head, **audit))

        assert tag("run", 1) is tag("run", 3) is Tagging.MOVED
        assert tag("other", 1) is Tagging.UNKNOWN_RUN
        assert labels_of(client, "run").tags == ()
        assert tag("run", 2, most=1) is Tagging.FULL
        assert tag("run", 2) is Tagging.TAGGED
        assert labels_of(client, "run").tags == (Tag("team", "blue"), Tag("vip"))
        assert audited(client) == ["tag-run-2"]

    def test_another_client_sees_where_a_run_is_by_now(
        self, heads: Client, clients: Callable[[], Client]
    ) -> None:
        client, other = heads, clients()
        chain = client.admit("run")
        client.accept(chain, chain.following())
        assert not other.call(other.store.request_stop("run", StopRequest.CANCEL, head=1))
        client.accept(chain, chain.following())
        assert not other.call(other.store.request_stop("run", StopRequest.CANCEL, head=2))
        assert other.call(other.store.request_stop("run", StopRequest.CANCEL, head=3))

    @pytest.mark.parametrize("what", ["stop", "pin", "tag", "pause"])
    def test_what_is_to_be_done_once_is_not_done_when_its_row_is_there(
        self, what: str, heads: Client, clients: Callable[[], Client]
    ) -> None:
        client, other = heads, clients()
        act = once(client, what)
        client.admit("run")
        row = entry(about=what, run_id="run", once=True)
        note(other, msgspec.structs.replace(row, outcome=AuditOutcome.REFUSED))
        assert client.call(act.do(row)) == act.otherwise
        assert not act.is_done(client.row("run"), client)
        assert [(one.audit_id, one.outcome) for one in rows_of(client)] == [(row.audit_id, "refused")]

    @pytest.mark.parametrize("what", ["pin", "tag", "pause"])
    def test_what_was_done_once_and_undone_is_not_done_again(self, what: str, heads: Client) -> None:
        client = heads
        act = once(client, what)
        client.admit("run")
        row = entry(about=what, run_id="run", once=True)
        assert client.call(act.do(row)) != act.otherwise
        client.call(act.undo())
        assert client.call(act.do(row)) == act.otherwise
        note(client, msgspec.structs.replace(row, outcome=AuditOutcome.REFUSED))
        assert not act.is_done(client.row("run"), client)
        assert [(one.audit_id, one.outcome) for one in rows_of(client)] == [(row.audit_id, "done")]

    def test_a_commit_for_what_is_done_once_is_refused_when_its_row_is_there(
        self, heads: Client, clients: Callable[[], Client]
    ) -> None:
        client, other = heads, clients()
        if not client.store.capabilities.audits:
            pytest.skip("it declares that it keeps no audit log")
        chain = client.admit("run")
        first, second = (entry(about=what, run_id="run", once=True) for what in ("first", "second"))
        done = client.accept(chain, chain.following(audit=first))
        assert client.put(done) == [Verdict.ACCEPTED]  # its reply was lost
        assert client.put(chain.following(audit=first)) == [Verdict.FENCED]
        note(other, msgspec.structs.replace(second, outcome=AuditOutcome.REFUSED))
        assert client.put(chain.following(audit=second)) == [Verdict.FENCED]
        client.accept(chain, chain.following())
        assert client.row("run").checkpoints == 3
        assert [(one.about, one.outcome) for one in rows_of(client)] == [
            ("first", "done"),
            ("second", "refused"),
        ]

    def test_what_is_done_once_is_done_or_kept_from_it(
        self, heads: Client, clients: Callable[[], Client]
    ) -> None:
        client, other = heads, clients()
        act = once(client, "tag")
        for k in range(8):
            run_id = f"run-{k}"
            client.admit(run_id)
            row = entry(about="tag", run_id=run_id, once=True)
            keeping = partial(note, other, msgspec.structs.replace(row, outcome=AuditOutcome.REFUSED))
            thread = threading.Thread(target=keeping)
            thread.start()
            outcome = client.call(act.do(row))
            thread.join()
            [kept] = rows_of(client, run_id=run_id)
            assert (kept.outcome == "done") is (outcome != act.otherwise)
            assert (kept.outcome == "done") is act.is_done(client.row(run_id), client)


class Once(NamedTuple):
    """An act that is done once, and how it is undone."""

    do: Callable[[AuditRow], Any]
    undo: Callable[[], Any]
    is_done: Callable[[RunRow, Client], bool]
    otherwise: object = False


def once(client: Client, what: str) -> Once:
    """Return an act on a run that the store can do; a stop request is not undone."""
    able, store = client.store.capabilities, cast("Any", client.store)
    if not able.audits:
        pytest.skip("it declares that it keeps no audit log")
    has_it = {"stop": True, "pin": able.retains, "tag": able.has_labels, "pause": able.pauses}
    if not has_it[what]:
        pytest.skip("it declares that it does not do that")
    mark = "paused: since 2026-01-31T09:00:00Z"
    return {
        "stop": Once(
            lambda row: store.request_stop("run", StopRequest.CANCEL, b"n", head=1, audit=row),
            lambda: None,
            lambda run, _: run.stop_request is not None,
        ),
        "pin": Once(
            lambda row: store.pin("run", "why", head=1, audit=row),
            lambda: store.pin("run", None),
            lambda run, _: run.pinned is not None,
        ),
        "tag": Once(
            lambda row: store.tag(row.run_id, add=[Tag("vip")], head=1, audit=row),
            lambda: store.tag("run", remove=["vip"]),
            lambda run, client: bool(labels_of(client, run.run_id).tags),
            Tagging.MOVED,
        ),
        "pause": Once(
            lambda row: store.mark("run", was=None, mark=mark, audit=row),
            lambda: store.mark("run", was=mark, mark=None),
            lambda run, _: run.needs_repair is not None,
        ),
    }[what]


def told_of(client: Client, audit_id: str, run_id: str) -> dict[str, AuditRow]:
    """Return a row of the audit log as stores take it: nothing for one that keeps none."""
    if not client.store.capabilities.audits:
        return {}
    return {"audit": AuditRow(audit_id=audit_id, act="act", by="anna", run_id=run_id)}


def audited(client: Client) -> list[str]:
    """Return the ids of the rows of the audit log."""
    if not client.store.capabilities.audits:
        pytest.skip("all of this holds; it declares that it keeps no audit log")
    found = client.call(cast("AuditStore", client.store).audit(AuditFilter()))
    return [row.audit_id for row in found]
