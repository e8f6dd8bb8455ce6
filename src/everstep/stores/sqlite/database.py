"""One SQLite file: opening it, bringing its schema up to date, and saying plainly what is wrong with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw

from everstep.errors import (
    EverstepError,
    IncompatibleVersion,
    StateCorrupted,
    StoreError,
    StoreMissing,
    StoreNotWritable,
    StoreUnavailable,
)
from everstep.stores.artifacts import make_lasting
from everstep.stores.tables import RUN_COLUMNS, RUNS, TOMBSTONES, WAITS, RowTable

T = TypeVar("T")
_HERE = Path(__file__).parent
APPLICATION_ID = 0x65766572
"""'ever', so that another program's file is not taken for ours."""
PAGE_SIZE = 4096
"""Of new files. Every commit writes at least one page to the log, and each empty index has one."""
BUSY_MS = 10_000
HURRY_MS = 1_000
"""Busy timeout; the shorter one when the commit can be spooled."""
_NEWEST = (
    "(SELECT max(position) FROM checkpoints WHERE position BETWEEN run_key << 32 AND (run_key + 1 << 32) - 1)"
)
_MEANINGS = {
    "{run}": ", ".join(("run_key", *RUN_COLUMNS, _NEWEST)),
    "{run_columns}": ", ".join(RUN_COLUMNS),
    "{run_values}": ", ".join(f"?{place}" for place, _ in enumerate(RUN_COLUMNS, 1)),
    "{wait}": ", ".join(("run_id", *(f"waits.{name}" for name in WAITS.names))),
    "{wait_columns}": ", ".join(WAITS.names),
    "{wait_values}": ", ".join(f":{name}" for name in WAITS.names),
    "{tombstone}": ", ".join(TOMBSTONES.names),
}
"""What names in braces stand for in `queries.sql`."""
_TABLES: dict[str, RowTable[Any]] = {"runs": RUNS, "waits": WAITS, "tombstones": TOMBSTONES}
_COLUMNS = {(table, name) for table, columns in _TABLES.items() for name in columns.names}
_ALL_COLUMNS = f"SELECT {', '.join(map('.'.join, _COLUMNS))} FROM {', '.join(_TABLES)} LIMIT 0"
_COLUMNS_THERE = (
    "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table'"
)
_KINDS = {int: "INTEGER", bool: "INTEGER", datetime: "INTEGER", bytes: "BLOB"}
"""How SQLite keeps what is no text."""


class Queries(dict[str, str]):
    """The named queries of `queries.sql`, each made when it is first asked for: most processes need a few."""

    def __init__(self, text: str) -> None:
        parts = (part.partition("\n") for part in text.split("-- name: ")[1:])
        self._bodies = {name: body for name, _, body in parts}

    def __missing__(self, name: str) -> str:
        made = self[name] = _bare(self._bodies[name])
        return made


@cache
def read_queries() -> Queries:
    """Return the queries of the schema."""
    return Queries((_HERE / "queries.sql").read_text())


def _bare(body: str) -> str:
    """Return a query on one line, without its comments, so that the statement cache has little to compare."""
    for name, meaning in _MEANINGS.items():
        body = body.replace(name, meaning)
    lines = (line.partition("--")[0] for line in body.splitlines())
    return " ".join(" ".join(lines).split()).rstrip(";")


def migrations() -> list[tuple[int, str]]:
    """Return the schema's steps by number."""
    return [(int(file.name[:4]), file.read_text()) for file in _migration_files()]


@cache
def _migration_files() -> list[Path]:
    return sorted(file for file in (_HERE / "migrations").iterdir() if file.name[0].isdigit())


