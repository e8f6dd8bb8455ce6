"""The example of schedules, killed and finished."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from everstep import Host
from everstep.testing import ManualClock
from everstep.testing.killing import Killer
from tests.integration.examples.lives import example, lives

pytestmark = pytest.mark.stores("memory")
EVENING = datetime(2026, 3, 28, 20, tzinfo=UTC)
"""Before the night in which the clocks of Europe jump over an hour."""
REPORTS = [
    "berlin, 29 Mar 01:00 UTC",  # half past two is jumped over there: it is made right after that
    "berlin, 30 Mar 00:30 UTC",
    "lisbon, 29 Mar 01:30 UTC",  # there the clock goes from one to two
    "lisbon, 30 Mar 01:30 UTC",
]


def two_nights(shelf: Path, dies: int = 0, counts: Killer | None = None) -> None:
    def main(host: Host, clock: ManualClock) -> None:
        reports = example("nightly_reports")
        vars(reports)["SHELF"] = shelf
        host.schedules.apply([reports.flow])
        while clock.now() < datetime(2026, 3, 30, 9, tzinfo=UTC):
            host.work([reports.flow], until_idle=True)
            clock.advance(1800)

    lives(main, dies, counts, ManualClock(EVENING, auto=True))


def test_each_night_has_its_report_wherever_a_process_dies(tmp_path: Path) -> None:
    whole = Killer()
    two_nights(tmp_path / "whole", counts=whole)
    assert len(whole.points) > 30
    for name in ("whole", *range(1, len(whole.points), 13)):
        if name != "whole":
            two_nights(tmp_path / f"{name}", dies=int(name))
        lines = [json.loads(line) for line in (tmp_path / f"{name}").read_text().splitlines()]
        assert sorted(line["report"] for line in lines) == REPORTS
