"""Limits of flows whose runs are started and driven by processes, which are killed."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

import apsw
import pytest

from everstep import AsyncHost, Host
from tests.acceptance.workers.limited_fleet import RATE, MovedClock, limited

ROOT = Path(__file__).resolve().parents[3]
KEYS, WORKERS, MINUTE = 1000, 4, 60_000_000
TTL = 60_000_000


def begun(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.acceptance.workers.limited_fleet", *arguments]
    says = subprocess.PIPE if arguments[0] == "start" else subprocess.DEVNULL
    return subprocess.Popen(command, cwd=ROOT, stdout=says, text=True)


def started_at_once(url: str, processes: int, keys: int) -> list[str]:
    """Let processes start runs of the same keys in the same moments; return the keys that each has won."""
    with Host(url):
        pass
    at = f"{time.time() + 1.5}"
    running = [begun("start", url, f"p{number}", at, f"{keys}") for number in range(processes)]
    return [line for process in running for line in process.communicate(timeout=60)[0].split()]


def test_of_processes_that_start_a_run_of_a_key_at_once_one_wins(tmp_path: Path) -> None:
    won = started_at_once(f"sqlite:///{tmp_path}/runs.db", 4, 20)
    assert sorted(map(int, won)) == list(range(20))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["postgres", "redis", "s3"])
def test_that_holds_on_servers(kind: str, request: pytest.FixtureRequest) -> None:
    won = started_at_once(str(request.getfixturevalue(f"{kind}_url")), 4, 20)
    assert sorted(map(int, won)) == list(range(20))


WATCH = """CREATE TRIGGER first_claims AFTER UPDATE OF epoch ON runs WHEN old.epoch = 0 AND new.epoch = 1
BEGIN INSERT INTO first_claims VALUES (new.run_group, new.expires_at); END"""


@pytest.mark.soak
def test_a_fleet_that_is_killed_at_random_never_exceeds_the_rate_of_a_thousand_keys(tmp_path: Path) -> None:
    clock, chance = MovedClock(tmp_path), random.Random(7)
    url = f"sqlite:///{tmp_path}/runs.db"
    deaths, minutes = 0, 4.0

    async def ask_for_more(host: AsyncHost, jobs: int) -> None:
        keys = [f"k{chance.randrange(KEYS)}" for _ in range(jobs)]
        await asyncio.gather(*(host.start(limited, {"key": key, "job": 1}) for key in keys))

    async def run() -> None:
        nonlocal deaths
        async with AsyncHost(url, clock=clock) as host:
            await ask_for_more(host, 10)
            db = apsw.Connection(f"{tmp_path}/runs.db")
            db.set_busy_timeout(10_000)
            # What the store itself wrote in the act that gave the lease.
            db.execute("CREATE TABLE first_claims (run_group TEXT, expires_at INTEGER)")
            db.execute(WATCH)
            db.close()
            workers = [begun("drive", str(tmp_path)) for _ in range(WORKERS)]
            began = last = clock.now()
            try:
                while (clock.now() - began).total_seconds() < 60 * minutes:
                    await asyncio.sleep(0.1)
                    clock.move_on(chance.choice([0.0, 0.2, 0.6]))
                    passed, last = (clock.now() - last).total_seconds(), clock.now()
                    await ask_for_more(host, round(2 * RATE * KEYS * passed / 60))
                    if chance.random() < passed / 8:
                        place = chance.randrange(WORKERS)
                        workers[place].send_signal(signal.SIGKILL)
                        workers[place].wait()
                        workers[place] = begun("drive", str(tmp_path))
                        deaths += 1
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()

    asyncio.run(run())
    starts: dict[str, list[int]] = defaultdict(list)
    for group, expires_at in apsw.Connection(f"{tmp_path}/runs.db").execute("SELECT * FROM first_claims"):
        starts[group].append(expires_at - TTL)
    most = 0
    for times in starts.values():
        times.sort()
        most = max(most, *(bisect_right(times, at + MINUTE) - k for k, at in enumerate(times)))
    total = sum(map(len, starts.values()))
    print(f"{total} starts of {len(starts)} keys, at most {most} a minute; {deaths} workers were killed")
    assert most == RATE
    assert deaths > 10
    assert len(starts) > 0.9 * KEYS
    assert total > 0.4 * RATE * KEYS * minutes, "limits hold back more than they must"
