"""Simulated threads and their time: one goes on at a time, and time passes only when none can.

A thread is a stack of its own that hands over wherever a real one would wait. Which of those that could go on
does so is decided elsewhere: the same decisions give the same order.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from typing import Protocol

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # it has no types

SECOND = 1_000_000
"""Time is counted in whole microseconds: sums of floats would depend on their order."""


MOST_WAITS = 2_000_000
"""After so many a world is taken for one that goes round and round."""


class Dead(BaseException):
    """Unwinds the stack of a thread whose process is gone. It is not reported."""


class Owner(Protocol):
    """The process of a thread, as far as its turn depends on it."""

    stalled_until: int


class SimThread:
    """One thread of a simulated process."""

    __slots__ = ("_stack", "is_over", "is_ready", "is_woken", "joiners", "name", "owner", "token", "work")

    def __init__(self, name: str, owner: Owner, work: Callable[[], None]) -> None:
        self.name = name
        self.owner = owner
        self.work: Callable[[], None] | None = work
        self.is_over = False
        self.is_ready = False
        self.is_woken = False
        """True if its last sleep was ended by another thread, false if by the time."""
        self.token = 0
        """Another one for each sleep, so that the timer of an earlier one wakes none."""
        self.joiners: list[SimThread] = []
        self._stack: _Stack | None = None

    def go_on(self, home: greenlet) -> None:
        """Let it run until it waits, on a stack of its own."""
        if self._stack is None:
            self._stack = _free_stack(self)
        self._stack.home = home
        self._stack.switch()

    @property
    def is_new(self) -> bool:
        """True if it has not begun yet."""
        return self._stack is None

    def leave(self) -> None:
        """Have no stack any more: its work is over."""
        self._stack = None

    def unwind(self) -> None:
        """Free its stack: what it waits for raises `Dead`, and nothing that it does then counts."""
        stack, self._stack, self.work = self._stack, None, None
        self.is_over = True
        if stack is not None and not stack.dead:
            stack.home = getcurrent()
            with suppress(Dead):
                stack.throw(Dead())


class _Stack(greenlet):  # type: ignore[misc]
    """What threads run on, one after another: to have the memory of a stack anew takes the system longer than
    many a thread takes."""

    def __init__(self, free: list[_Stack]) -> None:
        super().__init__(self.run_threads)
        self.thread: SimThread | None = None
        self.home = getcurrent()
        """Who goes on when a thread is over."""
        self._free = free

    def run_threads(self) -> None:
        while True:
            self._run_thread()
            self.thread = None
            self._free.append(self)
            home, self.home = self.home, None
            home.switch()

    def _run_thread(self) -> None:
        thread = self.thread
        if thread is None:
            return
        if thread.work is not None:
            thread.work()
        thread.leave()


class _Stacks(threading.local):
    """The stacks that no thread has, of each real thread: none can go on in another."""

    def __init__(self) -> None:
        self.free: list[_Stack] = []


_stacks = _Stacks()


def _free_stack(thread: SimThread) -> _Stack:
    free = _stacks.free
    stack = free.pop() if free else _Stack(free)
    stack.thread, stack.gr_context = thread, None
    return stack


def current_thread() -> SimThread | None:
    """Return the simulated thread that asks; none if it is no simulated one."""
    return getattr(getcurrent(), "thread", None)


class Hub:
    """Decides which simulated thread goes on, and moves the time when none can."""

    def __init__(self, choose: Callable[[list[SimThread]], int]) -> None:
        self.now = 0
        """Microseconds since the world began."""
        self._choose = choose
        self._ready: deque[SimThread] = deque()
        self._timers: list[tuple[int, int, SimThread | Callable[[], None], int]] = []
        self._numbers = 0
        self._home = getcurrent()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that asyncio takes for the running one."""
        self.is_over = False
        """True once nothing more is to happen."""
        self.waits = 0
        """How often threads have waited, and their loops turned."""
        self.interrupted: KeyboardInterrupt | None = None
        self.hangs = False
        """True if they have waited so often that this does not end."""

    @property
    def current(self) -> SimThread | None:
        """The simulated thread that asks; none if it is no simulated one."""
        return getattr(getcurrent(), "thread", None)

    def start(self, thread: SimThread) -> SimThread:
        """Let a thread begin when it is its turn."""
        thread.is_ready = True
        self._ready.append(thread)
        return thread

    def at(self, when: int, act: Callable[[], None]) -> None:
        """Do something in the world at a time; it must not wait."""
        self._numbers += 1
        heappush(self._timers, (when, self._numbers, act, 0))

    def forget_timers(self) -> None:
        """Let nothing happen that was to happen later."""
        self._timers.clear()

    def wake(self, thread: SimThread) -> None:
        """Let a thread go on that waits."""
        if not thread.is_ready and not thread.is_over:
            self._rouse(thread, is_woken=True)

    def _rouse(self, thread: SimThread, *, is_woken: bool) -> None:
        thread.is_ready, thread.is_woken = True, is_woken
        thread.token += 1
        self._ready.append(thread)

    def block(self, until: int | None = None) -> bool:
        """Wait until woken, with true, or until a time, with false."""
        thread = current_thread()
        assert thread is not None, "only simulated threads wait"
        if thread.is_over:
            raise Dead
        self.count_turn()
        if until is not None:
            if self._is_next(until):
                self.now = max(self.now, until)
                return False
            self._numbers += 1
            heappush(self._timers, (until, self._numbers, thread, thread.token))
        thread.is_ready = False
        self.hand_over()
        return thread.is_woken

    def count_turn(self) -> None:
        """Give up on a world in which threads have waited, or loops have turned, too often."""
        self.waits += 1
        if self.waits > MOST_WAITS:
            self.hangs = self.is_over = True
            self.hand_over()

    def _is_next(self, until: int) -> bool:
        """True if no thread could go on before a time, so that it may come at once."""
        return not (self._ready or self.is_over) and (not self._timers or until < self._timers[0][0])

    def pass_time(self, micros: int) -> None:
        """Be busy for a while, in which others go on."""
        until, timers = self.now + micros, self._timers
        if not (self._ready or self.is_over) and (not timers or until < timers[0][0]):
            self.now = until
            return
        while self.now < until:
            self.block(until)

    def let_others(self) -> None:
        """Go on only when it is this thread's turn again, if others could go on, too."""
        thread = self.current
        if self._ready and thread is not None:
            self._rouse(thread, is_woken=True)
            self.hand_over()

    def hand_over(self) -> None:
        """Let the hub go on. Returns when it is this thread's turn again, with its event loop as it was."""
        loop = self.loop
        if loop is None:
            try:
                self._home.switch()
            finally:
                self.turn_to(None)
            return
        hooks = sys.get_asyncgen_hooks()
        try:
            self._home.switch()
        finally:
            self.turn_to(loop)
            sys.set_asyncgen_hooks(*hooks)

    def turn_to(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Let asyncio know which loop runs: only if it is another, as asyncio asks the system each time."""
        if self.loop is not loop:
            self.loop = loop
            asyncio._set_running_loop(loop)

    def run(self) -> None:
        """Let threads go on until the world is over, or nothing can ever happen again."""
        self._home = getcurrent()
        try:
            while not self.is_over and (self._ready or self._timers):
                if self._ready:
                    self._next_thread()
                else:
                    self._next_timer()
        finally:
            self.turn_to(None)

    def _next_thread(self) -> None:
        thread = self._pick()
        if thread.is_over:
            return
        if thread.owner.stalled_until > self.now:
            self._postpone(thread)
            return
        if thread.is_new:
            self.turn_to(None)
        thread.go_on(self._home)

    def _pick(self) -> SimThread:
        ready = self._ready
        if len(ready) > 1:
            k = self._choose(list(ready))
            if k:
                thread = ready[k]
                del ready[k]
                return thread
        return ready.popleft()

    def _postpone(self, thread: SimThread) -> None:
        thread.is_ready = False
        self._numbers += 1
        heappush(self._timers, (thread.owner.stalled_until, self._numbers, thread, thread.token))

    def _next_timer(self) -> None:
        when, _, what, token = heappop(self._timers)
        if not isinstance(what, SimThread):
            self.now = max(self.now, when)
            what()
        elif what.token == token and not what.is_ready and not what.is_over:
            self.now = max(self.now, when)
            self._rouse(what, is_woken=False)

    def interrupt(self, error: KeyboardInterrupt) -> None:
        """Let the world end, and who runs it hear of an interrupt that no program in it has handled."""
        self.interrupted, self.is_over = error, True

    def ended(self, thread: SimThread) -> None:
        """Note that a thread's work is over, and let those go on that wait for that."""
        thread.is_over = True
        for joiner in thread.joiners:
            self.wake(joiner)
