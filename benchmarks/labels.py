"""How long it takes to find and count runs by tags, attributes and times, and what these take in a store.

    python benchmarks/labels.py STORE [--runs 10000 1000000] [--again]

STORE is an empty database of PostgreSQL for measuring, or the path of a new SQLite file. It gets as many
runs as said, each with three attributes and some with tags, by statements of its own; then `host.runs` and
`host.fleet.count` are asked, each several times, and the median is printed. With `--again` a store is asked
that was filled before.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, process_time

import apsw

from everstep import Flow, Host, node
from everstep.stores.postgres.address import read_address
from everstep.stores.postgres.connections import connect
from everstep.stores.sqlite.side_tables import SideTables

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)
SECOND = 1_000_000
STATUSES = ["completed", "completed", "completed", "completed", "failed", "halted", "running"]
QUERIES = {
    "customer = '7' and started > -30d": "100 runs of a million, all over them",
    "region = eu and started > -1d": "a fourth of all, the newest",
    "region = eu and started < -9d": "a fourth of all, the oldest",
    "total > 99.8 and started > -30d": "a thousandth of all",
    "total >= 10 and total <= 90": "most of all",
    "tag = vip and started > -5d": "a tenth of all",
    "tag.team = blue and status = failed": "a tenth of all, and another condition",
    "flow = flow-7 and started > -1d": "no label",
    "started < -11d": "the oldest of all",
    "status = failed and customer = '7' or tag = vip": "no single index",
}


@node(output="out")
def nothing(n: int) -> int:
    return n


def fill(execute: Callable[[str], object], first: int, last: int, series: str, status: str) -> None:
    """Insert runs, a second apart; the newest is of now."""
    base = int(NOW.timestamp()) * SECOND
    execute(f"""INSERT INTO runs (run_id, flow_id, flow_version, flow_hash, status, created_at, epoch)
        SELECT 'run-' || n, 'flow-' || (n % 50), '1', 'hash', {status},
               {base} + (n - 1000000) * {SECOND}, 1
        FROM {series.format(first=first, last=last)}""")


def label(execute: Callable[[str], object], first: int) -> None:
    """Give runs labels from a number on, run after run, as admissions do."""
    runs = f"runs WHERE run_key >= {first}"
    execute(f"""INSERT INTO attributes (run_key, name, kind, text_value, number_value)
        SELECT run_key, 'customer', 's', '' || (run_key % 10000), CAST(NULL AS double precision) FROM {runs}
        UNION ALL
        SELECT run_key, 'region', 's', substr('euusapaf', CAST(1 + 2 * (run_key % 4) AS integer), 2), NULL
        FROM {runs}
        UNION ALL
        SELECT run_key, 'total', 'n', NULL, run_key % 1000 / 10.0 FROM {runs}
        ORDER BY 1""")
    execute(f"""INSERT INTO tags (run_key, name, value)
        SELECT run_key, 'vip', '' FROM {runs} AND run_key % 10 = 0
        UNION ALL
        SELECT run_key, 'team', CASE WHEN run_key % 20 < 10 THEN 'blue' ELSE 'red' END
        FROM {runs} AND run_key % 5 = 0
        ORDER BY 1""")


def ask(url: str) -> None:
    with Host(url) as host:
        for where, what in QUERIES.items():
            shifted = where
            for days in (1, 5, 9, 11, 30):
                moment = NOW - timedelta(days=days)
                shifted = shifted.replace(f"-{days}d", f"'{moment.isoformat()}'")
            calls, page = 1, host.runs(where=shifted)
            while not page and page.next is not None:  # until it is known where the others lie
                calls, page = calls + 1, host.runs(where=shifted, before=page.next)
            times, cost, many = [], process_time(), 0
            for _ in range(9):
                began = perf_counter()
                page = host.runs(where=shifted)
                times.append(perf_counter() - began)
                many = len(page)
            busy = 1e3 * (process_time() - cost) / len(times)
            more = "" if page.next is None else ", more to come"
            more += f", at first by {calls} calls" if calls > 1 else ""
            median = 1e3 * statistics.median(times)
            print(f"  {median:7.1f} ms ({busy:.1f} of processor)  {where}: {many}{more} ({what})")
        for by in ("status", "flow", "tag.team", "attribute.region"):
            times = []
            for _ in range(5):
                began = perf_counter()
                counted = host.fleet.count(by)
                times.append(perf_counter() - began)
            print(f"  {1e3 * statistics.median(times):7.1f} ms  count by {by}: {counted.total:,}")


def on_sqlite(path: Path, sizes: list[int]) -> None:
    url = f"sqlite:///{path}"
    with Host(url) as host:
        host.run(Flow("first", [nothing]), {"n": 1})
    done = 0
    for size in sizes:
        with closing(apsw.Connection(str(path))) as db:
            pages = lambda: db.execute("PRAGMA page_count").fetchall()[0][0] * 4096  # noqa: E731
            pick = "CASE n % 7 " + " ".join(f"WHEN {k} THEN '{s}'" for k, s in enumerate(STATUSES)) + " END"
            steps = "SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last}"
            series = f"(WITH RECURSIVE s (n) AS ({steps}) SELECT n FROM s)"
            with db:
                SideTables(db, path).need()
                first = db.execute("SELECT max(run_key) + 1 FROM runs").fetchall()[0][0]
                before = pages()
                fill(db.execute, done + 1, size, series, pick)
                middle = pages()
                label(db.execute, first)
                after = pages()
        shares(size - done, middle - before, after - middle)
        done = size
        print(f"SQLite, {size:,} runs")
        ask(url)


def shares(runs: int, rows: int, labels: int) -> None:
    each = labels / (runs * 3.3)
    print(f"{rows / runs:.0f} B a row of runs, {each:.0f} B a label, both with indexes")


def on_postgres(url: str, sizes: list[int]) -> None:
    with Host(url) as host:
        host.run(Flow("first", [nothing]), {"n": 1})
    at = read_address(url)
    done = 0
    for size in sizes:
        with closing(connect(at)) as db:
            db.execute(f"SET search_path = {at.quoted_schema}")

            def space(*tables: str) -> int:
                found = [db.execute(f"SELECT pg_total_relation_size('{t}')").fetchone() for t in tables]
                return sum(one[0] for one in found if one is not None)

            before, labels = space("runs"), space("tags", "attributes")
            first = db.execute("SELECT max(run_key) + 1 FROM runs").fetchone()
            assert first is not None
            states = ",".join(f"'{s}'" for s in STATUSES)
            fill(
                db.execute,
                done + 1,
                size,
                "generate_series({first}::bigint, {last}::bigint) AS n",
                f"(ARRAY[{states}])[1 + n % 7]",
            )
            label(db.execute, first[0])
            shares(size - done, space("runs") - before, space("tags", "attributes") - labels)
            db.execute("VACUUM ANALYZE")  # as the server does by itself, some minutes later
        done = size
        print(f"PostgreSQL, {size:,} runs")
        ask(url)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store")
    parser.add_argument("--runs", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--again", action="store_true", help="fill nothing")
    given = parser.parse_args()
    if given.again:
        ask(given.store if "://" in given.store else f"sqlite:///{given.store}")
    elif given.store.startswith("postgres"):
        on_postgres(given.store, given.runs)
    else:
        on_sqlite(Path(given.store), given.runs)


if __name__ == "__main__":
    main()
