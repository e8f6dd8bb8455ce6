"""What the shell shows of workers, priorities and damaged runs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Host
from everstep.cli.commands.fleet.workers import workers
from everstep.cli.commands.runs.list import runs
from everstep.cli.commands.runs.run import run
from everstep.model.leases import Driven, WorkerRow
from everstep.registry import open_store
from everstep.runtime.system import SystemClock

ORDERS = """
from everstep import Flow, node

@node(output="total")
def price(quantity: int) -> int:
    return 250 * quantity

flow = Flow("orders", [price])
"""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    Path("orders.py").write_text(ORDERS)
    found = f"sqlite:///{tmp_path}/runs.db"
    Host(found).close()
    yield found
    sys.modules.pop("orders", None)


def said(command: Any, *words: str) -> str:
    done = CliRunner().invoke(command, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_workers_are_listed_with_what_they_drive(url: str) -> None:
    now = datetime.now(UTC)
    store = open_store(url, SystemClock()).store
    about: dict[str, Any] = {
        "host": "box",
        "flows": ("orders", "refunds"),
        "concurrency": 8,
        "started_at": now,
    }
    driven = tuple(
        Driven(run_id=f"A{k}", flow_id="orders", since=now - timedelta(seconds=70)) for k in range(2)
    )
    rows = [
        WorkerRow(worker_id="11111111-a", pid=7, driving=2, longest=driven, **about),
        WorkerRow(worker_id="22222222-b", pid=8, is_stopping=True, **about),
        WorkerRow(worker_id="33333333-c", pid=9, is_slowed=True, **about),
    ]
    for row in rows:
        asyncio.run(store.report(row, timedelta(minutes=1)))
    shown = said(workers, "--store", url).splitlines()
    assert [line.split()[0] for line in shown] == ["worker", "11111111", "22222222", "33333333"]
    assert "orders, refunds" in shown[1] and "2 of 8" in shown[1] and "A0 for 1m" in shown[1]
    assert "and 1 more" in shown[1] and "stopping" in shown[2] and "slowed by the store" in shown[3]
    found = json.loads(said(workers, "--store", url, "--json"))["workers"]
    assert [worker["pid"] for worker in found] == [7, 8, 9]
    assert [run["run_id"] for run in found[0]["longest"]] == ["A0", "A1"]
    asyncio.run(store.leave("11111111-a"))
    assert len(json.loads(said(workers, "--store", url, "--json"))["workers"]) == 2


def test_without_a_store_there_are_no_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(workers) == "no workers\n"
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_accepted_with_its_place_and_shown_when_it_needs_repair(url: str) -> None:
    words = ["orders.py", "-i", "quantity=3", "--start", "--store", url, "--run-id"]
    said(run, *words, "A17", "--priority", "5", "--group", "acme")
    said(run, *words, "A18")
    assert "+5 acme" in said(runs, "--store", url)
    assert said(runs, "--store", url, "--needs-repair") == "no runs\n"
    store = open_store(url, SystemClock()).store
    assert asyncio.run(store.set_aside("A17", epoch=0, reason="it is damaged"))
    shown = said(runs, "--store", url, "--needs-repair")
    assert "running (needs repair)" in shown and "A18" not in shown
    assert "1 run needs repair: everstep runs --needs-repair" in said(workers, "--store", url)
    assert json.loads(said(workers, "--store", url, "--json"))["needs_repair"] == ["A17"]


def test_a_page_of_runs_names_what_no_worker_takes_behind_it(url: str) -> None:
    Path("rare.py").write_text(ORDERS.replace('"orders"', '"rare"'))
    said(run, "rare.py", "-i", "quantity=1", "--start", "--run-id", "R1", "--store", url)
    for n in range(3):
        said(run, "orders.py", "-i", "quantity=1", "--start", "--run-id", f"A{n}", "--store", url)
    row = WorkerRow(
        worker_id="w",
        host="elsewhere",
        pid=1,
        flows=("orders",),
        concurrency=1,
        started_at=datetime.now(UTC),
    )
    asyncio.run(open_store(url, SystemClock()).store.report(row, timedelta(minutes=5)))
    for words, is_named in (
        ((), True),
        (("--limit", "2"), True),
        (("--limit", "2", "--flow", "orders"), False),
    ):
        done = CliRunner().invoke(runs, [*words, "--store", url], catch_exceptions=False)
        assert ("no live worker takes R1: no live worker has flow 'rare'." in done.stderr) is is_named, words
    sys.modules.pop("rare", None)
