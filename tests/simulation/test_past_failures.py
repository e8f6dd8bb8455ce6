"""Schedules that once broke a promise break none any more, and still reach the points where they did."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.faults import parse
from everstep.testing.simulation.story import told
from tests.simulation.flows import SUBJECTS

FAILURES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("failures.toml").read_text())[
    "failure"
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: "; ".join(failure["decisions"]))
def test_a_schedule_that_failed_once_does_not_fail_again(failure: dict[str, Any]) -> None:
    decisions = [parse(said) for said in failure["decisions"]]
    explorer = Explorer(SUBJECTS[failure["subject"]].trial(failure["store"]))
    tried = explorer.try_chosen(decisions, seed=failure.get("seed", 0))
    explorer.close()
    assert not tried.broken, told(tried)
    missed = set(decisions) - set(tried.taken)
    assert not missed, (
        f"{missed} is not reached any more: give the schedule as it is today, or say why it is gone"
    )
