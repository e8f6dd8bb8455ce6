"""The scenarios of the crash matrix in a simulated world: the same programs, flows and promises."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from everstep import Context, Flow, Host
from everstep.errors import LeaseConflict, LeaseLost, StoreUnavailable
from everstep.graph.author.flow import Flow as AnyFlow
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.model.waits import WaitRow
from everstep.ports.store import Commit, Verdict
from everstep.registry import Opened
from everstep.results import RunInfo, RunResult
from everstep.runtime.system import SystemClock
from everstep.runtime.workers.worker import Stats
from everstep.stores.memory import MemoryStore
from everstep.testing.killing import Killer
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader
from everstep.testing.simulation.faults import Decider, Fault
from everstep.testing.simulation.hub import SECOND, SimThread
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.process import SimClock, SimProcess, Surroundings
from everstep.testing.simulation.store import Line as StoreLine
from everstep.testing.simulation.store import SharedStore
from everstep.testing.simulation.trial import End, compared, ends_of
from everstep.testing.simulation.world import Here, World
from tests.acceptance.crash.flows.outages import Line
from tests.acceptance.crash.scenarios import RUN, Bodies, Hurry, Scenario

PATIENCE = 3 * 3600 * SECOND
"""How long a node waits for another's point: longer than what goes wrong keeps it away, if it comes. When a
clock is set back by an hour, a pause before a retry lasts as much longer."""
LATER = 2 * 3600 * SECOND
"""What a clock is moved on by: longer than any wait of these flows whose time is to be over by then."""
AGAIN = 10
"""Seconds after which a program tries again that could not reach the store, or its run."""


# -- what programs and flows of the matrix find in a simulated process ------------------------------------


class PassingClock(SimClock, Hurry):
    """The clock of a simulated machine. To move it on is to let time pass in the whole world."""

    def __init__(self, here: Here, folder: Path) -> None:
        super().__init__(here.world.hub, here.process.machine)
        self.folder = folder
        self._world = here.world

    @property
    def has_moved_on(self) -> bool:
        assert isinstance(self._world, ScenarioWorld)
        return self._world.is_late

    def move_on(self) -> None:
        assert isinstance(self._world, ScenarioWorld)
        self._world.let_time_pass()

    async def sleep_until(self, at: datetime) -> None:
        await SystemClock.sleep_until(self, at)


class WorldKiller(Killer):
    """Kills nothing, as the world does that; lets nodes wait for what another thread of theirs reaches."""

    def __init__(self, world: ScenarioWorld) -> None:
        super().__init__()
        self._world = world

    def body(self, name: str, **details: Any) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    def wait_for(self, point: str, seconds: float = 30.0) -> None:
        self._world.wait_for(point)


class WorldBodies(Bodies):
    """Nodes whose calls are points of the world already, and that meet on its threads."""

    def __init__(self, here: Here, folder: Path) -> None:
        assert isinstance(here.world, ScenarioWorld)
        super().__init__(WorldKiller(here.world), is_first_life=here.life == 1, folder=folder)
        self._arrived = 0
        self._are_both_here = here.process.system.event()

    def __call__(self, path: str, ctx: Context | None = None) -> AbstractContextManager[None]:
        return nullcontext()

    def meet(self) -> None:
        self._arrived += 1
        if self._arrived == 2:
            self._are_both_here.set()
        if self.is_first_life:
            self._are_both_here.wait(PATIENCE / SECOND)


class PlayedHost(Host):
    """A host in whose flows every call of a node is a point, whichever flow a program comes up with."""

    @classmethod
    def of(cls, host: Host) -> PlayedHost:
        """Return a host as this one."""
        mine = object.__new__(cls)
        vars(mine).update(vars(host))
        mine._flows = {}
        return mine

    _flows: dict[int, tuple[AnyFlow, AnyFlow]]
    """Each flow with the one that is played, by the id of the first."""

    def _played(self, given: tuple[Any, ...]) -> list[Any]:
        return [self._play(it) if isinstance(it, AnyFlow) else it for it in given]

    def _play(self, flow: AnyFlow) -> AnyFlow:
        if id(flow) not in self._flows:
            self._flows[id(flow)] = flow, played(flow, ITSELF)
        return self._flows[id(flow)][1]

    def run(self, *given: Any, **options: Any) -> RunResult:
        return super().run(*self._played(given), **options)

    def start(self, *given: Any, **options: Any) -> RunInfo:
        return super().start(*self._played(given), **options)

    def resume(self, *given: Any, **options: Any) -> RunResult:
        return super().resume(*self._played(given), **options)

    def work(self, *given: Any, **options: Any) -> Stats:
        [flows] = given
        return super().work(map(self._play, flows), **options)


# -- the world --------------------------------------------------------------------------------------------


class CutOff(MemoryStore):
    """What is behind a process's line to the store, unless the scenario's own line is cut."""

    def __init__(self, shared: ScenarioStore, process: SimProcess) -> None:
        super().__init__(shared.clock if shared.is_remote else process.system.clock, shared.data)
        self._line = shared.line
        self._process = process

    def _check(self) -> None:
        try:
            self._line.check()
        except StoreUnavailable:
            self._process.was_cut_off = True
            raise

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        self._check()
        return super().put_blocking(commits)

    def renew_blocking(self, leases: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        self._check()
        return super().renew_blocking(leases, ttl)

    async def release_lease(self, lease: Lease) -> None:
        self._check()
        await super().release_lease(lease)

    async def fire(self, run_id: str) -> list[WaitRow]:
        self._check()
        return await super().fire(run_id)


class ScenarioStore(SharedStore):
    """A store that nodes can cut off, as `flows/outages.py` does."""

    def __init__(self, world: Surroundings, folder: Path, *, is_remote: bool) -> None:
        super().__init__(world, is_remote=is_remote)
        self._folder = folder
        self.line = Line(folder)

    def open_for(self, process: SimProcess) -> Opened:
        opened = super().open_for(process)
        assert isinstance(opened.store, StoreLine)
        opened.store.rules = CutOff(self, process)
        return opened

    def copied(self) -> Any:
        """Return a copy of all that outlives a death; nothing if files are part of that."""
        return None if any(self._folder.iterdir()) else super().copied()


class ScenarioWorld(World):
    """A world whose threads can wait for points."""

    def __init__(self, seed: int, decider: Decider, folder: Path, *, is_remote: bool) -> None:
        make_store = partial(ScenarioStore, folder=folder, is_remote=is_remote)
        super().__init__(seed, decider, make_store=make_store)
        self._is_quiet = False
        self._folder = folder
        self._reached: set[str] = set()
        self._sleepers: dict[str, list[SimThread]] = {}
        self._later: int | None = None

    def decide(self, process: SimProcess, point: str, possible: tuple[Fault, ...]) -> Fault | None:
        label = f"{process.tag} {point}"
        self._reached.add(label)
        for thread in self._sleepers.pop(label, ()):
            self.hub.wake(thread)
        return super().decide(process, point, possible)

    def wait_for(self, point: str) -> None:
        """Return once another thread of this process has reached a point, or after a while."""
        thread = self.hub.current
        assert thread is not None and isinstance(thread.owner, SimProcess)
        label, until = f"{thread.owner.tag} {point}", self.hub.now + PATIENCE
        while label not in self._reached and self.hub.now < until:
            self._sleepers.setdefault(label, []).append(thread)
            self.hub.block(until)

    @property
    def is_late(self) -> bool:
        """True once a good while has passed."""
        return self._later is not None and self.hub.now >= self._later

    def let_time_pass(self) -> None:
        """Return a good while after this was called first."""
        if self._later is None:
            self._later = self.hub.now + LATER
            (self._folder / "later").touch()
        self.hub.pass_time(max(0, self._later - self.hub.now))


# -- what is tried ----------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What the judge of the matrix compares beside results: every attempt, and who was asked what."""

    attempts: Sequence[tuple[str, ...]]
    waits: Sequence[tuple[str, ...]]
    acts: Sequence[tuple[str, ...]]


