"""Keeps the leases of a host's runs alive, on a thread of its own.

User code may hold the driving thread for hours; the lease must not depend on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from everstep.engine.leases import noted
from everstep.errors import EverstepError, LeaseLost, RunCancelled, StoreUnavailable
from everstep.model.leases import Held, LanePause, Lease, lane_of
from everstep.ports.store import BlockingStore, CheckpointStore, Verdict
from everstep.ports.system import Lock, System, Thread, uptime

if TYPE_CHECKING:
    from everstep.ports.pausing import BlockingPauses, PausingStore

T = TypeVar("T")
log = logging.getLogger("everstep")
GRACE = 30.0
"""Seconds that runs under way have to end or halt when a worker is stopped."""
IDLE = 10.0
"""Seconds between two looks while nothing is due."""
NAPS = 20
"""After so many looks in a row with nothing to keep, it looks no more until it is woken."""
GLANCE = 1.0
"""Seconds between two looks whether an event loop that is to answer still runs."""


class Stoppable(Protocol):
    @property
    def lane(self) -> tuple[str, str | None]: ...

    def stop(self, reason: EverstepError) -> None: ...

    def pause(self, mark: str) -> None: ...

    def nudge(self) -> None: ...

    def check_sent(self, name: str, value: Any) -> None: ...


class _Held:
    def __init__(self, lease: Lease, ttl: timedelta, drive: Stoppable, now: float) -> None:
        self.lease = lease
        self.ttl = ttl
        self.drive: Stoppable | None = drive
        """None once it has ended, and only threads are left of it."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where its drive runs, and where it is renewed if its store has only calls to await."""
        self.threads: Sequence[Future[None]] = ()
        self.outlives_store = False
        self.renewed = now
        self.due = now + ttl.total_seconds() / 2

    @property
    def is_over(self) -> bool:
        return self.drive is None and all(thread.done() for thread in self.threads)

    def is_nearly_due(self, now: float) -> bool:
        return self.due <= now + self.ttl.total_seconds() / 10


class _NotYet:
    """Stands for the drive of a run that was claimed and has not begun, and remembers why it must not."""

    lane = ("", None)
    mark: str | None = None

    def __init__(self) -> None:
        self.reason: EverstepError | None = None

    def stop(self, reason: EverstepError) -> None:
        self.reason = reason

    def pause(self, mark: str) -> None:
        self.mark = mark

    def nudge(self) -> None:
        """It will look for answers when it begins."""

    def check_sent(self, name: str, value: Any) -> None:
        """It is not known yet what its flow takes in."""


class Beat:
    """Something that is done every so many seconds, until it is ended."""

    def __init__(
        self, keeper: LeaseKeeper, every: float, work: Callable[[], None], now: float, lock: Lock
    ) -> None:
        self._keeper = keeper
        self._every = every
        self._work = work
        self._doing = lock
        self._is_over = False
        self.last = now
        self.due = now + every

    def do(self, now: float) -> None:
        """Do it, and not again before its time."""
        self.last, self.due = now, now + self._every
        with self._doing:
            if not self._is_over:
                self._work()

    def hasten(self, least: float) -> None:
        """Do it soon, but not within so many seconds of the last time."""
        self._keeper.hasten(self, self.last + least)

    def end(self) -> None:
        """Do it no more; if it is being done, wait until it is."""
        self._keeper.end(self)
        with self._doing:
            self._is_over = True


