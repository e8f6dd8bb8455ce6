"""The published schema of the Flow IR says all that is written, and ids and hashes never change."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import subprocess
import sys
import textwrap
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema_rs
import pytest

from everstep import Durability, Flow, Retry, node
from everstep.graph.author.flow_options import FLOW_OPTIONS, FlowOptions
from everstep.graph.author.node import NodeKeywords
from everstep.graph.author.node_options import NODE_OPTIONS, NodeOptions, OnUnknown
from everstep.graph.author.wiring import JoinKind, PolicyKind
from everstep.graph.ir.check import schema
from everstep.model import enums
from tests.unit.graph.ir.ir_flows import EXAMPLES, plain

SCHEMA = schema()


def test_the_schema_is_a_schema() -> None:
    jsonschema_rs.meta.validate(SCHEMA)


def test_every_option_of_a_node_is_in_the_ir() -> None:
    of_the_node = {"name": "alias", "output": "outputs", "inputs": "inputs", "identifier": "identifier"}
    for option, spec in NODE_OPTIONS.items():
        said = SCHEMA["$defs"]["node"]
        for part in (spec.ir or of_the_node[option]).split("."):
            said = said["properties"][part]
        if spec.schema is not None:
            assert {k: v for k, v in said.items() if k != "description"} == spec.schema, option
    inside = [spec.ir.partition(".")[2] for spec in NODE_OPTIONS.values() if "." in spec.ir]
    assert list(SCHEMA["$defs"]["node"]["properties"]["durability"]["properties"]) == inside


def test_the_signature_that_editors_see_is_that_of_the_options() -> None:
    shown = inspect.signature(typing.get_overloads(node)[1]).parameters
    assert set(shown) == set(NODE_OPTIONS)
    assert {name: of.annotation for name, of in shown.items()} == {
        name: hint.__forward_arg__ for name, hint in NodeKeywords.__annotations__.items()
    }
    unsaid = NodeOptions.of("f", {})
    for option, parameter in shown.items():
        kept = getattr(NodeOptions.of("f", {option: parameter.default}), option)
        assert repr(kept) == repr(getattr(unsaid, option)), option


def test_every_option_of_a_flow_is_in_the_ir() -> None:
    in_the_nodes = {"registry", "profiles"}
    of_the_code = {"migrations", "starts", "schedules"}  # what older runs do, other flows, and other runs
    assert {option for option, spec in FLOW_OPTIONS.items() if not spec.ir} == in_the_nodes | of_the_code
    for option, spec in FLOW_OPTIONS.items():
        said: dict[str, Any] = SCHEMA
        for part in spec.ir.split(".") if spec.ir else ():
            said = said["properties"][part]
        if spec.schema is not None:
            default = {"default": getattr(FlowOptions(), option)} if "default" in said else {}
            assert {k: v for k, v in said.items() if k != "description"} == {**spec.schema, **default}, option


def test_the_signature_of_a_flow_is_that_of_its_options() -> None:
    shown = dict(inspect.signature(Flow).parameters)
    del shown["name"], shown["nodes"]
    assert set(shown) == set(FLOW_OPTIONS)
    assert FlowOptions.of("f", **{option: given.default for option, given in shown.items()}) == FlowOptions()


def test_every_choice_is_in_the_schema() -> None:
    node_fields, policy = (
        SCHEMA["$defs"]["node"]["properties"],
        SCHEMA["$defs"]["durability"]["anyOf"][1]["properties"],
    )
    literals = typing.get_type_hints(Durability.__init__)
    surfaces = SCHEMA["$defs"]
    pairs: list[tuple[dict[str, Any], Iterable[str]]] = [
        (node_fields["effects"], enums.Effects),
        (node_fields["determinism"], enums.Determinism),
        (node_fields["persist"], enums.Persist),
        (node_fields["on_unknown"], typing.get_args(OnUnknown)),
        (policy["mode"], enums.Mode),
        (policy["flush"], enums.Flush),
        (policy["on_store_failure"], typing.get_args(literals["on_store_failure"])),
        (surfaces["for_each"]["properties"]["on_error"], enums.OnError),
        (surfaces["join"]["properties"]["join"]["properties"]["kind"], typing.get_args(JoinKind)),
        (surfaces["join"]["properties"]["policy"]["properties"]["kind"], typing.get_args(PolicyKind)),
    ]
    for field, choices in pairs:
        assert set(field["enum"]) == set(choices)


def test_every_field_of_durability_and_retry_is_in_the_ir() -> None:
    renamed = {"interval": "checkpoint_interval", "blob_threshold": "blob_threshold_bytes"}
    known = SCHEMA["$defs"]["durability"]["anyOf"][1]["properties"].keys()
    assert {renamed.get(f.name, f.name) for f in dataclasses.fields(Durability)} == known
    known = {name.removesuffix("_s") for name in SCHEMA["$defs"]["node"]["properties"]["retry"]["properties"]}
    assert set(Retry.__slots__) == known


def fields_in(ir: Any, wanted: Any) -> Iterator[str]:
    """Yield each field of an IR that its schema does not describe."""
    if not isinstance(wanted, dict):
        return
    if "$ref" in wanted:
        ref = wanted["$ref"].removeprefix("#/$defs/")
        wanted = SCHEMA if ref == "#" else SCHEMA["$defs"][ref]
    for choice in (*wanted.get("anyOf", ()), *wanted.get("oneOf", ())):
        if jsonschema_rs.is_valid({**choice, "$defs": SCHEMA["$defs"]}, ir):
            yield from fields_in(ir, choice)
            return
    if isinstance(ir, list):
        for item in ir:
            yield from fields_in(item, wanted.get("items"))
    elif isinstance(ir, dict) and "properties" in wanted:
        for name, value in ir.items():
            if name not in wanted["properties"]:
                yield name
            yield from fields_in(value, wanted["properties"].get(name))


@pytest.mark.parametrize("flow", EXAMPLES, ids=lambda f: f.name)
def test_every_field_that_is_written_is_in_the_schema(flow: Flow) -> None:
    assert list(fields_in(flow.to_ir(), SCHEMA)) == []


# Written down, not worked out: another Python, another process, another year must say the same.
STABLE = {
    "plain": ("594a9f68-9c57-51c2-af01-2ba57723d2b0", "703ed0af999d10b9b3614377677f923b"),
    "shop": ("18c5088c-2f99-5453-8bec-f4a7ac999095", "3dfa752c2eb85a6eb0426728dfe39cd6"),
    "loop": ("91d2cc8d-ecb4-5ff0-adfb-ce4128211f3b", "81b42a679ada3ab02df2115a530b2d4e"),
    "tasks": ("df2cc558-4a54-5886-b847-71e2d65247ec", "cfd1994dab93fc6daaa511dc91ddd7d4"),
    "strict": ("fadf002e-1eba-5560-8faa-e4815ff7712f", "45252cd87215a9c3e5073f5316840fad"),
    "bears": ("7a4322de-690f-58fe-8ba6-364f8fa26e92", "794be3df0fc467a7c492e2d84d2ffbfc"),
    "critical": ("516b7551-ad90-5c01-8c74-7c8198e8d6e6", "ff08eb254956d0acd20e639e1f200337"),
    "two": ("fe48a745-eb3b-5ffb-81f3-4d78338e91f1", "754d19580e25ade374d47c5431eb2ba4"),
    "any": ("ae44e74d-8adf-5d8f-8352-dd92d7bc169d", "80b41128ce792166967aeb73e109d026"),
    "quorum": ("922a80f4-5b7f-50e7-9f12-7991630aac68", "2703e1f616759ca47dabb7e0a4f49bbf"),
    "first": ("61c1cff8-d02c-53b9-922c-f848398602c0", "ea3d788cb6e2e6ab948f1998b9fda725"),
    "rule": ("12c7c205-d1ac-5633-bd15-92ac08d45d1c", "48843a61fc3d406266e4ed6334c96a3e"),
    "inside": ("08f416ee-8a30-521a-bcdb-49c469229bd7", "8895da802d92b90d8804ec1ea2195be0"),
    "nested": ("843025ee-e807-5db7-92a9-183be8cfa385", "853eff0d16f655994785b06e459978d7"),
    "maps": ("2ccb9642-8634-5420-887f-939052fce4ab", "dbcca68f74a90879b085d1b5a57c979e"),
    "waits": ("8c02000c-0b14-57a1-82a2-524b09656d54", "d7c038ea8f42a3f389e86f30db575acc"),
}


@pytest.mark.parametrize("flow", EXAMPLES, ids=lambda f: f.name)
def test_ids_and_hashes_are_what_they_always_were(flow: Flow) -> None:
    ir = flow.to_ir()
    assert (ir["id"], ir["metadata"]["structure"]) == STABLE[flow.name]
    assert flow.plan.hash == ir["metadata"]["structure"]


def test_ids_of_nodes_are_what_they_always_were() -> None:
    assert [n["id"] for n in plain.to_ir()["nodes"]] == [
        "f39e7175-ca50-5b63-a51c-3826f8ecaa07",
        "e88fd79b-dda4-5e97-aa26-07b4f7fcd464",
        "f3b019ff-764b-57d3-bdbe-6205467521dd",
    ]


@pytest.mark.parametrize("seed", ["0", "1"])
def test_another_process_writes_the_same(seed: str) -> None:
    code = """
        import hashlib, json
        from tests.unit.graph.ir.ir_flows import EXAMPLES
        print(hashlib.sha256(json.dumps([f.to_ir() for f in EXAMPLES]).encode()).hexdigest())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=True,
        capture_output=True,
        text=True,
    )
    mine = hashlib.sha256(json.dumps([f.to_ir() for f in EXAMPLES]).encode()).hexdigest()
    assert done.stdout.strip() == mine
