"""Locks, conditions, events, queues and executors for simulated threads. They wait in the world's time. Apart
from the processes that hand them out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from functools import partial
from math import ceil
from types import TracebackType
from typing import Any, Generic, TypeVar

from greenlet import getcurrent  # type: ignore[import-untyped]  # it has no types

from everstep.testing.simulation.hub import SECOND, Dead, Hub, SimThread

T = TypeVar("T")


def moment(hub: Hub, seconds: float | None) -> int | None:
    """Return when a wait of so many seconds ends: rounded up, as who looks at the time must see it over."""
    return None if seconds is None else hub.now + max(0, ceil(seconds * SECOND))


class SimLock:
    """Held by one thread at a time; who waits for it gets it in order."""

    __slots__ = ("_holder", "_hub", "_waiting")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._holder: object | None = None
        self._waiting: deque[SimThread] = deque()

    def __enter__(self) -> bool:
        if self._holder is not None:
            self._wait()
        self._holder = getcurrent()
        return True

    def _wait(self) -> None:
        thread = self._hub.current
        if thread is None or self._holder is getcurrent():
            raise Dead  # the world is gone, or a thread waits for itself and would for ever
        while self._holder is not None:
            self._waiting.append(thread)
            self._hub.block()
            if thread in self._waiting:  # woken by something else: it must not be taken for two
                self._waiting.remove(thread)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder = None
        if self._waiting:
            self._hub.wake(self._waiting.popleft())


class SimCondition(SimLock):
    """A lock that threads wait at until they are notified."""

    __slots__ = ("_sleepers",)

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._sleepers: deque[SimThread] = deque()

    def wait(self, timeout: float | None = None) -> bool:
        thread, hub = self._hub.current, self._hub
        if thread is None:
            raise Dead
        until = moment(hub, timeout)
        self._sleepers.append(thread)
        self.__exit__(None, None, None)
        try:
            while thread in self._sleepers and (until is None or hub.now < until):
                hub.block(until)
        finally:
            is_notified = thread not in self._sleepers
            if not is_notified:
                self._sleepers.remove(thread)
            if not thread.is_over:
                self.__enter__()
        return is_notified

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until = moment(self._hub, timeout)
        while not (holds := predicate()):
            left = None if until is None else (until - self._hub.now) / SECOND
            if left is not None and left <= 0:
                break
            self.wait(left)
        return holds

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._sleepers))):
            self._hub.wake(self._sleepers.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._sleepers))


class SimEvent:
    """A flag that threads wait for."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._is_set = False
        self._sleepers: list[SimThread] = []

    def set(self) -> None:
        self._is_set = True
        sleepers, self._sleepers = self._sleepers, []
        for thread in sleepers:
            self._hub.wake(thread)

    def wait(self, timeout: float | None = None) -> bool:
        thread, until = self._hub.current, moment(self._hub, timeout)
        if thread is None:
            raise Dead
        while not self._is_set and (until is None or self._hub.now < until):
            self._sleepers.append(thread)
            self._hub.block(until)
            if thread in self._sleepers:
                self._sleepers.remove(thread)
        return self._is_set


class SimQueue(Generic[T]):
    """What some threads put, and others get in the same order."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._items: deque[T] = deque()
        self._sleepers: deque[SimThread] = deque()

    def put(self, item: T) -> None:
        self._items.append(item)
        if self._sleepers:
            self._hub.wake(self._sleepers.popleft())

    def get(self) -> T:
        thread = self._hub.current
        while not self._items:
            if thread is None:
                raise Dead
            self._sleepers.append(thread)
            self._hub.block()
            if thread in self._sleepers:
                self._sleepers.remove(thread)
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class SimExecutor(Executor):
    """At most so many threads, made when they are wanted, that make calls in the order they were given."""

    def __init__(
        self, hub: Hub, spawn: Callable[[Callable[[], None], str], object], most: int, name: str
    ) -> None:
        self._hub = hub
        self._spawn = spawn
        self._most, self._name = most, name
        self._calls: SimQueue[Callable[[], None] | None] = SimQueue(hub)
        self._threads = 0
        self._busy = 0
        self._waiting = 0

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put(partial(make, future, partial(work, *given, **named)))
        self._waiting += 1
        if self._threads - self._busy < self._waiting and self._threads < self._most:
            self._threads += 1
            self._spawn(self._work, f"{self._name}_{self._threads}")
        return future

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self._waiting -= 1
            self._busy += 1
            call()
            self._busy -= 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for _ in range(self._threads):
            self._calls.put(None)


def make(future: Future[Any], work: Callable[[], Any]) -> None:
    """Do some work, and let a future have what comes of it."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except Dead:
        raise
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def wait_for(hub: Hub, futures: Iterable[Future[Any]]) -> None:
    """Let this thread wait until all of these are done."""
    thread = hub.current
    for future in futures:
        if future.done():
            continue
        if thread is None or thread.is_over:
            return  # no thread is left that could wait
        future.add_done_callback(lambda _: hub.wake(thread))
        while not future.done():
            hub.block()
