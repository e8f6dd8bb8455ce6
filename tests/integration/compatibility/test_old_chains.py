"""What everstep 0.1.0 wrote before there were codecs is read as it was, also beside encrypted runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everstep import Host, KeyRing
from everstep.errors import IncompatibleVersion
from everstep.ports.store import Commit, Verdict
from everstep.registry import Opened
from everstep.stores.memory import MemoryStore
from everstep.testing import ManualClock
from tests import inside_memory
from tests.fixtures.chain_flows import BOOKS, TRIP

FIXTURES = Path(__file__).parents[2] / "fixtures"
KEYS = KeyRing({"k": b"1" * 32})


class Kept(msgspec.Struct):
    """The commits of two runs, and their artifacts."""

    commits: list[Commit]
    blobs: dict[str, bytes]


def opened(clock: ManualClock, name: str = "chain") -> MemoryStore:
    kept = msgspec.json.decode((FIXTURES / f"{name}-0.1.0.json").read_bytes(), type=Kept)
    store = MemoryStore(clock)
    for digest, blob in kept.blobs.items():
        inside_memory.set_blob(store.data, digest, blob)
    for commit in kept.commits:
        if store.put_blocking([commit]) != [Verdict.ACCEPTED]:  # it had another owner by then
            claim = store.lease(commit.run_id, owner="it", ttl=timedelta(seconds=9), process=None)
            asyncio.run(claim)
            assert store.put_blocking([commit]) == [Verdict.ACCEPTED]
    return store


@pytest.mark.parametrize("options", [{"encrypt": False}, {"encrypt": KEYS, "compress": True}])
def test_a_chain_of_0_1_0_is_read_forked_and_gone_on_with(options: dict[str, Any]) -> None:
    clock = ManualClock()
    store = opened(clock)
    with Host(Opened(store, store.artifacts, "memory:"), clock=clock, **options) as host:
        assert all(one.is_sound for one in host.storage.verify())
        failed = host.history("books")[-1].error
        assert failed is not None and failed.message == "nobody pays 9"
        state = host.state("books")
        assert state["row"][0] == {"title": "a", "tags": {"new", "cheap"}}
        assert state["catalogue"].startswith("2 books at 9: page") and state["approve"].approved
        assert host.state("fork")["catalogue"].startswith("2 books at 10")
        assert host.state("books", at=1)["titles"] == ["a", "b"]
        clock.advance(3600)
        again = host.resume("books", BOOKS)
        assert again.error is not None and again.error.message == "nobody pays 9"
        host.fork("books", at=1, inputs={"price": 11}, fork_id="late")
        assert host.resume("late", BOOKS).status == "halted"


@pytest.mark.parametrize("options", [{"encrypt": False}, {"encrypt": KEYS, "compress": True}])
def test_channels_streams_tasks_loops_and_waits_of_0_1_0_are_read_and_gone_on_with(
    options: dict[str, Any],
) -> None:
    clock = ManualClock(auto=True)
    store = opened(clock, "shapes")
    with Host(Opened(store, store.artifacts, "memory:"), clock=clock, **options) as host:
        for one in host.storage.verify():
            assert one.is_sound and one.newest_valid == one.checkpoints, one.flaws
        assert [c.sequence for c in host.checkpoints("short") if c.keyframe] == [3, 7]
        state = host.state("trip")
        assert state["diary"] == ["we went to Ulm", "we went to Bern"] and state["bought"] == "a hat"
        assert state["@channel/cost"] == 2.5 and state["road/rest"] == 0
        assert host.state("short")["left"] == 0 and host.state("trip", at=2)["rest"] == 3
        assert host.explain("trip", TRIP).compat.verdict == "continues"
        host.fork("trip", at=5, fork_id="late")
        for run in ("trip", "short", "late"):
            if run == "late":
                host.resume(run, TRIP)
            [asked] = host.waits(run)
            host.answer(asked.id, "well")
            assert host.resume(run, TRIP)["told"] == "2 days, well"
        assert all(one.is_sound for one in host.storage.verify())


@pytest.mark.parametrize("name", ["chain", "shapes"])
def test_chains_of_0_1_0_keep_their_digests_under_any_key(name: str) -> None:
    clock = ManualClock()
    store = opened(clock, name)
    with Host(Opened(store, store.artifacts, "memory:"), clock=clock, encrypt=KEYS, compress=True) as host:
        runs = [run.run_id for run in host.runs()]
        before = {run: [record.digest for record in host.history(run)] for run in runs}
        host.storage.rekey()
        assert {run: [record.digest for record in host.history(run)] for run in runs} == before
        assert all(one.is_sound and not one.locked for one in host.storage.verify())
    with Host(Opened(store, store.artifacts, "memory:"), clock=clock, encrypt=False) as host:
        assert all(one.is_sound and one.locked for one in host.storage.verify())


def test_a_chain_of_0_1_0_can_be_encrypted_and_keeps_its_digests() -> None:
    clock = ManualClock()
    store = opened(clock)
    with Host(Opened(store, store.artifacts, "memory:"), clock=clock, encrypt=KEYS) as host:
        before = [record.digest for record in host.history("books")]
        done = {one.run_id: one for one in host.storage.rekey()}
        assert done["books"].checkpoints and sum(one.artifacts for one in done.values())
        assert [record.digest for record in host.history("books")] == before
        assert host.state("books")["catalogue"].startswith("2 books at 9")
        kept = b"".join(inside_memory.blobs(store.data).values()) + b"".join(
            record.body for run in store.data.logs for record in inside_memory.records(store.data, run)
        )
        assert b"page page" not in kept and b"cheap" not in kept


def test_a_chain_of_a_newer_everstep_fails_closed() -> None:
    clock = ManualClock()
    store = opened(clock)
    last = inside_memory.records(store.data, "books")[-1]
    version, *rest = msgspec.msgpack.decode(last.body)
    assert version == 1
    newer = msgspec.msgpack.encode([3, *rest])
    inside_memory.set_record(store.data, "books", last.sequence, body=newer)
    with (
        Host(Opened(store, store.artifacts, "memory:"), clock=clock, encrypt=False) as host,
        pytest.raises(IncompatibleVersion, match="schema version 3") as caught,
    ):
        host.state("books")
    assert caught.value.code == "DAG-CKPT-009"
