"""Driving the runs that a run starts in the process that drives it, until it is over. Apart from `runs`, as
only runs whose flow declares `starts=` need it; workers drive them without.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from everstep.errors import EverstepError, HostClosed, LeaseConflict, NoRoom, RunPaused, StoreError
from everstep.graph.author.flow import Flow
from everstep.graph.check.started_flows import startable
from everstep.model.enums import Status
from everstep.model.waits import WaitStatus, child_in
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.drive.children.results import look
from everstep.runtime.outcome import Outcome
from everstep.runtime.preflight import preflight
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import open_waits

log = logging.getLogger("everstep")
LOOK, LONGEST = 0.1, 5.0
"""Seconds between two looks at runs that others drive: at first, and once nothing has come for a while."""
MOST_PATIENT = 1.0
"""Seconds between two looks at whether limits leave room, in the end."""
AT_ONCE = 32
"""So many of them are driven at a time."""
_PAGE = 1000


class Drives(Protocol):
    """Continues runs in this process."""

    @property
    def reader(self) -> RunReader: ...

    async def resume(
        self, run_id: str, flow: Flow, *, is_patient: bool = True, reopens: bool = True
    ) -> Outcome: ...


class Family:
    """A run that is driven here, with the runs that it has started, and those that these have."""

    def __init__(self, services: Services, drives: Drives, flow: Flow) -> None:
        self._services, self._drives, self._flow = services, drives, flow
        self._root: str | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._flows: dict[str, Flow] = {}
        """Those that were met, with their flows."""
        self._halted: set[str] = set()
        self._again: set[str] = set()
        """Those that may go on, and were being driven when that was said."""
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._is_over = False
        self._unfit: set[str] = set()
        """Those that cannot be driven here."""
        self._pause_for = LOOK
        self._freed = asyncio.Event()
        """Set once one of these has ended or halted, which may make room; then there is another."""
        self._full: dict[str, float] = {}
        """How long those that limits leave no room for are let alone."""
        self._broken: Exception | None = None
        """What went wrong that is no word of a run: who drives the first one hears of it."""

    def take(self, run_id: str, flow: Flow) -> None:
        """Drive a run, as soon as there is room."""
        if self._is_over:
            return
        if run_id in self._tasks:
            self._again.add(run_id)
            return
        self._flows[run_id] = flow
        self._halted.discard(run_id)
        self._tasks[run_id] = asyncio.get_running_loop().create_task(self._drive(run_id, flow))

    def nudge(self, run_id: str) -> None:
        """Go on with a run that has waited for another, if it is one of these."""
        if run_id in self._flows:
            self.take(run_id, self._flows[run_id])
        self._news.set()

    async def see_through(
        self, begin: Callable[[], Awaitable[Outcome]], run_id: str | None, *, wait: bool
    ) -> Outcome:
        """Drive the run with its children until it has ended, or waits for what none of these brings.

        With `wait`, stay until it has ended.
        """
        try:
            if run_id is not None:
                await self._adopt(run_id, self._flow)
            outcome = await begin()
            self._root = outcome.run_id
            while outcome.status is Status.HALTED and outcome.paused is None and not outcome.spooled:
                if self._broken is not None:
                    raise self._broken
                self._news.clear()
                await self._take_awaited(outcome, self._flow)
                if await self._is_ripe(outcome.run_id):
                    self._pause_for = LOOK
                    outcome = await self._go_on(outcome)
                    continue
                await self._take_ripe()
                is_brought = wait or bool(self._tasks) or await self._is_brought(outcome)
                if not is_brought and not self._news.is_set():  # else one has ended since it was looked at
                    break
                await self._something()
            return outcome
        finally:
            await self._leave()

    async def _go_on(self, halted: Outcome) -> Outcome:
        try:
            outcome = await self._drives.resume(halted.run_id, self._flow, is_patient=False, reopens=False)
        except LeaseConflict:
            await self._services.system.pause(LOOK)
            row = await self._drives.reader.row(halted.run_id)
            return await self._drives.reader.recorded(row) if row.status.is_final else halted
        except NoRoom as full:
            await self._until_room(halted.run_id, full)
            return halted
        except RunPaused:
            row = await self._drives.reader.row(halted.run_id)
            return halted._replace(paused=row.needs_repair or "")
        left = {row.wait_id for row in outcome.waits}
        kept = {wait: token for wait, token in halted.tokens.items() if wait in left}
        return outcome._replace(tokens={**kept, **outcome.tokens})

    async def _something(self) -> None:
        """Wait until one of them has ended or halted, or may go on."""
        waiting = [asyncio.ensure_future(self._news.wait()), asyncio.ensure_future(self._pause())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def _take_ripe(self) -> None:
        """Go on with those that have halted, and have what they wait for."""
        for run_id in tuple(self._halted):
            if await self._is_ripe(run_id):
                self.take(run_id, self._flows[run_id])

    async def _pause(self) -> bool:
        await self._services.system.pause(self._pause_for)
        self._pause_for = min(2 * self._pause_for, LONGEST)
        return True

    async def _is_ripe(self, run_id: str) -> bool:
        """True if a run can go on; what one of these did not come to tell it is told now."""
        now, is_ripe = self._services.time.now(), False
        for row in await open_waits(self._services.store, run_id):
            is_told = row.status is WaitStatus.OPEN and child_in(row.topic) is not None
            is_ripe = row.is_ripe(now) or (is_told and await look(self._services, row, _untold)) or is_ripe
        return is_ripe

    async def _is_brought(self, outcome: Outcome) -> bool:
        """True if a run that is waited for is driven elsewhere, or from now on here, as its owner is gone."""
        now = self._services.time.now()
        for wait in outcome.waits:
            child = child_in(wait.topic)
            row = None if child is None else await self._services.store.run(child)
            if row is None or row.status.is_final:
                continue
            if row.lease is not None and row.lease.expires_at > now:
                return True
            if row.status is Status.RUNNING and row.run_id in self._flows and row.run_id not in self._unfit:
                self.take(row.run_id, self._flows[row.run_id])
                return True
        return False

    async def _take_awaited(self, outcome: Outcome, flow: Flow) -> None:
        """Drive the runs that a halted one waits for, and that were not met yet."""
        for wait in outcome.waits:
            child = child_in(wait.topic)
            if child is not None and child not in self._flows:
                row = await self._services.store.run(child)
                if row is not None:
                    self._meet(row, flow)

    async def _adopt(self, run_id: str, flow: Flow) -> None:
        """Drive what a run has started before, and what has not ended."""
        if not self._services.store.capabilities.has_children:
            return
        for status in (Status.RUNNING, Status.HALTED):
            before: str | None = None
            while True:
                wanted = RunFilter(started_by=run_id, status=status, limit=_PAGE, before=before)
                page = await self._services.store.list(wanted)
                for row in page:
                    self._meet(row, flow)
                if len(page) < _PAGE:
                    break
                before = page[-1].run_id

    def _meet(self, row: RunRow, around: Flow) -> None:
        if row.run_id in self._flows or row.status.is_final:
            return
        flow = startable(around, row.flow_id) or startable(self._flow, row.flow_id)
        if flow is None:
            return
        self._flows[row.run_id] = preflight(flow, self._services)
        if row.status is Status.HALTED:
            self._halted.add(row.run_id)
        else:
            self.take(row.run_id, self._flows[row.run_id])

    async def _drive(self, run_id: str, flow: Flow) -> None:
        try:
            async with self._slots:
                if flow.starts:
                    await self._adopt(run_id, flow)
                try:
                    outcome = await self._drives.resume(run_id, flow, is_patient=False, reopens=False)
                except NoRoom as full:
                    self._again.add(run_id)
                    await self._until_room(run_id, full)
                    return
                self._full.pop(run_id, None)
                self._freed.set()
                self._freed = asyncio.Event()
                if outcome.status is Status.HALTED:
                    self._halted.add(run_id)
                    await self._take_awaited(outcome, flow)
        except LeaseConflict:
            self._halted.add(run_id)  # another process has it, perhaps not for long
            await self._pause()
        except (RunPaused, HostClosed):
            self._unfit.add(run_id)
        except Exception as error:
            if isinstance(error, StoreError) or not isinstance(error, EverstepError):
                self._broken = error
                return
            self._unfit.add(run_id)
            log.error("run %r, which run %r needs, cannot be driven here: %s", run_id, self._root, error)
        finally:
            self._tasks.pop(run_id, None)
            if run_id in self._again:
                self._again.discard(run_id)
                self.take(run_id, flow)
            self._news.set()

    async def _until_room(self, run_id: str, full: NoRoom) -> None:
        """Wait a while for room, each time longer: others that wait have turns meanwhile."""
        seconds = self._full.get(run_id, LOOK)
        self._full[run_id] = min(2 * seconds, MOST_PATIENT)
        until = full.details["until"]
        if isinstance(until, datetime):
            left = (until - self._services.time.now()).total_seconds()
            seconds = max(min(seconds, left), 0.001)
        freed, pause = self._freed, asyncio.ensure_future(self._services.system.pause(seconds))
        waker = asyncio.ensure_future(freed.wait())
        try:
            await asyncio.wait([pause, waker], return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            waker.cancel()

    async def _leave(self) -> None:
        """Let go of those that have not ended: what they have done is kept, and others may go on."""
        self._is_over = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _untold(run_id: str) -> None:
    """Tell no one: who asks goes on with the run itself."""
