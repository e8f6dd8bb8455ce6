"""Runs that begin at a time, and not before."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from everstep import Flow, Host, node
from everstep.errors import BadRequest, InvalidDelay
from everstep.testing import ManualClock

from .timing import check_ended, check_sound, slow, work

pytestmark = pytest.mark.servers


def flow_of(seen: list[str], **options: object) -> Flow:
    @node(output="done")
    def act(name: str) -> str:
        seen.append(name)
        return name

    return Flow("later", [act], **options)  # type: ignore[arg-type]


def test_worker_takes_it_when_its_time_comes(host: Host, clock: ManualClock) -> None:
    seen: list[str] = []
    flow = flow_of(seen)
    info = host.start(flow, {"name": "A"}, run_id="r", after="2h")
    assert info.status == "halted"
    [wait] = host.waits("r")
    assert (wait.node, wait.kind, wait.due_at) == ("@start", "timer", clock.now() + timedelta(hours=2))
    clock.advance("1h 59m")
    work(host, flow)
    assert seen == []
    clock.advance("1m")
    work(host, flow)
    assert seen == ["A"]
    assert host.info("r").status == "completed"
    assert host.waits("r") == []
    check_sound(host, "r")


@pytest.mark.parametrize("at", [datetime(2030, 1, 1, 3).astimezone(), "2030-01-01T04:00:00+01:00"])
def test_moment_is_taken_with_its_zone(host: Host, clock: ManualClock, at: datetime | str) -> None:
    flow = flow_of([])
    host.start(flow, {"name": "A"}, run_id="r", at=at)
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    assert host.waits("r")[0].due_at == moment


@pytest.mark.parametrize(
    "said",
    [
        {"at": datetime(2031, 1, 1)},
        {"at": "2031-01-01T00:00:00"},
        {"at": "tomorrow"},
        {"after": "-1h"},
        {"after": "soon"},
        {"after": "1h", "at": "2031-01-01T00:00:00Z"},
    ],
)
def test_what_is_no_time_is_refused(host: Host, said: dict[str, object]) -> None:
    with pytest.raises((BadRequest, InvalidDelay)):
        host.start(flow_of([]), {"name": "A"}, **said)  # type: ignore[arg-type]


def test_time_gone_by_is_now(host: Host) -> None:
    seen: list[str] = []
    flow = flow_of(seen)
    assert host.start(flow, {"name": "A"}, at="2029-01-01T00:00:00Z").status == "running"
    assert host.start(flow, {"name": "B"}, after=0).status == "running"
    work(host, flow)
    assert sorted(seen) == ["A", "B"]


def test_it_can_be_started_now(host: Host, clock: ManualClock) -> None:
    seen: list[str] = []
    flow = flow_of(seen)
    host.start(flow, {"name": "A"}, run_id="r", after="2h")
    host.waiting.fire(host.waits("r")[0].id, by="ann", comment="it is urgent")
    work(host, flow)
    assert seen == ["A"]
    [closed] = host.waits("r", status="closed")
    assert closed.act is not None
    assert (closed.act.by, closed.act.comment) == ("ann", "it is urgent")


def test_it_can_be_cancelled_before(host: Host, clock: ManualClock) -> None:
    seen: list[str] = []
    flow = flow_of(seen)
    host.start(flow, {"name": "A"}, run_id="r", after="2h")
    assert host.cancel("r") == "cancelled"
    clock.advance("3h")
    work(host, flow)
    assert (seen, host.waits("r")) == ([], [])


def test_run_halts_until_then(host: Host, clock: ManualClock) -> None:
    seen: list[str] = []
    flow = flow_of(seen)
    result = host.run(flow, {"name": "A"}, run_id="r", after="2h")
    assert result.status == "halted"
    assert [one.node for one in result.waits] == ["@start"]
    assert host.resume("r", flow).status == "halted"
    assert seen == []
    clock.advance("2h")
    assert host.resume("r", flow).status == "completed"
    assert seen == ["A"]


def test_run_stays_until_then(url: str) -> None:
    seen: list[str] = []
    clock = ManualClock(auto=True)
    with Host(url, clock=clock) as host:
        assert host.run(flow_of(seen), {"name": "A"}, after="2h", wait=True).status == "completed"
        assert seen == ["A"]
        assert clock.now() == datetime.fromisoformat("2030-01-01T02:00:00Z")


def test_resume_at_a_node_does_not_wait(host: Host) -> None:
    seen: list[str] = []
    flow = flow_of(seen)
    host.start(flow, {"name": "A"}, run_id="r", after="2h")
    assert host.resume("r", flow, start="act").status == "completed"
    assert seen == ["A"]
    assert host.waits("r") == []


def test_fork_begins_at_once(host: Host) -> None:
    seen: list[str] = []
    flow = flow_of(seen)
    host.start(flow, {"name": "A"}, run_id="r", after="2h")
    host.fork("r", fork_id="f")
    work(host, flow)
    assert seen == ["A"]
    assert (host.info("r").status, host.info("f").status) == ("halted", "completed")


def test_deadline_counts_from_the_beginning(host: Host, clock: ManualClock) -> None:
    flow = slow(deadline="1h")
    host.start(flow, run_id="r", after="2h")
    clock.advance("2h")
    work(host, flow)
    assert [one.node for one in host.waits("r", kind="approval")] == ["ask"]
    clock.advance("59m")
    work(host, flow)
    assert host.info("r").status == "halted"
    clock.advance("1m")
    work(host, flow)
    check_ended(host, "r")


def test_no_worker_was_there_until_its_deadline(host: Host, clock: ManualClock) -> None:
    seen: list[str] = []
    flow = flow_of(seen, deadline="1h")
    host.start(flow, {"name": "A"}, run_id="r", after="2h")
    clock.advance("4h")
    work(host, flow)
    check_ended(host, "r")
    assert seen == []


def test_run_that_is_kept_nowhere_cannot_begin_later(host: Host) -> None:
    with pytest.raises(BadRequest, match="durability off"):
        host.run(flow_of([], durability="off"), {"name": "A"}, after="1h")


def test_explain_says_when_it_begins(host: Host, clock: ManualClock) -> None:
    flow = flow_of([])
    host.start(flow, {"name": "A"}, run_id="r", after="2h", deadline="1d")
    told = host.explain("r", flow)
    assert told.begins_at == clock.now() + timedelta(hours=2)
    assert told.ends_at == clock.now() + timedelta(hours=26)
    assert [one.path for one in told.starts] == ["act"]


def test_state_says_when_it_begins_and_ends(host: Host, clock: ManualClock) -> None:
    flow = flow_of([])
    begins = clock.now() + timedelta(hours=2)
    host.start(flow, {"name": "A"}, run_id="r", at=begins, deadline="1h")
    state = host.state("r")
    assert (state.begins_at, state.ends_at) == (begins, begins + timedelta(hours=1))
    clock.advance("2h")
    work(host, flow)
    assert host.state("r").times() == {}
