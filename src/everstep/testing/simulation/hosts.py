"""Hosts of simulated processes: the real ones, on the machine and the store of their world. Apart from the
world, which knows no client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from everstep.client.host import AsyncHost
from everstep.client.lanes import PATIENCE, Lanes, Work
from everstep.client.sync import Host
from everstep.errors import BadRequest
from everstep.ports.durability import Notice, Notifier
from everstep.ports.store import Commit
from everstep.ports.system import Clock, Event, Ids, System
from everstep.registry import Opened
from everstep.runtime.outage.spool import Spool
from everstep.runtime.runs import host_closed
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.hub import Dead
from everstep.testing.simulation.loop import SimLoop, tidy
from everstep.testing.simulation.process import SimProcess

T = TypeVar("T")
_DIES = (Fault.CRASH, Fault.POWER_CUT, Fault.STALL)
_NOWHERE = Path("/simulated")


class SimAsyncHost(AsyncHost):
    """An `AsyncHost` of a simulated process."""

    _environ: Mapping[str, str] = {}

    def __init__(self, process: SimProcess, *given: Any, **options: Any) -> None:
        self.process = process
        super().__init__(*given, **options)
        process.hosts.append(self)

    def _system_of(self, clock: Clock | None, ids: Ids | None) -> System:
        return self.process.system

    def twin(self) -> SimAsyncHost:
        twin = super().twin()
        twin.process = self.process
        self.process.hosts.append(twin)
        return twin

    def take_apart(self) -> None:
        """Let its parts go that know each other."""
        for part in (self._services.committer, self._services.values, self):
            vars(part).clear()


class SimLanes(Lanes):
    """Simulated event loops for calls of code that does not await."""

    def __init__(self, host: SimAsyncHost) -> None:
        self.host = host
        self._process = host.process
        self._free_loops: list[tuple[SimLoop, AsyncHost]] = [(host.process.system.new_loop(), host)]
        self._running: dict[asyncio.Task[Any], tuple[SimLoop, AsyncHost]] = {}
        """The calls under way."""
        self._all_ended: Event | None = None
        """Set when the last of them has ended, once the host is to be closed."""
        self._is_closed = False

    def call(self, work: Work[T]) -> T:
        if self._is_closed:
            raise BadRequest("this host is closed.", fix="Open another one.")
        return self._call(work)

    def _call(self, work: Work[T]) -> T:
        if self._free_loops:
            loop, host = self._free_loops.pop()
        else:
            loop, host = self._process.system.new_loop(), self.host.twin()
        task = loop.create_task(work(host))
        self._running[task] = loop, host
        try:
            return self._run(loop, task)
        except asyncio.CancelledError:
            if self._is_closed:
                raise host_closed() from None
            raise
        finally:
            del self._running[task]
            self._free_loops.append((loop, host))
            if self._all_ended is not None and not self._running:
                self._all_ended.set()

    def _run(self, loop: SimLoop, task: asyncio.Task[T]) -> T:
        try:
            found: T = loop.run_until_complete(task)
            return found
        except Dead:
            raise
        except BaseException:
            # As on a real lane: what a node raised may have ended the loop, and the run is to be let go of.
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    loop.run_until_complete(task)
            if task.done() and not task.cancelled():
                task.exception()  # heard of
            raise

    def close(self) -> None:
        if self._is_closed or self._process.is_dead:
            return
        self._is_closed = True
        if self._running:
            self._end_calls()
        self._call(lambda _: self.host.close())
        for loop, _ in self._free_loops:
            tidy(loop)
            loop.close()

    def _end_calls(self) -> None:
        """Let the calls of other threads end, and wait for that, as a real host does."""
        self._all_ended = self._process.system.event()
        for task, (loop, host) in self._running.items():
            for drive in host.driving.copy():
                drive.breathe()
            loop.call_soon_threadsafe(task.cancel)
        self._all_ended.wait(PATIENCE)
        self._all_ended = None


class SimSpool(Spool):
    """What waits for the store, on the disk of a simulated machine."""

    def __init__(self, process: SimProcess) -> None:
        super().__init__(_NOWHERE)
        self._process = process
        self._kept = process.machine.spooled

    def add(self, commit: Commit) -> None:
        self._reach("before", "spool")
        self._kept.setdefault(commit.run_id, []).append(commit)
        self._process.world.ledger.spooled.append((commit.run_id, commit.checkpoint_id))
        self._reach("after", "spool")

    def each(self, run_id: str) -> Iterator[Commit]:
        yield from list(self._kept.get(run_id, ()))

    def has(self, run_id: str) -> bool:
        return run_id in self._kept

    def runs(self) -> list[str]:
        return sorted(self._kept)

    def drop(self, run_id: str, checkpoint_ids: Collection[str]) -> None:
        if not self.has(run_id):
            return
        self._reach("before", "unspool")
        # Another process may have emptied it meanwhile.
        left = [commit for commit in self.each(run_id) if commit.checkpoint_id not in checkpoint_ids]
        if left:
            self._kept[run_id] = left
        else:
            self._kept.pop(run_id, None)
        self._reach("after", "unspool")

    def _reach(self, when: str, what: str) -> None:
        process = self._process
        if process.is_dead:
            raise Dead
        number = process.count(what) if when == "before" else process.counts[what]
        process.world.reach(process, f"{when} {what} {number}", _DIES)


def host_of(process: SimProcess, opened: Opened, options: dict[str, Any]) -> Host:
    """Open a host for a program of a simulated process."""
    host = object.__new__(Host)
    host._host = made = async_host_of(process, opened, {"owns_loop": True, **options})
    host._lanes = SimLanes(made)
    return host


def async_host_of(process: SimProcess, opened: Opened, options: dict[str, Any]) -> SimAsyncHost:
    """Open a host for a program that awaits."""
    said = {"compress": False, "encrypt": False, "spool": SimSpool(process), **options}
    notifiers = said.get("notifiers") or {}
    said["notifiers"] = {alias: _through(process, notify) for alias, notify in notifiers.items()}
    return SimAsyncHost(process, opened, **said)


def _through(process: SimProcess, notify: Notifier) -> Notifier:
    """Return a notifier that may be down."""

    def tell(notice: Notice) -> Any:
        point = f"before notify {process.count('notify')}"
        if process.world.reach(process, point, (*_DIES, Fault.NOTIFIER_DOWN)) is Fault.NOTIFIER_DOWN:
            raise ConnectionError("the notifier does not answer")
        return notify(notice)

    return tell
