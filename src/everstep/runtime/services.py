"""What a drive needs from its host: services, the time of its store, and the counts for metrics."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from copy import copy
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.values import Values
from everstep.engine.leases import noted
from everstep.errors import EverstepError, StoreError, UnknownScheduler
from everstep.graph.author.flow import Flow
from everstep.graph.check.validate import Offers, Rule
from everstep.model.budgets import add_to
from everstep.model.durability import RECORD_BYTES, Durability
from everstep.model.enums import Mode
from everstep.model.leases import Process
from everstep.on_demand import on_demand
from everstep.ports.beside import ChannelStore, RunQueue
from everstep.ports.durability import Notifier, ResumeScheduler, ResumeSignalSource
from everstep.ports.store import CheckpointBlobStore, CheckpointStore, TimedStore, is_blocking
from everstep.ports.system import Clock, Lock, System, time_for_store, uptime
from everstep.runtime.coded_blobs import CodedBlobs
from everstep.runtime.drive.committer import Committer
from everstep.runtime.drive.node_threads import NodeThreads
from everstep.runtime.events import Listener
from everstep.runtime.outage.spool import Spool
from everstep.runtime.waits.notifiers import Notifiers
from everstep.runtime.waits.schedulers import Schedulers
from everstep.runtime.workers.backpressure import Weather

if TYPE_CHECKING:
    from everstep.graph.tells import Tell
    from everstep.runtime.live.live_data import LiveData
    from everstep.runtime.metrics.meter import Meter
    from everstep.runtime.metrics.store_view import Seen, StoreView
    from everstep.runtime.operations.run_times import ReadTimes
    from everstep.runtime.tracing.spans import Tracer
    from everstep.runtime.waits.tokens import Tokens
    from everstep.runtime.workers.lease_renewal import LeaseKeeper
else:
    LiveData = on_demand("everstep.runtime.live.live_data:LiveData")
    ReadTimes = on_demand("everstep.runtime.operations.run_times:ReadTimes")
    StoreView = on_demand("everstep.runtime.metrics.store_view:StoreView")
    Tokens = on_demand("everstep.runtime.waits.tokens:Tokens")


log = logging.getLogger("everstep")
TRUSTED_FOR = 60.0
"""Seconds after which the store is asked again."""
PROMPT, TRIES = 0.05, 3
"""Seconds within which an answer tells the time well enough, and how often it is asked for one."""


class Drivable(Protocol):
    """A run that is being driven."""

    def stop(self, reason: EverstepError) -> None: ...

    def breathe(self) -> None: ...


class Telling(Protocol):
    """Tells of runs that have ended, and does not wait for that."""

    async def tell(self, run_id: str) -> None: ...


class Cleared(msgspec.Struct, frozen=True):
    """A flow that was found to be without errors."""

    durability: Durability
    """What it asked for."""
    ready: Flow | None
    """The flow as this host runs it, if not as it is."""


class Services:
    """The store, the clock and the rest, shared by all runs of a host."""

    record_bytes = RECORD_BYTES
    """What the values in one record should not exceed."""
    after_run: Callable[[Flow], None] | None = None
    """Told of each flow whose run has ended, so that retention can apply."""
    telling: Telling | None = None
    """What tells of runs beside the others, while a worker drives several."""
    notes_at_work = False
    """True once the program has loaded what asks at which step its code is at work."""
    keeper: LeaseKeeper | None = None
    """What renews the leases of this host."""
    tracing: Tracer | None = None
    """What makes spans of what is done here, if that was asked for."""
    meter: Meter | None
    """What counts for metrics; none if there are to be none."""
    notify: tuple[Tell, ...] = ()
    """Who is told of runs that are admitted here, whatever their flows say."""
    notes_unnamed = False
    """True if the audit log may have rows of acts without a name, as of those over HTTP."""
    looks_first = False
    """True if what is paused is looked at before the first run is driven: a command drives but one."""
    side_by_side = False
    """True while a worker drives several runs on this loop, or may at any moment: no node is to hold it."""

    def __init__(
        self,
        *,
        store: CheckpointStore,
        blobs: CheckpointBlobStore | None,
        system: System,
        values: Values,
        listener: Listener | None,
        owns_loop: bool,
        max_threads: int,
        key: str | bytes | None = None,
        base_url: str | None = None,
        schedulers: Mapping[str, ResumeScheduler] | None = None,
        scheduler: str = "",
        notifiers: Mapping[str, Notifier] | None = None,
        max_mode: Mode = Mode.STRONG,
        provides: Iterable[str] = (),
        spool: Spool,
        rules: Iterable[Rule] = (),
        channels: ChannelStore | None = None,
        queue: RunQueue | None = None,
        codecs: Codecs,
        meter: Meter | None = None,
    ) -> None:
        self.store, self.meter = store, meter
        self.blocking = store if is_blocking(store) else None
        """The store, if its put is a short local call."""
        self.codecs = codecs
        """What is done to values between serializing and storing them."""
        self.blobs = CodedBlobs(blobs, codecs, meter) if blobs is not None else None
        self.system = system
        """Time, chance and threads."""
        self.clock = clock = system.clock
        self.ids = system.ids
        self.tally = Tally(system.lock())
        """What the runs driven here have spent."""
        self.weather = Weather(clock)
        """Whether the store answers, as workers and the runs they drive find it."""
        self.processes = system.processes
        self.values = values
        self.listener = listener
        self.owns_loop = owns_loop
        """True if no other code runs on the loop, so that a sync node may be called on it."""
        self.time = StoreTime(store, clock)  # the clock by which waits are due
        self._key, self._made = key, _Made()
        if key is not None:
            _ = self.tokens  # a key that is too short is refused at once
        self.schedulers = Schedulers(store, self.time, schedulers or {}, codecs, scheduler)
        self.notifiers = Notifiers(notifiers or {}, system, meter)
        self.base_url = base_url.rstrip("/") if base_url is not None else None
        self.max_mode = max_mode
        """The most that this host keeps of a run."""
        holds_waits = store.capabilities.holds_waits
        own = _provided(max_mode, holds_waits=holds_waits, holds_blobs=blobs is not None)
        self.provided = frozenset({*own, *provides})
        """The names of the services that nodes may require."""
        self.channels = channels
        """Where new runs keep their channels; none for their chains."""
        self.queue = queue
        """Who tells workers of runs, besides the store."""
        self.spool = spool
        """Where commits wait on this machine, for flows with `on_store_failure="best_effort"`."""
        aliases = self.schedulers.aliases, self.notifiers.aliases
        self.offers = Offers(self.provided, *aliases, max_mode, tuple(rules), holds_waits, values.objection)
        self.cleared: WeakKeyDictionary[Flow, Cleared] = WeakKeyDictionary()
        """Flows that may start here, as they were when that was found out."""
        self.committer = Committer(store, self.blocking, system, owns_loop=owns_loop, meter=meter)
        self.driving: set[Drivable] = set()
        """What drives runs on this loop."""
        self.max_threads, self._threads = max_threads, _Threads(system, max_threads)

    @cached_property
    def read_times(self) -> ReadTimes:
        """The times of ended runs that were read."""
        return ReadTimes()

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of waits."""
        chance = self.system.random_bytes
        return Tokens(self.store, self.time, self._key, codecs=self.codecs, chance=chance)

    @property
    def live(self) -> LiveData:
        """What runs emit for other processes, shared by all event loops of a host."""
        live = self._made.live
        if not live:  # of two threads that make it, one is kept
            live.append(LiveData(self.store, self.system, self.codecs))
        return live[0]

    def store_view(self, see: Callable[[Services], Coroutine[Any, Any, Seen]]) -> StoreView:
        """Return what was last seen of the store, shared by all event loops of a host, and seen like this."""
        views = self._made.views
        if not views:
            views.append(StoreView(partial(see, self), self.system))
        return views[0]

    @property
    def may_hold_loop(self) -> bool:
        """True if a sync node may be called on the loop's own thread: its run is alone, and stays so.

        Not if leases are renewed on the loop, as a store asks for that has only calls to await.
        """
        is_alone = not self.side_by_side and self.committer.drives <= 1
        return is_alone and self.owns_loop and self.blocking is not None

    def holder(self, ttl: timedelta) -> Process | None:
        """Return this process as the one that is to hold a lease from now on.

        A store elsewhere has a clock that is not set here; for one on this machine the seconds since boot
        are noted, too.
        """
        is_elsewhere = self.store.capabilities.remote
        return noted(self.processes.me(), None if is_elsewhere else uptime(self.clock), ttl)

    def link(self, token: str | None) -> str | None:
        """Return the page where a wait is answered, if this host knows its own address."""
        return None if token is None or self.base_url is None else f"{self.base_url}/w/{token}"

    def twin(self) -> Services:
        """Return the same services for another event loop, with commits of its own."""
        twin = copy(self)
        twin.committer = Committer(
            self.store, self.blocking, self.system, owns_loop=self.owns_loop, meter=self.meter
        )
        twin.driving = set()
        return twin

    @property
    def pool(self) -> NodeThreads:
        """Threads for sync nodes that run beside others."""
        return self._threads.pool()

    def changes(self) -> int:
        """Return a number that is soon another one once there may be something to drive."""
        return self.store.changes() + (self.queue.changes() if self.queue is not None else 0)

    async def ring(self, run_id: str, flow_id: str = "") -> None:
        """Tell workers that a run is due. If that fails, they find it when they look."""
        if self.queue is not None:
            await self._beside(partial(self.queue.announce, run_id, flow_id))

    async def take(self, run_ids: Collection[str]) -> None:
        """Say that runs are being driven."""
        if self.queue is not None and run_ids:
            await self._beside(partial(self.queue.take, run_ids))

    async def _beside(self, work: Callable[[], object]) -> None:
        try:
            await self.system.to_thread(work)
        except StoreError as error:
            log.warning("queue message failed: %s", error)

    def close(self) -> None:
        for beside in (self.channels, self.queue):
            if beside is not None:
                beside.close()
        for live in self._made.live:
            live.close()
        self.committer.close()
        self._threads.close()