class LeaseKeeper:
    """Renews every lease at half its time, and stops the drive of one that is lost."""

    def __init__(self, store: CheckpointStore, blocking: BlockingStore | None, system: System) -> None:
        self._store = store
        self._blocking = blocking
        self._system = system
        self._clock = system.clock
        self._held: dict[str, _Held] = {}
        """By owner, which is another one for each drive: a run may be driven here a second time while the
        first drive, which has lost it, still ends."""
        self._left_behind: dict[str, set[str]] = {}
        """By run: owners of leases that could not be given back, or that were asked for and may have been
        granted although the store raised. No drive here has them."""
        self._beats: list[Beat] = []
        self._is_troubled = False
        self._changed = system.condition()
        self._thread: Thread | None = None
        self._wakes_at = 0.0
        self._is_closed = False
        self._lent: asyncio.AbstractEventLoop | None = None
        """The event loop on which the host is being closed."""
        self.lanes: tuple[LanePause, ...] = ()
        """The flows and groups that are paused, as of the last look."""
        self.has_looked = False
        """True once it was looked at all."""
        self._looks_every = self._looks_at = inf
        """Seconds between two looks at what is paused, and when the next one is."""
        self._looked: tuple[int, frozenset[str]] = (-1, frozenset())
        """What the store had counted at the last look, and the owners for which it looked."""
        self._workers: list[asyncio.AbstractEventLoop] = []
        """Where workers of this host claim runs: it looks also while nothing is driven."""
        self._has_marks = False
        """True if a run was found to be paused before its drive began."""

    def keep(self, lease: Lease, ttl: timedelta, asked: float | None = None) -> None:
        """Begin to renew the lease of a run that was claimed, whenever its drive begins.

        It lasts from when it was `asked` for: the reply may be late, as the process may have been suspended.
        """
        with self._changed:
            if self._kept(lease) is None:
                since = self._clock.monotonic() if asked is None else asked
                self._held[lease.owner] = held = _Held(lease, ttl, _NotYet(), since)
                if self._blocking is None:
                    held.loop = asyncio.get_running_loop()
                self._awake(held.due)

    def hold(self, lease: Lease, ttl: timedelta, drive: Stoppable, *, outlives_store: bool = False) -> None:
        """Renew a lease for a drive, which is stopped if it was lost before.

        A drive that outlives its store goes on while that is out of reach.
        """
        with self._changed:
            held = self._kept(lease)
            if held is None:
                held = self._held[lease.owner] = _Held(lease, ttl, drive, self._clock.monotonic())
            before, held.drive = held.drive, drive
            held.ttl, held.outlives_store = ttl, outlives_store
            if self._blocking is None:
                held.loop = asyncio.get_running_loop()
            if isinstance(before, _NotYet) and before.reason is not None:
                drive.stop(before.reason)
            else:
                self._awake(held.due)
        if self.lanes or self._has_marks:
            self._pass_on(drive, before)

    def _pass_on(self, drive: Stoppable, before: Stoppable | None) -> None:
        """Tell a drive that begins what is paused."""
        lane = lane_of(self.lanes, *drive.lane)
        mark = before.mark if isinstance(before, _NotYet) else None
        if mark is None and lane is not None:
            mark = lane.mark()
        if mark is not None:
            drive.pause(mark)

    def _kept(self, lease: Lease) -> _Held | None:
        return self._held.get(lease.owner)

    async def confirm(self, lease: Lease) -> None:
        """Renew a lease at once that should have been renewed by now, and stop its drive if it was lost.

        The process may have been suspended, or something else held this thread or the keeper's.
        """
        held = self._kept(lease)
        if held is not None and held.due < self._clock.monotonic():
            self._judge(
                held, self._clock.monotonic(), (await self._store.renew([self._longer(held)], held.ttl))[0]
            )

    def _awake(self, due: float) -> None:
        if self._thread is None:
            self._thread = self._system.spawn(self._work, "everstep-leases")
        elif due < self._wakes_at:
            self._changed.notify()

    def beat(self, every: float, work: Callable[[], None]) -> Beat:
        """Do something every so many seconds on this thread."""
        with self._changed:
            beat = Beat(self, every, work, self._clock.monotonic(), self._system.lock())
            self._beats.append(beat)
            self._awake(beat.due)
        return beat

    def hasten(self, beat: Beat, due: float) -> None:
        """Let a beat come at an earlier time."""
        with self._changed:
            if due < beat.due:
                beat.due = due
                self._awake(due)

    def end(self, beat: Beat) -> None:
        """Let a beat come no more."""
        with self._changed:
            if beat in self._beats:
                self._beats.remove(beat)

    def drop(self, lease: Lease) -> None:
        """Stop renewing the lease of this drive."""
        with self._changed:
            self._held.pop(lease.owner, None)

    def drop_unbegun(self, lease: Lease) -> bool:
        """Stop renewing the lease of a run whose drive never began; false if it did."""
        with self._changed:
            held = self._kept(lease)
            is_unbegun = held is not None and isinstance(held.drive, _NotYet)
            if is_unbegun:
                del self._held[lease.owner]
            return is_unbegun

    def linger(self, lease: Lease, threads: Sequence[Future[None]]) -> None:
        """Keep the lease of a drive that has ended until these threads have; then give it back.

        They make effects, and a new owner would make them a second time meanwhile.
        """
        with self._changed:
            held = self._kept(lease)
            if held is None:
                return  # it was lost
            held.drive, held.threads = None, threads
        log.warning("run %r is kept until the thread of its effectful node has ended.", lease.run_id)
        for thread in threads:
            thread.add_done_callback(lambda _: self._look())

    def _look(self) -> None:
        with self._changed:
            self._changed.notify()

    def leave_behind(self, run_id: str, owner: str) -> None:
        """Note an owner who may still have the lease of a run, and does not drive it."""
        with self._changed:
            self._left_behind.setdefault(run_id, set()).add(owner)

    def is_left_behind(self, lease: Lease) -> bool:
        """True for a lease of ours that no drive here has any more."""
        with self._changed:
            return lease.owner in self._left_behind.get(lease.run_id, ())

    def forget_left_behind(self, run_id: str) -> None:
        """Forget who was left behind with a run, which was claimed anew."""
        with self._changed:
            self._left_behind.pop(run_id, None)

    def lend(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the store be asked on this event loop, if none runs that a drive has left behind."""
        self._lent = loop

    @property
    def lingers(self) -> bool:
        """True if it keeps a lease for threads of a drive that has ended."""
        with self._changed:
            return any(held.drive is None for held in self._held.values())

    @property
    def is_busy(self) -> bool:
        """True if this host drives a run."""
        return bool(self._held)

    async def watch(self) -> None:
        """Look at what is paused for a worker of this loop, now and from now on."""
        if self._store.capabilities.pauses:
            self.take_pauses(await cast("PausingStore", self._store).held(()))
            with self._changed:
                self._workers.append(asyncio.get_running_loop())
                self._awake(self._clock.monotonic() + self._looks_every)

    def end_watch(self) -> None:
        """Look no more for a worker of this loop."""
        with self._changed:
            loop = asyncio.get_running_loop()
            if loop in self._workers:
                self._workers.remove(loop)

    def nudge_all(self) -> None:
        """Let every drive look for answers soon."""
        with self._changed:
            drives = [held.drive for held in self._held.values() if held.drive is not None]
        for drive in drives:
            if drive is not None:
                drive.nudge()

    def drive_of(self, run_id: str) -> Stoppable | None:
        """Return the drive of a run that this host drives, or is about to."""
        with self._changed:
            drives = [held for held in self._held.values() if held.lease.run_id == run_id]
        newest = max(drives, key=lambda held: held.lease.epoch, default=None)
        return newest.drive if newest is not None else None

    def close(self) -> Thread | None:
        """Stop renewing; only what makes effects still is kept, on a thread that ends with it.

        Returns the thread if it is to be waited for.
        """
        with self._changed:
            self._is_closed = True
            self._held = {o: held for o, held in self._held.items() if not isinstance(held.drive, _NotYet)}
            lingers = bool(self._held)
            self._changed.notify()
        return None if lingers else self._thread

    def _work(self) -> None:
        # By a clock that a test moves no seconds pass by themselves.
        if self._store.capabilities.pauses and uptime(self._clock) is not None:
            self._looks_every = cast("PausingStore", self._store).looks_every
            self._looks_at = self._clock.monotonic() + self._looks_every
        naps = 0
        while True:
            with self._changed:
                if self._is_closed and not self._held:
                    return
                now = self._clock.monotonic()
                over = [h for h in self._held.values() if h.is_over]
                due = [h for h in self._held.values() if h.due <= now and h not in over]
                if due:  # with them those that are due soon, so that many leases are not as many questions
                    due = [h for h in self._held.values() if h.is_nearly_due(now) and h not in over]
                beats = [b for b in self._beats if b.due <= now]
                looks = self._looks_at <= now and bool(self._held or self._workers)
                if not due and not over and not beats and not looks:
                    # To be woken for every run would cost each of them a switch, so it looks by itself.
                    moments = [h.due for h in self._held.values()] + [b.due for b in self._beats]
                    naps = 0 if moments or self._workers else naps + 1
                    if naps > NAPS:
                        naps, self._wakes_at = 0, inf
                        self._changed.wait()
                    else:
                        self._wakes_at = min([*moments, now + min(IDLE, self._looks_every)])
                        self._changed.wait(self._wakes_at - now)
                    continue
            for held in over:
                self._give_back(held)
            for group in dict.fromkeys((held.ttl, held.loop) for held in due):
                self._renew([held for held in due if (held.ttl, held.loop) == group], group[0])
            for beat in beats:
                beat.do(now)
            if looks:
                self._looks_at = now + self._looks_every
                self._see_pauses()

    def _see_pauses(self) -> None:
        """Tell the drives of runs that are paused, and keep in mind which flows and groups are."""
        with self._changed:
            held = [it for it in self._held.values() if it.drive is not None]
        owners = frozenset(it.lease.owner for it in held)
        try:
            counted = self._counted()
            if counted is not None and counted == self._looked[0] and owners <= self._looked[1]:
                return
            found = self._ask_pauses([it.lease.run_id for it in held])
        except EverstepError as error:
            log.debug("pauses not seen: %s", error)  # it looks again soon
            return
        if counted is not None:
            self._looked = (counted, owners)
        self.take_pauses(found)

    def _counted(self) -> int | None:
        """Return what the store has counted of its writes, if that tells of pauses and costs nothing here."""
        is_free = not self._store.capabilities.remote or bool(self._workers)
        if self.lanes or not is_free or not cast("PausingStore", self._store).tells_pauses:
            return None
        return self._store.changes()

    def _ask_pauses(self, run_ids: Sequence[str]) -> Held:
        if self._blocking is not None:
            return cast("BlockingPauses", self._blocking).held_blocking(run_ids)
        return self._on_loop(None, partial(cast("PausingStore", self._store).held, run_ids))

    def has_marks(self) -> None:
        """Tell drives that are about to begin whether their runs are paused."""
        self._has_marks = True

    def take_pauses(self, found: Held) -> None:
        """Tell the drives that are here what is paused."""
        self.lanes, self.has_looked = found.lanes, True
        if not (found.runs or found.lanes):
            return
        with self._changed:
            held = [(it.lease.run_id, it.drive) for it in self._held.values() if it.drive is not None]
        for run_id, drive in held:
            mark = found.runs.get(run_id)
            if mark is None and (lane := lane_of(found.lanes, *drive.lane)) is not None:
                mark = lane.mark()
            if mark is not None:
                self.has_marks()
                drive.pause(mark)

    def _give_back(self, held: _Held) -> None:
        self.drop(held.lease)
        try:
            if self._blocking is not None:
                self._blocking.release_blocking(held.lease)
            else:
                self._on_loop(held.loop, partial(self._store.release_lease, held.lease))
        except Exception as error:
            log.warning("lease release failed: run %r: %s", held.lease.run_id, error)
            self.leave_behind(held.lease.run_id, held.lease.owner)

    def _renew(self, some: Sequence[_Held], ttl: timedelta) -> None:
        started = self._clock.monotonic()
        try:
            outcomes = self._ask(some, ttl)
        except EverstepError as error:
            if len(some) == 1:
                self._failed(some[0], error)
            else:  # it may be about one of them
                for held in some:
                    self._renew([held], ttl)
            return
        self._is_troubled = False
        for held, outcome in zip(some, outcomes, strict=True):
            self._judge(held, started, outcome)

    def _failed(self, held: _Held, error: EverstepError) -> None:
        if self._kept(held.lease) is not held:
            return  # its drive has ended meanwhile
        span = held.ttl.total_seconds()
        held.due = self._clock.monotonic() + min(span / 10, 5.0)
        if not self._is_troubled:
            self._is_troubled = True
            log.warning("lease renewal failed: run %r: %s", held.lease.run_id, error)
        if self._clock.monotonic() - held.renewed > span and not held.outlives_store:
            lost = LeaseLost(f"the lease of run {held.lease.run_id!r} ran out: {error}", ran_out=True)
            self._stop(held, lost)

    def _judge(self, held: _Held, asked: float, outcome: Lease | Verdict) -> None:
        if isinstance(outcome, Lease):
            held.lease, held.renewed, held.due = outcome, asked, asked + held.ttl.total_seconds() / 2
        elif outcome is Verdict.STOP_REQUESTED:
            self._stop(held, RunCancelled(f"run {held.lease.run_id!r} was cancelled."))
        else:
            self._stop(held, LeaseLost(f"run {held.lease.run_id!r} was taken over by another process."))

    def _longer(self, held: _Held) -> Lease:
        """Return a lease as its owner notes that it lasts from now on."""
        lease = held.lease
        if lease.process is None or lease.process.until is None:
            return lease
        process = noted(lease.process, self._clock.monotonic(), held.ttl)
        return msgspec.structs.replace(lease, process=process)

    def _ask(self, some: Sequence[_Held], ttl: timedelta) -> Sequence[Lease | Verdict]:
        leases = [self._longer(held) for held in some]
        if self._blocking is not None:
            return self._blocking.renew_blocking(leases, ttl)
        return self._on_loop(some[0].loop, partial(self._store.renew, leases, ttl))

    def _on_loop(self, own: asyncio.AbstractEventLoop | None, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask on the event loop of a drive, or on another that runs if that has stopped."""
        loop = self._running(own)
        work = ask()
        try:
            done = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError as error:  # it was closed a moment ago
            work.close()
            raise _unasked() from error
        answered = self._system.event()
        done.add_done_callback(lambda _: answered.set())
        while not answered.wait(GLANCE):
            if not loop.is_running():  # it may never go on, and others wait for this thread
                done.cancel()
        if done.cancelled():
            raise _unasked()
        return done.result()

    def _running(self, own: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
        with self._changed:
            loops = [own, *(held.loop for held in self._held.values()), *self._workers, self._lent]
        for loop in loops:
            if loop is not None and loop.is_running():
                return loop
        raise _unasked()

    def _stop(self, held: _Held, reason: EverstepError) -> None:
        with self._changed:
            if isinstance(held.drive, _NotYet):
                held.due = inf  # it stays until the drive begins, which must hear of it
                held.drive.stop(reason)
                return
            self._held.pop(held.lease.owner, None)
        if held.drive is not None:
            held.drive.stop(reason)


def _unasked() -> StoreUnavailable:
    return StoreUnavailable("no event loop of this host runs on which the store could be asked.")
