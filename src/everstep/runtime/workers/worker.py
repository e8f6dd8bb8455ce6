"""A worker: claims what is due on a store and drives it, beside any number of others."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from everstep.engine.leases import beside, is_hopeless, is_suspect
from everstep.errors import (
    BadRequest,
    DurabilityOff,
    EverstepError,
    FlowChanged,
    HostClosed,
    LeaseConflict,
    RunAbandoned,
    StateCorrupted,
    StoreError,
    TaskGone,
)
from everstep.graph.author.flow import Flow
from everstep.model.durations import Span, seconds_of
from everstep.model.enums import Mode, Status
from everstep.model.leases import RELEASE, SKEW, Driven, Lease, Quota, Taken, WorkerRow, lane_of
from everstep.model.records import SCHEMA_VERSION
from everstep.on_demand import on_demand
from everstep.ports.store import RunRow, WaitFilter, WakingStore
from everstep.runtime.outage.outbox import drain_all
from everstep.runtime.preflight import preflight
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.waits.announce import announce
from everstep.runtime.workers.backpressure import Pressure, pause
from everstep.runtime.workers.built_in import BULK, BuiltIn, asking, schedules_of
from everstep.runtime.workers.heartbeat import Presence
from everstep.runtime.workers.lease_renewal import GRACE
from everstep.runtime.workers.reclaim import Takeover
from everstep.runtime.workers.suspects import Suspects

if TYPE_CHECKING:
    from everstep.graph.check.started_flows import all_started
    from everstep.graph.limits import rules_of
    from everstep.model.leases import KeyLimit
    from everstep.runtime.drive.children.results import sweep as sweep_children
    from everstep.runtime.operations.asking.flow import ask_flow
    from everstep.runtime.operations.asking.question import quiet
    from everstep.runtime.operations.bulk.flow import bulk_flow
    from everstep.runtime.operations.schedules.flow import schedule_flow
    from everstep.runtime.waits.notices.send import Beside, send_due
    from everstep.runtime.waits.notices.told import set_aside
    from everstep.runtime.workers.cleaning import Cleaning
    from everstep.runtime.workers.paused_lanes import unpaused, with_paused
else:
    rules_of = on_demand("everstep.graph.limits:rules_of")
    Beside = on_demand("everstep.runtime.waits.notices.send:Beside")
    send_due = on_demand("everstep.runtime.waits.notices.send:send_due")
    set_aside = on_demand("everstep.runtime.waits.notices.told:set_aside")
    all_started = on_demand("everstep.graph.check.started_flows:all_started")
    sweep_children = on_demand("everstep.runtime.drive.children.results:sweep")
    ask_flow = on_demand("everstep.runtime.operations.asking.flow:ask_flow")
    quiet = on_demand("everstep.runtime.operations.asking.question:quiet")
    bulk_flow = on_demand("everstep.runtime.operations.bulk.flow:bulk_flow")
    schedule_flow = on_demand("everstep.runtime.operations.schedules.flow:schedule_flow")
    unpaused = on_demand("everstep.runtime.workers.paused_lanes:unpaused")
    with_paused = on_demand("everstep.runtime.workers.paused_lanes:with_paused")

FlowKey = tuple[str, str]
"""The name and the hash of a flow: two flows may be built alike and do different things."""
log = logging.getLogger("everstep")
TICK = 0.05
"""Seconds between two looks at whether the store was written to, which costs no query."""
QUICK = 0.005
"""The same just after a run was claimed or ended, as more is likely to come; a second later it is `TICK`."""
GLANCE = 1.0
"""Seconds between two looks at whether another worker of this machine died, which costs no query either."""
MEET = 5.0
"""Seconds between two looks at which other workers are on this machine."""
POLL = 5.0
"""Seconds between two looks for what no write tells of: leases that ran out."""
SWEEP = 60.0
"""Seconds between two looks for waits whose notification was not sent, and for runs whose owners died."""
REST = (1.0, 300.0)
"""The shortest and the longest pause before a run that cannot be driven is tried again, in seconds."""
PATIENCE = 5
"""How often a worker that is to end when nothing is due asks a store that does not answer."""
BATCH = 32
"""So many runs are claimed at a time: they all begin in one turn of the event loop, which others share."""
LAST_WORDS = 5.0
"""Seconds that a worker which stops gives to notices that are being sent."""
SHOWN = 100
"""Of the runs that it drives, a worker names so many."""


class Stats(msgspec.Struct):
    """What a worker has done so far."""

    claimed: int = 0
    completed: int = 0
    halted: int = 0
    failed: int = 0
    cancelled: int = 0
    paused: int = 0
    """Runs that it let go of as they, their flows or their groups were paused."""
    handed_back: int = 0
    """Runs that it let go of before they ended or halted: stopped, taken over, or not drivable here."""
    set_aside: int = 0
    """Runs that were found damaged; workers leave them alone until they are resumed."""


class _Driving:
    """A run under way."""

    def __init__(self, task: asyncio.Task[None], lease: Lease, flow: str, since: datetime) -> None:
        self.task = task
        self.lease = lease
        self.flow = flow
        self.since = since


class Worker:
    """Claims the runs of some flows whenever they are due, and drives them."""

    _has_swept_news = False
    """True if a sweep has settled waits since runs were claimed."""

    def __init__(
        self,
        services: Services,
        runs: Runs,
        flows: Iterable[Flow],
        *,
        concurrency: int = 32,
        per_flow: Mapping[str, int] | None = None,
        grace: Span = GRACE,
        cleaning: Cleaning | None = None,
    ) -> None:
        self._services = services
        self._cleaning = cleaning
        self._runs = runs
        self._flows = _ready(flows, services)
        self._others: dict[FlowKey, Flow] = {}
        """Structures that older versions of these flows had, and the flow that goes on with their runs."""
        self._pinned: set[FlowKey] = set()
        """Those whose runs stay with their version, so that they are left to other workers."""
        if not services.store.capabilities.single_writer:
            raise BadRequest(
                "this store cannot keep two workers apart, so workers do not run on it.",
                fix="Use a store such as sqlite:///runs.db, or drive its runs with host.run.",
            )
        names = self._names()
        self._built_in = {one.key: one for one in (BULK, *map(asking, names), *map(schedules_of, names))}
        self._known: dict[FlowKey, Flow | BuiltIn] = {**self._flows, **self._built_in}
        """All that it claims runs of."""
        self._limits = _limits(self._flows.values(), per_flow or {}, concurrency)
        self._limits |= dict.fromkeys((one.name for one in self._built_in.values()), concurrency)
        self._quotas = _quotas(self._flows.values())
        self._concurrency = concurrency
        self._grace = seconds_of(grace, "grace", least=0)
        self._driving: dict[str, _Driving] = {}
        self._unfit: dict[str, tuple[float, float]] = {}
        """Runs that cannot be driven here: until when they are left alone, and how long the last rest was."""
        self._refused: set[str] = set()
        """Runs that cannot go on with what their flow is now, and of which that was said."""
        self._turn = 0
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_open_to_work = False
        """True while it rests and has room."""
        self._busy_at = 0.0
        """When a run was last claimed or ended."""
        self._glanced_at, self._met_at = 0.0, -MEET
        """When it last looked whether another worker of this machine died, and which there are."""
        self._looked_at = services.time.now()
        self._seen = 0
        """When it last looked for work, and what the store's changes were then."""
        self.stats = Stats()
        clock, committer = services.clock, services.committer
        self._weather = services.weather
        self._failures = 0
        """How often in a row the store did not say what is due."""
        self._pressure = Pressure(clock, concurrency, lambda: committer.lag)
        self._takeover = Takeover(services, runs.keeper)
        self._swept: dict[str, str | None] = {}
        """By flow, after which wait for the end of a run the next look begins."""
        self._left_orphans: set[str] = set()
        """Dead owners whose runs are left until there is room, or one that may have killed them has ended."""
        self._has_lost_neighbour = False
        """True if another worker of this machine died since its runs were looked for."""
        self._suspects = Suspects(services, runs.keeper, self._takeover)
        self._presence = Presence(services, runs.keeper, self.describe)
        self._id, self._started_at = services.ids.new_id(), clock.now()

    def describe(self) -> WorkerRow:
        """Say what this worker is and does, its times by the store's clock. May be called from any thread."""
        host, pid = self._services.processes.here()
        ahead = self._services.time.ahead
        driving = sorted(self._driving.items(), key=lambda item: item[1].since)
        return WorkerRow(
            worker_id=self._id,
            host=host,
            pid=pid,
            flows=tuple(self._names()),
            concurrency=self._concurrency,
            started_at=self._started_at + ahead,
            driving=len(driving),
            longest=tuple(
                Driven(run_id=run_id, flow_id=it.flow, since=it.since + ahead)
                for run_id, it in driving[:SHOWN]
            ),
            is_stopping=self._stopping.is_set(),
            is_slowed=self._pressure.is_on,
            process=self._services.processes.me(),
            skew_seconds=round(ahead.total_seconds(), 3),
            release=RELEASE,
            records=SCHEMA_VERSION,
            takes=self._takes(),
            cleans=self._cleaning is not None,
        )

    def _names(self) -> list[str]:
        return sorted({name for name, _ in self._flows})

    def _takes(self) -> tuple[Taken, ...]:
        own = [
            Taken(flow_id=name, flow_hash=flow_hash, flow_version=flow.version, limits=self._limits_of(name))
            for (name, flow_hash), flow in self._flows.items()
        ]
        others = (*self._others, *self._built_in)
        return (*own, *(Taken(flow_id=name, flow_hash=flow_hash) for name, flow_hash in others))

    def _limits_of(self, flow: str) -> tuple[KeyLimit, ...]:
        return self._quotas[flow].limits if flow in self._quotas else ()

    def stop(self) -> None:
        """Claim nothing more; runs under way end, halt, or are handed back after a while."""
        self._stopping.set()
        self._ended.set()

    async def run(self, *, until_idle: bool = False) -> Stats:
        """Work until stopped, or until nothing is due and nothing runs."""
        swept, outages = 0.0, self._weather.outages
        sweeping: asyncio.Task[None] | None = None
        self._services.side_by_side = self._concurrency > 1
        telling = None
        if self._services.notifiers.aliases and self._services.store.capabilities.has_notices:
            telling = self._services.telling = Beside(self._services)
        await self._presence.begin()
        with suppress(StoreError):
            await self._runs.keeper.watch()
        self._tell_skew()
        stop_waking = self._wake_on_change()
        meter = self._services.meter
        if meter is not None:
            meter.enter(self)
        cleaning = None
        if self._cleaning is not None and not until_idle:
            cleaning = asyncio.ensure_future(self._cleaning.keep_on(self._id))
        try:
            while not self._stopping.is_set():
                self._is_open_to_work = False
                self._ended.clear()  # before anything begins: it may end before the rest does
                now = self._services.clock.monotonic()
                if self._weather.outages > outages:  # what could not be given back meanwhile is found at once
                    outages, swept = self._weather.outages, now - SWEEP
                if sweeping is None or (sweeping.done() and now - swept >= SWEEP):
                    swept, sweeping = now, asyncio.ensure_future(self._sweep())
                    await self._drain()
                    await self._look_for_older()
                    await self._succeed()
                elif self._has_lost_neighbour:
                    await self._succeed()
                elif self._left_orphans and self._has_room():
                    await self._succeed(self._left_orphans)
                await self._claim()
                # What ended during the claim may have made room that the claim did not see.
                is_idle = not (self._driving or self._ended.is_set() or self._suspects.has_due)
                is_idle = is_idle and not self._left_orphans
                if until_idle and is_idle and not self._is_worth_asking():
                    if self._suspects.end_rests():
                        continue
                    await sweeping
                    if telling is not None and await telling.end():
                        continue  # who was told may have started something
                    if self._has_swept_news:
                        self._has_swept_news = False
                        continue
                    break
                await self._rest()
            await self._presence.tell()
            await self._let_end(None if until_idle else self._grace)
            if telling is not None:
                await telling.end(LAST_WORDS)
        finally:
            if telling is not None:
                self._services.telling = None
                telling.let_go()
            stop_waking()
            self._runs.keeper.end_watch()
            for task in (sweeping, cleaning):
                if task is not None:
                    task.cancel()
            await self._hand_back()
            self._services.side_by_side = False
            await self._presence.end()
            if meter is not None:
                meter.leave(self)
        return self.stats

    def _tell_skew(self) -> None:
        ahead = self._services.time.ahead.total_seconds()
        if abs(ahead) > SKEW:
            which = "behind" if ahead > 0 else "ahead of"
            log.warning(
                "clock skew: this machine is %.1f s %s the store. Leases and due times go by its clock; "
                "the times in records are wrong by as much. Set both by NTP.",
                abs(ahead),
                which,
            )

    def _is_worth_asking(self) -> bool:
        """True while a store that did not answer is to be asked again; raises once that was often enough."""
        if self._weather.error is not None and self._failures >= PATIENCE:
            raise self._weather.error
        return self._failures > 0

    async def _claim(self) -> None:
        """Claim as much as is due and there is room for, and begin to drive it.

        While a run that may kill its owner is driven, or is next, nothing is claimed beside it.
        """
        try:
            if await self._suspects.is_alone() or await self._has_suspect_next():
                return
            await self._claim_due()
            self._suspects.had_turn = False
            if not self._driving:
                await self._begin_suspect()
        except StoreError as error:
            self._weather.broke("run lookup", error)
            self._failures += 1

    async def _has_suspect_next(self) -> bool:
        """Begin with a run that may kill its owner, if it is its turn and nothing else is driven."""
        suspects = self._suspects
        if not self._driving:
            return not suspects.had_turn and await self._begin_suspect()
        taken = suspects.take_beside()
        if taken is not None:
            self._start(*taken)
        return suspects.holds_claims()

    async def _begin_suspect(self) -> bool:
        taken = await self._suspects.take()
        if taken is not None:
            self._start(*taken)
        return taken is not None

    async def _claim_due(self) -> None:
        may_be_more = True
        while may_be_more and not self._stopping.is_set():
            self._looked_at, self._seen = self._services.time.now(), self._changes()
            self._pressure.adjust(len(self._driving))
            may_be_more = False
            for flows in self._groups():
                room = min(self._room(flows), BATCH)
                claimed = await self._claim_of(flows, room)
                if claimed is None:
                    self._failures += 1
                    return
                may_be_more = may_be_more or 0 < room == claimed
                if room > 0:
                    self._failures = 0
                    self._weather.cleared()
            await asyncio.sleep(0)

    async def _claim_of(self, flows: list[FlowKey], room: int) -> int | None:
        """Claim up to so many runs of some flows; returns how many, or none if the store is in trouble."""
        lanes, quotas = self._runs.keeper.lanes, self._quotas
        if lanes:
            flows, quotas = unpaused(lanes, flows), with_paused(quotas, lanes, flows)
        if room <= 0 or not flows or self._stopping.is_set():
            return 0
        ttl, made = min(self._known[key].durability.lease_ttl for key in flows), list[str]()

        def new_owner() -> str:
            made.append(self._new_owner())
            return made[-1]

        try:
            asked = self._services.clock.monotonic()
            for row, lease in await self._takeover.found(ttl):
                self._begin(row, lease, ttl, asked)
                await self._services.take([row.run_id])
            asked = self._services.clock.monotonic()
            claimed = await self._services.store.claim_due(
                flows=flows,
                new_owner=new_owner,
                ttl=ttl,
                process=self._services.holder(ttl),
                limit=room,
                # To claim a run would make stale what waits for it on this machine.
                apart_from=[
                    *self._driving,
                    *self._suspects.names(),
                    *self._resting(),
                    *self._services.spool.runs(),
                ],
                quotas=quotas,
            )
        except StoreError as error:
            self._takeover.lost(made, ttl)
            self._weather.broke("claim", error)
            return None
        for row, lease in claimed:
            self._begin(row, lease, ttl, asked)
        await self._services.take([row.run_id for row, _ in claimed])
        return len(claimed)

    def _changes(self) -> int:
        try:
            return self._services.changes()
        except StoreError as error:
            self._weather.broke("watch", error)
            return self._seen

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

    def _room(self, flows: Sequence[FlowKey]) -> int:
        """Return how many more runs of these flows, of which each has the same limit, may be driven."""
        room = min(self._concurrency, self._pressure.allowed) - len(self._driving)
        if self._limits[flows[0][0]] >= self._concurrency:
            return room  # which is no more than that limit leaves
        busy = Counter(it.flow for it in self._driving.values())
        names = {name for name, _ in flows}
        return min(room, max(self._limits[name] - busy[name] for name in names))

    def _has_room(self) -> bool:
        # The flows that come with everstep may have all that is free.
        return min(self._concurrency, self._pressure.allowed) > len(self._driving)

    def _resting(self) -> list[str]:
        now = self._services.clock.monotonic()
        # Others may have driven them since; who cannot be driven still is found again.
        for run_id in [run_id for run_id, (until, _) in self._unfit.items() if now - until > REST[1]]:
            del self._unfit[run_id]
        return [run_id for run_id, (until, _) in self._unfit.items() if until > now]

    def _begin(self, row: RunRow, lease: Lease, ttl: timedelta, asked: float) -> None:
        # From now on, as other runs may hold this thread for long before it has its first turn.
        self._runs.keeper.keep(lease, ttl, asked)
        is_question = self._asks(row)
        self.stats.claimed += not is_question
        if self._services.meter is not None and not is_question:
            self._services.meter.claimed(row, lease, self._services.time.now())
        self._busy_at = self._services.clock.monotonic()
        durability = self._known[row.flow_id, row.flow_hash].durability
        if is_suspect(lease) and not is_hopeless(lease, durability.max_resume_attempts):
            self._suspects.add(row, lease, ttl)
        else:
            self._start(row, lease)

    def _new_owner(self) -> str:
        # Also of a worker that drives one run at a time: a suspect that it only holds has not killed it.
        return beside(self._services.ids.new_id())

    def _start(self, row: RunRow, lease: Lease) -> None:
        flow = self._flow_of(row)
        task = asyncio.ensure_future(self._drive(row, lease, flow))
        self._driving[row.run_id] = _Driving(task, lease, flow.name, self._services.clock.now())
        self._presence.changed()

    def _flow_of(self, row: RunRow) -> Flow:
        flow = self._known[row.flow_id, row.flow_hash]
        if isinstance(flow, BuiltIn):
            flow = self._known[row.flow_id, row.flow_hash] = preflight(self._made(flow), self._services)
        return flow

    def _made(self, built_in: BuiltIn) -> Flow:
        if not (wanted := built_in.asks or built_in.starts):
            return bulk_flow(self._services, self._runs)
        having = [flow for flow in self._flows.values() if flow.name == wanted]
        if built_in.starts:
            return schedule_flow(self._services, self._runs, wanted, having)
        return ask_flow(self._services, self._runs.reader, built_in.asks, having)

    def _asks(self, row: RunRow) -> bool:
        built_in = self._built_in.get((row.flow_id, row.flow_hash))
        return built_in is not None and built_in.asks != ""

    async def _drive(self, row: RunRow, lease: Lease, flow: Flow) -> None:
        stats, runs = self.stats, self._runs
        if self._asks(row):
            stats, (_, runs) = Stats(), quiet(self._services, runs)
        try:
            outcome = await runs.drive_claimed(row, lease, flow)
        except asyncio.CancelledError:
            stats.handed_back += 1
            raise
        except HostClosed:
            stats.handed_back += 1
            self.stop()
        except RunAbandoned as error:
            stats.failed += 1
            log.error("%s", error)
        except LeaseConflict as error:
            stats.handed_back += 1
            log.warning("%s", error)
        except (FlowChanged, TaskGone) as error:
            stats.handed_back += 1
            self._refuse(row.run_id, error)
        except StateCorrupted as error:
            stats.set_aside += 1
            await self._set_aside(row.run_id, lease.epoch, error)
        except Exception as error:
            stats.handed_back += 1
            self._leave_alone(row.run_id, error)
        else:
            status = outcome.status
            await self._note_progress(row, status)
            stats.paused += outcome.paused is not None
            stats.completed += status is Status.COMPLETED
            stats.halted += status is Status.HALTED
            stats.failed += status is Status.FAILED
            stats.cancelled += status is Status.CANCELLED
        finally:
            self._driving.pop(row.run_id, None)
            self._suspects.ended(row.run_id)
            self._presence.changed()
            self._busy_at = self._services.clock.monotonic()
            self._ended.set()

    async def _note_progress(self, row: RunRow, status: Status) -> None:
        """Let a run rest that halts where it was though its wait was due, or it is claimed again at once."""
        if row.status is Status.HALTED and status is Status.HALTED:
            with suppress(StoreError):
                if (await self._runs.reader.row(row.run_id)).checkpoints == row.checkpoints:
                    self._let_rest(row.run_id)
                    return
        self._unfit.pop(row.run_id, None)

    def _refuse(self, run_id: str, error: EverstepError) -> None:
        """Leave a run alone whose flow has changed too much; only other code can change that."""
        self._unfit[run_id] = (self._services.clock.monotonic() + REST[1], REST[1])
        if run_id not in self._refused:
            self._refused.add(run_id)
            log.error("run %r is left alone: %s", run_id, error)

    async def _set_aside(self, run_id: str, epoch: int, error: StateCorrupted) -> None:
        """Mark a damaged run, so that no worker takes it up again before a person has looked at it."""
        try:
            await set_aside(self._services, run_id, epoch, error.message)
            log.error("run %r needs repair and is left alone until it is resumed: %s", run_id, error)
        except StoreError:
            self._leave_alone(run_id, error)

    def _let_rest(self, run_id: str) -> float:
        """Claim a run no sooner than in a while, and say in how many seconds; each time in twice as many."""
        _, last = self._unfit.get(run_id, (0.0, 0.0))
        pause = min(max(REST[0], 2 * last), REST[1])
        self._unfit[run_id] = (self._services.clock.monotonic() + pause, pause)
        return pause

    def _leave_alone(self, run_id: str, error: Exception) -> None:
        """Try a run that cannot be driven again later, less and less often."""
        pause = self._let_rest(run_id)
        known = isinstance(error, EverstepError)
        log.error("run %r cannot be driven; next try in %.0f s: %s", run_id, pause, error, exc_info=not known)

    async def _rest(self) -> None:
        """Return when a run has ended, the store has changed, a wait is due, or it is time to look again."""
        clock = self._services.clock
        if self._failures:
            await self._wait(self._stopping, pause(self._failures, self._services.ids.chance()))
            return
        has_room = self._is_open_to_work = self._has_room()
        due = await self._next_due() if has_room else None  # a full worker waits for one of its runs to end
        began = clock.monotonic()
        while not self._stopping.is_set():
            now = clock.monotonic()
            if now - self._glanced_at >= GLANCE:
                self._glanced_at, self._has_lost_neighbour = now, self._takeover.has_lost_neighbour()
                if self._has_lost_neighbour:
                    return
                if now - self._met_at >= MEET:
                    self._met_at = now
                    await self._meet()
            left = POLL - (now - began)
            if due is not None:
                left = min(left, (due - self._services.time.now()).total_seconds())
            if has_room and left <= 0:
                return
            tick = max(min(self._tick(now), left), 0.001) if has_room else GLANCE
            if await self._wait(self._ended, tick) or (has_room and self._changes() != self._seen):
                return

    def _tick(self, now: float) -> float:
        return min(TICK, QUICK + (now - self._busy_at) * (TICK - QUICK))

    def _wake_on_change(self) -> Callable[[], None]:
        """Rest no longer once the store says that there is work, if it does; returns what ends that."""
        store, loop = self._services.store, asyncio.get_running_loop()
        if not isinstance(store, WakingStore):
            return lambda: None

        def wake() -> None:
            if self._is_open_to_work:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._ended.set)

        return store.on_change(wake)

    async def _wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event for so long; true if it came."""
        try:
            # Not `wait_for`: it may swallow that the worker is cancelled in the moment it is stopped.
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def _next_due(self) -> datetime | None:
        # What was due when it looked, and was not claimed, is for others; to wake for it would never end.
        try:
            return await self._services.store.next_due(after=self._looked_at)
        except StoreError as error:
            self._weather.broke("next due time", error)
            return None

    async def _sweep(self) -> None:
        """Tell of waits of these flows whose opener died before it could, and of what notices there are."""
        services = self._services
        try:
            for name in self._names():
                for row in await services.store.waits(WaitFilter(flow_id=name, is_untold=True, limit=1000)):
                    if row.is_forgotten(services.time.now()):
                        await announce(services, row, None)
            for flow in self._flows.values():
                if flow.starts:
                    await self._sweep_children(flow.name)
            if services.notifiers.aliases and services.store.capabilities.has_notices:
                await send_due(services)
        except StoreError as error:
            self._weather.broke("unsent notifications", error)
        except EverstepError as error:
            log.error("what is left to tell of could not be looked through: %s", error)

    async def _sweep_children(self, flow: str) -> None:
        """Settle waits for runs that have ended, and whose owners died before they could tell."""
        nudge = self._runs.resting.nudge
        after, settled = await sweep_children(self._services, flow, self._swept.get(flow), nudge)
        self._swept[flow] = after
        if settled:
            self._has_swept_news = True
            self._ended.set()

    async def _meet(self) -> None:
        try:
            await self._takeover.meet_neighbours()
        except StoreError as error:
            self._weather.broke("other workers", error)

    async def _drain(self) -> None:
        """Bring what waits on this machine to the store, before a claim makes it stale."""
        _, errors = await drain_all(self._services, apart_from=self._driving)
        for error in errors:
            log.warning("spool drain failed: %s", error)

    async def _succeed(self, owners: Collection[str] | None = None) -> None:
        """Take up the runs whose owners died on this machine; their leases need not run out first.

        With `owners`, only theirs. What there is no room for now is left for when there is.
        """
        self._left_orphans, self._has_lost_neighbour = set(), False
        try:
            orphans = await self._takeover.orphans(owners)
            # Those that may have killed their owners first: nothing is driven yet beside which they could.
            for row, held in sorted(orphans, key=lambda orphan: -orphan[1].takeovers):
                key = (row.flow_id, row.flow_hash)
                if key not in self._known or row.run_id in self._driving or self._stopping.is_set():
                    continue
                if row.is_paused or self._is_paused(row):
                    continue
                if self._services.spool.has(row.run_id):
                    continue
                must_wait = not held.takeovers and self._suspects.holds(bool(self._driving))
                if must_wait or self._room([key]) <= 0:
                    self._left_orphans.add(held.owner)
                    continue
                ttl = self._known[key].durability.lease_ttl
                asked = self._services.clock.monotonic()
                taken = await self._takeover.succeed(held, ttl, self._new_owner())
                if taken is not None:
                    self._begin(*taken, ttl, asked)
                    await self._services.take([row.run_id])
        except StoreError as error:
            self._weather.broke("dead owners", error)

    def _is_paused(self, row: RunRow) -> bool:
        lanes = self._runs.keeper.lanes
        return bool(lanes) and lane_of(lanes, row.flow_id, row.group) is not None

    async def _look_for_older(self) -> None:
        """Find the older versions of these flows that unfinished runs still go by.

        Newer ones are left to newer workers: while a deploy is under way, neither takes runs from the other.
        Those whose runs stay with their version are left to workers that have it.
        """
        try:
            for flow in self._flows.values():
                older = await self._services.store.introduce(flow.name, flow.plan.hash, flow.plan.blueprint)
                for key in [(flow.name, found) for found in older]:
                    if key not in self._flows and key not in self._others and key not in self._pinned:
                        await self._take_over(key, flow)
        except StoreError as error:
            self._weather.broke("flow versions", error)

    async def _take_over(self, key: FlowKey, flow: Flow) -> None:
        is_pinned = False
        with suppress(StateCorrupted):  # which is said of its runs, once they are driven
            is_pinned = (await self._runs.reader.structure(*key)).pinned is not None
        if is_pinned:
            self._pinned.add(key)
        else:
            self._others = {**self._others, key: flow}
            self._known = {**self._known, key: flow}
            self._presence.changed()

    async def _let_end(self, seconds: float | None) -> None:
        tasks = [it.task for it in self._driving.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _hand_back(self) -> None:
        """Stop what still runs: what has finished is kept, and the leases are given back."""
        driven = list(self._driving.values())
        for it in driven:
            it.task.cancel()
        await asyncio.gather(*(it.task for it in driven), return_exceptions=True)
        for it in driven:
            if self._runs.keeper.drop_unbegun(it.lease):
                await self._runs.resting.release(it.lease)
        self._suspects.leave()


def _limits(flows: Iterable[Flow], per_flow: Mapping[str, int], concurrency: int) -> dict[str, int]:
    names = {flow.name for flow in flows}
    for name, limit in [("concurrency", concurrency), *per_flow.items()]:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise BadRequest(f"{name!r} may run {limit!r} at once.", fix="Give a whole number from 1 on.")
    for name in per_flow.keys() - names:
        raise BadRequest(f"this worker drives no flow {name!r}.", fix=f"It drives {sorted(names)}.")
    return {name: per_flow.get(name, concurrency) for name in names}


def _quotas(flows: Iterable[Flow]) -> dict[str, Quota]:
    """Return how many runs of flows all workers together may drive, of those that say so."""
    return {
        flow.name: Quota(
            running=flow.max_running,
            per_group=flow.max_per_group,
            limits=tuple(rules_of(flow.limits)) if flow.limits else (),
        )
        for flow in flows
        if flow.max_running is not None or flow.max_per_group is not None or flow.limits
    }


def _ready(flows: Iterable[Flow], services: Services) -> dict[FlowKey, Flow]:
    """Return the flows as this host drives them, without those that keep nothing here."""
    ready = [preflight(flow, services) for flow in flows]
    if [flow for flow in ready if flow.starts]:
        ready = [preflight(flow, services) for flow in all_started(ready)]
    kept = {(f.name, f.plan.hash): f for f in ready if f.durability.mode is not Mode.OFF}
    left_out = [flow.name for flow in ready if flow.durability.mode is Mode.OFF]
    if left_out:
        _leave_out(left_out, is_all=not kept)
    if not kept:
        raise BadRequest("a worker needs a flow to drive.", fix="Give it at least one.")
    return kept


def _leave_out(names: list[str], *, is_all: bool) -> None:
    """Say that a worker drives none of these; raise if it was given no others."""
    flows = ", ".join(map(repr, names))
    said = f"flow {flows} keeps nothing here (durability off), so no worker drives its runs."
    if is_all:
        raise DurabilityOff(said, fix="Use durability 'partial' or 'strong', on a host that allows it.")
    log.warning("%s", said)
