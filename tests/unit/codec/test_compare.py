"""What differs between two values, and how a path leads to it."""

from __future__ import annotations

import ast
import copy
import math
import re
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.codec.classes import Stored, as_stored
from everstep.codec.compare import Change, changes, compare, is_same
from everstep.codec.tags import Tag, Unreadable
from everstep.codec.values import Values


@dataclass
class Line:
    item: str
    price: object


class Spot(NamedTuple):
    x: int
    y: int


class Box(msgspec.Struct):
    items: list[int]


class Colour(Enum):
    RED = 1
    BLUE = 2


class Opaque:
    def __init__(self, text: str) -> None:
        self.text = text


VALUES = Values()


def found(before: object, after: object) -> list[tuple[str, str, Any, Any]]:
    return [(c.path, c.kind, c.before, c.after) for c in changes(VALUES, "v", before, after)]


def paths(before: object, after: object) -> list[tuple[str, str]]:
    return [(path, kind) for path, kind, _, _ in found(before, after)]


def test_a_path_goes_into_dicts_lists_and_fields() -> None:
    before = {"order": {"lines": [Line("tea", 1), Line("jam", 2)]}}
    after = {"order": {"lines": [Line("tea", 1), Line("jam", 3)]}}
    assert found(before, after) == [("v.order.lines[1].price", "changed", 2, 3)]


def test_growth_at_the_end_of_a_list_is_added_items_and_the_reverse_removed_ones() -> None:
    assert found([1], [1, 2, 3]) == [("v[1]", "added", None, 2), ("v[2]", "added", None, 3)]
    assert found([1, 2], [1]) == [("v[1]", "removed", 2, None)]


def test_keys_that_are_no_names_are_spelled_out() -> None:
    before, after = {"a b": 1, 7: 1, (1, 2): 1}, {"a b": 2, 7: 2, (1, 2): 2}
    assert paths(before, after) == [("v['a b']", "changed"), ("v[7]", "changed"), ("v[(1, 2)]", "changed")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, True),
        (1, 1.0),
        (0, False),
        (0.0, -0.0),
        ("1", b"1"),
        ([1], (1,)),
        ({1}, frozenset({1})),
        ({"a": 1}, OrderedDict(a=1)),
        (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
        (deque([1], 2), deque([1], 3)),
        (None, ...),
        (Colour.RED, Colour.BLUE),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)),
        (2**70, 2**70 + 1),
        (Spot(1, 2), (1, 2)),
    ],
)
def test_values_that_only_look_alike_differ_as_a_whole(before: object, after: object) -> None:
    assert paths(before, after) == [("v", "changed")]
    assert paths([before], [after]) == [("v[0]", "changed")]


@pytest.mark.parametrize(
    "value",
    [math.nan, [math.nan], {"a": 1, "b": 2}, {1, "a"}, Line("a", (1, {2})), Box([1]), Spot(1, 2), Colour.RED],
)
def test_a_value_equals_its_copy(value: object) -> None:
    assert found(value, copy.deepcopy(value)) == []


def test_the_order_in_which_a_dict_was_filled_is_no_difference() -> None:
    assert found({"a": 1, "b": {2: 1, 3: 1}}, {"b": {3: 1, 2: 1}, "a": 1}) == []


def test_a_key_that_changes_its_type_goes_and_comes() -> None:
    assert found({1: "x"}, {True: "x"}) == [("v[1]", "removed", "x", None), ("v[True]", "added", None, "x")]


def test_members_of_a_set_come_and_go() -> None:
    assert found({1, 2}, {2, True + 2}) == [("v{1}", "removed", 1, None), ("v{3}", "added", None, 3)]
    assert paths(frozenset({1}), frozenset({True})) == [("v{1}", "removed"), ("v{True}", "added")]


def test_two_nans_in_a_set_or_among_keys_stay_two() -> None:
    both = {float("nan"), float("nan")}
    assert paths(both, {float("nan")}) == [("v{nan}", "removed")]
    assert paths(dict.fromkeys(both, 1), dict.fromkeys({float("nan"), float("nan")}, 1)) == []


def test_named_tuples_structs_and_dataclasses_are_compared_by_their_fields() -> None:
    assert paths(Spot(1, 2), Spot(1, 3)) == [("v.y", "changed")]
    assert paths(Box([1]), Box([1, 2])) == [("v.items[1]", "added")]
    assert paths(Line("a", 1), Box([1])) == [("v", "changed")]


def test_instances_without_their_class_are_compared_by_their_stored_fields() -> None:
    before = Stored("shop:Line", {"item": "tea", "price": [1]})
    assert paths(before, Stored("shop:Line", {"item": "tea", "price": [1]})) == []
    assert paths(before, Stored("shop:Line", {"item": "tea", "price": [2]})) == [("v.price[0]", "changed")]
    assert paths(before, Stored("shop:Other", before.fields)) == [("v", "changed")]
    assert paths({before}, {Stored("shop:Line", {"item": "tea", "price": [1]})}) == []
    assert [kind for _, kind in paths({before}, {Stored("shop:Line", {})})] == ["removed", "added"]