def _provided(most: Mode, *, holds_waits: bool, holds_blobs: bool) -> tuple[str, ...]:
    """Return the names of the services that a store is, if anything is kept in it."""
    if most is Mode.OFF:
        return ()
    waiting = ("resume_scheduler", "resume_signal_source") if holds_waits else ()
    return ("checkpoint_store", *waiting, *(("checkpoint_blob_store",) if holds_blobs else ()))


class _Made:
    """What all event loops of a host share once one has made it, each with no more than one in its list."""

    def __init__(self) -> None:
        self.live: list[LiveData] = []
        self.views: list[StoreView] = []


class _Threads:
    """A pool that is made when it is first wanted."""

    def __init__(self, system: System, most: int) -> None:
        self._system = system
        self._most = most
        self._lock = system.lock()
        self._pool: NodeThreads | None = None

    def pool(self) -> NodeThreads:
        with self._lock:
            if self._pool is None:
                self._pool = NodeThreads(self._most, self._system)
            return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class StoreTime:
    """A clock that shows the store's time; the host's where the store has none, or a test moves it.

    The store is asked now and then; in between the monotonic clock counts on. Due times are made and
    compared by it, so that a machine whose clock is wrong lets nothing time out early or late. It is never
    ahead of the store's: what is due by it, the store finds due too.
    """

    def __init__(self, store: CheckpointStore, clock: Clock) -> None:
        self._clock = clock
        self._given = store
        self._heard: tuple[datetime, float] | None = None
        """What the store said, and when by the monotonic clock."""
        self.is_missing = False
        """True if the store has a clock that counts and was not heard yet, as it was out of reach."""

    @cached_property
    def _store(self) -> TimedStore | None:
        """The store, if it has a clock that counts."""
        store = self._given
        return store if isinstance(store, TimedStore) and time_for_store(self._clock) is None else None

    async def hear(self) -> None:
        """Ask the store what time it is, if that was not done lately. Never raises."""
        monotonic = self._clock.monotonic
        if self._store is None or (self._heard and monotonic() - self._heard[1] < TRUSTED_FOR):
            return
        try:
            await self._listen(self._store)
        except StoreError as error:
            self.is_missing = self._heard is None
            log.debug("store clock unavailable: %s", error)

    async def ask(self) -> None:
        """Ask the store what time it is. Raises if it is out of reach."""
        if self._store is not None:
            await self._listen(self._store)

    async def _listen(self, store: TimedStore) -> None:
        monotonic = self._clock.monotonic
        best: float | None = None
        for _ in range(TRIES):
            asked = monotonic()
            said = await store.now()
            heard = monotonic()
            if best is None or heard - asked < best:
                best = heard - asked
                # When it was said, at the latest: the question may have waited long, as for a connection.
                self._heard, self.is_missing = (said, heard) if said is not None else None, False
            if best <= PROMPT:
                return

    @property
    def ahead(self) -> timedelta:
        """How far the store's clock is ahead of the host's; none if it has none or was not asked yet."""
        if self._heard is None:
            return timedelta(0)
        said, at = self._heard
        return said + timedelta(seconds=self._clock.monotonic() - at) - self._clock.now()

    def now(self) -> datetime:
        """Return the time by the store's clock."""
        return self._clock.now() + self.ahead

    def monotonic(self) -> float:
        """Return the host's seconds."""
        return self._clock.monotonic()

    def here(self, at: datetime) -> datetime:
        """Return what the host's clock shows when the store's shows this."""
        return at - self.ahead

    async def sleep_until(self, at: datetime) -> None:
        """Return once the store's clock shows this."""
        await self._clock.sleep_until(self.here(at))


