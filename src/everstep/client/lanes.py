"""Event loops on which calls from code that does not await are driven."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from everstep.client.host import AsyncHost
from everstep.errors import BadRequest

T = TypeVar("T")
Work = Callable[[AsyncHost], Coroutine[Any, Any, T]]


class _Lane(NamedTuple):
    loop: asyncio.AbstractEventLoop
    host: AsyncHost


class Lanes:
    """Event loops for as many calls as are under way, each used by one thread at a time."""

    def __init__(self, host: AsyncHost) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._free = [_Lane(asyncio.new_event_loop(), host)]
        self._is_closed = False

    def call(self, work: Work[T]) -> T:
        if asyncio._get_running_loop() is not None:
            return self._call_aside(work)
        with self._lock:
            if self._is_closed:
                raise BadRequest("this host is closed.", fix="Open another one.")
            lane = self._free.pop() if self._free else None
        if lane is None:
            lane = _Lane(asyncio.new_event_loop(), self._host.twin())
        task = lane.loop.create_task(work(lane.host))
        try:
            return lane.loop.run_until_complete(task)
        except BaseException:
            # Ctrl-C stops the loop, not the work: let go of the run before the caller hears of it.
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    lane.loop.run_until_complete(task)
            raise
        finally:
            self._give_back(lane)

    def _give_back(self, lane: _Lane) -> None:
        with self._lock:
            if self._is_closed:
                lane.loop.close()
            else:
                self._free.append(lane)

    def _call_aside(self, work: Work[T]) -> T:
        """Called where a loop is running already, as in a notebook: drive on another thread."""
        outcome: Future[T] = Future()

        def target() -> None:
            try:
                outcome.set_result(self.call(work))
            except BaseException as error:
                outcome.set_exception(error)

        thread = threading.Thread(target=target, name="everstep-host")
        thread.start()
        thread.join()
        return outcome.result()

    def close(self) -> None:
        if self._is_closed:
            return
        try:
            self.call(lambda host: self._host.close())
        finally:
            with self._lock:
                self._is_closed = True
                for lane in self._free:
                    lane.loop.close()
