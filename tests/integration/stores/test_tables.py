"""The columns of the databases are those that follow from the structs of rows."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

from everstep import Host
from everstep.stores.postgres.address import read_address
from everstep.stores.sqlite.database import open_database
from everstep.stores.tables import RUN_COLUMNS, TOMBSTONES, WAITS

COLUMNS = {"runs": RUN_COLUMNS, "waits": WAITS.names, "tombstones": TOMBSTONES.names}
SQLITES = {
    "runs": {"run_key"},
    "waits": {"wait_key", "run_key", "wake_at", "priority", "run_group"},
    "tombstones": {"number", "run_key"},
}
"""What SQLite keeps besides what a row says, to find it."""
POSTGRES = {
    "runs": {"run_key", "signal_note"},
    "waits": {"wait_key", "run_key", "wake_at", "lane_hash", "lane_priority", "lane_group"},
    "tombstones": {"number", "run_key"},
}
"""The same of PostgreSQL."""


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
