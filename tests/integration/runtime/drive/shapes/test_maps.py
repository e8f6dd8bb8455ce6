"""Going over lists."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from everstep import Flow, Host, ItemError, Node, node
from everstep.errors import BadRequest, FlowError, InputError
from everstep.testing import ManualClock

pytestmark = pytest.mark.servers


@node(output="square")
def square(x: int) -> int:
    if x < 0:
        raise ValueError(f"{x} is negative")
    return x * x


@node(output="label")
def label(square: int, unit: str = "m") -> str:
    return f"{square}{unit}"


INNER = Flow("inner", [square, label])


def test_a_node_goes_over_a_list_and_gives_a_list(host: Host) -> None:
    flow = Flow("f", [square.map_over("x").with_inputs(x="xs").with_outputs("squares")], durability="strong")
    result = host.run(flow, {"xs": [3, 1, 2]}, run_id="r")
    assert result["squares"] == [9, 1, 4]
    assert host.run(flow, run_id="r")["squares"] == [9, 1, 4]
    done = {s.path for c in host.history("r") for s in c.steps if s.status == "completed"}
    assert {"square#0", "square#1", "square#2", "square"} <= done


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_a_flow_goes_over_a_list(host: Host, durability: Any) -> None:
    mapped = INNER.as_node(name="each", durability=durability).map_over("x")
    result = host.run(Flow("f", [mapped], durability="strong"), {"x": [1, 2, 3], "unit": "km"}, run_id="r")
    assert result["label"] == ["1km", "4km", "9km"] and result["square"] == [1, 4, 9]
    assert result["each"]["label"] == ["1km", "4km", "9km"]
    again = host.run(Flow("f", [mapped], durability="strong"), run_id="r")
    assert again["each"]["square"] == [1, 4, 9]


def test_each_atomic_item_is_a_commit_of_its_own(host: Host) -> None:
    mapped = INNER.as_node(name="each", durability="atomic").map_over("x", max_concurrency=1)
    host.run(Flow("f", [mapped], durability="strong"), {"x": [1, 2, 3]}, run_id="r")
    steps = [[s.path for s in c.steps] for c in host.history("r")]
    assert steps == [["@inputs"], ["each", "each#0"], ["each#1"], ["each#2", "each"]]


def test_lists_go_side_by_side_or_each_with_each(host: Host) -> None:
    @node(output="sum")
    def add(a: int, b: int, c: int = 0) -> int:
        return a + b + c

    zipped = Flow("zip", [add.map_over("a", "b")])
    assert host.run(zipped, {"a": [1, 2], "b": [10, 20], "c": 100})["sum"] == [111, 122]
    product = Flow("product", [add.map_over("a", "b", mode="product")])
    assert host.run(product, {"a": [1, 2], "b": [10, 20, 30]})["sum"] == [11, 21, 31, 12, 22, 32]
    assert host.run(product, {"a": [], "b": [1]})["sum"] == []


def test_lists_of_different_lengths_are_refused_by_name(host: Host) -> None:
    @node(output="sum")
    def add(a: int, b: int) -> int:
        return a + b

    flow = Flow("zip", [add.map_over("a", "b")], durability="strong")
    error = host.run(flow, {"a": [1, 2], "b": [1]}).error
    assert error is not None and error.code == "map.bad_input"
    assert "a has 2, b has 1" in error.message and 'mode="product"' in error.message
    five = Node(lambda seed: seed, name="five", output="x")
    wrong = host.run(Flow("s", [five, square.map_over("x")], durability="strong"), {"seed": 5}).error
    assert wrong is not None and wrong.code == "map.bad_input" and "which is int" in wrong.message
    with pytest.raises(InputError, match="square wants list"):
        host.run(Flow("s", [square.map_over("x")]), {"x": 5})


def test_what_cannot_be_mapped_is_refused_when_it_is_said() -> None:
    with pytest.raises(BadRequest, match="no parameter 'y'"):
        square.map_over("y")
    with pytest.raises(BadRequest, match="Name each parameter once"):
        square.map_over("x", "x")
    with pytest.raises(BadRequest, match="is a map already"):
        square.map_over("x").map_over("x")
    with pytest.raises(BadRequest, match="on_error"):
        square.map_over("x", on_error="ignore")  # type: ignore[arg-type]

    @node(output="y", persist="no")
    def fresh(x: int) -> int:
        return x

    with pytest.raises(FlowError, match="does not keep what its items return"):
        Flow("f", [fresh.map_over("x")])


@pytest.mark.parametrize("kind", ["leaf", "nested", "atomic"])
@pytest.mark.parametrize(("policy", "expected"), [("collect", 4), ("skip", 3)])
def test_a_failed_item_is_collected_or_skipped(host: Host, kind: Any, policy: Any, expected: int) -> None:
    plain = square if kind == "leaf" else Flow("sq", [square]).as_node(durability=kind)
    flow = Flow("f", [plain.map_over("x", on_error=policy)], durability="strong")
    result = host.run(flow, {"x": [1, -2, 3, 4]}, run_id="r")
    assert result.status == "completed" and len(result["square"]) == expected
    errors = [v for v in result["square"] if isinstance(v, ItemError)]
    wanted = [ItemError(1, "ValueError", "-2 is negative")] if policy == "collect" else []
    assert errors == wanted and [v for v in result["square"] if v not in wanted] == [1, 9, 16]
    assert host.run(flow, run_id="r")["square"] == result["square"]


@pytest.mark.parametrize("kind", ["leaf", "nested", "atomic"])
def test_a_failed_item_stops_the_run_and_a_resume_runs_only_what_is_missing(host: Host, kind: Any) -> None:
    calls: list[int] = []
    broken = [True]

    @node(output="y")
    def work(x: int) -> int:
        calls.append(x)
        if x == 2 and broken[0]:
            raise ValueError("two")
        return x * 10

    plain = work if kind == "leaf" else Flow("w", [work]).as_node(durability=kind)
    flow = Flow("f", [plain.map_over("x", max_concurrency=1)], durability="strong")
    result = host.run(flow, {"x": [0, 1, 2, 3]}, run_id="r")
    assert result.status == "failed" and result.error is not None and result.error.message == "two"
    broken[0] = False
    assert host.resume("r", flow)["y"] == [0, 10, 20, 30]
    assert calls == [0, 1, 2, 2, 3]


def test_an_item_is_tried_again_by_itself(url: str) -> None:
    tries: dict[int, int] = {}

    @node(output="y", retry=2)
    def flaky(x: int) -> int:
        tries[x] = tries.get(x, 0) + 1
        if x == 1 and tries[x] < 3:
            raise ValueError("again")
        return x

    with Host(url, clock=ManualClock(auto=True)) as host:
        result = host.run(Flow("f", [flaky.map_over("x")], durability="strong"), {"x": [0, 1, 2]}, run_id="r")
        retried = [(s.path, s.attempts) for c in host.history("r") for s in c.steps if s.status == "retrying"]
    assert result["y"] == [0, 1, 2] and tries == {0: 1, 1: 3, 2: 1}
    assert retried == [("flaky#1", 1), ("flaky#1", 2)]


def test_no_more_items_run_at_once_than_allowed(host: Host) -> None:
    running, most, lock = [0], [0], threading.Lock()

    @node(output="y")
    async def slow(x: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        running[0] -= 1
        return x

    host.run(Flow("f", [slow.map_over("x", max_concurrency=4)]), {"x": list(range(20))})
    assert most[0] == 4
    most[0] = 0
    host.run(Flow("f", [slow.map_over("x")], max_concurrency=3), {"x": list(range(20))})
    assert most[0] == 3


def test_sync_items_run_on_several_threads(host: Host) -> None:
    together = threading.Barrier(4, timeout=10)

    @node(output="y")
    def meet(x: int) -> int:
        together.wait()
        return x

    assert host.run(Flow("f", [meet.map_over("x")]), {"x": [1, 2, 3, 4]})["y"] == [1, 2, 3, 4]


def test_an_items_input_is_its_own(host: Host) -> None:
    @node(output="y")
    def spoil(row: dict[str, int], shared: list[int]) -> int:
        row["n"] += 1
        shared.append(1)
        return row["n"] + len(shared)

    one = {"n": 1}
    result = host.run(Flow("f", [spoil.map_over("row")]), {"row": [one, one, one], "shared": []})
    assert result["y"] == [3, 3, 3]


def test_a_map_of_a_map_gives_lists_of_lists(host: Host) -> None:
    rows = Flow("row", [square.map_over("x").with_outputs("squares")]).as_node().map_over("x")
    result = host.run(Flow("f", [rows], durability="strong"), {"x": [[1, 2], [], [3]]}, run_id="r")
    assert result["squares"] == [[1, 4], [], [9]]
    assert "row#0/square#1" in {s.path for c in host.history("r") for s in c.steps}


def test_large_outputs_of_items_stay_artifacts(url: str) -> None:
    @node(output="blob")
    def make(x: int) -> bytes:
        return bytes([x]) * 700_000

    @node(output="sizes")
    def measure(blob: list[bytes]) -> list[int]:
        return [len(b) for b in blob]

    flow = Flow("f", [make.map_over("x"), measure], durability="strong")
    with Host(url) as host:
        assert host.run(flow, {"x": [1, 2, 3]}, run_id="r")["sizes"] == [700_000] * 3
        record = [
            c for c in host.history("r") for s in c.steps if s.path == "make" and s.status == "completed"
        ]
        assert record and all(
            w.artifact is None for s in record[0].steps for w in s.writes if s.path == "make"
        )
        assert host.run(flow, run_id="r")["blob"][1][:1] == b"\x02"


def test_a_map_of_many_items_goes_on_with_what_is_missing(url: str, kind_of_store: str) -> None:
    """Interrupted three times; no item runs twice, and the list is complete and in order."""
    is_here = kind_of_store in ("memory", "sqlite")
    many = 10_000 if is_here or os.environ.get("EVERSTEP_SOAK") == "1" else 1_000
    ran: list[int] = []
    stops = {many // 5, many // 2, many * 17 // 20}

    @node(output="y")
    def work(x: int) -> int:
        ran.append(x)
        if x in stops:
            stops.discard(x)
            raise KeyboardInterrupt
        return x + 1

    flow = Flow("f", [work.map_over("x", max_concurrency=1)], durability="strong")
    with Host(url + ("?synchronous=off" if url.startswith("sqlite") else "")) as host:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                host.run(flow, {"x": list(range(many))}, run_id="r")
        result = host.run(flow, {"x": list(range(many))}, run_id="r")
    assert result["y"] == list(range(1, many + 1))
    assert len(ran) == many + 3 and sorted(ran)[:3] == [0, 1, 2]
