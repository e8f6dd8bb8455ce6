"""The columns of the databases are those that follow from the structs of rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

from everstep import Host
from everstep.errors import IncompatibleVersion
from everstep.stores.postgres.address import read_address
from everstep.stores.sqlite.database import open_database, transact
from everstep.stores.sqlite.side_tables import SideTables
from everstep.stores.tables import RUN_COLUMNS, TOMBSTONES, WAITS

COLUMNS = {"runs": RUN_COLUMNS, "waits": WAITS.names, "tombstones": TOMBSTONES.names}
SQLITES = {
    "runs": {"run_key"},
    "waits": {"wait_key", "run_key", "wake_at", "priority", "run_group"},
    "tombstones": {"number", "run_key"},
}
"""What SQLite keeps besides what a row says, to find it."""
FEW = {
    "paused_at",
    "undoing",
    "notifiers",
}
"""Columns of runs for what few of them have: no row is read with these unless it is asked for them."""
POSTGRES = {
    "runs": {"run_key", "signal_note", *FEW},
    "waits": {"wait_key", "run_key", "wake_at", "lane_hash", "lane_priority", "lane_group"},
    "tombstones": {"number", "run_key"},
}
"""The same of PostgreSQL."""
OTHER_TABLES = (
    *("runs", "checkpoints", "blueprints", "waits", "artifacts", "workers", "tombstones", "removals"),
    *("tallies", "everstep_schema", "erased_keys", "live", "step_logs"),
)
ALL_COLUMNS = (
    "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table'"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def columns_of(path: Path, table: str) -> set[str]:
    with closing(open_database(path, synchronous="OFF", create=True)) as db:
        return {str(name) for _, name, *_ in db.execute(f"PRAGMA table_info({table})").fetchall()}


@pytest.mark.parametrize("table", COLUMNS)
def test_a_table_of_sqlite_has_the_columns_of_its_struct(path: Path, table: str) -> None:
    assert columns_of(path, table) == {*COLUMNS[table]} | SQLITES[table]


def test_a_table_of_postgres_has_the_columns_of_its_struct(postgres_url: str) -> None:
    Host(postgres_url).close()
    at = read_address(postgres_url)
    query = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
    with closing(psycopg.connect(at.url)) as db:
        for table, names in COLUMNS.items():
            found = {name for (name,) in db.execute(query, (at.schema, table)).fetchall()}
            assert found == {*names} | POSTGRES[table]


def test_a_file_gets_side_tables_when_one_is_needed_and_they_are_those_of_postgres(
    path: Path, postgres_url: str
) -> None:
    Host(postgres_url).close()
    at = read_address(postgres_url)
    query = (
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name <> ALL (%s)"
    )
    with closing(psycopg.connect(at.url)) as db:
        there = {(table, column) for table, column in db.execute(query, (at.schema, [*OTHER_TABLES]))}
    with closing(open_database(path, synchronous="OFF", create=True)) as db:
        before = set(db.execute(ALL_COLUMNS))
        side = SideTables(db, path)
        assert not side.are_there()
        transact(db, side.need)
        assert side.are_there()
        transact(db, side.need)
        made = set(db.execute(ALL_COLUMNS)) - before
        assert db.execute("PRAGMA user_version").fetchall() == [(6,)]
    own = {("side_schema", "number"), ("sqlite_sequence", "name"), ("sqlite_sequence", "seq")}
    assert made == there | {("runs", name) for name in FEW} | own


def test_side_tables_of_a_newer_release_are_refused_by_their_number(path: Path) -> None:
    with closing(open_database(path, synchronous="OFF", create=True)) as db:
        transact(db, SideTables(db, path).need)
        db.execute("UPDATE side_schema SET number = 2")
        with pytest.raises(
            IncompatibleVersion, match="side tables of version 2; this everstep knows up to 1"
        ):
            SideTables(db, path).need()


def test_rows_of_a_run_go_with_it_whichever_client_deletes_it(path: Path, postgres_url: str) -> None:
    """As a release does that does not know these tables."""
    with closing(open_database(path, synchronous="OFF", create=True)) as lite:
        transact(lite, SideTables(lite, path).need)
        tables = [
            str(table)
            for (table,) in lite.execute(
                "SELECT t.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
                "WHERE t.type = 'table' AND c.name = 'run_key'"
            )
            if table not in OTHER_TABLES
        ]
        lite.execute(RUN)
        fill_side_tables(lambda statement: lite.execute(statement), tables)
        lite.execute("DELETE FROM runs")
        left = {table: lite.execute(f"SELECT count(*) FROM {table}").fetchall() for table in tables}
    assert len(tables) == 6 and set(map(str, left.values())) == {"[(0,)]"}
    Host(postgres_url).close()
    at = read_address(postgres_url)
    with closing(psycopg.connect(at.url, autocommit=True, options=f"-c search_path={at.schema}")) as db:
        db.execute(RUN.replace("VALUES", "OVERRIDING SYSTEM VALUE VALUES").encode())
        fill_side_tables(lambda statement: db.execute(statement.encode()), tables)
        db.execute("DELETE FROM runs")
        for table in tables:
            assert db.execute(f"SELECT count(*) FROM {table}".encode()).fetchall() == [(0,)], table


RUN = (
    "INSERT INTO runs (run_key, run_id, flow_id, flow_version, flow_hash, status, created_at, epoch) "
    "VALUES (7, 'r', 'f', '1', '0', 'completed', 1, 1)"
)


def fill_side_tables(execute: Callable[[str], object], tables: list[str]) -> None:
    values = {
        "inbox": "(run_key, number, signal_id, name, sent_at) VALUES (7, 1, 's', 'n', 1)",
        "inbox_sizes": "(run_key, untaken) VALUES (7, 1) ON CONFLICT (run_key) DO UPDATE SET untaken = 1",
        "taken_events": "(run_key, path, name, event_id) VALUES (7, 'p', 'n', 'e')",
        "tags": "(run_key, name, value) VALUES (7, 'n', 'v')",
        "attributes": "(run_key, name, kind, text_value) VALUES (7, 'n', 'text', 'v')",
        "notices": "(run_key, notifier, occasion, at, due_at) VALUES (7, 'n', 'failed', 1, 1)",
    }
    for table in tables:
        execute(f"INSERT INTO {table} {values[table]}")


def test_a_file_of_an_earlier_release_gets_a_column_that_it_has_not(path: Path) -> None:
    columns_of(path, "runs")
    with closing(apsw.Connection(str(path))) as db:
        db.execute("ALTER TABLE tombstones DROP COLUMN summary")
        db.execute("ALTER TABLE waits DROP COLUMN answer")
        [(number,)] = db.execute("PRAGMA user_version").fetchall()
    assert {"summary"} <= columns_of(path, "tombstones")
    assert {"answer"} <= columns_of(path, "waits")
    with closing(apsw.Connection(str(path))) as db:
        assert db.execute("PRAGMA user_version").fetchall() == [(number,)]
