"""Brings commits to the store: inline when nothing else waits, else grouped on a writer thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from everstep.errors import StoreUnavailable
from everstep.model.durability import MIB
from everstep.ports.store import BlockingStore, CheckpointStore, Commit, Verdict
from everstep.ports.system import System

if TYPE_CHECKING:
    from everstep.runtime.metrics.meter import Meter

SLOW = 0.002
"""A store whose commits take longer than this is not waited for on the loop."""
SAMPLE = 8
"""Of so many commits that are written on the spot, one is timed."""
PATIENCE = 5.0
"""Seconds that a cancelled caller waits for a commit that is under way."""
PUT_BYTES = 64 * MIB
"""What the records in one put should not exceed together."""


class _Queued:
    """A commit that waits for the store, and the caller that waits for it."""

    __slots__ = ("commit", "done", "outcome")

    def __init__(self, commit: Commit, done: asyncio.Future[Verdict]) -> None:
        self.commit = commit
        self.done = done
        self.outcome: Verdict | BaseException | None = None
        """Kept beside the future: a caller that is cancelled cancels that."""

    def answer(self, outcome: Verdict | BaseException) -> None:
        self.outcome = outcome
        if self.done.done():
            return
        if isinstance(outcome, BaseException):
            self.done.set_exception(outcome)
        else:
            self.done.set_result(outcome)

    async def settled(self, loop: asyncio.AbstractEventLoop) -> Verdict | None:
        """Wait a while longer, for a caller that was cancelled, and return the verdict if there is one."""
        if self.outcome is None:
            self.done = loop.create_future()
            for done in (await asyncio.wait([self.done], timeout=PATIENCE))[0]:
                done.exception()  # taken note of
        return self.outcome if isinstance(self.outcome, Verdict) else None


class Turn:
    """`async with` it a run is under way; others that are about to start are let be counted first.

    One for all runs of a loop: it knows nothing of any.
    """

    def __init__(self, committer: Committer, *, owns_loop: bool) -> None:
        self._committer = committer
        self._owns_loop = owns_loop

    async def __aenter__(self) -> None:
        self._committer.drives += 1
        if not self._owns_loop:
            try:
                await asyncio.sleep(0)
            except BaseException:
                self._committer.drives -= 1
                raise

    async def __aexit__(self, *failed: object) -> None:
        self._committer.drives -= 1


class Committer:
    """One per host. Many runs share one transaction; a lone run pays for no thread hop."""

    def __init__(
        self,
        store: CheckpointStore,
        blocking: BlockingStore | None,
        system: System,
        *,
        owns_loop: bool = True,
        meter: Meter | None = None,
    ) -> None:
        self._store = store
        self._meter = meter
        self._sample = SAMPLE if meter is None else 0
        """Every commit is timed for those who measure."""
        self._owns_loop = owns_loop
        self.turn = Turn(self, owns_loop=owns_loop)
        self._may_wait = owns_loop or not store.capabilities.remote
        """False if others run on this loop, whom a network that hangs would stop."""
        self._blocking = blocking
        self._system = system
        self._clock = system.clock
        self._queue: list[_Queued] = []
        self._is_writing = False
        self._is_scheduled = False
        self.is_busy = blocking is None or not self._may_wait
        """True while no commit may be written on the spot: a thread writes, the store is slow or far away."""
        self._writer: Executor | None = None
        self.until_timed = self._sample
        """After how many more commits written on the spot one is timed. The first ones are slow."""
        self._latency = 0.0
        self._queued_at = 0.0
        self.lag = 0.0
        """Seconds from handing a commit over until it is durable, on average; of lone runs, until written."""
        self.drives = 0
        """How many runs are being driven."""
        self.tasks = 0
        """How many nodes are running beside their drive."""

    def is_free(self) -> bool:
        """True if a commit may be written on the spot: nothing else could be waiting for this thread."""
        return not self.is_busy and self.drives <= 1 and not self.tasks

    def write_here(self, commits: Sequence[Commit]) -> list[Verdict]:
        """Commit on this thread. Now and then, and while it is slow, the time it takes is measured."""
        assert self._blocking is not None
        self.until_timed -= 1
        is_timed = self.until_timed <= 0 or self._latency > SLOW
        before = self._clock.monotonic() if is_timed else 0.0
        try:
            verdicts = self._blocking.put_blocking(commits)
        except StoreUnavailable:
            self.fell_silent()
            raise
        if is_timed:
            self.until_timed = self._sample
            took = self._clock.monotonic() - before
            self._note(self._latency + 0.3 * (took - self._latency))
            if self._meter is not None:
                self._meter.committed(len(commits), took)
            if not self._is_writing:
                self.lag = self._latency
        return verdicts

    def fell_silent(self) -> None:
        """Write nothing on the spot for now: the writer's thread finds out whether the store is back."""
        self._note(max(self._latency, 2 * SLOW))

    def _note(self, latency: float | None = None, *, is_writing: bool | None = None) -> None:
        self._latency = self._latency if latency is None else latency
        self._is_writing = self._is_writing if is_writing is None else is_writing
        is_far = self._blocking is None or not self._may_wait
        self.is_busy = is_far or self._is_writing or self._latency > SLOW

    async def put(self, commit: Commit, note: Callable[[Verdict], None] | None = None) -> Verdict:
        """Commit on the spot if nothing waits for this thread, else with all that is ready by then.

        A caller cancelled meanwhile is so once it is known how that ended, which `note` is told: it may
        take a lease.
        """
        if self.is_free():
            verdict = self.write_here((commit,))[0]
            if not self._owns_loop:
                await self._let_others(verdict, note)
            return verdict
        loop = asyncio.get_running_loop()
        queued = _Queued(commit, loop.create_future())
        if not self._queue:
            self._queued_at = self._clock.monotonic()
        self._queue.append(queued)
        if not self._is_writing and not self._is_scheduled:
            # One turn of the loop later every run that was about to commit has queued up too.
            self._is_scheduled = True
            loop.call_soon(self._write_queued, loop)
        try:
            return await queued.done
        except asyncio.CancelledError:
            settled = await queued.settled(loop)
            if note is not None and settled is not None:
                note(settled)
            raise

    async def _let_others(self, verdict: Verdict, note: Callable[[Verdict], None] | None) -> None:
        """Give the loop its turn: others on it have waited for the disk."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if note is not None:
                note(verdict)
            raise

    def _write_queued(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_scheduled = False
        if self._is_writing or not self._queue:
            return
        batch = self._take_batch()
        since = self._queued_at
        if self._blocking is None:
            self._note(is_writing=True)
            task = loop.create_task(self._put_async([queued.commit for queued in batch]))
            task.add_done_callback(lambda t: self._answer(loop, batch, _outcome(t), since))
        elif len(batch) >= self.drives and self._may_wait and not self.tasks and self._latency <= SLOW:
            self._answer(loop, batch, self._attempt(batch), since)
        else:
            self._note(is_writing=True)
            if self._writer is None:
                self._writer = self._system.executor(1, "everstep-writer")
            self._writer.submit(self._write_there, loop, batch, since)

    def _take_batch(self) -> list[_Queued]:
        """Return the commits that go first, as many as a store takes in one go."""
        fits = fitting([queued.commit for queued in self._queue])
        batch, self._queue = self._queue[:fits], self._queue[fits:]
        return batch

    async def _put_async(self, commits: list[Commit]) -> list[Verdict]:
        if self._meter is None:
            return await self._store.put(commits)
        before = self._clock.monotonic()
        verdicts = await self._store.put(commits)
        self._meter.committed(len(commits), self._clock.monotonic() - before)
        return verdicts

    def _attempt(self, batch: Sequence[_Queued]) -> list[Verdict] | BaseException:
        try:
            return self.write_here([queued.commit for queued in batch])
        except BaseException as error:  # waiting callers must hear of it, whatever it is
            return error

    def _write_there(self, loop: asyncio.AbstractEventLoop, batch: list[_Queued], since: float) -> None:
        outcome = self._attempt(batch)
        loop.call_soon_threadsafe(self._answer, loop, batch, outcome, since)

    def _answer(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: Sequence[_Queued],
        outcome: list[Verdict] | BaseException,
        since: float,
    ) -> None:
        self._note(is_writing=False)
        self.lag += 0.3 * (self._clock.monotonic() - since - self.lag)
        for k, queued in enumerate(batch):
            queued.answer(outcome if isinstance(outcome, BaseException) else outcome[k])
        if self._queue:
            self._write_queued(loop)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.shutdown()


def _outcome(task: asyncio.Task[list[Verdict]]) -> list[Verdict] | BaseException:
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception() or task.result()


def fitting(commits: Sequence[Commit]) -> int:
    """Return how many of these commits, from the first on, are to be put in one go; at least one."""
    size = 0
    for k, commit in enumerate(commits):
        size += len(commit.body)
        if k and size > PUT_BYTES:
            return k
    return len(commits)
