"""Schedules that stand beside their flows: applied, changed, paused when they are gone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Flow, Host, Schedule, node, notify
from everstep.cli.commands.fleet.schedule import schedule
from everstep.errors import BadRequest, InputError
from everstep.ports.durability import Notice
from everstep.testing import ManualClock


@node(output="report")
def write(at: datetime, region: str = "eu") -> str:
    return f"{region} {at:%Y-%m-%dT%H:%MZ}"


def report(*schedules: Schedule, **options: Any) -> Flow:
    return Flow("report", [write], schedules=schedules, **options)


NIGHTLY = Schedule("nightly", cron="0 2 * * *", zone="Europe/Berlin", time_input="at")
HOURLY = Schedule("hourly", every="1h", time_input="at", inputs={"region": "us"}, tags={"team": "blue"})
FILE = """
from everstep import Flow, Schedule, node

@node
def write(at) -> None: ...

flow = Flow("report", [write], schedules=[Schedule("nightly", cron="{cron}", time_input="at")])
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 28, 22, tzinfo=UTC))


@pytest.fixture
def host(url: str, clock: ManualClock) -> Iterator[Host]:
    with Host(url, clock=clock) as opened:
        yield opened


def applied(host: Host, *flows: Flow, **how: Any) -> list[tuple[str, str]]:
    return [(one.schedule_id, one.act) for one in host.schedules.apply(flows, **how)]


@pytest.mark.servers
def test_what_is_declared_is_made_changed_paused_and_let_go_on(host: Host, clock: ManualClock) -> None:
    both = report(NIGHTLY, HOURLY)
    assert applied(host, both, dry_run=True) == [("nightly", "create"), ("hourly", "create")]
    assert host.schedules.list() == []
    assert applied(host, both, by="ann") == [("nightly", "create"), ("hourly", "create")]
    assert applied(host, both) == [("nightly", "none"), ("hourly", "none")]
    told = host.schedules.get("hourly")
    assert (told.every, told.tags, told.declared, told.zone) == ("1h", {"team": "blue"}, True, "UTC")

    sooner = Schedule("nightly", cron="0 1 * * *", zone="Europe/Berlin", time_input="at")
    [change] = host.schedules.apply(report(sooner, HOURLY), dry_run=True)[:1]
    assert (change.act, change.before, change.after) == (
        "change",
        {"cron": "0 2 * * *"},
        {"cron": "0 1 * * *"},
    )
    for _ in range(2):  # a second time before a worker has seen it: the same signal
        assert applied(host, report(sooner, HOURLY))[0] == ("nightly", "change")
    host.work([both], until_idle=True)
    assert host.schedules.get("nightly").cron == "0 1 * * *"
    assert applied(host, report(sooner)) == [("nightly", "none"), ("hourly", "pause")]
    assert host.schedules.get("hourly").paused
    assert applied(host, report(sooner)) == [("nightly", "none"), ("hourly", "none")]
    clock.advance(2 * 3600)
    host.work([both], until_idle=True)
    assert host.schedules.get("hourly").started == 0
    assert applied(host, both) == [("nightly", "change"), ("hourly", "unpause")]
    assert not host.schedules.get("hourly").paused
    host.work([both], until_idle=True)
    assert host.schedules.get("nightly").cron == "0 2 * * *" and host.schedules.get("hourly").started > 0
    assert applied(host, both) == [("nightly", "none"), ("hourly", "none")]


def test_one_that_a_person_paused_stays_so_and_one_made_by_hand_is_left_alone(host: Host) -> None:
    host.schedules.create(report(), "mine", cron="@daily", time_input="at")
    applied(host, report(NIGHTLY))
    host.schedules.pause("nightly", by="ann")
    assert applied(host, report()) == [("nightly", "none")]
    assert applied(host, report(NIGHTLY)) == [("nightly", "none")]
    assert host.schedules.get("nightly").paused and not host.schedules.get("mine").declared
    host.schedules.create(report(), "hourly", every="2h", time_input="at")
    assert applied(host, report(NIGHTLY, HOURLY))[1] == ("hourly", "change")
    assert host.schedules.get("hourly").declared
    host.schedules.delete("nightly")
    assert applied(host, report(NIGHTLY, HOURLY))[0] == ("nightly", "create")


