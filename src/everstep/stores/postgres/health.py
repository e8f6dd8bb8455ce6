"""What a PostgreSQL keeps, and what it can lose, as it is set up now. Apart, as only `doctor` asks."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.ports.health import Finding, Health, Level
from everstep.stores.columns import to_time
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.connections import Connection, rows
from everstep.stores.postgres.schema import unfinished

_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0) FROM pg_class "
    "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND relkind = 'r'"
)
_MANY = 0.8
"""The part of the server's connections that may be in use before it is worth a word."""


def look_at(db: Connection, sql: dict[str, str], at: PostgresAddress) -> Health:
    """Ask the server what it is and how it is set up."""
    version, now, is_replica, fsync, commits, used, most = rows(db, sql["health"])[0]
    findings = [
        *_about_role(is_replica),
        _about_disk(fsync, commits),
        *_about_connections(used, most),
        _about_pooler(db),
        *_about_schema(db, at),
    ]
    size = rows(db, _SIZE, (at.schema,))[0][0]
    return Health(
        server=f"PostgreSQL {version.split()[0]}",
        now=to_time(now),
        findings=tuple(findings),
        size_bytes=int(size),
    )


def _about_schema(db: Connection, at: PostgresAddress) -> Iterator[Finding]:
    if left := unfinished(db, at):
        yield Finding(
            Level.WARNING,
            f"the upgrade of its schema is not finished: indexes of step {', '.join(map(str, left))} are "
            "missing, and what they serve is slow.",
            "Once all workers are of this version, run: everstep migrate-store",
        )


def _about_role(is_read_only: bool) -> Iterator[Finding]:
    if is_read_only:
        yield Finding(
            Level.PROBLEM,
            "it is read-only: a replica, or default_transaction_read_only is on.",
            "Give the URL of the primary, or add target_session_attrs=read-write to it.",
        )


def _about_disk(fsync: str, commits: str) -> Finding:
    if fsync != "on":
        return Finding(
            Level.WARNING,
            "fsync is off: when the server's machine dies, the whole database can be damaged.",
            "Set fsync = on in postgresql.conf.",
        )
    if commits == "off":
        return Finding(
            Level.WARNING,
            "synchronous_commit is off: when the server dies, the steps of the last moment are lost, and run "
            "again.",
            "Set synchronous_commit = on, for this user or in postgresql.conf.",
        )
    return Finding(
        Level.FINE, "every write is on its disk before everstep hears of it: no crash loses a recorded step."
    )


def _about_connections(used: int, most: int) -> Iterator[Finding]:
    if used > _MANY * most:
        yield Finding(
            Level.WARNING,
            f"{used} of {most} connections are in use; a host takes up to ten.",
            "Raise max_connections, use a pooler, or lower ?pool= in the URL.",
        )


def _about_pooler(db: Connection) -> Finding:
    if db.prepares:
        return Finding(Level.FINE, "it is connected to directly: workers hear of new runs at once.")
    return Finding(
        Level.FINE,
        "a pooler stands before it, or ?prepare=off was given: nothing is prepared, and workers may hear of "
        "new runs a fifth of a second later.",
    )
