"""The tables: making them, bringing them up to date, and refusing those we cannot use. Apart from the store,
as it is needed once when that opens.

A migration only adds, so that workers of the version before go on while newer ones are started. Functions
carry a number and are never changed. A migration that older clients cannot live with says so in a line
`-- clients from: N`. One that has more to do than a moment's lock allows is in two parts: `_pre.sql` is what
clients need, applied by the first of them; `_post.sql` is what may come later, such as an index on a table
that is large by now.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import psycopg

from everstep.errors import IncompatibleVersion, StoreError, StoreMissing
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.connections import Connection, explain, rows
from everstep.stores.tables import RUN_COLUMNS, TOMBSTONES, WAITS

T = TypeVar("T")
_HERE = Path(__file__).parent
_LOCK = 0x65766572
"""'ever': who migrates holds this advisory lock."""
EVENT_LOCK = 0x65766E74
"""'evnt': who publishes holds this advisory lock, with the name of the event."""
_LOCK_TIMEOUT = "500ms"
"""How long a part of an upgrade waits for a table: others that come for it meanwhile wait behind."""
_TRIES = 60
_PAUSE = 0.5
"""Seconds before another try."""
SMALL = 10_000
"""Up to so many runs and waits, what may come later is done at once."""
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
    post: str = ""
    """What may come later."""


def read_queries(at: PostgresAddress, file: str = "queries.sql") -> dict[str, str]:
    """Return the named queries of a file for one schema."""
    text = (_HERE / file).read_text()
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
        if file.stem.endswith("_post"):
            continue
        script, later = file.read_text(), file.with_name(file.name.replace("_pre.sql", "_post.sql"))
        told = re.search(r"^-- clients from: (\d+)$", script, flags=re.MULTILINE)
        post = later.read_text() if later != file else ""
        found.append(SchemaStep(int(file.name[:4]), script, int(told[1]) if told else 0, post))
    return found


def prepare(connection: Connection, at: PostgresAddress, *, create: bool) -> None:
    """Make or upgrade the schema if that is needed, and refuse one that we cannot use."""
    steps = migrations()
    try:
        known = version_of(connection, at)
        if known is None and not create:
            raise StoreMissing(
                f"there are no runs at {at.shown}.", fix="Check the URL, or start a run to make the tables."
            )
        if known is None or known < steps[-1].number:
            migrate(connection, at, steps)
    except psycopg.Error as error:
        raise explain(error, at) from error


def version_of(connection: Connection, at: PostgresAddress) -> int | None:
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
    """Make the schema, or bring it up to date; another process may be doing the same.

    Of an upgrade each step is a transaction of its own, and the first part of it alone unless the tables are
    small: no table is locked for longer than a moment.
    """
    if _made(connection, at, steps):
        return
    for step in steps:
        _patiently(partial(_upgrade, connection, at, step))


def _made(connection: Connection, at: PostgresAddress, steps: list[SchemaStep]) -> bool:
    """Make the schema with all there is to it; false if it is there."""
    with _locked(connection, at):
        if version_of(connection, at) is not None:
            return False
        # Where the schema was made for us, we need no right to make one.
        if not rows(connection, "SELECT FROM pg_namespace WHERE nspname = $1", (at.schema,)):
            connection.execute(f"CREATE SCHEMA {at.quoted_schema}")
        connection.execute(
            f"CREATE TABLE {at.quoted_schema}.everstep_schema (number integer PRIMARY KEY, "
            "clients_from integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(), "
            "finished_at timestamptz)"
        )
        for step in steps:
            _apply(connection, at, step, is_small=True)
    return True


def _upgrade(connection: Connection, at: PostgresAddress, step: SchemaStep) -> None:
    with _locked(connection, at):
        if step.number > (version_of(connection, at) or 0):
            before = _relations(connection, at)
            connection.execute(
                f"ALTER TABLE {at.quoted_schema}.everstep_schema "
                "ADD COLUMN IF NOT EXISTS finished_at timestamptz"
            )
            _apply(connection, at, step, is_small=bool(step.post) and _is_small(connection, at))
            _grant(connection, at, before)


def _apply(connection: Connection, at: PostgresAddress, step: SchemaStep, *, is_small: bool) -> None:
    connection.execute(_of(at, step.script))
    connection.execute(
        f"INSERT INTO {at.quoted_schema}.everstep_schema (number, clients_from) VALUES ($1, $2)",
        (step.number, step.clients_from),
    )
    if step.post and is_small:
        connection.execute(_of(at, step.post).replace(" CONCURRENTLY ", " "))
        _note_finished(connection, at, step)


@contextmanager
def _locked(connection: Connection, at: PostgresAddress) -> Iterator[None]:
    """Be the only one to change the schema, in a transaction."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", (_LOCK, at.schema))
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        yield


def _patiently(work: Callable[[], T]) -> T:
    """Try until the tables are free: a client that waits for one keeps others waiting, so not for long."""
    pause = threading.Event()
    for tries_left in range(_TRIES, -1, -1):
        try:
            return work()
        except psycopg.errors.LockNotAvailable:
            if not tries_left:
                raise
            pause.wait(_PAUSE)
    raise AssertionError("not reached")


def _is_small(connection: Connection, at: PostgresAddress) -> bool:
    few = f"LIMIT {SMALL + 1}) AS few) <= {SMALL}"
    query = "SELECT " + " AND ".join(
        f"(SELECT count(*) FROM (SELECT FROM {at.quoted_schema}.{table} {few}" for table in ("runs", "waits")
    )
    return bool(rows(connection, query)[0][0])


