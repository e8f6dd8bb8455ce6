"""Whatever happens to runs, clean-up under whatever rules takes nothing that anybody still needs.

Worlds of runs, forks of forks, pins, open waits, shared artifacts and trims are made at random; clean-up
comes at any time, also while a run is driven. Afterwards every run that is left shows what it showed before,
and at the end goes on to its end. `EVERSTEP_SOAK=1` tries many more of them.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from everstep import AsyncHost, Durability, Flow, Host, Retention, Status, node, wait
from everstep.errors import BadRequest, CheckpointPinned, LeaseConflict, RunErased, RunNotFound
from everstep.model.waits import WaitStatus
from everstep.ports.store import RunRow
from everstep.registry import Opened, open_store
from everstep.results import RunInfo
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing import ManualClock

HOUR = timedelta(hours=1)
LARGE = 300
IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
POLICIES = (
    Retention(),
    Retention(keep_last=1),
    Retention(keep_last=3, whole=1),
    Retention(whole=1),
    Retention(keep_for="1h"),
    Retention(keep_for="0s", abandoned_for="0s"),
    Retention(completed_for="2h", whole=2),
    Retention(abandoned_for="30h", keep_last=2),
)
OPS = (
    *("work", "work", "work", "ask", "fail", "fail", "both", "both", "slow", "slow", "accept"),
    *("fork", "fork_at", "pin", "unpin", "answer", "resume", "clean_up", "leave", "hold", "orphan"),
    *("advance", "advance", "gc", "gc", "gc", "gc", "erase"),
)
"""What happens, the likelier the more often it stands here."""


def history(seed: int) -> list[tuple[str, int, int]]:
    """Return what happens in one world."""
    chance = Random(seed)
    begins = [(chance.choice(("work", "fail", "both")), chance.randrange(8), 0) for _ in range(3)]
    return begins + [
        (chance.choice(OPS), chance.randrange(8), chance.randrange(8)) for _ in range(chance.randint(6, 24))
    ]


def page_of(text: str) -> str:
    return f"{text} " * LARGE


class World:
    """One store and two hosts on it, and what each run is known to show."""

    def __init__(self, open_it: Callable[[ManualClock], Opened]) -> None:
        self.clock = ManualClock(auto=True)
        self.host = Host(open_it(self.clock), clock=self.clock)
        self.sweeper = Host(open_it(self.clock), clock=self.clock)
        self.count = 0
        self.is_fixed = False
        self.meanwhile: Callable[[], object] = lambda: None
        self.done: Counter[str] = Counter()
        strong = Durability("strong", blob_threshold=100)

        @node(output="page")
        def fetch(text: str) -> str:
            return page_of(text)

        @node(output="size")
        def measure(page: str) -> int:
            return len(page)

        @node(output="size")
        def fragile(page: str) -> int:
            if not self.is_fixed:
                raise ValueError("not yet")
            return len(page)

        @node(output="size")
        def slowly(page: str) -> int:
            self.meanwhile()
            return len(page)

        ask = wait.approval("ask", prompt="Well?")
        self.flows = {
            "work": Flow("work", [fetch, measure], durability=strong),
            "ask": Flow("ask", [fetch, measure, ask], durability=strong),
            "fail": Flow("fail", [fetch, fragile], durability=strong),
            "both": Flow("both", [fetch, fragile, ask], durability=strong),
            "slow": Flow("slow", [fetch, slowly], durability=Durability("partial", blob_threshold=100)),
        }

    def close(self) -> None:
        self.host.close()
        self.sweeper.close()

    def runs(self) -> list[RunInfo]:
        return self.host.runs(limit=1000)

    def one(self, k: int) -> RunInfo | None:
        found = self.runs()
        return found[k % len(found)] if found else None

    def begin(self, flow: str, k: int, j: int) -> None:
        self.count += 1
        name = f"{flow}-{self.count}"
        if flow == "slow":
            self.meanwhile = partial(self.wait_and_clean, j * 20 * 3600, k)
        self.host.run(self.flows[flow], {"text": f"text {k % 3}"}, run_id=name)
        self.meanwhile = lambda: None

    def wait_and_clean(self, seconds: float, k: int) -> None:
        self.clock.advance(seconds)
        self.clean(k)

    def act(self, op: str, k: int, j: int) -> None:
        if op in self.flows:
            self.begin(op, k, j)
        elif op == "advance":
            self.clock.advance(j * 7 * 3600)
        elif op == "gc":
            self.clean(k)
        elif op == "orphan":
            data = page_of(f"orphan {k}").encode()
            assert self.host._host._services.blobs is not None
            self.host._host._services.blobs.put_checkpoint_blob(b"\x01\x00", data, content_type="text/x")
        elif op == "accept":
            self.count += 1
            self.host.start(self.flows["work"], {"text": f"text {k % 3}"}, run_id=f"accepted-{self.count}")
        elif (run := self.one(k)) is not None:
            self.to(run, op, j)

    def to(self, run: RunInfo, op: str, j: int) -> None:
        host, name = self.host, run.run_id
        try:
            if op == "fork":
                host.fork(name, fork_id=f"{name}.f{self.count}" if len(name) < 60 else None)
                self.count += 1
            elif op == "fork_at":
                host.fork(name, at=1 + j % run.checkpoints, state={"page": page_of(f"text {j % 3}")})
            elif op in ("pin", "unpin"):
                host.retention.pin(name, "why not") if op == "pin" else host.retention.unpin(name)
            elif op == "answer":
                for waiting in host.waits(name)[:1]:
                    host.answer(waiting.id, {"approved": True})
            elif op == "resume":
                host.resume(name, self.flows[run.flow], at_once=True)
            elif op == "clean_up":
                host.retention.clean_up(name, keep=1)
            elif op == "erase":
                host.retention.erase(name)
            else:
                self.claim(name, timedelta(seconds=30) if op == "leave" else timedelta(days=30))
        except (CheckpointPinned, LeaseConflict, RunNotFound):
            pass
        except BadRequest as error:
            assert "is" in error.message

    def claim(self, name: str, ttl: timedelta) -> None:
        """Give a run an owner that never comes back, or one that takes long."""
        self.host._lanes.call(
            lambda one: one._services.store.lease(name, owner="another", ttl=ttl, process=None)
        )

    def clean(self, k: int) -> None:
        """Clean up, and see that nothing is gone that anybody needs."""
        before = {run.run_id: run for run in self.runs()}
        needed = self.needed(before)
        shown = {name: self.shows(name) for name in before}
        found = self.sweeper.retention.gc(retention=POLICIES[k % len(POLICIES)])
        assert not found.problems and not found.artifacts.problem
        self.done.update(one.action for one in found.runs)
        self.done.update(one.reason for one in found.spared)
        self.done["sweep"] += found.artifacts.removed
        after = {run.run_id: run for run in self.runs()}
        assert needed <= after.keys(), f"{needed - after.keys()} went, although it is needed"
        for name, run in after.items():
            now = self.shows(name)
            assert now["newest"] == shown[name]["newest"], f"run {name} shows something else"
            for at, values in now.items():
                assert shown[name].get(at, values) == values
            if run.pinned is not None or name in self.parents(after):
                assert shown[name].keys() <= now.keys(), f"checkpoints of {name} went, although it is needed"

    def parents(self, runs: dict[str, RunInfo]) -> set[str]:
        return {run.parent_run_id for run in runs.values() if run.parent_run_id is not None}

    def needed(self, runs: dict[str, RunInfo]) -> set[str]:
        """Name the runs that must stay, and all that they go on from."""
        found = set()
        for name, run in runs.items():
            row = self.host._lanes.call(partial(_row, name))
            is_held = row.lease is not None and row.lease.expires_at > self.clock.now()
            is_waiting = run.status is Status.HALTED or (run.status is Status.RUNNING and row.lease is None)
            has_waits = any(self.host.waits(name, status=s) for s in (WaitStatus.OPEN, WaitStatus.SETTLED))
            if is_held or is_waiting or has_waits or run.pinned is not None:
                found.add(name)
        while more := {runs[n].parent_run_id for n in found if runs[n].parent_run_id} - found:
            found |= {name for name in more if name is not None}
        return found

    def shows(self, name: str) -> dict[Any, str]:
        """Read every checkpoint of a run that is there, artifacts included."""
        found: dict[Any, str] = {}
        for checkpoint in self.host.checkpoints(name):
            if not checkpoint.is_trimmed:
                found[checkpoint.sequence] = self.digest(name, checkpoint.sequence)
        found["newest"] = self.digest(name, None)
        return found

    def digest(self, name: str, at: int | None) -> str:
        values = dict(self.host.state(name, at))
        return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()

    def finish(self) -> None:
        """Bring every run that is left to its end."""
        self.is_fixed = True
        self.clock.advance(31 * 24 * 3600)
        for run in self.runs():
            for waiting in self.host.waits(run.run_id):
                self.host.answer(waiting.id, {"approved": True})
            result = self.host.resume(run.run_id, self.flows[run.flow])
            if result.status is Status.HALTED:
                for waiting in self.host.waits(run.run_id):
                    self.host.answer(waiting.id, {"approved": True})
                result = self.host.resume(run.run_id, self.flows[run.flow])
            assert result.status in (Status.COMPLETED, Status.CANCELLED), f"{run.run_id}: {result.error}"
            assert result["size"] == len(result["page"])
        for verified in self.host.storage.verify():
            assert verified.problem == ""
        self.leaves_no_orphan()

    def leaves_no_orphan(self) -> None:
        """What no one names is gone in the end: clean-up that removes nothing would pass all else."""
        self.clock.advance(48 * 3600)
        self.sweeper.retention.gc(retention=Retention(keep_for="0s", abandoned_for="0s"))
        left = {run.run_id for run in self.runs() if run.pinned is None}
        assert left <= self.parents({run.run_id: run for run in self.runs()}), left
        blobs = self.host._host._services.blobs
        assert blobs is not None and blobs.retaining is not None
        if not self.runs():
            assert blobs.retaining.list_checkpoint_blobs() == []


async def _row(name: str, host: AsyncHost) -> RunRow:
    found = await host._services.store.run(name)
    assert found is not None
    return found


def play(open_it: Callable[[ManualClock], Opened], steps: list[tuple[str, int, int]]) -> Counter[str]:
    """Let things happen; returns what clean-up did."""
    world = World(open_it)
    try:
        for op, k, j in steps:
            world.act(op, k, j)
        world.finish()
        return world.done
    finally:
        world.close()


def in_memory() -> Callable[[ManualClock], Opened]:
    data = MemoryData()

    def open_it(clock: ManualClock) -> Opened:
        store = MemoryStore(clock, data)
        return Opened(store, store.artifacts, "memory:")

    return open_it


def seeds(many: int) -> list[int]:
    if not IS_SOAK:
        return list(range(many))
    first = int(os.environ.get("EVERSTEP_SEED", "0"))
    return list(range(first, first + 20 * many))


def test_clean_up_takes_nothing_that_is_needed_in_memory() -> None:
    done: Counter[str] = Counter()
    for seed in seeds(60):
        try:
            done.update(play(in_memory(), history(seed)))
        except BaseException as error:
            error.add_note(f"this was world {seed}: {history(seed)}")
            raise
    # Worlds in which nothing is removed, or nothing is in the way, would show nothing.
    for what in ("erase", "trim", "sweep", "a fork goes on from it", "it has a wait that is not closed"):
        assert done[what] >= 5, done


def test_clean_up_takes_nothing_that_is_needed_on_sqlite(tmp_path: Path) -> None:
    for seed in seeds(10):
        url = f"sqlite:///{tmp_path}/{seed}.db?synchronous=off"
        try:
            play(partial(open_store, url), history(seed))
        except BaseException as error:
            error.add_note(f"this was world {seed}: {history(seed)}")
            raise


def test_an_erased_run_is_no_run_to_pin() -> None:
    world = World(in_memory())
    world.begin("work", 0, 0)
    world.host.retention.erase("work-1")
    with pytest.raises(RunErased):
        world.host.retention.pin("work-1")
    world.close()
