"""Workers of 0.1.0 and of now on one store while its tables change, under load, killed at random.

What 0.1.0 began it drives, or a worker of now does; what is begun by now it leaves alone by name. Nothing is
lost, and no effect is made twice under another key.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from everstep import Host
from everstep.migrate import upgrade_store
from tests.acceptance.workers.test_old_workers import WHEEL
from tests.architecture.sources import ROOT

RUNS, KILLS, PATIENCE = 150, 30, 120.0
STORES = ["sqlite", "postgres", "redis"]
FLOWS = """
import os, time
from datetime import timedelta
from pathlib import Path
import everstep
from everstep import Context, Durability, Flow, node, wait

@node(output="item")
def take(number: int) -> str:
    return f"item {number}"

@node(output="receipt", effects="effectful", idempotency_key="auto")
def pay(item: str, ctx: Context) -> str:
    line = f"{item}|{ctx.idempotency_key}|{everstep.__version__}\\n"
    file = os.open("paid", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
    time.sleep(0.02)
    return f"{item} paid"

@node(output="end")
def close(receipt: str, nap: object) -> str:
    return receipt

nap = wait.timer("nap", until="2020-01-01T00:00:00Z")
kept = Durability("strong", lease_ttl=timedelta(seconds=3))
flow = Flow("orders", [take, pay, nap, close], durability=kept)
"""


class Fleet:
    """Workers of two releases, as processes; those that were killed are started again."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self.sources = {"old": folder / "old", "new": ROOT / "src"}
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.kills = 0

    def call(self, release: str, *words: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(self.sources[release])}
        told = [sys.executable, "-m", "everstep", *words, "--store", self._url]
        with (self._folder / f"{release}.log").open("ab") as log:
            return subprocess.Popen(told, cwd=self._folder, env=environment, stdout=log, stderr=log)

    def start(self, release: str) -> None:
        self._running.append((release, self.call(release, "worker", "flows.py", "--concurrency", "4")))

    def kill(self, chance: random.Random) -> None:
        """Kill one of them at random, and start another of its release."""
        place = chance.randrange(len(self._running))
        release, process = self._running.pop(place)
        self.kills += process.poll() is None
        process.kill()
        process.wait()
        self.start(release)

    def said(self) -> str:
        """Return what the workers of now said last."""
        return (self._folder / "new.log").read_text()[-3000:]

    def end(self) -> None:
        for _, process in self._running:
            process.kill()
            process.wait()


@pytest.mark.soak
@pytest.mark.parametrize("store", STORES)
def test_nothing_is_lost_or_made_twice(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    names = {"postgres": "new_postgres_url", "redis": "redis_url"}
    url = request.getfixturevalue(names[store]) if store in names else f"sqlite:///{tmp_path}/runs.db"
    (tmp_path / "flows.py").write_text(FLOWS)
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path / "old")
    seed = int(os.environ.get("EVERSTEP_SEED") or 20)
    chance, fleet = random.Random(seed), Fleet(url, tmp_path)
    begin = f"from flows import flow; from everstep import Host; host = Host({url!r}); "
    begin += f"[host.start(flow, {{'number': n}}, run_id=f'old-{{n}}') for n in range({RUNS})]"
    environment = {**os.environ, "PYTHONPATH": str(fleet.sources["old"])}
    subprocess.run([sys.executable, "-c", begin], cwd=tmp_path, env=environment, check=True)
    scope: dict[str, object] = {}
    exec(FLOWS, scope)
    for release in ("old", "old", "new", "new"):
        fleet.start(release)
    try:
        time.sleep(0.5)
        upgrade_store(url)
        with Host(url) as host:
            for n in range(RUNS):
                host.start(scope["flow"], {"number": RUNS + n}, run_id=f"new-{n}")  # type: ignore[arg-type]
            for _ in range(KILLS):
                time.sleep(0.5 + 2 * chance.random())
                fleet.kill(chance)
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                if not any(host.runs(status=status, limit=1) for status in ("running", "halted")):
                    break
                time.sleep(0.3)
            ended = Counter(run.status.value for run in host.runs(limit=10 * RUNS))
            assert ended == {"completed": 2 * RUNS}, (seed, ended, fleet.said())
            assert [one.run_id for one in host.storage.verify() if not one.is_sound] == [], seed
    finally:
        fleet.end()
    lines = (tmp_path / "paid").read_text().splitlines()
    keys: dict[str, set[str]] = {}
    for line in lines:
        item, key, _ = line.split("|")
        keys.setdefault(item, set()).add(key)
    assert set(keys) == {f"item {n}" for n in range(2 * RUNS)}, seed
    assert all(len(found) == 1 for found in keys.values()), seed
    repeated = len(lines) - 2 * RUNS
    assert repeated <= 4 * fleet.kills, seed  # only what a kill interrupted
    by = Counter(line.rpartition("|")[2] for line in lines)
    told = f"{fleet.kills} kills, {repeated} effects repeated, made by {dict(by)}"
    print(f"{store}, seed {seed}: {2 * RUNS} runs, {told}")
