"""Connections to one database: opened when they are wanted, used again, and dropped when they break.

None of them carries anything from one statement to the next, so a pooler in transaction mode may stand
between.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import psycopg

from everstep.errors import (
    BadRequest,
    EverstepError,
    StateCorrupted,
    StoreError,
    StoreNotWritable,
    StoreUnavailable,
)
from everstep.stores.postgres.address import PostgresAddress

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds to wait for a connection that others have."""
DEFAULTS = {
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "application_name": "everstep",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""A server that vanished is found out; whatever the URL says instead counts."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """One session with the server, or with a pooler that stands before it."""

    prepares = False
    """True if statements may be prepared: what answers is the server itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared: set[bytes] = set()
        """The names of statements that the server knows."""


def connect(at: PostgresAddress) -> Connection:
    """Open one connection, or raise one of our errors."""
    try:
        told = psycopg.conninfo.conninfo_to_dict(at.url)
    except psycopg.Error:
        # What the driver says may quote the URL, and with it the password.
        raise BadRequest(
            "the driver cannot read the URL of the database.",
            fix="Check its options; special characters in a password are written as %40.",
        ) from None
    try:
        connection = Connection.connect(
            **(DEFAULTS | {name: str(value) for name, value in told.items()}),  # type: ignore[arg-type]  # libpq's options are text
            autocommit=True,
            cursor_factory=psycopg.RawCursor,
            prepare_threshold=None,
        )
        if at.prepares:
            # A pooler gives the next statement to any session; it shows another process than the one at work.
            serving = connection.execute("SELECT pg_backend_pid()").fetchone()
            connection.prepares = serving == (connection.info.backend_pid,)
            connection.prepare_threshold = 5 if connection.prepares else None
        return connection
    except psycopg.Error as error:
        raise explain(error, at) from None


class Connections:
    """A few connections that threads take turns with."""

    def __init__(self, at: PostgresAddress, size: int) -> None:
        self._at = at
        self._size = size
        self._is_closed = False
        self._inherited: list[Connection] = []
        """In a forked child, its parent's connections: to use or to close one would break the parent's."""
        self._idle: list[Connection] = []
        self._free = _tokens(size)
        """One for each connection that may be taken. A semaphore would cost a step fifteen times as much."""
        self._pid = os.getpid()

    def use(self, work: Callable[[Connection], T], *, repeats: bool = True) -> T:
        """Do some work on a connection.

        What is safe to do twice is done on another if the first one is broken; a server that is gone is an
        error, and so is a broken connection for what does not repeat.
        """
        if self._pid != os.getpid():
            self._begin_anew()
        free = self._free
        try:
            token = free.get(timeout=PATIENCE)
        except Empty:
            raise StoreUnavailable(
                f"all connections to {self._at.shown} are in use.", fix="Raise ?pool= in its URL."
            ) from None
        try:
            while self._idle:
                try:
                    connection = self._idle.pop()
                except IndexError:
                    break  # another thread was quicker
                try:
                    return self._attempt(connection, work)
                except psycopg.Error as error:
                    if is_broken(error):
                        self._drop_idle()  # whatever broke one connection broke the others too
                    if not repeats or not is_broken(error):
                        raise explain(error, self._at) from error
            try:
                return self._attempt(connect(self._at), work)
            except psycopg.Error as error:
                raise explain(error, self._at) from error
        finally:
            free.put(token)

    def _begin_anew(self) -> None:
        self._inherited += self._idle
        self._idle, self._pid = [], os.getpid()
        self._free = _tokens(self._size)

    def _attempt(self, connection: Connection, work: Callable[[Connection], T]) -> T:
        try:
            result = work(connection)
        except BaseException:
            if _is_at_rest(connection):
                self._give_back(connection)
            else:
                connection.close()
            raise
        self._give_back(connection)
        return result

    def _give_back(self, connection: Connection) -> None:
        if self._is_closed:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._is_closed = True
        if self._pid == os.getpid():
            self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):  # another thread was quicker
                self._idle.pop().close()


def _tokens(count: int) -> SimpleQueue[int]:
    tokens: SimpleQueue[int] = SimpleQueue()
    for token in range(count):
        tokens.put(token)
    return tokens


