"""Flows inside the items of maps, and maps inside atomic flows."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Flow, Host, node
from everstep.runtime import journal


@node(output="y")
def double(x: int) -> int:
    return 2 * x


@pytest.mark.parametrize("keyframe_bytes", [0, 64 * 1024])
@pytest.mark.parametrize("is_map", [True, False])
def test_a_flow_inside_an_item_goes_on_with_the_items_inputs(
    url: str, monkeypatch: pytest.MonkeyPatch, keyframe_bytes: int, is_map: bool
) -> None:
    monkeypatch.setattr(journal, "KEYFRAME_BYTES", keyframe_bytes)
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
