"""The real clock, ids, chance and process table."""

from __future__ import annotations

import asyncio
import os
import random
import time
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
        while (left := (at - self.now()).total_seconds()) > 0:
            await asyncio.sleep(min(left, 60.0))


class SystemIds:
    def new_id(self) -> str:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def chance(self) -> float:
        return random.random()


class ProcFs:
    """Processes as Linux shows them; elsewhere it knows nothing, and leases are waited out."""

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
