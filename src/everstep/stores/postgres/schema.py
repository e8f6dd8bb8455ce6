"""The tables: making them, bringing them up to date, and refusing those we cannot use. Apart from the store,
as it is needed once when that opens.

A migration only adds, so that workers of the version before go on while newer ones are started. Functions
carry a number and are never changed. A migration that older clients cannot live with says so in a line
`-- clients from: N`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import psycopg

from everstep.errors import IncompatibleVersion, StoreError, StoreMissing
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.connections import Connection, rows
from everstep.stores.postgres.failures import explain
from everstep.stores.tables import RUN_COLUMNS, TOMBSTONES, WAITS

_HERE = Path(__file__).parent
_LOCK = 0x65766572
"""'ever': who migrates holds this advisory lock."""
_RUN = ", ".join(("run_key", *(f"runs.{name}" for name in RUN_COLUMNS)))
_NEWEST = "(SELECT max(sequence) FROM {schema}.checkpoints WHERE checkpoints.run_key = runs.run_key)"
_WAIT = ", ".join(("run_id", *(f"waits.{name}" for name in WAITS.names)))
_NOW = "(SELECT coalesce($1::bigint, {schema}.now_1()))"


_MEANINGS = {
    "{run}": f"{_RUN}, {_NEWEST}",
    "{columns}": _RUN,
    "{wait}": _WAIT,
    "{tombstone}": ", ".join(TOMBSTONES.names),
    "{now}": _NOW,
}
"""What names in braces stand for in `queries.sql`, besides the schema."""


class SchemaStep(NamedTuple):
    number: int
    script: str
    clients_from: int
    """The oldest client that can live with it, by the last migration it knows."""


def read_queries(at: PostgresAddress) -> dict[str, str]:
    """Return the named queries of `queries.sql` for one schema."""
    text = (_HERE / "queries.sql").read_text()
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]
    bodies = (re.sub(r"--.*", "", body) for body in parts[1::2])
    return {
        name: " ".join(_filled(body, at).split()).rstrip(";")
        for name, body in zip(parts[::2], bodies, strict=True)
    }


def _filled(text: str, at: PostgresAddress) -> str:
    for name, meaning in _MEANINGS.items():
        text = text.replace(name, meaning)
    return text.replace("{schema}", at.quoted_schema)


def migrations(folder: Path = _HERE / "migrations") -> list[SchemaStep]:
    """Return the schema's steps by number."""
    found: list[SchemaStep] = []
    for file in sorted(folder.glob("[0-9]*.sql")):
        script = file.read_text()
        told = re.search(r"^-- clients from: (\d+)$", script, flags=re.MULTILINE)
        found.append(SchemaStep(int(file.name[:4]), script, int(told[1]) if told else 0))
    return found


def prepare(connection: Connection, at: PostgresAddress, *, create: bool) -> None:
    """Make or upgrade the schema if that is needed, and refuse one that we cannot use."""
    steps = migrations()
    try:
        known = _version(connection, at)
        if known is None and not create:
            raise StoreMissing(
                f"there are no runs at {at.shown}.", fix="Check the URL, or start a run to make the tables."
            )
        if known is None or known < steps[-1].number:
            migrate(connection, at, steps)
    except psycopg.Error as error:
        raise explain(error, at) from error


def _version(connection: Connection, at: PostgresAddress) -> int | None:
    """Return the number of the last migration; none if there is nothing yet."""
    found = rows(
        connection,
        "SELECT to_regclass($1) IS NOT NULL, "
        "exists(SELECT FROM pg_class WHERE relnamespace = to_regnamespace($2)::oid)",
        (f"{at.quoted_schema}.everstep_schema", at.quoted_schema),
    )
    is_ours, is_used = found[0]
    if not is_ours:
        if is_used:
            raise StoreError(
                f"schema {at.schema} of {at.shown} holds the tables of another program.",
                fix="Name another with ?schema= in the URL.",
            )
        return None
    query = f"SELECT max(number), max(clients_from) FROM {at.quoted_schema}.everstep_schema"
    version, clients_from = rows(connection, query)[0]
    newest = migrations()[-1].number
    if clients_from > newest:
        raise IncompatibleVersion(
            f"{at.shown} has schema {version}; this everstep knows up to {newest}.",
            fix=f"Use an everstep that knows schema {clients_from} or a newer one.",
        )
    return int(version)


def migrate(connection: Connection, at: PostgresAddress, steps: list[SchemaStep]) -> None:
    """Bring the schema up to date in one transaction; another process may be doing the same."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", (_LOCK, at.schema))
        # A client that waits for a lock on a table makes all others wait behind it.
        connection.execute("SET LOCAL lock_timeout = '5s'")
        known = _version(connection, at)
        if known is None:
            # Where the schema was made for us, we need no right to make one.
            if not rows(connection, "SELECT FROM pg_namespace WHERE nspname = $1", (at.schema,)):
                connection.execute(f"CREATE SCHEMA {at.quoted_schema}")
            connection.execute(
                f"CREATE TABLE {at.quoted_schema}.everstep_schema (number integer PRIMARY KEY, "
                "clients_from integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
            )
        before = _relations(connection, at)
        for step in steps:
            if step.number > (known or 0):
                connection.execute(step.script.replace("{schema}", at.quoted_schema))
                connection.execute(
                    f"INSERT INTO {at.quoted_schema}.everstep_schema (number, clients_from) VALUES ($1, $2)",
                    (step.number, step.clients_from),
                )
        if known is not None:
            _grant(connection, at, before)


def _relations(connection: Connection, at: PostgresAddress) -> dict[str, str]:
    """Return the names of tables and sequences, quoted, with what each is."""
    query = (
        "SELECT quote_ident(relname), relkind::text FROM pg_class "
        "WHERE relnamespace = to_regnamespace($1)::oid AND relkind IN ('r', 'S')"
    )
    return dict(rows(connection, query, (at.quoted_schema,)))


def _grant(connection: Connection, at: PostgresAddress, before: dict[str, str]) -> None:
    """Let every role that may use the runs use what an upgrade has added: clients before it must not stop."""
    query = (
        "SELECT CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END, "
        "string_agg(DISTINCT privilege_type, ', ') FROM pg_class, aclexplode(relacl) "
        "WHERE pg_class.oid = to_regclass($1) AND grantee <> relowner "
        "AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') GROUP BY 1"
    )
    users = rows(connection, query, (f"{at.quoted_schema}.runs",))
    added = {name: kind for name, kind in _relations(connection, at).items() if name not in before}
    for user, rights in users:
        # Each runs with the rights of its caller.
        connection.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {at.quoted_schema} TO {user}".encode())
        for name, kind in added.items():
            if kind == "r":
                connection.execute(f"GRANT {rights} ON {at.quoted_schema}.{name} TO {user}".encode())
            elif "INSERT" in rights:
                connection.execute(f"GRANT USAGE, SELECT ON {at.quoted_schema}.{name} TO {user}".encode())
