"""Simulated processes on simulated machines, and what the runtime takes from them."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from everstep.errors import EverstepError
from everstep.model.leases import Process
from everstep.ports.system import Clock, Ids, Processes
from everstep.runtime.system import SystemClock
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.hub import SECOND, Dead, Hub, SimThread
from everstep.testing.simulation.ledger import Ledger
from everstep.testing.simulation.loop import SimLoop, SimRunner
from everstep.testing.simulation.threads import (
    SimCondition,
    SimEvent,
    SimExecutor,
    SimLock,
    SimQueue,
    make,
    wait_for,
)

if TYPE_CHECKING:
    from everstep.ports.store import Commit

T = TypeVar("T")
BEGAN = datetime(2030, 1, 1, tzinfo=UTC)
"""What an honest clock shows when a world begins."""
_ODD = 0x9E3779B97F4A7C15
"""Scatters ids, so that nothing can rest on their order."""


class Machine:
    """A simulated machine: its clock, its disk, and since when it has been up."""

    def __init__(self, hub: Hub, name: str, *, ahead: float = 0.0) -> None:
        self._hub = hub
        self.name = name
        self.ahead = timedelta(seconds=ahead)
        """How wrong its clock is."""
        self._shown = (-1, self.ahead, BEGAN)
        """What its clock showed last, and why: it is looked at more often than time passes."""
        self.boots = 1
        self.spooled: dict[str, list[Commit]] = {}
        """What waits on its disk for the store."""

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def now(self) -> datetime:
        at, ahead, shown = self._shown
        if at != self._hub.now or ahead is not self.ahead:
            at, ahead = self._hub.now, self.ahead
            shown = BEGAN + timedelta(0, 0, at)
            shown = shown + ahead if ahead else shown
            self._shown = (at, ahead, shown)
        return shown


class SimClock(SystemClock):
    """The clock of a machine. Sleeping on it is as on the real one, on a loop whose time is the world's."""

    def __init__(self, hub: Hub, machine: Machine) -> None:
        self._hub = hub
        self.now = machine.now

    def monotonic(self) -> float:
        return self._hub.now / SECOND


