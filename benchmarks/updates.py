"""What a run costs a PostgreSQL server besides its steps, and what is left behind: HOT updates, log, bloat.

    python benchmarks/updates.py URL [--runs 6400] [--indexes now,beside,none]

Runs are admitted, claimed, renewed once and ended in groups of 32, by the statements that a fleet sends, in
a schema of its own that is dropped before. `now` has the indexes of the store; `beside` keeps what claims go
by in a table beside the runs, written by triggers; `none` has no index by which a claim or a listing finds a
run, which nothing could do without: it is the least that another design could cost. Processor time is that of
the server's sessions. The database should be one for measuring.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.ports.store import Admission, Commit
from everstep.registry import open_store
from everstep.runtime.system import SystemClock

GROUP, BATCH = 32, 1600
BODY, HASH = b"\x00" * 200, "0" * 64
TTL = timedelta(seconds=30)
BY_LEASE = ("runs_waiting", "runs_ready", "runs_by_lease", "runs_damaged", "runs_by_signal")
READY = "WHERE status = 'running' AND expires_at IS NULL AND needs_repair IS NULL"
BESIDE = f"""
CREATE TABLE beside (run_key bigint PRIMARY KEY, flow_id text, flow_hash text, priority bigint,
                     run_group text, status text, expires_at bigint, signal text, needs_repair text)
WITH (fillfactor = 70);
CREATE INDEX ON beside (flow_id, flow_hash, priority, run_group, run_key) {READY};
CREATE INDEX ON beside (flow_id, flow_hash, run_key) {READY};
CREATE INDEX ON beside (flow_id, flow_hash, expires_at) WHERE expires_at IS NOT NULL;
CREATE FUNCTION beside() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF tg_op = 'INSERT' THEN
        INSERT INTO beside VALUES (new.run_key, new.flow_id, new.flow_hash, new.priority, new.run_group,
                                   new.status, new.expires_at, new.signal, new.needs_repair);
    ELSIF new.status NOT IN ('running', 'halted') THEN
        DELETE FROM beside WHERE run_key = new.run_key;
    ELSE
        UPDATE beside SET status = new.status, expires_at = new.expires_at, signal = new.signal,
                          needs_repair = new.needs_repair WHERE run_key = new.run_key;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER beside_new AFTER INSERT ON runs FOR EACH ROW EXECUTE FUNCTION beside();
CREATE TRIGGER beside_changed AFTER UPDATE OF status, expires_at, signal, needs_repair ON runs
FOR EACH ROW EXECUTE FUNCTION beside();
"""


class Server:
    """Counts what its sessions cost."""

    def __init__(self, url: str, schema: str) -> None:
        self.db = psycopg.connect(url, autocommit=True, options=f"-c search_path={schema}")
        self.schema = schema

    def spent(self) -> tuple[float, int]:
        """Return microseconds of processor time of all other sessions, and bytes of log."""
        query = (
            "SELECT pid FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        stats = [Path(f"/proc/{pid}/schedstat") for (pid,) in self.db.execute(query).fetchall()]
        written = self.db.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert written is not None
        return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e3, int(written[0])

    def table(self) -> str:
        self.db.execute("SELECT pg_stat_force_next_flush()")
        found = self.db.execute(
            "SELECT n_tup_upd, n_tup_hot_upd, n_dead_tup, pg_relation_size(relid) / 1024, "
            "pg_indexes_size(relid) / 1024 FROM pg_stat_user_tables "
            "WHERE schemaname = %s AND relname = 'runs'",
            (self.schema,),
        ).fetchone()
        assert found is not None
        return "updated {:,}, of that HOT {:,}; dead {:,}; {:,} kB and {:,} kB of indexes".format(*found)


def first(number: int, now: datetime) -> Commit:
    admission = Admission(
        flow_id="flow",
        flow_version="1",
        flow_hash=HASH,
        blueprint=b"{}",
        created_at=now,
        owner=None,
        ttl=TTL,
        process=None,
    )
    return Commit(f"run-{number}", 1, f"{number}-1", None, 0, BODY, True, Status.RUNNING, admission)


def last(number: int, now: datetime) -> Commit:
    ended = Status.COMPLETED
    return Commit(f"run-{number}", 2, f"{number}-2", f"{number}-1", 1, BODY, False, ended, ended_at=now)


def measure(url: str, indexes: str, runs: int) -> None:
    schema, now = f"updates_{indexes}", datetime.now(UTC)
    server = Server(url, schema)
    server.db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
    store: Any = open_store(f"{url}?schema={schema}&options=-csynchronous_commit%3Doff", SystemClock()).store
    claims = psycopg.connect(url, autocommit=True, options=f"-c search_path={schema}")
    if indexes != "now":
        gone = [*BY_LEASE, *(["runs_by_status"] if indexes == "none" else [])]
        server.db.execute(f"DROP INDEX {', '.join(gone)}; ALTER TABLE runs SET (fillfactor = 75)".encode())
        server.db.execute(BESIDE if indexes == "beside" else "SELECT 1")
    store.put_blocking([first(-1, now)])
    costs: dict[str, list[float]] = {}

    def claim(group: list[int]) -> None:
        found = claims.execute(
            "SELECT run_key FROM runs WHERE run_id = ANY (%s)", ([f"run-{k}" for k in group],)
        )
        keys, many = [key for (key,) in found.fetchall()], len(group)
        given = (keys, [0] * many, [None] * many, [0] * many, [f"flow {HASH}"], ["me"] * many)
        query = (
            "SELECT count(*) FROM claim_8(NULL, %s::bigint[], %s::bigint[], %s::text[], %s::int[], "
            "%s::text[], %s::text[], 30000000, NULL)"
        )
        assert claims.execute(query, given).fetchone() == (many,)

    parts: dict[str, Callable[[list[int]], object]] = {
        "admit": lambda group: store.put_blocking([first(k, now) for k in group]),
        "claim": claim,
        "renew": lambda group: store.renew_blocking([Lease(f"run-{k}", "me", 1, now) for k in group], TTL),
        "end": lambda group: store.put_blocking([last(k, now) for k in group]),
    }
    for begin in range(0, runs, BATCH):
        numbers = list(range(begin, min(begin + BATCH, runs)))
        for name, work in parts.items():
            before = server.spent()
            for at in range(0, len(numbers), GROUP):
                work(numbers[at : at + GROUP])
            spent = [then - now for now, then in zip(before, server.spent(), strict=True)]
            costs[name] = [sum(pair) for pair in zip(costs.get(name, [0, 0]), spent, strict=True)]
    shown = ", ".join(
        f"{name} {micros / runs:.0f} µs {size / runs:,.0f} B" for name, (micros, size) in costs.items()
    )
    micros, size = (sum(column) / runs for column in zip(*costs.values(), strict=True))
    print(f"{indexes:8} a run {micros:.0f} µs, {size:,.0f} B of log: {shown}")
    store.put_blocking([first(-2, now)])  # its sessions tell their counts
    print(f"{'':8} {server.table()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--runs", type=int, default=6400)
    parser.add_argument("--indexes", default="now,beside,none")
    given = parser.parse_args()
    for indexes in given.indexes.split(","):
        measure(given.url, indexes, given.runs)


if __name__ == "__main__":
    main()
