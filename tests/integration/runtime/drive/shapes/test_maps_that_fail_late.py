"""Maps that finish their items before they fail, and what a resume does then."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Flow, Host, ItemError, Node, ifelse, node
from everstep.cli.main import cli
from everstep.errors import ItemsFailed
from tests.keyframes import space_keyframes

KINDS = ("function", "flow", "flow in a flow", "atomic")


class World:
    """What fails at present, and how often everything was called."""

    def __init__(self) -> None:
        self.bad: set[int] = set()
        self.calls: Counter[str] = Counter()

    def mapped(self, kind: str, **options: Any) -> Node:
        def work(x: int) -> int:
            self.calls[f"work {x}"] += 1
            if x in self.bad:
                raise ValueError(f"no {x}")
            return x * x

        def before(x: int) -> int:
            self.calls[f"before {x}"] += 1
            return x

        if kind == "function":
            return node(output="y")(work).map_over("x", on_error="finish", **options)
        nodes = [node(output="z")(before), node(output="y")(work).with_inputs(x="z")]
        inner = Flow("inner", nodes).as_node(durability="atomic" if kind == "atomic" else "nested").lift("y")
        if kind == "flow in a flow":
            inner = Flow("middle", [inner]).as_node()
        return inner.map_over("x", on_error="finish", **options)

    def flow(self, kind: str, **options: Any) -> Flow:
        @node(output="total")
        def total(y: list[int]) -> int:
            return sum(y)

        return Flow("f", [self.mapped(kind, **options), total], durability="strong")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_once", [1, 32])
def test_all_items_are_done_before_a_map_fails_and_a_resume_runs_the_failed_ones(
    host: Host, kind: str, at_once: int
) -> None:
    world = World()
    world.bad = {1, 3}
    flow = world.flow(kind, max_concurrency=at_once)
    result = host.run(flow, {"x": [0, 1, 2, 3, 4]}, run_id="r")
    assert result.status == "failed" and result.error is not None
    assert result.error.code == ItemsFailed.code
    assert "2 of 5 items" in result.error.message and "ValueError: no 1" in result.error.message
    assert [world.calls[f"work {x}"] for x in range(5)] == [1] * 5
    world.bad = {3}
    assert host.resume("r", flow).status == "failed"
    assert [world.calls[f"work {x}"] for x in range(5)] == [1, 2, 1, 2, 1]
    world.bad = set()
    result = host.resume("r", flow)
    assert (result.status, result["total"]) == ("completed", 30)
    assert [world.calls[f"work {x}"] for x in range(5)] == [1, 2, 1, 3, 1]
    if kind in ("flow", "flow in a flow"):  # an item goes on where it failed
        assert [world.calls[f"before {x}"] for x in range(5)] == [1] * 5
    (checked,) = host.storage.verify("r")
    assert not checked.problem


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_a_map_that_is_killed_calls_nothing_again_that_was_recorded(
    monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    """The run is killed at each item in turn, with keyframes all the time."""
    space_keyframes(monkeypatch, lambda: 0)
    world = World()
    killed = [f"work {seed % 5}"]
    world.bad = {1, 3}
    flow = world.flow(kind, max_concurrency=1)
    count = world.calls.__class__.__setitem__

    class Killing(Counter[str]):
        def __setitem__(self, key: str, value: int) -> None:
            count(self, key, value)
            if key in killed:
                killed.remove(key)
                raise KeyboardInterrupt

    world.calls = Killing()
    with Host("memory:") as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, {"x": [0, 1, 2, 3, 4]}, run_id="r")
        assert host.resume("r", flow).status == "failed"
        world.bad = set()
        assert host.resume("r", flow)["total"] == 30
        again = {seed % 5: 1}
        for x in range(5):
            assert world.calls[f"work {x}"] == 1 + again.get(x, 0) + (x in (1, 3))
        (checked,) = host.storage.verify("r")
        assert not checked.problem


def test_a_failure_of_such_a_map_is_told_to_the_run_around_it(host: Host) -> None:
    world = World()
    world.bad = {2}
    inner = Flow("inner", [world.mapped("function")]).as_node()
    again = ifelse(when_true="inner", when_false="inner", name="go")(lambda go: go)
    flow = Flow("f", [again, inner], durability="strong")
    result = host.run(flow, {"x": [1, 2], "go": True}, run_id="r")
    assert result.error is not None and result.error.code == ItemsFailed.code
    world.bad = set()
    assert host.resume("r", flow)["y"] == [1, 4]


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_item_error_holds_what_the_item_was_called_with(host: Host, is_killed: bool) -> None:
    killed = [is_killed]

    @node(output="y")
    def divide(a: int, b: int) -> int:
        return a // b

    @node(output="seen")
    def look(y: list[Any], z: list[Any]) -> list[Any]:
        if any(killed):
            killed.clear()
            raise KeyboardInterrupt
        return [v.input for v in (*y, *z) if isinstance(v, ItemError)]

    both = divide.map_over("a", "b", on_error="collect")
    one = divide.with_name("one").with_outputs("z").with_inputs(a="c").map_over("b", on_error="collect")
    flow = Flow("f", [both, one, look], durability="strong")
    inputs = {"a": [1, 2, 3], "b": [1, 0, 2], "c": 5}
    try:
        result = host.run(flow, inputs, run_id="r")
    except KeyboardInterrupt:
        result = host.resume("r", flow)
    assert result["seen"] == [{"a": 2, "b": 0}, 0]
    (checked,) = host.storage.verify("r")
    assert not checked.problem


def test_an_input_that_is_large_is_not_kept_twice(host: Host) -> None:
    @node(output="y")
    def cut(page: str) -> int:
        raise ValueError(f"{len(page)} are too many")

    flow = Flow("f", [cut.map_over("page", on_error="collect")], durability="strong")
    large, small = host.run(flow, {"page": ["x" * 70_000, "x" * 100]})["y"]
    assert (large.input, small.input) == (None, "x" * 100)


def test_items_that_completed_after_a_resume_count_as_completed(tmp_path: Path) -> None:
    world = World()
    world.bad = {1, 2}
    flow = world.flow("function")
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        assert host.run(flow, {"x": [0, 1, 2]}, run_id="r").status == "failed"
        world.bad = set()
        assert host.resume("r", flow).status == "completed"
    log = CliRunner().invoke(cli, ["log", "r", "--store", url]).output
    assert "3 items, y = [0, 1, 4]" in log and "no 1" in log
    show = CliRunner().invoke(cli, ["show", "r", "--store", url]).output
    assert "3 items: 3 completed" in show and "#1" not in show
    told = json.loads(CliRunner().invoke(cli, ["show", "r", "--store", url, "--json"]).output)
    (line,) = (n for n in told["nodes"] if n["node"] == "work")
    assert line["items"] == {"count": 3, "completed": 3, "failed": 0}
