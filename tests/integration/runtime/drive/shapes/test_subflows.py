"""Flows inside flows."""

from __future__ import annotations

import threading
from typing import Any, Literal

import pytest

from everstep import END, Context, Flow, Host, Status, ifelse, node
from everstep.errors import BadRequest, FlowError
from everstep.model.durability import DurabilityMode
from everstep.model.enums import ValueForm
from everstep.runtime.events import Event


@node(output="embedding")
def embed(doc: str) -> list[int]:
    return [len(doc)] * 3


@node(output="summary")
def summarize(doc: str, embedding: list[int]) -> str:
    return f"{doc}:{sum(embedding)}"


RAG = Flow("rag", [embed, summarize])


@node(output="report")
def report(summary: str) -> str:
    return f"report on {summary}"


def paths(host: Host, run_id: str) -> list[str]:
    return [f"{s.path} {s.status.value}" for c in host.history(run_id) for s in c.steps if s.path[0] != "@"]


@pytest.mark.parametrize("mode", ["strong", "partial", "off"])
def test_a_flow_is_one_node_of_another(host: Host, mode: DurabilityMode) -> None:
    flow = Flow("outer", [RAG.as_node(name="child"), report], durability=mode)
    result = host.run(flow, {"doc": "hi"}, run_id="r")
    assert result.status == "completed"
    assert result["report"] == "report on hi:6" and result["embedding"] == [2, 2, 2]
    assert result["child"]["summary"] == "hi:6"
    assert dict(result["child"]) == {"embedding": [2, 2, 2], "summary": "hi:6"}


def test_nested_steps_are_on_the_chain_of_the_run_under_their_own_paths(host: Host) -> None:
    host.run(
        Flow("outer", [RAG.as_node(name="child"), report], durability="strong"), {"doc": "hi"}, run_id="r"
    )
    assert paths(host, "r") == [
        "child running",
        "child/embed completed",
        "child/summarize completed",
        "child completed",
        "report completed",
    ]
    lifted = [w for c in host.history("r") for s in c.steps if s.path == "child" for w in s.writes]
    assert {w.form for w in lifted} == {ValueForm.LIFTED}


def test_a_finished_run_shows_its_nested_results_again(host: Host) -> None:
    flow = Flow("outer", [RAG.as_node(name="child", select=["summary"]), report], durability="strong")
    host.run(flow, {"doc": "hi"}, run_id="r")
    again = host.run(flow, run_id="r")
    assert dict(again["child"]) == {"summary": "hi:6"}
    with pytest.raises(KeyError, match="embedding"):
        again["child"]["embedding"]


def test_a_value_of_the_flows_name_hides_it_but_nested_finds_it(host: Host) -> None:
    flow = Flow("outer", [RAG.as_node(name="summary"), report], durability="strong")
    result = host.run(flow, {"doc": "hi"})
    assert result["summary"] == "hi:6"
    assert result.nested("summary")["embedding"] == [2, 2, 2]


def test_inputs_and_outputs_are_renamed_at_the_boundary(host: Host) -> None:
    child = RAG.as_node(name="child").with_inputs(doc="text").with_outputs(summary="abstract").lift("summary")
    result = host.run(Flow("outer", [child]), {"text": "hello"})
    assert dict(result) == {"abstract": "hello:15", "child": {"embedding": [5, 5, 5], "summary": "hello:15"}}


def test_a_flow_may_be_used_twice_under_two_names(host: Host) -> None:
    left = RAG.as_node(name="left").with_inputs(doc="a").lift("summary").with_outputs("first")
    right = RAG.as_node(name="right").with_inputs(doc="b").lift("summary").with_outputs("second")
    result = host.run(Flow("outer", [left, right]), {"a": "x", "b": "yy"})
    assert (result["first"], result["second"]) == ("x:3", "yy:6")
    assert result["left"]["summary"] == "x:3"


