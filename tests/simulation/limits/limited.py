"""A simulated fleet whose runs have limits, and what must hold of them by the clock that judges them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, cast

from everstep import Context, Flow, Limit, node
from everstep.model.leases import Lease
from everstep.ports.store import CheckpointStore, RunRow
from everstep.registry import Opened
from everstep.stores.memory import MemoryStore
from everstep.testing.simulation.checks import Broken, Judge, Reader
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.process import SimProcess
from everstep.testing.simulation.store import BlobLine, Line, LocalLine, RemoteLine, SharedStore
from everstep.testing.simulation.trial import End
from everstep.testing.simulation.world import Here, World
from tests.simulation.planted.trials import hold_thread
from tests.simulation.stores import place

RATE, SPAN, AT_ONCE = 3, timedelta(seconds=20), 2
RUNS, KEYS = 12, 2
STARTS = "starts"


@node(output="done", effects="effectful", idempotency_key="auto", limit=Limit("api", running=2, rate="4/5s"))
def work(job: int, key: str) -> int:
    hold_thread(0.5 + 0.1 * (job % 5))
    return job


@node(output="end")
def end(done: int, ctx: Context) -> int:
    return done + 1


def limited() -> Flow:
    """So many of a key at once and in a while, each with a call that has a limit of its own."""
    rate = f"{RATE}/{SPAN.total_seconds():.0f}s"
    return Flow(
        "limited", [work, end], durability="strong", limits=[Limit("key", running=AT_ONCE, rate=rate)]
    )


class Noting(MemoryStore):
    """A store that notes when runs begin."""

    starts: dict[str, list[datetime]]

    async def claim_due(self, **given: Any) -> list[tuple[RunRow, Lease]]:
        claimed = await super().claim_due(**given)
        for row, lease in claimed:
            self._note(row, lease, given["ttl"])
        return claimed

    async def lease_within(self, run_id: str, **given: Any) -> Lease:
        lease = await super().lease_within(run_id, **given)
        row = await self.run(run_id)
        assert row is not None
        self._note(row, lease, given["ttl"])
        return lease

    def _note(self, row: RunRow, lease: Lease, ttl: timedelta) -> None:
        if lease.epoch == 1:
            self.starts.setdefault(row.group or "", []).append(lease.expires_at - ttl)


class NotingShared(SharedStore):
    """Such a store in the middle of a world."""

    def __init__(self, world: Any, *, is_remote: bool) -> None:
        super().__init__(world, is_remote=is_remote)
        self.starts: dict[str, list[datetime]] = defaultdict(list)

    def open_for(self, process: SimProcess) -> Opened:
        memory = Noting(self.clock if self.is_remote else process.system.clock, self.data)
        memory.starts = self.starts
        kind: type[Line] = RemoteLine if self.is_remote else LocalLine
        line = kind(self, process, memory)
        return Opened(cast(CheckpointStore, line), BlobLine(line, memory.artifacts), "simulated:")


class LimitedTrial(FleetTrial):
    """Four workers, a client that starts runs through them, and one that drives some itself."""

    def __init__(self, seed: int, *, is_remote: bool, skew: float) -> None:
        self._flow, chance = played(limited(), ITSELF), Random(seed)
        elsewhere = "m2" if is_remote else "m1"
        workers = {
            f"worker-{n}": WorkerPlace([self._flow], "m1" if n % 2 else elsewhere, concurrency=n)
            for n in (1, 2, 3, 4)
        }
        self._jobs = {f"R{n}": {"job": n, "key": f"k{chance.randrange(KEYS)}"} for n in range(RUNS)}
        people = {"client": self._client, "driver": self._driver}
        make = partial(NotingShared, is_remote=is_remote)
        super().__init__(workers, people, is_remote=is_remote, skew=skew, make_store=make)

    def _client(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            for run_id, inputs in self._jobs.items():
                persist(here, partial(host.start, self._flow, inputs, run_id=run_id))
            while not all(persist(here, partial(host.info, run_id)).status.is_final for run_id in self._jobs):
                here.sleep(1)

    def _driver(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            persist(here, partial(host.run, self._flow, {"job": 99, "key": "k0"}, run_id="own"))

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        assert isinstance(world.store, NotingShared)
        broken = list(Judge(world, reader).all(world.explained))
        return [*broken, *_judged(world.store.starts)]


def _judged(starts: Mapping[str, list[datetime]]) -> Iterator[Broken]:
    """Yield the keys of which too many runs began in a while."""
    for key, given in starts.items():
        times = sorted(given)
        most = max((bisect_right(times, at + SPAN) - k for k, at in enumerate(times)), default=0)
        if most > RATE:
            yield Broken("limits", f"{most} runs of {key} began within {SPAN}.")


def trial(seed: int, store: str) -> LimitedTrial:
    """Return the trial that follows from a seed."""
    return LimitedTrial(seed, **place(seed, store))
