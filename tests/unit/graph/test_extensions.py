"""What front ends keep with nodes: one field by namespace, hashed, written, and read in old words too."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from everstep import Flow, node
from everstep.errors import IrInvalid
from everstep.graph.author.extension import EXTENSIONS, PLAIN
from everstep.graph.compile.blueprint import plan_of
from everstep.phases import Phase, ScoredGate, phases


def discover(topic: str) -> dict[str, Any]:
    return {}


def score(discovery: dict[str, Any]) -> float:
    return 1.0


def process() -> Flow:
    return phases("p", [Phase("discovery", discover, number=1, gate=ScoredGate(score))])


def in_old_words(ir: dict[str, Any]) -> dict[str, Any]:
    """Return an IR of phases as 0.1.0 wrote it."""
    old = copy.deepcopy(ir)
    for entry in old["nodes"]:
        number, name, role = entry.pop("extension")["phase"]
        entry["phase"] = {"number": number, "name": name, "role": role}
    return old


@node(output="y")
def work(x: int) -> int:
    return x


def extended(extension: dict[str, Any]) -> dict[str, Any]:
    """Return the IR of a flow whose node has an extension."""
    ir = Flow("f", [work]).to_ir()
    ir["nodes"][0]["extension"] = extension
    return ir


def test_a_place_among_phases_is_an_extension() -> None:
    assert process().to_ir()["nodes"][0]["extension"] == {"phase": ["1", "discovery", "phase"]}


def test_the_old_spelling_is_read_and_hashes_as_before() -> None:
    flow = process()
    old = in_old_words(flow.to_ir())
    again = Flow.from_ir(old, flow.functions())
    assert again.plan.hash == flow.plan.hash == "eec758d88e30d0b570cce611ece3333e"
    assert [n.extension for n in again.nodes] == [n.extension for n in flow.nodes]


def test_a_process_that_was_read_back_tells_of_its_phases() -> None:
    flow = process()
    assert Flow.from_ir(flow.to_ir(), flow.functions()).extension is EXTENSIONS.of(flow.nodes) is not PLAIN


@pytest.mark.parametrize("said", [["1", "discovery"], ["one", "a", "gate"], ["1", "a", "chair"], "gate", {}])
def test_what_is_no_place_among_phases_is_refused(said: Any) -> None:
    with pytest.raises(IrInvalid, match="its place among phases"):
        Flow.from_ir(extended({"phase": said}), {"tests.unit.graph.test_extensions:work": work})


def test_data_of_an_unknown_front_end_is_kept_hashed_and_written() -> None:
    ir = extended({"sketch": {"x": 1}, "a": 1})
    flow = Flow.from_ir(ir, Flow("f", [work]).functions())
    assert flow.extension is PLAIN
    assert flow.to_ir()["nodes"][0]["extension"] == {"sketch": {"x": 1}, "a": 1}
    assert flow.plan.hash != Flow("f", [work]).plan.hash
    assert plan_of(flow.plan.blueprint).nodes[0].extension == {"sketch": {"x": 1}, "a": 1}
    assert plan_of(flow.plan.blueprint).hash == flow.plan.hash


def test_a_namespace_cannot_be_the_name_of_a_field() -> None:
    with pytest.raises(IrInvalid, match="'outputs' is a field of every node"):
        Flow.from_ir(extended({"outputs": []}), Flow("f", [work]).functions())
