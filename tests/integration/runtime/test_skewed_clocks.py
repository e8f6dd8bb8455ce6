"""Machines whose clocks are wrong, and a store that has its own."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everstep import Flow, Host, node, wait
from everstep.runtime.system import SystemClock

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


class Wrong(SystemClock):
    """A clock that runs, and is ahead by so much."""

    def __init__(self, ahead: timedelta) -> None:
        super().__init__()
        self._ahead = ahead

    def now(self) -> datetime:
        return super().now() + self._ahead


@pytest.fixture(params=["postgres", "redis"])
def server(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.parametrize("ahead", [-HOUR, HOUR], ids=["behind", "ahead"])
def test_a_machine_with_a_wrong_clock_opens_an_approval_for_as_long_as_it_says(
    server: str, ahead: timedelta
) -> None:
    flow = Flow("f", [wait.approval("ok", timeout="30m", token_ttl="20m")])
    with Host(server, clock=Wrong(ahead)) as wrong, Host(server) as right:
        before = datetime.now(UTC)
        [opened] = wrong.run(flow, run_id="r").waits
        assert opened.due_at is not None
        assert abs(opened.due_at - before - 30 * MINUTE) < 5 * MINUTE
        for host in (right, wrong):
            host.work([flow], until_idle=True)
            assert host.wait(opened.id).status == "open"
        right.answer(opened.token, {"approved": True})
        assert wrong.resume("r", flow)["ok"].approved


@pytest.mark.parametrize("ahead", [-HOUR, HOUR], ids=["behind", "ahead"])
def test_a_machine_with_a_wrong_clock_waits_no_longer_and_no_shorter(server: str, ahead: timedelta) -> None:
    flow = Flow("f", [wait.timer("pause", duration="300ms")])
    with Host(server, clock=Wrong(ahead)) as host:
        before = datetime.now(UTC)
        fired = host.run(flow, wait=True)["pause"]
        taken = datetime.now(UTC) - before
        assert timedelta(milliseconds=300) <= taken < MINUTE
        assert fired.drift_ms < 60_000
        assert abs(fired.resumed_at - before) < MINUTE


@pytest.mark.parametrize("ahead", [-HOUR, HOUR], ids=["behind", "ahead"])
def test_a_worker_whose_clock_is_wrong_says_so_at_start_and_among_workers(
    server: str, ahead: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    @node
    def look() -> None:
        with Host(server) as other:
            seen.extend(other.fleet.workers())

    flow = Flow("f", [look])
    with Host(server, clock=Wrong(ahead)) as host, caplog.at_level(logging.WARNING, "everstep"):
        host.start(flow, run_id="r")
        assert host.work([flow], until_idle=True).completed == 1
    said = "behind" if ahead < timedelta(0) else "ahead of"
    assert any(f"s {said} the store." in record.message for record in caplog.records)
    [worker] = seen
    assert abs(worker.skew_seconds + ahead.total_seconds()) < 60
    assert abs(worker.started_at - datetime.now(UTC)) < MINUTE, "by the store's clock"


def test_a_worker_whose_clock_is_right_says_nothing(server: str, caplog: pytest.LogCaptureFixture) -> None:
    flow = Flow("f", [wait.approval("ok")])
    with Host(server) as host, caplog.at_level(logging.WARNING, "everstep"):
        host.work([flow], until_idle=True)
    assert not [record for record in caplog.records if "clock" in record.message]


def test_a_clock_that_is_set_while_a_run_waits_changes_no_due_time(server: str) -> None:
    clock = Wrong(timedelta(0))
    flow = Flow("f", [wait.approval("ok", timeout="30m")])
    with Host(server, clock=clock) as host:
        host.run(flow, run_id="before")
        clock._ahead = HOUR
        [opened] = host.run(flow, run_id="r").waits
        assert opened.due_at is not None
        assert abs(opened.due_at - datetime.now(UTC) - 30 * MINUTE) < 5 * MINUTE
        host.answer(opened.token, {"approved": True})
        assert host.resume("r", flow)["ok"].approved
