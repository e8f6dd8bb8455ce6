"""A flow written as JSON is the same flow when it is read."""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings

import everstep
from everstep import Durability, Flow, Host, Node, Retry, chain, node, parallel, wait
from everstep.cli.bench import flows as bench_flows
from everstep.cli.demo import flow as demo_flow
from everstep.errors import BadRequest, IrInvalid
from everstep.graph.author.flow_options import FLOW_OPTIONS
from everstep.graph.author.joins import JoinNode
from everstep.graph.author.subflow import Subflow
from everstep.graph.compile.plan import DEEPEST
from everstep.graph.ir.check import schema
from everstep.model.durability import DurabilityMode
from everstep.testing import ManualClock
from everstep.types import Profile, Registry
from tests.unit.graph.ir import ir_flows
from tests.unit.graph.ir.ir_flows import EXAMPLES, Address, add, charge, left, meet, plain, right
from tests.unit.properties.flows import Built, Case, cases

SCHEMA = schema()
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
SHIPPED = [
    found for module in (demo_flow, bench_flows) for found in vars(module).values() if isinstance(found, Flow)
]


def options_of(n: Node) -> dict[str, Any]:
    """Return all that a node says, but for what is compared otherwise."""
    left_out = ("params", "inner", "flow", "fn", "retry", "spec", "arguments", "__doc__", "defaults")
    said = {k: v for k, v in vars(n).items() if k not in (*left_out, "identifier", "oddities")}
    retry = {name: getattr(n.retry, name) for name in Retry.__slots__} if n.retry.times else None
    params = [(p.name, p.source, p.required) for p in n.params]
    arguments = dict(getattr(n, "arguments", {}))
    if isinstance(arguments.get("options"), tuple):
        arguments["options"] = list(arguments["options"])
    lifts = {"must_lift": n.must_lift, "selected": n.selected}
    return said | lifts | {"retry": retry, "params": params, "class": type(n), "arguments": arguments}


def assert_same(one: Flow, two: Flow) -> None:
    """Compare two flows as far as they say anything."""
    assert two.plan.hash == one.plan.hash
    assert two.plan.blueprint == one.plan.blueprint
    for field in {"name", "edges", *FLOW_OPTIONS} - {"tasks", "registry", "profiles", "migrations"}:
        assert getattr(two, field) == getattr(one, field)
    assert two.plan.limits == one.plan.limits
    for a, b in zip(one.nodes, two.nodes, strict=True):
        assert Profile.of(b) == Profile.of(a)
        if isinstance(a, JoinNode):
            assert (b.spec, b.effects) == (a.spec, a.effects)
            continue
        assert options_of(b) == options_of(a)
        if isinstance(a, Subflow):
            assert_same(a.flow, b.flow)
        elif not a.is_built_in:
            assert b.fn is a.fn


def assert_round_trip(flow: Flow) -> None:
    ir = flow.to_ir()
    assert json.loads(json.dumps(ir)) == ir
    VALIDATOR.validate(ir)
    back = Flow.from_ir(ir, flow.functions())
    assert_same(flow, back)
    assert json.dumps(back.to_ir()) == json.dumps(ir)
    assert back.functions() == flow.functions()


@pytest.mark.parametrize("flow", [*EXAMPLES, *SHIPPED], ids=lambda f: f.name)
def test_what_is_written_is_read_as_the_same_flow(flow: Flow) -> None:
    assert_round_trip(flow)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_random_flows_survive_the_round_trip(case: Case) -> None:
    assert_round_trip(Built(case).flow)


@pytest.mark.parametrize("flow", EXAMPLES, ids=lambda f: f.name)
def test_the_order_of_keys_means_nothing(flow: Flow) -> None:
    ir = json.loads(json.dumps(flow.to_ir(), sort_keys=True))
    assert_same(flow, Flow.from_ir(ir, flow.functions()))


def with_news(value: Any, name: str = "") -> Any:
    """Return an IR with a field that no one knows in every object whose keys are fields."""
    if isinstance(value, list):
        return [with_news(item) for item in value]
    if not isinstance(value, dict):
        return value
    if name in ("literal", "schema"):
        return value
    more = {k: with_news(v, k) for k, v in value.items()}
    return more if name in ("channel", "arguments") else {**more, "x-new": {"a": [1, {"b": name}]}}


