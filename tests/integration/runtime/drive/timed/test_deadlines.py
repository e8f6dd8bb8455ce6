"""Runs that are ended by their deadline, by who drives them, or by a worker that finds them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

import pytest

from everstep import AsyncHost, Flow, Host, Retry, node
from everstep.errors import BadRequest, DeadlineExceeded, FlowError, InvalidDelay
from everstep.results import RunResult
from everstep.testing import ManualClock
from tests.keyframes import space_keyframes

from .timing import act, ask, check_ended, check_sound, slow, work

pytestmark = pytest.mark.servers


def test_waiting_run_is_ended_by_a_worker(host: Host, clock: ManualClock) -> None:
    flow = slow(deadline="2h")
    host.start(flow, run_id="r")
    work(host, flow)
    clock.advance("1h 59m")
    work(host, flow)
    assert host.info("r").status == "halted"
    clock.advance("1m")
    work(host, flow)
    check_ended(host, "r", at="ask")


def test_what_it_waited_for_is_closed_and_asked_anew_when_it_is_reopened(
    host: Host, clock: ManualClock
) -> None:
    flow = slow()
    result = host.run(flow, run_id="r", deadline="1h")
    assert [one.node for one in result.waits] == ["ask"]
    clock.advance("1h")
    ended = host.resume("r", flow)
    assert ended.status == "failed"
    assert host.waits("r") == []
    again = host.resume("r", flow)
    assert [one.node for one in again.waits] == ["ask"]
    clock.advance("9d")  # a run that was reopened has a deadline only if it is given one
    host.answer(again.waits[0].id, {"approved": True})
    assert host.resume("r", flow).status == "completed"


def test_reopened_run_takes_another_deadline(host: Host, clock: ManualClock) -> None:
    flow = slow(deadline="1h")
    host.run(flow, run_id="r")
    clock.advance("2h")
    assert host.resume("r", flow).status == "failed"
    assert host.resume("r", flow, deadline="3h").status == "halted"
    clock.advance("2h")
    assert host.resume("r", flow).status == "halted"
    clock.advance("1h")
    assert host.resume("r", flow).status == "failed"
    check_ended(host, "r")


def test_unfinished_run_takes_another_deadline(host: Host, clock: ManualClock) -> None:
    flow = slow(deadline="1h")
    host.run(flow, run_id="r")
    host.resume("r", flow, deadline="1d")
    clock.advance("2h")
    work(host, flow)
    assert host.info("r").status == "halted"
    clock.advance("1d")
    work(host, flow)
    check_ended(host, "r")


def test_fork_has_none_of_its_own(host: Host, clock: ManualClock) -> None:
    flow = slow(deadline="1h")
    host.run(flow, run_id="r")
    host.fork("r", fork_id="f")
    clock.advance("2h")
    work(host, flow)
    check_ended(host, "r")
    assert host.info("f").status == "halted"


def test_completed_run_is_left_alone(host: Host, clock: ManualClock) -> None:
    flow = slow(deadline="1h")
    result = host.run(flow, run_id="r")
    host.answer(result.waits[0].id, {"approved": True})
    assert host.resume("r", flow).status == "completed"
    assert host.waits("r") == []
    clock.advance("2h")
    work(host, flow)
    assert host.info("r").status == "completed"


def test_run_that_fails_by_itself_keeps_its_own_error(host: Host, clock: ManualClock) -> None:
    @node(output="x")
    def breaks() -> str:
        raise ValueError("no")

    flow = Flow("breaks", [breaks], deadline="1h")
    assert host.run(flow, run_id="r").status == "failed"
    assert host.waits("r") == []
    clock.advance("2h")
    work(host, flow)
    state = host.state("r")
    assert state.error is not None
    assert state.error.type == "ValueError"
    check_sound(host, "r")


def test_pause_between_attempts_is_cut_short(url: str) -> None:
    clock, calls = ManualClock(auto=True), []

    @node(output="x", retry=Retry(9, first="40m", factor=1, jitter=0))
    def tries() -> str:
        calls.append(clock.now())
        raise ValueError("no")

    flow = Flow("tries", [tries], deadline="1h")
    with Host(url, clock=clock) as host:
        before = clock.now()
        result = host.run(flow, run_id="r")
        assert result.status == "failed"
        assert len(calls) == 2
        assert clock.now() - before == timedelta(hours=1)
        check_ended(host, "r", at="tries")
        with pytest.raises(DeadlineExceeded, match="tries"):
            result.raise_for_status()


def test_async_node_is_stopped(url: str, clock: ManualClock) -> None:
    stopped, begun = [], asyncio.Event()

    @node(output="x")
    async def hangs() -> str:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise
        return "x"

    flow = Flow("hangs", [hangs], deadline="1h")

    async def drive() -> RunResult:
        async with AsyncHost(url, clock=clock) as host:
            running = asyncio.ensure_future(host.run(flow, run_id="r"))
            await asyncio.wait_for(begun.wait(), 10)
            clock.advance("1h")
            return await asyncio.wait_for(running, 10)

    result = asyncio.run(drive())
    assert result.status == "failed"
    assert stopped == [True]
    assert result.error is not None
    assert "hangs" in result.error.message


def test_sync_node_does_not_hold_it_up(host: Host, clock: ManualClock) -> None:
    begun, let_go = Event(), Event()

    @node(output="x")
    def hangs() -> str:
        begun.set()
        let_go.wait(20)
        return "x"

    def move() -> None:
        begun.wait(10)
        clock.advance("1h")

    mover = Thread(target=move)
    mover.start()
    try:
        result = host.run(Flow("hangs", [hangs], deadline="1h"), run_id="r")
    finally:
        let_go.set()
        mover.join()
    assert result.status == "failed"
    check_ended(host, "r", at="hangs")


def test_what_it_did_is_undone(host: Host, clock: ManualClock) -> None:
    done: list[str] = []

    def unbook(order: str) -> None:
        done.append(f"unbook {order}")

    @node(output="room", undo=unbook)
    def book(order: str) -> str:
        done.append(f"book {order}")
        return "7"

    flow = Flow("trip", [book >> ask >> act], deadline="2h")
    host.start(flow, {"order": "A"}, run_id="r")
    work(host, flow)
    clock.advance("2h")
    work(host, flow)
    check_ended(host, "r", at="ask")
    assert done == ["book A", "unbook A"]
    assert host.info("r").undoing == "complete"


def test_effect_that_can_be_undone_is_awaited_first(host: Host, clock: ManualClock) -> None:
    done: list[str] = []

    def unbook(room: str) -> None:
        done.append(f"unbook {room}")

    @node(output="room", undo=unbook)
    def book() -> str:
        clock.advance("3h")
        done.append("book")
        return "7"

    result = host.run(Flow("trip", [book >> act], deadline="2h"), run_id="r")
    assert result.status == "failed"
    check_ended(host, "r")
    assert done == ["book", "unbook 7"]


def test_it_counts_on_while_the_run_is_paused(host: Host, clock: ManualClock) -> None:
    flow = slow(deadline="1h")
    host.run(flow, run_id="r")
    host.fleet.pause("r")
    clock.advance("2h")
    work(host, flow)
    assert host.info("r").status == "halted"
    host.fleet.unpause("r")
    work(host, flow)
    check_ended(host, "r")


def test_moment_and_other_zones_are_taken(host: Host, clock: ManualClock) -> None:
    flow = slow()
    ends = clock.now() + timedelta(hours=1)
    host.start(flow, run_id="a", deadline=ends)
    host.start(flow, run_id="b", deadline="2030-01-01T02:00:00+01:00")
    work(host, flow)
    due = {one.run_id: one.due_at for one in host.waits(kind="deadline")}
    assert due == {"a": ends, "b": datetime(2030, 1, 1, 1, tzinfo=UTC)}


@pytest.mark.parametrize(
    "said", ["0s", 0, "-1h", "soon", datetime(2031, 1, 1), "2029-01-01T00:00:00Z", "2031-01-01T00:00:00"]
)
def test_what_is_no_deadline_is_refused(host: Host, said: object) -> None:
    with pytest.raises((BadRequest, InvalidDelay)):
        host.start(slow(), deadline=said)  # type: ignore[arg-type]


def test_deadline_of_a_flow_is_a_span(host: Host) -> None:
    with pytest.raises((BadRequest, FlowError)):
        slow(deadline="2031-01-01T00:00:00Z")


def test_it_is_kept_in_keyframes(host: Host, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = slow()
    space_keyframes(monkeypatch, lambda: 1)
    host.start(flow, run_id="r", after="1h", deadline="1h")
    clock.advance("1h")
    work(host, flow)
    assert any(one.keyframe for one in host.checkpoints("r"))
    clock.advance("1h")
    work(host, flow)
    check_ended(host, "r", at="ask")


def test_without_a_store_it_counts_too() -> None:
    clock = ManualClock(auto=True)

    @node(output="x", retry=Retry(9, first="40m", factor=1, jitter=0))
    def tries() -> str:
        raise ValueError("no")

    with Host("memory:", clock=clock) as host:
        flow = Flow("tries", [tries], deadline="1h", durability="off")
        result = host.run(flow)
        assert result.status == "failed"
        assert result.error is not None
        assert result.error.type == "DeadlineExceeded"
