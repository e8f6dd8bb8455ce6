"""Forks and stubs: a run may go on from another's checkpoint, which is then kept for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from everstep.codec.records import digest_of, seal, with_payloads
from everstep.errors import BadRequest, CheckpointPinned, RunNotFound
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord
from everstep.model.waits import WaitStatus
from everstep.ports.store import Commit, Recoded, RecodedWait, RecodingStore, RunFilter, StoredRecord, Verdict
from everstep.testing.conformance.kit import (
    Chain,
    Client,
    StoreKit,
    Suite,
    bodies_of,
    for_many_writers,
    fork_of,
    kept,
)

RACERS = 4
_WHEN = datetime(2024, 1, 1, tzinfo=UTC)


def head_of(chain: Chain) -> Commit:
    assert chain.head is not None
    return chain.head


class Forks(Suite):
    def test_a_fork_goes_on_from_its_parents_checkpoint(self, client: Client) -> None:
        parent = client.admit("parent")
        base, *_ = client.extend(parent, [b"2", b"3", b"4"])
        fork = fork_of(base, "fork", client.clock, flow_version="2")
        first = client.accept(fork, fork.admission(b"edits"))
        row = client.row("fork")
        assert (row.parent_run_id, row.forked_at, row.checkpoints, row.first) == ("parent", 2, 3, 3)
        assert (row.status, row.lease, row.trimmed_before) == (Status.RUNNING, None, 0)
        assert client.get("fork") == kept([first])
        assert client.row("parent").forked_at is None

    def test_only_the_forks_own_records_are_returned(self, client: Client) -> None:
        parent = client.admit("parent")
        client.extend(parent, [b"2", b"3"])
        fork = fork_of(head_of(parent), "fork", client.clock, has_lease=True)
        client.accept(fork, fork.admission(b"own 4"))
        client.extend(fork, [b"own 5", b"own 6"])
        for read in (client.get, client.tail):
            assert bodies_of(read("fork")) == [b"own 4", b"own 5", b"own 6"]
        assert bodies_of(client.get("fork", first=5, last=5)) == [b"own 5"]
        assert bodies_of(client.tail("fork", at=5)) == [b"own 4", b"own 5"]
        assert client.get("fork", last=3) == client.tail("fork", at=3) == []
        client.accept(fork, fork.following(b"own 7", keyframe=True))
        assert bodies_of(client.tail("fork")) == [b"own 7"]
        assert bodies_of(client.tail("fork", at=6)) == [b"own 4", b"own 5", b"own 6"]
        assert bodies_of(client.get("parent")) == [b"first", b"2", b"3"]

    def test_a_fork_without_a_lease_can_be_claimed_and_written_to(self, client: Client) -> None:
        parent = client.admit("parent")
        fork = fork_of(head_of(parent), "fork", client.clock)
        client.accept(fork, fork.admission(b"2"))
        lease = client.claim("fork", "driver")
        assert (lease.owner, lease.takeovers) == ("driver", 0)
        assert lease.epoch > 0
        fork.epoch = lease.epoch
        client.extend(fork, [b"3"])
        client.accept(fork, fork.final())
        assert client.row("fork").status is Status.COMPLETED
        assert client.row("fork").checkpoints == 4

    def test_a_fork_may_be_admitted_with_a_lease(self, client: Client) -> None:
        parent = client.admit("parent")
        fork = fork_of(head_of(parent), "fork", client.clock, has_lease=True)
        client.accept(fork, fork.admission())
        assert client.row("fork").lease == fork.lease()
        client.clock.advance(31)
        assert client.claim("fork").takeovers == 1

    @pytest.mark.parametrize("change", [{"base": "no"}, {"base": None}, {"sequence": 1}, {"sequence": 9}])
    def test_a_fork_with_the_wrong_base_is_refused(self, client: Client, change: dict[str, Any]) -> None:
        parent = client.admit("parent")
        client.extend(parent, [b"2", b"3"])
        fork = fork_of(head_of(parent), "fork", client.clock)
        assert client.put(fork.admission(**change)) == [Verdict.MOVED]
        assert client.call(client.store.run("fork")) is None
        assert client.get("fork") == []

    def test_a_fork_at_a_place_that_is_not_there_is_refused(self, client: Client) -> None:
        parent = client.admit("parent")
        later = fork_of(parent.following(), "fork", client.clock)
        assert client.put(later.admission()) == [Verdict.MOVED]
        earlier = fork_of(head_of(parent), "fork", client.clock, forked_at=0)
        assert client.put(earlier.admission()) == [Verdict.MOVED]

    def test_a_fork_without_a_parent_is_refused(self, client: Client) -> None:
        stranger = Chain("stranger", client.clock)
        fork = fork_of(stranger.admission(), "fork", client.clock)
        assert client.put(fork.admission()) == [Verdict.UNKNOWN_RUN]
        assert client.listing() == []

    def test_the_base_lies_in_the_parent_itself_not_further_back(self, client: Client) -> None:
        parent = client.admit("parent")
        base = head_of(parent)
        fork = fork_of(base, "fork", client.clock)
        client.accept(fork, fork.admission())
        grandchild = fork_of(base, "grandchild", client.clock, parent_run_id="fork")
        assert client.put(grandchild.admission()) == [Verdict.MOVED]

    def test_the_same_admission_of_a_fork_again_is_accepted(self, client: Client) -> None:
        parent = client.admit("parent")
        client.extend(parent, [b"2", b"3"])
        fork = fork_of(head_of(parent), "fork", client.clock)
        admission = client.accept(fork, fork.admission(b"once"))
        client.extend(parent, [b"4"])
        before = client.row("fork")
        assert client.put(admission) == [Verdict.ACCEPTED]
        fork.epoch = client.claim("fork").epoch
        client.extend(fork, [b"next"])
        assert client.put(admission) == [Verdict.ACCEPTED]
        assert bodies_of(client.get("fork")) == [b"once", b"next"]
        assert client.row("fork").created_at == before.created_at

    def test_a_fork_cannot_have_an_id_that_is_taken(self, client: Client) -> None:
        parent = client.admit("parent")
        client.admit("taken")
        fork = fork_of(head_of(parent), "taken", client.clock)
        assert client.put(fork.admission()) == [Verdict.EXISTS]
        assert client.put(fork_of(head_of(parent), "parent", client.clock).admission()) == [Verdict.EXISTS]
        assert client.row("taken").forked_at is None

    def test_a_group_may_hold_a_run_and_its_forks(self, client: Client) -> None:
        parent = Chain("parent", client.clock)
        parent.head = parent.admission()
        fork = fork_of(parent.head, "fork", client.clock)
        wrong = fork_of(parent.head, "wrong", client.clock).admission(base="nowhere")
        verdicts = client.put(parent.head, fork.admission(), wrong, parent.following(b"2"))
        assert verdicts == [Verdict.ACCEPTED, Verdict.ACCEPTED, Verdict.MOVED, Verdict.ACCEPTED]
        assert client.listing() == ["fork", "parent"]

    def test_a_fork_can_be_forked(self, client: Client) -> None:
        chain = client.admit("run-0")
        for depth in range(1, 6):
            chain = fork_of(head_of(chain), f"run-{depth}", client.clock, has_lease=True)
            client.accept(chain, chain.admission())
            client.extend(chain, [b"step"])
        row = client.row("run-5")
        assert (row.parent_run_id, row.forked_at, row.checkpoints) == ("run-4", 9, 11)
        assert [r.sequence for r in client.get("run-5")] == [10, 11]

    def test_forks_are_listed_by_their_parent(self, client: Client) -> None:
        parent, other = client.admit("parent"), client.admit("other")
        for number in range(5):
            fork = fork_of(head_of(parent), f"fork-{number}", client.clock, has_lease=True)
            client.accept(fork, fork.admission())
            if number == 2:
                client.accept(fork, fork.final(Status.FAILED))
        stray = fork_of(head_of(other), "stray", client.clock)
        client.accept(stray, stray.admission())
        listed = client.listing(parent_run_id="parent")
        assert listed == ["fork-4", "fork-3", "fork-2", "fork-1", "fork-0"]
        assert client.listing(parent_run_id="parent", limit=2, before="fork-3") == ["fork-2", "fork-1"]
        assert client.listing(parent_run_id="parent", status=Status.FAILED) == ["fork-2"]
        assert client.listing(parent_run_id="fork-1") == client.listing(parent_run_id="unknown") == []
        assert len(client.listing()) == 8
        [row] = client.call(client.store.list(RunFilter(parent_run_id="other")))
        assert row == client.row("stray")

    @for_many_writers
    def test_clients_that_fork_at_once_all_succeed(self, client: Client, store_kit: StoreKit) -> None:
        parent = client.admit("parent")
        client.extend(parent, [b"2"])
        base = head_of(parent)
        verdicts = _race(
            store_kit,
            lambda mine, number: mine.put(fork_of(base, f"fork-{number}", mine.clock).admission()),
        )
        assert verdicts == [[Verdict.ACCEPTED]] * RACERS
        assert sorted(client.listing(parent_run_id="parent")) == [f"fork-{n}" for n in range(RACERS)]

    @for_many_writers
    def test_of_clients_that_make_the_same_fork_exactly_one_wins(
        self, client: Client, store_kit: StoreKit
    ) -> None:
        base = head_of(client.admit("parent"))
        verdicts = _race(
            store_kit,
            lambda mine, number: mine.put(fork_of(base, "fork", mine.clock).admission(b"%d" % number)),
        )
        assert sorted(v for [v] in verdicts) == [Verdict.ACCEPTED, *[Verdict.EXISTS] * (RACERS - 1)]
        assert len(client.get("fork")) == 1


def _race(kit: StoreKit, work: Callable[[Client, int], list[Verdict]]) -> list[list[Verdict]]:
    """Let several clients do something at once, and return what each was told."""
    start = threading.Barrier(RACERS)
    answers: list[list[Verdict]] = []
    failures: list[BaseException] = []

    def race(number: int) -> None:
        try:
            mine = Client(kit)
            start.wait(30)
            answers.append(work(mine, number))
            mine.close()
        except BaseException as error:
            failures.append(error)
            start.abort()

    threads = [threading.Thread(target=race, args=(number,)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    return answers


class Trimming(Suite):
    def test_what_is_trimmed_keeps_its_place_its_id_and_its_digest(self, client: Client) -> None:
        chain, digests = sealed_run(client, "run", length=8, keyframes=(5,))
        before = client.get("run")
        assert client.trim("run", 5) == 4
        after = client.get("run")
        assert after[:4] == [
            StoredRecord(r.sequence, r.checkpoint_id, False, b"", digest)
            for r, digest in zip(before, digests, strict=False)
            if r.sequence < 5
        ]
        assert after[4:] == before[4:]
        assert [r.is_stub for r in after] == [True] * 4 + [False] * 4
        row = client.row("run")
        assert (row.trimmed_before, row.checkpoints) == (5, 8)
        assert client.tail("run") == before[4:]
        client.extend(chain, [b"9"])

    def test_the_same_trim_again_removes_nothing(self, client: Client) -> None:
        sealed_run(client, "run", length=9, keyframes=(3, 7))
        assert client.trim("run", 3) == 2
        assert client.trim("run", 3) == 0
        assert client.trim("run", 7) == 4
        assert client.row("run").trimmed_before == 7

    @pytest.mark.parametrize("before", [-1, 0, 1, 4, 6, 10, 100])
    def test_only_what_lies_before_a_keyframe_can_be_trimmed(self, client: Client, before: int) -> None:
        sealed_run(client, "run", length=9, keyframes=(5,))
        records, row = client.get("run"), client.row("run")
        with pytest.raises(BadRequest, match="no keyframe"):
            client.trim("run", before)
        assert (client.get("run"), client.row("run")) == (records, row)

    def test_a_trimmed_keyframe_is_one_no_longer(self, client: Client) -> None:
        sealed_run(client, "run", length=9, keyframes=(3, 7))
        client.trim("run", 7)
        with pytest.raises(BadRequest, match="no keyframe"):
            client.trim("run", 3)
        assert all(r.is_stub for r in client.tail("run", at=4))

    def test_an_unknown_run_cannot_be_trimmed(self, client: Client) -> None:
        with pytest.raises(RunNotFound):
            client.trim("unknown", 1)

    def test_what_a_fork_goes_on_from_is_pinned(self, client: Client) -> None:
        sealed_run(client, "run", length=12, keyframes=(3, 6, 9))
        records = client.get("run")
        fork = Chain(
            *("fork", client.clock),
            parent_run_id="run",
            forked_at=8,
            base=records[7].checkpoint_id,
            has_lease=False,
        )
        client.accept(fork, fork.admission())
        with pytest.raises(CheckpointPinned, match="checkpoint 8"):
            client.trim("run", 9)
        assert client.get("run") == records
        assert client.trim("run", 6) == 5
        with pytest.raises(CheckpointPinned):
            client.trim("run", 9)

    def test_the_checkpoint_that_a_fork_goes_on_from_may_become_the_oldest(self, client: Client) -> None:
        chain, _ = sealed_run(client, "run", length=5, keyframes=(5,))
        fork = fork_of(head_of(chain), "fork", client.clock)
        client.accept(fork, fork.admission())
        assert client.trim("run", 5) == 4

    def test_a_trimmed_checkpoint_cannot_be_forked(self, client: Client) -> None:
        sealed_run(client, "run", length=6, keyframes=(4,))
        old = client.get("run")[2]
        client.trim("run", 4)
        about: dict[str, Any] = {"parent_run_id": "run", "forked_at": 3, "base": old.checkpoint_id}
        assert client.put(Chain("fork", client.clock, **about).admission()) == [Verdict.MOVED]
        assert client.call(client.store.run("fork")) is None

    def test_a_commit_whose_record_was_trimmed_is_still_accepted_again(self, client: Client) -> None:
        chain, _ = sealed_run(client, "run", length=2, keyframes=())
        early = head_of(chain)
        client.accept(chain, chain.following(b"3", keyframe=True))
        client.trim("run", 3)
        assert client.put(early) == [Verdict.ACCEPTED]
        assert client.get("run", first=2, last=2)[0].is_stub

    def test_a_forks_own_records_can_be_trimmed(self, client: Client) -> None:
        parent, _ = sealed_run(client, "parent", length=4, keyframes=())
        fork = fork_of(head_of(parent), "fork", client.clock, has_lease=True)
        client.accept(fork, fork.admission(sealed(5)[0]))
        client.accept(fork, fork.following(sealed(6)[0]))
        client.accept(fork, fork.following(sealed(7)[0], keyframe=True))
        assert client.trim("fork", 7) == 2
        assert [r.is_stub for r in client.get("fork")] == [True, True, False]
        assert not any(r.is_stub for r in client.get("parent"))

    def test_another_client_sees_what_was_trimmed(self, clients: Callable[[], Client]) -> None:
        one, other = clients(), clients()
        chain, _ = sealed_run(one, "run", length=6, keyframes=(4,))
        assert len(other.get("run")) == 6
        one.trim("run", 4)
        assert other.get("run") == one.get("run")
        assert other.row("run") == one.row("run")
        other.extend(chain, [b"7"])
        one.extend(chain, [b"8"])


def sealed(sequence: int) -> tuple[bytes, bytes]:
    """Return the body of a record and its digest: what is left of it when it is trimmed."""
    record = CheckpointRecord(
        checkpoint_id="", sequence=sequence, trigger=Trigger.STEP, created_at=_WHEN, metadata={"at": sequence}
    )
    return seal(record, b"", [])


def sealed_run(
    client: Client, run_id: str, *, length: int, keyframes: tuple[int, ...]
) -> tuple[Chain, list[bytes]]:
    """Write a run of real records; returns its chain and their digests."""
    chain = Chain(run_id, client.clock)
    digests = []
    for sequence in range(1, length + 1):
        body, digest = sealed(sequence)
        make = chain.admission if sequence == 1 else chain.following
        client.accept(chain, make(body, keyframe=sequence in keyframes))
        digests.append(digest)
    return chain, digests


NEW_BYTES = [b"other bytes"]


class Recoding(Suite):
    """Only for stores that declare `recodes`; any other must not have the method either."""

    @pytest.fixture
    def recoding(self, store_kit: StoreKit, client: Client) -> Client:
        has_it = isinstance(client.store, RecodingStore)
        assert has_it is store_kit.capabilities.recodes
        if not has_it:
            pytest.skip("it declares that it does not recode")
        return client

    def test_a_record_gets_other_bytes_and_keeps_its_digest(self, recoding: Client) -> None:
        client = recoding
        chain, digests = sealed_run(client, "run", length=4, keyframes=(3,))
        before = client.get("run")
        body = with_payloads(before[2].body, NEW_BYTES)
        assert _recode(client, Recoded(3, before[2].checkpoint_id, body)) == 1
        after = client.get("run")
        assert after[2].body == body and digest_of(after[2].body) == digests[2]
        assert after[2].keyframe and after[2].checkpoint_id == before[2].checkpoint_id
        assert [after[k] for k in (0, 1, 3)] == [before[k] for k in (0, 1, 3)]
        client.extend(chain, [b"5"])

    def test_the_newest_record_may_be_replaced_under_its_owner(
        self, recoding: Client, clients: Callable[[], Client]
    ) -> None:
        client, owner = recoding, clients()
        chain, _ = sealed_run(owner, "run", length=2, keyframes=())
        newest = client.get("run")[-1]
        assert _recode(client, Recoded(2, newest.checkpoint_id, with_payloads(newest.body, NEW_BYTES))) == 1
        owner.extend(chain, [b"3"])
        assert len(client.get("run")) == 3

    def test_another_digest_another_record_and_a_stub_are_left_alone(self, recoding: Client) -> None:
        client = recoding
        sealed_run(client, "run", length=4, keyframes=(3,))
        first, second, third, fourth = client.get("run")
        client.trim("run", 3)
        before = client.get("run")
        assert (
            _recode(
                client,
                Recoded(2, second.checkpoint_id, with_payloads(second.body, NEW_BYTES)),
                Recoded(3, third.checkpoint_id, sealed(9)[0]),
                Recoded(4, third.checkpoint_id, with_payloads(fourth.body, NEW_BYTES)),
                Recoded(5, first.checkpoint_id, with_payloads(first.body, NEW_BYTES)),
            )
            == 0
        )
        assert client.get("run") == before

    def test_a_run_that_is_not_there_is_named(self, recoding: Client) -> None:
        with pytest.raises(RunNotFound):
            _recode(recoding, run_id="unknown")

    def test_the_records_of_a_fork_are_its_own(self, recoding: Client) -> None:
        client = recoding
        sealed_run(client, "run", length=2, keyframes=())
        sealed_run(client, "other", length=2, keyframes=())
        [_, theirs] = client.get("other")
        assert _recode(client, Recoded(2, theirs.checkpoint_id, with_payloads(theirs.body, NEW_BYTES))) == 0
        assert client.get("other")[1] == theirs

    def test_a_wait_gets_other_bytes_while_it_says_what_was_read(self, recoding: Client) -> None:
        client = recoding
        client.halted("run", "w")
        row = client.wait("w")
        new = RecodedWait("w", (row.details, None), b"\x01\x00details", None)
        assert _recode(client, waits=[new]) == 1
        assert (client.wait("w").details, client.wait("w").answer) == (b"\x01\x00details", None)
        assert _recode(client, waits=[new]) == 0
        assert client.settle("w", answer=b"yes")
        late = RecodedWait("w", (b"\x01\x00details", None), b"lost", None)
        assert _recode(client, waits=[late]) == 0
        answered = RecodedWait("w", (b"\x01\x00details", b"yes"), b"new", b"\x01\x00answer")
        assert _recode(client, waits=[answered]) == 1
        row = client.wait("w")
        assert (row.details, row.answer, row.status) == (b"new", b"\x01\x00answer", WaitStatus.SETTLED)
        assert client.due() == ["run"]

    def test_a_wait_keeps_its_place_and_its_token(self, recoding: Client) -> None:
        client = recoding
        chain = client.admit("run")
        client.halt(chain, chain.wait("w", token_hash=b"t" * 32))
        row = client.wait("w")
        assert _recode(client, waits=[RecodedWait("w", (row.details, None), b"new", None)]) == 1
        found = client.call(client.store.wait_of_token(b"t" * 32))
        assert found is not None and found.wait_id == "w" and found.details == b"new"
        assert client.settle("w", answer=b"yes")


def _recode(
    client: Client, *records: Recoded, run_id: str = "run", waits: list[RecodedWait] | None = None
) -> int:
    store = cast(RecodingStore, client.store)
    return client.call(store.recode(run_id, records, waits or ()))
