"""In which order calls come back to an async node: as they ended, one after the other, live and from the
records. Apart from the calls, as only nodes that make several at once, or are entered again, need it.

Which of several calls at once fails first, or is done first, decides how a node goes on: after a crash it has
to go the same way. So one that ended later waits until those before it came back and the node had time to
see to each. What is asked for no more is not waited for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

GAP, PATIENCE = 4, 16
"""Turns of the loop between two calls that come back to several tasks: so many, and if another is missing."""


class EndOrder:
    """The calls of one attempt that have ended, and which of them came back."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._at = {label: i for i, label in enumerate(labels)}
        self._came = bytearray(len(labels))
        self._next = 0
        """The first that did not come back."""
        self._waiting: list[tuple[int, asyncio.Future[None], asyncio.Task[Any] | None]] = []
        self._task: asyncio.Task[Any] | None = None
        """To which the last one came back."""
        self._turns = 0
        """Turns of the loop since something came back."""

    def ended(self, label: str) -> None:
        """Note that a call has ended."""
        self._at[label] = len(self._came)
        self._came.append(0)

    def turn(self, label: str) -> asyncio.Future[None] | None:
        """Return what to await before a call that has ended comes back; none if it is time for it."""
        at = self._at.get(label, -1)
        task = asyncio.current_task()
        is_in_order = task is self._task or not self._next
        if at < self._next or (at == self._next and is_in_order and not self._waiting):
            self._task = task
            return None
        loop = asyncio.get_running_loop()
        its_turn: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._look, loop)
        elif self._waiting[0][1].get_loop() is not loop:  # a loop of the node's own, on another thread
            return None
        heappush(self._waiting, (at, its_turn, task))
        return its_turn

    def came(self, label: str) -> None:
        """Note that a call comes back."""
        at = self._at.get(label, -1)
        if at < 0 or self._came[at]:
            return
        self._came[at] = 1
        self._turns = 0
        while self._next < len(self._came) and self._came[self._next]:
            self._next += 1

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the first of those that wait go on, if it is time for it."""
        while self._waiting and self._waiting[0][1].done():  # its task was cancelled
            heappop(self._waiting)
        if not self._waiting:
            return
        self._turns += 1
        at, its_turn, task = self._waiting[0]
        if self._turns >= (GAP if at <= self._next else PATIENCE):
            heappop(self._waiting)
            self._turns, self._next, self._task = 0, max(self._next, at), task
            its_turn.set_result(None)
        loop.call_soon(self._look, loop)
