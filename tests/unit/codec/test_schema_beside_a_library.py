"""Our check of answers against a library of JSON Schema: they agree, but for what an answer must not be."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.codec.schema import complaints, schema_of
from tests.unit.codec.fuzzing import IS_SOAK


class Item(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    count: int = 1


class Order(msgspec.Struct):
    items: list[Item]
    note: str | None = None
    price: float = 0.0


class Tree(msgspec.Struct):
    leaf: int | None = None
    left: Tree | None = None


TYPES: list[Any] = [
    int,
    float,
    str,
    bool,
    list[int],
    dict[str, int],
    tuple[int, str],
    Order,
    Tree,
    Item | None,
]
TYPES += [Literal["a", "b", 3], dict[str, list[Item]], int | str | None, dt.datetime | None]
KEYS = st.sampled_from(["items", "note", "price", "name", "count", "leaf", "left", "x"])
SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", "", 0.5, "2030-01-31T09:00:00Z"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_an_answer_is_refused_where_the_library_refuses_it(kind: Any) -> None:
    schema: dict[str, Any] = schema_of(kind) or {}
    library = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)

    @settings(max_examples=1000 if IS_SOAK else 60, deadline=None)
    @given(VALUES)
    def agree(value: Any) -> None:
        assert (not complaints(value, schema)) == library.is_valid(value)

    agree()


@pytest.mark.parametrize("value", [1.0, [2.0]])
def test_a_float_is_no_whole_number_here_as_it_would_be_stored_as_another_value(value: Any) -> None:
    schema: dict[str, Any] = schema_of(int if isinstance(value, float) else list[int]) or {}
    assert jsonschema_rs.is_valid(schema, value)
    assert complaints(value, schema)
