"""Starts in quick succession are one run, with the newest inputs. Time is moved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Debounce, Flow, Host, Singleton, node
from everstep.errors import BadRequest
from everstep.graph.limits import debounce_of
from everstep.testing import ManualClock

pytestmark = pytest.mark.stores("sqlite", "postgres", "redis")


@node(output="sent")
def send(customer: str | None, text: str) -> str:
    return f"{customer}: {text}"


def mail(*more: Any, **said: Any) -> Flow:
    return Flow("mail", [send], limits=[Debounce("customer", "5s", **said), *more])


class Place:
    """A host whose clock is moved."""

    def __init__(self, host: Host, clock: ManualClock) -> None:
        self.host, self.clock = host, clock

    def start(self, flow: Flow, text: str, customer: str | None = "ann") -> Any:
        return self.host.start(flow, {"customer": customer, "text": text}, run_id=text)

    def sent(self, flow: Flow) -> list[str]:
        """Drive what is due; return what was sent by then."""
        self.host.work([flow], until_idle=True)
        done = [run.run_id for run in self.host.runs() if run.status == "completed"]
        return sorted(self.host.state(run_id)["sent"] for run_id in done)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    clock = ManualClock()
    with Host(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
        yield Place(host, clock)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Debounce("customer", "0s"),
        lambda: Debounce("customer", "5s", most="4s"),
        lambda: Debounce("a b", "5s"),
        lambda: mail(by="customers"),
        lambda: mail(Debounce("text", "1s")),
        lambda: mail(Singleton("customer")),
        lambda: Flow("f", [send], limits=Debounce("customer", "5s")),  # type: ignore[arg-type]
    ],
)
def test_debounces_that_mean_nothing_are_refused(wrong: Any) -> None:
    with pytest.raises(BadRequest):
        wrong()


def test_a_flow_as_json_keeps_its_debounce() -> None:
    flow = mail(most="1m")
    read = Flow.from_ir(flow.to_ir(), flow.functions())
    assert read.to_ir() == flow.to_ir()
    assert debounce_of(read.limits) == Debounce("customer", "5s", most="1m")


def test_starts_in_quick_succession_are_one_run_with_the_newest_inputs(place: Place) -> None:
    flow = mail()
    assert place.start(flow, "one").replaced == ()
    place.start(flow, "other", "bob")
    for text, before in (("two", "one"), ("three", "two")):
        place.clock.advance(4)
        assert place.start(flow, text).replaced == (before,)
        assert "ann" not in "".join(place.sent(flow))
    place.clock.advance(5)
    assert place.sent(flow) == ["ann: three", "bob: other"]
    place.start(flow, "four")
    place.clock.advance(6)
    assert place.sent(flow) == ["ann: four", "ann: three", "bob: other"]
    states = {run.run_id: str(run.status) for run in place.host.runs()}
    assert (states["one"], states["two"]) == ("cancelled", "cancelled")


def test_a_run_that_has_begun_is_not_replaced(place: Place) -> None:
    flow = mail()
    place.start(flow, "one")
    place.clock.advance(6)
    assert place.sent(flow) == ["ann: one"]
    assert place.start(flow, "two").replaced == ()


def test_a_first_start_is_not_put_off_for_ever(place: Place) -> None:
    flow = mail(most="12s")
    for number in range(8):
        place.start(flow, f"{number}")
        place.clock.advance(4)
        place.sent(flow)
    assert place.sent(flow) == ["ann: 2", "ann: 5"]


def test_without_a_key_and_with_an_id_that_is_there_nothing_is_put_off(place: Place) -> None:
    flow = mail()
    place.start(flow, "none", None)
    assert place.sent(flow) == ["None: none"]
    first = place.start(flow, "one")
    assert (first.run_id, first.replaced) == ("one", ())
    assert place.start(flow, "one").replaced == ()
    assert place.host.info("one").status == "halted"
    with pytest.raises(BadRequest, match="debounce"):
        place.host.start(flow, {"customer": "ann", "text": "x"}, after="1h")


def test_a_run_by_name_is_put_off_as_well(place: Place) -> None:
    flow = mail(Singleton("customer", on_conflict="queue"))
    result = place.host.run(flow, {"customer": "ann", "text": "one"}, run_id="one")
    assert result.status == "halted"
    place.start(flow, "two")
    place.clock.advance(6)
    assert place.sent(flow) == ["ann: two"]


def test_of_starts_at_once_one_is_left(url: str) -> None:
    flow = Flow("mail", [send], limits=[Debounce("customer", "1h")])

    async def start(number: int) -> None:
        async with AsyncHost(url) as host:
            await host.start(flow, {"customer": "ann", "text": f"{number}"})

    async def main() -> None:
        async with AsyncHost(url) as host:
            await host.start(flow, {"customer": "bob", "text": ""})
            await asyncio.gather(*(start(number) for number in range(6)))
            left = [run for run in await host.runs(flow="mail") if run.status == "halted"]
            assert len(left) == 2

    asyncio.run(main())
