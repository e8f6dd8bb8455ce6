"""Whole runs that come from another store, and are then as if they had been put here."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from everstep.errors import CheckpointPinned, StoreError
from everstep.graph.labels import attribute
from everstep.model.commits import Labels, NoticeRow, NoticeState, Tag
from everstep.model.enums import Status
from everstep.model.records import ArtifactRef
from everstep.model.removal import Erasure
from everstep.model.waits import HadEvent, SettledBy, WaitRow, WaitStatus
from everstep.ports.events import EventRow, EventStore, fields_of, wanted_by
from everstep.ports.labels import LabelStore
from everstep.ports.notices import NoticeFilter, NoticeStore
from everstep.ports.restoring import (
    FENCED_BY,
    FencingStore,
    Restored,
    RestoringBlobs,
    RestoringStore,
    WholeRun,
)
from everstep.ports.retention import RetainingBlobStore, RetainingStore
from everstep.ports.store import RunRow, StopRequest, StoredRecord, Verdict
from everstep.testing.clock import ManualClock
from everstep.testing.conformance.forks import head_of
from everstep.testing.conformance.kit import (
    TTL,
    Chain,
    Client,
    StoreKit,
    Suite,
    for_many_writers,
    fork_of,
)

RACERS = 4
_HASH = "a" * 64
_BLUEPRINT = b'{"entry":[],"nodes":[],"restored":true}'


class RestoredStores(Suite):
    """Only for stores that declare `fences`; any other must not have the method either."""

    @pytest.fixture
    def fencing(self, store_kit: StoreKit, client: Client) -> Client:
        has_it = isinstance(client.store, FencingStore)
        assert has_it is store_kit.capabilities.fences
        if not has_it:
            pytest.skip("it declares that it does not fence")
        return client

    def test_owners_from_before_cannot_write_and_the_run_is_due(self, fencing: Client) -> None:
        client, store = fencing, cast("FencingStore", fencing.store)
        chain = client.admit("run")
        unknown = chain.epoch + 5  # of an owner that came after the backup
        assert client.call(store.fence("run", FENCED_BY)) is True
        for epoch in (chain.epoch, unknown):
            assert client.put(chain.following(epoch=epoch)) == [Verdict.FENCED]
        lease = client.call(client.store.lease("run", owner="after", ttl=TTL, process=None))
        assert lease.epoch > FENCED_BY > unknown
        assert client.put(chain.following(epoch=unknown)) == [Verdict.FENCED]
        client.accept(chain, chain.following(epoch=lease.epoch))
        assert client.call(store.fence("run", FENCED_BY)) is True  # again does no harm
        assert client.put(chain.following(epoch=lease.epoch)) == [Verdict.FENCED]

    def test_runs_that_are_over_or_unknown_are_not_fenced(self, fencing: Client) -> None:
        client, store = fencing, cast("FencingStore", fencing.store)
        chain = client.admit("run")
        client.accept(chain, chain.final())
        for run_id in ("run", "none"):
            assert client.call(store.fence(run_id, FENCED_BY)) is False


class Restoring(Suite):
    """Only for stores that declare `restores`; any other must not have the method either."""

    @pytest.fixture
    def restoring(self, store_kit: StoreKit, client: Client) -> Client:
        has_it = isinstance(client.store, RestoringStore)
        assert has_it is store_kit.capabilities.restores
        if not has_it:
            pytest.skip("it declares that it does not restore")
        return client

    def test_events_that_a_run_had_come_along(self, restoring: Client, store_kit: StoreKit) -> None:
        client = restoring
        if not store_kit.capabilities.has_events:
            pytest.skip("it declares that it has no events")
        had = (
            HadEvent("a", "paid", "e1"),
            HadEvent("a", "paid", "e2"),
            HadEvent("a", "sent", "e1"),
            HadEvent("b\0é", "paid é", "2:é"),
        )
        run = msgspec.structs.replace(whole_run("run", client.clock), had=had)
        for expected in (Restored.RESTORED, Restored.SAME):
            assert client.call(cast("RestoringStore", client.store).restore(run)) is expected
            assert client.call(cast("EventStore", client.store).had_events("run")) == list(had)
        assert client.call(cast("EventStore", client.store).had_events("unknown")) == []

    def test_who_is_told_comes_along_with_what_they_were_not_told(
        self, restoring: Client, store_kit: StoreKit
    ) -> None:
        client = restoring
        if not store_kit.capabilities.has_notices:
            pytest.skip("it declares that none is told of its runs")
        store, now = cast("NoticeStore", client.store), client.clock.now()
        assert client.call(store.told_of("run")) == {}
        told = {"cancelled": ("boss", "désk"), "failed": ("ops",)}
        later = now + timedelta(hours=2)
        notices = (
            NoticeRow(notifier="ops", occasion="overdue", at=later, due_at=later, run_id="run", number=7),
            NoticeRow(notifier="boss", occasion="failed", at=now, due_at=now, tries=3, error="no line"),
            NoticeRow(notifier="désk", occasion="failed", at=now, tries=12, error="dead"),
        )
        run = msgspec.structs.replace(whole_run("run", client.clock), told=told, notices=notices)
        for expected in (Restored.RESTORED, Restored.SAME):
            assert client.call(cast("RestoringStore", client.store).restore(run)) is expected
        assert client.call(store.told_of("run")) == told
        there = client.call(store.notices(NoticeFilter(run_id="run")))[::-1]
        assert [(row.notifier, row.state, row.tries, row.error) for row in there] == [
            ("ops", NoticeState.PENDING, 0, ""),
            ("boss", NoticeState.PENDING, 3, "no line"),
            ("désk", NoticeState.DEAD, 12, "dead"),
        ]
        assert there[0].due_at == later
        assert len({row.notice_id for row in there}) == 3
        hold = timedelta(minutes=1)
        [row] = client.call(store.take_notices(["ops", "boss", "désk"], hold=hold, limit=9))
        assert (row.notifier, row.tries) == ("boss", 4)
        chain = _chain(run, client.clock)
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.final(Status.CANCELLED))
        told_now = [row.notifier for row in client.call(store.notices(NoticeFilter(run_id="run")))]
        assert sorted(told_now) == ["boss", "boss", "désk", "désk"]

    @pytest.mark.parametrize("name", ["paid", "bezahlt é🙂", "a:b\0'"])
    def test_an_event_finds_a_wait_that_came_along(
        self, restoring: Client, store_kit: StoreKit, name: str
    ) -> None:
        client, store = restoring, cast("EventStore", restoring.store)
        if not store_kit.capabilities.has_events:
            pytest.skip("it declares that it has no events")
        topic = wanted_by(name, {"order": "é"}).topic
        wait = _wait("w", client.clock, kind="event", topic=topic)
        halted = whole_run("run", client.clock, status=Status.HALTED, rows=(wait,))
        assert _restore(client, halted) == "restored"
        event = EventRow(
            event_id="e",
            name=name,
            value=b"1",
            fields=fields_of({"order": "é"}),
            published_at=client.clock.now(),
        )
        topics = event.topics(client.call(store.keep_event(event)))
        assert topics == [topic] and client.call(store.settle_event(event, topics)) == 1
        assert client.wait("w").status is WaitStatus.SETTLED

    def test_tags_and_attributes_come_along(self, restoring: Client, store_kit: StoreKit) -> None:
        client = restoring
        if not store_kit.capabilities.has_labels:
            pytest.skip("it declares that its runs have no labels")
        labels = Labels((Tag("team", "blue"), Tag("vip")), (attribute("customer", "7"), attribute("n", 12.5)))
        run = msgspec.structs.replace(whole_run("run", client.clock), labels=labels)
        for expected in (Restored.RESTORED, Restored.SAME):
            assert client.call(cast("RestoringStore", client.store).restore(run)) is expected
            assert client.call(cast("LabelStore", client.store).labels(["run"])) == {"run": labels}

    def test_a_restored_run_is_as_it_was(self, restoring: Client) -> None:
        clock = restoring.clock
        run = whole_run(
            "run",
            clock,
            length=5,
            keyframes=(3,),
            trimmed_before=3,
            status=Status.COMPLETED,
            ended_at=clock.now(),
            acked_at=clock.now(),
            adopted_at=4,
            priority=7,
            group="team",
        )
        assert _restore(restoring, run) is Restored.RESTORED
        assert restoring.row("run") == run.row
        assert tuple(restoring.get("run")) == run.records
        assert [r.is_stub for r in restoring.get("run")] == [True, True, False, False, False]
        assert [r.sequence for r in restoring.tail("run")] == [3, 4, 5]
        assert restoring.call(restoring.store.blueprint(_HASH)) == _BLUEPRINT
        assert restoring.listing() == ["run"]

    def test_another_client_sees_it_at_once(self, restoring: Client, clients: Callable[[], Client]) -> None:
        other, run = clients(), whole_run("run", restoring.clock)
        assert other.call(other.store.run("run")) is None and other.get("run") == []
        assert _restore(restoring, run) is Restored.RESTORED
        assert tuple(other.get("run")) == run.records
        assert other.row("run") == run.row

    def test_the_lease_of_the_other_store_is_not_restored(self, restoring: Client) -> None:
        chain = Chain("run", restoring.clock)
        run = whole_run("run", restoring.clock, lease=chain.lease())
        assert _restore(restoring, run) is Restored.RESTORED
        assert restoring.row("run").lease is None
        assert restoring.due(flows=[_HASH]) == ["run"]

    def test_a_restored_run_can_be_driven_to_its_end(self, restoring: Client) -> None:
        run = whole_run("run", restoring.clock, length=3)
        assert _restore(restoring, run) is Restored.RESTORED
        chain = _chain(run, restoring.clock)
        assert restoring.put(chain.following()) == [Verdict.FENCED]
        lease = restoring.claim("run")
        assert lease.takeovers == 0
        chain.epoch = lease.epoch
        restoring.extend(chain, [b"4", b"5"])
        restoring.accept(chain, chain.final())
        row = restoring.row("run")
        assert (row.status, row.checkpoints, row.lease) == (Status.COMPLETED, 6, None)
        assert [r.sequence for r in restoring.get("run")] == [1, 2, 3, 4, 5, 6]

    def test_a_finished_run_is_not_due(self, restoring: Client) -> None:
        for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            run = whole_run(status.value, restoring.clock, status=status, ended_at=restoring.clock.now())
            assert _restore(restoring, run) is Restored.RESTORED
        assert restoring.due(flows=[_HASH]) == []
        assert restoring.listing(status=Status.FAILED) == ["failed"]

    def test_a_run_that_was_set_aside_or_told_to_stop_stays_so(self, restoring: Client) -> None:
        damaged = whole_run("damaged", restoring.clock, needs_repair="a record is missing")
        stopping = whole_run("stopping", restoring.clock, stop_request=StopRequest.CANCEL)
        for run in (damaged, stopping):
            assert _restore(restoring, run) is Restored.RESTORED
            assert restoring.row(run.row.run_id) == run.row
        assert restoring.listing(needs_repair=True) == ["damaged"]
        assert restoring.due(flows=[_HASH]) == ["stopping"]

    def test_the_same_run_again_changes_nothing(self, restoring: Client) -> None:
        run = whole_run("run", restoring.clock, waits=("w",), status=Status.HALTED)
        assert _restore(restoring, run) is Restored.RESTORED
        assert restoring.settle("w", b"yes")
        before = (restoring.row("run"), restoring.get("run"), restoring.wait("w"))
        assert _restore(restoring, run) is Restored.SAME
        assert (restoring.row("run"), restoring.get("run"), restoring.wait("w")) == before

    def test_a_run_that_has_gone_on_is_left_as_it_is(self, restoring: Client) -> None:
        run = whole_run("run", restoring.clock, length=2)
        _restore(restoring, run)
        chain = _chain(run, restoring.clock)
        chain.epoch = restoring.claim("run").epoch
        restoring.extend(chain, [b"3"])
        before = (restoring.row("run"), restoring.get("run"))
        assert _restore(restoring, run) is Restored.AHEAD
        assert (restoring.row("run"), restoring.get("run")) == before

    def test_an_older_state_of_it_is_left_as_it_is(self, restoring: Client) -> None:
        newer = whole_run("run", restoring.clock, length=4)
        row = msgspec.structs.replace(newer.row, checkpoints=2)
        older = msgspec.structs.replace(newer, row=row, records=newer.records[:2])
        assert _restore(restoring, older) is Restored.RESTORED
        assert _restore(restoring, newer) is Restored.BEHIND
        assert restoring.row("run").checkpoints == 2
        assert tuple(restoring.get("run")) == older.records

    @pytest.mark.parametrize("length", [1, 2, 3])
    def test_another_run_of_its_id_is_left_as_it_is(self, restoring: Client, length: int) -> None:
        own = restoring.admit("run")
        restoring.extend(own, [b"mine"])
        before = (restoring.row("run"), restoring.get("run"))
        assert _restore(restoring, whole_run("run", restoring.clock, length=length)) is Restored.TAKEN
        assert (restoring.row("run"), restoring.get("run")) == before
        restoring.extend(own, [b"goes on"])

    def test_its_waits_are_as_they_were(self, restoring: Client) -> None:
        clock = restoring.clock
        now, later = clock.now(), clock.now() + timedelta(hours=2)
        waits = (
            _wait("old", clock, status=WaitStatus.CLOSED, settled_at=now, settled_by=SettledBy.ANSWER),
            _wait(
                "open", clock, token_hash=b"t" * 32, token_expires_at=now + timedelta(hours=1), generation=3
            ),
            _wait(
                "due",
                clock,
                due_at=now + timedelta(hours=2),
                single_use=False,
                notifies=True,
                notified_at=now,
            ),
            _wait("else", clock, due_at=now, scheduler="cron", schedule_id="77", details=b"\x01\x00secret"),
        )
        run = whole_run("run", clock, status=Status.HALTED, rows=waits)
        assert _restore(restoring, run) is Restored.RESTORED
        assert tuple(restoring.wait(wait.wait_id) for wait in waits) == waits
        assert restoring.waits(run_id="run") == ["old", "open", "due", "else"]
        assert restoring.waits(status=WaitStatus.OPEN) == ["open", "due", "else"]
        found = restoring.call(restoring.store.wait_of_token(b"t" * 32))
        assert found is not None and found.wait_id == "open"
        assert restoring.next_due() == later
        assert restoring.due(flows=[_HASH]) == []
        clock.advance(7201)
        assert restoring.due(flows=[_HASH]) == ["run"]

    def test_a_settled_wait_makes_it_due(self, restoring: Client) -> None:
        clock = restoring.clock
        settled = _wait(
            "w",
            clock,
            status=WaitStatus.SETTLED,
            settled_at=clock.now(),
            settled_by=SettledBy.ANSWER,
            answer=b"true",
        )
        assert (
            _restore(restoring, whole_run("run", clock, status=Status.HALTED, rows=(settled,)))
            is Restored.RESTORED
        )
        assert restoring.due(flows=[_HASH]) == ["run"]
        assert restoring.fire("run") == ["w"]
        assert not restoring.settle("w", b"again")

    def test_an_open_wait_can_be_answered_and_closed(self, restoring: Client) -> None:
        run = whole_run("run", restoring.clock, waits=("w",), status=Status.HALTED)
        _restore(restoring, run)
        assert restoring.due(flows=[_HASH]) == []
        assert restoring.settle("w", b"yes")
        [(row, lease)] = restoring.claim_due(flows=[_HASH])
        chain = _chain(run, restoring.clock)
        chain.epoch = lease.epoch
        restoring.accept(chain, chain.following(status=Status.RUNNING, closed=("w",)))
        assert row.run_id == "run" and restoring.wait("w").status is WaitStatus.CLOSED

    def test_nothing_comes_of_a_run_whose_wait_is_there(self, restoring: Client) -> None:
        restoring.halted("other", "w2")
        run = whole_run("run", restoring.clock, waits=("w1", "w2"), status=Status.HALTED)
        with pytest.raises(StoreError):
            _restore(restoring, run)
        assert restoring.call(restoring.store.run("run")) is None
        assert restoring.get("run") == [] and restoring.waits() == ["w2"]
        assert restoring.wait("w2").run_id == "other"
        rows = tuple(w for w in run.waits if w.wait_id != "w2")
        assert _restore(restoring, msgspec.structs.replace(run, waits=rows)) is Restored.RESTORED
        assert restoring.waits(run_id="run") == ["w1"]

    def test_nothing_comes_of_a_run_that_brings_the_token_of_another(self, restoring: Client) -> None:
        chain = restoring.admit("other")
        restoring.halt(chain, chain.wait("theirs", token_hash=b"t" * 32))
        thief = _wait("mine", restoring.clock, token_hash=b"t" * 32)
        with pytest.raises(StoreError):
            _restore(restoring, whole_run("run", restoring.clock, status=Status.HALTED, rows=(thief,)))
        assert restoring.call(restoring.store.run("run")) is None
        assert restoring.call(restoring.store.wait("mine")) is None
        found = restoring.call(restoring.store.wait_of_token(b"t" * 32))
        assert found is not None and found.wait_id == "theirs"

    def test_a_fork_comes_after_its_parent(self, restoring: Client) -> None:
        clock = restoring.clock
        parent = whole_run("parent", clock, length=4)
        fork = _fork(parent, "fork", clock, at=2)
        assert _restore(restoring, fork) is Restored.NO_BASE
        assert restoring.call(restoring.store.run("fork")) is None and restoring.get("fork") == []
        assert _restore(restoring, parent) is Restored.RESTORED
        assert _restore(restoring, fork) is Restored.RESTORED
        assert restoring.row("fork") == fork.row
        assert tuple(restoring.get("fork")) == fork.records
        assert restoring.listing(parent_run_id="parent") == ["fork"]
        assert _restore(restoring, fork) is Restored.SAME

    def test_a_fork_of_another_run_of_that_name_is_refused(self, restoring: Client) -> None:
        own = restoring.admit("parent")
        restoring.extend(own, [b"2", b"3"])
        fork = _fork(whole_run("parent", restoring.clock, length=3), "fork", restoring.clock, at=2)
        assert _restore(restoring, fork) is Restored.NO_BASE
        assert restoring.listing() == ["parent"]

    def test_what_a_restored_fork_goes_on_from_is_pinned(self, restoring: Client) -> None:
        parent = whole_run("parent", restoring.clock, length=4, keyframes=(2, 4))
        _restore(restoring, parent)
        _restore(restoring, _fork(parent, "fork", restoring.clock, at=3))
        with pytest.raises(CheckpointPinned):
            restoring.trim("parent", 4)

    def test_a_restored_run_can_be_forked(self, restoring: Client) -> None:
        run = whole_run("run", restoring.clock, length=3)
        _restore(restoring, run)
        fork = fork_of(head_of(_chain(run, restoring.clock)), "fork", restoring.clock)
        restoring.accept(fork, fork.admission())
        assert restoring.row("fork").forked_at == 3

    def test_runs_can_be_admitted_before_and_after(self, restoring: Client) -> None:
        restoring.admit("before")
        _restore(restoring, whole_run("run", restoring.clock, length=3))
        after = restoring.admit("after")
        restoring.extend(after, [b"2"])
        assert restoring.listing() == ["after", "run", "before"]
        counts = restoring.call(restoring.store.counts())
        assert counts.runs == {"running": 3}

    def test_a_pinned_run_stays_pinned(self, store_kit: StoreKit, restoring: Client) -> None:
        if not store_kit.capabilities.retains:
            pytest.skip("it pins nothing")
        run = whole_run("run", restoring.clock, length=3, pinned="for the audit")
        assert _restore(restoring, run) is Restored.RESTORED
        assert restoring.row("run") == run.row
        assert restoring.listing(pinned=True) == ["run"]
        erasure = restoring.call(cast(RetainingStore, restoring.store).erase("run", head=3, reason="test"))
        assert erasure is Erasure.PINNED

    def test_an_erased_run_may_come_back(self, store_kit: StoreKit, restoring: Client) -> None:
        if not store_kit.capabilities.retains:
            pytest.skip("it erases nothing")
        store = cast(RetainingStore, restoring.store)
        run = whole_run("run", restoring.clock, length=3, waits=("w",), status=Status.HALTED)
        assert _restore(restoring, run) is Restored.RESTORED
        restoring.admit("other")
        assert restoring.call(store.erase("run", head=3, reason="moved")) is Erasure.ERASED
        assert restoring.get("run") == []
        assert _restore(restoring, run) is Restored.RESTORED
        assert tuple(restoring.get("run")) == run.records and restoring.waits() == ["w"]
        assert restoring.call(store.tombstone("run")) is None
        assert restoring.listing() == ["run", "other"]
        assert _restore(restoring, run) is Restored.SAME
        assert restoring.call(store.erase("run", head=3, reason="moved")) is Erasure.ERASED

    def test_an_owner_that_slept_while_the_run_was_away_is_fenced(
        self, store_kit: StoreKit, restoring: Client
    ) -> None:
        if not store_kit.capabilities.retains:
            pytest.skip("it erases nothing")
        store = cast(RetainingStore, restoring.store)
        run = whole_run("run", restoring.clock, length=2)
        assert _restore(restoring, run) is Restored.RESTORED
        asleep = _chain(run, restoring.clock)
        stale = restoring.claim("run", "asleep")
        asleep.epoch = stale.epoch
        restoring.clock.advance(TTL)
        assert restoring.call(store.erase("run", head=2, reason="moved")) is Erasure.ERASED
        assert _restore(restoring, run) is Restored.RESTORED
        held = restoring.claim("run", "new")
        assert restoring.put(asleep.following()) == [Verdict.FENCED]
        assert restoring.renew(stale) == [Verdict.FENCED]
        assert restoring.row("run").lease == held

    def test_a_long_run_comes_in_one_go(self, restoring: Client) -> None:
        run = whole_run("run", restoring.clock, length=1200)
        assert _restore(restoring, run) is Restored.RESTORED
        assert tuple(restoring.get("run")) == run.records

    @for_many_writers
    def test_of_many_that_bring_the_same_run_one_restores_it(
        self, restoring: Client, clients: Callable[[], Client]
    ) -> None:
        run, found = whole_run("run", restoring.clock, length=20, waits=("w",), status=Status.HALTED), []
        others = [clients() for _ in range(RACERS)]
        start = threading.Barrier(RACERS)

        def bring(client: Client) -> None:
            start.wait()
            found.append(_restore(client, run))

        threads = [threading.Thread(target=bring, args=(client,)) for client in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [Restored.RESTORED, *[Restored.SAME] * (RACERS - 1)]
        assert tuple(restoring.get("run")) == run.records and restoring.waits() == ["w"]

    def test_an_artifact_of_another_store_is_found_by_its_checksum(self, restoring: Client) -> None:
        blobs = restoring.opened.blobs
        if blobs is None:
            pytest.skip("it keeps no artifacts")
        assert isinstance(blobs, RestoringBlobs)
        checksum = hashlib.sha256(b"plain").hexdigest()
        for key in (checksum, f"{checksum[:2]}/{checksum}", "../../elsewhere"):
            ref = ArtifactRef("elsewhere", key, 5, "application/octet-stream", checksum)
            blobs.restore_checkpoint_blob(ref, b"\x01\x01\x00 encoded " + key.encode())
            assert blobs.get_checkpoint_blob(ref) == b"\x01\x01\x00 encoded " + key.encode()
        own = blobs.put_checkpoint_blob(b"\x01\x01\x00", b"plain", content_type="application/octet-stream")
        elsewhere = msgspec.structs.replace(own, storage="elsewhere", key="another/name")
        assert blobs.get_checkpoint_blob(elsewhere) == b"\x01\x01\x00plain"

    def test_a_restored_artifact_counts_as_just_put(self, restoring: Client) -> None:
        blobs = restoring.opened.blobs
        if not isinstance(blobs, RestoringBlobs) or not isinstance(blobs, RetainingBlobStore):
            pytest.skip("it keeps no artifacts, or removes none")
        checksum = hashlib.sha256(b"plain").hexdigest()
        ref = ArtifactRef("elsewhere", checksum, 5, "application/octet-stream", checksum)
        restoring.clock.advance(3 * 86_400)
        blobs.restore_checkpoint_blob(ref, b"\x01\x01\x00plain")
        [listed] = blobs.list_checkpoint_blobs()
        assert listed.untouched_for < timedelta(hours=1)
        assert blobs.delete_checkpoint_blobs([listed.key], untouched_for=timedelta(hours=24)) == []
        restoring.clock.advance(2 * 86_400)
        blobs.restore_checkpoint_blob(ref, b"\x01\x01\x00plain")
        assert blobs.list_checkpoint_blobs()[0].untouched_for < timedelta(hours=1)


def _restore(client: Client, run: WholeRun) -> Restored:
    return client.call(cast(RestoringStore, client.store).restore(run))


def _records(
    run_id: str, clock: ManualClock, first: int, length: int, keyframes: tuple[int, ...], trimmed_before: int
) -> tuple[StoredRecord, ...]:
    found = []
    for sequence in range(first, first + length):
        checkpoint_id = hashlib.sha256(f"{run_id} {sequence} {id(clock)}".encode()).hexdigest()[:32]
        if sequence < trimmed_before:
            found.append(StoredRecord(sequence, checkpoint_id, False, b"", bytes([sequence]) * 32))
        else:
            body = f"{run_id} {sequence}".encode() + b"\x00\xff"
            found.append(StoredRecord(sequence, checkpoint_id, sequence in keyframes, body))
    return tuple(found)


def whole_run(
    run_id: str,
    clock: ManualClock,
    *,
    length: int = 2,
    keyframes: tuple[int, ...] = (),
    waits: tuple[str, ...] = (),
    rows: tuple[WaitRow, ...] = (),
    **about: Any,
) -> WholeRun:
    """Return a run as another store might have kept it."""
    fields: dict[str, Any] = {
        "run_id": run_id,
        "flow_id": "flow",
        "flow_version": "1",
        "flow_hash": _HASH,
        "parent_run_id": None,
        "status": Status.RUNNING,
        "created_at": clock.now() - timedelta(days=3),
        "ended_at": None,
        "checkpoints": length,
        "lease": None,
    }
    row = RunRow(**(fields | about))
    return WholeRun(
        row=row,
        base=None,
        records=_records(run_id, clock, 1, length, keyframes, row.trimmed_before),
        waits=tuple(_wait(wait_id, clock, run_id=run_id) for wait_id in waits) + rows,
        blueprints=((_HASH, _BLUEPRINT),),
    )


def _fork(parent: WholeRun, run_id: str, clock: ManualClock, *, at: int) -> WholeRun:
    whole = whole_run(run_id, clock, parent_run_id=parent.row.run_id, forked_at=at)
    row = msgspec.structs.replace(whole.row, checkpoints=at + 2)
    records = _records(run_id, clock, at + 1, 2, (), 0)
    base = parent.records[at - 1].checkpoint_id
    return msgspec.structs.replace(whole, row=row, records=records, base=base)


def _wait(wait_id: str, clock: ManualClock, **about: Any) -> WaitRow:
    return Chain("run", clock).wait(wait_id, **about)


def _chain(run: WholeRun, clock: ManualClock) -> Chain:
    """Return the chain of a restored run, to go on from its head."""
    chain = Chain(run.row.run_id, clock, flow_hash=_HASH, blueprint=_BLUEPRINT)
    first = chain.admission()
    chain.head = msgspec.structs.replace(
        first, sequence=run.head.sequence, checkpoint_id=run.head.checkpoint_id, admission=None
    )
    return chain
