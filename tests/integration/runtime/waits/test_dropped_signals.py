"""Signals that fit nothing: taken out of an inbox unread, or refused where that is known at once."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from everstep import AsyncHost, Flow, Host, Status, node, wait
from everstep.errors import BadRequest, LeaseConflict, RunEnded, RunNotFound
from everstep.inbox import add
from everstep.registry import Opened
from everstep.stores.memory.store import MemoryData, MemoryStore
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing

pytestmark = pytest.mark.servers


@node(output="told")
def tell(count: int, ok: wait.ApprovalOutput) -> int:
    return count


counts = Flow("counts", [wait.approval("ok"), tell], inbox={"count": add}, durability="strong")


def with_misfits(host: Host) -> None:
    """Let a run wait, with signals that do not fit and one that does."""
    host.run(counts, {"count": 1}, run_id="r")
    for value, signal_id in (("text", "a"), (5, "b"), ([1], "c")):
        host.send("r", "count", value, id=signal_id)


def test_a_signal_that_fits_nothing_is_dropped_and_the_run_goes_on(host: Host) -> None:
    with_misfits(host)
    dropped = host.drop_signal("r", "a", by="ann", comment="no number")
    assert (dropped.id, dropped.value, dropped.number) == ("a", "text", 1)
    assert [signal.id for signal in host.inbox("r")] == ["b", "c"]
    assert not host.send("r", "count", 7, id="a").is_new, "it is the same signal for good"
    newest = host.history("r")[-1]
    assert newest.metadata is not None and newest.metadata["dropped"]["id"] == "a"
    assert newest.act is not None and (newest.act.by, newest.act.comment) == ("ann", "no number")
    info = host.info("r")
    assert (info.status, info.is_driven) == (Status.HALTED, False)
    [asked] = host.waits("r")
    host.answer(asked.id, {"approved": True})
    result = host.resume("r", counts)
    assert (result.status, result["told"]) == (Status.COMPLETED, 6)
    assert [signal.id for signal in host.inbox("r")] == ["c"]
    assert host.storage.verify("r")[0].is_sound


def test_what_drops_it_is_in_the_audit_log(host: Host) -> None:
    with_misfits(host)
    host.drop_signal("r", "a", by="ann")
    [row] = [row for row in host.fleet.audit("r") if row.act == "drop_signal"]
    assert (row.by, row.run_id, row.outcome) == ("ann", "r", "done")


def test_what_cannot_be_dropped_is_refused_by_name(host: Host) -> None:
    with_misfits(host)
    with pytest.raises(RunNotFound):
        host.drop_signal("nope", "a")
    with pytest.raises(BadRequest, match="there is no signal 'z'"):
        host.drop_signal("r", "z")
    with pytest.raises(BadRequest, match="the id of a signal is ''"):
        host.drop_signal("r", "")
    host.fleet.pause("r")
    with pytest.raises(BadRequest, match="is paused"):
        host.drop_signal("r", "a")
    host.fleet.unpause("r")
    host.cancel("r")
    with pytest.raises(RunEnded, match="leaves unread"):
        host.drop_signal("r", "a")
    assert [signal.id for signal in host.inbox("r")] == ["a", "b", "c"]


def test_a_signal_that_has_settled_a_wait_is_not_dropped(host: Host) -> None:
    flow = Flow("f", [wait.signal("said"), hear])
    host.run(flow, {}, run_id="r")
    host.send("r", "said", "x", id="a")
    with pytest.raises(BadRequest, match="has settled a wait"):
        host.drop_signal("r", "a")
    assert host.resume("r", flow)["heard"] == "x"


@node(output="heard")
def hear(said: str) -> str:
    return said


def test_nothing_is_dropped_from_a_run_that_is_driven(host: Host) -> None:
    begun, may_end = threading.Event(), threading.Event()

    @node(output="b")
    def slow(a: int) -> int:
        begun.set()
        assert may_end.wait(20)
        return a

    thread = threading.Thread(target=host.run, args=(Flow("f", [slow]), {"a": 1}), kwargs={"run_id": "r"})
    thread.start()
    assert begun.wait(20)
    host.send("r", "aside", 1, id="a")
    with pytest.raises(LeaseConflict):
        host.drop_signal("r", "a")
    may_end.set()
    thread.join(20)
    assert [signal.id for signal in host.inbox("r")] == ["a"]


@pytest.mark.stores("memory")
def test_a_death_at_any_write_drops_it_or_leaves_it_and_it_may_be_dropped_again() -> None:
    def opened(clock: ManualClock, data: MemoryData, killer: Killer | None = None) -> AsyncHost:
        store = MemoryStore(clock, data)
        place = Opened(store, store.artifacts, "memory:")
        return AsyncHost(place if killer is None else killing(place, by=killer), clock=clock)

    async def dies(at: int) -> list[str]:
        clock, data = ManualClock(), MemoryData()
        killer = Killer(at, act=crash)
        async with opened(clock, data) as other:
            await other.run(counts, {"count": 1}, run_id="r")
            for value, signal_id in (("text", "a"), (5, "b")):
                await other.send("r", "count", value, id=signal_id)
            async with opened(clock, data, killer) as dying:
                with suppress(Crashed):
                    await dying.drop_signal("r", "a")
            clock.advance("2h")
            left.append([signal.id for signal in await other.inbox("r")])
            if "a" in left[-1]:
                await other.drop_signal("r", "a")
            [asked] = await other.waits("r")
            await other.answer(asked.id, {"approved": True})
            assert (await other.resume("r", counts))["told"] == 6
            assert await other.inbox("r") == []
        return killer.points

    left: list[list[str]] = []
    points = next(points for at in range(1, 100) if (points := len(asyncio.run(dies(at)))) < at)
    assert points >= 4, "it died before and after each write"
    assert ["a", "b"] in left and ["b"] in left


def test_what_does_not_fit_is_refused_by_the_process_that_drives_the_run(host: Host) -> None:
    refused: list[BadRequest] = []

    @node(output="b")
    def slow(a: int, count: int) -> int:
        try:
            host.send("r", "count", "text", id="a")
        except BadRequest as error:
            refused.append(error)
        host.send("r", "count", 4)
        host.send("r", "aside", "text")
        return a

    @node(output="c")
    def after(b: int, count: int) -> int:
        return count

    flow = Flow("f", [slow, after], inbox={"count": add}, durability="strong")
    assert host.run(flow, {"a": 1, "count": 1}, run_id="r")["c"] == 5
    assert ["does not fit" in str(error) or "count" in str(error) for error in refused] == [True]
    assert [signal.name for signal in host.inbox("r")] == ["aside"]
