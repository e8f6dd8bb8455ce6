"""What PostgreSQL cannot do is said plainly, with what to do, and without the password."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psycopg
import pytest

from everstep import Flow, Host, Status, node
from everstep.cli.args.options import command_line
from everstep.errors import (
    BadRequest,
    EverstepError,
    IncompatibleVersion,
    StoreError,
    StoreMissing,
    StoreNotWritable,
    StoreUnavailable,
)
from everstep.testing import ManualClock
from tests.servers.postgres import PostgresServer
from tests.servers.running import Server, free_port, private

SECRET = "s3cr3t-and-%25odd"


@node(output="b")
def first(a: int) -> int:
    return a + 1


@node(output="c")
def second(b: int) -> int:
    return b + 1


flow = Flow("two", [first, second], durability="strong")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with one user who needs a password."""
    with private(PostgresServer) as running:
        rules = running.folder / "data" / "pg_hba.conf"
        rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        with psycopg.connect(running.url, autocommit=True) as connection:
            connection.execute("create role guarded login password 'right'")
            connection.execute("create role plain login")
            connection.execute("select pg_reload_conf()")
        yield running


@contextmanager
def refusal(kind: type[EverstepError], caplog: pytest.LogCaptureFixture) -> Iterator[list[EverstepError]]:
    """Expect an error of exactly this kind, with a fix, that gives no secret away wherever it is shown."""
    caught: list[EverstepError] = []
    with caplog.at_level(logging.DEBUG), pytest.raises(kind) as raised:
        yield caught
    error = raised.value
    caught.append(error)
    assert type(error) is kind
    assert error.fix
    shown = "".join([str(error), repr(error), *traceback.format_exception(error), caplog.text])
    assert "s3cr3t" not in shown


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        (StoreUnavailable, {"port": "{free}"}, "out of reach"),
        (StoreUnavailable, {"host": "no-such-host.invalid"}, "is unknown"),
        (StoreError, {"database": "nowhere"}, "no such database"),
        (StoreError, {"user": "guarded"}, "refused the login"),
        (StoreError, {"user": "unknown-user"}, "refused the login"),
    ],
    ids=["no one listens", "unknown host", "unknown database", "wrong password", "unknown user"],
)
def test_a_server_that_cannot_be_used_is_named_with_what_to_do(
    server: Server,
    caplog: pytest.LogCaptureFixture,
    kind: type[EverstepError],
    change: dict[str, str],
    says: str,
) -> None:
    parts = {
        "user": "postgres",
        "host": "127.0.0.1",
        "port": str(server.port),
        "database": "postgres",
    } | change
    port = str(free_port()) if parts["port"] == "{free}" else parts["port"]
    url = f"postgresql://{parts['user']}:{SECRET}@{parts['host']}:{port}/{parts['database']}"
    with refusal(kind, caplog) as caught, Host(url):
        pass
    assert says in str(caught[0])


@pytest.mark.parametrize("limited", ["role", "database"])
def test_a_server_without_a_connection_left_is_busy_and_not_a_wrong_password(
    server: Server, caplog: pytest.LogCaptureFixture, limited: str
) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("create role crowded login connection limit 1")
        connection.execute("create database crowd owner crowded")
        connection.execute("alter database crowd connection limit 0")
        at = f"postgresql://crowded@127.0.0.1:{server.port}/{'postgres' if limited == 'role' else 'crowd'}"
        try:
            taken = psycopg.connect(at) if limited == "role" else nullcontext()
            with taken, refusal(StoreUnavailable, caplog) as caught, Host(at):
                pass
        finally:
            connection.execute("drop database crowd with (force)")
            connection.execute("drop role crowded")
    assert "no connection left" in str(caught[0])


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@127.0.0.1:notaport/db",
        f"postgresql://u:{SECRET}@127.0.0.1/db?no_such_option=1",
        f"postgresql://u:{SECRET}@127.0.0.1/db?schema=a;drop",
        f"postgresql://u:{SECRET}@127.0.0.1/db?schema=",
        f"postgresql://u:{SECRET}@127.0.0.1/db?pool=0",
        f"postgresql://u:{SECRET}@127.0.0.1/db?prepare=maybe",
        f"postgressql://u:{SECRET}@127.0.0.1/db?sslpassword={SECRET}",
        f"postgresql://u:{SECRET}@[::1/db",
        f"postgresql://u:12/{SECRET}@127.0.0.1/db",
        f"postgresql://u:12?{SECRET}@127.0.0.1/db",
        f"postgresql://u:12#{SECRET}@127.0.0.1/db",
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with refusal(BadRequest, caplog), Host(url):
        pass