class Tally:
    """Counts since the host was opened. Never the source of truth: records are."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._spent: dict[str, Decimal] = {}
        self._warnings: Counter[str] = Counter()
        self._trips: Counter[str] = Counter()

    def spend(self, amounts: Mapping[str, Decimal]) -> None:
        """Count what was spent."""
        with self._lock:
            add_to(self._spent, amounts)

    def speak_up(self, *, budgets: Iterable[str], breakers: Iterable[str]) -> None:
        """Count budgets that warned and breakers that opened."""
        with self._lock:
            self._warnings.update(list(budgets))
            self._trips.update(list(breakers))

    def counts(self) -> tuple[dict[str, Decimal], dict[str, int], dict[str, int]]:
        """Return what was spent, how often each budget warned, and how often each breaker opened."""
        with self._lock:
            return dict(self._spent), dict(self._warnings), dict(self._trips)


class Bundle:
    """What a host has of `HostDurability`. A host without a store has nothing, and keeps nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def checkpoint_store(self) -> CheckpointStore | None:
        return self._services.store if "checkpoint_store" in self._services.provided else None

    @property
    def resume_signal_source(self) -> ResumeSignalSource | None:
        return self._services.tokens if "resume_signal_source" in self._services.provided else None

    @property
    def checkpoint_blob_store(self) -> CheckpointBlobStore | None:
        return self._services.blobs if "checkpoint_blob_store" in self._services.provided else None

    @property
    def max_durability_mode(self) -> Mode:
        return self._services.max_mode

    def resume_scheduler(self, alias: str = "") -> ResumeScheduler | None:
        """Return the scheduler of an alias, by default the store's own; none if there is no such one."""
        if "resume_scheduler" not in self._services.provided:
            return None
        try:
            return self._services.schedulers.of(alias)
        except UnknownScheduler:
            return None
