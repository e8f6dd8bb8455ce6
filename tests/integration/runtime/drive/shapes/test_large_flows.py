"""Flows with more of a thing than fits a machine word: members of a group, items, nodes, targets, tasks."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Context, Flow, Host, Node, at_least, chain, node, parallel, quorum, route, wait
from everstep.errors import BadRequest
from everstep.model.records import NodeState, mask_in, packed_mask
from tests.keyframes import space_keyframes

SIZES = (65, 200, 1_000)


@pytest.fixture
def keyframes(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Every so many checkpoints are keyframes, so that each way of standing comes into one."""
    count = iter(range(10**9))
    every = request.getfixturevalue("size") // 20
    space_keyframes(monkeypatch, lambda: 0 if next(count) % every == 0 else 1 << 60)


def members(size: int) -> list[Node]:
    def same(x: int) -> int:
        return x

    return [node(name=f"m{k}", output=f"o{k}", inputs=["x"])(same) for k in range(size)]


def counted(size: int) -> Node:
    def count(**values: int) -> int:
        return sum(values.values())

    return node(name="total", output="total", inputs=[f"o{k}" for k in range(size)])(count)


def group(size: int, **options: Any) -> Any:
    return parallel(*members(size), name="met", **options) >> counted(size)


def mapped(size: int) -> Any:
    @node(output="o")
    def one(x: int) -> int:
        return 1

    @node(output="total")
    def total(o: list[int]) -> int:
        return sum(o)

    spread = node(name="spread", output="xs", inputs=["x"])(lambda x: [x] * size)
    return spread >> one.with_inputs(x="xs").map_over("x") >> total


def in_a_row(size: int) -> Any:
    def add(k: int) -> Node:
        return node(name=f"n{k}", output=f"v{k + 1}", inputs=[f"v{k}" if k else "x"])(
            lambda **v: sum(v.values()) + (k > 0)
        )

    return chain(*map(add, range(size)), node(name="total", output="total", inputs=[f"v{size}"])(_same))


def _same(**values: int) -> int:
    return sum(values.values())


def chosen(size: int) -> Any:
    targets = [node(name=f"t{k}", output=f"o{k}", inputs=["x"])(lambda x: x) for k in range(size)]
    names = [t.name for t in targets]
    pick = route(names, multi=True, name="pick", inputs=["x"])(lambda x: names)
    return [pick, *targets, counted(size)]


def asked(size: int) -> Any:
    @node
    def ask(x: int, ctx: Context) -> None:
        for k in range(size):
            ctx.next_task("add", k=k, goto=False)

    @node(output="total")
    def total(ctx: Context) -> int:
        return int(ctx.channel.get("sum"))

    return ask >> total


@node
def add(k: int, ctx: Context) -> None:
    ctx.channel.atomic_add("sum")


SHAPES: dict[str, Any] = {
    "best_effort": lambda n: group(n, policy="best_effort"),
    "at_least": lambda n: group(n, policy=at_least(n)),
    "quorum": lambda n: group(n, join=quorum(n)),
    "plain group": group,
    "map": mapped,
    "nodes": in_a_row,
    "targets": chosen,
    "tasks": asked,
}


@pytest.mark.usefixtures("keyframes")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_a_run_with_many_of_a_thing_can_be_taken_up_again(shape: str, size: int) -> None:
    built = SHAPES[shape](size)
    again = node(name="twice", output="twice", inputs=["total"])(lambda total: total * 2)
    parts = [*(built if isinstance(built, list) else [built]), wait.approval("ok", context="total") >> again]
    tasks = [add] if shape == "tasks" else []
    flow = Flow("f", parts, tasks=tasks, durability="strong")
    with Host("memory:") as host:
        assert host.run(flow, {"x": 1}, run_id="r").status == "halted"
        host.answer(host.waits("r")[0].id, {"approved": True})
        result = host.resume("r", flow)
        assert (result.status, result["total"], result["twice"]) == ("completed", size, 2 * size)
        (checked,) = host.storage.verify("r")
        assert not checked.problem


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1_000])
def test_a_mask_of_any_width_is_kept(size: int) -> None:
    mask = (1 << size) - 1
    assert mask_in(packed_mask(mask)) == mask
    assert isinstance(packed_mask(mask), int) is (size <= 64)
    assert mask_in(NodeState(won=packed_mask(mask)).won) == mask


def test_a_priority_beyond_what_a_record_holds_is_refused() -> None:
    @node
    def ask(ctx: Context) -> None:
        ctx.next_task("add", k=1, priority=1 << 63)

    with Host("memory:") as host:
        result = host.run(Flow("f", [ask], tasks=[add]))
    assert result.error is not None and BadRequest.code == result.error.code
