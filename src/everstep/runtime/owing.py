"""Checkpoints that a drive owes: why the next one is written, and what it tells of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from everstep.model.enums import Status, Trigger
from everstep.ports.store import CheckpointStore
from everstep.ports.system import Clock
from everstep.runtime.events import NEWS, Teller, news_of
from everstep.runtime.journal import Journal
from everstep.runtime.patience import patiently

_NEEDS_STEPS = (Trigger.INTERVAL, Trigger.SPENT, Trigger.BEFORE_EFFECT)
"""Triggers that mean nothing if there is nothing to write."""


class Owing:
    """What one drive is to write before anything else starts."""

    def __init__(self, journal: Journal, clock: Clock, teller: Teller, wake: Callable[[], None]) -> None:
        self._journal = journal
        self._clock = clock
        self._teller = teller
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
    def is_due(self) -> bool:
        """True if something is owed."""
        return self.trigger is not None

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
        pending = self._journal.flush_soon(trigger, metadata, self._clock.now())
        if pending is not None:
            await pending
        for kind, data in news_of(trigger, metadata) if self._teller.is_heard else ():
            self._teller.tell(kind, data=data)
