"""Listing, several clients on the same data, and artifacts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from everstep.errors import StateCorrupted
from everstep.model.commits import StartedBy
from everstep.model.enums import Status
from everstep.model.records import ArtifactRef
from everstep.model.waits import SettledBy, WaitRow
from everstep.ports.retention import RetainingStore
from everstep.ports.store import CheckpointBlobStore, RunFilter, Verdict
from everstep.testing.conformance.kit import Client, StoreKit, Suite, bodies_of, for_many_writers

T = TypeVar("T")
_IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
WRITERS = 4
EACH = 10


class Listing(Suite):
    def test_runs_are_listed_newest_first(self, client: Client) -> None:
        for run_id in ("c", "a", "b"):
            client.admit(run_id)
        assert client.listing() == ["b", "a", "c"]

    def test_an_empty_store_lists_nothing(self, client: Client) -> None:
        assert client.listing() == []

    def test_a_listing_can_be_narrowed(self, client: Client) -> None:
        for number in range(6):
            chain = client.admit(f"run-{number}", flow_id="odd" if number % 2 else "even")
            if number < 3:
                client.accept(chain, chain.final(Status.FAILED))
        assert client.listing(flow_id="odd") == ["run-5", "run-3", "run-1"]
        assert client.listing(status=Status.FAILED) == ["run-2", "run-1", "run-0"]
        assert client.listing(status=Status.RUNNING, flow_id="even") == ["run-4"]
        assert client.listing(run_id="run-3") == ["run-3"]
        assert client.listing(run_id="run-3", flow_id="even") == []
        assert client.listing(run_id="run") == client.listing(flow_id="o%") == []
        assert client.listing(limit=2) == ["run-5", "run-4"]
        assert client.listing(flow_id="even", limit=1) == ["run-4"]

    @pytest.mark.parametrize("seed", range(30) if _IS_SOAK else [3])
    def test_a_listing_shows_what_its_filter_matches(self, client: Client, seed: int) -> None:
        """Whatever a store makes of a filter, in SQL or in a script, is compared with `RunFilter.matches`."""
        random = Random(seed)
        ids = [_random_run(client, f"run-{number}", random) for number in range(12)]
        rows = [row for run_id in reversed(ids) if (row := client.row(run_id)) is not None]
        assert len(rows) == len(ids)
        for _ in range(25):
            wanted = _random_filter(random, ids)
            place = ids[::-1].index(wanted.before) + 1 if wanted.before is not None else 0
            expected = [row.run_id for row in rows[place:] if wanted.matches(row)][: wanted.limit]
            found = client.call(client.store.list(wanted))
            assert [row.run_id for row in found] == expected, wanted

    def test_runs_are_counted_by_status_and_open_waits_by_kind(self, client: Client) -> None:
        chain = client.admit("halts")
        waits = (
            _wait("halts", "timer", client),
            _wait("halts", "timer", client),
            _wait("halts", "text", client),
        )
        client.accept(chain, chain.following(waits=waits, status=Status.HALTED))
        client.call(client.store.settle(waits[0].wait_id, by=SettledBy.CLOCK, answer=None))
        for run_id in ("a", "b"):
            chain = client.admit(run_id)
            client.accept(chain, chain.final(Status.FAILED))
        counts = client.call(client.store.counts())
        assert counts.runs == {"halted": 1, "failed": 2}
        assert counts.waits == {"timer": 1, "text": 1}

    def test_a_run_is_found_by_its_newest_record_while_it_can_go_on(self, client: Client) -> None:
        chain = client.admit("run")
        client.admit("another")
        first = chain.head
        assert first is not None
        assert client.call(client.store.run_at(first.checkpoint_id)) == "run"
        newest = client.accept(chain, chain.following())
        assert client.call(client.store.run_at(newest.checkpoint_id)) == "run"
        assert client.call(client.store.run_at(first.checkpoint_id)) is None
        last = client.accept(chain, chain.final())
        assert client.call(client.store.run_at(last.checkpoint_id)) is None

    def test_pages_cover_every_run_once(self, client: Client) -> None:
        admitted = [client.admit(f"run-{number}").run_id for number in range(10)]
        pages: list[list[str]] = []
        before: str | None = None
        while page := client.listing(limit=3, before=before):
            pages.append(page)
            before = page[-1]
            client.admit(f"newer-{len(pages)}")
        assert [len(page) for page in pages] == [3, 3, 3, 1]
        assert [run_id for page in pages for run_id in page] == admitted[::-1]

    def test_pages_of_a_narrowed_listing_cover_every_run_once(self, client: Client) -> None:
        for number in range(8):
            client.admit(f"run-{number}", flow_id="odd" if number % 2 else "even")
        assert client.listing(flow_id="even", limit=2, before="run-5") == ["run-4", "run-2"]
        assert client.listing(flow_id="even", limit=2, before="run-2") == ["run-0"]
        assert client.listing(before="run-0") == []

    def test_a_row_tells_times_in_utc_and_counts_checkpoints(self, client: Client) -> None:
        began = client.clock.now()
        chain = client.admit("run")
        client.extend(chain, [b"2", b"3"])
        client.clock.advance(timedelta(seconds=5, microseconds=123_456))
        client.accept(chain, chain.final())
        row = client.row("run")
        assert row.checkpoints == 4
        assert row.ended_at is not None
        assert (row.created_at, row.ended_at) == (began, client.clock.now())
        assert row.created_at.utcoffset() == row.ended_at.utcoffset() == timedelta(0)

    def test_a_listed_row_is_the_row_of_the_run(self, client: Client) -> None:
        chain = client.admit("run", parent_run_id="parent")
        client.extend(chain, [b"2"])
        [listed] = client.call(client.store.list(RunFilter()))
        assert listed == client.row("run")

    def test_the_first_ack_counts(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.final())
        client.call(client.store.ack("run"))
        acked_at = client.row("run").acked_at
        assert acked_at == client.clock.now()
        client.clock.advance(60)
        client.call(client.store.ack("run"))
        client.call(client.store.ack("unknown"))
        assert client.row("run").acked_at == acked_at


@for_many_writers
class TwoClients(Suite):
    def test_what_one_client_writes_the_other_reads(self, clients: Callable[[], Client]) -> None:
        writer, reader = clients(), clients()
        assert reader.listing() == []
        chain = writer.admit("run")
        assert bodies_of(reader.get("run")) == [b"first"]
        for body in (b"2", b"3"):
            writer.extend(chain, [body])
            assert reader.tail("run")[-1].body == body
            assert reader.row("run") == writer.row("run")
        writer.accept(chain, chain.final())
        assert reader.row("run").status is Status.COMPLETED
        assert reader.call(reader.store.blueprint(chain.flow_hash)) == chain.blueprint

    def test_puts_of_two_clients_may_alternate(self, clients: Callable[[], Client]) -> None:
        one, other = clients(), clients()
        left, right = one.admit("left"), other.admit("right")
        for number in range(20):
            one.extend(left, [b"left %d" % number])
            other.extend(right, [b"right %d" % number])
        for client in (one, other):
            assert bodies_of(client.get("left"))[1:] == [b"left %d" % n for n in range(20)]
            assert bodies_of(client.get("right"))[1:] == [b"right %d" % n for n in range(20)]

    def test_a_run_may_pass_from_client_to_client(self, clients: Callable[[], Client]) -> None:
        pair = clients(), clients()
        chain = pair[0].admit("run")
        for number in range(10):
            client = pair[number % 2]
            client.clock.advance(31)
            chain.epoch = client.claim("run", f"owner {number}").epoch
            client.extend(chain, [b"%d" % number])
        assert bodies_of(pair[0].get("run"))[1:] == [b"%d" % number for number in range(10)]
        assert chain.epoch == 11

    def test_of_two_clients_at_the_same_base_one_is_refused(self, clients: Callable[[], Client]) -> None:
        one, other = clients(), clients()
        chain = one.admit("run")
        mine, theirs = chain.following(b"mine"), chain.following(b"theirs")
        assert one.put(mine) == [Verdict.ACCEPTED]
        assert other.put(theirs) == [Verdict.MOVED]
        assert bodies_of(other.get("run")) == [b"first", b"mine"]

    def test_a_client_opened_later_finds_everything(self, clients: Callable[[], Client]) -> None:
        first = clients()
        chain = first.admit("run")
        first.extend(chain, [b"2", b"3"])
        ended = first.admit("ended")
        first.accept(ended, ended.final())
        before = first.get("run"), first.row("run"), first.row("ended")
        first.close()
        later = clients()
        assert (later.get("run"), later.row("run"), later.row("ended")) == before
        assert later.listing() == ["ended", "run"]
        later.extend(chain, [b"4"])

    def test_clients_that_write_at_once_lose_nothing(self, client: Client, store_kit: StoreKit) -> None:
        start = threading.Barrier(WRITERS)
        failures: list[BaseException] = []

        def write(writer: int) -> None:
            try:
                mine = Client(store_kit)
                start.wait(30)
                chain = mine.admit(f"run-{writer}")
                mine.extend(chain, [b"%d" % number for number in range(EACH)])
                mine.accept(chain, chain.final())
                mine.close()
            except BaseException as error:
                failures.append(error)
                start.abort()

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        for writer in range(WRITERS):
            expected = [b"first", *(b"%d" % number for number in range(EACH)), b"last"]
            assert bodies_of(client.get(f"run-{writer}")) == expected
            assert client.row(f"run-{writer}").status is Status.COMPLETED


class Blobs(Suite):
    @pytest.mark.parametrize(
        "data", [b"", b"x", b"\0\xff" * 500, bytes(range(250)) * 20_000], ids=["0", "1", "1000", "5000000"]
    )
    def test_an_artifact_comes_back_with_its_header(self, client: Client, data: bytes) -> None:
        blobs = _blobs(client)
        ref = blobs.put_checkpoint_blob(b"head", data, content_type="text/x")
        assert blobs.get_checkpoint_blob(ref) == b"head" + data
        assert (ref.size, ref.content_type) == (len(data), "text/x")

    def test_the_same_content_has_the_same_key(self, client: Client) -> None:
        blobs = _blobs(client)
        refs = {blobs.put_checkpoint_blob(b"h", b"same", content_type="text/x") for _ in range(2)}
        assert len(refs) == 1
        other = blobs.put_checkpoint_blob(b"h", b"other", content_type="text/x")
        assert other.key not in {ref.key for ref in refs}
        assert blobs.get_checkpoint_blob(other) == b"hother"

    def test_an_encoded_artifact_is_named_by_what_it_was_before(self, client: Client) -> None:
        blobs = _blobs(client)
        plain = blobs.put_checkpoint_blob(b"h", b"data", content_type="text/x")
        coded = blobs.put_checkpoint_blob(b"c", b"other bytes", content_type="text/x", plain=b"data")
        assert coded == plain
        assert blobs.get_checkpoint_blob(plain) == b"cother bytes"

    def test_an_artifact_of_one_client_is_read_by_another(self, clients: Callable[[], Client]) -> None:
        ref = _blobs(clients()).put_checkpoint_blob(b"h", b"data", content_type="text/x")
        assert _blobs(clients()).get_checkpoint_blob(ref) == b"hdata"

    def test_a_missing_artifact_is_corruption(self, client: Client) -> None:
        blobs = _blobs(client)
        ref = blobs.put_checkpoint_blob(b"h", b"data", content_type="text/x")
        lost = "0" * len(ref.checksum)
        missing = ArtifactRef(ref.storage, ref.key.replace(ref.checksum, lost), 4, "text/x", lost)
        with pytest.raises(StateCorrupted, match="missing"):
            blobs.get_checkpoint_blob(missing)

    @for_many_writers
    def test_clients_that_put_artifacts_at_once_lose_nothing(self, clients: Callable[[], Client]) -> None:
        start = threading.Barrier(WRITERS)
        stored: list[tuple[ArtifactRef, bytes]] = []
        failures: list[BaseException] = []

        def write(blobs: CheckpointBlobStore, writer: int) -> None:
            try:
                for number in range(EACH):
                    data = b"%d %d " % (writer, number) * 5000
                    start.wait(30)
                    stored.append((blobs.put_checkpoint_blob(b"h", data, content_type="text/x"), data))
            except BaseException as error:
                failures.append(error)
                start.abort()

        opened = [_blobs(clients()) for _ in range(WRITERS)]
        threads = [threading.Thread(target=write, args=(b, k)) for k, b in enumerate(opened)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(stored) == WRITERS * EACH
        for ref, data in stored:
            assert opened[0].get_checkpoint_blob(ref) == b"h" + data


def _blobs(client: Client) -> CheckpointBlobStore:
    assert client.opened.blobs is not None, "the kit opens no artifact store"
    return client.opened.blobs


def _wait(run_id: str, kind: str, client: Client) -> WaitRow:
    return WaitRow(
        wait_id=str(uuid4()),
        run_id=run_id,
        flow_id="flow",
        path="node",
        visit=1,
        kind=kind,
        opened_at=client.clock.now(),
        details=b"{}",
    )


def _random_run(client: Client, run_id: str, random: Random) -> str:
    """Admit a run, perhaps as a fork of the one that is the first, and do something to it."""
    about: dict[str, Any] = {"flow_id": random.choice(("a", "b"))}
    first = client.get("run-0") if random.random() < 0.4 and run_id != "run-0" else []
    if first:
        about |= {"parent_run_id": "run-0", "forked_at": 1, "base": first[0].checkpoint_id}
    elif client.store.capabilities.has_children and random.random() < 0.5:
        about["started_by"] = StartedBy(random.choice(("run-0", "run-1")), "node", 1)
    chain = client.admit(run_id, **about)
    if random.random() < 0.3:
        client.call(client.store.set_aside(run_id, epoch=chain.epoch, reason="it is damaged"))
    if random.random() < 0.3 and isinstance(client.store, RetainingStore):
        client.call(client.store.pin(run_id, "it is wanted"))
    if random.random() < 0.6:
        client.accept(chain, chain.final(random.choice((Status.COMPLETED, Status.FAILED, Status.HALTED))))
    return run_id


def _random_filter(random: Random, ids: list[str]) -> RunFilter:
    def perhaps(chance: float, *values: T) -> T | None:
        return random.choice(values) if random.random() < chance else None

    return RunFilter(
        flow_id=perhaps(0.4, "a", "b", "c"),
        run_id=perhaps(0.15, *ids),
        status=perhaps(0.5, Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.HALTED),
        parent_run_id=perhaps(0.3, "run-0", "run-0", "run-1"),
        started_by=perhaps(0.3, "run-0", "run-1", "run-2"),
        needs_repair=random.random() < 0.3,
        pinned=random.random() < 0.3,
        limit=random.choice((1, 2, 3, 100)),
        before=perhaps(0.3, *ids),
    )
