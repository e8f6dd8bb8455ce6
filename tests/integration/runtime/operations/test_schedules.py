"""Schedules: runs that are started by the clock, each once, whatever dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Flow, Host, Status, node, wait
from everstep.errors import BadRequest, InputError, InputsDiffer, RunNotFound
from everstep.registry import open_store
from everstep.runtime.operations.schedules.deciding import run_for
from everstep.runtime.operations.schedules.flow import schedule_flow
from everstep.runtime.workers.built_in import schedules_of
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing


@node(output="report")
def write(at: datetime, region: str = "eu") -> str:
    return f"{region} {at:%Y-%m-%dT%H:%MZ}"


REPORT = Flow("report", [write])
ASKING = Flow("asking", [wait.approval("sign")])
HOUR = timedelta(hours=1)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def clock_at(*parts: int) -> ManualClock:
    return ManualClock(utc(*parts))


@pytest.fixture
def clock() -> ManualClock:
    return clock_at(2026, 3, 28, 22)


@pytest.fixture
def host(url: str, clock: ManualClock) -> Iterator[Host]:
    with Host(url, clock=clock) as opened:
        yield opened


def pass_time(host: Host, clock: ManualClock, flow: Flow, hours: int, step: timedelta = HOUR) -> None:
    """Let time pass, with a worker that looks again and again."""
    for _ in range(int(timedelta(hours=hours) / step)):
        clock.advance(step.total_seconds())
        host.work([flow], until_idle=True)


def reports(host: Host) -> list[str]:
    return sorted(host.state(one.run_id)["report"] for one in host.runs(flow="report"))


@pytest.mark.servers
def test_each_time_starts_a_run_over_a_spring_gap(host: Host, clock: ManualClock) -> None:
    host.schedules.create(
        REPORT, "nightly", cron="30 2 * * *", zone="Europe/Berlin", time_input="at", inputs={"region": "de"}
    )
    host.work([REPORT], until_idle=True)
    assert host.schedules.get("nightly").next == utc(2026, 3, 29, 1)
    pass_time(host, clock, REPORT, 48)
    assert reports(host) == ["de 2026-03-29T01:00Z", "de 2026-03-30T00:30Z"]
    told = host.schedules.get("nightly")
    assert (told.started, told.missed, told.skipped, told.refused) == (2, 0, 0, 0)
    assert (told.last, told.next) == (utc(2026, 3, 30, 0, 30), utc(2026, 3, 31, 0, 30))
    [first, second] = host.runs(started_by="nightly")
    assert host.info(first.run_id).tags == {"schedule": "nightly"} and first.starter_run_id == "nightly"
    assert second.run_id == run_for("nightly", utc(2026, 3, 29, 1))
    assert [one.schedule_id for one in host.schedules.list()] == ["nightly"]
    assert [one.schedule_id for one in host.schedules.list("report")] == ["nightly"]
    assert host.schedules.list("other") == []


def test_an_interval_counts_from_when_it_was_made(host: Host, clock: ManualClock) -> None:
    host.schedules.create(REPORT, "often", every="90m", time_input="at")
    assert host.schedules.times("often", 2) == [utc(2026, 3, 28, 23, 30), utc(2026, 3, 29, 1)]
    pass_time(host, clock, REPORT, 6, timedelta(minutes=30))
    assert len(reports(host)) == 4


def test_workers_know_the_flow_by_its_hash() -> None:
    for name in ("report", "x" * 128):
        made = schedule_flow(None, None, name)  # type: ignore[arg-type]
        assert (made.name, made.plan.hash) == schedules_of(name).key, "workers would not claim its runs"


def test_a_time_that_comes_too_late_is_missed(host: Host, clock: ManualClock) -> None:
    host.schedules.create(
        REPORT, "hourly", cron="0 * * * *", time_input="at", catch_up="150m", overlap="allow"
    )
    host.work([REPORT], until_idle=True)
    clock.advance(86400)
    host.work([REPORT], until_idle=True)
    assert reports(host) == [f"eu 2026-03-29T{hour}:00Z" for hour in (20, 21, 22)]
    assert host.schedules.get("hourly").missed == 21


@pytest.mark.parametrize(
    ("overlap", "runs", "skipped", "pending", "cancelled"),
    [("skip", 1, 2, 0, 0), ("queue", 1, 0, 2, 0), ("replace", 3, 0, 0, 2), ("allow", 3, 0, 0, 0)],
)
def test_what_becomes_of_a_time_while_the_run_before_goes_on(
    host: Host, clock: ManualClock, overlap: str, runs: int, skipped: int, pending: int, cancelled: int
) -> None:
    host.schedules.create(ASKING, "hourly", cron="0 * * * *", overlap=overlap)
    pass_time(host, clock, ASKING, 3)
    told = host.schedules.get("hourly")
    assert (told.started, told.skipped, told.pending) == (runs, skipped, pending)
    assert len(host.runs(flow="asking", status="cancelled")) == cancelled
    if overlap == "queue":
        for left in (1, 0):
            [waiting] = host.waits(kind="approval")
            host.answer(waiting.id, {"approved": True})
            for _ in range(2):  # to be completed, and to be looked at
                clock.advance(40)
                host.work([ASKING], until_idle=True)
            assert host.schedules.get("hourly").pending == left
        times = [one.run_id for one in reversed(host.runs(started_by="hourly"))]
        assert times == [run_for("hourly", utc(2026, 3, 28, 23) + k * HOUR) for k in range(3)]


def test_a_paused_schedule_starts_nothing_and_goes_on(host: Host, clock: ManualClock) -> None:
    host.schedules.create(REPORT, "hourly", cron="0 * * * *", time_input="at")
    host.work([REPORT], until_idle=True)
    assert host.schedules.pause("hourly", by="ann").paused
    pass_time(host, clock, REPORT, 5)
    assert reports(host) == [] and host.schedules.get("hourly").next is None
    host.schedules.unpause("hourly", by="ann")
    clock.advance(60)
    host.work([REPORT], until_idle=True)
    pass_time(host, clock, REPORT, 1)
    assert reports(host) == ["eu 2026-03-29T03:00Z", "eu 2026-03-29T04:00Z"]
    assert [(row.act, row.by) for row in host.fleet.audit("hourly")] == [("pause", "ann"), ("unpause", "ann")]


def test_a_run_that_is_asked_for_is_started_once(host: Host, clock: ManualClock) -> None:
    host.schedules.create(REPORT, "yearly", cron="@yearly", time_input="at")
    asked = host.schedules.run_now("yearly", id="please")
    assert host.schedules.run_now("yearly", id="please") == asked
    host.work([REPORT], until_idle=True)
    assert host.info(asked).status == Status.COMPLETED
    assert reports(host) == ["eu 2026-03-28T22:00Z"]


def test_it_is_changed_and_deleted(host: Host, clock: ManualClock) -> None:
    host.schedules.create(REPORT, "it", cron="0 * * * *", time_input="at")
    pass_time(host, clock, REPORT, 1)
    host.schedules.change("it", every="2h", inputs={"region": "us"})
    host.work([REPORT], until_idle=True)
    told = host.schedules.get("it")
    assert (told.cron, told.every, told.next) == (None, "2h", utc(2026, 3, 29, 0))
    pass_time(host, clock, REPORT, 1)
    assert reports(host)[-1] == "us 2026-03-29T00:00Z"
    host.schedules.delete("it", by="ann")
    assert host.schedules.list() == [] and len(host.runs(flow="report")) == 2
    with pytest.raises(RunNotFound):
        host.schedules.get("it")
    pass_time(host, clock, REPORT, 3)
    assert len(reports(host)) == 2
    host.schedules.create(REPORT, "it", cron="0 * * * *", time_input="at")
    pass_time(host, clock, REPORT, 1)
    assert len(reports(host)) == 3


def test_times_gone_by_are_run_in_order_and_marked(host: Host, clock: ManualClock) -> None:
    host.schedules.create(REPORT, "hourly", cron="0 * * * *", time_input="at")
    pass_time(host, clock, REPORT, 1)
    host.schedules.backfill("hourly", "2026-03-28T18:00:00Z", "2026-03-28T23:00:00Z", at_most=10)
    for _ in range(12):
        clock.advance(31)
        host.work([REPORT], until_idle=True)
    runs = [
        one for one in reversed(host.runs(flow="report")) if "backfill" in (host.info(one.run_id).tags or {})
    ]
    assert [host.state(one.run_id)["report"] for one in runs] == [
        f"eu 2026-03-28T{h}:00Z" for h in range(18, 23)
    ]
    assert host.schedules.get("hourly").backfill is None
    host.schedules.backfill("hourly", "2026-03-28T18:00:00Z", "2026-03-28T23:00:00Z")
    host.work([REPORT], until_idle=True)
    assert len(host.runs(flow="report")) == 6


def test_a_backfill_is_bounded_and_can_be_stopped(host: Host, clock: ManualClock) -> None:
    host.schedules.create(ASKING, "hourly", cron="0 12 * * *", overlap="allow")
    host.schedules.backfill("hourly", "2026-01-01", "2026-03-01", at_most=30, at_once=4)
    host.work([ASKING], until_idle=True)
    told = host.schedules.get("hourly").backfill
    assert told is not None and (told.started, told.left) == (4, 26)
    host.schedules.stop_backfill("hourly")
    for waiting in host.waits(kind="approval"):
        host.answer(waiting.id, {"approved": True})
    clock.advance(60)
    host.work([ASKING], until_idle=True)
    assert host.schedules.get("hourly").backfill is None and len(host.runs(flow="asking")) == 4
    host.schedules.backfill("hourly", "2026-01-01", "2026-03-01", at_most=6, at_once=10)
    host.work([ASKING], until_idle=True)
    assert len(host.runs(flow="asking")) == 6  # two more, as four were there


def test_starts_are_put_off_by_the_same_for_the_same_time(host: Host, clock: ManualClock) -> None:
    host.schedules.create(REPORT, "hourly", cron="0 * * * *", time_input="at", jitter="30m")
    host.work([REPORT], until_idle=True)
    [due] = [one.due_at for one in host.waits(kind="signal")]
    assert due is not None and timedelta(0) < due - utc(2026, 3, 28, 23) < timedelta(minutes=30)
    clock.advance((due - clock.now()).total_seconds() - 1)
    host.work([REPORT], until_idle=True)
    assert reports(host) == []
    clock.advance(1)
    host.work([REPORT], until_idle=True)
    assert reports(host) == ["eu 2026-03-28T23:00Z"]


def test_inputs_that_its_flow_does_not_take_are_said(host: Host, clock: ManualClock) -> None:
    with pytest.raises(InputError, match="'at' is missing"):
        host.schedules.create(REPORT, "wrong", cron="@hourly")
    host.schedules.create("report", "wrong", cron="@hourly")
    pass_time(host, clock, REPORT, 2)
    told = host.schedules.get("wrong")
    assert told.refused == 2 and "'at' is missing" in told.said and told.next is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "either a cron expression or an interval"),
        ({"cron": "@daily", "every": "1h"}, "either a cron expression or an interval"),
        ({"cron": "nonsense"}, "no cron expression"),
        ({"cron": "@daily", "zone": "Mars/Base"}, "no time zone"),
        ({"every": "10ms"}, "Give a second or more"),
        ({"every": "1h", "zone": "Europe/Berlin"}, "Leave zone= out"),
        ({"every": "1h", "overlap": "both"}, "Use one of skip, queue, replace, allow"),
        ({"every": "1h", "priority": "high"}, "priority is"),
        ({"every": "1h", "inputs": {"at": 1}, "time_input": "at"}, "time_input is"),
        ({"every": "1h", "catch_up": "soon"}, "catch_up"),
        ({"every": "1h", "tags": ["!"]}, "tag"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said(host: Host, given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        host.schedules.create("report", "wrong", **given)
    assert host.runs() == []


def test_the_same_again_changes_nothing_and_another_is_refused(host: Host) -> None:
    for _ in range(2):
        host.schedules.create("report", "it", cron="@daily", time_input="at")
    with pytest.raises(InputsDiffer):
        host.schedules.create("report", "it", cron="@hourly", time_input="at")
    host.start(ASKING, run_id="A")
    with pytest.raises(RunNotFound, match="no schedule"):
        host.schedules.get("A")


@pytest.mark.slow
@pytest.mark.stores("sqlite")
@pytest.mark.parametrize(
    "overlap", ["skip", *(pytest.param(one, marks=pytest.mark.soak) for one in ("replace", "allow"))]
)
def test_killed_at_every_write_each_time_is_started_once(tmp_path: Path, overlap: str) -> None:
    def made(url: str) -> ManualClock:
        clock = clock_at(2026, 3, 28, 22, 30)
        with Host(url, clock=clock) as host:
            host.schedules.create(REPORT, "it", cron="0 * * * *", time_input="at", overlap=overlap)
        return clock

    def live(url: str, clock: ManualClock, killer: Killer) -> None:
        with Host(killing(open_store(url, clock), by=killer), clock=clock) as host, suppress(Crashed):
            pass_time(host, clock, REPORT, 2)
            host.schedules.run_now("it", id="please")
            host.work([REPORT], until_idle=True)

    def finish(url: str, clock: ManualClock) -> tuple[list[str], int, int]:
        with Host(url, clock=clock) as host:
            host.schedules.run_now("it", id="please")
            while clock.now() < utc(2026, 3, 29, 1, 30):
                host.work([REPORT], until_idle=True)
                clock.advance(1800)
            told = host.schedules.get("it")
            assert {one.status for one in host.runs(flow="report")} == {Status.COMPLETED}
            return reports(host), told.missed, told.skipped

    counted, whole = Killer(), f"sqlite:///{tmp_path}/whole.db"
    clock = made(whole)
    live(whole, clock, counted)
    expected = finish(whole, clock)
    assert len(expected[0]) == 4 and expected[1:] == (0, 0) and len(counted.points) > 20
    for at in range(1, len(counted.points) + 1):
        url = f"sqlite:///{tmp_path}/{at}.db"
        clock = made(url)
        live(url, clock, Killer(at, act=crash))
        clock.advance(60)  # until the leases of the dead are over
        found = finish(url, clock)
        scheduled = {f"eu 2026-03-{time}Z" for time in ("28T23:00", "29T00:00", "29T01:00")}
        assert scheduled <= {*found[0]} and len(found[0]) == 4 and found[1:] == (0, 0), counted.points[at - 1]