def test_what_is_wrong_with_a_declaration_is_said(host: Host) -> None:
    wrong: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: Schedule("both", cron="@daily", every="1h"), BadRequest, "either a cron"),
        (lambda: Schedule("", cron="@daily"), BadRequest, "is called ''"),
        (lambda: report(NIGHTLY, NIGHTLY), BadRequest, "two schedules 'nightly'"),
        (lambda: Flow("report", [write], schedules=["x"]), BadRequest, "schedules has 'x'"),  # type: ignore[list-item]
        (lambda: applied(host, report(Schedule("x", cron="@daily"))), InputError, "'at' is missing"),
        (lambda: applied(host, report(Schedule("x", cron="never", time_input="at"))), BadRequest, "no cron"),
        (
            lambda: applied(host, report(NIGHTLY), Flow("other", [write], schedules=[NIGHTLY])),
            BadRequest,
            "both declare a schedule 'nightly'",
        ),
    ]
    for act, kind, said in wrong:
        with pytest.raises(kind, match=said):
            act()
    assert host.schedules.list() == []
    applied(host, report(NIGHTLY))
    with pytest.raises(BadRequest, match="a schedule of flow 'report', not of 'other'"):
        applied(host, Flow("other", [write], schedules=[NIGHTLY]))


def test_a_flow_is_the_same_with_and_without_schedules() -> None:
    assert report(NIGHTLY).plan.hash == report().plan.hash
    assert report().schedules == ()


@pytest.mark.stores("sqlite")
def test_the_command_says_what_it_would_do_and_does_it(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/runs.db", tmp_path / "report_with_schedules.py"
    file.write_text(FILE.format(cron="0 2 * * *"))

    def called(*words: str) -> str:
        result = CliRunner().invoke(
            schedule, ["apply", str(file), *words, "--store", url], standalone_mode=False
        )
        if result.exception is not None:
            raise result.exception
        return result.output

    with Host(url):
        assert called("--dry-run") == "nightly (report) would be created\n"
        assert called() == "nightly (report) is created\n"
        [told] = json.loads(called("--json"))
    assert told == {"schedule_id": "nightly", "flow": "report", "act": "none", "before": {}, "after": {}}


@pytest.mark.servers
def test_who_is_told_of_its_runs_hears_of_a_missed_time_once(url: str, clock: ManualClock) -> None:
    got: dict[str, list[Notice]] = {"ops": [], "boss": [], "other": []}
    tells = [
        notify.Tell("boss", on=["missed_schedule", "halted", "completed"], flow="report", overdue="1h"),
        notify.Tell("other", on="missed_schedule", flow="another"),
    ]
    notifiers = {alias: list_of.append for alias, list_of in got.items()}
    with Host(url, clock=clock, notifiers=notifiers, notify=tells) as host:
        flow = report(Schedule("hourly", cron="0 * * * *", time_input="at", catch_up="10m"), notify="ops")
        host.schedules.apply(flow)
        host.work([flow], until_idle=True)
        clock.advance(5 * 3600 + 1800)
        host.work([flow], until_idle=True)
        clock.advance(1800)
        host.work([flow], until_idle=True)
        host.notices.send()
        assert host.schedules.get("hourly").missed == 5 and host.schedules.get("hourly").started == 1
    for alias, others in (("ops", set()), ("boss", {"halted", "completed"})):
        missed = [one for one in got[alias] if one.occasion == "missed_schedule"]
        assert [(one.run_id, one.flow) for one in missed] == [("hourly", "everstep.schedule.report")]
        assert {one.occasion for one in got[alias] if one.run_id != "hourly"} <= others
        assert len([one for one in got[alias] if one.run_id == "hourly"]) == 1
    assert got["other"] == []


@pytest.mark.slow
@pytest.mark.stores("sqlite")
def test_a_worker_applies_them_only_if_it_is_told_to(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/runs.db", tmp_path / "report_of_a_worker.py"
    file.write_text(FILE.format(cron="0 2 * * *"))
    command = [sys.executable, "-m", "everstep", "worker", str(file), "--once", "--store", url]
    for more, made in (((), []), (("--apply-schedules",), ["nightly"])):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=60, check=True)
        with Host(url) as host:
            assert [one.schedule_id for one in host.schedules.list()] == made
        assert ("nightly (report) is created" in done.stderr) == bool(made)
