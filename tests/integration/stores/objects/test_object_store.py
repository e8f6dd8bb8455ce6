"""The store of objects as a whole: it does what SQLite does, and at no write is anything hidden."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from everstep.errors import EverstepError, IncompatibleVersion, StateCorrupted, StoreUnavailable
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.model.removal import Erasure
from everstep.model.waits import SettledBy, WaitChange
from everstep.ports.store import CheckpointStore, RunFilter, StopRequest, WaitFilter
from everstep.registry import open_store
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.stores.objects import names
from everstep.stores.objects.drafts import needs_driving, waits_at
from everstep.stores.objects.entries import Entry, decode, sealed
from everstep.stores.objects.store import ObjectStore
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import TTL, Chain
from everstep.testing.dict_bucket import DictBucket, DictObjects

RUNS = ["a", "b", "c"]
STEPS = 60


class WatchedBucket(DictBucket):
    """Calls back after every single write, and may be told to die before or after one."""

    def __init__(self, objects: DictObjects, after_write: Callable[[], None]) -> None:
        super().__init__(objects)
        self._after_write = after_write
        self.dies_in: int | None = None
        self.writes = 0

    def _strike(self) -> None:
        self.writes += 1
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                raise StoreUnavailable("the process died.")

    def put(self, name: str, data: bytes) -> None:
        self._strike()
        super().put(name, data)
        self._after_write()

    def delete(self, names: Any) -> None:
        for name in list(names):
            self._strike()
            super().delete([name])
            self._after_write()


def check_nothing_is_hidden(objects: DictObjects) -> None:
    """Whatever stands at the end of a log can be found by the names that lead there."""
    bucket = DictBucket(objects)
    heads: dict[str, str] = {}
    for name in bucket.names("runs/"):
        heads[name.split("/")[1]] = name
    there = set(objects.kept)
    for name in heads.values():
        found = bucket.get(name)
        assert found is not None
        standing = decode(found.data, name).standing
        if standing.gone:
            continue
        row = standing.row
        assert names.index_name(standing.order, row.flow_id, row.run_id) in there
        if needs_driving(standing):
            assert standing.live in there, f"{row.run_id} should be driven, and no one is told"
        if waits_at(standing)[0]:
            assert standing.waiting in there, f"{row.run_id} waits, and no one would find it"
        for mark in standing.waits:
            assert names.wait_prefix(mark.wait_id) + names.quoted(row.run_id) in there
            if mark.token:
                assert names.token_prefix(mark.token) + names.quoted(row.run_id) in there
        assert names.flow_name(row.flow_hash) in there


class Play:
    """Random calls, made on any store from the same dice."""

    def __init__(self, seed: int, clock: ManualClock) -> None:
        self.dice = random.Random(seed)
        self.clock = clock
        self.chains: dict[str, Chain] = {}
        self.leases: dict[str, Lease] = {}
        self.waits: list[str] = []

    def new_id(self) -> str:
        return str(UUID(int=self.dice.getrandbits(128)))

    def next(self) -> Callable[[CheckpointStore], Coroutine[Any, Any, Any]]:
        """Return the next call."""
        run_id = self.dice.choice(RUNS)
        made = self.chains.get(run_id)
        if made is None:
            chain = self.chains[run_id] = Chain(run_id, self.clock, owner=self.new_id())
            chain.head = chain.admission(checkpoint_id=self.new_id())
            commit = chain.head
            return lambda store: store.put([commit])
        kinds = ["put", "put", "put", "halt", "settle", "claim", "due", "release", "signal", "renew", "end"]
        kind = self.dice.choice([*kinds, "advance", "fire", "change", "ack", "aside"])
        call: Callable[[CheckpointStore], Coroutine[Any, Any, Any]] = getattr(self, f"_{kind}")(made)
        return call

    def _put(self, chain: Chain, **changes: Any) -> Any:
        commit = chain.following(checkpoint_id=self.new_id(), **changes)
        stale = self.dice.random() < 0.1

        async def call(store: CheckpointStore) -> Any:
            verdicts = await store.put([commit, commit] if stale else [commit])
            if verdicts[0] == "accepted":
                chain.head = commit
            return verdicts

        return call

    def _halt(self, chain: Chain) -> Any:
        waits = []
        for _ in range(self.dice.randrange(3)):
            due = self.dice.choice([None, self.clock.now() + timedelta(seconds=self.dice.randrange(100))])
            token = self.dice.choice([None, self.dice.randbytes(8)])
            waits.append(chain.wait(self.new_id(), due_at=due, token_hash=token))
        self.waits += [wait.wait_id for wait in waits]
        return self._put(chain, status=Status.HALTED, waits=tuple(waits))

    def _end(self, chain: Chain) -> Any:
        status = self.dice.choice([Status.COMPLETED, Status.FAILED, Status.RUNNING])
        ended = self.clock.now() if status.is_final else None
        closed = tuple(self.waits[-2:])
        return self._put(chain, status=status, ended_at=ended, closed=closed, answers_stop=True)

    def _settle(self, chain: Chain) -> Any:
        wait_id = self.dice.choice([*self.waits, "unknown"])
        return lambda store: store.settle(wait_id, by=SettledBy.ANSWER, answer=b"1")

    def _change(self, chain: Chain) -> Any:
        wait_id = self.dice.choice([*self.waits, "unknown"])
        due = self.dice.choice([None, self.clock.now() + timedelta(seconds=self.dice.randrange(50))])
        change = WaitChange(due_at=due, token_hash=self.dice.choice([None, self.dice.randbytes(8)]))
        return lambda store: store.change_wait(wait_id, change)

    def _claim(self, chain: Chain) -> Any:
        owner = self.new_id()

        async def call(store: CheckpointStore) -> Any:
            lease = await store.lease(chain.run_id, owner=owner, ttl=TTL, process=None)
            chain.epoch = lease.epoch
            self.leases[chain.run_id] = lease
            return lease

        return call

    def _due(self, chain: Chain) -> Any:
        owner = self.new_id()

        async def call(store: CheckpointStore) -> Any:
            claimed = await store.claim_due(
                flows=[("flow", "0" * 64)], new_owner=lambda: owner, ttl=TTL, process=None, limit=len(RUNS)
            )
            for row, lease in claimed:
                self.chains[row.run_id].epoch = lease.epoch
                self.leases[row.run_id] = lease
            return sorted(claimed, key=lambda item: item[0].run_id)

        return call

    def _release(self, chain: Chain) -> Any:
        lease = self.leases.get(chain.run_id, chain.lease())
        return lambda store: store.release_lease(lease)

    def _renew(self, chain: Chain) -> Any:
        lease = self.leases.get(chain.run_id, chain.lease())
        return lambda store: store.renew([lease], TTL)

    def _signal(self, chain: Chain) -> Any:
        return lambda store: store.request_stop(chain.run_id, StopRequest.CANCEL)

    def _fire(self, chain: Chain) -> Any:
        return lambda store: store.fire(chain.run_id)

    def _ack(self, chain: Chain) -> Any:
        return lambda store: store.ack(chain.run_id)

    def _aside(self, chain: Chain) -> Any:
        epoch = chain.epoch
        return lambda store: store.set_aside(chain.run_id, epoch=epoch, reason="damaged")

    def _advance(self, chain: Chain) -> Any:
        self.clock.advance(self.dice.randrange(1, 40))
        return lambda store: store.next_due()


async def _tell(store: CheckpointStore) -> Any:
    """Everything a store says."""
    return (
        await store.list(RunFilter()),
        await store.waits(WaitFilter()),
        await store.counts(),
        await store.next_due(),
        sorted(await store.leased(), key=lambda row: row.run_id),
        [await store.get(run_id) for run_id in RUNS],
    )


async def _outcome(
    call: Callable[[CheckpointStore], Coroutine[Any, Any, Any]], store: CheckpointStore
) -> Any:
    try:
        return await call(store)
    except StoreUnavailable:
        raise
    except EverstepError as error:
        return type(error), str(error)


@pytest.mark.parametrize("seed", range(40))
def test_it_does_what_sqlite_does_and_hides_nothing_at_any_write(seed: int, tmp_path: Path) -> None:
    clock, objects = ManualClock(), DictObjects()

    def bucket() -> DictBucket:
        return WatchedBucket(objects, lambda: check_nothing_is_hidden(objects))

    async def play() -> None:
        sqlite, data = open_store(f"sqlite:///{tmp_path}/runs.db", clock).store, MemoryData()
        clients = [ObjectStore(bucket(), clock) for _ in range(2)]
        in_memory = [MemoryStore(clock, data) for _ in range(2)]
        game = Play(seed, clock)
        for step in range(STEPS):
            call = game.next()
            expected = await _outcome(call, sqlite)
            for one in (clients[step % 2], in_memory[step % 2]):
                assert await _outcome(call, one) == expected, f"step {step}"
        told = await _tell(sqlite)
        for store in (*clients, ObjectStore(bucket(), clock), *in_memory, MemoryStore(clock, data)):
            assert await _tell(store) == told
        await sqlite.close()

    asyncio.run(play())


@pytest.mark.parametrize("seed", range(25))
def test_a_process_that_dies_at_any_write_hides_nothing_and_the_next_goes_on(seed: int) -> None:
    clock, objects = ManualClock(), DictObjects()
    dice = random.Random(-seed)

    async def play() -> None:
        bucket = WatchedBucket(objects, lambda: check_nothing_is_hidden(objects))
        store, game, deaths = ObjectStore(bucket, clock), Play(seed, clock), 0
        for _ in range(STEPS):
            call = game.next()
            bucket.dies_in = dice.randrange(6)
            try:
                await _outcome(call, store)
            except StoreUnavailable:
                deaths += 1
                bucket = WatchedBucket(objects, lambda: check_nothing_is_hidden(objects))
                store = ObjectStore(bucket, clock)
                await _outcome(call, store)
            bucket.dies_in = None
        assert deaths
        check_nothing_is_hidden(objects)
        rows = await store.list(RunFilter())
        assert {row.run_id for row in rows} == set(game.chains)
        clock.advance(1000)
        for row in rows:
            records = await store.get(row.run_id)
            assert [r.sequence for r in records] == list(range(1, row.checkpoints + 1))

    asyncio.run(play())


def test_an_entry_that_was_cut_off_or_altered_is_named() -> None:
    clock, objects = ManualClock(), DictObjects()
    chain = Chain("run", clock)
    asyncio.run(ObjectStore(DictBucket(objects), clock).put([chain.admission()]))
    name = names.place_name("run", 1)
    whole = objects.kept[name][0]
    dice = random.Random(1)
    damaged = [whole[:cut] for cut in range(len(whole))]
    for _ in range(200):
        at = dice.randrange(len(whole))
        damaged.append(whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :])
    for data in damaged:
        DictBucket(objects).put(name, data)
        with pytest.raises((StateCorrupted, IncompatibleVersion)):
            asyncio.run(ObjectStore(DictBucket(objects), clock).run("run"))


def test_an_entry_of_a_newer_everstep_is_refused() -> None:
    clock, objects = ManualClock(), DictObjects()
    chain = Chain("run", clock)
    asyncio.run(ObjectStore(DictBucket(objects), clock).put([chain.admission()]))
    name = names.place_name("run", 1)
    entry = msgspec.msgpack.decode(objects.kept[name][0][15:])
    for change in ({"version": 99}, {"version": 99, "standing": "of another shape"}):
        DictBucket(objects).put(name, sealed(msgspec.msgpack.encode(entry | change)))
        with pytest.raises(IncompatibleVersion) as caught:
            asyncio.run(ObjectStore(DictBucket(objects), clock).run("run"))
        assert caught.value.code == "DAG-CKPT-009"


def _damaged_run(at: int, damage: Callable[[bytes], bytes | None]) -> tuple[ObjectStore, DictObjects]:
    clock, objects = ManualClock(), DictObjects()
    store = ObjectStore(DictBucket(objects), clock)

    async def write() -> None:
        for run_id in ("whole", "run"):
            chain = Chain(run_id, clock)
            chain.head = chain.admission()
            await store.put([chain.head])
            for number in range(5):
                chain.head = chain.following(b"%d" % number, keyframe=number == 1)
                await store.put([chain.head])

    asyncio.run(write())
    name = names.place_name("run", at)
    left = damage(objects.kept[name][0])
    if left is None:
        DictBucket(objects).delete([name])
    else:
        DictBucket(objects).put(name, left)
    return ObjectStore(DictBucket(objects), clock), objects


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: None, lambda d: b""], ids=["cut", "gone", "empty"]
)
def test_a_damaged_entry_in_the_middle_costs_its_record_only(
    at: int, damage: Callable[[bytes], bytes | None]
) -> None:
    store, _ = _damaged_run(at, damage)
    found = asyncio.run(store.get("run"))
    assert [r.sequence for r in found] == [1, 2, 3, 4, 5, 6]
    assert [r.sequence for r in found if not r.checkpoint_id] == [at]
    assert asyncio.run(store.get("run", first=6)) == found[5:]
    row = asyncio.run(store.run("run"))
    assert row is not None and (row.checkpoints, row.needs_repair) == (6, None)
    assert [r.run_id for r in asyncio.run(store.list(RunFilter()))] == ["run", "whole"]


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b""], ids=["cut", "empty"])
def test_a_run_whose_newest_entry_is_damaged_is_set_aside_and_hides_no_other(
    damage: Callable[[bytes], bytes | None],
) -> None:
    store, _ = _damaged_run(6, damage)
    rows = asyncio.run(store.list(RunFilter()))
    assert [row.run_id for row in rows] == ["run", "whole"]
    assert rows[0].needs_repair is not None and "0000000006" in rows[0].needs_repair
    found = asyncio.run(store.tail("run"))
    assert [(r.sequence, bool(r.checkpoint_id)) for r in found] == [
        (3, True),
        (4, True),
        (5, True),
        (6, False),
    ]


def test_a_run_of_which_nothing_can_be_read_is_listed_as_damaged() -> None:
    store, objects = _damaged_run(6, lambda d: b"x")
    for place in range(1, 7):
        DictBucket(objects).put(names.place_name("run", place), b"not ours")
    rows = asyncio.run(store.list(RunFilter()))
    assert [(row.run_id, row.needs_repair is not None) for row in rows] == [("run", True), ("whole", False)]
    with pytest.raises(StateCorrupted):
        asyncio.run(store.run("run"))


def test_names_that_were_removed_are_made_anew_from_the_logs() -> None:
    clock, objects = ManualClock(), DictObjects()
    store = ObjectStore(DictBucket(objects), clock)

    async def write() -> None:
        for run_id in ("run", "run-1", "run0"):
            chain = Chain(run_id, clock)
            chain.head = chain.admission()
            await store.put([chain.head])
            wait = chain.wait(f"w {run_id}", token_hash=run_id.encode())
            await store.put([chain.following(status=Status.HALTED, waits=(wait,))])

    asyncio.run(write())
    before = asyncio.run(_tell(store))
    bucket = DictBucket(objects)
    for prefix in ("index/", "live/", "waiting/", "waits/", "tokens/"):
        bucket.delete(bucket.names(prefix))
    fresh = ObjectStore(bucket, clock)
    assert asyncio.run(_tell(fresh)) == before
    assert asyncio.run(fresh.wait_of_token(b"run0")) is not None
    check_nothing_is_hidden(objects)


def test_who_believes_a_run_reads_it_once_and_writes_by_what_stands_there() -> None:
    clock, objects = ManualClock(), DictObjects()
    one, other = (ObjectStore(DictBucket(objects), clock) for _ in range(2))

    async def write() -> None:
        chain = Chain("run", clock)
        chain.head = chain.admission()
        await one.put([chain.head])
        await one.put([chain.following(status=Status.COMPLETED)])

    async def clean_up() -> None:
        row = await one.run("run")
        assert row is not None
        with one.lines.believing("run"):
            before = await one.get("run")
            await other.pin("run", "it is wanted")
            assert await one.get("run") == before and await one.run("run") == row
            assert await one.erase("run", head=row.checkpoints, reason="old") is Erasure.PINNED
        seen = await one.run("run")
        assert seen is not None and seen.pinned == "it is wanted"
        await other.pin("run", None)
        with one.lines.believing("run"):
            assert await one.erase("run", head=row.checkpoints, reason="old") is Erasure.ERASED
        assert await other.run("run") is None
        assert all(not entry.records for entry in _entries(objects))

    asyncio.run(write())
    asyncio.run(clean_up())


def _entries(objects: DictObjects) -> list[Entry]:
    return [decode(data, name) for name, (data, *_) in objects.kept.items() if name.startswith("runs/")]
