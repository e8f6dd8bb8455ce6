"""What a keyframe must not lose."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Context, Flow, Host, node
from everstep.model.records import CHANNEL
from everstep.testing.clock import ManualClock
from tests.keyframes import space_keyframes

LARGE = 600 * 1024


@pytest.fixture(autouse=True)
def keyframes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    space_keyframes(monkeypatch, lambda: 0)  # the tail that makes one due


def test_a_changed_value_of_the_channel_still_expires(url: str) -> None:
    stops = [True]

    @node
    def first(ctx: Context) -> None:
        ctx.channel.set("items", [1], ttl=10)
        ctx.channel.set("number", 1, ttl=10)

    @node
    def second(ctx: Context) -> None:
        ctx.channel.append("items", 2)
        ctx.channel.atomic_add("number")

    @node
    def third(ctx: Context) -> list[Any]:
        if stops:
            raise KeyboardInterrupt
        return [ctx.channel.get("items"), ctx.channel.get("number")]

    clock = ManualClock(auto=True)
    flow = Flow("f", first >> second >> third, durability="strong")
    with Host(url, clock=clock) as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, run_id="r")
        assert host.state("r")[CHANNEL + "items"] == [1, 2]
        stops.clear()
        clock.advance(60)
        assert host.resume("r", flow)["third.__result__"] == [None, None]


@pytest.mark.parametrize("is_twofold", [False, True])
def test_small_and_large_items_of_one_list_are_kept(url: str, is_twofold: bool) -> None:
    stops = [True]

    @node(output="text")
    def make(size: int) -> str:
        return "x" * size

    @node(output="length")
    def measure(text: list[Any]) -> int:
        if stops:
            raise KeyboardInterrupt
        return len(text)

    inner: Any = Flow("inner", [make]).as_node()
    sizes: Any = [3, LARGE, 4]
    if is_twofold:
        inner = Flow("outer", [inner.map_over("size")]).as_node()
        sizes = [sizes, [], [LARGE, 5]]
    flow = Flow("f", [inner.map_over("size"), measure], durability="strong")
    with Host(url) as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, {"size": sizes}, run_id="r")
        stops.clear()
        result = host.resume("r", flow)

    def lengths(texts: Any) -> Any:
        return [len(t) if isinstance(t, str) else lengths(t) for t in texts]

    assert lengths(result["text"]) == sizes
    assert lengths(result.nested(inner.name)["text"]) == sizes
