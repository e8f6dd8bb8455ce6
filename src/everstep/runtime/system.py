"""The real clock, ids, chance and process table."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
import weakref
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from everstep.model.leases import Process


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

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


class SystemIds:
    """Ids from the system's randomness, fetched for many at a time; a forked child fetches its own."""

    def __init__(self) -> None:
        self._pool = ""
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forget(mine()))

    def new_id(self) -> str:
        text = self._pool[-32:] or self._refill()
        self._pool = self._pool[:-32]
        variant = "89ab"[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"

    def _refill(self) -> str:
        self._pool = os.urandom(16 * 64).hex()
        return self._pool[-32:]

    def forget(self) -> None:
        """Drop what was fetched ahead."""
        self._pool = ""

    def chance(self) -> float:
        return random.random()


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
        if not self.is_here(process):
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
