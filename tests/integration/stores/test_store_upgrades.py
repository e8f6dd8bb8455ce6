"""`migrate-store`: what it says of each store, that a dry run writes nothing, and that it may be repeated."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from everstep import Host
from everstep.cli.commands.store.migrate_store import migrate_store
from everstep.errors import StoreMissing
from everstep.migrate import upgrade_store
from everstep.stores.postgres import schema
from everstep.stores.postgres.address import PostgresAddress, read_address
from everstep.stores.postgres.connections import connect
from everstep.stores.sqlite import database


@pytest.fixture
def old(new_postgres_url: str) -> PostgresAddress:
    """The tables as 0.1.0 left them, with a role that may use them."""
    at = read_address(new_postgres_url)
    with connect(at) as db:
        schema.migrate(db, at, schema.migrations()[:3])
        db.execute(f"CREATE ROLE {clerk(at)}")
        db.execute(f"GRANT USAGE ON SCHEMA {at.schema} TO {clerk(at)}")
        rights = "SELECT, INSERT, UPDATE, DELETE"
        db.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA {at.schema} TO {clerk(at)}")
    return at


def clerk(at: PostgresAddress) -> str:
    return f"clerk_{at.schema}"


def version_of(at: PostgresAddress) -> int:
    with psycopg.connect(at.url) as db:
        row = db.execute(f"SELECT max(number) FROM {at.schema}.everstep_schema").fetchone()
    assert row is not None
    return int(row[0])


def test_of_large_tables_the_later_part_is_done_too(
    old: PostgresAddress, new_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "SMALL", -1)
    planned = upgrade_store(new_postgres_url, dry_run=True)
    assert version_of(old) == 3 == planned.version
    names = [step.name for step in planned.steps]
    assert names == ["4", "5", "6", "7", "8", "9", "10", "6, later part", "9, later part"]
    assert all(step.what and step.locks for step in planned.steps) and planned.roles == (clerk(old),)
    with Host(new_postgres_url):  # a client does the first part by itself
        assert version_of(old) == planned.newest
    left = upgrade_store(new_postgres_url, dry_run=True)
    assert [step.name for step in left.steps] == ["6, later part", "9, later part"]
    told: list[str] = []
    assert upgrade_store(new_postgres_url, on_progress=told.append).steps == left.steps
    assert any("CREATE INDEX CONCURRENTLY" in line for line in told)
    again = upgrade_store(new_postgres_url)
    assert again.is_current and again.version == again.newest


def test_roles_that_an_upgrade_by_hand_left_out_get_their_rights(
    old: PostgresAddress, new_postgres_url: str
) -> None:
    upgrade_store(new_postgres_url)
    with psycopg.connect(old.url) as db:
        db.execute(f"REVOKE ALL ON {old.schema}.inbox FROM {clerk(old)}")
    (step,) = upgrade_store(new_postgres_url, dry_run=True).steps
    assert step.name == "rights" and clerk(old) in step.what
    upgrade_store(new_postgres_url)
    assert upgrade_store(new_postgres_url).is_current
    with psycopg.connect(old.url) as db:
        db.execute(f"SET ROLE {clerk(old)}")
        query = "SELECT has_table_privilege(%s, 'INSERT')"
        assert db.execute(query, (f"{old.schema}.inbox",)).fetchone() == (True,)


def test_a_store_that_is_not_there_is_not_made(new_postgres_url: str, tmp_path: Path) -> None:
    for url in (new_postgres_url, f"sqlite:///{tmp_path}/runs.db"):
        with pytest.raises(StoreMissing):
            upgrade_store(url)
    assert list(tmp_path.iterdir()) == []


def test_a_file_gets_its_side_tables_when_told_to(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url):
        pass
    cli = CliRunner()
    said = cli.invoke(migrate_store, ["--store", url, "--dry-run"]).output
    assert "side tables" in said and "others wait to write" in said and "this is a dry run" in said
    told = json.loads(cli.invoke(migrate_store, ["--store", url, "--json"]).output)
    assert [step["name"] for step in told["steps"]] == ["side tables"]
    assert told["version"] == told["newest"] == database.migrations()[-1][0]
    assert "it is up to date" in cli.invoke(migrate_store, ["--store", url]).output


@pytest.mark.parametrize("url", ["redis://localhost/0", "s3://bucket/runs", "file:runs", "memory:"])
def test_where_there_is_nothing_to_do_it_says_so(url: str) -> None:
    found = upgrade_store(url)
    assert found.is_current and "nothing to bring up to date" in found.note
