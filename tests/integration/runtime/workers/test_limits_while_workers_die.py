"""Limits hold while workers are killed at random, and keys take turns. Time is moved."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from everstep.errors import NoRoom
from everstep.model.leases import KeyLimit, Lease, Quota, group_of
from everstep.ports.limits import LimitingStore
from everstep.ports.store import CheckpointStore, Commit, RunRow, Traits, Verdict
from everstep.registry import Opened, open_store
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import TTL, Chain

pytestmark = [pytest.mark.stores("sqlite", "postgres", "redis")]
MINUTE = timedelta(minutes=1)
RATE, AT_ONCE = 5, 3
ONE = {"flow": Quota(limits=(KeyLimit(name="k", running=1),))}
QUOTAS = {"flow": Quota(limits=(KeyLimit(name="k", starts=RATE, span=MINUTE, running=AT_ONCE),))}


class Fleet:
    """Workers that claim, end what they drive, and die with what they have. Twice the limit is asked for."""

    def __init__(self, url: str, keys: int, seed: int) -> None:
        self.clock = ManualClock()
        self.chance = random.Random(seed)
        self._open: Callable[[], Opened] = lambda: open_store(url, self.clock)
        self._keys = [f"k={k}" for k in range(keys)]
        self._at_once = max(32, keys // 4)
        """As many are claimed in one go as it takes to keep so many keys busy."""
        self._asks = self._open().store
        self._workers: list[CheckpointStore] = [self._open().store for _ in range(4)]
        self._drives: list[dict[str, tuple[RunRow, Lease, int]]] = [{} for _ in range(4)]
        self._heads: dict[str, Commit] = {}
        self.starts: dict[str, list[datetime]] = defaultdict(list)
        self.deaths = 0
        self._wanted = 0.0

    async def run(self, minutes: float) -> None:
        """Let time pass in small and large steps."""
        end = self.clock.now() + timedelta(minutes=minutes)
        while self.clock.now() < end:
            step = self.chance.choice([0.1, 1.0, 3.0])
            self.clock.advance(step)
            await self._ask_for_more(step)
            for place in range(len(self._workers)):
                await self._turn(place)
            await self._check_live()
        for store in (self._asks, *self._workers):
            await store.close()

    async def _ask_for_more(self, seconds: float) -> None:
        self._wanted += 2 * RATE * seconds / 60 * len(self._keys)
        commits = []
        while self._wanted >= 1:
            self._wanted -= 1
            traits = Traits(group=self.chance.choice(self._keys))
            chain = Chain(str(uuid4()), self.clock, has_lease=False, traits=traits)
            commits.append(chain.admission())
            self._heads[chain.run_id] = commits[-1]
        if commits:
            assert set(await self._asks.put(commits)) == {Verdict.ACCEPTED}

    async def _turn(self, place: int) -> None:
        store, drives = self._workers[place], self._drives[place]
        for run_id in list(drives):
            row, lease, left = drives[run_id]
            if lease.expires_at <= self.clock.now():
                del drives[run_id]  # it was frozen for too long, and another may have it
            elif left > 0:
                drives[run_id] = (row, lease, left - 1)
            else:
                await self._end(store, run_id, lease)
                del drives[run_id]
        if self.chance.random() < 0.1 and self._heads:
            await self._by_name(store, drives)
        claimed = await store.claim_due(
            flows=[("flow", "0" * 64)],
            new_owner=lambda: str(uuid4()),
            ttl=TTL,
            process=None,
            limit=self.chance.choice([1, 4, self._at_once]),
            quotas=QUOTAS,
        )
        for row, lease in claimed:
            self._began(row, lease)
            drives[row.run_id] = (row, lease, self.chance.randint(0, 3))
        if self.chance.random() < 0.05:
            self.deaths += 1
            drives.clear()  # its leases run out
            await store.close()
            self._workers[place] = self._open().store

    async def _by_name(self, store: CheckpointStore, drives: dict[str, tuple[RunRow, Lease, int]]) -> None:
        """Do as `host.run` does."""
        run_id = self.chance.choice(list(self._heads))
        row = await store.run(run_id)
        if row is None or row.status.is_final or (row.lease and row.lease.expires_at > self.clock.now()):
            return
        with suppress(NoRoom):
            lease = await cast(LimitingStore, store).lease_within(
                run_id, owner=str(uuid4()), ttl=TTL, process=None, limits=QUOTAS["flow"].limits
            )
            self._began(row, lease)
            drives[run_id] = (row, lease, 1)

    def _began(self, row: RunRow, lease: Lease) -> None:
        if lease.epoch == 1:
            self.starts[row.group or ""].append(lease.expires_at - TTL)

    async def _end(self, store: CheckpointStore, run_id: str, lease: Lease) -> None:
        chain = Chain(run_id, self.clock, epoch=lease.epoch, head=self._heads.pop(run_id))
        assert await store.put([chain.final()]) == [Verdict.ACCEPTED]

    async def _check_live(self) -> None:
        live = Counter(row.group for row in await self._asks.leased())
        assert max(live.values(), default=0) <= AT_ONCE


def most_in_a_minute(times: list[datetime]) -> int:
    """Return how many starts the fullest minute has, ends included."""
    times = sorted(times)
    return max(bisect_right(times, at + MINUTE) - k for k, at in enumerate(times))


def check(url: str, keys: int, minutes: float, seed: int) -> None:
    fleet = Fleet(url, keys, seed)
    asyncio.run(fleet.run(minutes))
    assert fleet.deaths > 3
    assert max(map(most_in_a_minute, fleet.starts.values())) == RATE
    started = sum(map(len, fleet.starts.values()))
    assert started > 0.6 * RATE * minutes * keys, "limits hold back more than they must"


@pytest.mark.parametrize("seed", [1])
def test_no_minute_of_any_key_has_more_starts_than_its_limit(url: str, seed: int) -> None:
    check(url, 6, 4, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_no_minute_of_a_thousand_keys_has_more_starts_than_its_limit(tmp_path: Path, seed: int) -> None:
    check(f"sqlite:///{tmp_path}/runs.db", 1000, 6, seed)


def test_a_key_with_few_runs_waits_no_more_than_a_round(url: str) -> None:
    in_turn(url, {"many": 400, "few": 10, "some": 60})


@pytest.mark.soak
def test_a_key_with_ten_runs_beside_one_with_ten_thousand_waits_no_more_than_a_round(tmp_path: Path) -> None:
    in_turn(f"sqlite:///{tmp_path}/runs.db", {"many": 10_000, "few": 10, "some": 500})


def in_turn(url: str, runs: dict[str, int]) -> None:
    """Start one after the other, and see that between two starts of a key each other key has at most one."""
    clock = ManualClock()
    order: list[str] = []

    async def work() -> None:
        store = open_store(url, clock).store
        heads: dict[str, Commit] = {}
        for key, count in runs.items():
            traits = Traits(group=group_of([("k", key)]))
            chains = [Chain(f"{key} {n}", clock, has_lease=False, traits=traits) for n in range(count)]
            heads |= {chain.run_id: chain.admission() for chain in chains}
        await store.put(list(heads.values()))
        ask: dict[str, Any] = {"flows": [("flow", "0" * 64)], "ttl": TTL, "process": None, "limit": 1}
        for _ in range(100):
            for row, lease in await store.claim_due(new_owner=lambda: str(uuid4()), quotas=ONE, **ask):
                order.append(row.run_id.split()[0])
                chain = Chain(row.run_id, clock, epoch=lease.epoch, head=heads[row.run_id])
                assert await store.put([chain.final()]) == [Verdict.ACCEPTED]
            clock.advance(2)
        await store.close()

    asyncio.run(work())
    assert order.count("few") == runs["few"]
    places = [place for place, key in enumerate(order) if key == "few"]
    for before, after in pairwise(places):
        assert max(Counter(order[before + 1 : after]).values(), default=0) <= 1
    assert places[0] < len(runs)
