"""What a node is told of the end of a run that it has started: no matter who drives which."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncContext, AsyncHost, Context, Flow, Host, Retention, Status, node, wait
from everstep.errors import BadRequest, CheckpointPinned, ChildFailed
from everstep.registry import open_store
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests.integration.runtime.drive.children.shops import MODES, children_of


class Kitchen:
    """A flow that starts a run for each dish and waits for them all; each run does what its dish says."""

    def __init__(self, mode: str = "sync", *, asks: bool = False) -> None:
        self.broken = {"burnt"}

        @node(output="plate")
        def cook(dish: str) -> str:
            if dish in self.broken:
                raise ValueError(f"{dish} is burnt")
            return f"plate of {dish}"

        self.meal = Flow("meal", [wait.approval("taste"), cook] if asks else [cook])

        def serve(dishes: list[str], ctx: Context) -> list[str]:
            started = [ctx.start(self.meal, {"dish": one}, key=one) for one in dishes]
            return [ctx.result(one)["plate"] for one in started]

        async def serve_async(dishes: list[str], ctx: AsyncContext) -> list[str]:
            started = await asyncio.gather(*(ctx.start("meal", {"dish": one}, key=one) for one in dishes))
            return [(await ctx.result(one))["plate"] for one in started]

        given: Any = serve if mode == "sync" else serve_async
        served = node(name="serve", output="plates", halts=True)(given)
        self.flow = Flow("kitchen", [served], starts=[self.meal])


DISHES = ["rice", "beans"]
PLATES = ["plate of rice", "plate of beans"]


@pytest.mark.servers
@pytest.mark.parametrize("mode", MODES)
def test_run_drives_them_here_and_workers_do_so_elsewhere(host: Host, mode: str) -> None:
    kitchen = Kitchen(mode)
    result = host.run(kitchen.flow, {"dishes": DISHES}, run_id="here")
    assert (result.status, result.error, result["plates"]) == (Status.COMPLETED, None, PLATES)
    host.start(kitchen.flow, {"dishes": DISHES}, run_id="there")
    assert host.work([kitchen.flow], until_idle=True).completed == 3
    assert host.state("there")["plates"] == PLATES
    assert {one.status for one in host.runs()} == {Status.COMPLETED}
    steps = [step.path for record in host.history("there") for step in record.steps if "$result" in step.path]
    assert len({*steps}) == 2


def test_one_that_fails_is_told_of_by_name_and_again_once_it_was_resumed(host: Host) -> None:
    kitchen = Kitchen()
    result = host.run(kitchen.flow, {"dishes": ["rice", "burnt"]}, run_id="K")
    assert result.error is not None and result.error.code == ChildFailed.code
    assert "ValueError: burnt is burnt" in result.error.message
    [_, failed] = children_of(host, "K")
    assert failed.status is Status.FAILED
    kitchen.broken.clear()
    assert host.resume(failed.run_id, kitchen.meal).status is Status.COMPLETED
    assert host.resume("K", kitchen.flow)["plates"] == ["plate of rice", "plate of burnt"]


def test_a_node_may_catch_that_one_failed_and_does_so_again_from_the_records(host: Host) -> None:
    kitchen, fails = Kitchen(), [True]

    @node(output="said", halts=True)
    def serve(ctx: Context) -> str:
        try:
            ctx.result(ctx.start(kitchen.meal, {"dish": "burnt"}))
        except ChildFailed as error:
            said = f"{error.details['status']}"
        ctx.sleep("1h")
        return said

    flow = Flow("serves", [serve], starts=[kitchen.meal])
    halted = host.run(flow, run_id="K")
    assert (halted.status, [one.kind for one in halted.waits]) == (Status.HALTED, ["timer"])
    host.waiting.fire(halted.waits[0].id)
    assert host.resume("K", flow)["said"] == "failed"
    assert fails


def test_while_they_wait_for_people_the_run_waits_for_them(host: Host) -> None:
    kitchen = Kitchen(asks=True)
    halted = host.run(kitchen.flow, {"dishes": ["rice"]}, run_id="K")
    [asked] = halted.waits
    [child] = children_of(host, "K")
    assert (halted.status, asked.kind, asked.listens_for) == (Status.HALTED, "child", child.run_id)
    assert (asked.token, asked.context) == (None, {"run_id": child.run_id})
    with pytest.raises(BadRequest, match="which is not answered"):
        host.answer(asked.id, "done")
    with pytest.raises(CheckpointPinned if child.status.is_final else BadRequest):
        host.retention.erase(child.run_id)
    [question] = host.waits(child.run_id)
    host.answer(question.id, {"approved": True})
    assert host.resume("K", kitchen.flow)["plates"] == ["plate of rice"]


def test_one_is_kept_while_its_starter_has_not_ended(host: Host) -> None:
    kitchen = Kitchen()

    @node(output="x", halts=True)
    def begin(ctx: Context) -> str:
        ctx.result(ctx.start(kitchen.meal, {"dish": "rice"}))
        ctx.sleep("1h")
        return "x"

    flow = Flow("begins", [begin], starts=[kitchen.meal])
    host.run(flow, run_id="K")
    [child] = children_of(host, "K")
    assert child.status is Status.COMPLETED
    with pytest.raises(CheckpointPinned, match="'K', which has started it, has not ended"):
        host.retention.erase(child.run_id)
    found = host.retention.gc(retention=Retention(keep_for="1ms"))
    assert [one.run_id for one in found.spared] == [child.run_id]
    host.cancel("K")
    host.retention.erase(child.run_id)
    assert children_of(host, "K") == []


def test_grandchildren_are_driven_too(host: Host) -> None:
    flows: dict[str, Flow] = {}

    @node(output="sum", halts=True)
    def add(n: int, ctx: Context) -> int:
        if n < 2:
            return n
        below = [ctx.start(flows["fib"], {"n": n - k}) for k in (1, 2)]
        return int(sum(ctx.result(one)["sum"] for one in below))

    flows["fib"] = Flow("fib", [add])
    flows["top"] = Flow("top", [add], starts=[flows["fib"]])
    assert host.run(flows["top"], {"n": 5})["sum"] == 5
    host.start(flows["top"], {"n": 4}, run_id="W")
    host.work([flows["top"]], until_idle=True)
    assert host.state("W")["sum"] == 3


def test_a_result_may_be_waited_for_only_so_long(host: Host) -> None:
    kitchen = Kitchen(asks=True)

    @node(output="said", halts=True)
    def serve(ctx: Context) -> str:
        child = ctx.start(kitchen.meal, {"dish": "rice"})
        try:
            return str(ctx.result(child, timeout="1h")["plate"])
        except TimeoutError:
            return "too late"

    flow = Flow("serves", [serve], starts=[kitchen.meal])
    [asked] = host.run(flow, run_id="K").waits
    host.waiting.fire(asked.id)
    assert host.resume("K", flow)["said"] == "too late"


def test_what_was_not_started_by_a_node_has_no_result_and_halting_is_declared(host: Host) -> None:
    kitchen = Kitchen()

    @node(output="x", halts=True)
    def asks(child: Any, ctx: Context) -> Any:
        return ctx.result(child)

    @node(output="x")
    def undeclared(ctx: Context) -> Any:
        return ctx.result(ctx.start(kitchen.meal, {"dish": "rice"}))

    host.run(kitchen.meal, {"dish": "rice"}, run_id="alone")
    for flow, given, said in (
        (Flow("asks", [asks]), {"child": "alone"}, "which no node has started"),
        (Flow("asks", [asks]), {"child": "none"}, "which no node has started"),
        (Flow("asks", [asks]), {"child": 7}, "Give what ctx.start returned"),
        (Flow("undeclared", [undeclared], starts=[kitchen.meal]), {}, "halts=True"),
    ):
        result = host.run(flow, given)
        assert result.error is not None and said in result.error.message, result.error


def test_a_child_handed_to_another_node_is_waited_for_there(host: Host) -> None:
    kitchen = Kitchen()

    @node(output="child")
    def begin(ctx: Context) -> Any:
        return ctx.start(kitchen.meal, {"dish": "rice"})

    @node(output="plate", halts=True)
    def end(child: Any, ctx: Context) -> str:
        return str(ctx.result(child)["plate"])

    assert host.run(Flow("hands", [begin, end], starts=[kitchen.meal]))["plate"] == "plate of rice"


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("mode", MODES)
def test_killed_at_every_write_it_comes_to_the_same(tmp_path: Path, mode: str) -> None:
    clock = ManualClock()

    def live(kitchen: Kitchen, url: str, killer: Killer) -> None:
        with Host(killing(open_store(url, clock), by=killer), clock=clock) as host, suppress(Crashed):
            host.run(kitchen.flow, {"dishes": DISHES}, run_id="K")

    def finish(kitchen: Kitchen, url: str) -> tuple[Any, ...]:
        with Host(url, clock=clock) as host:
            host.start(kitchen.flow, {"dishes": DISHES}, run_id="K")
            host.work([kitchen.flow], until_idle=True)
            runs = {one.run_id: one.status for one in host.runs()}
            return host.info("K").status, host.state("K")["plates"], runs

    counted, whole = Killer(), f"sqlite:///{tmp_path}/whole.db"
    live(Kitchen(mode), whole, counted)
    expected = finish(Kitchen(mode), whole)
    assert expected[:2] == (Status.COMPLETED, PLATES) and len(expected[2]) == 3
    assert len(counted.points) > 20
    for at in range(1, len(counted.points) + 1):
        url = f"sqlite:///{tmp_path}/{at}.db"
        live(Kitchen(mode), url, Killer(at, act=crash))
        clock.advance(60)
        assert finish(Kitchen(mode), url) == expected, counted.points[at - 1]


def test_many_at_once_on_one_loop(url: str) -> None:
    kitchen = Kitchen("async")

    async def both() -> list[Any]:
        async with AsyncHost(url) as host:
            runs = (host.run(kitchen.flow, {"dishes": DISHES}, run_id=f"K{k}") for k in range(4))
            return [result["plates"] for result in await asyncio.gather(*runs)]

    assert asyncio.run(both()) == [PLATES] * 4
