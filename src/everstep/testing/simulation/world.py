"""A world: machines, processes on them, one store, and what goes wrong. Read this first.

A world is made for one schedule. Programs are started in it as processes; the hub lets their threads go on
one at a time; every write to the store and every call of a node is a point at which the decider may let
something go wrong. When all programs have ended, the ledger says what was seen.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from everstep.client.host import AsyncHost
from everstep.client.sync import Host
from everstep.errors import EverstepError
from everstep.testing.simulation.faults import Decider, Fault, Nothing, Taken
from everstep.testing.simulation.hosts import async_host_of, host_of
from everstep.testing.simulation.hub import SECOND, Dead, Hub, SimThread
from everstep.testing.simulation.ledger import Death, Ledger
from everstep.testing.simulation.loop import SimRunner
from everstep.testing.simulation.process import Machine, SimProcess, Surroundings
from everstep.testing.simulation.snapshots import Snapshot, fill, taken
from everstep.testing.simulation.store import Shared, SharedStore

Program = Callable[["Here"], None]
"""What a process does: called anew in each of its lives, until it returns."""
MakeStore = Callable[[Surroundings], Shared]
"""Makes the store of a world, where that is not to be one in memory."""
RESTART = 1 * SECOND
REBOOT = 45 * SECOND
STALL = 90 * SECOND
OUTAGES = {Fault.OUTAGE: 3 * SECOND, Fault.LONG_OUTAGE: 100 * SECOND}
FULL = 20 * SECOND
END_OF_TIME = 400 * 24 * 3600 * SECOND
"""A world that goes on for longer than this does not end."""
MOST_LIVES = 40
FIRST_PID = 1000
log = logging.getLogger("everstep")


class NeverEnds(AssertionError):
    """A world goes on and on, or stands still with something left to do."""


class Here:
    """What a program knows of its place in the world."""

    def __init__(self, world: World, process: SimProcess) -> None:
        self.world = world
        self.process = process
        self.life = process.life
        """1, or more if the process died before."""

    def host(self, **options: Any) -> Host:
        """Open a `Host` on the world's store, on this process's machine."""
        return host_of(self.process, self.world.store.open_for(self.process), options)

    def async_host(self, **options: Any) -> AsyncHost:
        """Open an `AsyncHost`, for what runs on a loop of this process, as `here.runner()` gives one."""
        return async_host_of(self.process, self.world.store.open_for(self.process), options)

    def runner(self) -> SimRunner:
        """Return an event loop for this thread."""
        return self.process.system.runner()

    def sleep(self, seconds: float) -> None:
        """Let time pass for this thread."""
        self.world.hub.pass_time(round(seconds * SECOND))


class World:
    """One schedule of a simulated world."""

    def __init__(
        self,
        seed: int = 0,
        decider: Decider | None = None,
        *,
        is_remote: bool = False,
        is_awaited: bool = False,
        skew: float = 0.0,
        make_store: MakeStore | None = None,
    ) -> None:
        self.seed = seed
        self._decider = decider or Nothing()
        self._is_quiet = type(self._decider) is Nothing
        """True if nothing is decided, whatever the point, and points need not be heard of."""
        self.hub = Hub(self._choose)
        self.ledger = Ledger(self.hub)
        self.store: Shared = (
            make_store(self) if make_store else SharedStore(self, is_remote=is_remote, is_awaited=is_awaited)
        )
        self._skew = skew
        self.machines: dict[str, Machine] = {}
        self.processes: list[SimProcess] = []
        self._running: dict[int, SimProcess] = {}
        self._programs: dict[str, Program] = {}
        self._open: set[str] = set()
        """Programs that have not come to their end."""
        self._lives: dict[str, int] = {}
        self._turns = 0
        self.troubles: list[str] = []
        self.misuse: EverstepError | None = None
        """What the caller has to do otherwise, if that is what went wrong."""
        self.snapshots: dict[str, Snapshot] = {}
        """The world at its points, if those are kept."""
        self._rolled: Any = None
        """How far dice were rolled in the world that this one goes on from."""
        self.clocks_were_moved = False
        self.explained: list[Any] = []
        """What was said of runs before processes took them up."""

    # -- programs -----------------------------------------------------------------------------------------

    def machine(self, name: str = "m1") -> Machine:
        """Return a machine; each but the first may have a clock that is wrong."""
        if name not in self.machines:
            ahead = self._skew if self.machines else 0.0
            self.machines[name] = Machine(self.hub, name, ahead=ahead)
        return self.machines[name]

    def start(self, name: str, program: Program, *, machine: str = "m1", after: float = 0.0) -> None:
        """Start a program as a process, and again whenever that has died, until it returns."""
        self._programs[name] = program
        self._open.add(name)
        self.hub.at(self.hub.now + round(after * SECOND), lambda: self._begin(name, self.machine(machine)))

    def _begin(self, name: str, machine: Machine) -> None:
        life = self._lives[name] = self._lives.get(name, 0) + 1
        if life > MOST_LIVES:
            raise NeverEnds(f"{name} has died {MOST_LIVES} times.")
        pid = FIRST_PID + len(self.processes)
        process = SimProcess(self, machine, name, life, pid)
        self.processes.append(process)
        self._running[pid] = process
        if life > 1:
            self.ledger.note_life(process, "begins, as the one before it died")
        process.start(lambda: self._live(process), "main")

    def _live(self, process: SimProcess) -> None:
        try:
            self._programs[process.name](Here(self, process))
            process.await_nodes()
        finally:
            if not process.is_dead:
                self._ended(process)

    def _ended(self, process: SimProcess) -> None:
        process.is_over = True
        self._running.pop(process.pid, None)
        self._open.discard(process.name)
        for thread in process.threads:
            if thread is not self.hub.current:
                thread.is_over = True
        if not self._open:
            self.hub.is_over = True

    def is_running(self, pid: int) -> bool:
        """True if a process lives."""
        return pid in self._running

    def kill(self, process: SimProcess, restart: int = RESTART) -> None:
        """End a process as `kill -9` would; it begins anew a little later."""
        self._running.pop(process.pid, None)
        self.ledger.deaths.append(Death(process.pid, process.driving()))
        if process.name in self._open:
            self.hub.at(self.hub.now + restart, lambda: self._begin(process.name, process.machine))
        self.store.abandon(process)
        process.die()

    def _cut_power(self, machine: Machine, label: str) -> None:
        """Take a machine down: what it knew is gone but for its disk, and it boots a while later."""
        machine.boots += 1
        mine = self.hub.current
        here = [p for p in self._running.values() if p.machine is machine]
        for process in here:
            self.store.abandon(process)
        self.store.lose_power(label)
        for process in sorted(here, key=lambda p: mine is not None and mine.owner is p):  # our own last
            self.kill(process, REBOOT)

    # -- what goes wrong ----------------------------------------------------------------------------------

    def reach(self, process: SimProcess, point: str, possible: tuple[Fault, ...]) -> Fault | None:
        """Come to a point. What concerns the process or the store happens here; the rest is returned."""
        if self._is_quiet and not (process.is_dead or self.ledger.keeps_points):
            return None
        fault = self.decide(process, point, possible)
        return None if fault is None or self.strike(process, point, fault) else fault

    def decide(self, process: SimProcess, point: str, possible: tuple[Fault, ...]) -> Fault | None:
        """Say what goes wrong at a point, and let it happen later."""
        if process.is_dead:
            raise Dead
        if self._is_quiet and not self.ledger.keeps_points:
            return None
        label = f"{process.tag} {point}"
        if self.ledger.keeps_points:
            self.ledger.points.append((label, possible))
            self._keep(label, point, process)
        fault = self._decider.fault(label, possible)
        if fault is not None:
            self.ledger.note_fault(process, point, fault)
        return fault

    def strike(self, process: SimProcess, point: str, fault: Fault) -> bool:
        """Let happen what concerns the process or the store; false if it is for others to do."""
        if fault is Fault.CRASH:
            self.kill(process)
        elif fault is Fault.POWER_CUT:
            self._cut_power(process.machine, f"{process.tag} {point}")
        elif fault is Fault.STALL:
            process.was_cut_off = True
            process.stalled_until = self.hub.now + STALL
            while self.hub.now < process.stalled_until:
                self.hub.block(process.stalled_until)
        elif fault in OUTAGES:
            self.store.away_until = max(self.store.away_until, self.hub.now + OUTAGES[fault])
        elif fault is Fault.FULL:
            self.store.full_until = max(self.store.full_until, self.hub.now + FULL)
        elif fault is Fault.CLOCK_AHEAD:
            self.clocks_were_moved = True
            process.machine.ahead += timedelta(seconds=120)
        elif fault is Fault.CLOCK_BACK:
            self.clocks_were_moved = True
            process.machine.ahead -= timedelta(hours=1)
        else:
            return False
        return True

    def _keep(self, label: str, point: str, process: SimProcess) -> None:
        """Take a snapshot, if a death at this point would end all that is under way."""
        kept = self.store.copied() if len(self._running) == len(self._programs) == 1 else None
        if kept is not None:
            spooled = process.machine.spooled
            self.snapshots[label] = taken(label, point, self.hub.now, self._turns, self.ledger, kept, spooled)

    def go_on_from(self, snapshot: Snapshot, whole: Ledger, fault: Fault) -> None:
        """Begin with the death of the only process at a point that another world has reached."""
        [name] = self._programs
        self.hub.now, self._turns, self._rolled = snapshot.now, snapshot.turns, snapshot.dice
        self.hub.forget_timers()
        fill(self.ledger, whole, snapshot)
        self.store.turn_to(snapshot.data)
        machine = self.machine()
        machine.spooled = {run_id: list(commits) for run_id, commits in snapshot.spooled.items()}
        self._lives[name] = 1
        died = SimProcess(self, machine, name, 1, FIRST_PID)
        self.processes.append(died)
        self.ledger.note_fault(died, snapshot.point, fault)
        died.is_dead = died.was_killed = True
        if fault is Fault.POWER_CUT:
            machine.boots += 1
        after = REBOOT if fault is Fault.POWER_CUT else RESTART
        self.hub.at(self.hub.now + after, lambda: self._begin(name, machine))

    def owner_of(self, run_id: str, process: SimProcess) -> str | None:
        """Return which process has a run by the store's word, if that is another one than this."""
        row = self.store.row(run_id)
        lease = row.lease if row is not None else None
        if lease is None or lease.process is None:
            return None
        owner = self._running.get(lease.process.pid)
        return owner.tag if owner is not None and owner is not process else None

    def store_is_empty_of_spools(self, run_id: str) -> bool:
        """True if nothing of a run waits on a machine."""
        return not any(run_id in machine.spooled for machine in self.machines.values())

    def _choose(self, ready: list[SimThread]) -> int:
        self._turns += 1
        label = f"turn {self._turns}"
        k = self._decider.turn(label, len(ready))
        if k:
            self.ledger.taken.append(Taken(label, str(k)))
        return k

    # -- running it ---------------------------------------------------------------------------------------

    def run(self, *, returns_dice: bool = True) -> None:
        """Let everything happen, until all programs have ended; what is left of them is freed.

        Nodes roll the dice of `random`, which are then as they were before; unless its caller sees to that.
        """
        before = log.handlers, log.propagate
        log.handlers, log.propagate = [cast(logging.Handler, _Listener(self))], False
        try:
            self._run(returns_dice)
        finally:
            log.handlers, log.propagate = before

    def _run(self, returns_dice: bool) -> None:
        state = random.getstate() if returns_dice else None
        # So that nodes that roll dice roll the same ones, and others in each life.
        random.setstate(self._rolled) if self._rolled is not None else random.seed(self.seed)
        try:
            self.hub.at(END_OF_TIME, self._give_up)
            self.hub.run()
            if self.hub.interrupted is not None:
                raise self.hub.interrupted
            if self.hub.hangs:
                raise NeverEnds(
                    f"threads have waited {self.hub.waits:,} times: they go round and round, or do more than "
                    f"can be simulated.{self._heard()}"
                )
            if self._open:
                left = ", ".join(sorted(self._open))
                raise NeverEnds(f"nothing can happen any more, and {left} has not ended.{self._heard()}")
            self.troubles += [t for p in self.processes if not p.is_dead for t in p.troubles]
        finally:
            if state is not None:
                random.setstate(state)
            for process in self.processes:
                process.free()

    def _give_up(self) -> None:
        raise NeverEnds(f"after 400 days {', '.join(sorted(self._open))} has not ended.{self._heard()}")

    def _heard(self) -> str:
        """Return which errors ended programs, as others may wait for those."""
        return "".join(f" {trouble}" for p in self.processes if not p.is_dead for trouble in p.troubles)

    def close(self) -> None:
        """Free the store and what was driven, which others may look at until then.

        The parts of a world know each other. They are taken apart, so that they are gone at once: to find
        them later takes the garbage collector as long as a tenth of a schedule.
        """
        if not vars(self):
            return
        self.store.close()
        for process in self.processes:
            process.take_apart()
        for part in (self.ledger, self.hub, self.store, self):
            vars(part).clear()


class _Listener:
    """Takes what the runtime logs into the story of the world it happens in.

    It has what a logger asks of its handlers; a real one has a lock, and logging keeps a list of all.
    """

    level = logging.NOTSET

    def __init__(self, world: World) -> None:
        self._world = world

    def handle(self, record: logging.LogRecord) -> None:
        world, thread = self._world, self._world.hub.current
        if thread is not None and not thread.is_over:
            assert isinstance(thread.owner, SimProcess)
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += f" [{type(record.exc_info[1]).__name__}: {record.exc_info[1]}]"
            world.ledger.tell(f"{thread.owner.tag} logs: {text}")
