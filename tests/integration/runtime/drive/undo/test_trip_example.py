"""The saga among the examples, killed and finished."""

from __future__ import annotations

import importlib.util
import json
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from everstep import Host, Status
from everstep.registry import Opened
from everstep.results import RunResult
from everstep.stores.memory.store import MemoryData, MemoryStore
from everstep.testing import ManualClock, killing
from everstep.testing.killing import Crashed, Killer, crash

pytestmark = pytest.mark.stores("memory")
FILE = Path(__file__).parents[5] / "examples" / "trip_saga.py"


def trip() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trip_saga", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def go(ledger: Path, towns: list[str], killer: Killer | None = None, dies: int = 0) -> RunResult:
    """Run the trip, in another process once the first has died."""
    example, data, clock = trip(), MemoryData(), ManualClock(auto=True)
    vars(example)["LEDGER"] = ledger
    for act in (Killer(dies, act=crash) if dies else killer, None):
        store = Opened(MemoryStore(clock, data), None, "memory:")
        try:
            with Host(store if act is None else killing(store, by=act), clock=clock) as host:
                return host.run(example.flow, {"towns": towns}, run_id="trip")
        except Crashed:
            clock.advance(timedelta(minutes=5))
    raise AssertionError("it died twice")


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
