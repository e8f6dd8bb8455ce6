"""Records: what is put is kept, in order, whole, once, and only where it belongs. Versions of a flow, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everstep.errors import RunNotFound
from everstep.model.enums import Status
from everstep.model.leases import Process
from everstep.ports.store import Adoption, Verdict
from everstep.testing.conformance.kit import (
    Chain,
    Client,
    StoreKit,
    Suite,
    bodies_of,
    for_many_writers,
    kept,
)

NEIGHBOURS = ["a", "a1", "a10", "A", "a.", "a-", "a_", "a..b", "0", "x" * 128, "x" * 127]

LONG = 10_000
OLD, NEW = "0" * 64, "1" * 64
NEXT = Adoption(flow_version="2", flow_hash=NEW, blueprint=b"new structure")


class Records(Suite):
    def test_the_store_promises_what_its_kit_declares(self, client: Client, store_kit: StoreKit) -> None:
        assert client.store.capabilities == store_kit.capabilities

    def test_admission_creates_a_run_and_its_first_record(self, client: Client) -> None:
        process = Process("boot", "pid:[1]", 7, 99)
        chain = Chain("run", client.clock, process=process, parent_run_id="parent", flow_version="2")
        commit = client.accept(chain, chain.admission(b"inputs"))
        row = client.row("run")
        assert client.get("run") == kept([commit])
        assert (row.flow_id, row.flow_version, row.flow_hash) == ("flow", "2", chain.flow_hash)
        assert (row.run_id, row.parent_run_id, row.checkpoints) == ("run", "parent", 1)
        assert (row.status, row.stop_request, row.ended_at, row.acked_at) == (
            Status.RUNNING,
            None,
            None,
            None,
        )
        assert row.created_at == client.clock.now()
        assert row.lease == chain.lease()

    def test_puts_are_kept_in_order(self, client: Client) -> None:
        chain = client.admit("run")
        first = chain.head
        assert first is not None
        later = client.extend(chain, [b"%d" % k for k in range(20)])
        assert client.get("run") == kept([first, *later])
        assert client.row("run").checkpoints == 21

    def test_get_returns_just_the_sequences_asked_for(self, client: Client) -> None:
        chain = client.admit("run")
        client.extend(chain, [b"2", b"3", b"4", b"5"])
        assert bodies_of(client.get("run", first=2, last=4)) == [b"2", b"3", b"4"]
        assert bodies_of(client.get("run", first=4)) == [b"4", b"5"]
        assert bodies_of(client.get("run", last=2)) == [b"first", b"2"]
        assert client.get("run", first=6) == []
        assert client.get("run", first=4, last=3) == []

    def test_tail_is_the_whole_chain_while_there_is_no_keyframe(self, client: Client) -> None:
        chain = client.admit("run")
        client.extend(chain, [b"2", b"3"])
        assert bodies_of(client.tail("run")) == [b"first", b"2", b"3"]
        assert bodies_of(client.tail("run", at=2)) == [b"first", b"2"]

    def test_tail_begins_at_the_newest_keyframe_not_after_the_point_asked_for(self, client: Client) -> None:
        chain = client.admit("run")
        for sequence in range(2, 10):
            client.accept(chain, chain.following(b"%d" % sequence, keyframe=sequence in (4, 7)))
        assert [r.sequence for r in client.tail("run")] == [7, 8, 9]
        assert [r.sequence for r in client.tail("run", at=7)] == [7]
        assert [r.sequence for r in client.tail("run", at=6)] == [4, 5, 6]
        assert [r.sequence for r in client.tail("run", at=3)] == [1, 2, 3]
        assert [r.keyframe for r in client.tail("run", at=5)] == [True, False]

    def test_a_put_at_a_base_that_moved_is_refused_and_writes_nothing(self, client: Client) -> None:
        chain = client.admit("run")
        late = chain.following(b"late")
        client.extend(chain, [b"2"])
        before = client.get("run"), client.row("run")
        assert client.put(late) == [Verdict.MOVED]
        assert (client.get("run"), client.row("run")) == before

    def test_a_put_on_a_base_that_never_was_is_refused(self, client: Client) -> None:
        chain = client.admit("run")
        assert client.put(chain.following(base="another chain's")) == [Verdict.MOVED]
        assert client.put(chain.following(base=None)) == [Verdict.MOVED]
        assert bodies_of(client.get("run")) == [b"first"]

    @pytest.mark.parametrize("sequence", [1, 3, 100])
    def test_a_put_with_the_wrong_sequence_is_refused(self, client: Client, sequence: int) -> None:
        chain = client.admit("run")
        assert client.put(chain.following(sequence=sequence)) == [Verdict.MOVED]
        assert bodies_of(client.get("run")) == [b"first"]

    def test_an_unknown_run_has_no_records_and_takes_none(self, client: Client) -> None:
        chain = client.admit("known")
        assert client.put(chain.following(run_id="unknown")) == [Verdict.UNKNOWN_RUN]
        assert client.get("unknown") == client.tail("unknown") == []
        assert client.call(client.store.run("unknown")) is None
        with pytest.raises(RunNotFound):
            client.claim("unknown")

    def test_admission_of_a_taken_id_changes_nothing_the_lease_included(self, client: Client) -> None:
        chain = client.admit("run")
        client.extend(chain, [b"2"])
        before = client.get("run"), client.row("run")
        client.clock.advance(1)
        intruder = Chain("run", client.clock, flow_id="other", flow_hash="1" * 64)
        assert client.put(intruder.admission(b"other")) == [Verdict.EXISTS]
        assert (client.get("run"), client.row("run")) == before

    def test_a_run_that_ended_keeps_its_id(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.final())
        before = client.row("run")
        assert client.put(Chain("run", client.clock).admission()) == [Verdict.EXISTS]
        assert client.row("run") == before

    def test_runs_with_similar_ids_do_not_touch_one_another(self, client: Client) -> None:
        chains = [client.admit(run_id) for run_id in NEIGHBOURS]
        for step in range(3):
            for chain in chains:
                client.extend(chain, [f"{chain.run_id} {step}".encode()])
        for chain in chains:
            expected = [b"first", *(f"{chain.run_id} {step}".encode() for step in range(3))]
            assert bodies_of(client.get(chain.run_id)) == expected
        client.accept(chains[0], chains[0].final())
        assert client.listing(status=Status.RUNNING) == NEIGHBOURS[:0:-1]

    def test_a_record_of_one_run_is_no_base_for_another(self, client: Client) -> None:
        one, other = client.admit("one"), client.admit("other")
        assert one.head is not None
        assert client.put(other.following(base=one.head.checkpoint_id)) == [Verdict.MOVED]

    def test_a_chain_of_ten_thousand_records_comes_back_in_order(self, client: Client) -> None:
        chain = client.admit("run")
        assert chain.head is not None
        expected = [chain.head, *client.extend(chain, [b"%d" % k for k in range(199)])]
        while len(expected) < LONG:
            group = []
            for _ in range(200):
                chain.head = chain.following(b"%d" % len(expected), keyframe=len(expected) == LONG - 10)
                group.append(chain.head)
                expected.append(chain.head)
            assert set(client.put(*group)) == {Verdict.ACCEPTED}
        assert client.row("run").checkpoints == LONG
        assert client.get("run") == kept(expected)
        assert client.tail("run") == kept(expected[-10:])
        assert client.tail("run", at=LONG - 10) == kept(expected[:-10])
        assert client.get("run", first=5000, last=5001) == kept(expected[4999:5001])


class Atomicity(Suite):
    def test_each_commit_of_a_group_is_judged_alone(self, client: Client) -> None:
        good, moved, fenced = (client.admit(run_id) for run_id in ("good", "moved", "fenced"))
        verdicts = client.put(
            Chain("good", client.clock).admission(),
            moved.following(base="nowhere"),
            good.following(b"kept"),
            fenced.following(epoch=7),
            good.following(run_id="unknown"),
            Chain("new", client.clock).admission(b"new"),
        )
        assert verdicts == [
            Verdict.EXISTS,
            Verdict.MOVED,
            Verdict.ACCEPTED,
            Verdict.FENCED,
            Verdict.UNKNOWN_RUN,
            Verdict.ACCEPTED,
        ]
        assert bodies_of(client.get("good")) == [b"first", b"kept"]
        assert bodies_of(client.get("moved")) == bodies_of(client.get("fenced")) == [b"first"]
        assert bodies_of(client.get("new")) == [b"new"]

    def test_a_group_may_hold_a_run_and_its_next_record(self, client: Client) -> None:
        chain = Chain("run", client.clock)
        chain.head = first = chain.admission()
        second = chain.following(b"second")
        assert client.put(first, second) == [Verdict.ACCEPTED, Verdict.ACCEPTED]
        assert client.get("run") == kept([first, second])

    def test_an_empty_group_is_nothing_to_do(self, client: Client) -> None:
        assert client.put() == []

    def test_a_status_rides_in_the_put(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.following(status=Status.HALTED))
        assert client.row("run").status is Status.HALTED
        client.clock.advance(5)
        client.accept(chain, chain.final(Status.FAILED))
        row = client.row("run")
        assert (row.status, row.ended_at) == (Status.FAILED, client.clock.now())

    def test_a_put_that_is_not_final_leaves_status_and_lease_alone(self, client: Client) -> None:
        chain = client.admit("run")
        before = client.row("run")
        client.extend(chain, [b"2"])
        after = client.row("run")
        assert (after.status, after.lease, after.ended_at) == (before.status, before.lease, None)

    @pytest.mark.parametrize("changes", [{"base": "nowhere"}, {"epoch": 9}, {"sequence": 5}])
    def test_a_refused_put_changes_no_status(self, client: Client, changes: dict[str, Any]) -> None:
        chain = client.admit("run")
        before = client.row("run")
        assert client.put(chain.final(**changes))[0] in (Verdict.MOVED, Verdict.FENCED)
        assert client.row("run") == before

    def test_a_run_can_be_reopened_after_its_end(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.final(Status.FAILED))
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(b"again", status=Status.RUNNING))
        row = client.row("run")
        assert (row.status, row.ended_at, row.checkpoints) == (Status.RUNNING, None, 3)


@for_many_writers
class LostReplies(Suite):
    def test_the_same_commit_again_is_accepted_and_not_doubled(self, client: Client) -> None:
        chain = client.admit("run")
        commit = client.accept(chain, chain.following(b"once"))
        before = client.row("run")
        assert client.put(commit) == [Verdict.ACCEPTED]
        assert bodies_of(client.get("run")) == [b"first", b"once"]
        assert client.row("run") == before
        client.extend(chain, [b"next"])

    def test_the_same_admission_again_is_accepted_and_not_doubled(self, client: Client) -> None:
        chain = client.admit("run")
        assert chain.head is not None
        before = client.row("run")
        client.clock.advance(1)
        assert client.put(chain.head) == [Verdict.ACCEPTED]
        assert client.row("run") == before
        assert client.listing() == ["run"]
        client.extend(chain, [b"next"])

    def test_the_same_commit_again_is_accepted_in_a_group_too(self, client: Client) -> None:
        chain, other = client.admit("run"), client.admit("other")
        commit = client.accept(chain, chain.following(b"once"))
        fresh = other.following(b"fresh")
        assert client.put(fresh, commit) == [Verdict.ACCEPTED, Verdict.ACCEPTED]
        assert bodies_of(client.get("run")) == [b"first", b"once"]
        assert bodies_of(client.get("other")) == [b"first", b"fresh"]

    def test_the_same_final_commit_again_is_accepted(self, client: Client) -> None:
        chain = client.admit("run")
        commit = client.accept(chain, chain.final())
        before = client.row("run")
        client.clock.advance(1)
        assert client.put(commit) == [Verdict.ACCEPTED]
        assert client.row("run") == before

    def test_a_commit_is_still_accepted_after_others_followed_it(self, client: Client) -> None:
        chain = client.admit("run")
        first = chain.head
        assert first is not None
        second = client.accept(chain, chain.following(b"second"))
        third = client.accept(chain, chain.following(b"third"))
        assert client.put(first, second, third) == [Verdict.ACCEPTED] * 3
        assert bodies_of(client.get("run")) == [b"first", b"second", b"third"]

    def test_a_commit_is_still_accepted_after_a_takeover(self, client: Client) -> None:
        chain = client.admit("run")
        commit = client.accept(chain, chain.following(b"once"))
        client.clock.advance(31)
        client.claim("run")
        assert client.put(commit) == [Verdict.ACCEPTED]
        assert bodies_of(client.get("run")) == [b"first", b"once"]

    def test_another_client_may_put_the_same_commit_again(self, clients: Callable[[], Client]) -> None:
        one, other = clients(), clients()
        chain = one.admit("run")
        commit = one.accept(chain, chain.following(b"once"))
        assert other.put(commit) == [Verdict.ACCEPTED]
        assert bodies_of(other.get("run")) == [b"first", b"once"]

    def test_another_record_at_the_same_place_is_not_accepted(self, client: Client) -> None:
        chain = client.admit("run")
        twin = chain.following(b"twin")
        client.extend(chain, [b"kept"])
        assert client.put(twin) == [Verdict.MOVED]
        assert bodies_of(client.get("run")) == [b"first", b"kept"]


class UglyValues(Suite):
    @pytest.mark.parametrize(
        "body",
        [b"", b"\0", b"\0" * 1000, bytes(range(256)) * 16, b"'\"; DROP TABLE runs; --", b"\xff\xfe", b"\r\n"],
        ids=["empty", "nul", "nuls", "all bytes", "quotes", "not utf-8", "newline"],
    )
    def test_bodies_come_back_byte_for_byte(self, client: Client, body: bytes) -> None:
        chain = Chain("run", client.clock)
        client.accept(chain, chain.admission(body))
        client.extend(chain, [body])
        assert bodies_of(client.get("run")) == [body, body]

    def test_a_body_of_a_megabyte_comes_back(self, client: Client) -> None:
        body = bytes(range(251)) * 4200
        chain = client.admit("run")
        client.extend(chain, [body, b"after"])
        assert bodies_of(client.tail("run")) == [b"first", body, b"after"]

    @pytest.mark.parametrize("text", ["naïve", "流れ", "a'b\"c", "%_", " ", "🦉", "v1.0-rc+1"])
    def test_flow_names_and_versions_may_be_any_text(self, client: Client, text: str) -> None:
        client.admit("other")
        client.admit("run", flow_id=text, flow_version=text, owner=text, parent_run_id=text)
        row = client.row("run")
        assert (row.flow_id, row.flow_version, row.parent_run_id) == (text, text, text)
        assert row.lease is not None and row.lease.owner == text
        assert client.listing(flow_id=text) == ["run"]

    def test_a_blueprint_is_kept_once_and_returned(self, client: Client) -> None:
        structure = b'{"nodes": ["\xc3\xa4"]}\0'
        client.admit("one", flow_hash="a" * 64, blueprint=structure)
        client.admit("two", flow_hash="a" * 64, blueprint=b"not looked at")
        client.admit("three", flow_hash="b" * 64, blueprint=b"")
        assert client.call(client.store.blueprint("a" * 64)) == structure
        assert client.call(client.store.blueprint("b" * 64)) == b""
        assert client.call(client.store.blueprint("c" * 64)) is None


class Adoptions(Suite):
    def test_a_put_takes_its_run_over_to_another_version_of_its_flow(self, client: Client) -> None:
        chain = client.admit("run")
        assert client.row("run").adopted_at is None
        client.accept(chain, chain.following(b"moved", keyframe=True, adopts=NEXT))
        row = client.row("run")
        assert (row.flow_version, row.flow_hash, row.adopted_at) == ("2", NEW, 2)
        assert (row.status, row.lease) == (Status.RUNNING, chain.lease())
        assert client.call(client.store.blueprint(NEW)) == b"new structure"
        client.extend(chain, [b"3"])
        assert client.row("run").adopted_at == 2

    def test_a_refused_put_takes_nothing_over(self, client: Client) -> None:
        chain = client.admit("run")
        stale = chain.following(adopts=NEXT)
        client.clock.advance(3600)
        client.claim("run")
        assert client.put(stale) == [Verdict.FENCED]
        moved = chain.following(base="another chain's", epoch=2, adopts=NEXT)
        assert client.put(moved) == [Verdict.MOVED]
        row = client.row("run")
        assert (row.flow_hash, row.adopted_at) == (OLD, None)
        assert client.call(client.store.blueprint(NEW)) is None

    def test_a_put_whose_reply_was_lost_takes_over_once(self, client: Client) -> None:
        chain = client.admit("run")
        commit = client.accept(chain, chain.following(adopts=NEXT))
        before = client.row("run")
        assert client.put(commit) == [Verdict.ACCEPTED]
        assert client.row("run") == before

    def test_a_run_that_was_taken_over_is_due_under_its_new_version(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.following(adopts=NEXT))
        client.clock.advance(3600)
        assert client.due(flows=[OLD]) == []
        assert client.due(flows=[NEW]) == ["run"]

    def test_a_halted_run_stays_halted_when_it_is_taken_over(self, client: Client) -> None:
        chain = client.halted("run", "w")
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(adopts=NEXT))
        assert client.row("run").status is Status.HALTED
        client.clock.advance(3600)
        assert client.settle("w")
        assert client.due(flows=[NEW]) == ["run"]

    def test_older_versions_of_unfinished_runs_are_found(self, client: Client) -> None:
        client.admit("running", flow_hash="a" * 64)
        client.halted("halted", "w", flow_hash="b" * 64)
        ended = client.admit("ended", flow_hash="c" * 64)
        client.accept(ended, ended.final())
        client.admit("of another flow", flow_id="other", flow_hash="d" * 64)
        older = client.call(client.store.introduce("flow", NEW, b"new structure"))
        assert older == ["a" * 64, "b" * 64]
        assert client.call(client.store.blueprint(NEW)) == b"new structure"

    def test_a_version_that_became_known_later_is_not_older(self, client: Client) -> None:
        client.admit("old")
        assert client.call(client.store.introduce("flow", NEW, b"new structure")) == [OLD]
        client.admit("new", flow_hash=NEW)
        assert client.call(client.store.introduce("flow", OLD, b"structure")) == []
        assert client.call(client.store.introduce("flow", NEW, b"new structure")) == [OLD]
