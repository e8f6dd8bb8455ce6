"""What processes of a fleet with limits do: drive runs, or start one, by a clock that a file moves on."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

from everstep import AsyncHost, Durability, Flow, Host, Limit, Singleton, node
from everstep.errors import KeyTaken
from everstep.runtime.system import SystemClock

RATE = 2


@node(output="done")
async def work(key: str, job: int) -> int:
    return job


limited = Flow(
    "limited",
    [work],
    durability=Durability("strong", lease_ttl="60s"),
    limits=[Limit("key", rate=f"{RATE}/1m")],
)
single = Flow("single", [work], limits=[Singleton("key")])


class MovedClock(SystemClock):
    """The real time, moved on by so many seconds as a file says: the same for all processes."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "ahead", os.O_RDWR | os.O_CREAT)

    @property
    def ahead(self) -> float:
        kept = os.pread(self._file, 8, 0)
        return struct.unpack("d", kept)[0] if kept else 0.0

    def move_on(self, seconds: float) -> None:
        os.pwrite(self._file, struct.pack("d", self.ahead + seconds), 0)

    def now(self) -> datetime:
        return SystemClock.now() + timedelta(seconds=self.ahead)

    async def sleep_until(self, at: datetime) -> None:
        while self.now() < at:
            await asyncio.sleep(0.02)


async def drive(folder: Path) -> None:
    """Drive runs until the process is killed."""
    async with AsyncHost(f"sqlite:///{folder}/runs.db", clock=MovedClock(folder)) as host:
        await host.work([limited], concurrency=16)


def start_one_each(url: str, name: str, at: float, keys: int) -> None:
    """Start a run of each key at the same moment as others do, and say of which keys it was."""
    with Host(url) as host:
        time.sleep(max(at - time.time(), 0))
        for key in range(keys):
            try:
                host.start(single, {"key": f"k{key}", "job": key}, run_id=f"{name}-{key}")
                print(key)
            except KeyTaken:
                pass


if __name__ == "__main__":
    if sys.argv[1] == "drive":
        asyncio.run(drive(Path(sys.argv[2])))
    else:
        start_one_each(sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5]))