def open_database(path: Path, *, synchronous: str, create: bool, vfs: str | None = None) -> apsw.Connection:
    """Open the file, make or upgrade its schema, and return a connection in autocommit."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    with plainly(path):
        if not create and not path.exists():
            raise StoreMissing(
                f"there is no database at {path}.", fix="Check the path, or start a run to make one."
            )
        if path.is_dir():
            raise StoreError(f"{path} is a folder.", fix=f"To keep runs in it, write file:{path}")
        if create and not path.exists():
            make_lasting(path.parent)
        connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
        try:
            connection.set_busy_timeout(BUSY_MS)
            _prepare(connection, path, synchronous)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: apsw.Connection, path: Path, synchronous: str) -> None:
    version = transact(connection, lambda: schema_version(connection, path), begin="BEGIN")
    if version == 0:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    _use_wal(connection, path)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if version < _newest():
        migrate(connection, path)
    if not has_all_columns(connection):
        transact(connection, lambda: _add_columns(connection))


def has_all_columns(connection: apsw.Connection) -> bool:
    """True unless an earlier release made the file and it lacks a column. To name them all is quicker than to
    have them listed."""
    try:
        connection.execute(_ALL_COLUMNS)
    except apsw.SQLError:
        return False
    return True


def _add_columns(connection: apsw.Connection) -> None:
    """Add what is missing. The schema keeps its number: earlier releases refuse a file with a newer one."""
    missing = _COLUMNS.difference(rows(connection, _COLUMNS_THERE))
    for table, columns in _TABLES.items():
        for column in columns.columns:
            if (table, column.name) in missing:
                kind = _KINDS.get(column.kind, "TEXT")
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column.name} {kind}")


def _use_wal(connection: apsw.Connection, path: Path) -> None:
    """Switch the file to a write-ahead log. SQLite does not wait for others here, so we do."""
    pause = threading.Event()
    for attempt in range(BUSY_MS // 25):
        try:
            mode = rows(connection, "PRAGMA journal_mode = WAL")[0][0]
        except apsw.BusyError:
            if attempt == BUSY_MS // 25 - 1:
                raise
            pause.wait(0.025)
        else:
            if mode != "wal":
                raise StoreError(f"{path} cannot have a write-ahead log ({mode}).", fix="Use a local disk.")
            return


def _newest() -> int:
    return int(_migration_files()[-1].name[:4])


def schema_version(connection: apsw.Connection, path: Path) -> int:
    version = int(rows(connection, "PRAGMA user_version")[0][0])
    application = rows(connection, "PRAGMA application_id")[0][0]
    if version == 0 and application == 0:
        tables = rows(connection, "SELECT count(*) FROM sqlite_schema")[0][0]
        if tables:
            raise StoreError(f"{path} is a database of another program.", fix="Name another file.")
        return 0
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program.", fix="Name another file.")
    if version > _newest():
        raise IncompatibleVersion(
            f"{path} has schema {version}; this everstep knows up to {_newest()}.",
            fix="Use the newer everstep that wrote it.",
        )
    return version


def migrate(connection: apsw.Connection, path: Path, *, upto: int | None = None) -> None:
    """Bring the schema up to date in one transaction; another process may be doing the same."""

    def bring() -> None:
        version = schema_version(connection, path)
        for number, script in migrations():
            if number > version and (upto is None or number <= upto):
                connection.execute(script)
                connection.execute(f"PRAGMA user_version = {number}")
        if upto is None or upto >= _newest():
            _add_columns(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    transact(connection, bring)


def transact(
    connection: apsw.Connection, work: Callable[[], T], *, begin: str = "BEGIN IMMEDIATE", end: str = "COMMIT"
) -> T:
    """Do some work in one transaction, all or nothing, and return what it returns.

    Python raises Ctrl-C when a call returns, so also right behind BEGIN: whatever comes, none stays open.
    """
    try:
        roll_back(connection)
        connection.execute(begin)
        result = work()
        connection.execute(end)
    except BaseException:
        roll_back(connection)
        raise
    return result


def roll_back(connection: apsw.Connection) -> None:
    """End a transaction that is open: in it nothing would be durable, and all others are locked out."""
    while connection.in_transaction:
        with suppress(KeyboardInterrupt):  # one more: the first is on its way to the caller already
            connection.execute("ROLLBACK")


@contextmanager
def plainly(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, each with what to do."""
    try:
        yield
    except apsw.Error as error:
        raise explain(error, path) from error
    except OSError as error:
        raise StoreError(
            f"cannot use {path}: {error.strerror or error}.", fix="Check the folder's permissions."
        ) from error


def explain(error: apsw.Error, path: Path) -> EverstepError:
    """Say in one line what SQLite means."""
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreUnavailable(
            f"{path} is locked by another process.", fix="Try again, or see who holds it."
        )
    if isinstance(error, apsw.ConnectionClosedError):
        return StoreError(f"{path} was closed here.", fix="Open another host.")
    if isinstance(error, apsw.FullError):
        return StoreNotWritable(f"the disk that holds {path} is full.", fix="Free some space, and try again.")
    if isinstance(error, apsw.ReadOnlyError):
        return StoreNotWritable(
            f"{path} cannot be written.", fix="Check the permissions of the file and its folder."
        )
    if isinstance(error, apsw.NotADBError):
        return StateCorrupted(
            f"{path} is damaged, or no SQLite database.", fix="Check the path, or restore it from a copy."
        )
    if isinstance(error, apsw.CorruptError):
        return StateCorrupted(f"{path} is damaged: {error}.", fix="Restore it from a copy.")
    if isinstance(error, apsw.CantOpenError):
        return StoreError(f"cannot open {path}.", fix="Check the path and the folder's permissions.")
    return StoreError(f"SQLite failed on {path}: {type(error).__name__}: {error}.", fix="Check the disk.")


@contextmanager
def brief_patience(connection: apsw.Connection) -> Iterator[None]:
    """Wait for others only briefly meanwhile."""
    try:
        connection.set_busy_timeout(HURRY_MS)
        yield
    finally:
        connection.set_busy_timeout(BUSY_MS)


def rows(
    connection: apsw.Connection, sql: str, bindings: tuple[Any, ...] | dict[str, Any] = ()
) -> list[tuple[Any, ...]]:
    """Run a query and return everything it gives."""
    return connection.execute(sql, bindings).fetchall()


def page_size(connection: apsw.Connection) -> int:
    """Return the size of the file's pages."""
    return int(rows(connection, "PRAGMA page_size")[0][0])