class SimIds:
    """Ids and chance that depend on nothing but the seed, the process, and how often it asked."""

    def __init__(self, seed: int, tag: str) -> None:
        self._origin = zlib.crc32(f"{seed} {tag}".encode())
        self._count = 0

    def new_id(self) -> str:
        self._count += 1
        low = (self._count * _ODD) & 0xFFFFFFFFFFFF
        return f"{self._origin:08x}-{self._count & 0xFFFF:04x}-4000-8000-{low:012x}"

    def chance(self) -> float:
        self._count += 1
        return zlib.crc32(f"{self._origin} {self._count}".encode()) / 2**32

    def random_bytes(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            self._count += 1
            found += zlib.crc32(f"{self._origin} b {self._count}".encode()).to_bytes(4)
        return found[:count]


class Table(Protocol):
    """Which processes there are."""

    def is_running(self, pid: int) -> bool: ...


class SimProcesses:
    """The process table of a machine."""

    def __init__(self, table: Table, machine: Machine, pid: int) -> None:
        self._table = table
        self._machine = machine
        self._me = Process(machine.boot_id, "pid:[1]", pid, pid)

    def here(self) -> tuple[str, int]:
        return self._machine.name, self._me.pid

    def me(self) -> Process | None:
        return self._me

    def is_here(self, process: Process) -> bool:
        return process.boot_id == self._machine.boot_id

    def is_gone(self, process: Process) -> bool:
        return self.is_here(process) and not self._table.is_running(process.pid)


class Surroundings(Table, Protocol):
    """The world of a process, as far as that knows it."""

    hub: Hub
    seed: int
    ledger: Ledger
    misuse: EverstepError | None

    def reach(self, process: SimProcess, point: str, possible: tuple[Fault, ...]) -> Fault | None:
        """Come to a point. What concerns the process or the store happens there; the rest is returned."""

    def decide(self, process: SimProcess, point: str, possible: tuple[Fault, ...]) -> Fault | None:
        """Say what goes wrong at a point, and let it happen later."""

    def strike(self, process: SimProcess, point: str, fault: Fault) -> bool:
        """Let happen what concerns the process or the store; false if it is for others to do."""

    def kill(self, process: SimProcess) -> None:
        """End a process as `kill -9` would."""

    def owner_of(self, run_id: str, process: SimProcess) -> str | None:
        """Return which process has a run by the store's word, if that is another one than this."""


class SimProcess:
    """One life of a simulated process: its threads, its loops and its end."""

    def __init__(self, world: Surroundings, machine: Machine, name: str, life: int, pid: int) -> None:
        self.world = world
        self.hub = world.hub
        self.machine = machine
        self.name, self.life, self.pid = name, life, pid
        self.tag = f"{name}.{life}"
        """What it is called in labels: its name, and which of its lives this is."""
        self.is_dead = False
        self.was_killed = False
        """True if it died before its program had ended."""
        self.is_over = False
        """True once its program has ended by itself."""
        self.stalled_until = 0
        self._was_cut_off = False
        self._heard: dict[tuple[str, int], bool] = {}
        """Which runs it was told since that it has, and by which leases."""
        self.threads: list[SimThread] = []
        self.loops: list[SimLoop] = []
        self.hosts: list[Any] = []
        """Its hosts, with their twins."""
        self.troubles: list[str] = []
        """Errors that no one handled."""
        self.counts: dict[str, int] = {}
        """How often it came to each kind of point."""
        self._system: SimSystem | None = None

    @property
    def system(self) -> SimSystem:
        """What its hosts take from its machine."""
        if self._system is None:
            self._system = SimSystem(self, self.world, self.world.seed)
        return self._system

    def start(self, work: Callable[[], None], name: str) -> SimThread:
        """Start a thread of this process."""
        if self.is_dead:
            raise Dead
        thread = SimThread(name, self, partial(self._live, work))
        self.threads.append(thread)
        return self.hub.start(thread)

    def _live(self, work: Callable[[], None]) -> None:
        thread = self.hub.current
        assert thread is not None
        try:
            work()
        except Dead:
            pass
        except KeyboardInterrupt as error:
            if not self.is_dead:
                self.hub.interrupt(error)
        except BaseException as error:
            if not self.is_dead:
                self.failed(thread.name, error)
        if not self.is_dead:
            self.hub.ended(thread)

    @property
    def was_cut_off(self) -> bool:
        """True if it was stopped for a while, or lost the store: it may not know what it has lost since."""
        return self._was_cut_off

    @was_cut_off.setter
    def was_cut_off(self, is_so: bool) -> None:
        self._was_cut_off = is_so
        self._heard.clear()

    def hears(self, run_id: str, epoch: int, *, has_it: bool) -> None:
        """Learn from the store whether it has a run, by one of its leases."""
        self._heard[run_id, epoch] = has_it

    def is_sure_of(self, run_id: str, epoch: int) -> bool:
        """True if it lives, and has no reason to doubt that it has a run by this lease."""
        return not self.is_dead and self._heard.get((run_id, epoch), not self._was_cut_off)

    def driving(self) -> frozenset[str]:
        """Return the runs that it drives."""
        return frozenset(drive._run.run_id for host in self.hosts for drive in tuple(host._services.driving))

    def failed(self, thread: str, error: BaseException) -> None:
        """Take note of an error that ended a thread."""
        self.troubles.append(f"{thread} of {self.tag} ended with {type(error).__name__}: {error}")

    def was_misused(self, error: EverstepError) -> None:
        """Take note of an error that says what the caller of the simulation has to do otherwise."""
        self.troubles.append(str(error))
        self.world.misuse = error

    def heard_of(self, context: dict[str, Any]) -> None:
        """Take note of an error that no task of an event loop handles."""
        if not self.is_dead:
            error = context.get("exception")
            what = f": {type(error).__name__}: {error}" if error is not None else ""
            self.troubles.append(f"the event loop of {self.tag} heard of: {context.get('message')}{what}")

    def default_executor(self) -> SimExecutor:
        """Return the threads for work of no particular kind."""
        return self.system.executor(4, "default")

    def await_nodes(self) -> None:
        """Wait, as the end of a program does, for sync nodes that no one has given up on."""
        for host in self.hosts:
            pool = host._services._threads._pool
            if pool is not None:
                pool._calls.wait()

    def count(self, kind: str) -> int:
        """Return which point of its kind this is."""
        number = self.counts[kind] = self.counts.get(kind, 0) + 1
        return number

    def die(self) -> None:
        """End as `kill -9` would: nothing that it does from here on counts, and its threads do not go on."""
        self.is_dead = self.was_killed = True
        for thread in self.threads:
            thread.is_over = True
        current = self.hub.current
        if current is not None and current.owner is self:
            self.hub.hand_over()
            raise Dead  # when the world frees its stack

    def free(self) -> None:
        """Free what is left of it."""
        self.is_dead = True
        for thread in self.threads:
            thread.unwind()
        for loop in self.loops:
            loop.abandon()
        self.threads.clear()
        self.loops.clear()

    def take_apart(self) -> None:
        """Let its parts go that know each other, once no one looks at it any more."""
        for host in self.hosts:
            host.take_apart()
        vars(self).clear()
        self.is_dead = True  # which threads that the interpreter ends with itself still ask


class SimSystem:
    """What a host takes from its machine, in the simulated world."""

    def __init__(self, process: SimProcess, table: Table, seed: int) -> None:
        self._process = process
        hub = self._hub = process.hub
        ids = SimIds(seed, process.tag)
        self.clock: Clock = SimClock(hub, process.machine)
        self.ids: Ids = ids
        self.random_bytes = ids.random_bytes
        self.processes: Processes = SimProcesses(table, process.machine, process.pid)
        self.lock = partial(SimLock, hub)
        self.condition = partial(SimCondition, hub)
        self.event = partial(SimEvent, hub)
        self.queue = partial(SimQueue[Any], hub)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def to_thread(self, work: Callable[..., T], /, *arguments: Any) -> T:
        future: Future[T] = Future()
        self._process.start(partial(make, future, partial(work, *arguments)), "to_thread")
        return await asyncio.wrap_future(future)

    def spawn(self, work: Callable[[], None], name: str) -> JoinableThread:
        return JoinableThread(self._process.start(work, name), self._hub)

    def runner(self) -> SimRunner:
        return SimRunner(self.new_loop())

    def new_loop(self) -> SimLoop:
        """Return an event loop for a thread of this process."""
        if self._process.is_dead:
            raise Dead
        return SimLoop(self._hub, self._process)  # type: ignore[abstract]  # only what asyncio calls of it

    def executor(self, most: int, name: str) -> SimExecutor:
        return SimExecutor(self._hub, self._process.start, most, name)

    def wait_for(self, futures: Iterable[Future[Any]]) -> None:
        if not self._process.is_dead:
            wait_for(self._hub, futures)

    def thread_id(self) -> int:
        return id(self._hub.current)


class JoinableThread:
    """A thread that was started, for those who wait for its end."""

    def __init__(self, thread: SimThread, hub: Hub) -> None:
        self._thread = thread
        self._hub = hub

    def join(self, timeout: float | None = None) -> None:
        thread, hub, me = self._thread, self._hub, self._hub.current
        until = None if timeout is None else hub.now + round(timeout * SECOND)
        while not thread.is_over and me is not None and (until is None or hub.now < until):
            thread.joiners.append(me)
            hub.block(until)