def _is_at_rest(connection: Connection) -> bool:
    return connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def rows(connection: Connection, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a query and return everything it gives."""
    return connection.execute(query, values, binary=True).fetchall()


@contextmanager
def as_of_now(connection: Connection) -> Iterator[None]:
    """Read all of it as of one moment, whatever others write meanwhile."""
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):  # the connection broke, and the transaction with it
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def in_few_trips(connection: Connection) -> AbstractContextManager[object]:
    """Let what is sent wait for no answer until one is read; behind a pooler, each waits for its own."""
    return connection.pipeline() if connection.prepares else nullcontext()


def at_once(
    connection: Connection, queries: Sequence[tuple[str, Sequence[Any]]]
) -> list[list[tuple[Any, ...]]]:
    """Run several queries one after the other; without a pooler, in one round trip and one transaction."""
    if not connection.prepares or len(queries) == 1:
        return [rows(connection, query, values) for query, values in queries]
    with in_few_trips(connection):
        cursors = [connection.execute(query, values, binary=True) for query, values in queries]
    return [cursor.fetchall() for cursor in cursors]


# -- what errors mean, each with what to do; none of them shows a password --

_TRY_AGAIN = "Nothing is lost: it is tried again, or resume the run later."


def explain(error: psycopg.Error, at: PostgresAddress) -> EverstepError:
    """Say in one line what the server, or the way to it, means."""
    state = error.sqlstate or ""
    said = (error.diag.message_primary or _first_line(error)).rstrip(".")
    if state == "":
        return _explain_connection(said, at)
    if state == "53100":
        return StoreNotWritable(
            f"the disk of {at.shown} is full.", fix="Free some space on the server, then resume the run."
        )
    if state == "25006":
        return StoreNotWritable(
            f"{at.shown} is read-only: a replica, or default_transaction_read_only is on.",
            fix="Use the URL of the primary, or add target_session_attrs=read-write to it.",
        )
    if state == "42501":
        return StoreError(
            f"this user may not do that on {at.shown}: {said}.",
            fix=f"Grant it usage of schema {at.schema} and all on its tables, sequences and functions.",
        )
    if state in ("3F000", "42P01", "42883", "42703"):
        return StoreError(
            f"the tables in {at.shown} are not those of everstep, or were dropped: {said}.",
            fix="Check the schema in the URL, or restore it from a copy.",
        )
    if state == "23505" and error.diag.table_name == "waits":
        return StoreError(f"there is such a wait already: {said}.", fix="Give every wait its own id.")
    if state[:2] in ("XX", "58") and state not in ("XX000", "58000"):
        return StateCorrupted(f"{at.shown} is damaged: {said}.", fix="Restore it from a copy.")
    if state[:2] in ("28", "3D"):
        return _explain_connection(said, at)
    if state[:2] in ("08", "40", "53", "55", "57") or state == "0A000":
        return StoreUnavailable(f"{at.shown} is out of reach or busy: {said}.", fix=_TRY_AGAIN)
    return StoreError(f"PostgreSQL failed on {at.shown}: {state} {said}.", fix="Check the server's log.")


_CROWDED = ("too many connections", "too many clients", "connection slots", "connection limit")


def _explain_connection(said: str, at: PostgresAddress) -> EverstepError:
    if any(sign in said for sign in _CROWDED):
        return StoreUnavailable(
            f"{at.shown} has no connection left: {said}.",
            fix="It is tried again. Raise the limit, use a smaller ?pool=, or put a pooler before it.",
        )
    if "password" in said or "authentication" in said or "pg_hba" in said or 'role "' in said:
        return StoreError(
            f"{at.shown} refused the login: {said}.", fix="Check the user and the password of the URL."
        )
    if "does not exist" in said and "database" in said:
        return StoreError(
            f"there is no such database: {at.shown}.", fix="Check its name, or make it with: createdb"
        )
    if "translate host" in said or "resolve" in said:
        return StoreUnavailable(f"the host of {at.shown} is unknown: {said}.", fix="Check the URL.")
    return StoreUnavailable(
        f"{at.shown} is out of reach: {said}.", fix="Check the URL, and that the server runs."
    )


def _first_line(error: psycopg.Error) -> str:
    """Return the cause: what a connection attempt says last on its first line, without where it went."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rpartition("failed: ")[2].removeprefix("FATAL:").strip()


def is_broken(error: psycopg.Error) -> bool:
    """True if the connection is of no more use, so that another may do better."""
    state = error.sqlstate or ""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        state == "" or state[:2] == "08" or state[:3] == "57P"
    )
