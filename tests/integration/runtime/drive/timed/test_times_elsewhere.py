"""Delayed starts and deadlines of runs that are encrypted, carried, started by others, paused, or retried."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from everstep import Context, Flow, Host, node
from everstep.codec.keyring import KeyRing
from everstep.errors import BadRequest, LeaseConflict
from everstep.notify import Tell
from everstep.testing import ManualClock

from . import timing
from .timing import ask, check_ended, check_sound, slow, work

pytestmark = pytest.mark.stores("memory", "sqlite")


@node(output="done")
def act(name: str) -> str:
    return name


later = Flow("later", [act])


def test_times_of_encrypted_runs_are_believed(url: str, clock: ManualClock) -> None:
    with Host(url, clock=clock, encrypt=KeyRing({"k1": b"x" * 32})) as host:
        host.start(later, {"name": "A"}, run_id="due", after="2h")
        host.start(later, {"name": "B"}, run_id="fired", after="9h")
        host.start(slow(), run_id="late", deadline="1h")
        host.waiting.fire(host.waits("fired")[0].id, by="ann")
        clock.advance("3h")
        work(host, later, slow())
        assert [host.info(one).status for one in ("due", "fired")] == ["completed", "completed"]
        check_ended(host, "late", at="ask")


def test_run_that_was_carried_elsewhere_keeps_its_times(
    host: Host, clock: ManualClock, tmp_path: Path
) -> None:
    host.start(later, {"name": "A"}, run_id="r", after="2h", deadline="1h")
    host.start(slow(), run_id="s", deadline="1h")
    work(host, slow())
    for one in ("r", "s"):
        host.transfer.export(one, tmp_path / one)
    with Host("memory:", clock=clock) as other:
        for one in ("r", "s"):
            other.transfer.import_(tmp_path / one)
            other.fleet.unpause(one)
        work(other, later, slow())
        assert other.info("r").status == "halted"
        clock.advance("2h")
        other.resume("r", later)
        assert other.info("r").status == "completed"
        assert other.resume("s", slow()).status == "failed"
        check_ended(other, "s")


def test_child_has_the_deadline_of_its_flow_and_outlives_its_starter(host: Host, clock: ManualClock) -> None:
    child = slow(deadline="3h")

    @node(output="got", halts=True)
    def wait_for(ctx: Context) -> object:
        return ctx.result(ctx.start(child, {}))

    starter = Flow("starter", [wait_for], starts=[child], deadline="1h")
    host.start(starter, run_id="s")
    work(host, starter)
    [started] = host.runs(started_by="s")
    assert host.info("s").status == "halted"
    clock.advance("1h")
    work(host, starter)
    check_ended(host, "s", at="wait_for")
    assert host.info(started.run_id).status == "halted"
    clock.advance("2h")
    work(host, starter)
    check_ended(host, started.run_id)


def test_node_starts_a_run_that_begins_later_and_has_a_deadline(host: Host, clock: ManualClock) -> None:
    child = slow()

    @node(output="child")
    def begin(ctx: Context) -> object:
        ctx.start(child, {}, key="at", at=clock.now() + timedelta(hours=2), deadline="1h")
        return ctx.start(child, {}, key="after", after="1h", deadline=clock.now() + timedelta(hours=5))

    starter = Flow("starter", [begin], starts=[child])
    host.run(starter, run_id="s")
    states = [host.state(run.run_id).times() for run in host.runs(started_by="s")]
    now = clock.now()
    hours = sorted(
        ((one["begins_at"] - now) / timedelta(hours=1), (one["ends_at"] - now) / timedelta(hours=1))
        for one in states
    )
    assert hours == [(1.0, 5.0), (2.0, 3.0)]


def test_node_that_starts_a_run_at_no_time_fails(host: Host) -> None:
    child = slow()

    @node(output="child")
    def begin(ctx: Context) -> object:
        return ctx.start(child, {}, after="soon")

    result = host.run(Flow("starter", [begin], starts=[child]), run_id="s")
    assert result.error is not None
    assert result.error.type == "BadRequest"
    assert host.runs(started_by="s") == []


def test_family_is_ended_where_it_is_driven(host: Host, clock: ManualClock) -> None:
    child = slow()
    begun = Event()

    @node(output="got", halts=True)
    def wait_for(ctx: Context) -> object:
        begun.set()
        return ctx.result(ctx.start(child, {}))

    def move() -> None:
        begun.wait(10)
        clock.advance("1h")

    mover = Thread(target=move)
    mover.start()
    starter = Flow("starter", [wait_for], starts=[child], deadline="1h")
    assert host.run(starter, run_id="s", wait=True).status == "failed"
    mover.join()
    check_ended(host, "s", at="wait_for")


def test_retry_for_workers_gives_another_deadline(host: Host, clock: ManualClock) -> None:
    flow = slow(deadline="1h")
    host.run(flow, run_id="r")
    clock.advance("2h")
    work(host, flow)
    host.fleet.reopen("r", deadline="1h")
    work(host, flow)
    assert host.info("r").status == "halted"
    host.fleet.reopen("r", deadline="5h")
    assert host.info("r").status == "halted"
    clock.advance("4h")
    work(host, flow)
    assert host.info("r").status == "halted"
    clock.advance("1h")
    work(host, flow)
    check_ended(host, "r")


def test_deadline_of_a_run_that_another_has_is_not_changed(host: Host) -> None:
    @node(output="x")
    def tries(ctx: Context) -> str:
        with pytest.raises(LeaseConflict):
            host.fleet.reopen(ctx.run_id, deadline="5h")
        return "x"

    assert host.run(Flow("tries", [tries], deadline="1h")).status == "completed"


def test_who_wants_to_know_of_failures_is_told(url: str, clock: ManualClock) -> None:
    told: list[str] = []
    notifiers = {"ops": lambda notice: told.append(f"{notice.occasion}: {notice.error}")}
    with Host(url, clock=clock, notifiers=notifiers, notify=[Tell("ops", on="failed")]) as host:
        flow = slow(deadline="1h")
        host.start(flow, run_id="r")
        work(host, flow)
        clock.advance("1h")
        work(host, flow)
        assert len(told) == 1
        assert told[0].startswith("failed: DeadlineExceeded")


def test_run_under_way_is_shown_with_its_deadline(host: Host, clock: ManualClock) -> None:
    result = host.run(slow(), run_id="r", deadline="1h")
    assert host.state("r").ends_at == clock.now() + timedelta(hours=1)
    assert [one.kind for one in host.waits("r", kind="deadline")] == ["deadline"]
    assert [one.kind for one in host.waits("r")] == [one.kind for one in result.waits] == ["approval"]
    check_sound(host, "r")


def test_deadline_is_neither_answered_nor_fired(host: Host) -> None:
    host.run(slow(), run_id="r", deadline="1h")
    [deadline] = host.waits("r", kind="deadline")
    with pytest.raises(BadRequest, match="deadline"):
        host.answer(deadline.id, True)
    with pytest.raises(BadRequest, match="deadline"):
        host.waiting.fire(deadline.id)


def test_run_that_goes_over_to_another_version_keeps_its_deadline(host: Host, clock: ManualClock) -> None:
    host.run(slow(), run_id="r", deadline="1h")

    @node(output="sent")
    def send(done: str) -> str:
        return done

    other = Flow("slow", [ask >> timing.act >> send], version="2")
    host.versions.migrate("r", other)
    clock.advance("1h")
    assert host.resume("r", other).status == "failed"
    check_ended(host, "r")


def test_worker_that_comes_later_does_not_end_it_once_more(host: Host, clock: ManualClock) -> None:
    flow = slow(deadline="1h")
    host.start(flow, run_id="r")
    for passing in ("0s", "1h", "1h"):
        clock.advance(passing)
        work(host, flow)
    steps = [step for record in host.history("r") for step in record.steps if step.path == "@deadline"]
    assert [step.status for step in steps] == ["halted", "failed"]
