"""Time, identity, chance and threads: everything that is not the same on every run of the program.

A host has one `System`, and the runtime takes all of this from it. So a test can hand it another one, which
moves time and decides which thread goes on. What the event loop decides (tasks, their order, its timers) is
not here: a simulation brings its own loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from everstep.model.leases import Process

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future  # which load much, and only some hosts have them

T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the time as aware UTC."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back and runs through suspend."""

    async def sleep_until(self, at: datetime) -> None:
        """Return once `now()` has reached `at`, or as much time has passed as there was to go.

        A clock that is set back meanwhile does not make a sleep longer.
        """


def time_for_store(clock: Clock) -> datetime | None:
    """Return the time that a store with a clock of its own has to go by; none lets its own count.

    The clocks of two machines differ, so only a clock that tests move (`is_manual`) counts for more.
    """
    return clock.now() if getattr(clock, "is_manual", False) else None


async def reached(clock: Clock, at: datetime) -> None:
    """Return once `now()` has reached `at`, without making it come.

    A clock that tests move may move by itself for a sleeper; not for one who polls while others work.
    """
    await getattr(clock, "reached", clock.sleep_until)(at)


def uptime(clock: Clock) -> float | None:
    """Return seconds that all processes of one boot count alike, and that setting the time does not change.

    None of a clock that tests move, as each has its own.
    """
    return None if getattr(clock, "is_manual", False) else clock.monotonic()


def wait_until(clock: Clock, system: System, at: datetime, woken: Event | None = None) -> None:
    """Hold this thread up until `now()` has reached `at`, as much time has passed, or it is woken."""
    own = getattr(clock, "wait_until", None)
    if own is not None:
        own(at)
        return
    left = (at - clock.now()).total_seconds()
    if left > 0:
        (woken or system.event()).wait(left)


class Ids(Protocol):
    def new_id(self) -> str:
        """Return a UUID4 as text."""

    def chance(self) -> float:
        """Return a number in [0, 1)."""


class Processes(Protocol):
    def here(self) -> tuple[str, int]:
        """Return the name of this machine and the pid of this process, as a person would look for them."""

    def me(self) -> Process | None:
        """Identify this process, or none where the system cannot tell."""

    def is_here(self, process: Process) -> bool:
        """True if that process lives, or lived, on this machine since it was started, where we can see it."""

    def is_gone(self, process: Process) -> bool:
        """True only if that process certainly no longer runs; false when in doubt."""


Lock = AbstractContextManager[Any]
"""Held by one thread at a time: `with lock: ...`."""


class Condition(Protocol):
    """A lock that threads wait at, until another thread that holds it notifies them."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock until notified; false if that took longer than `timeout` seconds."""

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the predicate holds; returns whether it does."""

    def notify(self, n: int = 1) -> None: ...

    def notify_all(self) -> None: ...


class Event(Protocol):
    """A flag that threads wait for."""

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Return once it is set, with true, or after `timeout` seconds with whether it is."""


class Queue(Protocol[T]):
    """What some threads put, and others get in the same order."""

    def put(self, item: T) -> None: ...

    def get(self) -> T:
        """Return the next item, waiting for one."""

    def empty(self) -> bool: ...


class Runner(Protocol):
    """An event loop of a thread of its own."""

    def run(self, work: Coroutine[Any, Any, T], /) -> T:
        """Return what a coroutine gives."""


class Thread(Protocol):
    """A thread that was started."""

    def join(self, timeout: float | None = None) -> None:
        """Return once it has ended, or after `timeout` seconds."""


class System(Protocol):
    """What a host takes from the machine it runs on."""

    clock: Clock
    ids: Ids
    processes: Processes

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that cannot be guessed."""

    async def pause(self, seconds: float) -> None:
        """Let real time pass between two looks at a store that others write to; no clock is asked."""

    async def to_thread(self, work: Callable[..., T], /, *arguments: Any) -> T:
        """Return what a blocking call gives, made on another thread while the loop goes on."""

    def spawn(self, work: Callable[[], None], name: str) -> Thread:
        """Start a thread that the end of the program does not wait for."""

    def runner(self) -> AbstractContextManager[Runner]:
        """Return an event loop for this thread, which is closed in the end."""

    def executor(self, most: int, name: str) -> Executor:
        """Return at most so many threads that make calls one after the other."""

    def wait_for(self, futures: Iterable[Future[Any]]) -> None:
        """Return once all of these are done, which other threads see to."""

    def thread_id(self) -> int:
        """Return a number that no other living thread has."""

    def lock(self) -> Lock: ...

    def condition(self) -> Condition: ...

    def event(self) -> Event: ...

    def queue(self) -> Queue[Any]: ...