def unfinished(connection: Connection, at: PostgresAddress) -> list[int]:
    """Return the steps of which the later part is still to be done."""
    query = f"SELECT number FROM {at.quoted_schema}.everstep_schema WHERE finished_at IS NULL ORDER BY number"
    later = {step.number for step in migrations() if step.post}
    return [number for (number,) in rows(connection, query) if number in later]


def finish(
    connection: Connection,
    at: PostgresAddress,
    steps: list[SchemaStep],
    say: Callable[[str], object] = lambda _: None,
) -> None:
    """Do what was left for later, beside clients at work. May be called again after it was cut off.

    An index is built while others write; it may take minutes, and waits for transactions that began before.
    """
    mine = (_LOCK + 1, at.schema)
    pause = threading.Event()
    # Not by waiting for the lock: who waits has begun a transaction, for which the index would wait.
    while not rows(connection, "SELECT pg_try_advisory_lock($1, hashtext($2))", mine)[0][0]:
        pause.wait(_PAUSE)
    try:
        left = set(unfinished(connection, at))
        for step in steps:
            if step.number in left:
                for statement in _statements(step.post):
                    say(f"step {step.number}: {' '.join(statement.split()[:5]).format(schema=at.schema)}")
                    _build(connection, at, statement)
                _note_finished(connection, at, step)
    finally:
        connection.execute("SELECT pg_advisory_unlock($1, hashtext($2))", mine)


def _build(connection: Connection, at: PostgresAddress, statement: str) -> None:
    """Build an index unless it is there, and whole."""
    made = re.fullmatch(r"CREATE INDEX CONCURRENTLY (\w+) ON .*", statement, flags=re.DOTALL)
    if made is not None:
        name = f"{at.quoted_schema}.{made[1]}"
        query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"
        match rows(connection, query, (name,)):
            case [(True,)]:
                return
            case [(False,)]:  # what an earlier try left
                connection.execute(f"DROP INDEX CONCURRENTLY {name}")
    connection.execute(_of(at, statement))


def _statements(script: str) -> list[str]:
    bare = re.sub(r"--.*", "", script)
    return [statement.strip() for statement in bare.split(";") if statement.strip()]


def _note_finished(connection: Connection, at: PostgresAddress, step: SchemaStep) -> None:
    query = f"UPDATE {at.quoted_schema}.everstep_schema SET finished_at = now() WHERE number = $1"
    connection.execute(query, (step.number,))


def _of(at: PostgresAddress, script: str) -> str:
    return script.replace("{schema}", at.quoted_schema).replace("{event_lock}", str(EVENT_LOCK))


def _relations(connection: Connection, at: PostgresAddress) -> dict[str, str]:
    """Return the names of tables and sequences, quoted, with what each is."""
    query = (
        "SELECT quote_ident(relname), relkind::text FROM pg_class "
        "WHERE relnamespace = to_regnamespace($1)::oid AND relkind IN ('r', 'S')"
    )
    return dict(rows(connection, query, (at.quoted_schema,)))


def users_of(connection: Connection, at: PostgresAddress) -> list[tuple[str, str]]:
    """Return the roles besides the owner that may use the runs, quoted, and what each may do with them."""
    query = (
        "SELECT CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END, "
        "string_agg(DISTINCT privilege_type, ', ') FROM pg_class, aclexplode(relacl) "
        "WHERE pg_class.oid = to_regclass($1) AND grantee <> relowner "
        "AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') GROUP BY 1 ORDER BY 1"
    )
    return list(rows(connection, query, (f"{at.quoted_schema}.runs",)))


def lacking_rights(connection: Connection, at: PostgresAddress) -> list[str]:
    """Return those of them that may not read some table, as an upgrade of 0.1.0 or a hand left them."""
    query = (
        "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1)::oid AND relkind = 'r' "
        "AND NOT has_table_privilege($2, oid, 'SELECT')"
    )
    return [
        user
        for user, rights in users_of(connection, at)
        if "SELECT" in rights and rows(connection, query, (at.quoted_schema, _bare_name(user)))[0][0]
    ]


def _bare_name(user: str) -> str:
    """Return a role as functions take it, which is not quoted."""
    if user == "PUBLIC":
        return "public"
    return user[1:-1].replace('""', '"') if user.startswith('"') else user


def grant_all(connection: Connection, at: PostgresAddress) -> None:
    """Let every role that may use the runs use all that is beside them in the same way."""
    with _locked(connection, at):
        _grant(connection, at, {})


def _grant(connection: Connection, at: PostgresAddress, before: dict[str, str]) -> None:
    """Let every role that may use the runs use what an upgrade has added: clients before it must not stop."""
    users = users_of(connection, at)
    added = {name: kind for name, kind in _relations(connection, at).items() if name not in before}
    for user, rights in users:
        # Each runs with the rights of its caller.
        connection.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {at.quoted_schema} TO {user}".encode())
        for name, kind in added.items():
            if kind == "r":
                connection.execute(f"GRANT {rights} ON {at.quoted_schema}.{name} TO {user}".encode())
            elif "INSERT" in rights:
                connection.execute(f"GRANT USAGE, SELECT ON {at.quoted_schema}.{name} TO {user}".encode())
