"""Schedules that once broke a promise break none any more, and still reach the points where they did."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from everstep.testing.simulation.faults import parse
from everstep.testing.simulation.story import told
from tests.simulation.kinds import KINDS, explorer_of
from tests.simulation.soaking import entry

FAILURES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("failures.toml").read_text())[
    "failure"
]


def _name(failure: dict[str, Any]) -> str:
    return f"{failure['kind']} {failure.get('seed', '')}: {'; '.join(failure['decisions'])}"


@pytest.mark.parametrize("failure", FAILURES, ids=_name)
def test_a_schedule_that_failed_once_does_not_fail_again(failure: dict[str, Any]) -> None:
    decisions = [parse(said) for said in failure["decisions"]]
    explorer = explorer_of(failure["kind"], failure)
    try:
        assert not explorer.whole.broken, told(explorer.whole)
        tried = explorer.try_chosen(decisions, failure.get("drawn"))
    finally:
        explorer.close()
    assert not tried.broken, told(tried)
    missed = set(decisions) - set(tried.taken)
    assert not missed, (
        f"{missed} is not reached any more: give the schedule as it is today, or say why it is gone"
    )


def test_failures_of_every_kind_can_be_kept() -> None:
    """What a soak prints is what is read here."""
    said = {"subject": "five", "seed": 3, "store": "local"}
    for kind in KINDS:
        [read] = tomllib.loads(entry(kind, said, 7, ["app.1 after put 3: crash"]))["failure"]
        assert read == {
            "story": "",
            "kind": kind,
            **said,
            "drawn": 7,
            "decisions": ["app.1 after put 3: crash"],
        }
