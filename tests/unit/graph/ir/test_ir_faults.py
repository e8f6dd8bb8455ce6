"""What is wrong with an IR is said all at once, each with its place."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep import Flow
from everstep.errors import BadRequest, IrInvalid
from everstep.graph.ir.check import schema
from tests.unit.graph.ir import ir_flows
from tests.unit.graph.ir.ir_flows import EXAMPLES, add, plain

VALIDATOR = jsonschema_rs.Draft202012Validator(schema())


def problems(error: IrInvalid) -> list[dict[str, str]]:
    found: Any = error.details["problems"]
    return list(found)


def faults_of(ir: Any, registry: Any) -> list[tuple[str, str]]:
    with pytest.raises(IrInvalid) as caught:
        Flow.from_ir(ir, registry)
    assert caught.value.code == "ir.invalid"
    for p in problems(caught.value):
        assert p["path"] in str(caught.value)
        assert p["message"] in str(caught.value)
    return [(p["code"], p["path"]) for p in problems(caught.value)]


def changed(flow: Flow, path: str, value: Any) -> dict[str, Any]:
    """Return the IR of a flow with one thing changed; `...` removes it."""
    ir = flow.to_ir()
    steps: list[Any] = [int(s) if s.isdigit() else s for s in path.split(".")]
    target: Any = ir
    for step in steps[:-1]:
        target = target[step]
    if value is ...:
        del target[steps[-1]]
    else:
        target[steps[-1]] = value
    return ir


SHAPES: list[tuple[Flow, str, Any, str]] = [
    (plain, "name", ..., "$.name"),
    (plain, "name", 3, "$.name"),
    (plain, "nodes", ..., "$.nodes"),
    (plain, "nodes", {}, "$.nodes"),
    (plain, "nodes.0", "add", "$.nodes[0]"),
    (plain, "ir_version", 2, "$.ir_version"),
    (plain, "version", 1, "$.version"),
    (plain, "entry", "add", "$.entry"),
    (plain, "nodes.1.alias", ..., "$.nodes[1].alias"),
    (plain, "nodes.1.alias", "", "$.nodes[1].alias"),
    (plain, "nodes.1.kind", "thing", "$.nodes[1].kind"),
    (plain, "nodes.1.effects", "some", "$.nodes[1].effects"),
    (plain, "nodes.1.determinism", None, "$.nodes[1].determinism"),
    (plain, "nodes.1.persist", "maybe", "$.nodes[1].persist"),
    (plain, "nodes.1.skip_on_resume", 1, "$.nodes[1].skip_on_resume"),
    (plain, "nodes.1.outputs", "low", "$.nodes[1].outputs"),
    (plain, "nodes.1.inputs.0.name", ..., "$.nodes[1].inputs[0].name"),
    (plain, "nodes.1.max_visits", 0, "$.nodes[1].max_visits"),
    (plain, "nodes.1.timeout_s", "soon", "$.nodes[1].timeout_s"),
    (plain, "nodes.1.durability", {"halts": "no"}, "$.nodes[1].durability.halts"),
    (plain, "nodes.1.idempotency", "auto", "$.nodes[1].idempotency"),
    (plain, "nodes.1.retry", {"first_s": 1}, "$.nodes[1].retry.times"),
    (plain, "nodes.1.answer", {"typ": "int"}, "$.nodes[1].answer.type"),
    (plain, "edges.0.to", ..., "$.edges[0].to"),
    (plain, "edges.0.value", 7, "$.edges[0].value"),
    (plain, "policies.durability", "weak", "$.policies.durability"),
    (plain, "policies.durability", {"mode": "weak"}, "$.policies.durability.mode"),
    (plain, "policies.limits.max_steps", 0, "$.policies.limits.max_steps"),
    (plain, "policies.auto_checkpoint", -1, "$.policies.auto_checkpoint"),
    (ir_flows.tasks, "channel.n", 3, "$.channel.n"),
    (ir_flows.tasks, "channel.n", {"union": []}, "$.channel.n.union"),
    (ir_flows.loop, "control_surfaces.0.kind", "window", "$.control_surfaces[0].kind"),
    (ir_flows.loop, "control_surfaces.0.kind", ..., "$.control_surfaces[0].kind"),
    (ir_flows.loop, "control_surfaces.0.targets", "again", "$.control_surfaces[0].targets"),
    (ir_flows.shop, "control_surfaces.0.then", ..., "$.control_surfaces[0].then"),
    (ir_flows.maps, "control_surfaces.0.mode", "each", "$.control_surfaces[0].mode"),
    (ir_flows.maps, "control_surfaces.0.over", [], "$.control_surfaces[0].over"),
    (ir_flows.groups[1], "control_surfaces.0.members.0.last", ..., "$.control_surfaces[0].members[0].last"),
    (ir_flows.groups[1], "control_surfaces.0.policy.kind", "lax", "$.control_surfaces[0].policy.kind"),
    (ir_flows.waits, "nodes.1.arguments.duration", "P2D", "$.nodes[1].arguments.duration"),
    (ir_flows.nested, "nodes.0.flow.name", ..., "$.nodes[0].flow.name"),
    (ir_flows.nested, "nodes.0.flow.nodes.0.alias", 1, "$.nodes[0].flow.nodes[0].alias"),
    (ir_flows.nested, "nodes.0.nesting.durability", "loose", "$.nodes[0].nesting.durability"),
]


@pytest.mark.parametrize(
    ("flow", "path", "value", "at"), SHAPES, ids=lambda p: p if isinstance(p, str) else None
)
def test_a_broken_ir_is_refused_where_it_is_broken(flow: Flow, path: str, value: Any, at: str) -> None:
    ir = changed(flow, path, value)
    assert ("ir.shape", at) in faults_of(ir, flow.functions())
    assert not VALIDATOR.is_valid(ir)


MEANINGS: list[tuple[Flow, str, Any, str, str]] = [
    (plain, "nodes.0.identifier", ..., "ir.shape", "$.nodes[0].identifier"),
    (plain, "nodes.0.identifier", "unknown:add", "ir.missing", "$.nodes[0].identifier"),
    (plain, "nodes.0.identifier", "std.nothing", "ir.missing", "$.nodes[0].identifier"),
    (plain, "nodes.0.flow", {"name": "f", "nodes": []}, "ir.contradiction", "$.nodes[0].flow"),
    (plain, "nodes.0.inputs.0.name", "z", "ir.contradiction", "$.nodes[0].inputs[0]"),
    (plain, "nodes.0.inputs.1.name", "x", "ir.contradiction", "$.nodes[0].inputs[1]"),
    (plain, "nodes.0.inputs.0.required", False, "ir.contradiction", "$.nodes[0].inputs[0].required"),
    (plain, "nodes.0.inputs", [], "ir.contradiction", "$.nodes[0].inputs"),
    (plain, "nodes.0.timeout_s", -1, "ir.bad_value", "$.nodes[0]"),
    (plain, "nodes.0.retry", {"times": 1, "on": ["int"]}, "ir.bad_value", "$.nodes[0].retry"),
    (plain, "nodes.0.retry", {"times": 1, "on": ["no:Error"]}, "ir.missing", "$.nodes[0].retry.on[0]"),
    (plain, "nodes.0.idempotency", {"function": "no:key"}, "ir.missing", "$.nodes[0].idempotency.function"),
    (
        plain,
        "nodes.0.answer",
        {"type": {"generic": "int", "args": ["str"]}},
        "ir.bad_value",
        "$.nodes[0].answer",
    ),
    (plain, "nodes.0.outputs", ["a b"], "flow.bad_output", "$"),
    (plain, "name", "a/b", "flow.bad_name", "$"),
    (plain, "nodes.0.probe", "no:probe", "ir.missing", "$.nodes[0].probe"),
    (plain, "nodes.0.on_unknown", "stop", "ir.bad_value", "$.nodes[0]"),
    (plain, "entry", ["nowhere"], "flow.unknown_entry", "$"),
    (plain, "tasks", ["nowhere"], "ir.unknown_node", "$.tasks[0]"),
    (plain, "edges.0.from", "nowhere", "ir.unknown_node", "$.edges[0].from"),
    (plain, "edges.0.to", "nowhere", "ir.unknown_node", "$.edges[0].to"),
    (plain, "edges.0.value", "low", "ir.contradiction", "$.edges[0]"),
    (plain, "policies.durability", {"mode": "off", "flush": "before_effects"}, "ir.bad_value", "$"),
    (plain, "policies.durability", {"lease_ttl": "soon"}, "ir.bad_value", "$"),
    (ir_flows.tasks, "channel.where", "no:Class", "ir.missing", "$.channel.where"),
    (ir_flows.shop, "control_surfaces.0.then", "nowhere", "flow.unknown_target", "$"),
    (ir_flows.shop, "control_surfaces.0.node", "nowhere", "ir.unknown_node", "$.control_surfaces[0].node"),
    (ir_flows.maps, "control_surfaces.0.over", ["z"], "ir.bad_value", "$.control_surfaces[0]"),
    (ir_flows.maps, "control_surfaces.1.node", "add", "ir.contradiction", "$.control_surfaces[1]"),
    (ir_flows.groups[1], "control_surfaces", [], "ir.contradiction", "$.nodes[3]"),
    (ir_flows.groups[1], "nodes.3.identifier", "x", "ir.contradiction", "$.nodes[3]"),
    (ir_flows.groups[1], "edges.0.to", "meet", "ir.contradiction", "$.control_surfaces[0].members[0].last"),
    (ir_flows.groups[1], "tasks", ["join_left_right"], "ir.unknown_node", "$.tasks[0]"),
    (
        *(ir_flows.groups[1], "control_surfaces.0.members.0.nodes", ["nowhere"]),
        *("ir.unknown_node", "$.control_surfaces[0].members[0]"),
    ),
    (
        ir_flows.groups[2],
        "control_surfaces.0.policy.names",
        ["unknown"],
        "ir.bad_value",
        "$.control_surfaces[0]",
    ),
    (ir_flows.groups[3], "control_surfaces.0.policy.count", 4, "ir.bad_value", "$.control_surfaces[0]"),
    (
        ir_flows.groups[7],
        "control_surfaces.0.policy.function",
        ...,
        "ir.contradiction",
        "$.control_surfaces[0].policy",
    ),
    (
        *(ir_flows.groups[7], "control_surfaces.0.policy.function", "no:rule"),
        *("ir.missing", "$.control_surfaces[0].policy.function"),
    ),
    (
        ir_flows.waits,
        "nodes.1.arguments.until",
        {"literal": "2030-01-01T00:00:00Z"},
        "ir.bad_value",
        "$.nodes[1]",
    ),
    (ir_flows.waits, "nodes.1.arguments.duration", ..., "ir.bad_value", "$.nodes[1]"),
    (ir_flows.waits, "nodes.1.arguments.size", {"literal": 1}, "ir.shape", "$.nodes[1].arguments.size"),
    (ir_flows.waits, "nodes.1.inputs.0.source", "x", "ir.contradiction", "$.nodes[1].inputs[0].source"),
    (ir_flows.waits, "nodes.1.durability.halts", False, "ir.contradiction", "$.nodes[1].durability.halts"),
    (ir_flows.waits, "nodes.4.idempotency", None, "ir.contradiction", "$.nodes[4].idempotency"),
    (plain, "policies.rules", ["no:rule"], "ir.missing", "$.policies.rules[0]"),
    (ir_flows.waits, "nodes.1.retry", {"times": 3}, "ir.contradiction", "$.nodes[1].retry"),
    (
        ir_flows.waits,
        "nodes.2.arguments.scheduler.literal",
        3,
        "ir.bad_value",
        "$.nodes[2].arguments.scheduler",
    ),
    (ir_flows.waits, "nodes.4.arguments.notify.literal", [3], "ir.bad_value", "$.nodes[4].arguments.notify"),
    (ir_flows.waits, "nodes.1.outputs", ["a", "b"], "ir.contradiction", "$.nodes[1].outputs"),
    (ir_flows.waits, "nodes.1.answer", {"type": "int"}, "ir.contradiction", "$.nodes[1].answer"),
    (
        ir_flows.waits,
        "nodes.2.arguments.payload",
        {"identifier": "no"},
        "ir.missing",
        "$.nodes[2].arguments.payload",
    ),
    (ir_flows.waits, "nodes.6.arguments.default", {"literal": "pink"}, "ir.bad_value", "$.nodes[6]"),
    (ir_flows.nested, "nodes.0.outputs", ["sum"], "ir.contradiction", "$.nodes[0].outputs"),
    (ir_flows.nested, "nodes.0.nesting.exports.0.from", "none", "ir.bad_value", "$.nodes[0]"),
    (ir_flows.nested, "nodes.0.flow", ..., "ir.missing", "$.nodes[0].identifier"),
    (ir_flows.nested, "nodes.0.persist", "no", "ir.contradiction", "$.nodes[0].persist"),
    (ir_flows.nested, "nodes.0.flow.entry", ["no"], "flow.unknown_entry", "$.nodes[0].flow"),
    (
        ir_flows.nested,
        "nodes.2.flow.nodes.0.identifier",
        "no:f",
        "ir.missing",
        "$.nodes[2].flow.nodes[0].identifier",
    ),
]


@pytest.mark.parametrize(
    ("flow", "path", "value", "code", "at"), MEANINGS, ids=lambda p: p if isinstance(p, str) else None
)
def test_an_ir_that_cannot_be_meant_is_refused_where_it_is_wrong(
    flow: Flow, path: str, value: Any, code: str, at: str
) -> None:
    assert (code, at) in faults_of(changed(flow, path, value), flow.functions())


def test_what_is_wrong_with_the_flow_itself_is_said_too() -> None:
    twice = [{"alias": "add", "identifier": "add"}] * 2
    assert faults_of({"name": "f", "nodes": twice}, {"add": add}) == [("flow.duplicate_name", "$")]
    assert faults_of({"name": "f", "nodes": []}, {}) == [("flow.empty", "$")]


@pytest.mark.parametrize("flow", EXAMPLES, ids=lambda f: f.name)
def test_everything_that_is_missing_is_named_at_once(flow: Flow) -> None:
    text = json.dumps(flow.to_ir())
    for name in flow.functions():
        text = text.replace(json.dumps(name), json.dumps(f"gone/{name}"))
    if not flow.functions():
        return
    with pytest.raises(IrInvalid) as caught:
        Flow.from_ir(json.loads(text), {})
    for name in flow.functions():
        assert f"gone/{name}" in str(caught.value)


def test_faults_of_every_kind_are_found_at_once() -> None:
    ir = ir_flows.nested.to_ir()
    ir["nodes"][0]["flow"]["nodes"][0]["kind"] = "odd"
    ir["nodes"][1]["flow"]["nodes"][0]["identifier"] = "no:function"
    ir["nodes"][2]["effects"] = "odd"
    ir["edges"][0]["to"] = "nowhere"
    ir["control_surfaces"].append({"kind": "rate_limit", "node": "plain"})
    assert {at for _, at in faults_of(ir, ir_flows.nested.functions())} >= {
        "$.nodes[0].flow.nodes[0].kind",
        "$.nodes[1].flow.nodes[0].identifier",
        "$.nodes[2].effects",
        "$.edges[0].to",
        "$.control_surfaces[0].kind",
    }


@pytest.mark.parametrize("ir", [None, [], "flow", 3, {"name": object()}, {"name": float("nan")}, {}])
def test_what_is_no_ir_at_all_is_refused(ir: Any) -> None:
    assert faults_of(ir, {})[0][0] == "ir.shape"


def test_an_ir_that_is_too_deep_is_refused() -> None:
    ir: dict[str, Any] = plain.to_ir()
    for _ in range(60):
        ir = {"name": "f", "nodes": [{"alias": "inner", "kind": "subflow", "flow": ir}]}
    assert faults_of(ir, plain.functions())[0][0] == "ir.shape"
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert faults_of(plain.to_ir() | {"x": deep}, plain.functions()) == [("ir.shape", "$")]


@pytest.mark.parametrize("thing", [int, 3, "add", plain.as_node(), max, ir_flows.waits["pause"]])
def test_a_registry_that_has_no_function_is_told_so(thing: Any) -> None:
    assert faults_of(plain.to_ir(), plain.functions() | {"tests.unit.graph.ir.ir_flows:add": thing})


@pytest.mark.parametrize("registry", [None, [], 3, "add"])
def test_what_is_no_registry_is_refused(registry: Any) -> None:
    with pytest.raises(BadRequest, match="no registry"):
        Flow.from_ir(plain.to_ir(), registry)


@pytest.mark.parametrize(
    ("field", "value"), [("timeout_s", "nan"), ("retry", {"times": 1, "first_s": "nan"}), ("timeout_s", 0)]
)
def test_a_span_that_is_none_is_refused(field: str, value: Any) -> None:
    [(code, path)] = faults_of(changed(plain, f"nodes.0.{field}", value), plain.functions())
    assert (code, path.removesuffix(f".{field}")) == ("ir.bad_value", "$.nodes[0]")


# -- from an attacker --------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["identifier", "probe"])
def test_no_function_is_found_by_its_name_and_no_module_is_loaded(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never_loaded.py").write_text("class X: ...")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("os:system", "never_loaded:X", "builtins:eval"):
        ir = changed(plain, f"nodes.0.{field}", name)
        ir["nodes"][0]["effects"] = "effectful"
        assert faults_of(ir, plain.functions()) == [("ir.missing", f"$.nodes[0].{field}")]
    assert faults_of(changed(plain, "channel", {"a": "never_loaded:X"}), plain.functions())
    assert "never_loaded" not in sys.modules


@pytest.mark.parametrize(
    "hint",
    [
        {"generic": "enum:Enum", "args": ["int"]},
        {"generic": "signal:Signals", "args": ["any"]},
        {"generic": "int", "args": ["int"]},
        {"generic": "...", "args": ["int"]},
        {"generic": "builtins:dict", "args": [{"generic": "int", "args": ["int"]}]},
        "builtins:eval",
    ],
)
def test_only_types_are_types(hint: Any) -> None:
    [(_, path)] = faults_of(changed(plain, "channel", {"a": hint}), plain.functions())
    assert path == "$.channel.a"


def test_a_circle_is_no_ir() -> None:
    ir: dict[str, Any] = {"name": "x", "nodes": []}
    ir["nodes"].append({"alias": "a", "kind": "subflow", "flow": ir})
    assert faults_of(ir, {}) == [("ir.shape", "$")]


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to everything inside a JSON value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*path, key)
        yield from places_in(part, (*path, key))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS
    | st.sampled_from(["add", "x", "total", "int", "PT1S", "@end", "std.join", "std.timer.wait", 10**400]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(flow=st.sampled_from(EXAMPLES), data=st.data())
def test_whatever_is_changed_is_either_a_flow_or_refused(flow: Flow, data: st.DataObject) -> None:
    ir = flow.to_ir()
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(places_in(ir))
        *path, last = data.draw(st.sampled_from(places))
        target: Any = ir
        for step in path:
            target = target[step]
        twin: Any = ir
        for step in data.draw(st.sampled_from(places)):
            twin = twin[step]
        target[last] = data.draw(ANYTHING | st.just(json.loads(json.dumps(twin))))
    try:
        back = Flow.from_ir(ir, flow.functions())
    except IrInvalid as error:
        assert problems(error)
        return
    assert VALIDATOR.is_valid(ir)
    assert Flow.from_ir(back.to_ir(), flow.functions()).to_ir() == back.to_ir()
