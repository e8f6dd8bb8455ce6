"""Checkpoints that a drive owes: why the next one is written, and what it tells of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from everstep.model.enums import Status, Trigger
from everstep.ports.store import CheckpointStore
from everstep.ports.system import Event, Thread
from everstep.runtime.drive.context import RunContext
from everstep.runtime.events import NEWS, news_of
from everstep.runtime.outage.store_retry import patiently

_NEEDS_STEPS = (Trigger.INTERVAL, Trigger.SPENT, Trigger.BEFORE_EFFECT)
"""Triggers that mean nothing if there is nothing to write."""


class Owing:
    """What one drive is to write before anything else starts."""

    def __init__(self, run: RunContext, wake: Callable[[], None]) -> None:
        self._journal = run.journal
        self._clock = run.clock
        self._teller = run.teller
        self._wake = wake
        self.trigger: Trigger | None = None
        """Why to write; none if nothing is owed."""
        self._about: dict[str, Any] | None = None

    def owe(self, trigger: Trigger, about: dict[str, Any] | None = None) -> None:
        """Write soon. The first reason counts, unless another has something to tell."""
        if self.trigger is None or trigger in NEWS:
            self.trigger, self._about = trigger, about
        self._wake()

    @property
    def has_news(self) -> bool:
        """True if what is owed has to be a checkpoint of its own."""
        return self.trigger in NEWS

    async def pay(self) -> None:
        """Write what is owed."""
        if self.trigger is not None:
            await self.flush(self.trigger, self._about)

    async def halt(self, store: CheckpointStore) -> None:
        """Let go of the run until an answer comes; without news there is nothing to write."""
        journal = self._journal
        if journal.steps or not journal.is_halted:
            trigger, about = (self.trigger, self._about) if self._about is not None else (None, None)
            why = trigger or Trigger.HALT
            await journal.flush(why, status=Status.HALTED, metadata=about, changes_status=True)
        elif journal.lease is not None:
            await patiently(self._clock, partial(store.release_lease, journal.lease))

    async def flush(self, trigger: Trigger, metadata: dict[str, Any] | None = None) -> None:
        """Write what is buffered; nothing is owed then."""
        self.trigger = self._about = None
        if trigger in _NEEDS_STEPS and not self._journal.steps:
            return
        pending = self._journal.flush_soon(trigger, metadata)
        if pending is not None:
            await pending
        for kind, data in news_of(trigger, metadata) if self._teller.is_heard else ():
            self._teller.tell(kind, data=data)


class LateFlush:
    """`with late: call the node` lets a thread write the journal meanwhile, if its steps get too old.

    Only policies with a deadline need it; for the others it does nothing.
    """

    def __init__(self, run: RunContext) -> None:
        self._journal = run.journal
        self._limit = run.policy.max_seconds if run.policy.has_deadline else None
        self._may_write = run.services.blocking is not None and self._limit is not None
        self._system = run.services.system
        self.lock = self._system.lock()
        """Held by the writer while the drive is inside user code."""
        self._is_away = False
        """True while the driving thread is inside user code and the journal is ours."""
        self._error: BaseException | None = None
        self._closed: Event | None = None
        self._thread: Thread | None = None

    def seconds_left(self) -> float | None:
        """Return how long the buffered steps may still wait; none without steps or without a limit."""
        if self._limit is None or not self._journal.steps:
            return None
        return max(0.0, self._limit - self._journal.age())

    def __enter__(self) -> None:
        if not self._may_write or not self._journal.steps:
            return
        if self._thread is None:
            self._closed = self._system.event()
            self._thread = self._system.spawn(self._watch, "everstep-late")
        with self.lock:
            self._is_away = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_away:
            return
        with self.lock:
            self._is_away = False
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        if self._closed is not None:
            self._closed.set()

    def _watch(self) -> None:
        assert self._limit is not None and self._closed is not None
        while not self._closed.wait(self._limit / 4):
            with self.lock:
                if self._is_away and self._error is None and self.seconds_left() == 0.0:
                    try:
                        self._journal.flush_blocking(Trigger.INTERVAL)
                    except BaseException as error:
                        self._error = error