def test_the_same_name_from_two_sides_of_a_boundary_is_refused_with_two_fixes() -> None:
    @node(output="summary")
    def mine(doc: str) -> str:
        return doc

    with pytest.raises(FlowError, match=r"boundary_clash.*with_outputs\(summary=\.\.\.\).*\.lift"):
        Flow("outer", [RAG.as_node(), mine])


def test_lifting_what_no_node_writes_is_refused_when_it_is_said() -> None:
    with pytest.raises(BadRequest, match="Did you mean 'summary'"):
        RAG.as_node().lift("sumary")
    with pytest.raises(BadRequest, match="select: no node"):
        RAG.as_node(select=["nothing"])


def branching() -> Flow:
    @ifelse(when_true="yes", when_false=END)
    def choose(doc: str) -> bool:
        return doc == "go"

    @node(output="answer")
    def yes(doc: str) -> str:
        return doc.upper()

    return Flow("branch", [choose, yes])


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_a_lifted_value_that_was_not_written_fails_by_name(host: Host, durability: Any) -> None:
    flow = Flow("outer", [branching().as_node(durability=durability).lift("answer")], durability="strong")
    assert host.run(flow, {"doc": "go"})["answer"] == "GO"
    result = host.run(flow, {"doc": "stop"})
    assert result.status == "failed" and result.error is not None
    assert result.error.code == "flow.not_lifted" and "'answer'" in result.error.message


def test_without_lift_a_branch_not_taken_gives_nothing(host: Host) -> None:
    result = host.run(Flow("outer", [branching().as_node()]), {"doc": "stop"})
    assert result.status == "completed" and "answer" not in result


