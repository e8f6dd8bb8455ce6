"""A schedule that goes on for long stays readable and costs no more than at first."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from everstep import Flow, Host, node
from everstep.errors import InputsDiffer
from everstep.runtime.operations.schedules import flow
from everstep.testing import ManualClock


@node(output="at")
def note(due: datetime) -> str:
    return f"{due:%H:%M}"


NOTING = Flow("noting", [note])
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def pass_minutes(host: Host, clock: ManualClock, many: int) -> None:
    for _ in range(many):
        clock.advance(60)
        host.work([NOTING], until_idle=True)


@pytest.mark.servers
def test_the_chain_of_a_schedule_does_not_grow_for_ever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "KEPT", 30)
    monkeypatch.setattr(flow, "TIDIES", 10)
    clock = ManualClock(BEGAN)
    made = {"cron": "* * * * *", "time_input": "due", "overlap": "allow", "tags": ["dense"]}
    with Host(url, clock=clock) as host:
        host.schedules.create(NOTING, "minutely", **made)  # type: ignore[arg-type]
        pass_minutes(host, clock, 60)
        told = host.info("minutely")
        assert told.checkpoints > 180 and told.trimmed_before > 60
        assert told.checkpoints - told.trimmed_before < 130
        assert host.schedules.get("minutely").started == 60 == len(host.runs(flow="noting", limit=100))
        assert host.storage.verify("minutely")[0].is_sound
        host.schedules.create(NOTING, "minutely", **made)  # type: ignore[arg-type]  # the same, still
        with pytest.raises(InputsDiffer):
            host.schedules.create(NOTING, "minutely", **{**made, "cron": "@hourly"})  # type: ignore[arg-type]
        host.schedules.backfill(
            "minutely", BEGAN + timedelta(minutes=1), BEGAN + timedelta(minutes=60), at_once=5
        )
        pass_minutes(host, clock, 1)
        assert len(host.runs(flow="noting", limit=100)) == 61  # all were there


def test_one_that_is_pinned_or_has_a_fork_is_left_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "KEPT", 10)
    monkeypatch.setattr(flow, "TIDIES", 5)
    clock = ManualClock(BEGAN)
    with Host(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
        host.schedules.create(NOTING, "minutely", cron="* * * * *", time_input="due", overlap="allow")
        host.retention.pin("minutely", "an audit")
        pass_minutes(host, clock, 40)
        assert host.info("minutely").trimmed_before == 0 and host.schedules.get("minutely").started == 40
        host.retention.unpin("minutely")
        pass_minutes(host, clock, 10)
        assert host.info("minutely").trimmed_before > 50


@pytest.mark.soak
def test_a_week_of_minutes_costs_at_its_end_what_it_cost_at_first(tmp_path: Path) -> None:
    """A week is 10,080 times. What is counted is what the schedule keeps, and how long a time takes."""
    clock, took, sizes = ManualClock(BEGAN), [], []
    path = tmp_path / "runs.db"
    with Host(f"sqlite:///{path}", clock=clock) as host:
        host.schedules.create(NOTING, "minutely", cron="* * * * *", time_input="due", overlap="allow")
        for _ in range(21):
            begun = time.perf_counter()
            pass_minutes(host, clock, 480)
            took.append((time.perf_counter() - begun) / 480 * 1000)
            told = host.info("minutely")
            sizes.append(told.checkpoints - told.trimmed_before)
            assert sizes[-1] < flow.KEPT + 3 * flow.TIDIES * 3 + 200
        begun = time.perf_counter()
        schedule = host.schedules.get("minutely")
        looked = (time.perf_counter() - begun) * 1000
        assert schedule.started == 21 * 480 and schedule.missed == schedule.skipped == 0
        assert host.storage.verify("minutely")[0].is_sound
    print(
        f"ms a time, by 480: {took[0]:.1f} at first, {took[1]:.1f}, {took[-1]:.1f} in the end; kept {sizes}; "
        f"one look {looked:.1f} ms; {path.stat().st_size / 10_080:.0f} bytes a time with its run"
    )
    assert min(took[-3:]) < 3 * max(took[1:4])
