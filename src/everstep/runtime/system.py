"""The real clock, ids, chance, threads and process table. No other module of the runtime knows of them."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from everstep.model.leases import Process
from everstep.ports.system import Clock, Ids, Processes

T = TypeVar("T")


class SystemClock:
    now = staticmethod(partial(datetime.now, UTC))

    def monotonic(self) -> float:
        return (
            time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
        )

    async def sleep_until(self, at: datetime) -> None:
        left = (at - self.now()).total_seconds()
        end = self.monotonic() + left
        while left > 0:
            await asyncio.sleep(min(left, 60.0))
            left = min((at - self.now()).total_seconds(), end - self.monotonic())


def random_bytes(count: int) -> bytes:
    """Return unguessable bytes."""
    return os.urandom(count)


async def pause(seconds: float) -> None:
    """Let real time pass between two looks at a store that others write to; no clock is asked."""
    await asyncio.sleep(seconds)


async def to_thread(work: Callable[..., T], /, *arguments: Any) -> T:
    """Return what a blocking call gives, made on another thread while the loop goes on."""
    return await asyncio.to_thread(work, *arguments)


def spawn(work: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread that the end of the program does not wait for."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


_AHEAD = 64
_RANDOM = int("ffffffffffff0fff3fffffffffffffff" * _AHEAD, 16)
_FIXED = int("00000000000040008000000000000000" * _AHEAD, 16)
"""Which bits of so many UUIDs are random, and the others: version 4, variant 1."""
_GROUPS = struct.Struct("8s4s4s4s12s")
"""How the digits of one stand together."""


class SystemIds:
    """Ids from the system's randomness, made for many at a time; a forked child makes its own."""

    def __init__(self) -> None:
        self._ahead: list[str] = []
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forget(mine()))

    def new_id(self) -> str:
        try:
            return self._ahead.pop()
        except IndexError:
            more = _uuids()
            mine = more.pop()
            self._ahead = more
            return mine

    def forget(self) -> None:
        """Drop what was made ahead."""
        self._ahead = []

    def chance(self) -> float:
        return random.random()


def _uuids() -> list[str]:
    bits = int.from_bytes(os.urandom(16 * _AHEAD)) & _RANDOM | _FIXED
    digits = bits.to_bytes(16 * _AHEAD).hex().encode()
    return b" ".join(map(b"-".join, _GROUPS.iter_unpack(digits))).decode().split()


def _forget(ids: SystemIds | None) -> None:
    if ids is not None:
        ids.forget()


class ProcFs:
    """Processes as Linux shows them; elsewhere it knows nothing, and leases are waited out."""

    def here(self) -> tuple[str, int]:
        return socket.gethostname(), os.getpid()

    def me(self) -> Process | None:
        return _identify(os.getpid())

    def is_here(self, process: Process) -> bool:
        mine = self.me()
        return mine is not None and (mine.boot_id, mine.pid_namespace) == (
            process.boot_id,
            process.pid_namespace,
        )

    def is_gone(self, process: Process) -> bool:
        mine = self.me()
        if mine is None or not self.is_here(process):
            return False
        if (process.pid, process.started) == (mine.pid, mine.started):
            return False
        try:
            return _start_time(process.pid) != process.started
        except (FileNotFoundError, ProcessLookupError):
            return True
        except OSError:
            return False


@lru_cache(maxsize=4)  # per pid: a forked child is another process
def _identify(pid: int) -> Process | None:
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return Process(boot_id, str(Path("/proc/self/ns/pid").readlink()), pid, _start_time(pid))
    except (OSError, ValueError, IndexError):
        return None


def _start_time(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] in ("Z", "X"):
        raise ProcessLookupError(pid)
    return int(fields[19])


class RealSystem:
    """This machine, with a clock and ids that may be others."""

    random_bytes = staticmethod(random_bytes)
    pause = staticmethod(pause)
    to_thread = staticmethod(to_thread)
    spawn = staticmethod(spawn)
    thread_id = staticmethod(threading.get_ident)
    lock = staticmethod(threading.Lock)
    condition = staticmethod(threading.Condition)
    event = staticmethod(threading.Event)
    queue = staticmethod(SimpleQueue[Any])
    runner = staticmethod(asyncio.Runner)

    def __init__(
        self, clock: Clock | None = None, ids: Ids | None = None, processes: Processes | None = None
    ) -> None:
        self.clock = clock or SystemClock()
        self.ids = ids or SystemIds()
        self.processes = processes or ProcFs()

    def wait_for(self, futures: Iterable[Future[Any]]) -> None:
        wait(futures)

    def executor(self, most: int, name: str) -> Executor:
        return ThreadPoolExecutor(most, thread_name_prefix=name)
