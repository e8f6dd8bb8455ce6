"""An event loop whose time is the world's: asyncio as it is, on simulated threads."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor
from heapq import heappop, heappush
from math import ceil
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self, TypeVar, cast
from weakref import WeakSet, ref

from everstep.errors import BadRequest
from everstep.testing.simulation.hub import SECOND, Dead, Hub, SimThread, current_thread

T = TypeVar("T")
_MANY = 256
"""How many tasks a loop notes before it forgets those that are gone."""


class LoopOwner(Protocol):
    """The process of a loop, as far as that knows it."""

    is_dead: bool
    loops: list[SimLoop]

    def heard_of(self, context: dict[str, Any]) -> None:
        """Take note of an error that no task of a loop handles."""

    def default_executor(self) -> Executor:
        """Return the threads for work of no particular kind."""


class _Gone:
    """What code finds as its loop while it is freed: all that is asked of it fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("the process of this loop is dead")


class _Handle(asyncio.Handle):
    """A call that a loop is to make. It asks for no debug mode, which such a loop does not have."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class SimLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in the order in which they were scheduled, as asyncio's own loops do."""

    def __init__(self, hub: Hub, process: LoopOwner) -> None:
        self._hub = hub
        self._process = process
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._thread: SimThread | None = None
        self._is_idle = False
        self._is_closed = False
        self._is_stopping = False
        self._tasks: list[ref[asyncio.Task[Any]]] = []
        """In the order in which they were made, which no set of theirs would keep."""
        self._most_tasks = _MANY
        self._generators: WeakSet[Any] = WeakSet()
        self._last_words: list[BaseException] = []
        process.loops.append(self)

    # -- what asyncio asks of a loop ----------------------------------------------------------------------

    def time(self) -> float:
        return self._hub.now / SECOND

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        handle = self.call_soon(callback, *args, context=context)
        if self._is_idle and self._thread is not None:
            self._hub.wake(self._thread)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        # At least a microsecond: who waits for what rounding has left over would wait for ever.
        least = 1 / SECOND if delay > 0 else 0.0
        return self.call_at(self.time() + max(delay, least), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        # Whole microseconds, and at least one if it is to come at all: else who waits for what rounding left
        # over would wait for ever. `when` is compared as who waits does it, with the time in seconds.
        now = self._hub.now
        due = max(now + 1, ceil(when * SECOND - 0.001)) if when > now / SECOND else now
        heappush(self._timers, (due, self._numbers, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time has come."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        # A name of its own, as the number that asyncio would give depends on what ran before.
        task = asyncio.Task(coro, loop=self, name=str(name or "task"), context=context)
        self._tasks.append(ref(task))
        if len(self._tasks) > self._most_tasks:
            self._tasks = [kept for kept in self._tasks if kept() is not None]
            self._most_tasks = _MANY + 2 * len(self._tasks)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        pool = executor or self._process.default_executor()
        return asyncio.wrap_future(pool.submit(func, *args), loop=self)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise BadRequest(
            "a simulated process opens no sockets, and starts no programs.",
            fix="Give the node a double: doubles={'its name': ...}.",
        )

    create_connection = create_datagram_endpoint = create_server = create_unix_connection = _refuse
    getaddrinfo = sock_connect = subprocess_exec = subprocess_shell = _refuse

    def is_running(self) -> bool:
        return self._thread is not None

    def is_closed(self) -> bool:
        return self._is_closed

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """It has no such mode."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._process.heard_of(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self._process.heard_of(context)

    def stop(self) -> None:
        self._is_stopping = True

    # -- running it ---------------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        task = future if type(future) is asyncio.Task else asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop)
        try:
            self.run_forever()
        finally:
            if not task.done():
                task.remove_done_callback(self._stop)
        if not task.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return task.result()

    def _stop(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and isinstance(future.exception(), (KeyboardInterrupt, SystemExit)):
            return  # that has ended the loop by itself; what runs on it next is not to be stopped
        self._is_stopping = True

    def run_forever(self) -> None:
        hub, self._thread, self._is_stopping = self._hub, current_thread(), False
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._generators.add, self._finalize)
        hub.turn_to(self)
        try:
            while not self._is_stopping:
                self._turn()
                hub.count_turn()
                if not self._ready and not self._is_stopping:
                    self._is_idle = True
                    hub.block(self._next_due())
                    self._is_idle = False
        finally:
            self._thread, self._is_idle = None, False
            hub.turn_to(None)
            sys.set_asyncgen_hooks(*hooks)

    def _turn(self) -> None:
        """Run what is ready now; what that schedules comes in the next turn."""
        timers, ready = self._timers, self._ready
        if timers:
            now = self._hub.now
            while timers and timers[0][0] <= now:
                handle = heappop(timers)[2]
                if not handle._cancelled:
                    ready.append(handle)
        for _ in range(len(ready)):
            handle_now = ready.popleft()
            if not handle_now._cancelled:
                handle_now._run()

    def _next_due(self) -> int | None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        return timers[0][0] if timers else None

    def _finalize(self, generator: Any) -> None:
        self._generators.discard(generator)
        if not self._is_closed and not self._process.is_dead:
            self.call_soon_threadsafe(self.create_task, generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        closing = list(self._generators)
        self._generators.clear()
        await asyncio.gather(*(generator.aclose() for generator in closing), return_exceptions=True)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Its threads end with the process."""

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    @property
    def has_left_anything(self) -> bool:
        """True if something on it has not come to its end."""
        return bool(self._ready or self._generators or self.unfinished())

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended, the oldest first."""
        tasks = [kept() for kept in self._tasks]
        return [task for task in tasks if task is not None and not task.done()]

    def _close(self, task: asyncio.Task[Any]) -> None:
        try:
            task.get_coro().close()
        except BaseException as error:
            self._last_words.append(error)  # of a program that is dead: kept for who debugs the simulation

    def abandon(self) -> None:
        """Free what was under way when its process died. Nothing that it does on the way counts."""
        self._is_closed = True
        # Where no loop runs, a `gather` of nothing in a `finally` makes one, which is never closed.
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, _Gone()))
        try:
            for task in self.unfinished():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self._close(task)
        finally:
            asyncio._set_running_loop(running)
        if self._ready:
            with warnings.catch_warnings():  # what was to be awaited never will be
                warnings.simplefilter("ignore", RuntimeWarning)
                self._ready.clear()
        self._timers.clear()


class SimRunner:
    """`with runner: runner.run(coroutine)`, on a loop of its own."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Dead):
            tidy(self._loop)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T], /) -> T:
        found: T = self._loop.run_until_complete(work)
        return found


def tidy(loop: SimLoop) -> None:
    """Let what was left half-way on a loop come to its end."""
    if not loop.has_left_anything:
        return
    loop.run_until_complete(_cancel_others(loop))
    loop.run_until_complete(loop.shutdown_asyncgens())


async def _cancel_others(loop: SimLoop) -> None:
    for _ in range(2):  # generators that were dropped are closed by tasks that begin now
        await asyncio.sleep(0)
    others = [task for task in loop.unfinished() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
