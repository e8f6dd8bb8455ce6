"""A run that is cancelled takes those with it that it has started; one that fails, and a fork, do not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from everstep import Context, Flow, Host, Status, node, wait
from everstep.registry import open_store
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests.integration.runtime.drive.children.shops import children_of


class Tour:
    """A flow that starts runs which wait for people, and then waits itself, fails or cancels its run."""

    def __init__(self, then: str = "wait") -> None:
        self.then = then

        @node(output="seen")
        def see(place: str) -> str:
            return f"seen {place}"

        self.trip = Flow("trip", [wait.approval("go"), see])

        @node(output="trips", halts=True)
        def travel(ctx: Context) -> list[str]:
            begun = [ctx.start(self.trip, {"place": one}, key=one) for one in ("ulm", "rome")]
            left = ctx.start(self.trip, {"place": "home"}, on_parent_cancel="leave")
            if self.then == "fail":
                raise ValueError("lost")
            if self.then == "cancel":
                ctx.cancel("enough")
            return [ctx.result(one)["seen"] for one in [*begun, left]]

        self.flow = Flow("tour", [travel], starts=[self.trip])


def standings(host: Host, run_id: str = "T") -> list[str]:
    """Return how the runs stand that a run has started, the oldest first."""
    return [one.status.value for one in children_of(host, run_id)]


@pytest.mark.servers
def test_a_cancelled_run_takes_them_with_it(host: Host) -> None:
    tour = Tour()
    assert host.run(tour.flow, run_id="T").status is Status.HALTED
    assert standings(host) == ["halted"] * 3
    assert host.cancel("T", by="ann") is Status.CANCELLED
    assert standings(host) == ["cancelled", "cancelled", "halted"]


def test_so_does_a_node_that_cancels_its_run(host: Host) -> None:
    assert host.run(Tour("cancel").flow, run_id="T").status is Status.CANCELLED
    assert standings(host)[:2] == ["cancelled", "cancelled"]
    assert standings(host)[2] in ("running", "halted")


def test_a_failed_run_leaves_them_alone(host: Host) -> None:
    tour = Tour("fail")
    assert host.run(tour.flow, run_id="T").status is Status.FAILED
    host.work([tour.flow], until_idle=True)
    assert standings(host) == ["halted"] * 3


def test_grandchildren_go_with_their_starters(host: Host) -> None:
    tour = Tour()

    @node(output="x", halts=True)
    def begin(ctx: Context) -> Any:
        return ctx.result(ctx.start("tour", key="t"))

    agency = Flow("agency", [begin], starts=[tour.flow])
    assert host.run(agency, run_id="A").status is Status.HALTED
    [child] = children_of(host, "A")
    assert standings(host, child.run_id) == ["halted"] * 3
    host.cancel("A")
    assert standings(host, "A") == ["cancelled"]
    assert standings(host, child.run_id) == ["cancelled", "cancelled", "halted"]


def test_a_fork_waits_for_what_was_started_before_its_base_and_never_cancels_it(host: Host) -> None:
    tour = Tour()
    host.run(tour.flow, run_id="T")
    trips = children_of(host, "T")
    host.fork("T", fork_id="F")
    assert host.resume("F", tour.flow).waits[0].listens_for == trips[0].run_id
    assert children_of(host, "F") == []
    host.cancel("F")
    assert standings(host) == ["halted"] * 3
    host.fork("T", fork_id="G")
    for trip in trips:
        [asked] = host.waits(trip.run_id)
        host.answer(asked.id, {"approved": True})
        host.resume(trip.run_id, tour.trip)
    seen = ["seen ulm", "seen rome", "seen home"]
    assert host.resume("G", tour.flow)["trips"] == host.resume("T", tour.flow)["trips"] == seen
    # One from before that starts its own.
    host.fork("T", at=1, fork_id="H")
    host.resume("H", tour.flow)
    assert standings(host, "H") == ["halted"] * 3


def test_one_that_ends_wakes_a_fork_that_waits_for_it_as_well(host: Host) -> None:
    tour = Tour()
    host.run(tour.flow, run_id="T")
    host.fork("T", fork_id="F")
    host.resume("F", tour.flow)
    trip = children_of(host, "T")[0]
    host.answer(host.waits(trip.run_id)[0].id, {"approved": True})
    host.resume(trip.run_id, tour.trip)
    for name in ("T", "F"):
        waits = [one.status.value for one in host.waits(name, status=None) if one.kind == "child"]
        assert waits == ["settled"]


def test_one_that_is_admitted_after_its_starter_was_cancelled_is_cancelled_when_it_is_first_driven(
    tmp_path: Path,
) -> None:
    clock, url, tour = ManualClock(), f"sqlite:///{tmp_path}/runs.db", Tour()
    killer = Killer("before put 3", act=lambda point: cancel())

    def cancel() -> None:
        """Take the run over and cancel it, while its owner is about to admit what it has recorded."""
        clock.advance(60)
        with Host(url, clock=clock) as other:
            assert other.cancel("T") is Status.CANCELLED

    with Host(killing(open_store(url, clock), by=killer), clock=clock) as host, suppress(Exception):
        host.run(tour.flow, run_id="T")
    with Host(url, clock=clock) as host:
        clock.advance(60)
        host.work([tour.flow], until_idle=True)
        assert host.info("T").status is Status.CANCELLED
        assert standings(host) == ["cancelled"]


@pytest.mark.stores("sqlite")
def test_killed_at_every_write_of_a_cancellation_none_is_left_behind(tmp_path: Path) -> None:
    clock = ManualClock()

    def live(url: str, killer: Killer) -> None:
        with Host(url, clock=clock) as host:
            host.run(Tour().flow, run_id="T")
        with Host(killing(open_store(url, clock), by=killer), clock=clock) as host, suppress(Crashed):
            host.cancel("T")

    counted = Killer()
    live(f"sqlite:///{tmp_path}/whole.db", counted)
    assert len(counted.points) > 10
    for at in range(1, len(counted.points) + 1):
        url = f"sqlite:///{tmp_path}/{at}.db"
        live(url, Killer(at, act=crash))
        clock.advance(60)
        with Host(url, clock=clock) as host:
            asked = host.info("T").is_cancelling or host.info("T").status is Status.CANCELLED
            host.work([Tour().flow], until_idle=True)
            found = [host.info("T").status.value, *standings(host)]
        expected = ["cancelled", "cancelled", "cancelled", "halted"] if asked else ["halted"] * 4
        assert found == expected, counted.points[at - 1]
