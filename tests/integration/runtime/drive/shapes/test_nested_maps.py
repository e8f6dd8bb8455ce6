"""Flows inside the items of maps, and maps inside atomic flows."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import END, Durability, Flow, Host, ifelse, node
from everstep.runtime.drive import chain_writer
from tests.keyframes import space_keyframes


@node(output="y")
def double(x: int) -> int:
    return 2 * x


@pytest.mark.parametrize("keyframe_bytes", [0, 64 * 1024])
@pytest.mark.parametrize("is_map", [True, False])
def test_a_flow_inside_an_item_goes_on_with_the_items_inputs(
    url: str, monkeypatch: pytest.MonkeyPatch, keyframe_bytes: int, is_map: bool
) -> None:
    monkeypatch.setattr(chain_writer, "KEYFRAME_BYTES", keyframe_bytes)
    stops, seen = [True], list[Any]()

    @node(output="z")
    def add(y: int, offset: int) -> int:
        if stops:
            raise KeyboardInterrupt
        return y + offset

    @node(output="count")
    def note(x: Any) -> int:
        seen.append(x)
        return len(seen)

    within = Flow("within", [double, add]).as_node()
    if is_map:
        within = within.map_over("x")
    middle = Flow("middle", [note, within])
    flow = Flow("f", [middle.as_node().map_over("x", max_concurrency=1)], durability="strong")
    lists: list[Any] = [[1, 2], [], [3]] if is_map else [1, 2, 3]
    with Host(url) as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, {"x": lists, "offset": 10}, run_id="r")
        stops.clear()
        result = host.resume("r", flow)
        assert result["z"] == ([[12, 14], [], [16]] if is_map else [12, 14, 16])
        assert seen == lists


class Handle:
    """Something that cannot be stored."""

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("is_over", [False, True])
def test_a_map_inside_an_atomic_flow(host: Host, count: int, is_over: bool) -> None:
    @node(output="handles")
    def open_all(n: int) -> list[Handle]:
        return [Handle(k) for k in range(n)]

    @node(output="numbers")
    def read(handle: Handle) -> int:
        return handle.number

    @node(output="total")
    def add_up(numbers: list[int]) -> int:
        return sum(numbers)

    inner = Flow("inner", [open_all, read.map_over("handle").with_inputs(handle="handles"), add_up])
    atomic = inner.as_node(durability="atomic")
    if is_over:
        atomic = atomic.map_over("n")
    flow = Flow("f", [atomic.lift("numbers", "total")], durability="strong")
    result = host.run(flow, {"n": [count, 1] if is_over else count}, run_id="r")
    numbers = list(range(count))
    want: Any = ([numbers, [0]], [sum(numbers), 0]) if is_over else (numbers, sum(numbers))
    assert (result["numbers"], result["total"]) == want
    assert dict(host.run(flow, run_id="r").nested("inner")) == dict(result.nested("inner"))


def test_what_an_atomic_flow_was_given_and_left_alone_is_lifted(host: Host) -> None:
    @node(output="items")
    def grow(items: list[int]) -> list[int]:
        return [*items, 1]

    @ifelse(when_true="grow", when_false=END)
    def is_short(items: list[int]) -> bool:
        return len(items) < 2

    inner = Flow("inner", [is_short, grow]).as_node(durability="atomic")
    flow = Flow("f", [inner.with_inputs(items="given")])
    assert host.run(flow, {"given": [5, 5, 5]})["items"] == [5, 5, 5]
    assert host.run(flow, {"given": []})["items"] == [1, 1]


def test_an_atomic_flow_shows_the_same_after_its_run(host: Host) -> None:
    within = Flow("within", [double]).as_node()
    flow = Flow("f", [Flow("inner", [within]).as_node(durability="atomic")], durability="strong")
    shown = host.run(flow, {"x": 1}, run_id="r").nested("inner")
    assert list(shown) == list(host.run(flow, run_id="r").nested("inner")) == ["y"]


@pytest.mark.parametrize("on_error", ["skip", "collect"])
@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_a_keyframe_holds_nothing_of_a_map_inside_an_atomic_flow(
    host: Host, monkeypatch: pytest.MonkeyPatch, durability: Any, on_error: Any
) -> None:
    space_keyframes(monkeypatch, lambda: 0)  # the tail that makes one due
    stops = [True]

    @node(output="numbers")
    def count(n: int) -> list[int]:
        return list(range(n))

    @node(output="y")
    def check(x: int) -> int:
        if x == 1:
            raise ValueError("an item that fails")
        if x == 2 and stops:
            raise KeyboardInterrupt
        return x

    items = Flow("items", [check]).as_node(durability=durability).lift("y")
    over = items.with_inputs(x="numbers").map_over("x", on_error=on_error, max_concurrency=1)
    inner = Flow("inner", [over]).as_node(durability="atomic").lift("y")
    flow = Flow("f", [count, inner], durability=Durability("strong", interval=1000))
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"n": 3}, run_id="r")
    state = host.history("r")[-1].state
    assert state is not None
    assert [written.name for written in state.values] == ["n", "numbers"]
    stops.clear()
    assert len(host.resume("r", flow)["y"]) == (3 if on_error == "collect" else 2)


def test_nothing_is_left_of_the_flows_inside_an_item_that_has_ended(host: Host) -> None:
    @node(output="z")
    def check(y: int) -> int:
        if y == 4:
            raise ValueError("an item that fails")
        if y == 6:
            raise KeyboardInterrupt
        return y

    within = Flow("within", [double]).as_node().lift("y")
    middle = Flow("middle", [within, check]).as_node(select=["z"]).lift("z")
    flow = Flow("f", [middle.map_over("x", on_error="skip", max_concurrency=1)], durability="strong")
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": [1, 2, 3]}, run_id="r")
    inside = [name for name in host.state("r") if "#" in name]
    ended = ["middle#0/z", "middle#1/@error"]
    assert sorted(inside) == [*ended, "middle#2/within/y", "middle#2/x", "middle#2/y"]
