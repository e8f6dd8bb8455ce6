"""The crash matrix on PostgreSQL: kill a run at every point it has, lose every reply, find the same end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.crash.judge import judge, judge_end, judge_keys
from tests.acceptance.crash.lives import part_of, points_of
from tests.acceptance.crash.test_crash_matrix import UNHEARD, report
from tests.acceptance.crash.test_crash_redis import marked

DEFAULT = ("before-effects", "waits")
"""One of each kind of write and shape; the others run with the soak tests."""


@pytest.fixture
def server(postgres_server: str, tmp_path: Path) -> Iterator[str]:
    yield f"{postgres_server}{'&' if '?' in postgres_server else '?'}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        query = "select nspname from pg_namespace where starts_with(nspname, %s)"
        for (schema,) in connection.execute(query, (part_of(tmp_path),)).fetchall():
            connection.execute(f'drop schema "{schema}" cascade')


@pytest.mark.parametrize("name", marked(DEFAULT))
def test_a_run_killed_at_any_point_ends_as_if_it_had_not_been(name: str, tmp_path: Path, server: str) -> None:
    deep = "every" if name == "small" else "none"
    judge(name, report("matrix", name, tmp_path, deep, store=server))


@pytest.mark.parametrize("name", marked(("retry", "waits"), UNHEARD))
def test_a_write_whose_reply_was_lost_is_not_taken_for_a_conflict(
    name: str, tmp_path: Path, server: str
) -> None:
    [whole], *cases = report("replies", name, tmp_path, store=server)
    assert whole["exit"] == 0, whole["error"]
    assert cases
    for [life] in cases:
        assert life["at"] in points_of(life)
        judge_end(life, whole, life["at"])
        judge_keys([life], life["at"])
