"""A quick test of a value is as strict as the slow one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep.codec.complaints import complaints
from everstep.codec.quick import quick_test
from everstep.graph.ir.check import Checker, Faults, schema
from tests.unit.graph.ir.ir_flows import EXAMPLES

SCHEMA = schema()
PARTS = {"nodes": "node", "edges": "edge", "control_surfaces": "control_surface"}
WANTED = {part: {"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]} for part, name in PARTS.items()}
ENTRIES = [
    (part, entry)
    for flow in EXAMPLES
    for part in PARTS
    for entry in flow.to_ir()[part]
    if not isinstance(entry, dict) or "flow" not in entry
]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()
    return [here, *(place for key in keys for place in places(value[key], (*here, key)))]


def test_all_that_is_written_passes_quickly() -> None:
    tests = {part: quick_test(wanted) for part, wanted in WANTED.items()}
    assert [entry for part, entry in ENTRIES if not tests[part](entry)] == []


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_passes_quickly_has_nothing_wrong(data: st.DataObject) -> None:
    part, entry = data.draw(st.sampled_from(ENTRIES))
    changed = {"": copy.deepcopy(entry)}
    *way, last = data.draw(st.sampled_from([("", *place) for place in places(entry)]))
    target: Any = changed
    for step in way:
        target = target[step]
    if isinstance(target, dict) and way and data.draw(st.booleans()):
        del target[last]
    else:
        target[last] = data.draw(ANYTHING | st.sampled_from(["inf", "node", "if", "", -1, 0, True, 1.5]))
    if quick_test(WANTED[part])(changed[""]):
        assert complaints(changed[""], WANTED[part]) == []


@pytest.mark.parametrize(
    "wanted",
    [
        *({"pattern": "x"}, {"type": "string", "maxLength": 1}, {"not": {}}, {"type": "text"}, False),
        *({"oneOf": [{}, {}]}, {"enum": [1.5]}, {"$ref": "#/properties/x"}, {"$ref": 3}, {"minimum": "1"}),
        *({"items": [{}]}, {"anyOf": {}}, {"properties": []}, {"type": []}),
    ],
)
def test_a_schema_that_is_not_understood_passes_nothing_quickly(wanted: Any) -> None:
    assert not quick_test(wanted)("ab")


def test_true_is_not_one_and_a_large_number_is_left_alone() -> None:
    assert not quick_test({"const": 1})(True)
    assert quick_test({"const": 1})(1)
    assert not quick_test({"type": "integer", "minimum": 1})(0)
    assert not quick_test({"type": "number"})(10**400)
    assert quick_test({"type": "integer", "minimum": 1})(10**400)


def test_what_is_deep_is_left_to_the_slow_look() -> None:
    deep: Any = "int"
    for _ in range(400):
        deep = {"union": [deep]}
    assert not quick_test({"$ref": "#/$defs/type", "$defs": SCHEMA["$defs"]})(deep)


def test_many_sound_entries_are_not_looked_at_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults()
    checker = Checker(faults)
    monkeypatch.setattr(Checker, "_note", lambda *given: pytest.fail("a slow look"))
    for part in PARTS:
        entries = json.loads(json.dumps([entry for of, entry in ENTRIES if of == part]))
        assert len(checker.sound({part: entries}, part, "$")) == len(entries)
