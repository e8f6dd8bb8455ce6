"""Durable calls inside a node are undone like steps, by what their records say."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from everstep import AsyncContext, AsyncHost, Context, Flow, Host, Status, node
from everstep.errors import BadRequest, UndoUnknown
from everstep.results import RunResult
from everstep.runtime.drive.units import undone
from tests.integration.runtime.drive.undo.saga import RUN, Crashed, Killer, Outside, crash
from tests.integration.runtime.drive.undo.saga import Life as Sagas

pytestmark = pytest.mark.stores("memory", "sqlite")
outside = Outside()
"""What functions of this module do something to: an undo is found by its name."""


def book(hotel: str, nights: int = 1, *, idempotency_key: str) -> dict[str, Any]:
    outside.do("book", idempotency_key, hotel, nights)
    return {"number": len(outside.done)}


def unbook(hotel: str, nights: int, result: dict[str, Any], idempotency_key: str) -> None:
    assert result["number"] >= 1
    outside.undo("book", idempotency_key, hotel, nights)


@node(output="trip")
def travel(towns: list[str], ctx: Context) -> str:
    for town in towns:
        ctx.step("book", book, f"{town} inn", nights=2, undo=unbook)
    raise ValueError("no flight")


@node(output="trip")
async def travel_async(towns: list[str], ctx: AsyncContext) -> str:
    for town in towns:
        await ctx.step("book", book, f"{town} inn", nights=2, undo=unbook)
    raise ValueError("no flight")


@pytest.fixture(autouse=True)
def anew() -> None:
    outside.__init__()  # type: ignore[misc]


MINUTES = timedelta(minutes=5)
TOWNS = {"towns": ["Ulm", "Bonn", "Kiel"]}


def check(result: RunResult, status: Status = Status.FAILED) -> None:
    assert result.status is status
    assert outside.shown(outside.undone) == outside.shown(outside.done)[::-1]


@pytest.mark.parametrize("going", [travel, travel_async])
def test_calls_of_a_node_that_fails_are_undone_the_last_one_first(host: Host, going: Any) -> None:
    result = host.run(Flow("trip", [going]), TOWNS, run_id=RUN)
    check(result)
    assert outside.shown(outside.done) == [("book", f"{town} inn", 2) for town in TOWNS["towns"]]
    paths = [s.path for r in host.history(RUN) for s in r.steps if s.path.endswith("!undo") and s.ended_at]
    name = going.name
    assert paths == [f"{name}/$book@3/!undo", f"{name}/$book@2/!undo", f"{name}/$book/!undo"]


class Life(Sagas):
    def __init__(self, going: Any) -> None:
        outside.__init__()  # type: ignore[misc]
        super().__init__(lambda _: Flow("trip", [going]))

    def live(self, killer: Killer | None = None) -> RunResult | None:
        try:
            with self.host(killer) as host:
                return host.run(self.flow, TOWNS, run_id=RUN)
        except Crashed:
            self.clock.advance(MINUTES)
            return None


@pytest.mark.parametrize("going", [travel, travel_async])
def test_calls_are_undone_once_wherever_their_process_dies(going: Any) -> None:
    whole, life = Killer(), Life(going)
    assert life.live(whole) is not None
    for at in range(1, len(whole.points) + 1):
        for cancels in (False, at > 1):
            life = Life(going)
            assert life.live(Killer(at, act=crash)) is None
            known = len(outside.done)
            with life.host() as host:
                if cancels:
                    host.cancel(RUN)
            result = life.live()
            assert result is not None
            check(result, result.status)
            if result.status is Status.CANCELLED:
                assert len(outside.done) <= known + 1  # none begins any more that was not announced
            with life.host() as host:
                assert all(found.is_sound for found in host.storage.verify(RUN))


def test_a_node_with_an_undo_is_undone_in_place_of_its_calls(host: Host) -> None:
    def go_home(trip: str) -> None:
        outside.undo("trip", "k", trip)

    @node(output="trip", undo=go_home)
    def go(towns: list[str], ctx: Context) -> str:
        for town in towns:
            ctx.step("book", book, f"{town} inn", undo=unbook)
        return "a trip"

    @node(output="x")
    def fail(trip: str) -> None:
        raise ValueError("no")

    result = host.run(Flow("trip", [go, fail]), TOWNS)
    assert result.status is Status.FAILED
    assert outside.shown(outside.undone) == [("trip", "a trip")]


def test_an_undo_that_no_other_process_would_find_is_refused_before_the_call(host: Host) -> None:
    for undo in (lambda hotel: None, print, outside.undo):

        @node(output="trip")
        def go(towns: list[str], ctx: Context, undo: Any = undo) -> str:
            ctx.step("book", book, towns[0], undo=undo)
            return ""

        result = host.run(Flow("trip", [go]), TOWNS)
        assert result.error is not None
        assert result.error.type == BadRequest.__name__
    assert outside.done == {}


@pytest.mark.parametrize(
    "name", ["shutil:rmtree", "os:system", "subprocess:Popen", f"{__name__}:gone", "", ":"]
)
def test_a_function_outside_of_the_code_of_the_flow_is_not_called_because_a_store_says_so(name: str) -> None:
    flow = Flow("trip", [travel])
    assert undone.node_of_call(flow, "travel/$book", f"{__name__}:unbook").fn is unbook
    with pytest.raises(UndoUnknown):
        undone.node_of_call(flow, "travel/$book", name)


def test_what_no_code_undoes_any_more_is_asked_of_a_person(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow("trip", [travel], undo="never")
    host.run(flow, TOWNS, run_id=RUN)
    host.undo(RUN)
    monkeypatch.delattr(f"{__name__}.unbook")
    result = host.resume(RUN, flow)
    assert result.status is Status.HALTED
    assert "unbook" in result.waits[0].prompt
    monkeypatch.undo()
    host.waiting.settle(RUN, "travel/$book@3/!undo", rerun=True)
    check(host.resume(RUN, flow))


def test_a_cancelled_node_finishes_the_call_that_it_makes_and_begins_no_other(url: str) -> None:
    async def main() -> RunResult:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def slow(hotel: str, nights: int, idempotency_key: str) -> dict[str, Any]:
            begun.set()
            await may_end.wait()
            return book(hotel, nights, idempotency_key=idempotency_key)

        @node(output="trip")
        async def go(towns: list[str], ctx: AsyncContext) -> str:
            for town in towns:
                await ctx.step("book", slow, f"{town} inn", nights=2, undo=unbook)
            return ""

        async with AsyncHost(url) as host:
            driving = asyncio.create_task(host.run(Flow("trip", [go]), TOWNS, run_id=RUN))
            await begun.wait()
            await host.cancel(RUN)
            await asyncio.sleep(0.01)
            may_end.set()
            return await driving

    check(asyncio.run(main()), Status.CANCELLED)
    assert len(outside.done) == 1