@pytest.mark.parametrize("flow", EXAMPLES, ids=lambda f: f.name)
def test_unknown_fields_survive_at_every_level(flow: Flow) -> None:
    ir = with_news(flow.to_ir())
    assert json.dumps(ir).count("x-new") > 5
    VALIDATOR.validate(ir)
    back = Flow.from_ir(copy.deepcopy(ir), flow.functions())
    assert back.to_ir() == ir
    assert_same(flow, back)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_unknown_fields_of_random_flows_survive(case: Case) -> None:
    flow = Built(case).flow
    ir = with_news(flow.to_ir())
    assert Flow.from_ir(ir, flow.functions()).to_ir() == ir


def test_fields_of_the_format_that_everstep_does_not_use_are_kept() -> None:
    ir = plain.to_ir() | {"profile": "queue", "checkpoints": [{"x": 1}], "artifacts": [1]}
    ir["nodes"][0]["name"] = "Add two numbers"
    ir["edges"][0] |= {"delivery": "at_least_once", "timeout_ms": 5}
    ir["metadata"]["owner"] = "ann"
    assert Flow.from_ir(ir, plain.functions()).to_ir() == ir


def test_the_copy_is_private() -> None:
    ir = plain.to_ir()
    ir["x"] = [1]
    back = Flow.from_ir(ir, plain.functions())
    ir["x"].append(2)
    back.to_ir()["x"].append(3)
    assert back.to_ir()["x"] == [1]


def test_a_flow_that_was_read_may_stand_in_another_and_keeps_its_unknown_fields() -> None:
    inner = Flow.from_ir(plain.to_ir() | {"x-new": 1}, plain.functions())
    assert Flow("outer", [inner.as_node().lift("both")]).to_ir()["nodes"][0]["flow"]["x-new"] == 1


def test_what_is_left_out_is_as_it_is_by_default_or_as_the_registry_has_it() -> None:
    ir = {
        "name": "small",
        "nodes": [{"alias": "pay", "identifier": "pay"}, {"alias": "add", "identifier": "add"}],
    }
    VALIDATOR.validate(ir)
    flow = Flow.from_ir(ir, {"pay": charge, "add": add.fn})
    assert (flow["pay"].retry.times, flow["pay"].persist, flow["pay"].outputs) == (3, "ref", ("receipt",))
    assert flow["pay"].idempotency_key is ir_flows.key_of
    assert flow["add"].outputs == ()
    assert flow["add"].retry.times == 0
    assert (flow.version, flow.durability, flow.max_steps) == ("1", Durability(), 10_000)


def test_what_is_said_goes_before_what_the_registry_has() -> None:
    said = {"retry": None, "persist": "auto", "idempotency": None, "outputs": ["paid"], "timeout_s": None}
    ir = {"name": "small", "nodes": [{"alias": "pay", "identifier": "pay", **said}]}
    pay = Flow.from_ir(ir, {"pay": charge})["pay"]
    assert (pay.retry.times, pay.persist, pay.idempotency_key, pay.timeout) == (0, "auto", None, None)
    assert pay.outputs == ("paid",)


def test_a_gate_of_the_registry_brings_its_targets() -> None:
    nodes = [{"alias": n.name, "identifier": n.name} for n in ir_flows.loop.nodes]
    ir = {"name": "loop", "entry": ["again"], "nodes": nodes}
    flow = Flow.from_ir(ir, {n.name: n for n in ir_flows.loop.nodes})
    assert flow.plan.hash == ir_flows.loop.plan.hash


def test_a_flow_of_the_registry_may_be_named_in_place_of_its_ir() -> None:
    inside = {"alias": "inside", "kind": "subflow", "identifier": "the loop"}
    ir = {"name": "outer", "nodes": [inside], "policies": {"durability": "off"}}
    flow = Flow.from_ir(ir, {"the loop": ir_flows.loop})
    same = Flow("outer", [ir_flows.loop.as_node(name="inside")], durability="off")
    assert flow.plan.hash == same.plan.hash
    assert_round_trip(flow)


@pytest.mark.parametrize("mode", ["off", "partial", "strong"])
def test_durability_may_be_a_plain_text(mode: DurabilityMode) -> None:
    ir = plain.to_ir()
    ir["policies"]["durability"] = mode
    VALIDATOR.validate(ir)
    flow = Flow.from_ir(ir, plain.functions())
    assert flow.durability == Durability.of(mode)
    assert flow.to_ir()["policies"]["durability"]["mode"] == mode


def test_spans_may_be_milliseconds_or_text() -> None:
    ir = plain.to_ir()
    ir["policies"]["durability"] = {
        "mode": "strong",
        "lease_ttl": 1500,
        "checkpoint_interval": {"time": "2m"},
    }
    VALIDATOR.validate(ir)
    durability = Flow.from_ir(ir, plain.functions()).durability
    assert durability.lease_ttl.total_seconds() == 1.5
    assert durability.interval_parts()[1] is not None
    ir["policies"]["durability"] = {"mode": "strong", "checkpoint_interval": 4}
    assert Flow.from_ir(ir, plain.functions()).durability.interval == 4


