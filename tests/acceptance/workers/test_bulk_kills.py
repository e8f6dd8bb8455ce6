"""A bulk retry whose workers are killed again and again: each run is reopened once, and all is on record.

`EVERSTEP_SOAK=1` retries 10,000 runs, and says what it took.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep import Host
from everstep.model.enums import Trigger
from everstep.results import BulkPreview
from tests.acceptance.workers.bulk_flow import DOWN, ORDERS
from tests.architecture.sources import ROOT

FAILED = "flow = orders and status = failed and error contains 'timed out'"
SEED = int(os.environ.get("EVERSTEP_SEED", "0"))
PATIENCE = 900.0


@pytest.mark.slow
def test_a_bulk_retry_survives_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retried(f"sqlite:///{tmp_path}/runs.db", monkeypatch, runs=60, kills=4)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_bulk_retry_of_ten_thousand_runs_survives_ten_kills(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    retried(url, monkeypatch, runs=10_000, kills=10)


def retried(url: str, monkeypatch: pytest.MonkeyPatch, *, runs: int, kills: int) -> None:
    """Let runs fail, retry them all, and kill the worker that does it so many times."""
    chance = random.Random(SEED)
    with Host(url) as host:
        with monkeypatch.context() as while_down:
            while_down.setenv(DOWN, "1")
            for order in range(runs):
                host.run(ORDERS, {"order": order}, run_id=f"o{order}")
        host.run(ORDERS, {"order": -1}, run_id="paid")
        found = host.fleet.bulk("retry", FAILED, dry_run=True)
        assert isinstance(found, BulkPreview)
        assert (found.runs, found.to_do, found.by_flow) == (runs, runs, {"orders": runs})
        began = time.monotonic()
        bulk = host.fleet.bulk("retry", FAILED, by="ada", comment="the bank is back")
        deaths = 0
        for left in sorted(chance.sample(range(1, runs), kills), reverse=True):
            with worker(url) as child:
                deaths += _dies(host, child, left)
        with worker(url) as child:
            assert child.wait(PATIENCE) == 0
        took = time.monotonic() - began
        told = host.fleet.bulk_progress(bulk)
        assert (told.status, told.done, told.left) == ("completed", runs, 0)
        assert told.skipped == told.refused == {}
        assert host.fleet.count().runs == {"completed": runs + 2}  # one was paid before, one is the bulk run
        _check_records(host, bulk, runs)
        print(f"{runs:,} runs retried in {took:.1f} s with {deaths} kills on {url.partition(':')[0]}")
        assert deaths == kills


@contextmanager
def worker(url: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.acceptance.workers.bulk_flow", url]
    child = subprocess.Popen(command, cwd=ROOT)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def _dies(host: Host, child: subprocess.Popen[bytes], left: int) -> bool:
    """Kill a worker once so many runs are still failed; says whether that came in its life."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if host.fleet.count().runs.get("failed", 0) <= left:
            is_alive = child.poll() is None
            child.kill()
            return is_alive
        assert child.poll() is None, "it ended before all was done"
        time.sleep(0.002)
    raise TimeoutError(f"more than {left} runs are still failed")


def _check_records(host: Host, bulk: str, runs: int) -> None:
    """Look at all runs, and at the audit log: one reopening each, by whom and why."""
    comment, rows, after = f"the bank is back (bulk {bulk})", Counter[str](), 0
    while page := host.fleet.audit(act="retry", after=after, limit=1000):
        after = page[-1].number
        assert {(row.by, row.comment, row.outcome) for row in page} == {("ada", comment, "done")}
        rows.update(row.run_id or "" for row in page)
    assert rows == {f"o{order}": 1 for order in range(runs)}
    for order in range(runs):
        records = host.history(f"o{order}")
        [reopened] = [record for record in records if record.trigger is Trigger.RESUME]
        assert reopened.act is not None and reopened.act.comment == comment
    assert all(one.is_sound for one in host.storage.verify(["o0", f"o{runs - 1}", bulk]))
