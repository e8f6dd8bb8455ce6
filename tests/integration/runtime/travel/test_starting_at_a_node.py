"""`resume(start=...)`: a run begins again at a node, whatever was under way."""

from __future__ import annotations

from everstep import END, Context, Flow, Host, ifelse, node, parallel


def test_a_flow_that_had_failed_inside_is_opened_anew(host: Host) -> None:
    calls: list[str] = []

    @node(output="oven")
    def prepare(dough: str, ctx: Context) -> int:
        calls.append("prepare")
        return ctx.visit

    @node(output="heat")
    def warm(oven: int) -> int:
        calls.append("warm")
        return oven * 100

    @node(output="bread")
    def bake(heat: int) -> str:
        calls.append("bake")
        if heat < 200:
            raise ValueError("the oven is cold")
        return f"baked at {heat}"

    flow = Flow("f", [prepare, Flow("baking", [warm, bake]).as_node()], durability="strong")
    assert host.run(flow, {"dough": "d"}, run_id="r").status == "failed"
    calls.clear()
    result = host.resume("r", flow, start="prepare")
    assert result["bread"] == "baked at 200" and calls == ["prepare", "warm", "bake"]
    assert host.run(flow, run_id="r") == result
    assert set(host.state("r")) == {"dough", "oven", "heat", "bread", "baking/heat", "baking/bread"}


def test_a_group_forgets_what_became_of_its_branches(host: Host) -> None:
    is_fixed: list[bool] = []

    @node
    def begin() -> None: ...

    @node
    def a() -> str:
        if not is_fixed:
            raise ValueError("a failed")
        return "a"

    @node
    def b() -> str:
        if not is_fixed:
            raise ValueError("b failed")
        return "b"

    @node
    def after(a: str, b: str) -> str:
        return a + b

    flow = Flow("f", begin >> parallel(a, b, policy="best_effort") >> after, durability="strong")
    assert host.run(flow, run_id="r").status == "failed"
    is_fixed.append(True)
    result = host.resume("r", flow, start="begin")
    assert result.status == "completed" and result["after.__result__"] == "ab"


def test_what_a_gate_chose_and_a_task_was_to_get_are_forgotten(host: Host) -> None:
    calls: list[str] = []

    @node(output="n")
    def begin(ctx: Context, is_ready: bool = False) -> int:
        calls.append("begin")
        ctx.next_task("later", what="big")
        return ctx.visit

    @ifelse(when_true="target", when_false=END)
    def choose(n: int) -> bool:
        calls.append("choose")
        return True

    @node(output="hit")
    def target(n: int) -> int:
        calls.append("target")
        return n

    @node
    def later(what: str, n: int) -> str:
        calls.append("later")
        if n == 1:
            raise ValueError("too early")
        return what

    nodes = [begin, choose, target]
    flow = Flow("f", nodes, tasks=[later], max_concurrency=1, durability="strong")
    assert host.run(flow, run_id="r").status == "failed"
    calls.clear()
    assert host.resume("r", flow, start="begin").status == "completed"
    assert sorted(calls) == ["begin", "choose", "later", "target"]
    assert not [name for name in host.state("r") if name.startswith("@task")]