def test_a_host_shows_its_url_without_the_password(postgres_url: str) -> None:
    with Host(postgres_url.replace("postgres@", f"postgres:{SECRET}@")) as host:
        assert "s3cr3t" not in host.url
        assert host.url.startswith("postgresql://postgres@127.0.0.1:")


def test_without_the_driver_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from everstep import Host\n"
        "try: Host('postgresql://u@127.0.0.1/db')\n"
        "except Exception as e: print(type(e).__name__, e)\n"
        "Host('memory:')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("BadRequest")
    assert "pip install 'everstep[postgres]'" in ran.stdout


def test_a_store_that_is_to_be_there_and_is_not_is_an_error(
    new_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with refusal(StoreMissing, caplog) as caught, Host(new_postgres_url, create=False):
        pass
    assert "no runs at" in str(caught[0])


def test_a_schema_of_another_program_is_left_alone(
    postgres_server: str, new_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = new_postgres_url.partition("schema=")[2]
    with psycopg.connect(postgres_server) as connection:
        connection.execute(f"create schema {schema} create table runs (a int)")
    with refusal(StoreError, caplog) as caught, Host(new_postgres_url):
        pass
    assert "another program" in str(caught[0])
    with psycopg.connect(postgres_server) as connection:
        query = "select count(*) from pg_class where relnamespace = to_regnamespace(%s)"
        assert connection.execute(query, (schema,)).fetchone() == (1,)


def test_a_schema_that_is_too_new_is_refused(
    postgres_server: str, new_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Host(new_postgres_url) as host:
        host.run(flow, {"a": 1}, run_id="r")
    schema = new_postgres_url.partition("schema=")[2]
    with psycopg.connect(postgres_server) as connection:
        connection.execute(f"insert into {schema}.everstep_schema (number, clients_from) values (9000, 9000)")
    with refusal(IncompatibleVersion, caplog) as caught, Host(new_postgres_url):
        pass
    assert "9000" in str(caught[0])


def test_a_schema_that_was_dropped_is_named(
    postgres_server: str, new_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Host(new_postgres_url) as host:
        with psycopg.connect(postgres_server) as connection:
            connection.execute(f"drop schema {new_postgres_url.partition('schema=')[2]} cascade")
        with refusal(StoreError, caplog) as caught:
            host.run(flow, {"a": 1})
    assert "were dropped" in str(caught[0])


def test_a_user_without_rights_is_told_which(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    url = server.url.replace("postgres@", "plain@")
    with refusal(StoreError, caplog) as caught, Host(f"{url}?schema=denied"):
        pass
    assert "permission denied" in str(caught[0])


def test_in_a_schema_made_for_them_owner_and_worker_need_no_right_to_make_one(server: Server) -> None:
    owner, worker = (
        server.url.replace("postgres@", f"{who}@") + "?schema=given" for who in ("holder", "hand")
    )
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("create role holder login")
        connection.execute("create role hand login")
        connection.execute("create schema given authorization holder")
        asked = [sys.executable, "-m", "everstep", "doctor", owner]
        assert subprocess.run(asked, capture_output=True, text=True).returncode == 0
        connection.execute("grant usage on schema given to hand")
        for what in (
            "select, insert, update, delete on all tables",
            "usage, select on all sequences",
            "execute on all functions",
        ):
            connection.execute(f"grant {what} in schema given to hand")
    with Host(worker) as host:
        host.start(flow, {"a": 1}, run_id="A1")
        assert host.work([flow], until_idle=True).completed == 1


def test_a_replica_is_read_and_not_written(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Host(postgres_url) as host:
        host.run(flow, {"a": 1}, run_id="kept")
    replica = postgres_url + "&options=-c%20default_transaction_read_only%3Don"
    with Host(replica) as host:
        assert host.info("kept").status is Status.COMPLETED
        with refusal(StoreNotWritable, caplog) as caught:
            host.run(flow, {"a": 1}, run_id="new")
    assert "read-only" in str(caught[0])
    with Host(postgres_url) as host:
        assert [info.run_id for info in host.runs()] == ["kept"]


FULL = """
create function {schema}.no_room() returns trigger language plpgsql as $$
begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
create trigger full_disk before insert on {schema}.checkpoints for each row when (new.sequence = 2)
execute function {schema}.no_room();
"""


def test_a_full_disk_stops_a_run_that_goes_on_once_there_is_room(
    postgres_server: str, new_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = new_postgres_url.partition("schema=")[2]
    Host(new_postgres_url).close()
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(FULL.format(schema=schema))
        with Host(new_postgres_url, clock=ManualClock(auto=True)) as host:
            with refusal(StoreNotWritable, caplog) as caught:
                host.run(flow, {"a": 1}, run_id="r")
            assert "is full" in str(caught[0])
            connection.execute(f"drop trigger full_disk on {schema}.checkpoints")
            assert host.run(flow, run_id="r")["c"] == 3


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """Mount a disk with hardly any room; only root can."""
    folder = Path("/tmp") / f"everstep-small-disk-{os.getpid()}"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True
    )
    try:
        if mounted.returncode != 0:
            pytest.skip("only root can mount a small disk; the test before this one does it with a trigger")
        (folder / "space").mkdir(mode=0o700)
        yield folder / "space"
    finally:
        subprocess.run(["umount", folder], capture_output=True)
        folder.rmdir()


def test_a_disk_that_is_really_full_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @node(output="wide")
    def widen(n: int) -> str:
        return os.urandom(n // 2).hex()

    wide = Flow("wide", [widen], durability="strong")
    with small_disk("6m") as space, private(PostgresServer) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"create tablespace small location '{space}'")
            connection.execute("alter role postgres set default_tablespace = 'small'")
        with Host(server.url, clock=ManualClock(auto=True)) as host:
            host.run(flow, {"a": 1}, run_id="small")
            with refusal(StoreNotWritable, caplog) as caught:
                for k in range(100):
                    host.run(wide, {"n": 400_000}, run_id=f"wide-{k}")
            assert "is full" in str(caught[0])
            done = [info.run_id for info in host.runs(status=Status.COMPLETED)]
            assert "small" in done
            assert all(host.run(wide, run_id=run_id)["wide"] for run_id in done if run_id != "small")


def test_a_command_to_copy_shows_no_password() -> None:
    for url in (f"postgresql://u:{SECRET}@h/db?schema=x", f"postgresql://u@h/db?password={SECRET}&schema=x"):
        shown = command_line("resume", "r", store=url)
        assert "s3cr3t" not in shown
        assert "schema=x" in shown
    assert command_line("runs", store="sqlite:///a:b@c.db") == "everstep runs --store sqlite:///a:b@c.db"


def test_the_doctor_says_what_the_server_can_lose(postgres_url: str) -> None:
    with Host(postgres_url) as host:
        found = host.storage.doctor()
        assert found.server.startswith("PostgreSQL ")
        assert found.can_write and found.is_well and found.skew_seconds is not None
        told = " ".join(finding.text for finding in found.findings)
        assert ("fsync is off" in told) or ("no crash loses" in told)
        assert host.fleet.workers() == []
    lazy = postgres_url + "&options=-c%20synchronous_commit%3Doff%20-c%20default_transaction_read_only%3Don"
    with Host(lazy) as host:
        found = host.storage.doctor()
        assert not found.is_well and not found.can_write
        assert any("read-only" in finding.text for finding in found.findings)
