"""A run that is driven here, as the events that it tells. The drive never waits for those who read them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Protocol

from everstep.client.views import RunResult
from everstep.errors import RunCancelled
from everstep.ports.live import Position
from everstep.ports.system import Clock
from everstep.runtime.drive.invoke import soon
from everstep.runtime.events import Event, Listener, tell

MOST = 1000
"""How many events are held for a reader. One that lags behind further misses the next."""
_ALL = 999_999_999
"""Behind every event of a record."""
Run = Callable[[Listener], Coroutine[Any, Any, RunResult]]


def told_both(one: Listener | None, other: Listener) -> Listener:
    """Return a listener that tells two; one that fails does not keep the other from hearing."""
    if one is None:
        return other

    def both(event: Event) -> None:
        tell(one, event)
        other(event)

    return both


class Heard:
    """The events that a reader has not taken yet, each with an id to go on from elsewhere."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._events: deque[Event] = deque()
        self._at = Position()
        self._lost = 0
        self._run_id = ""

    def put(self, event: Event) -> None:
        """Take an event, unless there are too many already. Never waits."""
        self._run_id = event.run_id
        if len(self._events) >= MOST:
            self._lost += 1
            return
        if self._lost:
            self._events.append(self._gap(event))
        if event.kind == "checkpoint":
            self._at = self._at._replace(sequence=event.data["sequence"], place=_ALL)
        elif event.id:
            self._at = self._at._replace(offset=Position.of(event.id).offset)
        self._events.append(event.called(str(self._at)))
        self._wake()

    def _gap(self, before: Event) -> Event:
        lost, self._lost = self._lost, 0
        return Event(id=str(self._at), kind="gap", run_id=self._run_id, at=before.at, data={"lost": lost})

    def take(self) -> Event | None:
        """Return the next event; none if there is none yet."""
        return self._events.popleft() if self._events else None

    def last(self, result: RunResult, clock: Clock) -> Iterator[Event]:
        """Yield what is left once the run has been driven, and its result."""
        while (event := self.take()) is not None:
            yield event
        told = {"status": result.status.value, "result": result}
        end = Event(id=str(self._at), kind="result", run_id=result.run_id, at=clock.now(), data=told)
        if self._lost:
            yield self._gap(end)
        yield end


async def streamed(run: Run, clock: Clock) -> AsyncGenerator[Event, None]:
    """Drive a run on this loop, and yield what it tells."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    heard = Heard(lambda: soon(loop, news.set))
    driving = loop.create_task(run(heard.put))
    driving.add_done_callback(lambda _: news.set())
    try:
        while not driving.done():
            await news.wait()
            news.clear()
            while (event := heard.take()) is not None:
                yield event
        result = driving.result() if driving.exception() is None else None
        if result is None:
            while (event := heard.take()) is not None:
                yield event
            await driving
        else:
            for event in heard.last(result, clock):
                yield event
    finally:
        if not driving.done():
            driving.cancel()
            with suppress(asyncio.CancelledError):
                await driving


class Aside(Protocol):
    """A run that is driven on a thread of its own."""

    def done(self) -> bool: ...

    def result(self) -> RunResult: ...

    def stop(self, reason: BaseException) -> None: ...


def streamed_here(
    begin: Callable[[Callable[[Any], Any], Callable[[], None]], Aside],
    clock: Clock,
    run: Callable[[Any, Listener], Coroutine[Any, Any, RunResult]],
) -> Iterator[Event]:
    """Drive a run on a thread of its own, and yield what it tells on this one."""
    changed = threading.Condition()

    def wake() -> None:
        with changed:
            changed.notify()

    heard = Heard(wake)
    aside = begin(lambda host: run(host, heard.put), wake)
    try:
        while True:
            with changed:
                while (event := heard.take()) is None and not aside.done():
                    changed.wait()
            if event is None:
                break
            yield event
        yield from heard.last(aside.result(), clock)
    finally:
        aside.stop(RunCancelled("its events are read no more."))
