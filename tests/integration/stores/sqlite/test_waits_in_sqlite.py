"""Waits in the SQLite file: what looking for work costs, and what becomes of a damaged row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from everstep.errors import StateCorrupted
from everstep.model.enums import Status
from everstep.ports.store import RunFilter
from everstep.registry import open_store
from everstep.stores.sqlite.database import migrate, open_database, read_queries
from everstep.stores.sqlite.listing import listing_of
from everstep.testing import ManualClock, StoreKit
from everstep.testing.conformance.kit import Client

POLLING = [
    "stopping_runs",
    "settled_runs",
    "due_runs",
    "expired_runs",
    "ownerless_runs",
    "next_due",
    "untold_waits",
    "has_due",
    "has_waits",
    "ownerless_priority",
    "ownerless_group",
    "ownerless_lane",
    "waking_priority",
    "waking_group",
    "settled_lane",
    "due_lane",
    "leased_runs",
    "live_leases",
    "set_aside",
]
LISTINGS = {
    "sqlite_autoindex_runs_1": RunFilter(run_id="r"),
    "runs_by_parent": RunFilter(parent_run_id="r"),
    "runs_by_flow": RunFilter(flow_id="f"),
    "runs_by_status": RunFilter(status=Status.FAILED),
    "runs_by_lease": RunFilter(status=Status.RUNNING),
    "runs_damaged": RunFilter(needs_repair=True),
    "runs_pinned": RunFilter(pinned=True),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def client(path: Path) -> Iterator[Client]:
    clock = ManualClock()
    opened = open_store(f"sqlite:///{path}", clock)
    client = Client(StoreKit(lambda: opened, clock, opened.store.capabilities))
    yield client
    client.close()


def plan_of(path: Path, sql: str) -> list[str]:
    """Return the steps by which SQLite would answer a query, but for those on lists it was given."""
    bindings = (None,) * max([int(number) for number in re.findall(r"\?(\d+)", sql)], default=0)
    with closing(open_database(path, synchronous="FULL", create=True)) as db:
        steps = db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall()
    return [str(step[3]) for step in steps if "json_each" not in str(step[3])]


@pytest.mark.parametrize("query", POLLING)
def test_looking_for_work_reads_no_table_from_end_to_end(path: Path, query: str) -> None:
    steps = plan_of(path, read_queries()[query])
    tables = [step for step in steps if re.match("SCAN|SEARCH", step)]
    assert tables
    for step in tables:
        assert re.search("USING (COVERING )?INDEX|USING INTEGER PRIMARY KEY", step), step
        assert step.startswith("SEARCH") or re.search("runs_signalled|waits_untold", step), step
    assert not [step for step in steps if "TEMP B-TREE" in step]


@pytest.mark.parametrize("index", LISTINGS)
def test_a_narrowed_listing_reads_what_it_is_narrowed_to(path: Path, index: str) -> None:
    steps = plan_of(path, listing_of(read_queries(), LISTINGS[index]))
    assert index in steps[0]
    assert index == "runs_by_lease" or not [step for step in steps if "TEMP B-TREE" in step]


def test_open_waits_are_counted_without_those_that_are_closed(path: Path) -> None:
    assert "SEARCH waits USING INDEX waits_unclosed" in plan_of(path, read_queries()["open_waits_by_kind"])[0]


def test_a_listing_of_everything_is_known_to_read_the_whole_table(path: Path) -> None:
    assert plan_of(path, read_queries()["waits"])[0] == "SCAN waits"


def test_a_worker_with_nothing_to_do_waits_for_no_writer(path: Path, client: Client) -> None:
    client.halted("run", "w", due_in=10)
    client.admit("driven")
    with closing(apsw.Connection(str(path))) as writer:
        writer.execute("BEGIN IMMEDIATE")
        started = client.store.changes()
        assert client.due() == []
        assert client.next_due() is not None
        assert client.fire("run") == []
        assert client.store.changes() == started


def test_changes_are_told_while_a_client_is_writing(client: Client) -> None:
    before = client.store.changes()
    client.admit("run")
    during: list[int] = []

    def new_owner() -> str:
        during.append(client.store.changes())
        return "me"

    client.clock.advance(100)
    assert len(client.claim_due(new_owner=new_owner)) == 1
    assert during and during[0] != before
    assert client.store.changes() != during[0]


def test_a_claim_that_cannot_be_finished_claims_nothing(client: Client) -> None:
    for number in range(2):
        client.halted(f"run-{number}", f"w{number}", due_in=0)
    before = [client.row(f"run-{number}") for number in range(2)], [client.wait(f"w{n}") for n in range(2)]
    owners = iter(["me"])
    with pytest.raises(RuntimeError):
        client.claim_due(new_owner=lambda: next(owners))
    assert ([client.row(f"run-{n}") for n in range(2)], [client.wait(f"w{n}") for n in range(2)]) == before
    assert client.due() == ["run-0", "run-1"]


@pytest.mark.parametrize(
    "damage",
    ["status = 'odd'", "settled_by = 'me'", "opened_at = 'x'", "details = 1.5", "due_at = 9e18"],
)
def test_an_altered_wait_is_found_out(path: Path, client: Client, damage: str) -> None:
    client.halted("run", "w")
    with closing(apsw.Connection(str(path))) as db:
        db.execute(f"UPDATE waits SET {damage}")
    with pytest.raises(StateCorrupted, match="'w' was altered"):
        client.wait("w")


def test_runs_of_an_older_schema_are_claimed(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as db:
        migrate(db, path, upto=2)
        db.execute(
            "INSERT INTO runs (run_id, flow_id, flow_version, flow_hash, status, created_at, epoch)"
            " VALUES ('run', 'flow', '1', ?, 'running', 0, 1), ('over', 'flow', '1', ?, 'failed', 0, 1)",
            ("0" * 64, "0" * 64),
        )
    clock = ManualClock()
    opened = open_store(f"sqlite:///{path}", clock)
    client = Client(StoreKit(lambda: opened, clock, opened.store.capabilities))
    [(row, lease)] = client.claim_due()
    assert (row.run_id, row.status, lease.epoch) == ("run", Status.RUNNING, 2)
    client.close()
