"""Values cut for people: bounded, with the way to what is left out."""

from __future__ import annotations

import json
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from everstep.client.looking.cuts import (
    CHILDREN,
    LEAF,
    MOST_CHILDREN,
    NODES,
    CutChild,
    Range,
    ReadOnDemand,
    ValueCut,
    cannot_be_read,
    cut,
    member_at,
    type_of,
)
from everstep.codec.classes import Stored
from everstep.codec.tags import Unreadable
from everstep.codec.wire import wire
from everstep.errors import BadRequest, KeyUnavailable, ValueLeftOut

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


@dataclass
class Line:
    sku: str
    price: int


class Point(msgspec.Struct):
    x: int
    y: int


Pair = namedtuple("Pair", "left right")


def children(found: ValueCut) -> list[CutChild]:
    assert found.children is not UNSET
    return found.children


def keys(found: ValueCut) -> list[str]:
    return [child.key for child in children(found)]


def parts(found: ValueCut) -> int:
    return 1 + sum(parts(child.cut) for child in (() if found.children is UNSET else found.children))


@pytest.mark.parametrize("value", [None, True, 7, -1.5, "text"])
def test_what_json_has_a_form_for_is_itself(value: Any) -> None:
    found = cut(value)
    assert (found.value, found.is_cut, found.state) == (value, False, "ok")
    assert wire(found)["value"] == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "nan"),
        (Decimal("1.50"), "1.50"),
        (datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00+00:00"),
        (b"\x01\xff", "01 ff"),
    ],
)
def test_anything_else_without_members_is_a_text(value: Any, text: str) -> None:
    assert cut(value).text == text


def test_a_number_that_is_longer_than_a_text_may_be_is_cut() -> None:
    found = cut(1 << 20_000)
    assert (found.text, found.is_cut) == (hex(1 << 20_000)[:LEAF], True)


def test_members_are_shown_by_name() -> None:
    found = cut({"lines": [Line("tea", 3)], "at": Pair(1, Point(2, 3)), 7: "seven", "a/b~c": 0})
    assert keys(found) == ["lines", "at", "7", "a/b~c"]
    [line] = children(children(found)[0].cut)
    assert (line.cut.type, keys(line.cut)) == (f"{__name__}.Line", ["sku", "price"])
    assert [child.cut.pointer for child in children(line.cut)] == ["/lines/0/sku", "/lines/0/price"]
    assert keys(children(found)[1].cut) == ["left", "right"]
    assert [child.cut.pointer for child in children(found)][2:] == ["/~22", "/a~1b~0c"]
    assert cut(Stored("shop:Line", {"sku": "tea"})).type == "shop.Line"


def test_a_level_has_a_hundred_members_and_the_rest_by_range() -> None:
    value = list(range(5000))
    found = cut(value)
    assert (len(children(found)), found.count, found.is_cut) == (CHILDREN, 5000, True)
    later = cut(value, "", Range(4990, 100))
    assert [child.cut.value for child in children(later)] == list(range(4990, 5000))
    assert (later.start, later.is_cut) == (4990, True)
    assert len(children(cut(value, "", Range(0, 10**6)))) == MOST_CHILDREN


def test_a_text_is_cut_and_the_rest_given_by_range() -> None:
    value = {"page": "é" * 5000}
    found = children(cut(value))[0].cut
    assert (found.value, found.count, found.is_cut) == ("é" * LEAF, 5000, True)
    rest = cut(value, "/page", Range(LEAF, 100_000))
    assert (rest.value, rest.start, rest.pointer) == ("é" * (5000 - LEAF), LEAF, "/page")


def test_a_wide_and_deep_value_has_few_parts_those_near_the_top_first() -> None:
    value: Any = 0
    for _ in range(6):
        value = [value] * 90
    found = cut(value)
    assert parts(found) <= NODES + 1 and len(children(found)) == 90
    assert all(len(children(child.cut)) == 0 or child.cut.count == 90 for child in children(found))
    deep: Any = "bottom"
    for _ in range(400):
        deep = [deep]
    assert parts(cut(deep)) < 20
    assert len(json.dumps(wire(cut(value)))) < 200_000


@pytest.mark.parametrize(
    ("value", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ("data:image/png;base64,iVBORw0KGgo=", "image/png"),
    ],
)
def test_an_image_is_known_and_not_spelled_out(value: Any, mime: str) -> None:
    found = cut(value)
    assert (found.mime, found.shape) == (mime, "image")


@pytest.mark.parametrize(
    "value", [b"<svg onload=alert(1)>", "data:image/svg+xml;base64,AAAA", b"RIFF....WAVE"]
)
def test_what_a_browser_could_run_is_no_image(value: Any) -> None:
    assert (cut(value).mime, cut(value).shape) == (UNSET, UNSET)


def test_like_objects_are_a_table_and_messages_a_conversation() -> None:
    rows = cut([{"sku": "tea", "price": 3}, {"sku": "cup", "price": 5}])
    assert (rows.shape, rows.columns) == ("table", ["sku", "price"])
    assert cut([Line("tea", 3), Line("cup", 5)]).columns == ["sku", "price"]
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": []}]
    assert cut(said).shape == "chat"
    for other in ([{"a": 1}, {"b": 2}], [{"a": 1}], [1, 2], [], [{"role": "king", "content": ""}]):
        assert cut(other).shape is UNSET


def test_items_are_read_only_if_they_are_shown() -> None:
    read: list[int] = []

    def item(k: int) -> int:
        read.append(k)
        if k == 3:
            raise ValueError("it is gone")
        return k

    found = cut(ReadOnDemand(10_000, item), "", Range(0, 5))
    assert (found.type, found.count) == ("list", 10_000)
    assert [child.cut.state for child in children(found)] == ["ok", "ok", "ok", "unreadable", "ok"]
    assert len(set(read)) < 50
    assert member_at(ReadOnDemand(10_000, item), "/9000") == 9000


def test_what_cannot_be_read_says_why() -> None:
    assert cannot_be_read(KeyUnavailable("no key k1")).state == "encrypted"
    assert cannot_be_read(ValueLeftOut("left out")).state == "redacted"
    found = cut({"a": Unreadable("it is damaged")})
    assert (children(found)[0].cut.state, children(found)[0].cut.text) == ("unreadable", "it is damaged")
    assert children(found)[0].cut.pointer == "/a"


@pytest.mark.parametrize("pointer", ["x", "/b", "/a/3", "/a/x", "/a/~29", "/a/0/deeper", "/a/-1", "/a/00"])
def test_a_pointer_that_leads_nowhere_is_refused(pointer: str) -> None:
    with pytest.raises(BadRequest):
        member_at({"a": [1, 2]}, pointer)


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_an_object_that_cannot_say_what_it_is_is_shown_all_the_same() -> None:
    assert "raised RuntimeError" in str(cut([Odd()], "/0").text)
    assert type_of(Odd()) == f"{__name__}.Odd"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=6)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers() | st.text(max_size=4), max_size=4)
    ),
    max_leaves=30,
)


@given(VALUES)
def test_every_pointer_that_is_given_leads_to_what_it_was_given_for(value: Any) -> None:
    def check(found: ValueCut) -> None:
        again = cut(value, found.pointer)
        assert (again.type, again.value, again.count) == (found.type, found.value, found.count)
        for child in () if found.children is UNSET else found.children:
            check(child.cut)

    check(cut(value))
    json.dumps(wire(cut(value)), allow_nan=False)
