"""What the tests rely on when they ask for a real server."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.running import PATIENCE, Server, private, shared


class Absent(PostgresServer):
    name = "absent"
    variable = "EVERSTEP_TEST_ABSENT"
    wheel = "no-such-wheel"

    @classmethod
    def find(cls) -> Path | None:
        return None


def test_the_server_of_a_session_is_one_for_all(postgres_server: str, server_session: Path) -> None:
    with shared(PostgresServer, server_session) as again:
        assert again == postgres_server


def test_a_server_that_no_one_uses_any_more_ends(tmp_path: Path) -> None:
    with shared(PostgresServer, tmp_path) as url, psycopg.connect(url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    ends = time.monotonic() + PATIENCE
    while (tmp_path / "postgres.url").exists() and time.monotonic() < ends:
        time.sleep(0.01)
    with shared(PostgresServer, tmp_path) as second, psycopg.connect(second):
        assert second != url


def test_a_killed_server_starts_again_with_what_it_had() -> None:
    with private(PostgresServer) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("create table kept as select 1 as one")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url)
        server.start()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("select one from kept").fetchone() == (1,)


@pytest.mark.parametrize("kind", [Absent])
def test_a_missing_server_skips_the_test_and_fails_it_in_ci(
    kind: type[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="pip install no-such-wheel"), shared(kind, tmp_path):
        pass
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="EVERSTEP_TEST_ABSENT"), shared(kind, tmp_path):
        pass


def test_a_server_named_in_the_environment_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Absent.variable, "postgresql://elsewhere/db")
    with shared(Absent, tmp_path) as url:
        assert url == "postgresql://elsewhere/db"
