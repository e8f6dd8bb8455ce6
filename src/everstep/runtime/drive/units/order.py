"""In which order calls come back to an async node: as they ended, one after the other, live and from the
records. Apart from the calls, as only nodes that make several at once, or are entered again, need it.

Which of several calls at once fails first, or is done first, decides how a node goes on: after a crash it has
to go the same way. So one that ended later waits until those before it came back and the node had time to
see to each. One before it that was under way together with it is waited for about as long as the node took to
ask for it then: what lies between two calls may take its time. What else is missing is asked for no more, and
not waited for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any, Final

from everstep.model.records import UnitAt

GAP: Final = 4
"""Turns of the loop between two calls that come back to several tasks."""
PATIENCE: Final = 16
"""The same if one between them is missing."""
LONGEST: Final = 60.0
"""Seconds that one which is missing is waited for at most."""
_SLACK: Final = 0.5


class EndOrder:
    """The calls of one attempt that have ended, and which of them came back."""

    def __init__(self, ended: Mapping[str, UnitAt]) -> None:
        self._at = {label: i for i, label in enumerate(ended)}
        self._facts = tuple(ended.values())
        self._came = bytearray(len(ended))
        self._next = 0
        """The first that did not come back."""
        self._waiting: list[tuple[int, int, asyncio.Future[None], asyncio.Task[Any] | None]] = []
        self._asked = 0
        self._task: asyncio.Task[Any] | None = None
        """To which the last one came back."""
        self._turns = 0
        """Turns of the loop since something came back."""
        self._began: float | None = None
        """When the first call was asked for, by the clock of the loop."""
        self._moved = 0.0
        """When something came back last."""
        self._later: asyncio.TimerHandle | None = None
        """Looks again, while one that is missing is waited for."""

    def ended(self, label: str) -> None:
        """Note that a call has ended."""
        self._at[label] = len(self._came)
        self._came.append(0)

    def turn(self, label: str) -> asyncio.Future[None] | None:
        """Return what to await before a call that has ended comes back; none if it is time for it."""
        at = self._at.get(label, -1)
        task = asyncio.current_task()
        is_in_order = task is self._task or not self._next
        loop = asyncio.get_running_loop()
        if self._began is None:
            self._began = self._moved = loop.time()
        if at < self._next or (at == self._next and is_in_order and not self._waiting):
            self._task = task
            return None
        its_turn: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._look, loop)
        elif self._waiting[0][2].get_loop() is not loop:  # a loop of the node's own, on another thread
            return None
        # A call whose task was cancelled may be asked for again: then one place is waited for twice.
        self._asked += 1
        heappush(self._waiting, (at, self._asked, its_turn, task))
        self._look_soon(loop)
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
        if self._later is not None:
            self._look_soon(asyncio._get_running_loop())

    def _look_soon(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Look in the next turn of the loop, if a longer pause was meant."""
        if self._later is not None and loop is not None and self._waiting[0][2].get_loop() is loop:
            self._later.cancel()
            self._later = None
            loop.call_soon(self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the first of those that wait go on, if it is time for it."""
        self._later = None
        while self._waiting and self._waiting[0][2].done():  # its task was cancelled
            heappop(self._waiting)
        if not self._waiting:
            return
        self._turns += 1
        at, _, its_turn, task = self._waiting[0]
        if self._turns >= PATIENCE:
            until = self._skip(at, loop.time())
            if until is not None:
                self._later = loop.call_at(until, self._look, loop)
                return
        if self._turns >= (GAP if at <= self._next else PATIENCE):
            heappop(self._waiting)
            self._turns, self._next, self._task = 0, max(self._next, at), task
            self._moved = loop.time()
            its_turn.set_result(None)
        loop.call_soon(self._look, loop)

    def _skip(self, at: int, now: float) -> float | None:
        """Pass over those before a place that are asked for no more; returns until when to wait for one."""
        while self._next < at:
            if not self._came[self._next] and self._is_beside(at, self._next):
                assert self._began is not None
                long = 1.5 * self._facts[self._next].asked + _SLACK
                until = min(self._began + long, self._moved + LONGEST)
                if now < until:
                    return until
            self._next += 1
        return None

    def _is_beside(self, at: int, missing: int) -> bool:
        """True if a call was asked for while one that is missing was under way, as the records say."""
        if at >= len(self._facts):
            return False
        behind = self._facts[at].behind
        return behind is not None and self._at.get(behind, -1) < missing
