"""A hundred thousand runs in one SQLite file: what listing and claiming cost, and whose turn it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, cast

import apsw
import pytest

from everstep.model.enums import Status
from everstep.model.leases import Quota
from everstep.ports.labels import LabelRange, Search, SearchingStore
from everstep.ports.store import RunFilter, Traits
from everstep.registry import open_store
from everstep.stores.sqlite import claims
from everstep.stores.sqlite.side_tables import SideTables
from everstep.testing import ManualClock, StoreKit
from everstep.testing.conformance.kit import Chain, Client

FEW, MANY = 100, 100_000
AT = datetime(1970, 1, 1, tzinfo=UTC)
RUNS = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
INSERT INTO runs (run_key, run_id, flow_id, flow_version, flow_hash, status, created_at, epoch, run_group)
SELECT n, 'run-' || n, iif(n % 500 = 7, 'rare', 'flow'), '1', ?2,
       iif(?3, 'running', iif(n % 400 = 3, 'failed', 'completed')), n, 0, iif(?3, 'g' || (n % 1000), '')
FROM numbers
"""
RECORDS = """
INSERT INTO checkpoints (position, checkpoint_id, keyframe, body)
SELECT (run_key << 32) + 1, 'c' || run_key, 0, x'00' FROM runs
"""


def filled(folder: Path, count: int, *, waiting: bool) -> Client:
    """Return a client of a file with so many runs, which have ended or wait for a worker."""
    clock = ManualClock()
    url = f"sqlite:///{folder}/{count}.db?synchronous=off"
    client = Client(StoreKit(lambda: open_store(url, clock), clock, None))  # type: ignore[arg-type]
    with closing(apsw.Connection(f"{folder}/{count}.db")) as db, db:
        db.execute(RUNS, (count, "0" * 64, waiting))
        db.execute(RECORDS)
    return client


def cost(client: Client, work: Callable[[], object]) -> int:
    """Return how much SQLite had to do for it, in tens of its own instructions."""
    db, count = client.store._db, 0  # type: ignore[attr-defined]

    def tick() -> bool:
        nonlocal count
        count += 1
        return False

    db.set_progress_handler(tick, 10)
    work()
    db.set_progress_handler(None)
    return count


def test_the_newest_fifty_of_a_hundred_thousand_cost_at_most_twice_those_of_a_hundred(tmp_path: Path) -> None:
    few, many = filled(tmp_path, FEW, waiting=False), filled(tmp_path, MANY, waiting=False)
    listings: list[dict[str, Any]] = [
        {},
        {"flow_id": "flow"},
        {"status": Status.COMPLETED},
        {"status": Status.COMPLETED, "flow_id": "flow"},
    ]
    for wanted in listings:
        assert len(few.listing(limit=50, **wanted)) == len(many.listing(limit=50, **wanted)) == 50
        of_few = cost(few, lambda: few.listing(limit=50, **wanted))  # noqa: B023
        of_many = cost(many, lambda: many.listing(limit=50, **wanted))  # noqa: B023
        assert of_few < of_many * 2 < 4 * of_few, wanted
    whole = cost(few, lambda: few.listing(limit=50))
    for wanted in ({"flow_id": "rare"}, {"status": Status.FAILED}, {"before": f"run-{MANY // 2}"}):
        assert len(many.listing(limit=50, **wanted)) == 50
        assert cost(many, lambda: many.listing(limit=50, **wanted)) <= 2 * whole, wanted  # noqa: B023
    for client in (few, many):
        client.close()


