"""Threads for sync nodes that run beside each other.

Handing one call to a thread and hearing back costs more than a small node does. So a thread that is done with
one call takes the next that waits, and two threads are enough for calls that end at once; if they do not end
soon, there are more.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress

from everstep.runtime.invoke import Call, OnChunk, call_here

_FEW = 2
PATIENCE = 0.002
"""Seconds after which waiting calls get threads of their own."""


class Crew:
    """Calls waiting for a thread, and the threads that take them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: Executor,
        most: int,
        finish: Callable[[list[Call]], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._most = most
        self._finish = finish
        self._fail = fail
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Call, contextvars.Context, OnChunk | None]] = deque()
        self._done: list[Call] = []
        self._is_told = False
        self._is_timed = False
        """True while the timer will look at what is done, so that a thread need not tell of each call."""
        self._threads = 0
        self._making: set[Call] = set()
        self._left: dict[Call, Future[None]] = {}
        """Calls that were still made when the crew was closed."""
        self._timer: asyncio.TimerHandle | None = None

    def take(self, call: Call, on_chunk: OnChunk | None) -> None:
        """Have a call made on a thread once `go` is called; `finish` hears of it on the loop."""
        self._waiting.append((call, contextvars.copy_context(), on_chunk))

    def go(self) -> None:
        """Begin with the calls that wait."""
        if not self._waiting:
            return
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._staff)
            self._is_timed = True
        for _ in range(min(len(self._waiting), _FEW - self._threads)):
            self._hire()

    def _staff(self) -> None:
        self._timer = None
        with self._lock:
            self._is_timed = False
        for _ in range(min(len(self._waiting), self._most - self._threads)):
            self._hire()
        if self._done:
            self._report()

    def _hire(self) -> None:
        with self._lock:
            self._threads += 1
        self._pool.submit(self._work)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                call, context, on_chunk = self._waiting.popleft()
                self._making.add(call)
            if not call.is_dropped:
                try:
                    context.run(call_here, call, on_chunk)
                except BaseException as error:  # sys.exit() and the like: for whoever drives the run
                    with self._lock:
                        self._made(call)
                    self._on_loop(self._fail, error)
                    continue
            with self._lock:
                self._made(call)
                self._done.append(call)
                # Calls that end at once are told of together: when none is left, or by the timer.
                is_told = self._is_told or (self._is_timed and bool(self._waiting))
                self._is_told = self._is_told or not is_told
            if not is_told:
                self._on_loop(self._report)

    def _made(self, call: Call) -> None:
        self._making.discard(call)
        left = self._left.pop(call, None)
        if left is not None:
            left.set_result(None)

    def _on_loop(self, act: Callable[..., None], *given: object) -> None:
        with suppress(RuntimeError):  # closed: whoever drove the run has let go of it
            self._loop.call_soon_threadsafe(act, *given)

    def _report(self) -> None:
        with self._lock:
            done, self._done = self._done, []
            self._is_told = False
        self._finish(done)

    def close(self) -> list[Future[None]]:
        """Let calls that have not begun go. Returns the effects under way: threads cannot be stopped."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._waiting.clear()
            for call in self._making:
                if call.node.is_effectful:
                    self._left.setdefault(call, Future())
            return list(self._left.values())
