"""The crash matrix on other stores than SQLite: kill at every point, lose every reply, find the same end.

On files the points are around every object that is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from tests.acceptance.crash.judge import judge, judge_replies
from tests.acceptance.crash.lives import FILES, SCENARIOS, part_of, points_of
from tests.acceptance.crash.test_crash_matrix import UNHEARD, report

KILLED = {
    "files": ("retry", "large", "cancelled", "waits", "undone"),
    "postgres": ("before-effects", "waits", "steps-around-waits"),
    "redis": ("retry", "cancelled", "steps-held-by-a-budget"),
    "s3": ("large",),
}
"""By default one of each kind of write and shape on each store; the others run with the soak tests."""
UNREPLIED = {
    "files": ("retry", "waits"),
    "postgres": ("retry", "waits"),
    "redis": ("retry", "waits"),
    "s3": ("retry",),
}
"""The same for writes whose replies are lost."""
SHAPES = (
    *("steps", "steps-in-a-loop", "steps-at-once", "steps-in-items", "steps-around-waits", "caught-steps"),
    *("steps-kept-by-a-retry", "steps-held-by-a-budget", "signals-between-steps"),
    *("undone-calls", "undone-when-cancelled"),
)
"""What a node does with durable calls, and what undoes it: by default each is killed at a few points, that
follow from a seed."""
SEED = os.environ.get("EVERSTEP_SEED", "0")
OBJECTS = {"create", "mark", "remove"}


def marked(
    names: tuple[str, ...], never: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[pytest.Mark, ...]]]:
    """Yield these scenarios, and with the mark of a soak test the others."""
    yield from ((name, ()) for name in names)
    here = [name for name, scenario in SCENARIOS.items() if not scenario.moves_clock]
    yield from ((name, (pytest.mark.soak.mark,)) for name in here if name not in (*names, *never))


def on_each(chosen: dict[str, tuple[str, ...]], never: tuple[str, ...] = ()) -> list[object]:
    """Return every store with every scenario that can be killed on it."""
    return [
        pytest.param(store, name, marks=marks, id=f"{store}-{name}")
        for store, names in chosen.items()
        for name, marks in marked(names, never)
    ]


@pytest.fixture
def server(request: pytest.FixtureRequest, store: str, quick_folder: Path) -> Iterator[str]:
    """The URL of a store, up to where its last option would begin; afterwards it is as it was."""
    if store == "files":
        yield FILES
        return
    url: str = request.getfixturevalue(f"{store}_server")
    if store == "postgres":
        with _emptied_postgres(url, quick_folder):
            yield f"{url}{'&' if '?' in url else '?'}"
    elif store == "redis":
        with _emptied_redis(url, quick_folder):
            yield f"{url}?"
    else:
        yield url


@contextmanager
def _emptied_postgres(url: str, folder: Path) -> Iterator[None]:
    yield
    with psycopg.connect(url, autocommit=True) as connection:
        query = "select nspname from pg_namespace where starts_with(nspname, %s)"
        for (schema,) in connection.execute(query, (part_of(folder),)).fetchall():
            connection.execute(f'drop schema "{schema}" cascade')


@contextmanager
def _emptied_redis(url: str, folder: Path) -> Iterator[None]:
    yield
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{{{part_of(folder)}_*", count=1000):
            client.delete(key)


@pytest.mark.parametrize(("store", "name"), on_each(KILLED))
def test_a_run_killed_at_any_point_ends_as_if_it_had_not_been(
    store: str, name: str, quick_folder: Path, server: str
) -> None:
    cases = report("matrix", name, quick_folder, "every" if name == "small" else "none", store=server)
    if store == "files":
        assert {point.split()[1] for point in points_of(cases[0][0])} >= OBJECTS
    judge(name, cases)


@pytest.mark.parametrize(("store", "name"), on_each(UNREPLIED, UNHEARD))
def test_a_write_whose_reply_was_lost_is_not_taken_for_a_conflict(
    name: str, quick_folder: Path, server: str
) -> None:
    judge_replies(name, report("replies", name, quick_folder, store=server))


@pytest.mark.parametrize(
    ("store", "name"),
    [
        pytest.param(store, name, id=f"{store}-{name}")
        for store in ("postgres", "redis")
        for name in SHAPES
        if name not in KILLED[store]
    ],
)
def test_no_recorded_call_is_made_again_by_a_run_killed_at_some_points(
    store: str, name: str, quick_folder: Path, server: str
) -> None:
    judge(name, report("some", name, quick_folder, f"{SEED} {store}", "2", store=server), is_partial=True)
