"""What a node or a flow declares works wherever it stands, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from everstep import (
    END,
    Breaker,
    Context,
    Durability,
    Flow,
    Host,
    Limit,
    Node,
    Retention,
    ifelse,
    migrate,
    node,
    validate,
    wait,
)
from everstep.errors import BackendChanged, BadRequest, FlowError, InputError, NotInAtomic
from everstep.results import Diagnostic, Diagnostics
from everstep.types import Registry

pytestmark = pytest.mark.stores("memory")


def probe(idempotency_key: str) -> None:
    return None


EFFECT: dict[str, Any] = {"effects": "effectful", "idempotency_key": "auto"}


def one(fn: Callable[..., Any] = lambda x: x, **options: Any) -> Flow:
    return Flow("inner", [Node(fn, name="pay", output="y", **options)])


def code_of(make: Callable[[], Any]) -> str:
    with pytest.raises(FlowError) as refused:
        make()
    [found] = Diagnostics.of(refused.value)
    return found.code


@pytest.mark.parametrize(
    "options",
    [
        {"effects": "effectful", "idempotency_key": "order-{x}"},
        {"effects": "effectful", "idempotency_key": lambda x: f"order-{x}"},
        {**EFFECT, "on_unknown": "stop"},
        {**EFFECT, "probe": probe},
        {"expensive": True},
        {"skip_on_resume": True},
    ],
)
def test_what_an_atomic_flow_could_only_drop_is_refused_when_it_is_built(options: dict[str, Any]) -> None:
    assert Flow("outer", [one(**options).as_node()])
    atomic = one(**options).as_node(durability="atomic")
    assert code_of(lambda: Flow("outer", [atomic])) == "flow.not_in_atomic"
    deep = Flow("between", [atomic._copy(is_atomic=False)]).as_node(durability="atomic")
    assert code_of(lambda: Flow("outer", [deep])) == "flow.not_in_atomic"


def asks(act: Callable[[Context], Any], log: list[str]) -> Flow:
    @node(output="y")
    def ask(x: int, ctx: Context) -> int:
        log.append("before")
        act(ctx)
        log.append("behind")
        return x

    return Flow("inner", [ask])


def say_how(ctx: Context) -> None:
    ctx.outcome = "partial_success"


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda ctx: ctx.checkpoint({"why": "x"}), "asked for a checkpoint"),
        (lambda ctx: ctx.spend(usd=1), "counted what it spent"),
        (lambda ctx: ctx.channel.set("k", 1), "changed the channel"),
        (lambda ctx: ctx.channel.append("k", 1), "changed the channel"),
        (lambda ctx: ctx.channel.atomic_add("k"), "changed the channel"),
        (lambda ctx: ctx.channel.delete("k"), "changed the channel"),
        (lambda ctx: ctx.channel.clear(), "changed the channel"),
        (say_how, "said how it ended"),
    ],
)
def test_what_only_the_call_can_know_is_refused_at_the_call(
    host: Host, act: Callable[[Context], Any], says: str
) -> None:
    log: list[str] = []
    inner = asks(act, log)
    assert host.run(Flow("outer", [inner.as_node()]), {"x": 1}).status == "completed"
    assert log == ["before", "behind"]
    result = host.run(Flow("outer", [inner.as_node(durability="atomic")]), {"x": 1}, run_id="r")
    assert log == ["before", "behind", "before"], "nothing happens behind the refused call"
    assert result.error is not None and result.error.code == NotInAtomic.code
    assert f"'inner/ask' {says} inside an atomic flow" in result.error.message


def either() -> Flow:
    @ifelse(when_true="small", when_false="large")
    def is_small(x: int) -> bool:
        return x < 10

    small = Node(lambda x: x, name="small", output="q")
    large = Node(lambda x: -x, name="large", output="r")
    return Flow("inner", [is_small, small, large])


@pytest.mark.parametrize("durability", ["nested", "atomic"])
@pytest.mark.parametrize("mode", ["off", "partial", "strong"])
def test_a_flow_that_writes_one_value_or_the_other_completes(host: Host, durability: Any, mode: Any) -> None:
    take = Node(lambda q=0, r=0: (q, r), name="take", output="both")
    flow = Flow("outer", either().as_node(durability=durability) >> take, durability=mode)
    low, high = host.run(flow, {"x": 3}), host.run(flow, {"x": 30})
    assert (low["both"], high["both"]) == ((3, 0), (0, -30))
    assert ("q" in low, "r" in low, "q" in high, "r" in high) == (True, False, False, True)


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_a_lift_says_whether_it_must_be_there(host: Host, durability: Any) -> None:
    inner = either().as_node(durability=durability)
    assert host.run(Flow("f", [inner.lift("q", required=False)]), {"x": 30}).status == "completed"
    result = host.run(Flow("f", [inner.lift("q")]), {"x": 30})
    assert result.error is not None and result.error.code == "flow.not_lifted"


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_items_that_write_one_value_or_the_other_are_judged_together(host: Host, durability: Any) -> None:
    over = either().as_node(durability=durability).map_over("x")
    result = host.run(Flow("f", [over]), {"x": [1, 2]})
    assert result["q"] == [1, 2] and "r" not in result
    mixed = host.run(Flow("f", [over]), {"x": [1, 20]})
    assert mixed.error is not None and mixed.error.code == "flow.not_lifted"


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("persist", ["inline", "ref"])
def test_what_an_atomic_flow_lifts_is_kept_as_its_node_says(
    persist: str, mapped: bool, tmp_path: Any
) -> None:
    inner = one(lambda x: "ab" * 400_000 if persist == "inline" else x, persist=persist)
    atomic = inner.as_node(durability="atomic")
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        flow = Flow("f", [atomic.map_over("x") if mapped else atomic], durability="strong")
        host.run(flow, {"x": [7] if mapped else 7}, run_id="r")
        written = [
            w for r in host.history("r") for s in r.steps for w in s.writes if w.name == "y" and w.size
        ]
        assert [w.artifact is not None for w in written if w.form == "whole"] == [persist == "ref"]


# -- flows inside flows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["nested", "atomic"])
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"max_running": 2}, "flow.inner_option"),
        ({"max_per_group": 2}, "flow.inner_option"),
        ({"limits": [Limit("x", running=1)]}, "flow.inner_option"),
        ({"auto_checkpoint": 2}, "flow.inner_option"),
        ({"retention": Retention(keep_last=3)}, "flow.inner_option"),
        ({"migrations": [migrate.rename_node("old", "pay")]}, "flow.inner_option"),
        ({"durability": Durability(max_resume_attempts=3)}, "flow.inner_option"),
        ({"budgets": {"usd": 1}}, "flow.inner_guards"),
        ({"breakers": [Breaker("b", failures=1)]}, "flow.inner_guards"),
    ],
)
def test_what_holds_for_whole_runs_is_refused_of_a_flow_inside_another(
    options: dict[str, Any], code: str, durability: Any
) -> None:
    inner = Flow("inner", [Node(lambda x: x, name="pay", output="y")], **options)
    assert code_of(lambda: Flow("outer", [inner.as_node(durability=durability)])) == code
    mapped = inner.as_node(durability=durability).map_over("x")
    assert code_of(lambda: Flow("outer", [mapped])) == code


@pytest.mark.parametrize(
    ("inner", "outer", "is_met"),
    [
        ("strong", "partial", False),
        ("strong", "off", False),
        ("strong", "strong", True),
        ("strong", Durability("strong", interval=5), False),
        (Durability("strong", interval=5), Durability("strong", interval=5), True),
        (Durability("strong", interval=5), "strong", True),
        (Durability("strong", flush="before_effects"), Durability("strong", interval=5), False),
        ("off", "partial", False),
        ("off", "off", True),
        ("partial", "off", True),
        ("partial", "strong", True),
    ],
)
def test_an_inner_flow_is_kept_as_it_asks_or_refused(inner: Any, outer: Any, is_met: bool) -> None:
    asks = Flow("inner", [Node(lambda x: x, name="pay", output="y")], durability=inner)
    assert Flow("outer", [asks.as_node(durability="atomic")], durability=outer), "atomic says it all"
    if is_met:
        assert Flow("outer", [asks.as_node()], durability=outer)
    else:
        made = lambda: Flow("outer", [asks.as_node()], durability=outer)  # noqa: E731
        assert code_of(made) == "flow.inner_durability"


def test_an_inner_flow_keeps_to_the_keys_of_its_own_channel(host: Host) -> None:
    def flow(key: str, value: Any, outer: Any) -> Flow:
        inner = Flow("inner", asks(lambda ctx: ctx.channel.set(key, value), []).nodes, channel={"n": int})
        return Flow("outer", [inner.as_node()], channel=outer)

    assert host.run(flow("n", 1, None), {"x": 1}).status == "completed"
    assert host.run(flow("n", 1, {"m": str}), {"x": 1}, channel={"n": 2}).status == "completed"
    assert host.run(flow("m", "a", {"m": str}), {"x": 1}).status == "completed"
    for refused in (flow("n", "a", None), flow("k", 1, None), flow("k", 1, {"m": str})):
        error = host.run(refused, {"x": 1}).error
        assert error is not None and error.code == BadRequest.code and "channel key" in error.message


def test_what_a_registry_knows_reaches_the_flows_inside() -> None:
    pay = Node(lambda x: x, name="pay", output="y", identifier="shop.pay")
    inner = Flow("inner", [pay], profiles={"pay": {"determinism": "strict"}})
    registry = Registry([{"id": "shop.pay", "effects": "effectful", "determinism": "nondeterministic"}])
    flow = Flow(
        "outer", [Flow("between", [inner.as_node()]).as_node()], registry=registry, durability="strong"
    )
    assert [d.code for d in validate(flow).errors] == ["DAG-CKPT-004"]
    found = flow["between"].inner.nodes[0].inner.nodes[0]
    assert found.determinism == "strict", "the flow's own word goes before the registry's"


def test_the_rules_of_a_flow_hold_where_it_is_inside_another() -> None:
    def rule(flow: Flow, host: object) -> list[Diagnostic]:
        return [Diagnostic("shop.rule", "warning", flow.nodes[0].name, message="Odd.")]

    inner = Flow("inner", [Node(lambda x: x, name="pay", output="y")], rules=[rule])
    flow = Flow("outer", [Flow("between", [inner.as_node()]).as_node()])
    assert [(d.code, d.node) for d in validate(flow)] == [("shop.rule", "between/inner/pay")]


def test_a_breaker_for_a_node_inside_an_atomic_flow_is_refused() -> None:
    inner = one()
    guard = [Breaker("b", nodes=["inner/pay"], failures=1)]
    assert Flow("outer", [inner.as_node()], breakers=guard)
    with pytest.raises(NotInAtomic, match="guards 'inner/pay': it is inside an atomic flow"):
        Flow("outer", [inner.as_node(durability="atomic")], breakers=guard)
    whole = [Breaker("b", nodes=["inner"], failures=1)]
    assert Flow("outer", [inner.as_node(durability="atomic")], breakers=whole)


def test_what_an_atomic_flow_does_not_lift_cannot_be_selected() -> None:
    inner = Flow("inner", [Node(lambda x: x, name="a", output="y"), Node(lambda y: y, name="b", output="z")])
    assert Flow("outer", [inner.as_node(select=["y"]).lift("z")])
    atomic = inner.as_node(durability="atomic", select=["y"])
    assert code_of(lambda: Flow("outer", [atomic.lift("z")])) == "flow.not_in_atomic"
    assert Flow("outer", [atomic.lift("y")])
    assert Flow("outer", [inner.as_node(durability="atomic").lift("z")])


# -- streams and what cannot be checkpointed --------------------------------------------------------------


def tokens(x: int) -> Iterator[str]:
    yield from "abc"


def test_a_stream_that_cannot_be_replayed_is_allowed_where_nothing_of_it_is_kept(host: Host) -> None:
    speak = Node(tokens, name="speak", output="words")
    [found] = validate(Flow("f", [speak], durability="strong")).errors
    assert found.code == "DAG-CKPT-005" and "ctx.emit" in found.fix
    atomic = Flow("f", [Flow("inner", [speak]).as_node(durability="atomic")], durability="strong")
    assert host.run(atomic, {"x": 1})["words"] == ["a", "b", "c"]
    silent = Flow("f", [Node(tokens, name="speak")], durability="strong")
    assert host.run(silent, {"x": 1}).status == "completed"


def test_what_cannot_be_checkpointed_may_stay_inside_an_atomic_flow() -> None:
    connect = Node(lambda x: x, name="connect", output="link", checkpointable=False, reason="a socket")
    ask = Node(lambda link: link, name="ask", output="rows")
    inner = Flow("inner", [connect, ask]).as_node(durability="atomic")
    assert not validate(Flow("f", [inner.lift("rows")], durability="strong")).errors
    assert [d.code for d in validate(Flow("f", [inner], durability="strong")).errors] == ["DAG-CKPT-001"]


def test_an_effect_behind_what_may_differ_inside_an_atomic_flow_is_warned_of() -> None:
    draw = Node(lambda x: x, name="draw", output="a")
    pay = Node(lambda a: a, name="pay", output="y", **EFFECT)
    flow = Flow("f", [Flow("inner", [draw, pay]).as_node(durability="atomic")])
    [found] = validate(flow).warnings
    assert (found.code, found.node) == ("flow.shaky_effect", "inner/pay") and "'draw'" in found.message
    sure = Node(lambda x: x, name="draw", output="a", determinism="strict")
    assert not validate(Flow("f", [Flow("inner", [sure, pay]).as_node(durability="atomic")]))


# -- what can have no effect ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"output": "y", "keep_every": 3},
        {"output": "y", "answer_type": int},
        {"persist": "ref"},
    ],
)
def test_an_option_that_can_have_no_effect_is_refused(options: dict[str, Any]) -> None:
    assert code_of(lambda: Flow("f", [Node(lambda x: x, name="n", **options)])) == "flow.idle_option"


def test_a_gate_has_nothing_to_persist() -> None:
    gate = ifelse(when_true=END, when_false=END, persist="ref")(lambda x: True)
    assert code_of(lambda: Flow("f", [gate.with_name("gate")])) == "flow.idle_option"


CHILD = """digraph child { graph ["budget.usd"="1"];
    start [shape=Mdiamond]; done [shape=Msquare]; start -> done }"""
PARENT = """digraph parent { start [shape=Mdiamond]; done [shape=Msquare];
    sub [shape=house, "stack.child_dotfile"="child.dot"]; start -> sub -> done }"""


def test_a_budget_of_a_pipeline_inside_another_is_refused() -> None:
    with pytest.raises(BadRequest, match="has a budget"):
        Flow.from_dot(PARENT, children={"child.dot": CHILD})


def test_a_pipeline_cannot_be_told_where_to_begin() -> None:
    with pytest.raises(BadRequest, match="start node"):
        Flow.from_dot(CHILD, entry="done")


# -- pipelines --------------------------------------------------------------------------------------------

STAGES = {
    "plain": "start -> head -> done;",
    "branch": """fork [shape=component]; meet [shape=tripleoctagon]; other [shape=box];
        start -> fork; fork -> head; fork -> other; head -> meet; other -> meet; meet -> done;""",
}


def staged(shape: str, attributes: str, act: Callable[[Any], Any], **options: Any) -> Flow:
    ends = f"start [shape=Mdiamond]; done [shape=Msquare]; head [shape=box, {attributes}];"
    return Flow.from_dot(f"digraph p {{ {ends} {STAGES[shape]} }}", handlers={"head": act}, **options)


@pytest.mark.parametrize(
    ("attributes", "trigger"), [("expensive=true", "expensive_op"), ("destructive=true", "destructive_op")]
)
@pytest.mark.parametrize("shape", STAGES)
def test_what_a_stage_asks_for_is_written_in_a_branch_too(
    host: Host, shape: str, attributes: str, trigger: str
) -> None:
    flow = staged(shape, attributes, lambda stage: "fine", durability="partial")
    assert host.run(flow, run_id="r").status == "completed"
    assert trigger in [record.trigger for record in host.history("r")]


@pytest.mark.parametrize("shape", STAGES)
def test_a_stage_is_tried_again_in_a_branch_too(host: Host, shape: str) -> None:
    tries: list[int] = []

    def work(stage: Any) -> str:
        tries.append(stage.attempt)
        if stage.attempt == 1:
            raise RuntimeError("once more")
        return "fine"

    assert host.run(staged(shape, "max_retries=1", work), run_id="r").status == "completed"
    assert tries == [1, 2]


@pytest.mark.parametrize(("shape", "path"), [("plain", "head"), ("branch", "fork/head/head")])
def test_what_is_said_of_a_stage_by_id_or_path_reaches_the_branches(shape: str, path: str) -> None:
    registry = Registry([{"id": "p.head", "effects": "effectful"}])
    for said in ({"registry": registry}, {"profiles": {path: {"effects": "effectful"}}}):
        flow = staged(shape, "", lambda stage: "fine", **said)
        assert [d.node for d in validate(flow).errors if d.code == "DAG-CKPT-004"] == [path]


def test_a_pipeline_inside_a_flow_does_not_go_on_with_a_simulation_either(host: Host) -> None:
    def broken(stage: Any) -> str:
        raise RuntimeError("not today")

    def flow(**backend: Any) -> Flow:
        text = f"digraph p {{ start [shape=Mdiamond]; done [shape=Msquare]; {STAGES['plain']} }}"
        pipe = Flow.from_dot(text, **backend).as_node(name="pipe").lift()
        return Flow("outer", [Flow("between", [pipe]).as_node()], durability="strong")

    assert host.run(flow(backend=broken), run_id="r").status == "failed"
    with pytest.raises(BackendChanged):
        host.resume("r", flow())
    assert host.resume("r", flow(backend=lambda stage: "fine")).status == "completed"


def test_a_flow_with_a_pipeline_inside_gives_its_own_values(host: Host) -> None:
    @node(output="answer")
    def first(ctx: Context) -> int:
        ctx.channel.set("answer", "of the channel")
        return 42

    pipeline = Flow.from_dot("digraph p { start [shape=Mdiamond]; exit [shape=Msquare]; start -> exit }")
    result = host.run(Flow("outer", [first >> pipeline.as_node()]))
    assert result["answer"] == 42 and result.channel["answer"] == "of the channel"
    assert "outcome" not in result


def test_a_run_that_cannot_begin_is_told_which_first_value_it_lacks(host: Host) -> None:
    again = ifelse(when_true="draft", when_false=END, name="again")(lambda text: len(text) < 3)
    flow = Flow("f", [again, Node(lambda: "long", name="draft", output="text")])
    with pytest.raises(InputError, match="or give a first value of 'text'"):
        host.run(flow)
    assert host.run(flow, {"text": "a"})["text"] == "long"


def test_a_map_inside_an_atomic_flow_does_not_say_that_only_some_items_run_again(host: Host) -> None:
    def fails(x: int) -> int:
        raise ValueError("no")

    inner = Flow("inner", [Node(fails, name="each", output="y").map_over("x", on_error="finish")])
    for durability, told in (("nested", "only these items run again"), ("atomic", "begins anew")):
        flow = Flow("outer", [inner.as_node(durability=durability)])  # type: ignore[arg-type]
        result = host.run(flow, {"x": [1, 2]})
        assert result.error is not None and told in result.error.message


def written(host: Host, flow: Flow) -> list[list[str]]:
    """Return which steps were written together."""
    host.run(flow, {"x": 1}, run_id="r1")
    return [[step.path for step in record.steps] for record in host.history("r1")][1:]


@pytest.mark.parametrize("place", ["profiles", "registry"])
def test_an_effect_that_the_flow_around_declares_is_written_before_and_after(host: Host, place: str) -> None:
    said = {"effects": "effectful", "idempotency": {"key": "auto"}}
    atomic = one(identifier="shop.pay").as_node(durability="atomic")
    told: dict[str, Any] = {"profiles": {"inner/pay": said}}
    if place == "registry":
        told = {"registry": Registry([{"id": "shop.pay", **said}])}
    first, last = Node(lambda x: x, name="first", output="w"), Node(lambda y: y, name="last", output="z")
    flow = Flow("outer", [first, atomic.with_inputs(x="w"), last], **told)
    assert written(host, flow) == [["first"], ["inner"], ["last"]]


def test_what_cannot_be_made_again_is_written_with_its_atomic_flow(host: Host) -> None:
    atomic = one(replayable=False).as_node(durability="atomic")
    last = Node(lambda y: y, name="last", output="z")
    assert written(host, Flow("outer", [atomic, last])) == [["inner"], ["last"]]


def reads_seed(x: int, seed: int) -> int:
    return x + seed


def may_read_seed(x: int, seed: int = 0) -> int:
    return x + seed


SEEDED: dict[str, Callable[[Node], Any]] = {
    "plain": lambda n: n,
    "map": lambda n: n.map_over("x"),
    "nested": lambda n: Flow("inner", [n]).as_node(),
    "atomic": lambda n: Flow("inner", [n]).as_node(durability="atomic"),
    "deep": lambda n: Flow("mid", [Flow("inner", [n]).as_node()]).as_node(),
    "item": lambda n: Flow("inner", [n]).as_node().map_over("x"),
}


@pytest.mark.parametrize("fn", [reads_seed, may_read_seed])
@pytest.mark.parametrize("place", SEEDED)
def test_a_key_that_a_flow_declares_fills_parameters_wherever_they_are(
    host: Host, place: str, fn: Callable[..., int]
) -> None:
    inner = SEEDED[place](Node(fn, name="add", output="y"))
    x: Any = [1] if place in ("map", "item") else 1
    flow = Flow("outer", [inner], channel={"seed": int})
    assert host.run(flow, {"x": x}, channel={"seed": 5})["y"] in (6, [6])
    assert host.run(flow, {"x": x, "seed": 7}, channel={"seed": 5})["y"] in (8, [8])
    renamed = Flow("outer", [inner.with_inputs(seed="start")], channel={"start": int})
    assert host.run(renamed, {"x": x}, channel={"start": 5})["y"] in (6, [6])


@pytest.mark.parametrize("place", SEEDED)
def test_a_key_that_is_not_there_fails_the_run_wherever_it_is_read(host: Host, place: str) -> None:
    inner = SEEDED[place](Node(reads_seed, name="add", output="y"))
    x: Any = [1] if place in ("map", "item") else 1
    result = host.run(Flow("outer", [inner], channel={"seed": int}), {"x": x})
    assert result.error is not None and result.error.code == "node.input_never_came"


def test_a_map_behind_an_edge_lacks_an_input_as_any_node_does(host: Host) -> None:
    first = Node(lambda z: z, name="first", output="w")
    add = Node(reads_seed, name="add", output="y").map_over("x")
    flow = Flow("f", [first >> add])
    result = host.run(flow, {"z": 1, "x": [1]})
    assert result.error is not None and result.error.code == "node.input_never_came"
    assert host.run(flow, {"z": 1, "x": [1]}, channel={"seed": 5})["y"] == [6]
    with pytest.raises(InputError, match="What a map goes over comes from a node or an input"):
        host.run(flow, {"z": 1}, channel={"x": [1], "seed": 5})


@pytest.mark.parametrize("over", ["said", "k"])
def test_an_item_that_adds_to_the_list_it_began_with_goes_on_after_a_halt(host: Host, over: str) -> None:
    hear = Node(lambda said, k: [*said, k], name="hear", output="said")
    more = ifelse(when_true="hear", when_false=END, name="more")(lambda said: len(said) < 3)
    chat = Flow("chat", [hear, more, wait.approval("ok")], entry="hear").as_node()
    flow = Flow("outer", [chat.map_over(over).with_outputs(said="heard")])
    given: dict[str, Any] = {"said": ["a"], "k": 1}
    halted = host.run(flow, {**given, over: [given[over]] * 2}, run_id="r1")
    assert host.state("r1")["chat#1/said"] == ["a", 1, 1]
    for opened in halted.waits:
        host.answer(opened.id, {"approved": True})
    assert host.resume("r1", flow)["heard"] == [["a", 1, 1]] * 2
    assert [found.problem for found in host.storage.verify("r1")] == [""]


def test_a_node_that_goes_over_a_list_is_told_where_its_tasks_belong(host: Host) -> None:
    def ask(x: int, ctx: Context) -> int:
        ctx.next_task("extra", n=x)
        return x

    asking, extra = Node(ask, name="ask", output="y"), Node(lambda n: n, name="extra", output="z")
    result = host.run(Flow("f", [asking.map_over("x")], tasks=[extra]), {"x": [1]})
    assert result.error is not None and result.error.code == "task.unknown"
    assert "Put 'ask' and 'extra' into a flow and map that" in result.error.message
    inner = Flow("inner", [asking], tasks=[extra]).as_node()
    assert host.run(Flow("f", [inner.map_over("x")]), {"x": [1]})["z"] == [1]
