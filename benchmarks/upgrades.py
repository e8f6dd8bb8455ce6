"""What an upgrade of the schema keeps others from doing, on a store with many runs.

    python benchmarks/upgrades.py STORE [--runs 1000000] [--from 3]

STORE is a database of PostgreSQL for measuring, or the path of a new SQLite file. It gets as many runs as
said, half of them with a wait, as the release of schema `--from` would have left them. While the schema is
brought up to date, a client of that release puts steps, opens waits, renews a lease and reads a run without a
pause; printed is how long each part of the upgrade took, and the longest that this client waited meanwhile.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import perf_counter

import apsw
import psycopg

from everstep.stores.postgres.address import PostgresAddress, read_address
from everstep.stores.postgres.connections import connect
from everstep.stores.postgres.schema import finish, migrate, migrations
from everstep.stores.sqlite import database
from everstep.stores.sqlite.side_tables import SideTables

PAGE = 50_000
STATUSES = "(ARRAY['completed','completed','completed','completed','failed','halted','running'])[1 + n % 7]"
RUNS = f"""
INSERT INTO runs (run_id, flow_id, flow_version, flow_hash, status, created_at, epoch)
SELECT 'run-' || n, 'flow-' || n % 50, '1', repeat('0', 64), {STATUSES}, 1700000000000000 + n, 1
FROM generate_series($1::bigint, $2::bigint) AS n
"""
RECORDS = """
INSERT INTO checkpoints (run_key, sequence, keyframe, checkpoint_id, body)
SELECT run_key, 1, false, run_id || '-1', convert_to(repeat('x', 200), 'UTF8') FROM runs
WHERE run_id IN (SELECT 'run-' || n FROM generate_series($1::bigint, $2::bigint) AS n)
"""
WAITS = """
INSERT INTO waits (wait_id, run_key, flow_id, path, visit, kind, opened_at, details, scheduler, notifies,
                   generation, single_use, status, wake_at)
SELECT 'wait of ' || run_id, run_key, flow_id, 'ask', 1, 'approval', created_at, '{}', '', false, 1, true,
       CASE WHEN status = 'halted' THEN 'open' ELSE 'closed' END, NULL
FROM runs WHERE run_key % 2 = 0
  AND run_id IN (SELECT 'run-' || n FROM generate_series($1::bigint, $2::bigint) AS n)