def test_an_atomic_flow_is_one_step_and_keeps_only_what_is_lifted(host: Host) -> None:
    class Client:
        """Something that no codec could keep."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

    @node(output="client")
    def connect(doc: str) -> Client:
        return Client()

    @node(output="answer")
    def ask(client: Client, doc: str) -> str:
        return f"{type(client.lock).__name__}:{doc}"

    inner = Flow("inner", [connect, ask])
    flow = Flow("outer", [inner.as_node(durability="atomic").lift("answer")], durability="strong")
    result = host.run(flow, {"doc": "x"}, run_id="r")
    assert result["answer"] == "lock:x" and dict(result["inner"]) == {"answer": "lock:x"}
    assert paths(host, "r") == ["inner completed"]
    assert "client" not in str(host.history("r")) and set(host.state("r")) >= {"doc", "answer"}

    nested = host.run(Flow("outer2", [inner.as_node().lift("answer")], durability="strong"), {"doc": "x"})
    assert nested.error is not None and nested.error.code == "value.not_storable"


def test_the_events_of_an_atomic_flow_are_still_seen(url: str) -> None:
    seen: list[tuple[str, str]] = []

    def listen(event: Event) -> None:
        seen.append((event.kind, event.node))

    flow = Flow("outer", [RAG.as_node(name="child", durability="atomic")], durability="strong")
    with Host(url, on_event=listen) as host:
        host.run(flow, {"doc": "x"})
    steps = [e for e in seen if e[0].startswith("step")]
    assert steps == [
        ("step_started", "child"),
        ("step_started", "child/embed"),
        ("step_completed", "child/embed"),
        ("step_started", "child/summarize"),
        ("step_completed", "child/summarize"),
        ("step_completed", "child"),
    ]


def test_a_node_that_may_halt_is_refused_inside_an_atomic_flow() -> None:
    @node(output="answer", halts=True)
    def ask(doc: str) -> str:
        return doc

    inner = Flow("inner", [ask])
    with pytest.raises(FlowError, match=r"'ask' may halt.*durability='nested'.*move the node out"):
        Flow("outer", [inner.as_node(durability="atomic")])
    deep = Flow("deep", [inner.as_node()])
    with pytest.raises(FlowError, match="'inner/ask' may halt"):
        Flow("outer", [deep.as_node(durability="atomic")])


def test_a_failure_inside_fails_the_run_and_a_resume_goes_on_inside(host: Host) -> None:
    calls: list[str] = []
    broken = [True]

    @node(output="a")
    def first(x: int) -> int:
        calls.append("first")
        return x + 1

    @node(output="b")
    def second(a: int) -> int:
        calls.append("second")
        if broken[0]:
            raise ValueError("not yet")
        return a * 2

    flow = Flow("outer", [Flow("inner", [first, second]).as_node()], durability="strong")
    result = host.run(flow, {"x": 1}, run_id="r")
    assert result.status == "failed" and result.error is not None and result.error.message == "not yet"
    assert paths(host, "r")[-2:] == ["inner/second failed", "inner failed"]
    broken[0] = False
    assert host.resume("r", flow)["b"] == 4
    assert calls == ["first", "second", "second"]


def test_an_atomic_flow_that_failed_runs_again_whole(host: Host) -> None:
    calls: list[str] = []
    broken = [True]

    @node(output="a")
    def first(x: int) -> int:
        calls.append("first")
        return x + 1

    @node(output="b")
    def second(a: int) -> int:
        if broken[0]:
            raise ValueError("not yet")
        return a * 2

    flow = Flow("outer", [Flow("inner", [first, second]).as_node(durability="atomic")], durability="strong")
    result = host.run(flow, {"x": 1}, run_id="r")
    assert result.status == "failed" and result.error is not None and result.error.type == "ValueError"
    broken[0] = False
    assert host.resume("r", flow)["b"] == 4 and calls == ["first", "first"]


def test_each_visit_of_a_loop_begins_the_inner_flow_anew(host: Host) -> None:
    @node(output="next")
    def add(n: int, ctx: Context) -> int:
        return n + ctx.visit

    @ifelse(when_true="step", when_false=END)
    def more(n: int) -> bool:
        return n < 3

    step = Flow("inner", [add]).as_node(name="step").with_outputs("n")
    flow = Flow("outer", [step, more], entry="step", durability="strong")
    result = host.run(flow, {"n": 0}, run_id="r")
    assert result["n"] == 3 and result["step"]["next"] == 3
    inner = [s.path for c in host.history("r") for s in c.steps if "/" in s.path]
    assert inner == ["step/add", "step@2/add", "step@3/add"]
    assert set(host.state("r")) == {"n", "step@3/next"}


def test_flows_nest_in_flows_that_nest(host: Host) -> None:
    middle = Flow("middle", [RAG.as_node(name="leaf"), report])
    flow = Flow("outer", [middle.as_node(name="mid").lift("report")], durability="strong")
    result = host.run(flow, {"doc": "hi"}, run_id="r")
    assert result["report"] == "report on hi:6"
    assert result["mid"]["leaf"]["embedding"] == [2, 2, 2]
    assert "mid/leaf/embed completed" in paths(host, "r")
    assert host.run(flow, run_id="r")["mid"]["leaf"]["summary"] == "hi:6"


def test_a_default_inside_stands_where_the_outer_flow_gives_nothing(host: Host) -> None:
    @node(output="out")
    def scale(x: int, factor: int = 10) -> int:
        return x * factor

    inner = Flow("inner", [scale])
    assert host.run(Flow("outer", [inner.as_node()]), {"x": 2})["out"] == 20
    assert host.run(Flow("outer", [inner.as_node()]), {"x": 2, "factor": 3})["out"] == 6


def test_a_value_that_is_not_kept_cannot_cross_into_a_nested_flow() -> None:
    @node(output="doc", persist="no")
    def load(path: str) -> str:
        return path

    with pytest.raises(FlowError, match=r"not_durable.*'load' does not keep 'doc'"):
        Flow("outer", [load, RAG.as_node()])
    assert Flow("outer", [load, RAG.as_node(durability="atomic")])


def test_limits_of_an_inner_flow_hold_for_each_of_its_visits(host: Host) -> None:
    @node(output="n")
    def add(n: int) -> int:
        return n + 1

    @ifelse(when_true="add", when_false=END)
    def more(n: int) -> bool:
        return n < 100

    inner = Flow("inner", [add, more], entry="add", max_steps=20)
    with pytest.raises(FlowError, match=r"'inner' reads what it writes.*with_outputs"):
        Flow("outer", [inner.as_node()])
    flow = Flow("outer", [inner.as_node().with_outputs(n="total")], durability="strong")
    result = host.run(flow, {"n": 0})
    assert result.status == Status.FAILED and result.error is not None
    assert result.error.code == "run.limit_exceeded" and "inner/" in result.error.message


def test_results_of_a_wired_flow_stay_inside_it(host: Host) -> None:
    @node
    def first(x: int) -> int:
        return x + 1

    @node(output="y")
    def second(first: int) -> int:
        return first * 2

    flow = Flow("outer", [Flow("inner", [first >> second]).as_node()], durability="strong")
    result = host.run(flow, {"x": 1}, run_id="r")
    assert {name for name in result if name != "inner"} == {"y"}
    assert dict(result.nested("inner")) == {"first.__result__": 2, "y": 4}
    assert host.run(flow, run_id="r") == result


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_a_flow_wired_by_hand_is_a_node_and_shows_its_results(host: Host, durability: Any) -> None:
    @node
    def load() -> list[int]:
        return [1, 2]

    @node(output="total")
    def add(load: list[int]) -> int:
        return sum(load)

    inner = Flow("inner", load >> add).as_node(durability=durability)
    result = host.run(Flow("outer", [inner], durability="strong"), run_id="r")
    shown = {"total": 3} if durability == "atomic" else {"load.__result__": [1, 2], "total": 3}
    assert result["total"] == 3 and dict(result["inner"]) == shown
    assert host.run(Flow("outer", [inner], durability="strong"), run_id="r") == result

    @node
    def after() -> str:
        return "after"

    silent = Flow("silent", load >> after).as_node(durability=durability)
    result = host.run(Flow("outer", silent >> after, durability="strong"), run_id="s")
    assert {k: v for k, v in result.items() if k != "silent"} == {"after.__result__": "after"}


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_a_flow_drawn_by_hand_is_a_node_like_any_other(
    host: Host, durability: Literal["nested", "atomic"]
) -> None:
    @node
    def load(x: int) -> int:
        return x + 1

    @node
    def show(load: int) -> str:
        return f"<{load}>"

    @node
    def after() -> str:
        return "done"

    inner = Flow("inner", load >> show)
    flow = Flow("f", inner.as_node(durability=durability) >> after, durability="strong")
    result = host.run(flow, {"x": 1}, run_id="r")
    assert (result.status.value, result["after.__result__"]) == ("completed", "done")
    if durability == "nested":
        assert dict(result["inner"]) == {"load.__result__": 2, "show.__result__": "<2>"}
    again = host.run(flow, {"x": 1}, run_id="r")
    assert list(again) == list(result)


def test_a_renamed_flow_can_still_be_mapped_and_lifted() -> None:
    @node(output="y")
    def double(x: int) -> int:
        return 2 * x

    mapped = Flow("inner", [double]).as_node().with_outputs(y="ys").map_over("x").lift("y")
    assert mapped.outputs == ("ys",)


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_no_node_sees_what_another_did_to_its_list(host: Host, durability: Any) -> None:
    @node(output="items")
    def make(x: int) -> list[dict[str, int]]:
        return [{"n": x}]

    @node(output="spoilt", retry=1)
    def spoil(items: list[dict[str, int]], ctx: Context) -> int:
        items[0]["n"] += 1
        items.append({})
        if ctx.attempt == 1:
            raise ValueError("again")
        return len(items)

    @node(output="seen")
    def look(items: list[dict[str, int]], spoilt: int) -> list[Any]:
        return [items, spoilt]

    inner = Flow("inner", [make, spoil, look]).as_node(durability=durability).lift("seen")
    result = host.run(Flow("outer", [inner], durability="strong"), {"x": 1})
    assert result["seen"] == [[{"n": 1}], 2]
