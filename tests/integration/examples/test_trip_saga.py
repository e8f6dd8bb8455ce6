"""The saga among the examples, killed and finished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everstep import Host, Status
from everstep.results import RunResult
from everstep.testing import ManualClock
from everstep.testing.killing import Killer
from tests.integration.examples.lives import example, lives

pytestmark = pytest.mark.stores("memory")


def go(ledger: Path, towns: list[str], counts: Killer | None = None, dies: int = 0) -> RunResult:
    """Run the trip, in another process once the first has died."""

    def main(host: Host, _: ManualClock) -> RunResult:
        trip = example("trip_saga")
        vars(trip)["LEDGER"] = ledger
        return host.run(trip.flow, {"towns": towns}, run_id="trip")

    return lives(main, dies, counts)


def noted(ledger: Path) -> list[str]:
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    return [f"{line['what']}: {line['about']}" for line in lines]


def test_a_trip_that_can_be_paid_stays_booked(tmp_path: Path) -> None:
    result = go(tmp_path / "ledger", ["Ulm", "Kiel"])
    assert result["receipt"] == "400 paid for Ulm - Kiel"
    assert sorted(noted(tmp_path / "ledger")) == [
        "charged: 400",
        "room booked: room 30U in Ulm",
        "room booked: room 40K in Kiel",
        "seats booked: Ulm - Kiel",
    ]


def test_a_trip_that_cannot_be_paid_is_cancelled_whole_wherever_its_process_dies(tmp_path: Path) -> None:
    towns = ["Ulm", "Kiel", "Bonn"]
    whole = Killer()
    go(tmp_path / "whole", towns, whole)
    for at in range(1, len(whole.points), 5):
        result = go(tmp_path / f"{at}", towns, dies=at)
        assert result.status is Status.FAILED
        lines = noted(tmp_path / f"{at}")
        booked = [line for line in lines if "booked" in line]
        assert sorted(line.replace("cancelled", "booked") for line in lines[4:]) == sorted(booked)
        assert len(lines) == 2 * len(booked) == 8
