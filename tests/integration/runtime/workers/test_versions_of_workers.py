"""Workers of two versions on one store: who takes which, what stays with its version, what none takes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

import everstep
from everstep import AsyncHost, Flow, Host, node, wait
from everstep.cli.commands.travel.explain import write
from everstep.errors import FlowChanged
from everstep.model.leases import Taken, WorkerRow
from everstep.results import WhyUntaken, WorkerInfo
from everstep.runtime.workers.built_in import BULK, asking, schedules_of

pytestmark = pytest.mark.stores("sqlite")


@node(output="total")
def add(amount: int) -> int:
    return amount + 1


@node(output="total")
def add_tax(amount: int) -> int:
    return amount * 2


@node(output="receipt")
def ship(total: int) -> str:
    return f"{total} EUR"


def orders(version: str, *nodes: everstep.Node, pinned: bool = False) -> Flow:
    return Flow("orders", nodes, version=version, pin_version=pinned, durability="strong")


FIRST, SECOND = orders("1", add, ship), orders("2", add_tax, ship)
PINNED = orders("1", add, ship, pinned=True)
NOW_PINNED = orders("2", add, ship, pinned=True)


def report(host: Host, *takes: Flow, **about: object) -> None:
    """Let a worker be alive that takes the runs of flows; without any, one of 0.1.0, which names none."""
    row = WorkerRow(
        worker_id="w",
        host="elsewhere",
        pid=1,
        flows=("orders",),
        concurrency=1,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        release="0.2.0" if takes else "",
        records=2 if takes else 1,
        takes=tuple(Taken(flow_id=f.name, flow_hash=f.plan.hash, flow_version=f.version) for f in takes),
    )

    async def tell() -> None:
        async with AsyncHost(host.url) as other:
            await other._services.store.report(msgspec.structs.replace(row, **about), timedelta(minutes=5))

    asyncio.run(tell())


def why(host: Host, run_id: str = "A17") -> WhyUntaken | None:
    """Say why no worker takes the only run that is due, which must be said alike wherever it is asked."""
    found = host.fleet.untaken()
    assert found == host.fleet.untaken(run_id)
    assert all(one.run_id == run_id and one.text and one.fix for one in found)
    return found[0].why if found else None


def test_a_worker_says_which_everstep_it_is_and_which_versions_it_takes(host: Host) -> None:
    host.start(FIRST, {"amount": 1}, run_id="A17")

    async def look() -> list[WorkerInfo]:
        async with AsyncHost(host.url) as other:
            worker = other.worker([SECOND])
            working = asyncio.create_task(worker.run())
            while not (found := await other.fleet.workers()) or len(found[0].takes) < 5:
                await asyncio.sleep(0.02)
            worker.stop()
            await working
            return found

    (info,) = asyncio.run(look())
    assert info.release == everstep.__version__
    assert info.flows == ["orders"]
    named = [(one.flow_id, one.flow_version, one.flow_hash) for one in info.takes]
    assert named == [
        ("orders", "2", SECOND.plan.hash),
        ("orders", "", FIRST.plan.hash),
        (BULK.name, "", BULK.hash),
        ("everstep.ask.orders", "", asking("orders").hash),
        ("everstep.schedule.orders", "", schedules_of("orders").hash),
    ]


def test_a_run_is_taken_while_a_live_worker_names_its_version(host: Host) -> None:
    host.start(FIRST, {"amount": 1}, run_id="A17")
    assert why(host) is WhyUntaken.NO_WORKER
    report(host, FIRST)
    assert why(host) is None
    report(host, FIRST, is_stopping=True)
    assert why(host) is WhyUntaken.NO_WORKER


def test_after_a_roll_back_a_run_of_the_newer_version_is_named(host: Host) -> None:
    host.start(FIRST, {"amount": 1}, run_id="old")
    host.start(SECOND, {"amount": 1}, run_id="A17")
    host.cancel("old")
    report(host, FIRST)
    (left,) = host.fleet.untaken()
    assert (left.run_id, left.why) == ("A17", WhyUntaken.VERSION)
    assert "they have version '1'" in left.text and "everstep migrate A17" in left.fix
    assert host.explain("A17", SECOND).untaken == left
    assert host.work([FIRST], until_idle=True).claimed == 0


def test_explain_does_not_say_that_what_no_worker_takes_starts_at_once(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.start(SECOND, {"amount": 1}, run_id="A17")
    report(host, is_stopping=True)
    write(host.explain("A17", SECOND))
    said = capsys.readouterr().out
    assert "no live worker takes it" in said and "started first, once a worker takes it" in said
    assert "at once" not in said


def test_records_that_no_live_worker_reads_are_named(host: Host) -> None:
    host.start(FIRST, {"amount": 1}, run_id="A17")
    report(host)
    (left,) = host.fleet.untaken()
    assert left.why is WhyUntaken.RECORDS and "of version 2" in left.text and "up to 1" in left.text


def test_a_run_that_has_its_answer_is_due_and_one_that_waits_is_judged_if_it_is_named(host: Host) -> None:
    asking = Flow("orders", [add, wait.approval("ok"), ship], durability="strong")
    host.run(asking, {"amount": 1}, run_id="A17")
    assert host.fleet.untaken() == []
    assert [one.why for one in host.fleet.untaken("A17")] == [WhyUntaken.NO_WORKER]
    host.answer(host.waits("A17")[0].id, {"approved": True})
    assert why(host) is WhyUntaken.NO_WORKER
    host.resume("A17", asking)
    assert host.fleet.untaken() == host.fleet.untaken("A17") == []


def test_what_no_worker_takes_is_named_however_many_others_are_due(host: Host) -> None:
    """Also where more newer runs are due, or more have an answer, than a listing has."""
    asking = orders("1", add, wait.approval("ok"), ship), orders("2", add_tax, wait.approval("ok"), ship)
    report(host, FIRST, asking[0])
    for flow, run_ids in ((asking[0], ("H1", "H2", "H3")), (asking[1], ("H4",))):
        for run_id in run_ids:
            host.run(flow, {"amount": 1}, run_id=run_id)
            host.answer(host.waits(run_id)[0].id, {"approved": True})
    host.start(SECOND, {"amount": 1}, run_id="A1")
    for n in range(2, 6):
        host.start(FIRST, {"amount": 1}, run_id=f"A{n}")
    assert [one.run_id for one in host.fleet.untaken(limit=2)] == ["A1", "H4"]


def test_what_no_worker_takes_is_named_however_many_are_paused(host: Host) -> None:
    other = Flow("others", [add], durability="strong")
    host.start(other, {"amount": 1}, run_id="B1")
    for n in range(3):
        host.start(FIRST, {"amount": 1}, run_id=f"A{n}")
    host.fleet.pause(flow="orders")
    assert [one.run_id for one in host.fleet.untaken(limit=2)] == ["B1"]


def test_a_pinned_run_is_left_by_workers_of_other_versions_and_taken_by_its_own(host: Host) -> None:
    """Even where the structure is the same, and whichever version came first."""
    host.start(PINNED, {"amount": 1}, run_id="A17")
    host.start(NOW_PINNED, {"amount": 1}, run_id="A18")
    assert host.work([SECOND], until_idle=True).claimed == 0
    assert host.work([NOW_PINNED], until_idle=True).completed == 1
    assert host.info("A17").status == "running" and host.info("A18").status == "completed"
    report(host, NOW_PINNED)
    assert why(host) is WhyUntaken.PINNED
    assert host.work([PINNED], until_idle=True).completed == 1
    assert host.info("A17").flow_version == "1"


def test_a_worker_of_two_versions_drives_both(host: Host) -> None:
    host.start(PINNED, {"amount": 1}, run_id="A17")
    host.start(NOW_PINNED, {"amount": 1}, run_id="A18")
    assert host.work([PINNED, NOW_PINNED], until_idle=True).completed == 2
    assert [host.info(run_id).flow_version for run_id in ("A17", "A18")] == ["1", "2"]


def test_only_a_person_takes_a_pinned_run_over(host: Host) -> None:
    host.start(PINNED, {"amount": 1}, run_id="A17")
    told = host.versions.compat("A17", NOW_PINNED)
    assert told.verdict == "needs_migration" and "pinned to version '1'" in told.reason
    for go_on in (host.resume, lambda run_id, flow: host.run(flow, {"amount": 1}, run_id=run_id)):
        with pytest.raises(FlowChanged, match=r"pinned to version '1'.*this is version '2'"):
            go_on("A17", NOW_PINNED)
    assert host.versions.migrate("A17", NOW_PINNED, dry_run=True).verdict == "continues"
    assert host.info("A17").flow_version == "1"
    host.versions.migrate("A17", NOW_PINNED)
    assert host.info("A17").flow_version == "2"
    assert host.work([PINNED], until_idle=True).claimed == 0
    assert host.work([NOW_PINNED], until_idle=True).completed == 1


def test_a_fork_of_a_pinned_run_is_pinned_too(host: Host) -> None:
    host.run(PINNED, {"amount": 1}, run_id="A17")
    host.fork("A17", at=1, fork_id="A17-b")
    assert host.work([NOW_PINNED], until_idle=True).claimed == 0
    assert host.work([PINNED], until_idle=True).completed == 1
