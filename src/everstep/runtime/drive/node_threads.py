"""Threads for sync nodes.

They cannot be stopped, and one may never end. So they are daemons, which the end of the program does not wait
for by itself, and one that was given up on takes no other's place.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from everstep.ports.system import Queue, System

log = logging.getLogger("everstep")
_Work = tuple[Future[Any], Callable[[], Any]]


class _Calls:
    """What runs on threads, and what is not awaited any more."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.made: set[Future[Any]] = set()
        self.given_up: set[Future[Any]] = set()

    def wait(self) -> None:
        """Wait, when the program ends, for calls that were not given up on."""
        self._system.wait_for(self.made - self.given_up)
        if self.given_up:
            many = len(self.given_up)
            log.warning(
                "%d thread(s) of nodes that outlived their time limit never ended: left behind.", many
            )


class NodeThreads(Executor):
    """At most so many threads, made when they are wanted, besides those that were given up on."""

    def __init__(self, most: int, system: System) -> None:
        self._most = most
        self._system = system
        self._lock = system.lock()
        self._queue: Queue[_Work | None] = system.queue()
        self._calls = _Calls(system)
        self._threads = 0
        self._idle = 0
        self._is_closed = False
        self._names = 0
        weakref.finalize(self, self._calls.wait)

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the threads of this host are closed.")
            self._queue.put((future, partial(work, *arguments, **named)))
            if self._idle:
                self._idle -= 1
            else:
                self._hire()
        return future

    def submit_apart(self, work: Callable[[], Any]) -> Future[Any]:
        """Call on a thread of its own, for who holds one of ours, or a loop, and does nothing meanwhile."""
        return apart(self._system.spawn, work)

    def _hire(self) -> None:
        if self._threads < self._most:
            self._threads += 1
            self._names += 1
            name = f"everstep-node_{self._names}"
            self._system.spawn(self._work, name)

    def _work(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            future, work = item
            with self._lock:
                self._calls.made.add(future)
            _make(future, work)
            with self._lock:
                self._calls.made.discard(future)
                if future in self._calls.given_up:
                    self._calls.given_up.discard(future)
                    return  # another has its place
                if (
                    self._queue.empty()
                ):  # else it goes on at once, and a caller that submits must not count on it
                    self._idle += 1
            del item, future, work  # what a node was given lives no longer than its call

    def give_up(self, future: Future[Any]) -> None:
        """Let another thread take the place of one whose call is not awaited."""
        with self._lock:
            if future in self._calls.made:
                self._calls.given_up.add(future)
                self._threads -= 1
                if not self._idle and not self._queue.empty():
                    self._hire()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin with nothing more. Threads end when they are done; they are not waited for here."""
        with self._lock:
            self._is_closed = True
            while cancel_futures and not self._queue.empty():
                item = self._queue.get()
                if item is not None:
                    item[0].cancel()
            for _ in range(self._threads):
                self._queue.put(None)


def apart(spawn: Callable[[Callable[[], None], str], object], work: Callable[[], Any]) -> Future[Any]:
    """Make a call that may never return, on a thread of its own: nothing waits for it."""
    future: Future[Any] = Future()
    spawn(partial(_make, future, work), "everstep-apart")
    return future


def _make(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
