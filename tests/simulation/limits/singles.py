"""A simulated fleet whose flow has a singleton: two clients start runs of the same keys at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, cast

from everstep import Context, Flow, Singleton, node, wait
from everstep.errors import KeyTaken
from everstep.model.leases import Lease
from everstep.ports.store import CheckpointStore, Commit, RunFilter, RunRow, Verdict
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

KEYS, STARTS = 2, 5
CHOICES = ("refuse", "join", "replace", "queue")


@node(output="done", effects="effectful", idempotency_key="auto")
def work(job: int, key: str) -> int:
    hold_thread(0.2 + 0.1 * (job % 5))
    return job


@node(output="end")
def end(done: int, nap: Any, ctx: Context) -> int:
    return done + 1


def single(on_conflict: str) -> Flow:
    """One run of a key at a time, halted in its middle."""
    return Flow(
        "single",
        [work, wait.timer("nap", duration="1s"), end],
        durability="strong",
        limits=[Singleton("key", on_conflict=on_conflict)],
    )


class Watching(MemoryStore):
    """A store that looks what else of a key is unfinished when a run is accepted, and when one begins."""

    broken: list[str]
    begun: set[str]
    refuses: bool

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        verdicts = super().put_blocking(commits)
        for commit, verdict in zip(commits, verdicts, strict=True):
            if commit.admission is not None and verdict is Verdict.ACCEPTED and self.refuses:
                with suppress(StopIteration):  # what is in memory is not waited for
                    self._look(commit.run_id, "was accepted", has_begun=False).send(None)
        return verdicts

    async def claim_due(self, **given: Any) -> list[tuple[RunRow, Lease]]:
        claimed = await super().claim_due(**given)
        for row, _ in claimed:
            await self._began(row.run_id)
        return claimed

    async def lease_within(self, run_id: str, **given: Any) -> Lease:
        lease = await super().lease_within(run_id, **given)
        await self._began(run_id)
        return lease

    async def _began(self, run_id: str) -> None:
        await self._look(run_id, "began", has_begun=True)
        self.begun.add(run_id)

    async def _look(self, run_id: str, what: str, *, has_begun: bool) -> None:
        rows = await self.list(RunFilter(flow_id="single", limit=1000))
        group = next((row.group for row in rows if row.run_id == run_id), None)
        for row in rows:
            is_other = row.run_id != run_id and row.group == group and not row.status.is_final
            if group is not None and is_other and (not has_begun or row.run_id in self.begun):
                self.broken.append(f"{run_id} {what} while {row.run_id} of {group} is {row.status.value}.")


class WatchingShared(SharedStore):
    """Such a store in the middle of a world."""

    def __init__(self, world: Any, *, is_remote: bool, refuses: bool) -> None:
        super().__init__(world, is_remote=is_remote)
        self.broken: list[str] = []
        self.begun: set[str] = set()
        self._refuses = refuses

    def open_for(self, process: SimProcess) -> Opened:
        memory = Watching(self.clock if self.is_remote else process.system.clock, self.data)
        memory.broken, memory.begun, memory.refuses = self.broken, self.begun, self._refuses
        kind: type[Line] = RemoteLine if self.is_remote else LocalLine
        line = kind(self, process, memory)
        return Opened(cast(CheckpointStore, line), BlobLine(line, memory.artifacts), "simulated:")


class SingleTrial(FleetTrial):
    """Three workers, and two clients that start runs of the same keys, one of which drives some itself."""

    def __init__(self, seed: int, *, is_remote: bool, skew: float) -> None:
        chance = Random(seed)
        on_conflict = CHOICES[seed % len(CHOICES)]
        self._flow = played(single(on_conflict), ITSELF)
        elsewhere = "m2" if is_remote else "m1"
        workers = {
            f"worker-{n}": WorkerPlace([self._flow], "m1" if n % 2 else elsewhere, concurrency=n)
            for n in (1, 2, 3)
        }
        self._keys = {name: [f"k{chance.randrange(KEYS)}" for _ in range(STARTS)] for name in ("one", "two")}
        people = {name: partial(self._client, name) for name in self._keys}
        make = partial(WatchingShared, is_remote=is_remote, refuses=on_conflict in ("refuse", "join"))
        super().__init__(workers, people, is_remote=is_remote, skew=skew, make_store=make)

    def _client(self, name: str, world: FleetWorld, here: Here) -> None:
        made: list[str] = []
        with here.host() as host:
            for number, key in enumerate(self._keys[name]):
                start = partial(
                    host.start, self._flow, {"job": number, "key": key}, run_id=f"{name}-{number}"
                )
                try:
                    made.append(persist(here, start).run_id)
                except KeyTaken:
                    here.sleep(1)
            for run_id in made:
                while not persist(here, partial(host.info, run_id)).status.is_final:
                    here.sleep(1)

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        assert isinstance(world.store, WatchingShared)
        # Which starts are refused, join or replace depends on what else happens.
        broken = list(Judge(world, reader).all(world.explained))
        return [*broken, *(Broken("singles", said) for said in world.store.broken)]


def single_trial(seed: int, store: str) -> SingleTrial:
    """Return the trial that follows from a seed."""
    return SingleTrial(seed, **place(seed, store))
