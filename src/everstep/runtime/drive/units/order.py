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

GAP: Final = 16
"""Turns of the loop between two calls that come back, if other work does not let it come to rest."""
LONGEST: Final = 60.0
"""Seconds that one which is missing is waited for at most."""
_SLACK: Final = 0.5


class EndOrder:
    """The calls of one attempt that have ended, and which of them came back."""

    def __init__(self, ended: Mapping[str, UnitAt]) -> None:
        self._at = {label: i for i, label in enumerate(ended)}
        self._facts = tuple(ended.values())
        self._behind = [unit.behind for unit in ended.values()]
        """Of each, which one had ended last when it was asked for; none if that was not noted."""
        self._came = bytearray(len(ended))
        self._next = 0
        """The first that did not come back."""
        self._first_live = len(ended)
        """The first of those that ended in this attempt and did not come back: it is being written."""
        self._furthest = -1
        """The last one that came back."""
        self._furthest_label = ""
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
        self._is_looking = False
        """True if it looks in the next turn of the loop."""
        self._is_over = False
        """True once the node's function has ended."""

    @property
    def behind(self) -> str | None:
        """Which one came back last, while not all recorded ones have; none once they have.

        As they come back in the order in which they ended, that one had ended last when the node was here.
        """
        return self._furthest_label if self._next < len(self._facts) else None

    def ended(self, label: str, behind: str | None) -> None:
        """Note that a call has ended, and which one had when it was asked for."""
        self._at[label] = len(self._came)
        self._came.append(0)
        self._behind.append(behind)

    def turn(self, label: str) -> asyncio.Future[None] | None:
        """Return what to await before a call that has ended comes back; none if it is time for it."""
        at = self._at.get(label, -1)
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        if self._began is None:
            self._began = self._moved = loop.time()
        is_next = at == self._next and not self._waiting and (task is self._task or not self._next)
        if self._is_over or at < self._next or (is_next and (self._behind[at] is None or _is_at_rest(loop))):
            self._task = task
            return None
        its_turn: asyncio.Future[None] = loop.create_future()
        if self._waiting and self._waiting[0][2].get_loop() is not loop:
            return None  # a loop of the node's own, on another thread
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
        if at > self._furthest:
            self._furthest, self._furthest_label = at, label
        self._turns = 0
        self._pass(at)

    def gone(self, label: str) -> None:
        """Note that a call that has ended does not come back: its task was cancelled, or the drive stops."""
        self._pass(self._at[label])

    def _pass(self, at: int) -> None:
        """Wait no more for the call at a place."""
        self._came[at] = 1
        while self._next < len(self._came) and self._came[self._next]:
            self._next += 1
        while self._first_live < len(self._came) and self._came[self._first_live]:
            self._first_live += 1
        if self._waiting and not self._is_looking:
            loop = self._waiting[0][2].get_loop()
            if loop is asyncio._get_running_loop():
                self._look_soon(loop)

    def let_go(self) -> None:
        """Let all that wait go on: the node's function has ended, and goes no way any more."""
        self._is_over = True
        if self._later is not None:
            self._later.cancel()
            self._later = None
        waiting, self._waiting = self._waiting, []
        for _, _, its_turn, _ in waiting:
            if not its_turn.done():  # it may be of a loop of the node's own, on another thread
                its_turn.get_loop().call_soon_threadsafe(_release, its_turn)

    def _look_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look in the next turn of the loop."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if not self._is_looking:
            self._is_looking = True
            loop.call_soon(self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the first of those that wait go on, if it is time for it."""
        self._later, self._is_looking = None, False
        while self._waiting and self._waiting[0][2].done():  # its task was cancelled
            heappop(self._waiting)
        if not self._waiting or self._first_live < self._waiting[0][0]:  # which looks again when it is back
            return
        self._turns += 1
        if self._turns >= GAP or _is_at_rest(loop):
            at, _, its_turn, task = self._waiting[0]
            until = self._skip(at, loop.time())
            if until is not None:
                self._later = loop.call_at(until, self._look, loop)
                return
            heappop(self._waiting)
            self._turns, self._next, self._task = 0, max(self._next, at), task
            self._moved = loop.time()
            its_turn.set_result(None)
        if self._waiting:
            self._look_soon(loop)

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
        if missing >= len(self._facts):
            return False
        behind = self._behind[at]
        return behind is not None and self._at.get(behind, -1) < missing


def _is_at_rest(loop: asyncio.AbstractEventLoop) -> bool:
    """True if nothing else is to be done in the next turn of a loop; false if it does not say so."""
    return not getattr(loop, "_ready", True)


def _release(its_turn: asyncio.Future[None]) -> None:
    if not its_turn.done():
        its_turn.set_result(None)
