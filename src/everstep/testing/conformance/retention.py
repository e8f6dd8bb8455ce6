"""Runs that are pinned and erased, what is left of them, and artifacts that were not put for long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, cast

import pytest

from everstep.errors import CheckpointPinned, EverstepError, RunNotFound, StateCorrupted
from everstep.model.enums import Status
from everstep.model.removal import Erasure, Removal, Tombstone
from everstep.model.waits import SettledBy
from everstep.ports.retention import RetainingBlobStore, RetainingStore, TombstoneFilter
from everstep.ports.store import CheckpointBlobStore, StopRequest, Verdict
from everstep.testing.conformance.forks import sealed_run
from everstep.testing.conformance.kit import Chain, Client, StoreKit, Suite, for_many_writers, fork_of

DAY = timedelta(hours=24)
ROUNDS = 12
"""How often a race is run; each is won by the one or the other."""


def _store(client: Client) -> RetainingStore:
    return cast(RetainingStore, client.store)


def _erase(client: Client, run_id: str, head: int | None = None, **more: Any) -> Erasure:
    seen = client.row(run_id).checkpoints if head is None else head
    return client.call(_store(client).erase(run_id, head=seen, reason=more.pop("reason", "asked"), **more))


def _pin(client: Client, run_id: str, reason: str | None) -> bool:
    return client.call(_store(client).pin(run_id, reason))


def _settle(client: Client, wait_id: str) -> bool:
    return client.call(client.store.settle(wait_id, by=SettledBy.ANSWER, answer=b"1"))[0]


def _left(client: Client, **wanted: Any) -> list[str]:
    return [one.run_id for one in client.call(_store(client).tombstones(TombstoneFilter(**wanted)))]


def _ended(client: Client, run_id: str, status: Status = Status.COMPLETED, **about: Any) -> Chain:
    chain = client.admit(run_id, **about)
    client.accept(chain, chain.final(status))
    return chain


class _Retaining(Suite):
    @pytest.fixture
    def retaining(self, store_kit: StoreKit, client: Client) -> Client:
        has_it = isinstance(client.store, RetainingStore)
        assert has_it is store_kit.capabilities.retains
        if not has_it:
            pytest.skip("it declares that nothing in it can be erased")
        return client


class Erasing(_Retaining):
    """Only for stores that declare `retains`; any other must not have the methods either."""

    def test_an_erased_run_is_gone_from_everywhere(self, retaining: Client) -> None:
        client = retaining
        chain = client.admit("run")
        client.halt(chain, chain.wait("w", token_hash=b"t" * 32, due_at=client.clock.now()))
        before = client.call(client.store.counts())
        assert (before.runs, before.waits) == ({"halted": 1}, {"approval": 1})
        assert _erase(client, "run") is Erasure.ERASED
        store = client.store
        assert client.call(store.run("run")) is None
        assert client.get("run") == [] and client.tail("run") == [] and client.listing() == []
        assert client.listing(run_id="run") == [] and client.listing(status=Status.HALTED) == []
        assert client.listing(flow_id="flow") == []
        assert client.waits() == [] and client.call(store.wait("w")) is None
        assert client.waits(run_id="run") == [] and client.waits(is_untold=True) == []
        assert client.call(store.wait_of_token(b"t" * 32)) is None
        assert client.call(store.settle("w", by=SettledBy.ANSWER, answer=b"1")) == (False, None)
        assert client.due() == [] and client.next_due() is None and client.fire("run") == []
        counts = client.call(store.counts())
        assert (sum(counts.runs.values()), sum(counts.waits.values())) == (0, 0)
        assert client.call(store.request_stop("run", StopRequest.CANCEL)) is False
        client.call(store.ack("run"))
        with pytest.raises(RunNotFound):
            client.claim("run")
        with pytest.raises(RunNotFound):
            client.trim("run", 1)
        assert client.put(chain.following()) == [Verdict.UNKNOWN_RUN]
        assert client.renew(chain.lease()) == [Verdict.FENCED]
        client.release(chain.lease())
        assert client.call(store.run("run")) is None

    def test_its_id_stays_taken_also_for_the_admission_that_made_it(self, retaining: Client) -> None:
        client = retaining
        chain = Chain("run", client.clock)
        first = chain.admission()
        client.accept(chain, first)
        client.accept(chain, chain.final())
        assert _erase(client, "run") is Erasure.ERASED
        assert client.put(first) == [Verdict.EXISTS]
        assert client.put(Chain("run", client.clock).admission()) == [Verdict.EXISTS]
        client.admit("other")
        assert client.listing() == ["other"]

    def test_a_fork_under_an_erased_id_is_told_that_the_id_is_taken_whatever_its_base(
        self, retaining: Client
    ) -> None:
        client = retaining
        _ended(client, "gone")
        assert _erase(client, "gone") is Erasure.ERASED
        parent = client.admit("parent")
        assert parent.head is not None
        whole = fork_of(parent.head, "gone", client.clock)
        elsewhere = fork_of(parent.head, "gone", client.clock)
        elsewhere.base = "c-other"
        orphan = fork_of(parent.head, "gone", client.clock, parent_run_id="unknown")
        commits = [chain.admission() for chain in (whole, elsewhere, orphan)]
        assert client.put(*commits) == [Verdict.EXISTS] * 3
        assert [client.put(commit) for commit in commits] == [[Verdict.EXISTS]] * 3

    def test_a_group_with_an_erased_id_in_it_is_judged_one_by_one(self, retaining: Client) -> None:
        client = retaining
        _ended(client, "gone")
        assert _erase(client, "gone") is Erasure.ERASED
        commits = [Chain(name, client.clock).admission() for name in ("a", "gone", "b")]
        assert client.put(*commits) == [Verdict.ACCEPTED, Verdict.EXISTS, Verdict.ACCEPTED]
        assert client.listing() == ["b", "a"]

    def test_it_leaves_a_tombstone(self, retaining: Client) -> None:
        client = retaining
        _ended(client, "run", flow_id="mine")
        created = client.row("run").created_at
        client.clock.advance(60)
        assert _erase(client, "run", reason="older than 50", summary=b'{"a": 1}') is Erasure.ERASED
        found = client.call(_store(client).tombstone("run"))
        assert found == Tombstone(
            run_id="run",
            flow_id="mine",
            created_at=created,
            erased_at=client.clock.now(),
            reason="older than 50",
            summary=b'{"a": 1}',
        )
        assert client.call(_store(client).tombstone("unknown")) is None

    def test_tombstones_are_listed_in_pages_those_erased_last_first(self, retaining: Client) -> None:
        client = retaining
        for number in range(5):
            _ended(client, f"run-{number}", flow_id="odd" if number % 2 else "even")
        for number in (2, 0, 4, 3, 1):
            assert _erase(client, f"run-{number}") is Erasure.ERASED
        assert _left(client) == ["run-1", "run-3", "run-4", "run-0", "run-2"]
        assert _left(client, limit=2) == ["run-1", "run-3"]
        assert _left(client, limit=2, before="run-3") == ["run-4", "run-0"]
        assert _left(client, flow_id="odd") == ["run-1", "run-3"]
        assert _left(client, before="unknown") == []

    def test_a_forgotten_id_is_free_again(self, retaining: Client) -> None:
        client = retaining
        for name in ("one", "two"):
            _ended(client, name)
            assert _erase(client, name) is Erasure.ERASED
        assert client.call(_store(client).forget(["one", "unknown"])) == 1
        assert _left(client) == ["two"]
        chain = client.admit("one")
        client.extend(chain, [b"2"])
        assert [r.sequence for r in client.get("one")] == [1, 2]
        assert client.put(Chain("two", client.clock).admission()) == [Verdict.EXISTS]

    def test_a_client_that_knew_the_run_takes_no_other_for_it(
        self, retaining: Client, clients: Callable[[], Client]
    ) -> None:
        reader = clients()
        _ended(retaining, "old")
        assert len(reader.get("old")) == 2
        assert _erase(retaining, "old") is Erasure.ERASED
        chain = retaining.admit("new")
        retaining.extend(chain, [b"2", b"3"])
        assert reader.get("old") == [] and len(reader.get("new")) == 3
        assert retaining.call(_store(retaining).forget(["old"])) == 1
        retaining.extend(retaining.admit("old"), [b"2"])
        assert len(reader.get("old")) == 2 and len(reader.get("new")) == 3

    def test_erasing_again_finds_nothing(self, retaining: Client) -> None:
        client = retaining
        assert _erase(client, "unknown", 1) is Erasure.GONE
        _ended(client, "run")
        assert _erase(client, "run", 2, summary=b"first") is Erasure.ERASED
        assert _erase(client, "run", 2, summary=b"second") is Erasure.GONE
        found = client.call(_store(client).tombstone("run"))
        assert found is not None and found.summary == b"first"

    @pytest.mark.parametrize("reasons", [("old", "asked"), ("old", "old")], ids=["", "alike"])
    def test_of_two_that_erase_a_run_at_once_one_does_and_one_finds_it_gone(
        self, retaining: Client, reasons: tuple[str, str]
    ) -> None:
        client = retaining
        _ended(client, "run")
        store, head = _store(client), client.row("run").checkpoints

        async def both() -> list[Erasure]:
            asked = (store.erase("run", head=head, reason=reason) for reason in reasons)
            return list(await asyncio.gather(*asked))

        assert sorted(client.call(both())) == [Erasure.ERASED, Erasure.GONE]
        assert client.call(store.tombstone("run")) is not None

    def test_a_run_that_went_on_stays(self, retaining: Client) -> None:
        client = retaining
        chain = _ended(client, "run", Status.FAILED)
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(b"more", status=Status.FAILED))
        assert _erase(client, "run", 2) is Erasure.MOVED
        assert len(client.get("run")) == 3 and _left(client) == []
        assert _erase(client, "run", 3) is Erasure.ERASED

    def test_a_lease_that_holds_keeps_the_run(self, retaining: Client) -> None:
        client = retaining
        chain = client.admit("run")
        assert _erase(client, "run") is Erasure.LEASED
        client.clock.advance(31)
        client.renew(chain.lease())
        assert _erase(client, "run") is Erasure.LEASED
        client.clock.advance(31)
        assert _erase(client, "run") is Erasure.ERASED
        assert client.put(chain.following()) == [Verdict.UNKNOWN_RUN]

    def test_a_fork_keeps_its_parent_until_it_is_erased_itself(self, retaining: Client) -> None:
        client = retaining
        parent = _ended(client, "parent")
        assert parent.head is not None
        child = fork_of(parent.head, "child", client.clock)
        client.accept(child, child.admission())
        assert child.head is not None
        grandchild = fork_of(child.head, "grandchild", client.clock)
        client.accept(grandchild, grandchild.admission())
        assert _erase(client, "parent") is Erasure.FORKED and _erase(client, "child") is Erasure.FORKED
        assert _erase(client, "grandchild") is Erasure.ERASED
        assert _erase(client, "parent") is Erasure.FORKED
        assert _erase(client, "child") is Erasure.ERASED and _erase(client, "parent") is Erasure.ERASED
        assert client.listing(parent_run_id="parent") == []

    def test_nothing_is_forked_from_an_erased_run(self, retaining: Client) -> None:
        client = retaining
        parent = _ended(client, "parent")
        assert _erase(client, "parent") is Erasure.ERASED
        assert parent.head is not None
        assert client.put(fork_of(parent.head, "child", client.clock).admission()) == [Verdict.UNKNOWN_RUN]

    def test_an_erased_fork_lets_its_parent_be_trimmed(self, retaining: Client) -> None:
        client = retaining
        chain, _ = sealed_run(client, "run", length=4, keyframes=(3,))
        second = client.get("run")[1]
        child = Chain(
            *("child", client.clock),
            parent_run_id="run",
            forked_at=2,
            base=second.checkpoint_id,
            has_lease=False,
        )
        client.accept(child, child.admission())
        with pytest.raises(CheckpointPinned):
            client.trim("run", 3)
        assert _erase(client, "child") is Erasure.ERASED
        assert client.trim("run", 3) == 2
        client.extend(chain, [b"5"])

    def test_a_listing_goes_on_from_a_run_that_was_erased_meanwhile(self, retaining: Client) -> None:
        client = retaining
        for number in range(6):
            _ended(client, f"run-{number}")
        assert client.listing(limit=2) == ["run-5", "run-4"]
        assert _erase(client, "run-4") is Erasure.ERASED
        assert client.listing(limit=2, before="run-4") == ["run-3", "run-2"]
        assert _erase(client, "run-3") is Erasure.ERASED
        assert client.listing(before="run-3", flow_id="flow") == ["run-2", "run-1", "run-0"]
        assert client.listing(before="run-4", status=Status.COMPLETED) == ["run-2", "run-1", "run-0"]
        assert client.listing(before="unknown") == []

    def test_another_client_sees_it_gone(self, retaining: Client, clients: Callable[[], Client]) -> None:
        other = clients()
        _ended(retaining, "run")
        assert other.row("run").status is Status.COMPLETED
        assert _erase(retaining, "run") is Erasure.ERASED
        assert other.call(other.store.run("run")) is None and other.get("run") == []
        assert _left(other) == ["run"] and _left(clients()) == ["run"]


class Pinning(_Retaining):
    def test_a_pinned_run_says_why_and_is_found(self, retaining: Client) -> None:
        client = retaining
        for name in ("a", "b", "c"):
            client.admit(name, flow_id="f" if name == "b" else "flow")
        assert _pin(client, "b", "a lesson") is True
        assert _pin(client, "c", "case 7") is True
        assert (client.row("a").pinned, client.row("b").pinned) == (None, "a lesson")
        assert client.listing(pinned=True) == ["c", "b"]
        assert client.listing(pinned=True, flow_id="f") == ["b"]
        assert client.listing(pinned=True, status=Status.COMPLETED) == []
        assert client.listing(pinned=True, limit=1) == ["c"]
        assert client.listing(pinned=True, before="c") == ["b"]
        assert client.listing(pinned=True, run_id="a") == []
        assert _pin(client, "b", "another") is True
        assert client.row("b").pinned == "another"

    def test_a_pinned_run_is_neither_erased_nor_trimmed(self, retaining: Client) -> None:
        client = retaining
        chain, _ = sealed_run(client, "run", length=4, keyframes=(3,))
        client.release(chain.lease())
        _pin(client, "run", "a lesson")
        assert _erase(client, "run") is Erasure.PINNED
        with pytest.raises(CheckpointPinned, match="a lesson"):
            client.trim("run", 3)
        assert _pin(client, "run", None) is True
        assert client.listing(pinned=True) == []
        assert client.trim("run", 3) == 2 and _erase(client, "run") is Erasure.ERASED

    def test_what_is_not_there_is_not_pinned(self, retaining: Client) -> None:
        assert _pin(retaining, "unknown", "why") is False
        assert _pin(retaining, "unknown", None) is False

    def test_a_pin_stays_while_the_run_goes_on(self, retaining: Client) -> None:
        client = retaining
        chain = client.admit("run")
        _pin(client, "run", "kept")
        client.accept(chain, chain.final())
        client.claim("run")
        assert client.row("run").pinned == "kept"


class RemovalLog(_Retaining):
    def test_lines_come_back_newest_first_in_pages(self, retaining: Client) -> None:
        client, store = retaining, _store(retaining)
        lines = [
            Removal(at=client.clock.now(), what="artifacts", count=number, size=10 * number, reason="unused")
            for number in range(4)
        ]
        lines.append(Removal(at=client.clock.now(), what="checkpoints", run_id="r", flow_id="f", count=9))
        for line in lines:
            client.call(store.note(line))
        found = client.call(store.removals(limit=2))
        assert [line for _, line in found] == [lines[4], lines[3]]
        numbers = [number for number, _ in client.call(store.removals())]
        assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) == 5
        older = client.call(store.removals(limit=10, before=found[-1][0]))
        assert [line for _, line in older] == lines[2::-1]
        assert client.call(store.tidy()) == 0


@for_many_writers
class RetentionRaces(_Retaining):
    """Two clients at once. Whichever wins, neither loses what it was promised."""

    def _race(self, one: Callable[[], Any], other: Callable[[], Any]) -> tuple[Any, Any]:
        start = threading.Barrier(2)
        found: list[Any] = [None, None]

        def run(k: int, work: Callable[[], Any]) -> None:
            start.wait(30)
            try:
                found[k] = work()
            except EverstepError as error:
                found[k] = error

        threads = [threading.Thread(target=run, args=(k, work)) for k, work in enumerate((one, other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found[0], found[1]

    def test_erasing_and_claiming(self, retaining: Client, clients: Callable[[], Client]) -> None:
        client, other = retaining, clients()
        for k in range(ROUNDS):
            name = f"run-{k}"
            chain = _ended(client, name, Status.FAILED)
            erased, lease = self._race(partial(_erase, client, name, 2), partial(other.claim, name))
            if erased is Erasure.ERASED:
                assert isinstance(lease, RunNotFound)
                assert client.get(name) == []
            else:
                assert erased is Erasure.LEASED
                chain.epoch = lease.epoch
                other.extend(chain, [b"3"])
                assert len(client.get(name)) == 3

    def test_erasing_and_forking(self, retaining: Client, clients: Callable[[], Client]) -> None:
        client, other = retaining, clients()
        for k in range(ROUNDS):
            name = f"run-{k}"
            parent = _ended(client, name)
            assert parent.head is not None
            child = fork_of(parent.head, f"{name}-fork", client.clock)
            erased, verdicts = self._race(
                partial(_erase, client, name, 2),
                partial(other.put, child.admission()),
            )
            outcome = (erased, verdicts[0])
            assert outcome in (
                (Erasure.ERASED, Verdict.UNKNOWN_RUN),
                (Erasure.FORKED, Verdict.ACCEPTED),
            )
            assert bool(client.get(name)) is (verdicts == [Verdict.ACCEPTED])

    def test_erasing_and_admitting_the_same_id(
        self, retaining: Client, clients: Callable[[], Client]
    ) -> None:
        client, other = retaining, clients()
        for k in range(ROUNDS):
            name = f"run-{k}"
            _ended(client, name)
            again = Chain(name, client.clock).admission()
            erased, verdicts = self._race(partial(_erase, client, name, 2), partial(other.put, again))
            assert (erased, verdicts) == (Erasure.ERASED, [Verdict.EXISTS])
            assert client.call(client.store.run(name)) is None

    def test_erasing_and_pinning(self, retaining: Client, clients: Callable[[], Client]) -> None:
        client, other = retaining, clients()
        for k in range(ROUNDS):
            name = f"run-{k}"
            _ended(client, name)
            erased, pinned = self._race(
                partial(_erase, client, name, 2),
                partial(_pin, other, name, "kept"),
            )
            assert (erased, pinned) in ((Erasure.ERASED, False), (Erasure.PINNED, True))
            assert bool(client.get(name)) is pinned

    def test_erasing_and_trimming(self, retaining: Client, clients: Callable[[], Client]) -> None:
        client, other = retaining, clients()
        for k in range(ROUNDS):
            name = f"run-{k}"
            chain, _ = sealed_run(client, name, length=4, keyframes=(3,))
            client.release(chain.lease())
            erased, trimmed = self._race(partial(_erase, client, name, 4), partial(other.trim, name, 3))
            assert erased is Erasure.ERASED
            assert trimmed == 2 or isinstance(trimmed, RunNotFound)
            assert client.get(name) == [] and client.call(client.store.run(name)) is None

    def test_erasing_and_settling(self, retaining: Client, clients: Callable[[], Client]) -> None:
        client, other = retaining, clients()
        for k in range(ROUNDS):
            name = f"run-{k}"
            client.halted(name, f"wait-{k}")
            erased, settled = self._race(
                partial(_erase, client, name, 2),
                partial(_settle, other, f"wait-{k}"),
            )
            assert erased is Erasure.ERASED and settled in (True, False)
            assert client.call(client.store.wait(f"wait-{k}")) is None
            assert client.due() == [] and client.waits() == []

    def test_of_two_who_erase_one_does(self, retaining: Client, clients: Callable[[], Client]) -> None:
        client, other = retaining, clients()
        for k in range(ROUNDS):
            name = f"run-{k}"
            _ended(client, name)
            outcome = self._race(partial(_erase, client, name, 2), partial(_erase, other, name, 2))
            assert set(outcome) == {Erasure.ERASED, Erasure.GONE}
        assert len(_left(client)) == ROUNDS

    def test_an_artifact_that_is_put_while_it_is_removed_is_there(
        self, retaining: Client, clients: Callable[[], Client]
    ) -> None:
        client, other = retaining, clients()
        for k in range(ROUNDS):
            data = b"large %d" % k * 1000
            ref = _blobs(client).put_checkpoint_blob(b"h", data, content_type="text/x")
            client.clock.advance(DAY.total_seconds())
            _, again = self._race(
                partial(_blobs(client).delete_checkpoint_blobs, [ref.key], untouched_for=DAY),
                partial(_blobs(other).put_checkpoint_blob, b"h", data, content_type="text/x"),
            )
            assert again == ref and _blobs(client).get_checkpoint_blob(ref) == b"h" + data


class Sweeping(Suite):
    """Artifacts that can be listed and removed: wanted of every store that keeps any."""

    def test_artifacts_are_listed_by_key_in_pages(self, client: Client) -> None:
        blobs = _blobs(client)
        refs = {}
        for number in range(7):
            data = b"%d" % number * 100 * (number + 1)
            refs[blobs.put_checkpoint_blob(b"hh", data, content_type="text/x").key] = len(data) + 2
            client.clock.advance(60)
        found = blobs.list_checkpoint_blobs()
        assert [one.key for one in found] == sorted(refs)
        assert {one.key: one.size for one in found} == refs
        assert max(one.untouched_for for one in found) == timedelta(minutes=7)
        pages, after = [], ""
        while page := blobs.list_checkpoint_blobs(after=after, limit=3):
            assert len(page) <= 3
            pages += [one.key for one in page]
            after = page[-1].key
        assert pages == sorted(refs)
        assert blobs.list_checkpoint_blobs(after="~") == []

    def test_only_what_was_not_put_for_long_is_removed(self, client: Client) -> None:
        blobs = _blobs(client)
        old = blobs.put_checkpoint_blob(b"h", b"old", content_type="text/x")
        kept = blobs.put_checkpoint_blob(b"h", b"kept", content_type="text/x")
        client.clock.advance(DAY.total_seconds() - 1)
        new = blobs.put_checkpoint_blob(b"h", b"new", content_type="text/x")
        every = [old.key, new.key, "nothing", "../../outside"]
        assert blobs.delete_checkpoint_blobs(every, untouched_for=DAY) == []
        client.clock.advance(1)
        assert blobs.delete_checkpoint_blobs(every, untouched_for=DAY) == [old.key]
        assert blobs.delete_checkpoint_blobs([], untouched_for=timedelta(0)) == []
        with pytest.raises(StateCorrupted, match="missing"):
            blobs.get_checkpoint_blob(old)
        assert [one.key for one in blobs.list_checkpoint_blobs()] == sorted([kept.key, new.key])
        assert blobs.put_checkpoint_blob(b"h", b"old", content_type="text/x") == old
        assert blobs.get_checkpoint_blob(old) == b"hold"

    def test_a_put_of_the_same_content_touches_it(
        self, client: Client, clients: Callable[[], Client]
    ) -> None:
        blobs, others = _blobs(client), _blobs(clients())
        ref = blobs.put_checkpoint_blob(b"h", b"data", content_type="text/x")
        client.clock.advance(DAY.total_seconds() - 5)
        assert others.put_checkpoint_blob(b"h", b"data", content_type="text/x") == ref
        client.clock.advance(5)
        assert [one.untouched_for for one in blobs.list_checkpoint_blobs()] == [timedelta(seconds=5)]
        assert blobs.delete_checkpoint_blobs([ref.key], untouched_for=DAY) == []
        client.clock.advance(DAY.total_seconds())
        others.put_checkpoint_blob(b"c", b"coded", content_type="text/x", plain=b"data")
        assert blobs.delete_checkpoint_blobs([ref.key], untouched_for=DAY) == []
        assert blobs.get_checkpoint_blob(ref) == b"ccoded"


class _Both(CheckpointBlobStore, RetainingBlobStore, Protocol): ...


def _blobs(client: Client) -> _Both:
    blobs = client.opened.blobs
    assert isinstance(blobs, RetainingBlobStore), "its artifacts cannot be listed and removed"
    return cast(_Both, blobs)
