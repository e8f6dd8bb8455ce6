"""A search reads few rows of a large table, wherever they lie and whatever the server believes of them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from everstep import Flow, Host, node
from everstep.stores.postgres.address import read_address

RUNS = 12_000
OLD = 6_000


@node(output="done")
def work(n: int) -> int:
    return n


@pytest.fixture
def db(postgres_url: str) -> Iterator[psycopg.Connection]:
    """Runs of which the oldest are of another flow than the rest, and have an attribute that no other has."""
    with Host(postgres_url) as host:
        host.run(Flow("new", [work]), {"n": 1})
    at = read_address(postgres_url)
    with psycopg.connect(at.url, autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(at.schema)))
        connection.execute(
            "INSERT INTO runs (run_id, flow_id, flow_version, flow_hash, status, created_at, epoch)"
            " SELECT 'run-' || n, CASE WHEN n <= %s THEN 'old' ELSE 'new' END, '1', 'hash', 'completed', n, 1"
            " FROM generate_series(1, %s) AS n",
            (OLD, RUNS),
        )
        connection.execute(
            "INSERT INTO attributes (run_key, name, kind, number_value)"
            " SELECT run_key, flow_id, 'n', created_at FROM runs WHERE flow_id = 'old'"
        )
        connection.execute(
            "INSERT INTO attributes (run_key, name, kind, number_value)"
            " SELECT run_key, 'size', 'n', created_at FROM runs WHERE flow_id = 'new'"
        )
        connection.execute("VACUUM ANALYZE runs, attributes")
        yield connection


def rows_read(db: psycopg.Connection) -> int:
    """Return how many rows of tables were read, by clients that have gone."""
    query = (
        "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
        " WHERE schemaname = current_schema() AND relname IN ('runs', 'attributes')"
    )
    found = db.execute(query).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize("where", ["flow = old and started < 2000-01-01", "old > 2000 and old < 2050"])
def test_a_search_for_what_lies_together_reads_no_other_rows(
    db: psycopg.Connection, postgres_url: str, where: str
) -> None:
    before = rows_read(db)
    with Host(postgres_url) as host:
        page = host.runs(where=where, limit=10)
        assert len(page) == 10
        assert page[0].flow == "old"
    assert rows_read(db) - before < 500
