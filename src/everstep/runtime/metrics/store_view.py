"""What was last seen of a store, asked on a thread and an event loop of its own.

A scrape gets what is known, at once, also while the store is away or takes long to count: then it is told
so, and how old the rest is. Counting takes a twentieth of a processor at most, however many runs there are.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from everstep.errors import EverstepError
from everstep.model.leases import WorkerRow
from everstep.model.ledger import BreakerState
from everstep.ports.store import Backlog, Counts
from everstep.ports.system import System

log = logging.getLogger("everstep")
FRESH = 1.0
"""Seconds for which what was seen counts as new."""
SHARE = 20
"""It is asked again no sooner than after so many times as long as it took to answer."""
PATIENCE = 0.25
"""Seconds that a scrape waits for a store that has answered so far."""
SLOW = 2.0
"""Seconds without an answer after which a store counts as out of reach."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A store as it was at one moment."""

    counts: Counts
    breakers: dict[str, BreakerState]
    workers: Sequence[WorkerRow]
    """Those that are alive."""
    backlog: Sequence[Backlog] | None
    """What is due, by version of its flow; none of a store that cannot tell."""
    waiting: dict[str, int] = {}
    """Runs that limits may hold back, by flow and limit."""
    now: datetime
    """By the store's clock."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a scrape is told."""

    is_up: bool
    seen: Seen | None
    """None before the store answered for the first time."""
    age: float
    """For how many seconds that is known."""


class StoreView:
    """Looks at a store for those who scrape. One for all event loops of a host."""

    def __init__(self, see: Callable[[], Coroutine[Any, Any, Seen]], system: System) -> None:
        self._see = see
        self._system = system
        self._clock = system.clock
        self._done = system.condition()
        self._asked_at: float | None = None
        """When the question was put that is not answered yet."""
        self._seen: Seen | None = None
        self._seen_at = 0.0
        self._next_at = float("-inf")
        """When to ask again."""
        self._is_up = True

    def look(self) -> Answer:
        """Return what is known of the store. From any thread, and never for longer than `PATIENCE`."""
        with self._done:
            now = self._clock.monotonic()
            if self._asked_at is None and now >= self._next_at:
                self._asked_at = now
                self._system.spawn(self._ask, "everstep-metrics")
            if self._asked_at is not None and self._is_up:
                self._done.wait_for(lambda: self._asked_at is None, PATIENCE)
            now = self._clock.monotonic()
            is_late = self._asked_at is not None and now - self._asked_at > SLOW
            self._is_up = self._is_up and not is_late
            return Answer(
                is_up=self._is_up and self._seen is not None, seen=self._seen, age=now - self._seen_at
            )

    def _ask(self) -> None:
        asked_at, seen = self._clock.monotonic(), None
        try:
            with self._system.runner() as runner:
                seen = runner.run(self._see())
        except EverstepError as error:
            log.debug("store not seen for metrics: %s", error)
        finally:
            with self._done:
                now = self._clock.monotonic()
                self._asked_at, self._is_up = None, seen is not None
                self._next_at = now + max(FRESH, SHARE * (now - asked_at)) if seen is not None else now
                if seen is not None:
                    self._seen, self._seen_at = seen, now
                self._done.notify_all()


def oldest(backlog: Iterable[Backlog], now: datetime) -> dict[str, float]:
    """Return for how many seconds the longest due run of each flow has been so."""
    found: dict[str, float] = {}
    for part in backlog:
        age = max(0.0, (now - part.since).total_seconds())
        found[part.flow_id] = max(age, found.get(part.flow_id, 0.0))
    return found


def due(backlog: Iterable[Backlog]) -> Counter[str]:
    """Return how many runs are due by flow."""
    found: Counter[str] = Counter()
    for part in backlog:
        found[part.flow_id] += part.many
    return found


def untaken(backlog: Iterable[Backlog], workers: Iterable[WorkerRow]) -> Counter[str]:
    """Return how many due runs no live worker will take, by flow.

    A worker that does not say which versions it takes, as those of earlier releases do not, is believed to
    take all versions of its flows.
    """
    taken: set[tuple[str, str]] = set()
    whole: set[str] = set()
    for worker in workers:
        if worker.is_stopping:
            continue
        taken.update((it.flow_id, it.flow_hash) for it in worker.takes)
        whole.update(() if worker.takes else worker.flows)
    found: Counter[str] = Counter()
    for part in backlog:
        is_taken = part.flow_id in whole or (part.flow_id, part.flow_hash) in taken
        found[part.flow_id] += 0 if is_taken else part.many
    return found
