"""What a pause does to a run: what is under way is recorded, and nothing more starts until it goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from everstep import Context, Flow, Host, Retry, Status, chain, node, parallel, wait
from everstep.errors import BadRequest, RunEnded, RunPaused
from everstep.inbox import append
from everstep.results import RunResult
from tests.integration.runtime.workers.pausing import Watched, looping, wait_for

pytestmark = pytest.mark.stores("memory", "sqlite")
Drive = Callable[..., "Future[RunResult]"]


@pytest.fixture
def drive(host: Host) -> Iterator[Drive]:
    """Drive a run on a thread."""
    with ThreadPoolExecutor() as threads:
        yield lambda flow, inputs=None, run_id="run": threads.submit(host.run, flow, inputs, run_id=run_id)


def test_a_paused_run_records_what_is_under_way_and_starts_nothing(host: Host, drive: Drive) -> None:
    watched = Watched()

    @node(output="a")
    async def first(ctx: Context) -> int:
        watched.begin(ctx.run_id, "first")
        await watched.held()
        return 1

    @node(output="b")
    def second(a: int, ctx: Context) -> int:
        watched.begin(ctx.run_id, "second")
        return a + 1

    flow = Flow("f", [first, second])
    driving = drive(flow)
    wait_for(watched.steps)
    told = host.fleet.pause("run", by="ann", comment="a look")
    assert (told.run_id, told.flow, told.by and told.by.by) == ("run", "f", "ann")
    info = host.info("run")
    assert (info.paused_at, info.is_driven, info.needs_repair) == (told.since, True, None)
    watched.gate.set()
    result = driving.result(20)
    assert (result.status, result.is_paused, result["a"]) == (Status.RUNNING, True, 1)
    with pytest.raises(RunPaused, match="is paused"):
        result.raise_for_status()
    info = host.info("run")
    assert (info.is_driven, info.paused_by and info.paused_by.comment) == (False, "a look")
    with pytest.raises(RunPaused, match="everstep unpause run"):
        host.resume("run", flow)
    with pytest.raises(RunPaused, match="by ann: a look"):
        host.run(flow, run_id="run")
    assert host.fleet.pause("run", by="bob") == told, "the first pause counts"
    assert host.work([flow], until_idle=True).claimed == 0
    assert host.fleet.unpause("run") is True
    assert host.fleet.unpause("run") is False
    assert host.work([flow], until_idle=True).completed == 1
    assert watched.steps() == ["first", "second"]
    assert host.info("run").paused_at is None


def test_a_pause_counts_as_no_takeover_and_uses_up_no_attempt(host: Host, drive: Drive) -> None:
    watched = Watched()
    flow = looping(watched, rounds=40, seconds=0.002)
    driving = drive(flow, {"n": 0})
    for k in range(5):
        wait_for(partial(_has_more, watched, len(watched.began)))
        host.fleet.pause("run")
        assert driving.result(20).is_paused
        host.fleet.unpause("run")
        driving = drive(flow, None) if k < 4 else driving
    result = host.resume("run", flow)
    assert (result.status, result["end"]) == (Status.COMPLETED, 40)
    assert len(watched.began) == 40, "no step was made twice"


def _has_more(watched: Watched, than: int) -> bool:
    return len(watched.began) > than


def test_a_pause_of_a_run_that_waits_holds_up_nothing_that_is_under_way(host: Host, drive: Drive) -> None:
    """The loop of its drive went round and round, so that what was under way on it never ended."""
    watched, turns = Watched(), []

    @node(output="made", effects="effectful", idempotency_key="auto")
    async def make(x: int, ctx: Context) -> int:
        watched.begin(ctx.run_id, "make")
        while not watched.gate.is_set():
            turns.append(x)
            await asyncio.sleep(0.002)
        return x + 1

    @node(output="end")
    def end(made: int, ask: str, ctx: Context) -> str:
        watched.begin(ctx.run_id, "end")
        return f"{made} {ask}"

    flow = Flow("f", [chain(parallel(make, wait.question("ask", kind="text")), end)])
    driving = drive(flow, {"x": 1})
    wait_for(lambda: bool(turns) and len(host.waits("run")) == 1)
    host.fleet.pause("run")
    heard = len(turns) + 3  # the drive has its turns between those of the node
    wait_for(lambda: len(turns) > heard)
    host.answer(host.waits("run")[0].id, "now")
    watched.gate.set()
    assert driving.result(20).is_paused
    assert watched.steps() == ["make"]
    host.fleet.unpause("run")
    assert host.resume("run", flow)["end"] == "2 now"
    assert watched.steps() == ["make", "end"]


def test_items_of_a_map_under_way_are_recorded_and_no_others_begin(host: Host, drive: Drive) -> None:
    watched = Watched()

    @node(output="doubled")
    async def double(item: int, ctx: Context) -> int:
        watched.begin(ctx.run_id, str(item))
        await watched.held()
        return 2 * item

    flow = Flow("f", [Flow("inner", [double]).as_node(name="all").map_over("item", max_concurrency=2)])
    driving = drive(flow, {"item": [1, 2, 3, 4]})
    wait_for(lambda: len(watched.began) == 2)
    host.fleet.pause("run")
    watched.gate.set()
    assert driving.result(20).is_paused
    assert sorted(watched.steps()) == ["1", "2"]
    host.fleet.unpause("run")
    assert host.resume("run", flow).raise_for_status()
    assert sorted(watched.steps()) == ["1", "2", "3", "4"]


def test_a_durable_call_under_way_is_recorded_and_the_next_is_not_made(host: Host, drive: Drive) -> None:
    watched = Watched()

    async def call(k: int) -> int:
        watched.begin("run", f"call {k}")
        if k == 2:
            await watched.held()
        return k

    @node(output="sum")
    async def work(ctx: Context) -> int:
        watched.begin("run", "work")
        return sum([await ctx.step(f"s{k}", call, k) for k in (1, 2, 3)])

    flow = Flow("f", [work])
    driving = drive(flow)
    wait_for(lambda: "call 2" in watched.steps())
    host.fleet.pause("run")
    watched.gate.set()
    assert driving.result(20).is_paused
    assert watched.steps() == ["work", "call 1", "call 2"]
    host.fleet.unpause("run")
    result = host.resume("run", flow)
    assert (result.status, result["sum"]) == (Status.COMPLETED, 6)
    assert watched.steps() == ["work", "call 1", "call 2", "work", "call 3"]


def test_a_node_that_said_that_it_has_begun_is_left_between_two_of_its_calls(
    host: Host, drive: Drive
) -> None:
    """It says so before its first call if signals could change what it reads."""
    watched = Watched()

    async def call(k: int) -> int:
        watched.begin("run", f"call {k}")
        if k == 1:
            await watched.held()
        return k

    @node(output="sum")
    async def work(ctx: Context, notes: list[str] | None = None) -> int:
        return sum([await ctx.step(f"s{k}", call, k) for k in (1, 2)])

    flow = Flow("f", [work], inbox={"notes": append})
    driving = drive(flow)
    wait_for(watched.steps)
    host.fleet.pause("run")
    watched.gate.set()
    assert driving.result(20).is_paused
    assert watched.steps() == ["call 1"]
    host.fleet.unpause("run")
    assert host.resume("run", flow)["sum"] == 3
    assert watched.steps() == ["call 1", "call 2"]


@pytest.mark.parametrize("way", ["gather", "group"])
def test_of_calls_made_at_once_those_that_began_are_recorded(host: Host, drive: Drive, way: str) -> None:
    watched = Watched()

    async def call(k: int) -> int:
        watched.begin("run", f"call {k}")
        await watched.held()
        return k

    @node(output="sum")
    async def work(ctx: Context) -> int:
        async def two(k: int) -> int:
            return await ctx.step(f"s{k}", call, k) + await ctx.step(f"s{k + 1}", call, k + 1)

        if way == "gather":
            return sum(await asyncio.gather(two(1), two(3)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(two(k)) for k in (1, 3)]
        return sum(task.result() for task in tasks)

    flow = Flow("f", [work])
    driving = drive(flow)
    wait_for(lambda: len(watched.began) == 2)
    host.fleet.pause("run")
    watched.gate.set()
    assert driving.result(20).is_paused
    assert sorted(watched.steps()) == ["call 1", "call 3"]
    host.fleet.unpause("run")
    assert host.resume("run", flow)["sum"] == 10
    assert sorted(watched.steps()) == ["call 1", "call 2", "call 3", "call 4"]


def test_a_sync_node_is_left_between_two_of_its_calls(host: Host, drive: Drive) -> None:
    watched = Watched()

    def call(k: int) -> int:
        watched.begin("run", f"call {k}")
        if k == 1:
            watched.gate.wait(20)
        return k

    @node(output="sum")
    def work(ctx: Context) -> int:
        return sum(ctx.step(f"s{k}", call, k) for k in (1, 2))

    flow = Flow("f", [work])
    driving = drive(flow)
    wait_for(watched.steps)
    host.fleet.pause("run")
    watched.gate.set()
    assert driving.result(20).is_paused
    assert watched.steps() == ["call 1"]
    host.fleet.unpause("run")
    assert host.resume("run", flow)["sum"] == 3
    assert watched.steps() == ["call 1", "call 2"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_call_that_pauses_before_a_retry_is_not_waited_for(
    host: Host, drive: Drive, is_async: bool
) -> None:
    failed = threading.Event()

    def call() -> int:
        failed.set()
        raise OSError("not now")

    async def call_async() -> int:
        return call()

    policy = Retry(3, first=3600)
    if is_async:

        @node(output="a")
        async def work(ctx: Context) -> int:
            return await ctx.step("s", call_async, retry=policy)
    else:

        @node(output="a")
        def work(ctx: Context) -> int:
            return ctx.step("s", call, retry=policy)

    driving = drive(Flow("f", [work]))
    assert failed.wait(20)
    wait_for(lambda: host.info("run").checkpoints > 1)
    host.fleet.pause("run")
    assert driving.result(20).is_paused


def test_a_node_that_pauses_before_a_retry_is_not_waited_for(host: Host, drive: Drive) -> None:
    calls: list[int] = []

    @node(output="a", retry=Retry(3, first=3600))
    def work() -> int:
        calls.append(1)
        raise OSError("not now")

    driving = drive(Flow("f", [work]))
    wait_for(calls.__len__)
    host.fleet.pause("run")
    assert driving.result(20).is_paused
    assert len(calls) == 1


def test_an_atomic_flow_that_has_begun_comes_to_its_end(host: Host, drive: Drive) -> None:
    watched = Watched()

    @node(output="a")
    async def one(ctx: Context) -> int:
        watched.begin("run", "one")
        await watched.held()
        return 1

    @node(output="b")
    def two(a: int) -> int:
        watched.begin("run", "two")
        return a + 1

    @node(output="c")
    def three(b: int) -> int:
        watched.begin("run", "three")
        return b + 1

    inner = Flow("inner", [one, two]).as_node(name="both", durability="atomic").lift("b")
    flow = Flow("f", [inner, three])
    driving = drive(flow)
    wait_for(watched.steps)
    host.fleet.pause("run")
    watched.gate.set()
    assert driving.result(20).is_paused
    assert watched.steps() == ["one", "two"]
    host.fleet.unpause("run")
    assert host.resume("run", flow)["c"] == 3
    assert watched.steps() == ["one", "two", "three"]


def test_waits_of_a_paused_run_take_answers_and_it_goes_on_later(host: Host) -> None:
    calls: list[bool] = []

    @node(output="end")
    def after(ok: object) -> bool:
        calls.append(bool(ok))
        return bool(ok)

    flow = Flow("f", [wait.approval("ok"), after])
    assert host.run(flow, run_id="run").status is Status.HALTED
    host.fleet.pause("run")
    [asked] = host.waits("run")
    host.answer(asked.id, {"approved": True})
    assert host.work([flow], until_idle=True).claimed == 0 and calls == []
    with pytest.raises(RunPaused):
        host.resume("run", flow)
    host.fleet.unpause("run")
    assert host.work([flow], until_idle=True).completed == 1 and calls == [True]


def test_a_node_that_halts_while_the_run_is_paused_opens_its_wait(host: Host, drive: Drive) -> None:
    watched = Watched()

    @node(output="ok", halts=True)
    async def ask(ctx: Context) -> bool:
        watched.begin("run", "ask")
        await watched.held()
        return bool(await ctx.wait(wait.approval("ok")))

    flow = Flow("f", [ask])
    driving = drive(flow)
    wait_for(watched.steps)
    host.fleet.pause("run")
    watched.gate.set()
    result = driving.result(20)
    assert (result.status, result.is_paused, len(result.waits)) == (Status.HALTED, True, 1)
    host.answer(result.waits[0].id, {"approved": True})
    host.fleet.unpause("run")
    assert host.resume("run", flow).status is Status.COMPLETED


def test_a_run_that_ends_while_it_is_paused_has_ended(host: Host, drive: Drive) -> None:
    watched = Watched()

    @node(output="a")
    async def only(ctx: Context) -> int:
        watched.begin("run", "only")
        await watched.held()
        return 1

    driving = drive(Flow("f", [only]))
    wait_for(watched.steps)
    host.fleet.pause("run")
    watched.gate.set()
    result = driving.result(20)
    assert (result.status, result.is_paused) == (Status.COMPLETED, False)
    assert (host.info("run").paused_at, host.fleet.pauses()) == (None, [])
    with pytest.raises(RunEnded, match="has ended"):
        host.fleet.pause("run", by="ann")
    assert host.fleet.audit(act="pause")[-1].code == "run.ended"


def test_a_paused_run_can_be_cancelled_and_forked(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok")])
    host.run(flow, run_id="run")
    host.fleet.pause("run")
    fork = host.fork("run")
    assert fork.paused_at is None
    assert host.work([flow], until_idle=True).claimed == 1, "the fork goes on"
    assert host.cancel("run") is Status.CANCELLED
    assert host.info("run").paused_at is None


def test_a_run_that_is_let_go_on_while_it_winds_down_goes_on_here(host: Host, drive: Drive) -> None:
    watched = Watched()

    @node(output="a")
    async def first(ctx: Context) -> int:
        watched.begin("run", "first")
        await watched.held()
        return 1

    @node(output="b")
    def second(a: int) -> int:
        return a + 1

    driving = drive(Flow("f", [first, second]))
    wait_for(watched.steps)
    host.fleet.pause("run")
    host.fleet.unpause("run")
    watched.gate.set()
    result = driving.result(20)
    assert (result.status, result.is_paused, result["b"]) == (Status.COMPLETED, False, 2)


def test_a_paused_flow_takes_runs_in_and_starts_none(host: Host) -> None:
    calls: list[int] = []

    @node(output="a")
    def only() -> int:
        calls.append(1)
        return 1

    flow, other = Flow("f", [only]), Flow("g", [only])
    told = host.fleet.pause(flow="f", by="ann")
    assert (told.run_id, told.flow, told.group) == (None, "f", None)
    result = host.run(flow, run_id="here")
    assert (result.status, result.is_paused) == (Status.RUNNING, True)
    host.start(flow, run_id="there")
    host.start(other, run_id="other")
    assert host.work([flow, other], until_idle=True).completed == 1
    assert len(calls) == 1 and host.fleet.untaken() == []
    explained = host.explain("there", flow)
    assert "flow 'f' is paused" in explained.paused and "everstep unpause --flow f" in explained.paused
    with pytest.raises(RunPaused, match="flow 'f' is paused"):
        host.resume("there", flow)
    assert host.fleet.pauses() == [told]
    assert host.fleet.unpause(flow="f") is True
    assert host.fleet.unpause(flow="f") is False
    assert host.work([flow, other], until_idle=True).completed == 2


def test_a_flow_that_another_process_lets_go_on_goes_on_here(host: Host, url: str) -> None:
    if url == "memory:":
        pytest.skip("no other process has it")

    @node(output="a")
    def only() -> int:
        return 1

    flow = Flow("f", [only])
    host.start(flow, run_id="run")
    host.fleet.pause(flow="f")
    with Host(url) as other:
        assert other.fleet.unpause(flow="f")
    assert host.resume("run", flow).status is Status.COMPLETED


def test_a_paused_group_is_one_of_a_flow_or_of_every_flow(host: Host) -> None:
    @node(output="a")
    def only() -> int:
        return 1

    flows = [Flow("f", [only]), Flow("g", [only])]
    for flow in flows:
        for group in ("acme", "beta"):
            host.start(flow, run_id=f"{flow.name}-{group}", group=group)
    host.fleet.pause(flow="f", group="acme")
    host.fleet.pause(group="beta")
    assert host.work(flows, until_idle=True).completed == 1
    assert host.info("g-acme").status is Status.COMPLETED
    host.fleet.unpause(group="beta")
    assert host.work(flows, until_idle=True).completed == 2
    host.fleet.unpause(flow="f", group="acme")
    assert host.work(flows, until_idle=True).completed == 1


def test_what_is_paused_is_found_and_shown(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok")])
    for k in range(3):
        host.run(flow, run_id=f"run-{k}")
    since = host.fleet.pause("run-1", by="ann").since
    assert [info.run_id for info in host.runs(paused=True)] == ["run-1"]
    assert [info.run_id for info in host.runs(where="paused = true")] == ["run-1"]
    assert [info.run_id for info in host.runs(where="paused = false and status = halted")] == [
        "run-2",
        "run-0",
    ]
    assert host.runs(needs_repair=True) == []
    [row] = host.fleet.pauses()
    assert (row.run_id, row.since, row.by and row.by.by) == ("run-1", since, "ann")
    acts = [(row.act, row.run_id, row.outcome) for row in host.fleet.audit()]
    assert acts == [("pause", "run-1", "done")]


def test_what_cannot_be_paused_is_refused_by_name(host: Host) -> None:
    for named in ({}, {"flow": ""}, {"group": "a\0b"}):
        with pytest.raises(BadRequest):
            host.fleet.pause(**named)
    host.run(Flow("f", [wait.approval("ok")]), run_id="run")
    with pytest.raises(BadRequest, match="a flow or a group as well"):
        host.fleet.pause("run", flow="f")


def test_a_paused_run_that_is_copied_is_set_aside_there_and_one_that_is_moved_stays_paused(
    host: Host, tmp_path: Path
) -> None:
    flow = Flow("f", [wait.approval("ok")])
    for name in ("copied", "moved"):
        host.run(flow, run_id=name)
        host.fleet.pause(name)
    there = f"sqlite:///{tmp_path}/there.db"
    host.transfer.copy(there, ["copied"])
    host.transfer.copy(there, ["moved"], move=True)
    assert host.info("copied").paused_at is not None
    with Host(there) as other:
        assert (other.info("copied").paused_at, other.info("copied").is_damaged) == (None, False)
        assert other.info("copied").needs_repair is not None
        assert other.info("moved").paused_at is not None
    bundle = tmp_path / "run.zip"
    host.transfer.export("copied", bundle)
    with Host(f"sqlite:///{tmp_path}/third.db") as third:
        third.transfer.import_(bundle)
        assert (third.info("copied").paused_at, third.info("copied").needs_repair is None) == (None, False)


def test_an_owner_that_dies_leaves_the_run_paused(host: Host, url: str) -> None:
    if url == "memory:":
        pytest.skip("a process that dies takes it along")
    watched = Watched()
    flow = looping(watched, rounds=3)
    host.start(flow, {"n": 0}, run_id="run")
    with Host(url) as other:
        dead = other._lanes.call(  # as a worker claims it, and nothing more
            lambda it: it._runs.resting.claim("run", flow.durability, waits=False)
        )
        assert dead.epoch == 1
        host.fleet.pause("run")
        assert host.work([flow], until_idle=True).claimed == 0
        other._lanes.call(lambda it: it._runs.resting.release(dead))
    assert host.work([flow], until_idle=True).claimed == 0
    host.fleet.unpause("run")
    assert host.work([flow], until_idle=True).completed == 1


@pytest.mark.parametrize("pauses", ["run", "flow"])
def test_what_is_sent_to_a_paused_run_is_kept_until_it_goes_on(host: Host, pauses: str) -> None:
    flow = Flow("f", [wait.approval("ok")])
    host.run(flow, run_id="run")
    named = {"run_id": "run"} if pauses == "run" else {"flow": "f"}
    host.fleet.pause(**named)
    result = host.send("run", "ok", {"approved": True}, drive=flow)
    assert (result.status, result.is_paused) == (Status.HALTED, True)
    assert [one.status for one in result.waits] == ["settled"]
    host.fleet.unpause(**named)
    assert host.resume("run", flow)["ok"].approved


def test_a_pause_outlasts_its_wait_with_wait(host: Host, drive: Drive) -> None:
    flow = Flow("f", [wait.timer("soon", duration=0.3)])
    with ThreadPoolExecutor() as threads:
        staying = threads.submit(host.run, flow, run_id="run", wait=True)
        wait_for(lambda: any(info.status is Status.HALTED for info in host.runs()))
        host.fleet.pause("run")
        result = staying.result(20)
    assert (result.status, result.is_paused) == (Status.HALTED, True)
    host.fleet.unpause("run")
    assert host.resume("run", flow, wait=True).status is Status.COMPLETED