def test_a_claim_from_a_hundred_thousand_waiting_runs_costs_no_more_than_from_a_thousand(
    tmp_path: Path,
) -> None:
    few, many = filled(tmp_path, 1000, waiting=True), filled(tmp_path, MANY, waiting=True)
    for quotas in (None, {"flow": Quota(running=500, per_group=1)}):
        for _ in range(5):
            # The clock stands still, so each claim meets the leases of those before it.
            of_few = cost(few, lambda: few.due(10, names=["flow", "rare"], quotas=quotas))  # noqa: B023
            of_many = cost(many, lambda: many.due(10, names=["flow", "rare"], quotas=quotas))  # noqa: B023
            assert of_many <= 1.5 * of_few
    for client in (few, many):
        client.close()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [1, 3])
def test_everybody_gets_a_turn_however_many_groups_wait_for_a_later_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, limit: int
) -> None:
    monkeypatch.setattr(claims, "_LOOK", 5)
    monkeypatch.setattr(claims, "_DRY", 7)
    clock, whims = ManualClock(), Random(seed)
    client = Client(StoreKit(lambda: open_store(f"sqlite:///{tmp_path}/r.db", clock), clock, None))  # type: ignore[arg-type]
    due, later = clock.now(), clock.now() + timedelta(days=1)
    commits = []
    for number in range(60):
        chain = Chain(f"later {number}", clock, traits=Traits(group=f"{whims.random()}"))
        wait = chain.wait(f"w later {number}", due_at=later)
        commits.append(chain.admission(status=Status.HALTED, waits=(wait,)))
    rare = [f"{whims.random()}" for _ in range(5)]
    for number, group in enumerate([*(["0.5"] * 80), *rare]):
        chain = Chain(f"due {number}", clock, traits=Traits(group=group))
        wait = chain.wait(f"w due {number}", due_at=due + timedelta(microseconds=number))
        commits.append(chain.admission(status=Status.HALTED, waits=(wait,)))
    client.put(*commits)
    clock.advance(1)
    claimed: list[str] = []
    while batch := client.due(limit):
        claimed += batch
    assert sorted(claimed) == sorted(f"due {number}" for number in range(85))
    last = max(claimed.index(f"due {number}") for number in range(80, 85))
    assert last < 60, "a group waited for nearly all of the crowd"
    client.close()


LABELS = """
INSERT INTO attributes (run_key, name, kind, text_value, number_value)
SELECT run_key, 'customer', 's', '' || (run_key % ?1), NULL FROM runs
UNION ALL SELECT run_key, 'total', 'n', NULL, run_key * 1.0 FROM runs ORDER BY 1
"""
TAGS = """
INSERT INTO tags (run_key, name, value) SELECT run_key, 'team', iif(run_key % ?1 = 1, 'red', 'blue') FROM runs
"""
SEARCHES: dict[str, Search] = {
    "a text": Search(name="customer", ranges=(LabelRange(text="1"),)),
    "a text and a time": Search(name="customer", ranges=(LabelRange(text="1"),), since=AT),
    "a few numbers": Search(name="total", ranges=(LabelRange(low=100.0, high=160.0),)),
    "a tag and a time": Search(tag=True, name="team", ranges=(LabelRange(text="red"),), since=AT),
    "a tag": Search(tag=True, name="team"),
    "a time": Search(since=AT),
}


@pytest.mark.parametrize("what", SEARCHES)
def test_a_search_by_one_label_and_a_time_costs_no_more_in_a_larger_file(tmp_path: Path, what: str) -> None:
    costs = []
    for count in (12_000, 60_000):
        client = filled(tmp_path, count, waiting=False)
        path = tmp_path / f"{count}.db"
        with closing(apsw.Connection(str(path))) as db, db:
            SideTables(db, path).need()
            for labels in (LABELS, TAGS):  # a thousand runs have what is looked for, in either file
                db.execute(labels, (count // 1000,))
        by = SEARCHES[what]

        def search(client: Client = client, by: Search = by) -> int:
            store = cast("SearchingStore", client.store)
            return len(client.call(store.search(RunFilter(limit=20), by)).rows)

        with closing(client):
            assert search() == 20
            costs.append(cost(client, search))
    assert costs[1] < 1.3 * costs[0] + 20, costs
