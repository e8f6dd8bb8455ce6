"""Kill the flows in `examples` with SIGKILL at every node, resume them, and find the same trace and state."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.acceptance.crash.flows.phases import EXAMPLES
from tests.acceptance.crash.judge import judge_deaths, judge_end, judge_keys, judge_resume
from tests.acceptance.crash.test_crash_matrix import report


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_killed_at_any_node_ends_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    [whole], *cases = report("nodes", name, tmp_path)
    assert whole["exit"] == 0, whole["error"]
    visited = {step[0] for chain in whole["chains"] for c in chain for step in c["steps"]}
    killed = {case[0]["at"].split()[2] for case in cases}
    assert len(killed) > 15 and killed <= visited
    for case in cases:
        where = f"{name}, killed {case[0]['at']}"
        judge_deaths(case, where)
        judge_end(case[-1], whole, where)
        judge_keys(case, where)
        for before, after in pairwise(case):
            judge_resume(EXAMPLES[name], before, after, where)
