"""One unfinished run of a key: another start is refused, joins it, replaces it, or queues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Flow, Host, Limit, Singleton, node, wait
from everstep.engine.limits.slots import slot_name
from everstep.errors import BadRequest, KeyTaken, NoRoom
from everstep.runtime import inputs, runs
from everstep.testing import ManualClock

pytestmark = pytest.mark.servers
FAILS: set[str] = set()


@node(output="sent")
def send(ok: Any, customer: str | None) -> str:
    if customer in FAILS:
        raise ValueError("no")
    return f"to {customer}"


def mail(on_conflict: str = "refuse", **said: Any) -> Flow:
    """Return a flow that asks before it sends: its runs are unfinished until they are answered."""
    limits = [Singleton("customer", on_conflict=on_conflict, **said)]
    return Flow("mail", [wait.approval("ask", output="ok"), send], limits=limits)


def answer(host: Host, run_id: str) -> None:
    host.answer(host.waits(run_id=run_id)[0].id, {"approved": True})


def finish(host: Host, flow: Flow, run_id: str) -> None:
    """Drive what is due, answer a run, and drive it to its end."""
    host.work([flow], until_idle=True)
    answer(host, run_id)
    host.work([flow], until_idle=True)


ANN = {"customer": "ann"}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Singleton("a b"),
        lambda: Singleton("customer", on_conflict="wait"),
        lambda: Singleton("customer", by=""),
        lambda: mail(by="customers"),
        lambda: Flow("f", [send], limits=[Singleton("customer"), Singleton("ok")]),
        lambda: Flow("f", [send], limits=Singleton("customer")),  # type: ignore[arg-type]
    ],
)
def test_singletons_that_mean_nothing_are_refused(wrong: Any) -> None:
    with pytest.raises(BadRequest):
        wrong()


def test_a_start_is_refused_until_the_run_that_has_the_key_has_ended(host: Host) -> None:
    flow = mail()
    host.start(flow, ANN, run_id="first")
    host.start(flow, {"customer": "bob"}, run_id="bob")
    for _ in range(2):
        with pytest.raises(KeyTaken, match="'first'") as refused:
            host.start(flow, ANN)
        assert (refused.value.details["run_id"], refused.value.details["key"]) == ("first", "customer=ann")
        host.work([flow], until_idle=True)  # now it is halted
    with pytest.raises(KeyTaken):
        host.run(flow, ANN)
    assert len(host.runs()) == 2
    assert host.start(flow, ANN, run_id="first").run_id == "first"  # the same start again
    finish(host, flow, "first")
    assert host.start(flow, ANN).status == "running"
    assert host.start(flow, ANN, run_id="first").status == "completed"


def test_without_a_key_nothing_is_refused(host: Host) -> None:
    for _ in range(3):
        host.start(mail(), {"customer": None})
    assert len(host.runs()) == 3


def test_a_start_joins_the_run_that_has_the_key(host: Host) -> None:
    flow = mail("join")
    first = host.start(flow, ANN, run_id="first")
    second = host.start(flow, ANN, run_id="second")
    assert (first.joined, second.run_id, second.joined) == (False, "first", True)  # type: ignore[attr-defined]
    assert host.run(flow, ANN).run_id == "first"
    answer(host, "first")
    assert host.run(flow, ANN)["sent"] == "to ann"
    assert [run.run_id for run in host.runs()] == ["first"]
    assert host.start(flow, ANN).run_id != "first"


def test_a_start_replaces_the_runs_that_have_the_key(host: Host) -> None:
    flow = mail("replace")
    host.start(flow, ANN, run_id="first")
    host.work([flow], until_idle=True)
    second = host.start(flow, ANN, run_id="second")
    assert second.replaced == ("first",)  # type: ignore[attr-defined]
    assert host.info("first").status == "cancelled"
    third = host.start(flow, ANN, run_id="third")
    assert third.replaced == ("second",)  # type: ignore[attr-defined]
    assert host.work([flow], until_idle=True).halted == 1
    finish(host, flow, "third")
    assert {run.run_id: str(run.status) for run in host.runs()} == {
        "first": "cancelled",
        "second": "cancelled",
        "third": "completed",
    }


def test_the_new_run_begins_when_the_one_it_replaces_has_ended(url: str) -> None:
    may_end, began = asyncio.Event(), list[str]()

    @node(output="b")
    async def hold(customer: str, name: str) -> str:
        began.append(name)
        if name == "first":
            while not may_end.is_set():
                await asyncio.sleep(0.01)
        return name

    @node(output="c")
    async def more(b: str) -> str:
        return b

    flow = Flow("f", [hold, more], limits=[Singleton("customer", on_conflict="replace")])

    async def both() -> None:
        async with AsyncHost(url) as host, AsyncHost(url) as other:
            first = asyncio.ensure_future(host.run(flow, {**ANN, "name": "first"}, run_id="first"))
            while not began:
                await asyncio.sleep(0.01)
            await other.start(flow, {**ANN, "name": "second"}, run_id="second")
            await other.work([flow], until_idle=True)
            assert began == ["first"]
            may_end.set()
            await asyncio.gather(first, return_exceptions=True)
            await other.work([flow], until_idle=True)
            assert began == ["first", "second"]
            assert (await other.info("first")).status == "cancelled"

    if url != "memory:":
        asyncio.run(both())


def test_a_start_queues_until_those_before_it_have_ended(host: Host) -> None:
    flow = mail("queue")
    for number in range(3):
        host.start(flow, ANN, run_id=f"r{number}")
    host.start(flow, {"customer": "bob"}, run_id="bob")
    assert host.work([flow], until_idle=True).halted == 2
    with pytest.raises(NoRoom, match="'r0' has not ended"):
        host.resume("r1", flow, at_once=True)
    for number in range(3):
        assert {wait.run_id for wait in host.waits()} == {"bob", f"r{number}"}
        finish(host, flow, f"r{number}")
    assert [str(host.info(f"r{number}").status) for number in range(3)] == ["completed"] * 3


@pytest.mark.stores("sqlite")
def test_what_waits_for_a_key_says_which_run_has_it(tmp_path: Path) -> None:
    flow = mail("queue")

    async def look() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            for number in range(3):
                await host.start(flow, ANN, run_id=f"r{number}")
            work = asyncio.ensure_future(host.work([flow]))
            while (await host.info("r0")).status != "halted" or not await host.fleet.limits():
                await asyncio.sleep(0.01)
            [one] = await host.fleet.limits()
            assert (one.limit, one.flow, one.key, one.running, one.most) == ("customer", "mail", "ann", 1, 1)
            assert (one.waiting, one.why) == (2, "run r0 has not ended")
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    asyncio.run(look())


def test_a_fork_waits_and_is_known_to_later_starts(host: Host) -> None:
    flow = mail()
    host.start(flow, ANN, run_id="first")
    host.work([flow], until_idle=True)
    host.fork("first", at=1, fork_id="fork")
    assert host.work([flow], until_idle=True).halted == 0
    finish(host, flow, "first")
    with pytest.raises(KeyTaken, match="'fork'"):
        host.start(flow, ANN)
    finish(host, flow, "fork")
    host.start(flow, ANN)


def test_a_run_that_is_reopened_waits_and_is_known_to_later_starts(host: Host) -> None:
    flow = mail()
    FAILS.add("ann")
    host.start(flow, ANN, run_id="failed")
    finish(host, flow, "failed")
    assert host.info("failed").status == "failed"
    FAILS.clear()
    host.start(flow, ANN, run_id="next")
    host.work([flow], until_idle=True)
    with pytest.raises(NoRoom, match="'next' has not ended"):
        host.resume("failed", flow, at_once=True)
    answer(host, "next")
    host.work([flow], until_idle=True)
    assert host.resume("failed", flow).status == "completed"


def test_of_many_starts_at_once_one_wins(url: str) -> None:
    if url == "memory:":
        pytest.skip("one process has it")
    flow = mail()

    async def start() -> str:
        async with AsyncHost(url) as host:
            try:
                return (await host.start(flow, ANN)).run_id
            except KeyTaken:
                return ""

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(start() for _ in range(8)))

    with Host(url):
        pass
    assert sum(map(bool, asyncio.run(all_of_them()))) == 1


def test_a_key_may_hold_what_separates_others(host: Host) -> None:
    flow = Flow(
        "f",
        [wait.approval("ask", output="ok"), send],
        limits=[Singleton("customer"), Limit("t", running=1, by="customer")],
    )
    keys = ["a,b", "a=b", "@customer=ann", "a%2Cb", "ann,@customer=bob", "ann", "bob", "é 漢字"]
    for key in keys:
        host.start(flow, {"customer": key})
        with pytest.raises(KeyTaken):
            host.start(flow, {"customer": key})
    assert host.work([flow], until_idle=True).halted == len(keys)


@pytest.mark.stores("sqlite")
def test_a_start_whose_process_died_holds_the_key_for_a_while_only(tmp_path: Path) -> None:
    flow, clock = mail(), ManualClock()
    with Host(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
        host.start(mail("queue"), ANN, run_id="x")  # makes the flow known
        host.cancel("x")

        async def write_down(host: AsyncHost) -> None:
            from everstep.engine.limits.rates import micros_at
            from everstep.engine.limits.slots import enter

            name = slot_name("mail", "@customer=ann")
            await host._services.store.change_limit(  # type: ignore[attr-defined]
                name, lambda body, now: enter(body, "dead", micros_at(now), (), needs_free=True)
            )

        host._lanes.call(write_down)
        with pytest.raises(KeyTaken, match="'dead'"):
            host.start(flow, ANN)
        clock.advance(31)
        host.start(flow, ANN, run_id="next")
        with pytest.raises(KeyTaken, match="'next'"):
            host.start(flow, ANN)
        # The one that was given up can no longer be admitted.
        with pytest.raises(KeyTaken, match="'next'"):
            host.start(flow, ANN, run_id="dead")
        host.cancel("next")
        with pytest.raises(Exception, match="removed"):
            host.start(flow, ANN, run_id="dead")
        host.start(flow, ANN, run_id="last")


@pytest.mark.stores("sqlite")
def test_a_start_that_took_so_long_that_it_was_given_up_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, flow = ManualClock(), mail()
    with (
        Host(f"sqlite:///{tmp_path}/runs.db", clock=clock) as slow,
        Host(f"sqlite:///{tmp_path}/runs.db", clock=clock) as quick,
    ):
        draft, taken = inputs.draft_run, list[str]()

        async def take_long(*given: Any) -> Any:
            drafted = await draft(*given)
            if not taken:  # the process was frozen here, and another has started a run since
                taken.append("")
                clock.advance(31)
                taken[0] = await asyncio.to_thread(lambda: quick.start(flow, ANN).run_id)
            return drafted

        monkeypatch.setattr(runs, "draft_run", take_long)
        with pytest.raises(KeyTaken) as refused:
            slow.start(flow, ANN)
        assert refused.value.details["run_id"] == taken[0]
        assert [run.run_id for run in quick.runs(flow="mail")] == taken