def test_a_registry_is_anything_that_can_be_asked() -> None:
    class Shelf:
        def get(self, identifier: str, /) -> Any:
            return plain.functions().get(identifier)

    assert Flow.from_ir(plain.to_ir(), Shelf()).plan.hash == plain.plan.hash


def test_a_registry_of_nodes_gives_the_functions_too() -> None:
    registry = Registry([{"id": "shop.feed", "durability": {"checkpointable": False, "reason": "a socket"}}])
    feed = registry.node("shop.feed", output="y")(lambda x: x)
    flow = Flow("f", [feed.with_name("feed")], registry=registry)
    back = Flow.from_ir(flow.to_ir(), registry)
    assert_same(flow, back)
    assert (back["feed"].checkpointable, back["feed"].reason) == (False, "a socket")


def test_what_a_registry_or_a_flow_says_of_its_nodes_is_in_the_ir() -> None:
    said = {"effects": "read_only", "determinism": "strict", "idempotency": {"key": "k"}}
    flow = Flow(
        "declared",
        [
            add,
            wait.approval("approve", context="total"),
            chain(parallel(left, right, policy="best_effort"), meet),
        ],
        profiles={name: {**said, "checkpointable": True} for name in ("add", "approve", "join_left_right")},
    )
    for entry in flow.to_ir()["nodes"]:
        if entry["alias"] in flow.profiles:
            assert (entry["effects"], entry["determinism"]) == ("read_only", "strict")
            assert entry["idempotency"]["key"] == "k"
    assert_round_trip(flow)
    back = Flow.from_ir(flow.to_ir(), flow.functions())
    assert [n.effects for n in back.nodes] == [n.effects for n in flow.nodes]
    assert [n.checkpointable for n in back.nodes] == [n.checkpointable for n in flow.nodes]


def test_the_hash_does_not_depend_on_identifiers() -> None:
    def work(x: int) -> int:
        return x

    one, two = (Flow("f", [Node(work, output="y", identifier=name)]) for name in ("", "shop.work"))
    assert one.plan.hash == two.plan.hash
    assert two.to_ir()["nodes"][0]["identifier"] == "shop.work"

    def stop(x: int) -> wait.Wait:
        return wait.Wait()

    one, two = (
        Flow("f", [Node(stop, output="y", halts=True, identifier=name)]) for name in ("", "shop.stop")
    )
    assert one.plan.hash == two.plan.hash


@pytest.mark.parametrize("identifier", ["std.timer.wait", 3, None])
def test_an_identifier_that_cannot_be_ones_own_is_refused(identifier: Any) -> None:
    with pytest.raises(BadRequest, match="identifier"):
        Node(lambda x: x, name="n", identifier=identifier)


# -- names ------------------------------------------------------------------------------------------------


def test_functions_are_called_by_module_and_name_if_that_leads_to_them() -> None:
    assert plain.to_ir()["nodes"][0]["identifier"] == "tests.unit.graph.ir.ir_flows:add"


def test_functions_that_no_name_leads_to_are_called_by_their_place_too() -> None:
    def make(k: int) -> Node:
        @node(output=f"y{k}", name=f"work{k}")
        def work(x: int) -> int:
            return x + k

        return work

    class Adder:
        def __call__(self, x: int) -> int:
            return x

        def add(self, x: int) -> int:
            return x

    flow = Flow(
        "local",
        [
            make(1),
            make(2),
            Node(partial(lambda x, y: x, y=1), name="part", output="p", inputs=None),
            Node(Adder(), name="object", output="o"),
            Node(Adder().add, name="method", output="m"),
            Node(lambda x: x, name="lambda", output="l", idempotency_key=lambda x: "a"),
        ],
    )
    names = [n["identifier"] for n in flow.to_ir()["nodes"]]
    assert len(set(names)) == 6
    assert all(name.endswith(f"#local/{n.name}") for name, n in zip(names, flow.nodes, strict=True))
    assert_round_trip(flow)


def test_one_name_for_two_functions_is_refused() -> None:
    one = Node(lambda x: x, name="a", output="a", identifier="same")
    two = Node(lambda x: x, name="b", output="b", identifier="same")
    with pytest.raises(IrInvalid, match="'same' would stand for two") as caught:
        Flow("f", [one, two]).to_ir()
    problems: Any = caught.value.details["problems"]
    assert [p["code"] for p in problems] == ["ir.ambiguous"]
    Flow("f", [one, one.with_name("b").with_outputs("b")]).to_ir()