def test_members_of_an_enum_without_its_class_differ_as_a_whole() -> None:
    red, blue = (as_stored(Tag.ENUM, ["shop:Colour", name]) for name in ("RED", "BLUE"))
    assert paths([red], [red, red]) == [("v[1]", "added")]
    assert paths([red], [as_stored(Tag.ENUM, ["shop:Colour", "RED"])]) == []
    assert paths([red], [blue]) == [("v[0]", "changed")]


def test_arrays_that_cannot_be_built_differ_by_their_summary() -> None:
    one, same, other = (as_stored(Tag.ARRAY, ["<i1", [2], "C", data]) for data in (b"ab", b"ab", b"ax"))
    assert found(one, same) == []
    [(path, kind, before, after)] = found(one, other)
    assert (path, kind) == ("v", "changed")
    assert before.fields["shape"] == after.fields["shape"] == [2]
    assert before.fields["digest"] != after.fields["digest"]


def test_numpy_arrays_differ_as_a_whole_and_are_shown_by_their_summary() -> None:
    np = pytest.importorskip("numpy")
    assert found(np.arange(3), np.arange(3)) == []
    [(path, kind, before, after)] = found({"a": np.arange(3)}, {"a": np.array([0, 1, 5])})
    assert (path, kind) == ("v.a", "changed")
    assert before.fields.keys() == {"dtype", "shape", "digest"}
    assert before.fields["digest"] != after.fields["digest"]
    assert found(np.int64(1), np.int64(2)) == [("v", "changed", np.int64(1), np.int64(2))]


def test_a_registered_class_is_compared_by_what_its_serializer_says() -> None:
    values = Values()
    values.register(Opaque, name="opaque", encode=lambda o: o.text, decode=Opaque)
    assert is_same(values, Opaque("a"), Opaque("a"))
    assert not is_same(values, Opaque("a"), Opaque("b"))


def test_values_nested_to_the_limit_are_compared() -> None:
    def nested(core: object) -> object:
        for _ in range(490):
            core = [core]
        return core

    assert paths(nested(1), nested(1)) == []
    assert paths(nested(1), nested(2)) == [("v" + "[0]" * 490, "changed")]


def test_what_cannot_be_read_differs_and_is_said_to_be_unknown() -> None:
    pair = compare(VALUES, "v", Unreadable("damaged"), 1)
    assert pair.is_equal is None
    assert [c.kind for c in pair.changes] == ["changed"]
    assert repr(pair.before) == "<unreadable: damaged>"


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=3)
)
KEYS = st.text("ab _1'\"[]", max_size=3) | st.integers(-3, 3) | st.booleans()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


SIMILAR = st.recursive(
    st.integers(0, 2) | st.booleans() | st.sampled_from([0.0, 1.0, math.nan]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", 0, 1]), inner),
    max_leaves=8,
)
PAIRS = st.tuples(PLAIN, PLAIN) | st.tuples(SIMILAR, SIMILAR)


@given(PLAIN)
def test_a_value_does_not_differ_from_itself_or_a_copy(value: object) -> None:
    assert found(value, value) == []
    assert found(value, copy.deepcopy(value)) == []


@given(PAIRS)
def test_the_changes_lead_from_before_to_after(pair: tuple[object, object]) -> None:
    before, after = pair
    applied = apply(copy.deepcopy(before), list(changes(VALUES, "v", before, after)))
    assert VALUES.canonical(applied) == VALUES.canonical(after)


@given(PAIRS)
def test_swapped_sides_swap_the_kinds(pair: tuple[object, object]) -> None:
    before, after = pair
    swapped = {"added": "removed", "removed": "added", "changed": "changed"}
    there = sorted((path, swapped[kind]) for path, kind in paths(before, after))
    assert there == sorted(paths(after, before))


@given(PAIRS)
def test_values_are_the_same_exactly_if_their_canonical_bytes_are(pair: tuple[object, object]) -> None:
    before, after = pair
    assert is_same(VALUES, before, after) == (VALUES.canonical(before) == VALUES.canonical(after))


STEP = re.compile(r"\.(\w+)|\[((?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\]'\"])*)\]")


def apply(value: Any, found: list[Change]) -> Any:
    """Do what the changes say, by nothing but their paths; the last items of a list go first."""
    top = {"v": value}
    gone = [c for c in reversed(found) if c.kind == "removed"]
    for change in [*gone, *(c for c in found if c.kind != "removed")]:
        steps: list[Any] = ["v"]
        for name, key in STEP.findall(change.path[1:]):
            steps.append(name or ast.literal_eval(key))
        place: Any = top
        for step in steps[:-1]:
            place = place[step]
        if change.kind == "removed":
            del place[steps[-1]]
        elif change.kind == "added" and isinstance(place, list):
            assert steps[-1] == len(place)
            place.append(change.after)
        else:
            place[steps[-1]] = change.after
    return top["v"]
