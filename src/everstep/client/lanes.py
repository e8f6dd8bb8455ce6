"""Event loops on which calls from code that does not await are driven, and what interrupts such a call."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # no stubs
import _thread
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Generic, TypeVar

from everstep.client.host import AsyncHost
from everstep.errors import BadRequest
from everstep.runtime.drive.invoke import DOORS
from everstep.runtime.runs import host_closed

T = TypeVar("T")
Work = Callable[[AsyncHost], Coroutine[Any, Any, T]]
log = logging.getLogger("everstep")
PATIENCE = 30.0
"""Seconds that closing a host waits for nodes that cannot be stopped."""
HEADROOM = 200
"""Frames that a call must have left. An error for want of one more would be lost inside the event loop."""
SENT_AGAIN = 0.05
"""Seconds until a Ctrl-C that came in code of ours looks whether a node holds the loop."""
_SIGINT = int(signal.SIGINT)
# `_signal` is what `signal` wraps in a search for an enum; that costs more than many a call of a host.
_PACKAGE = Path(__file__).parents[1]
_OURS = tuple(f"{_PACKAGE / room}{os.sep}" for room in ("client", "codec", "engine", "runtime", "stores"))


class Underway:
    """One call. Any thread may ask here for its end."""

    def __init__(self) -> None:
        self.reason: BaseException | None = None
        self._lane: _Lane | None = None
        self._task: asyncio.Task[Any] | None = None

    def begin(self, lane: _Lane, task: asyncio.Task[Any]) -> None:
        self._task, self._lane = task, lane
        if self.reason is not None:
            self._tell()

    def end(self) -> None:
        self._lane = None

    def interrupt(self, reason: BaseException) -> None:
        """Let it end soon: what has finished is kept, and the lease of its run given back."""
        if self.reason is None:
            self.reason = reason
        self._tell()

    def _tell(self) -> None:
        lane, task = self._lane, self._task
        if lane is None or task is None:
            return
        for drive in lane.host.driving.copy():
            drive.breathe()
        with suppress(RuntimeError):  # its loop is closed, so it has ended
            lane.loop.call_soon_threadsafe(task.cancel)

    def is_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._lane is not None and self._lane.loop is loop

    @property
    def is_unheard(self) -> bool:
        """True if its loop has not come to the request to end: a node that does not await holds it."""
        task = self._task
        return self._lane is not None and task is not None and not task.done() and not task.cancelling()


class _Lane:
    """An event loop and the host that works on it, used by one thread at a time."""

    def __init__(self, host: AsyncHost) -> None:
        self.loop = asyncio.new_event_loop()
        self.host = host

    def run(self, work: Work[T], underway: Underway) -> T:
        task = self.loop.create_task(work(self.host))
        underway.begin(self, task)
        try:
            return self.loop.run_until_complete(task)
        except BaseException as error:
            # What comes out of the loop may not be from the task: let go of the run before the caller hears.
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    self.loop.run_until_complete(task)
            if task.done() and not task.cancelled():
                task.exception()  # heard of
            if underway.reason is not None and isinstance(error, asyncio.CancelledError):
                raise underway.reason from None
            raise
        finally:
            underway.end()

    def close(self) -> None:
        """Close the loop, after what was left half-way on it has ended."""
        try:
            self.loop.run_until_complete(_tidy())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()


async def _tidy() -> None:
    for _ in range(2):  # generators that were dropped are closed by tasks that begin now
        await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _CtrlC:
    """Holds Ctrl-C back while it would hit our own code, which may have taken a lease or a lock a moment ago.

    In the code of a node it is raised at once, elsewhere the call is told to end. A node that does not await
    may go on, or begin, before the loop hears of that: for as long as it has not, the signal is sent again,
    and raised where it meets the node. A second Ctrl-C is raised wherever it comes. Only Python's own handler
    is stood in for, and only on the thread that has it.
    """

    def __init__(self, underway: Underway) -> None:
        self._underway = underway
        self._came = False
        self._is_raised = False
        self._stands_in = False
        self._sending: _thread.LockType | None = None
        """Held while a signal is sent again."""
        self._over: _thread.LockType | None = None
        """Let go of at the end."""
        self._is_over = False
        self._is_again = False
        """True if the next signal is the same Ctrl-C, sent again."""

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and _signal.getsignal(_SIGINT) is signal.default_int_handler:
            self._stands_in = True
            _signal.signal(_SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_again, self._is_again = self._is_again, False
        if is_again and not self._underway.is_unheard:
            return  # what cleans up behind it is not to be hit
        if _is_in_a_node(frame) or (self._came and not is_again):
            self._came = self._is_raised = True
            raise KeyboardInterrupt
        if is_again:
            return
        self._came = True
        self._underway.interrupt(KeyboardInterrupt())
        # Not `Thread.start`: it takes a lock, and the code that the signal came in may hold that.
        self._sending, self._over = _thread.allocate_lock(), _thread.allocate_lock()
        self._over.acquire()
        _thread.start_new_thread(self._send_again, (self._sending, self._over))

    def _send_again(self, sending: _thread.LockType, over: _thread.LockType) -> None:
        while not over.acquire(timeout=SENT_AGAIN):
            with sending:
                if self._is_over or self._is_raised or not self._underway.is_unheard:
                    return
                self._is_again = True
                _signal_main_thread()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._stands_in:
            return
        if self._sending is not None and self._over is not None:
            with self._sending:
                self._is_over = True
            self._over.release()
        _signal.signal(_SIGINT, signal.default_int_handler)
        if self._came and not self._is_raised and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error


def _signal_main_thread() -> None:
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)  # wakes a call that sleeps, too
    else:
        _thread.interrupt_main()


def _is_in_a_node(frame: FrameType | None) -> bool:
    """True if user code was interrupted, or one of ours that only waits for others."""
    while frame is not None:
        if frame.f_code in DOORS or frame.f_code is _join.__code__:
            return True
        if frame.f_code.co_filename.startswith(_OURS):
            return False
        frame = frame.f_back
    return False


def _check_depth() -> None:
    try:
        sys._getframe(max(1, sys.getrecursionlimit() - HEADROOM))
    except ValueError:
        return
    raise RecursionError(
        f"a host was called with fewer than {HEADROOM} frames left to the recursion limit; nothing was done."
    )


class CallAside(Generic[T]):
    """A call that is driven on a thread of its own."""

    def __init__(self, outcome: Future[T], underway: Underway) -> None:
        self._outcome = outcome
        self._underway = underway

    def done(self) -> bool:
        """True if it has ended."""
        return self._outcome.done()

    def result(self) -> T:
        """Return what came of it, or raise that."""
        _join(self._outcome)
        return self._outcome.result()

    def stop(self, reason: BaseException) -> None:
        """Let it end soon, unless it has, and wait for that: what has finished is kept."""
        if not self._outcome.done():
            self._underway.interrupt(reason)
            _join(self._outcome)


class _LentLoop:
    """A loop on which leases are given back while no call runs one: that of a node which ends between the
    end of its call and that of another, on a store that is only awaited.
    """

    def __init__(self, borrower: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="everstep-host", daemon=True)
        self._borrower = borrower

    def __enter__(self) -> None:
        self._thread.start()
        self._borrower(self._loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Lanes:
    """Event loops for as many calls as are under way, each used by one thread at a time."""

    def __init__(self, host: AsyncHost) -> None:
        self.host = host
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._free = [_Lane(host)]
        self._underway: set[Underway] = set()
        self._is_closed = False

    def call(self, work: Work[T]) -> T:
        if asyncio._get_running_loop() is not None:
            return self._call_aside(work)
        return self._call_here(work, Underway())

    def _call_here(self, work: Work[T], underway: Underway) -> T:
        _check_depth()
        with _CtrlC(underway):
            lane = self._take(underway)
            try:
                return lane.run(work, underway)
            finally:
                self._give_back(lane, underway)

    def _take(self, underway: Underway) -> _Lane:
        with self._lock:
            if self._is_closed:
                raise BadRequest("this host is closed.", fix="Open another one.")
            self._underway.add(underway)
            if self._free:
                return self._free.pop()
        return _Lane(self.host.twin())

    def _give_back(self, lane: _Lane, underway: Underway) -> None:
        with self._lock:
            self._free.append(lane)
            self._underway.discard(underway)
            if self._is_closed:
                self._changed.notify_all()

    def aside(self, work: Work[T], on_end: Callable[[], None] = lambda: None) -> CallAside[T]:
        """Drive a call on a thread of its own, and return it at once."""
        underway = Underway()
        outcome: Future[T] = Future()

        def target() -> None:
            try:
                outcome.set_result(self._call_here(work, underway))
            except BaseException as error:
                outcome.set_exception(error)
            on_end()

        threading.Thread(target=target, name="everstep-host", daemon=True).start()
        return CallAside(outcome, underway)

    def _call_aside(self, work: Work[T]) -> T:
        """Called where a loop is running already, as in a notebook: drive on another thread."""
        call = self.aside(work)
        try:
            return call.result()
        except KeyboardInterrupt as reason:
            call.stop(reason)  # a node that does not await ends first; a second Ctrl-C does not wait for it
            raise

    def close(self) -> None:
        """Let the calls under way end, wait for them, and close the host."""
        running = asyncio._get_running_loop()
        with self._changed:
            if self._is_closed:
                return
            if any(running is not None and call.is_on(running) for call in self._underway):
                raise BadRequest(
                    "a node cannot close the host that drives it.", fix="Close it when its run has ended."
                )
            self._is_closed = True
            underway = list(self._underway)
        borrower = self.host.borrower
        with _LentLoop(borrower) if underway and borrower is not None else nullcontext():
            try:
                for call in underway:
                    call.interrupt(host_closed())
                with self._changed:
                    if not self._changed.wait_for(lambda: not self._underway, PATIENCE):
                        log.warning("host closed while a node of a run that it drives is still running.")
            finally:
                if running is None:
                    self._shut()
                else:
                    thread = threading.Thread(target=self._shut, name="everstep-host")
                    thread.start()
                    thread.join()

    def _shut(self) -> None:
        lane = self._free.pop() if self._free else _Lane(self.host)
        try:
            lane.run(lambda _: self.host.close(), Underway())
        finally:
            for free in (lane, *self._free):
                free.close()


def _join(outcome: Future[Any]) -> None:
    # Not `Thread.join`: up to Python 3.12 one that Ctrl-C interrupts takes the thread for ended ever after.
    outcome.exception()
