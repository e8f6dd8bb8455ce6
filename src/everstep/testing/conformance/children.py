"""Runs that nodes of other runs started: each says which, and a run finds those that it started."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

from everstep.engine.commits import opening_of_fork
from everstep.model.commits import OnParentCancel, StartedBy, Tag
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord
from everstep.model.removal import Erasure
from everstep.model.waits import CHILD_KIND, WaitStatus, topic_of_child
from everstep.ports.labels import Search, SearchingStore
from everstep.ports.restoring import Restored, RestoringStore
from everstep.ports.retention import RetainingStore
from everstep.ports.store import RunFilter, StopRequest, Verdict
from everstep.testing.conformance.kit import Chain, Client, StoreKit, Suite
from everstep.testing.conformance.restoring import whole_run

BY = StartedBy("parent", "ship#7/book", 2)
LEFT = StartedBy("parent", 'ship[a b]/"ü🙂" 1 leave', 12, OnParentCancel.LEAVE)


class Children(Suite):
    """Only for stores that declare `has_children`."""

    @pytest.fixture
    def having(self, client: Client) -> Client:
        if not client.store.capabilities.has_children:
            pytest.skip("it declares that no run in it starts others")
        return client

    @pytest.mark.parametrize("by", [BY, LEFT])
    def test_a_run_says_which_node_started_it(self, having: Client, by: StartedBy) -> None:
        client = having
        chain = client.admit("child", started_by=by)
        client.admit("other")
        for _ in range(2):
            assert client.row("child").started_by == by
            assert client.row("other").started_by is None
            client.extend(chain, [b"2"])
        client.halt(chain, chain.wait("w"))
        assert client.row("child").started_by == by
        taken = client.claim("child")
        assert client.row("child").started_by == by
        chain.epoch = taken.epoch
        client.accept(chain, chain.final())
        assert [row.started_by for row in client.call(client.store.list(RunFilter()))] == [None, by]

    def test_a_run_that_becomes_due_is_claimed_with_it(self, having: Client) -> None:
        client = having
        client.admit("child", started_by=BY, has_lease=False)
        assert [row.started_by for row, _ in client.claim_due()] == [BY]
        assert [row.started_by for row in client.call(client.store.leased())] == [BY]

    def test_a_run_finds_those_that_it_started(self, having: Client) -> None:
        client = having
        assert client.listing(started_by="parent") == []
        client.admit("parent")
        chains = {k: client.admit(f"child-{k}", started_by=BY) for k in range(5)}
        client.admit("of-another", started_by=StartedBy("parent-2", "ship", 1))
        client.admit("of-none")
        newest_first = [f"child-{k}" for k in (4, 3, 2, 1, 0)]
        assert client.listing(started_by="parent") == newest_first
        assert client.listing(started_by="parent", limit=2) == newest_first[:2]
        assert client.listing(started_by="parent", limit=2, before="child-3") == newest_first[2:4]
        assert client.listing(started_by="parent", before="child-0") == []
        assert client.listing(started_by="parent", before="parent") == []
        assert client.listing(started_by="parent", before="of-none") == newest_first
        assert client.listing(started_by="parent", before="unknown") == []
        assert client.listing(started_by="parent", limit=0) == []
        assert client.listing(started_by="parent-2") == ["of-another"]
        assert client.listing(started_by="paren") == client.listing(started_by="child-1") == []
        client.accept(chains[1], chains[1].final())
        client.accept(chains[3], chains[3].final(Status.FAILED))
        assert client.listing(started_by="parent") == newest_first
        running = {"started_by": "parent", "status": Status.RUNNING}
        assert client.listing(**running) == ["child-4", "child-2", "child-0"]
        assert client.listing(**running, limit=1, before="child-4") == ["child-2"]
        assert client.listing(started_by="parent", status=Status.FAILED) == ["child-3"]
        assert client.listing(started_by="parent", flow_id="flow", status=Status.COMPLETED) == ["child-1"]
        assert client.listing(started_by="parent", flow_id="another") == []
        assert client.listing(started_by="parent", run_id="child-2") == ["child-2"]
        assert client.listing(started_by="parent", run_id="of-another") == []
        assert client.listing(started_by="parent", pinned=True) == []

    def test_many_are_listed_page_by_page(self, having: Client, store_kit: StoreKit) -> None:
        client, many = having, min(250, store_kit.most // 40)
        chains = [Chain(f"child-{k:03}", client.clock, started_by=BY) for k in range(many)]
        firsts = [chain.admission() for chain in chains]
        assert set(client.put(*firsts)) == {Verdict.ACCEPTED}
        found: list[str] = []
        while page := client.listing(started_by="parent", limit=40, before=found[-1] if found else None):
            assert len(page) <= 40
            found += page
        assert found == client.listing(limit=many)
        assert sorted(found) == [chain.run_id for chain in chains]

    def test_an_id_that_is_taken_leaves_the_run_as_it_is(self, having: Client) -> None:
        client = having
        client.admit("child")
        assert client.put(Chain("child", client.clock, started_by=BY).admission()) == [Verdict.EXISTS]
        assert client.row("child").started_by is None
        client.admit("mine", started_by=BY)
        before = client.row("mine")
        assert client.put(Chain("mine", client.clock, started_by=LEFT).admission()) == [Verdict.EXISTS]
        assert client.put(Chain("mine", client.clock).admission()) == [Verdict.EXISTS]
        assert client.row("mine") == before
        assert client.listing(started_by="parent") == ["mine"]

    def test_the_same_admission_twice_is_one_run(self, having: Client) -> None:
        client = having
        first = Chain("child", client.clock, started_by=BY).admission()
        assert client.put(first) == client.put(first) == [Verdict.ACCEPTED]
        assert client.listing(started_by="parent") == ["child"]

    def test_a_fork_of_one_was_started_by_no_node(self, having: Client) -> None:
        client = having
        chain = client.admit("child", started_by=BY)
        assert chain.head is not None
        record = CheckpointRecord(
            checkpoint_id="of-fork",
            sequence=2,
            trigger=Trigger.STEP,
            created_at=client.clock.now(),
            run_id="fork",
            flow_id="flow",
            flow_version="1",
            flow_hash=chain.flow_hash,
            base=chain.head.checkpoint_id,
        )
        fork = opening_of_fork(record, client.row("child"), 1, b"2", chain.blueprint)
        assert client.put(fork) == [Verdict.ACCEPTED]
        assert client.row("fork").parent_run_id == "child"
        assert client.row("fork").started_by is None
        assert client.listing(started_by="parent") == ["child"]
        assert client.listing(started_by="child") == []
        assert client.listing(parent_run_id="child") == ["fork"]

    def test_a_wait_for_the_end_of_one_is_found_and_settled_once(self, having: Client) -> None:
        client = having
        chains = {name: client.admit(name) for name in ("parent", "other")}
        for name, chain in chains.items():
            topic = topic_of_child(f"child-of-{name}")
            client.halt(
                chain, chain.wait(f"end-{name}", kind=CHILD_KIND, topic=topic), chain.wait(f"ok-{name}")
            )
        assert client.wait("end-parent").topic == topic_of_child("child-of-parent")
        wanted = {"flow_id": "flow", "kind": CHILD_KIND, "status": WaitStatus.OPEN}
        assert client.waits(**wanted) == ["end-parent", "end-other"]
        assert client.waits(**wanted, limit=1) == ["end-parent"]
        assert client.waits(**wanted, after="end-parent") == ["end-other"]
        assert client.claim_due() == []
        assert client.settle("end-parent", b'{"status":"completed"}')
        assert not client.settle("end-parent", b'{"status":"failed"}')
        assert client.wait("end-parent").answer == b'{"status":"completed"}'
        assert client.waits(**wanted) == ["end-other"]
        [(row, _)] = client.claim_due()
        assert (row.run_id, client.fire("parent")) == ("parent", ["end-parent"])

    def test_they_can_be_stopped_marked_tagged_and_pinned_and_keep_it(self, having: Client) -> None:
        client, store = having, having.store
        chain = client.admit("child", started_by=BY, tags=(Tag("vip"),))
        assert client.call(store.request_stop("child", StopRequest.CANCEL))
        assert client.row("child").started_by == BY
        client.accept(chain, chain.final(Status.CANCELLED))
        client.call(store.ack("child"))
        assert client.row("child").started_by == BY
        if store.capabilities.retains:
            client.call(cast(RetainingStore, store).pin("child", "kept"))
            assert client.listing(started_by="parent", pinned=True) == ["child"]
            assert client.row("child").started_by == BY

    def test_a_search_finds_them(self, having: Client, store_kit: StoreKit) -> None:
        client = having
        if not store_kit.capabilities.searches:
            pytest.skip("it declares that it has no index of labels and times")
        for k in range(6):
            by = (BY, StartedBy("parent-2", "ship", 1), None)[k % 3]
            client.admit(f"run-{k}", started_by=by, tags=(Tag("vip"),) if k < 4 else ())
        found = partial(_found, client)
        assert found(Search()) == ["run-3", "run-0"]
        assert found(Search(), limit=1) == ["run-3"]
        assert found(Search(), before="run-3") == ["run-0"]
        assert found(Search(name="vip", tag=True), started_by="parent-2") == ["run-1"]
        assert found(Search(name="vip", tag=True), status=Status.COMPLETED) == []
        assert found(Search(since=client.clock.now() + timedelta(days=1))) == []

    def test_an_erased_one_is_listed_no_more_and_counts_as_started(self, having: Client) -> None:
        client = having
        if not client.store.capabilities.retains:
            pytest.skip("it declares that nothing in it can be erased")
        store = cast(RetainingStore, client.store)
        firsts = [Chain(run_id, client.clock, started_by=BY) for run_id in ("one", "two")]
        for chain in firsts:
            client.accept(chain, chain.admission())
            client.accept(chain, chain.final())
        assert client.call(store.erase("one", head=2, reason="asked")) is Erasure.ERASED
        assert client.listing(started_by="parent") == ["two"]
        assert client.listing(started_by="parent", before="one") == []
        # Its id stays taken, so it is not started again, and what is left of it can be told.
        assert client.put(Chain("one", client.clock, started_by=BY).admission()) == [Verdict.EXISTS]
        assert client.call(client.store.run("one")) is None
        assert client.call(store.tombstone("one")) is not None
        assert client.listing(started_by="parent") == ["two"]
        # Once that is forgotten nothing tells that it was there.
        client.call(store.forget(["one"]))
        client.admit("one", started_by=LEFT)
        assert client.listing(started_by="parent") == ["one", "two"]
        assert client.row("one").started_by == LEFT

    def test_one_that_comes_from_another_store_keeps_it(self, having: Client) -> None:
        client = having
        if not client.store.capabilities.restores:
            pytest.skip("it declares that it does not restore")
        store = cast(RestoringStore, client.store)
        one, other = (whole_run(name, client.clock, started_by=by) for name, by in (("a", BY), ("b", None)))
        assert client.call(store.restore(one)) is client.call(store.restore(other)) is Restored.RESTORED
        assert (client.row("a").started_by, client.row("b").started_by) == (BY, None)
        assert client.listing(started_by="parent") == ["a"]
        assert client.call(store.restore(one)) is Restored.SAME
        assert client.listing(started_by="parent") == ["a"]


def _found(client: Client, by: Search, **wanted: Any) -> list[str]:
    store = cast(SearchingStore, client.store)
    page = client.call(store.search(RunFilter(**{"started_by": "parent", **wanted}), by))
    return [row.run_id for row in page.rows]
