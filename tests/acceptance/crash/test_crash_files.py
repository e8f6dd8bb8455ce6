"""The crash matrix on files: kill a run before and after every object it writes, and find the same end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.crash.judge import judge, judge_end, judge_keys
from tests.acceptance.crash.lives import FILES, points_of
from tests.acceptance.crash.test_crash_matrix import UNHEARD, report
from tests.acceptance.crash.test_crash_redis import marked

DEFAULT = ("retry", "large", "cancelled", "waits")
"""One of each kind of write and shape; the others run with the soak tests."""
OBJECTS = {"create", "mark", "remove"}


@pytest.mark.parametrize("name", marked(DEFAULT))
def test_a_run_killed_around_any_object_ends_as_if_it_had_not_been(name: str, quick_folder: Path) -> None:
    deep = "every" if name == "small" else "none"
    cases = report("matrix", name, quick_folder, deep, store=FILES)
    assert {point.split()[1] for point in points_of(cases[0][0])} >= OBJECTS
    judge(name, cases)


@pytest.mark.parametrize("name", marked(("retry", "waits"), UNHEARD))
def test_an_object_whose_reply_was_lost_is_not_taken_for_a_conflict(name: str, quick_folder: Path) -> None:
    [whole], *cases = report("replies", name, quick_folder, store=FILES)
    assert whole["exit"] == 0, whole["error"]
    assert cases
    for [life] in cases:
        assert life["at"] in points_of(life)
        judge_end(life, whole, life["at"])
        judge_keys([life], life["at"])