class ScenarioTrial:
    """A scenario of the matrix in a process that begins anew whenever it dies."""

    def __init__(self, name: str, scenario: Scenario, folder: Path, *, is_remote: bool = False) -> None:
        self.name = name
        self.scenario = scenario
        self._folder = folder / "place"
        self._is_remote = is_remote
        self._whole: dict[str, Told] = {}

    def world(self, seed: int, decider: Decider) -> ScenarioWorld:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        world = ScenarioWorld(seed, decider, self._folder, is_remote=self._is_remote)
        world.start("app", self._program)
        return world

    def _program(self, here: Here) -> None:
        """Do what the matrix does in each life, and again when the store or the run could not be had."""
        Line(self._folder).restore()
        here.process.system.clock = PassingClock(here, self._folder)
        flow = self.scenario.flow(self.name, WorldBodies(here, self._folder))
        while True:
            try:
                self._run(here, flow)
            except (StoreUnavailable, LeaseLost, LeaseConflict) as error:
                here.world.ledger.tell(f"{here.process.tag} hears: {error}")
                here.sleep(AGAIN)
            else:
                return

    def _run(self, here: Here, flow: Flow) -> None:
        scenario = self.scenario
        with here.host(notifiers={"unknown": lambda notice: None}) as opened:
            host = PlayedHost.of(opened)
            result = scenario.program(host, flow, scenario.inputs)
            given = scenario.inputs if result.run_id == RUN else None
            again = host.run(flow, given, run_id=result.run_id)
            assert again.status is result.status, f"a run that is {result.status} is {again.status}"

    def ends(self, world: World, reader: Reader) -> dict[str, End]:
        kept = reader.kept(world)
        self._whole = {run: self._told(one) for run, one in kept.items()}
        return ends_of(kept)

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        judge = Judge(world, reader)
        broken = list(judge.all([]))
        broken += self._missing(judge.kept)
        if whole is not None:
            broken += self._compared(judge.kept, whole)
        return broken

    def _missing(self, kept: Collection[str]) -> Iterator[Broken]:
        for run in self.scenario.runs:
            if run not in kept:
                yield Broken("result", f"run {run!r} never was.")

    def _compared(self, kept: Mapping[str, Kept], whole: Mapping[str, End]) -> Iterator[Broken]:
        if self.scenario.is_chancy:
            for run, end in whole.items():
                if run in kept and kept[run].row.status is not end.status:
                    yield Broken("result", f"run {run!r} is {kept[run].row.status}, not {end.status}.")
            return
        yield from compared(ends_of(kept), whole)
        for run, expected in self._whole.items():
            if run in kept:
                yield from _other(run, self._told(kept[run]), expected)

    def _told(self, kept: Kept) -> Told:
        """Return what became of a run. Where an operator is asked after each death, as if asked once."""
        passing = (Status.HALTED, Status.RETRYING) if self.scenario.stops else ()
        forked_at = kept.row.forked_at or 0
        steps = [
            step
            for record, step in kept.steps
            if step.status is not Status.RUNNING
            and step.status not in passing
            and (record.sequence > forked_at or step.status is Status.COMPLETED)
        ]
        attempts = sorted(
            (step.path, f"{step.visit}", step.status.value, f"{step.attempts}") for step in steps
        )
        waits = sorted(
            (w.path, f"{w.visit}", w.kind, w.status.value, f"{w.settled_by}", f"{w.answer!r}")
            for w in kept.waits
        )
        acts = sorted(
            (step.path, f"{step.visit}", f"{step.act.by}", f"{step.act.comment}")
            for step in steps
            if step.act is not None
        )
        if self.scenario.stops:
            waits, acts = sorted(set(waits)), sorted(set(acts))
        return Told(attempts, waits, acts)


def _other(run: str, found: Told, expected: Told) -> Iterator[Broken]:
    for what in Told._fields:
        mine: Sequence[tuple[str, ...]] = getattr(found, what)
        others: Sequence[tuple[str, ...]] = getattr(expected, what)
        if mine != others:
            more = [one for one in mine if one not in others]
            less = [one for one in others if one not in mine]
            count = "" if more or less else f" ({len(mine)}, not {len(others)})"
            yield Broken("result", f"run {run!r} has other {what}{count}: {more} in place of {less}.")
