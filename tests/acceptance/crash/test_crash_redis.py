"""The crash matrix on Redis: kill a run at every point it has, lose every reply, and find the same end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.acceptance.crash.judge import judge, judge_end, judge_keys
from tests.acceptance.crash.lives import SCENARIOS, part_of, points_of
from tests.acceptance.crash.test_crash_matrix import UNHEARD, report

DEFAULT = ("retry", "cancelled")
"""One of each kind of write and shape; the others run with the soak tests."""


def marked(names: tuple[str, ...], never: tuple[str, ...] = ()) -> list[object]:
    """Return these scenarios, and the others for those who have time."""
    here = [name for name, scenario in SCENARIOS.items() if not scenario.moves_clock]
    others = [name for name in here if name not in (*names, *never)]
    return [*names, *(pytest.param(name, marks=pytest.mark.soak) for name in others)]


@pytest.fixture
def server(redis_server: str, tmp_path: Path) -> Iterator[str]:
    yield f"{redis_server}?"
    with redis.Redis.from_url(redis_server) as client:
        for key in client.scan_iter(f"{{{part_of(tmp_path)}_*", count=1000):
            client.delete(key)


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
