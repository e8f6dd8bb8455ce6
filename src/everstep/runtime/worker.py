"""A worker: claims what is due on a store and drives it, beside any number of others."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial

import msgspec

from everstep.errors import (
    BadRequest,
    EverstepError,
    FlowChanged,
    LeaseConflict,
    RunAbandoned,
    StoreError,
    TaskGone,
)
from everstep.graph.flow import Flow
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.ports.store import RunFilter, RunRow, WaitFilter
from everstep.runtime.announce import announce
from everstep.runtime.outbox import drain_all
from everstep.runtime.patience import patiently
from everstep.runtime.preflight import preflight
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services

FlowKey = tuple[str, str]
"""The name and the hash of a flow: two flows may be built alike and do different things."""
log = logging.getLogger("everstep")
TICK = 0.05
"""Seconds between two looks at whether somebody wrote to the store, which costs no query."""
POLL = 5.0
"""Seconds between two looks for what no write tells of: leases that ran out."""
SWEEP = 60.0
"""Seconds between two looks for waits that nobody was told of, and for runs whose owners died."""
REST = (1.0, 300.0)
"""The shortest and the longest pause before a run that cannot be driven is tried again, in seconds."""
_PAGE = 1000
GRACE = 30.0
"""Seconds that runs under way have to end or halt when the worker is stopped."""


class Stats(msgspec.Struct):
    """What a worker has done so far."""

    claimed: int = 0
    completed: int = 0
    halted: int = 0
    failed: int = 0
    cancelled: int = 0
    handed_back: int = 0
    """Runs that it let go of before they ended or halted: stopped, taken over, or not drivable here."""


class Worker:
    """Drives the runs of some flows that nobody else drives, whenever they are due."""

    def __init__(
        self,
        services: Services,
        runs: Runs,
        flows: Iterable[Flow],
        *,
        concurrency: int = 32,
        per_flow: Mapping[str, int] | None = None,
        grace: float = GRACE,
    ) -> None:
        self._services = services
        self._runs = runs
        self._flows: dict[FlowKey, Flow] = {}
        for flow in flows:
            ready = preflight(flow, services)
            self._flows[ready.name, ready.plan.hash] = ready
        self._others: dict[FlowKey, Flow] = {}
        """Structures that older versions of these flows had, and the flow that goes on with their runs."""
        if not self._flows:
            raise BadRequest("a worker needs a flow to drive.", fix="Give it at least one.")
        if not services.store.capabilities.single_writer:
            raise BadRequest(
                "this store cannot keep two workers apart, so workers do not run on it.",
                fix="Use a store such as sqlite:///runs.db, or drive its runs with host.run.",
            )
        self._limits = _limits(self._flows.values(), per_flow or {}, concurrency)
        self._concurrency = concurrency
        self._grace = grace
        self._driving: dict[str, tuple[asyncio.Task[None], str]] = {}
        """Runs under way: their task, and their flow."""
        self._unfit: dict[str, tuple[float, float]] = {}
        """Runs that cannot be driven here: until when they are left alone, and how long the last rest was."""
        self._refused: set[str] = set()
        """Runs that cannot go on with what their flow is now, and of which that was said."""
        self._turn = 0
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._looked_at = services.clock.now()
        self._seen = 0
        """When it last looked for work, and what the store's changes were then."""
        self.stats = Stats()

    def stop(self) -> None:
        """Claim nothing more; runs under way end, halt, or are handed back after a while."""
        self._stopping.set()
        self._ended.set()

    async def run(self, *, until_idle: bool = False) -> Stats:
        """Work until stopped, or until nothing is due and nothing runs."""
        swept = 0.0
        sweeping: asyncio.Task[None] | None = None
        try:
            while not self._stopping.is_set():
                now = self._services.clock.monotonic()
                if sweeping is None or (sweeping.done() and now - swept >= SWEEP):
                    swept, sweeping = now, asyncio.ensure_future(self._sweep())
                    await self._drain()
                    await self._look_for_older()
                    await self._succeed()
                self._ended.clear()  # before the claim: what it begins may end before the rest begins
                await self._claim()
                if until_idle and not self._driving:
                    await sweeping
                    break
                await self._rest()
            await self._let_end(None if until_idle else self._grace)
        finally:
            if sweeping is not None:
                sweeping.cancel()
            await self._hand_back()
        return self.stats

    async def _claim(self) -> None:
        """Claim as much as is due and there is room for, and begin to drive it."""
        may_be_more = True
        while may_be_more and not self._stopping.is_set():
            self._looked_at, self._seen = self._services.clock.now(), self._services.store.changes()
            may_be_more = False
            for flows in self._groups():
                room = self._room(flows)
                claimed = await self._claim_of(flows, room)
                if claimed is None:
                    return
                may_be_more = may_be_more or 0 < room == claimed
            await asyncio.sleep(0)

    async def _claim_of(self, flows: list[FlowKey], room: int) -> int | None:
        """Claim up to so many runs of some flows; returns how many, or none if the store is in trouble."""
        if room <= 0 or self._stopping.is_set():
            return 0
        claim = partial(
            self._services.store.claim_due,
            flows=flows,
            new_owner=self._services.ids.new_id,
            ttl=min(self._known[key].durability.lease_ttl for key in flows),
            process=self._services.processes.me(),
            limit=room,
            # To claim a run would make stale what waits for it on this machine.
            apart_from=[*self._driving, *self._resting(), *self._services.spool.runs()],
        )
        try:
            claimed = await patiently(self._services.clock, claim)
        except StoreError as error:
            log.warning("the store cannot say what is due: %s", error)
            return None
        for row, lease in claimed:
            self._begin(row, lease)
        return len(claimed)

    def _groups(self) -> list[list[FlowKey]]:
        """Return the flows that are claimed together: those without a limit of their own, and each other.

        Another group is the first each time, so that none keeps the others from free places.
        """
        groups: dict[str, list[FlowKey]] = {}
        for key, flow in self._known.items():
            is_limited = self._limits[flow.name] < self._concurrency
            groups.setdefault(flow.name if is_limited else "", []).append(key)
        self._turn = (self._turn + 1) % len(groups)
        found = list(groups.values())
        return found[self._turn :] + found[: self._turn]

    def _room(self, flows: Iterable[FlowKey]) -> int:
        """Return how many more runs of these flows, of which each has the same limit, may be driven."""
        room = self._concurrency - len(self._driving)
        busy = Counter(name for _, name in self._driving.values())
        names = {name for name, _ in flows}
        return min(room, max(self._limits[name] - busy[name] for name in names))

    @property
    def _known(self) -> dict[FlowKey, Flow]:
        return {**self._flows, **self._others} if self._others else self._flows

    def _has_room(self) -> bool:
        return any(self._room([key]) > 0 for key in self._known)

    def _resting(self) -> list[str]:
        now = self._services.clock.monotonic()
        # Others may have driven them since; who cannot be driven still is found again.
        for run_id in [run_id for run_id, (until, _) in self._unfit.items() if now - until > REST[1]]:
            del self._unfit[run_id]
        return [run_id for run_id, (until, _) in self._unfit.items() if until > now]

    def _begin(self, row: RunRow, lease: Lease) -> None:
        self.stats.claimed += 1
        flow = self._known[row.flow_id, row.flow_hash]
        task = asyncio.ensure_future(self._drive(row, lease, flow))
        self._driving[row.run_id] = (task, flow.name)

    async def _drive(self, row: RunRow, lease: Lease, flow: Flow) -> None:
        stats = self.stats
        try:
            status = (await self._runs.drive_claimed(row, lease, flow)).status
        except asyncio.CancelledError:
            stats.handed_back += 1
            raise
        except RunAbandoned as error:
            stats.failed += 1
            log.error("%s", error)
        except LeaseConflict as error:
            stats.handed_back += 1
            log.warning("%s", error)
        except (FlowChanged, TaskGone) as error:
            stats.handed_back += 1
            self._refuse(row.run_id, error)
        except Exception as error:
            stats.handed_back += 1
            self._leave_alone(row.run_id, error)
        else:
            self._unfit.pop(row.run_id, None)
            stats.completed += status is Status.COMPLETED
            stats.halted += status is Status.HALTED
            stats.failed += status is Status.FAILED
            stats.cancelled += status is Status.CANCELLED
        finally:
            self._driving.pop(row.run_id, None)
            self._ended.set()

    def _refuse(self, run_id: str, error: EverstepError) -> None:
        """Leave a run alone whose flow has changed too much; only other code can change that."""
        self._unfit[run_id] = (self._services.clock.monotonic() + REST[1], REST[1])
        if run_id not in self._refused:
            self._refused.add(run_id)
            log.error("run %r is left alone: %s", run_id, error)

    def _leave_alone(self, run_id: str, error: Exception) -> None:
        """Try a run that cannot be driven again later, less and less often."""
        _, last = self._unfit.get(run_id, (0.0, 0.0))
        pause = min(max(REST[0], 2 * last), REST[1])
        self._unfit[run_id] = (self._services.clock.monotonic() + pause, pause)
        known = isinstance(error, EverstepError)
        log.error("run %r cannot be driven; next try in %.0f s: %s", run_id, pause, error, exc_info=not known)

    async def _rest(self) -> None:
        """Return when a run has ended, somebody wrote, a wait is due, or it is time to look again."""
        services = self._services
        clock = services.clock
        due = await self._next_due()
        began = clock.monotonic()
        has_room = self._has_room()
        while not self._stopping.is_set():
            left = POLL - (clock.monotonic() - began)
            if due is not None:
                left = min(left, (due - clock.now()).total_seconds())
            if has_room and left <= 0:
                return
            tick = max(min(TICK, left), 0.001) if has_room else POLL
            try:
                # Not `wait_for`: it may swallow that the worker is cancelled in the moment it is stopped.
                async with asyncio.timeout(tick):
                    await self._ended.wait()
            except TimeoutError:
                pass
            else:
                return
            if has_room and services.store.changes() != self._seen:
                return

    async def _next_due(self) -> datetime | None:
        # What was due when it looked, and was not claimed, is for others; to wake for it would never end.
        try:
            return await self._services.store.next_due(after=self._looked_at)
        except StoreError as error:
            log.warning("the store cannot say what is due next: %s", error)
            return None

    async def _sweep(self) -> None:
        """Tell of waits of these flows whose opener died before it could."""
        services = self._services
        try:
            for name in self._limits:
                for row in await services.store.waits(WaitFilter(flow_id=name, is_untold=True, limit=1000)):
                    if row.is_forgotten(services.clock.now()):
                        await announce(services, row, None)
        except StoreError as error:
            log.warning("the store cannot say what is untold: %s", error)

    async def _drain(self) -> None:
        """Bring what waits on this machine to the store, before a claim makes it stale."""
        _, errors = await drain_all(self._services, apart_from=self._driving)
        for error in errors:
            log.warning("the store cannot take what waits on this machine: %s", error)

    async def _succeed(self) -> None:
        """Take up the runs whose owners died on this machine; their leases need not run out first."""
        services, before = self._services, None
        try:
            while not self._stopping.is_set():
                wanted = RunFilter(status=Status.RUNNING, limit=_PAGE, before=before)
                rows = await services.store.list(wanted)
                for row in rows:
                    await self._succeed_in(row)
                if len(rows) < _PAGE:
                    return
                before = rows[-1].run_id
        except StoreError as error:
            log.warning("the store cannot say whose owners are dead: %s", error)

    async def _succeed_in(self, row: RunRow) -> None:
        services, held = self._services, row.lease
        is_orphan = held is not None and held.process is not None and services.processes.is_gone(held.process)
        if not is_orphan or row.run_id in self._driving or services.spool.has(row.run_id):
            return
        key = (row.flow_id, row.flow_hash)
        if key not in self._known or self._room([key]) <= 0:
            return
        assert held is not None
        claim = partial(
            services.store.lease,
            row.run_id,
            owner=services.ids.new_id(),
            ttl=self._known[key].durability.lease_ttl,
            process=services.processes.me(),
            void_epoch=held.epoch,
        )
        try:
            lease = await patiently(services.clock, claim)
        except LeaseConflict:
            return  # another worker was quicker
        now = await services.store.run(row.run_id)
        if now is None or now.status is not Status.RUNNING:
            await services.store.release_lease(lease)
        else:
            self._begin(now, lease)

    async def _look_for_older(self) -> None:
        """Find the older versions of these flows that unfinished runs still go by.

        Newer ones are left to newer workers: while a deploy is under way, neither takes runs from the other.
        """
        for flow in self._flows.values():
            try:
                older = await self._services.store.introduce(flow.name, flow.plan.hash, flow.plan.blueprint)
            except StoreError as error:
                log.warning("the store cannot say what is older: %s", error)
                return
            keys = [(flow.name, found) for found in older]
            self._others |= {key: flow for key in keys if key not in self._flows}

    async def _let_end(self, seconds: float | None) -> None:
        tasks = [task for task, _ in self._driving.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _hand_back(self) -> None:
        """Stop what still runs: what has finished is kept, and the leases are given back."""
        tasks = [task for task, _ in self._driving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _limits(flows: Iterable[Flow], per_flow: Mapping[str, int], concurrency: int) -> dict[str, int]:
    names = {flow.name for flow in flows}
    for name, limit in [("concurrency", concurrency), *per_flow.items()]:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise BadRequest(f"{name!r} may run {limit!r} at once.", fix="Give a whole number from 1 on.")
    for name in per_flow.keys() - names:
        raise BadRequest(f"this worker drives no flow {name!r}.", fix=f"It drives {sorted(names)}.")
    return {name: per_flow.get(name, concurrency) for name in names}
