"""The example of reminders and escalation, killed and finished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everstep import Host
from everstep.testing import ManualClock
from everstep.testing.killing import Killer
from tests.integration.examples.lives import example, lives

pytestmark = pytest.mark.stores("memory")
ASKED = [
    ("question", "desk"),
    ("reminder", "desk"),
    ("reminder", "desk"),
    ("escalation", "lead"),
    ("reminder", "desk"),
    ("reminder", "desk"),
    ("escalation", "lead"),
    ("escalation", "head"),
]


def six_days(post: Path, dies: int = 0, counts: Killer | None = None) -> str:
    expense = example("expense_escalation")
    vars(expense)["POST"] = post

    def main(host: Host, clock: ManualClock) -> str:
        for _ in range(2 * 6):
            expense.ask(host)
            clock.advance(12 * 3600)
        return str(host.state("E1")["said"])

    return lives(main, dies, counts, notifiers=expense.PEOPLE, key="a key that is long enough")


def test_a_question_is_asked_again_escalated_and_expires_wherever_a_process_dies(tmp_path: Path) -> None:
    whole = Killer()
    assert six_days(tmp_path / "whole", counts=whole) == "250 is not paid"
    assert sorted(asked(tmp_path / "whole")) == sorted(ASKED)
    for at in range(1, len(whole.points), 5):
        assert six_days(tmp_path / f"{at}", dies=at) == "250 is not paid"
        assert sorted(asked(tmp_path / f"{at}")) == sorted(ASKED)


def asked(post: Path) -> list[tuple[str, str]]:
    """Return who was asked in which words, each letter once however often it came."""
    letters = {line["id"]: line for line in map(json.loads, post.read_text().splitlines())}
    return [(line["of"], line["to"]) for line in letters.values()]