def test_names_of_the_registry_are_kept() -> None:
    flow = ir_flows.shop
    names = {name: f"my.{k}" for k, name in enumerate(flow.functions())}
    text = json.dumps(flow.to_ir())
    for old, new in names.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    registry = {names[name]: thing for name, thing in flow.functions().items()}
    back = Flow.from_ir(json.loads(text), registry)
    assert back.to_ir() == json.loads(text)
    assert back.functions() == registry


def test_a_hint_without_a_name_is_looked_up_by_its_place() -> None:
    @node(output="y", halts=True, answer_type=dict[str, Any])
    def ask() -> wait.Wait:
        return wait.Wait()

    class Local:
        pass

    flow = Flow("f", [ask], channel={"a": Local, "b": list[Local], "c": type[int]})
    channel = flow.to_ir()["channel"]
    assert channel["a"].endswith("Local#f/@channel/a")
    assert channel["b"].endswith("#f/@channel/b")
    assert_round_trip(flow)


def test_classes_of_loaded_modules_need_not_be_in_the_registry() -> None:
    functions = {n: f for n, f in ir_flows.shop.functions().items() if not isinstance(f, type)}
    flow = Flow.from_ir(ir_flows.shop.to_ir(), functions)
    assert flow["ask_address"].answer_type is Address
    assert flow["charge"].retry.on == (ir_flows.Busy, ConnectionError)


# -- what runs --------------------------------------------------------------------------------------------


def test_a_flow_that_was_read_runs_as_the_one_that_was_written() -> None:
    runs: list[tuple[Flow, dict[str, Any]]] = [
        (plain, {"x": 5}),
        (ir_flows.maps, {"x": [1, 2], "ys": [3, 4], "y": 5}),
        (ir_flows.nested, {"x": 1}),
        (ir_flows.tasks, {"x": 1}),
        *[(group, {}) for group in ir_flows.groups],
    ]
    for flow, inputs in runs:
        back = Flow.from_ir(flow.to_ir(), flow.functions())
        with Host("memory:") as host:
            one, two = host.run(flow, inputs), host.run(back, inputs)
        assert one.status == two.status == "completed"
        assert dict(one) == dict(two)


def test_a_run_begun_by_the_written_flow_is_finished_by_the_read_one(tmp_path: Path) -> None:
    flow = ir_flows.shop
    with Host(f"sqlite:///{tmp_path}/runs.db", clock=ManualClock()) as host:
        begun = host.run(flow, {"x": 5}, run_id="r")
        assert begun.status == "halted"
        host.answer(begun.waits[0].id, {"street": "Elm"})
        ended = host.resume("r", Flow.from_ir(flow.to_ir(), flow.functions()))
        assert ended["address"] == Address("Elm")


def test_an_answer_may_be_described_by_a_json_schema() -> None:
    flow = Flow("q", [wait.question("shape", kind="text", answer_type={"type": "string", "maxLength": 5})])
    back = Flow.from_ir(flow.to_ir(), {})
    with Host("memory:") as host:
        halted = host.run(back, run_id="r")
        with pytest.raises(everstep.errors.AnswerInvalid):
            host.answer(halted.waits[0].id, "much too long")
        host.answer(halted.waits[0].id, "round")
        assert host.resume("r", back)["shape"] == "round"


def test_the_deepest_flow_that_can_be_built_can_be_written_and_read() -> None:
    flow = plain
    for _ in range(DEEPEST):
        flow = Flow("around", [flow.as_node(name="inside").lift("both")])
    assert_round_trip(flow)


def test_a_registry_serves_a_round_trip_with_nodes_probes_and_keys() -> None:
    def look_up(idempotency_key: str) -> None: ...
    def key_of(x: int) -> str:
        return f"pay-{x}"

    @node(output="paid", effects="effectful", idempotency_key=key_of, probe=look_up, identifier="pay:charge")
    def charge(x: int) -> int:
        return x

    flow = Flow("f", [charge])
    ir = flow.to_ir()
    registry = Registry()
    made = registry.node("pay:charge", charge)
    assert registry.find("pay:charge") is registry.get("pay:charge") is made
    for identifier, thing in flow.functions().items():
        if identifier != "pay:charge":
            registry.put(identifier, thing)
            assert identifier in registry
    again = Flow.from_ir(ir, registry)
    assert again.to_ir() == ir
    assert (again["charge"].probe, again["charge"].fn) == (look_up, charge.fn)
    with pytest.raises(BadRequest, match="output"):
        registry.node("pay:charge", charge, output="b")
