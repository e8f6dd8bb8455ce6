"""What runs beside the loop: async nodes as tasks, sync nodes on threads. Apart from the loop, which alone
touches the state.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from everstep.engine.readiness import Place
from everstep.engine.scope import Scope
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.invoke import (
    Call,
    OnChunk,
    Overdue,
    call_async,
    call_here,
    call_in_thread,
)
from everstep.runtime.drive.rest import Rest
from everstep.runtime.services import Services


class Beside:
    """The calls of one drive that are under way."""

    def __init__(self, run: RunContext, rest: Rest) -> None:
        self._services = run.services
        self._teller = run.teller
        self._rest = rest
        self._crew: Crew | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.calls: dict[Place, Call] = {}
        self.overdue: dict[Place, Future[None]] = {}
        """Threads of effectful nodes that outlived their time limit; not tried again before they end."""
        self._left: set[Future[None]] = set()

    def start(self, call: Call) -> None:
        """Make a call, once `go` is called; the drive's rest ends with it unless it is dropped."""
        if call.error is not None or call.asks is not None:
            self._rest.finish(call)
            return
        self._services.committer.tasks += 1
        self.calls[call.scope, call.index] = call
        loop = asyncio.get_running_loop()
        if call.node.is_async or call.node.timeout is not None:
            call.running = loop.create_task(self._run(call))
            self._tasks.add(call.running)
            return
        if self._crew is None:
            services = self._services
            self._crew = Crew(loop, services, self._crew_done, self._rest.fail)
        self._crew.take(call, self._teller.chunks(call))

    def go(self) -> None:
        """Let the threads begin with what was started."""
        if self._crew is not None:
            self._crew.go()

    async def _run(self, call: Call) -> None:
        try:
            if call.node.is_async:
                await call_async(call, self._teller.chunks(call))
            else:
                await call_in_thread(call, self._services.pool, self._teller.chunks(call))
            self._take_back(call)
        except Overdue as overdue:
            if call.node.is_effectful:
                self._outlasts((call.scope, call.index), overdue.thread)
            self._take_back(call.given_up(overdue.error))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # sys.exit() and the like would come out of the loop, to whichever caller runs it by then.
            self._rest.fail(error)
        finally:
            self._tasks.discard(call.running)

    def _crew_done(self, calls: list[Call]) -> None:
        for call in calls:
            self._take_back(call)

    def apart_from_overdue(self, places: list[Place]) -> list[Place]:
        """Return those of some places at which no thread of an earlier attempt is still busy."""
        return [place for place in places if place not in self.overdue]

    def _outlasts(self, place: Place, thread: Future[None]) -> None:
        loop = asyncio.get_running_loop()

        def ended(_: Future[None]) -> None:
            with suppress(RuntimeError):  # the loop is closed: the run is not driven here any more
                loop.call_soon_threadsafe(self._thread_ended, place)

        self.overdue[place] = thread
        thread.add_done_callback(ended)

    def _thread_ended(self, place: Place) -> None:
        self.overdue.pop(place, None)
        self._rest.wake()

    def _take_back(self, call: Call) -> None:
        place = (call.scope, call.index)
        if not call.is_dropped and place in self.calls:
            del self.calls[place]
            self._services.committer.tasks -= 1
            self._rest.finish(call)

    def drop(self, scope: Scope, i: int) -> list[Call]:
        """Stop what runs at a node and in the flows inside it. Threads go on; their results are dropped."""
        dropped = []
        for place, call in tuple(self.calls.items()):
            if place == (scope, i) or call.scope.is_inside(scope, i):
                del self.calls[place]
                self._services.committer.tasks -= 1
                call.is_dropped = True
                call.scope.let_go()
                if call.running is not None:
                    call.running.cancel()
                dropped.append(call)
        return dropped

    def left(self) -> list[Future[None]]:
        """Return the effects that are still made on threads, once this was stopped."""
        return [thread for thread in self._left if not thread.done()]

    async def stop(self) -> None:
        """Stop what still runs. Threads cannot be stopped; what they return is dropped."""
        for call in self.calls.values():
            call.is_dropped = True
            has_begun = call.thread is not None and not call.thread.cancel()
            if has_begun and call.thread is not None and call.node.is_effectful:
                self._left.add(call.thread)
        self._left.update(self.overdue.values())
        self._services.committer.tasks -= len(self.calls)
        self.calls.clear()
        if self._crew is not None:
            self._left.update(self._crew.close())
            self._crew = None  # it knows us
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.gather(*left, return_exceptions=True)


_FEW = 2
PATIENCE = 0.002
"""Seconds after which waiting calls get threads of their own."""


class Crew:
    """Calls waiting for a thread, and the threads that take them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        services: Services,
        finish: Callable[[list[Call]], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._pool = services.pool
        self._most = services.max_threads
        self._finish = finish
        self._fail = fail
        self._lock = services.system.lock()
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
        self._hire(_FEW)

    def _staff(self) -> None:
        self._timer = None
        with self._lock:
            self._is_timed = False
        self._hire(self._most)
        if self._done:
            self._report()

    def _hire(self, most: int) -> None:
        """Have a thread for each call that waits; one without a call takes another before it ends."""
        with self._lock:
            free = self._threads - len(self._making)
            wanted = max(0, min(len(self._waiting) - free, most - self._threads))
            self._threads += wanted
        for _ in range(wanted):
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
                except BaseException as error:  # sys.exit() and the like: for the caller that drives the run
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
        with suppress(RuntimeError):  # closed: the run was let go of
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
