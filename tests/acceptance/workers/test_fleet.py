"""Four worker processes on one store, killed at random: every effect is made exactly once.

`EVERSTEP_SOAK=1` drives 2,000 runs on each store.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from everstep import Host
from tests.acceptance.workers.fleet_flows import orders
from tests.servers import warm

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
RUNS = 2000 if IS_SOAK else 40
LEAST_KILLS = 20 if IS_SOAK else 3
FLOWS = Path(__file__).with_name("fleet_flows.py")


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


class Fleet:
    """Workers that are processes of their own."""

    def __init__(self, url: str, folder: Path, size: int) -> None:
        self._command = [sys.executable, "-m", "everstep", "worker", str(FLOWS), "--store", url]
        self._environment = {
            **os.environ,
            "EVERSTEP_LEDGER": f"{folder}/ledger.db",
            "EVERSTEP_TRACE": f"{folder}/trace",
        }
        self._said = folder / "said"
        self.workers = [self._hire() for _ in range(size)]
        self.kills = 0

    def _hire(self) -> warm.Process:
        with self._said.open("ab") as said:
            return warm.Process(self._command, stdout=said, stderr=said, env=self._environment)

    def kill_one(self, whims: Random) -> None:
        """Kill one as the kernel would, and hire another."""
        k = whims.randrange(len(self.workers))
        self.workers[k].kill()
        self.workers[k].wait(20)
        self.workers[k] = self._hire()
        self.kills += 1

    def dismiss(self) -> None:
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.wait(20)


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[Fleet]:
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        ledger.execute("PRAGMA journal_mode = WAL")
        ledger.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, run TEXT, path TEXT, amount INTEGER)")
        ledger.commit()
    staff = Fleet(url, tmp_path, 4)
    yield staff
    staff.dismiss()


def entries(folder: Path) -> Counter[tuple[str, str, int]]:
    with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        return Counter(ledger.execute("SELECT run, path, amount FROM entries").fetchall())


def begun(folder: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return every call of a node's body, in order, by run and path."""
    calls: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in (folder / "trace").read_text().splitlines():
        call = json.loads(line)
        calls.setdefault((call["run"], call["path"]), []).append(call)
    return calls


def test_every_effect_is_made_once_while_workers_are_killed_at_random(
    tmp_path: Path, url: str, fleet: Fleet
) -> None:
    whims = Random(7)
    with Host(url) as host:
        for number in range(RUNS):
            host.start(orders, {"amount": number}, run_id=f"r{number}", group=f"g{number % 5}")
        end = time.monotonic() + (1200 if IS_SOAK else 120)
        while host.fleet.counts().runs.get("completed", 0) < RUNS:
            assert time.monotonic() < end, host.fleet.counts().runs
            if fleet.kills < LEAST_KILLS or IS_SOAK:
                time.sleep(whims.uniform(0.1, 1.0) if IS_SOAK else whims.uniform(0.02, 0.15))
                fleet.kill_one(whims)
            else:
                time.sleep(0.1)
        expected = Counter(
            (f"r{number}", path, number) for number in range(RUNS) for path in ("reserve", "charge", "send")
        )
        assert entries(tmp_path) == expected, "an effect is missing, or was made twice"
        calls = begun(tmp_path)
        repeated = {place: len(made) for place, made in calls.items() if len(made) > 1}
        for number in range(RUNS):
            state = host.state(f"r{number}")
            for path, output in (("reserve", "reserved"), ("charge", "charged"), ("send", "sent")):
                # Whose result was recorded was called last: after that it never ran again.
                assert state[output] == calls[f"r{number}", path][-1]["token"]
    assert fleet.kills >= LEAST_KILLS
    assert len(repeated) <= fleet.kills * 32
    print(f"\n{RUNS} runs, {fleet.kills} kills, {len(repeated)} steps begun again")
