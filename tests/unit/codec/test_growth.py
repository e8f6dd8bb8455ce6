"""Appending costs what was appended, and an old item that was changed is never missed."""

from __future__ import annotations

import math
from collections import OrderedDict
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.codec.growth import Shadow

ROWS = [{"role": "user", "i": k, "text": "x"} for k in range(3)]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, -0.0, 1.0, -1.0])
    | st.text(max_size=2)
)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=2), v, max_size=3)
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))


def sorted_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: sorted_keys(value[k]) for k in sorted(value)}
    return [sorted_keys(v) for v in value] if isinstance(value, list) else value


def test_what_was_appended_is_told() -> None:
    items: list[Any] = [dict(row) for row in ROWS]
    shadow = Shadow(items)
    items.append({"role": "tool", "i": 9, "text": "y"})
    assert shadow.appended(items) == items[3:]


def test_nothing_appended_is_an_empty_growth() -> None:
    assert Shadow(ROWS).appended(list(ROWS)) == []


class Role(StrEnum):
    USER = "user"


class Text(str):
    pass


CHANGES = [("text", "y"), ("i", 1.0), ("i", True), ("i", None), ("role", Role.USER), ("role", Text("user"))]


@pytest.mark.parametrize(("key", "value"), CHANGES)
def test_an_old_item_changed_in_place_is_noticed(key: str, value: object) -> None:
    items: list[Any] = [dict(row) for row in ROWS]
    shadow = Shadow(items)
    items[1][key] = value
    items.append({"role": "user", "i": 4, "text": "z"})
    assert shadow.appended(items) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0.0], [-0.0]),
        ([{"v": 0.0}], [{"v": -0.0}]),
        ([[1, [0.0]]], [[1, [-0.0]]]),
        ([b"x"], [bytearray(b"x")]),
        ([{"a": "1"}], [OrderedDict(a="1")]),
        ([["a"]], [("a",)]),
        ([{"a": {"b": 1}}], [{"a": {"b": True}}]),
    ],
)
def test_what_python_calls_equal_is_not_taken_for_the_same(before: list[Any], after: list[Any]) -> None:
    assert Shadow(before).appended(after) is None
    assert Shadow(before).appended([*before, 1]) == [1]


def test_a_number_that_turns_up_where_none_was_is_compared_from_then_on() -> None:
    items: list[Any] = [{"v": "a"}]
    shadow = Shadow(items)
    items.append({"v": 1})
    shadow.extend([{"v": 1}])
    items[1]["v"] = True
    assert shadow.appended(items) is None


def test_a_shorter_list_is_no_growth() -> None:
    assert Shadow(ROWS).appended(ROWS[:2]) is None


@given(st.lists(values, max_size=5), st.lists(st.lists(values, max_size=3), max_size=3))
def test_growth_of_any_list_is_told(start: list[Any], batches: list[list[Any]]) -> None:
    items = list(start)
    shadow = Shadow(items)
    for batch in batches:
        items = [*items, *batch]
        assert same(shadow.appended(items), batch)
        shadow.extend(batch)


@given(st.lists(values, min_size=1, max_size=5), st.data())
def test_any_other_old_part_is_refused(start: list[Any], data: st.DataObject) -> None:
    shadow = Shadow(start)
    k = data.draw(st.integers(0, len(start) - 1))
    other = data.draw(values)
    changed = [*start[:k], other, *start[k + 1 :]]
    growth = shadow.appended(changed)
    if same(other, start[k]):
        assert growth == []
    elif growth is not None:
        assert same(sorted_keys(other), sorted_keys(start[k])), "only the order of a dict's keys may differ"