"""


class Client:
    """Writes and reads without a pause on a thread of its own, and keeps how long its calls took."""

    def __init__(self, call: Callable[[int], None]) -> None:
        self._call = call
        self._is_over = threading.Event()
        self.longest, self.calls = 0.0, 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._is_over.is_set():
                began = perf_counter()
                self._call(self.calls)
                self.longest = max(self.longest, perf_counter() - began)
                self.calls += 1
        except Exception as error:
            self.failure = error

    def end(self) -> str:
        self._is_over.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        return f"{self.calls} calls of a client meanwhile, the longest {1e3 * self.longest:.0f} ms"


def on_postgres(url: str, runs: int, known: int) -> None:
    at = read_address(url)
    with connect(at) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {at.quoted_schema} CASCADE")
        migrate(db, at, migrations()[:known])
        db.execute(f"SET search_path = {at.quoted_schema}")
        for first in range(1, runs + 1, PAGE):
            for query in (RUNS, RECORDS, WAITS):
                db.execute(query, (first, min(first + PAGE - 1, runs)))
        db.execute("ANALYZE runs; ANALYZE waits; ANALYZE checkpoints")
    print(f"{runs} runs at schema {known}")
    for name, part in (("pre", migrate), ("post", finish)):
        client = Client(_postgres_client(at, name))
        with connect(at) as db:
            began = perf_counter()
            part(db, at, migrations())
            took = perf_counter() - began
        print(f"{name}: {took:.2f} s; {client.end()}")


def _postgres_client(at: PostgresAddress, name: str) -> Callable[[int], None]:
    db = psycopg.connect(at.url, autocommit=True, options=f"-c search_path={at.schema}")
    run = f"client-{name}"
    db.execute(
        "INSERT INTO runs (run_id, flow_id, flow_version, flow_hash, status, created_at, epoch) "
        f"VALUES ('{run}', 'flow', '1', '0', 'running', 1, 1)"
    )
    db.execute(
        "INSERT INTO checkpoints SELECT run_key, 1, false, '1', '' FROM runs WHERE run_id = %s", (run,)
    )

    def call(n: int) -> None:
        told = (run, n + 2, str(n + 2), str(n + 1))
        done = db.execute("SELECT put_step_1(%s, %s, %s, %s, 1, false, 'step', false)", told).fetchone()
        assert done == ("new",), done
        db.execute(
            "INSERT INTO waits (wait_id, run_key, flow_id, path, visit, kind, opened_at, details, scheduler, "
            "notifies, generation, single_use, status) SELECT %s, run_key, flow_id, 'ask', 1, 'approval', 1, "
            "'{}', '', false, 1, true, 'open' FROM runs WHERE run_id = %s",
            (f"{run}-{n}", run),
        )
        db.execute("UPDATE runs SET expires_at = %s WHERE run_id = %s", (n, run))
        db.execute("SELECT status FROM runs WHERE run_id = %s", (f"run-{n + 1}",)).fetchone()

    return call


def on_sqlite(path: Path, runs: int) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.execute(f"PRAGMA page_size = {database.PAGE_SIZE}; PRAGMA journal_mode = WAL")
        database.migrate(db, path)
        numbers = f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {runs}) "
        status = (
            "CASE n % 7 WHEN 0 THEN 'completed' WHEN 4 THEN 'failed' WHEN 5 THEN 'halted' "
            "WHEN 6 THEN 'running' ELSE 'completed' END"
        )
        db.execute(
            f"BEGIN; {numbers} INSERT INTO runs (run_key, run_id, flow_id, flow_version, flow_hash, status, "
            "created_at, epoch) SELECT n, 'run-' || n, 'flow-' || n % 50, '1', "
            f"'{'0' * 64}', {status}, 1700000000000000 + n, 1 FROM s;"
            f"{numbers} INSERT INTO checkpoints SELECT (n << 32) + 1, 'run-' || n || '-1', 0, zeroblob(200) "
            "FROM s; INSERT INTO waits (wait_id, run_key, flow_id, path, visit, kind, opened_at, details, "
            "scheduler, notifies, generation, single_use, status) SELECT 'wait of ' || run_id, run_key, "
            "flow_id, 'ask', 1, 'approval', created_at, '{}', '', 0, 1, 1, "
            "iif(status = 'halted', 'open', 'closed') FROM runs WHERE run_key % 2 = 0; COMMIT; ANALYZE"
        )
    print(f"{runs} runs in {path}, {path.stat().st_size >> 20} MiB")
    client = Client(_sqlite_client(path))
    with closing(database.open_database(path, synchronous="FULL", create=False)) as db:
        began = perf_counter()
        database.transact(db, SideTables(db, path).need)
        took = perf_counter() - began
    print(f"side tables: {took:.2f} s; {client.end()}")


def _sqlite_client(path: Path) -> Callable[[int], None]:
    def call(n: int) -> None:
        with closing(apsw.Connection(str(path))) as db:
            db.set_busy_timeout(10_000)
            db.execute("PRAGMA synchronous = FULL")
            db.execute(
                "INSERT INTO waits (wait_id, run_key, flow_id, path, visit, kind, opened_at, details, "
                "scheduler, notifies, generation, single_use, status) VALUES (?, 1, 'flow', 'ask', 1, "
                "'approval', 1, '{}', '', 0, 1, 1, 'open')",
                (f"client-{n}",),
            )
            db.execute("SELECT status FROM runs WHERE run_id = ?", (f"run-{n + 1}",)).fetchall()

    return call


def main() -> None:
    said = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    said.add_argument("store")
    said.add_argument("--runs", type=int, default=1_000_000)
    said.add_argument("--from", dest="known", type=int, default=3)
    told = said.parse_args()
    if told.store.startswith("postgres"):
        on_postgres(told.store, told.runs, told.known)
    else:
        on_sqlite(Path(told.store), told.runs)


if __name__ == "__main__":
    main()
