"""The crash matrix on S3: kill a run at every point it has, lose every reply, and find the same end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.crash.judge import judge, judge_end, judge_keys
from tests.acceptance.crash.lives import points_of
from tests.acceptance.crash.test_crash_matrix import UNHEARD, report
from tests.acceptance.crash.test_crash_redis import marked

DEFAULT = ("large",)
"""Artifacts, and every kind of mark; the others run with the soak tests."""


@pytest.mark.parametrize("name", marked(DEFAULT))
def test_a_run_killed_at_any_point_ends_as_if_it_had_not_been(
    name: str, tmp_path: Path, s3_server: str
) -> None:
    deep = "every" if name == "small" else "none"
    judge(name, report("matrix", name, tmp_path, deep, store=s3_server))


@pytest.mark.parametrize("name", marked(("retry",), UNHEARD))
def test_a_write_whose_reply_was_lost_is_not_taken_for_a_conflict(
    name: str, tmp_path: Path, s3_server: str
) -> None:
    [whole], *cases = report("replies", name, tmp_path, store=s3_server)
    assert whole["exit"] == 0, whole["error"]
    assert cases
    for [life] in cases:
        assert life["at"] in points_of(life)
        judge_end(life, whole, life["at"])
        judge_keys([life], life["at"])
