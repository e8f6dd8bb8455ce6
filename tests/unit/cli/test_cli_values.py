"""Any value can be shown: as JSON that parses, and as one safe line."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.view.text import (
    Unreadable,
    cut,
    duration,
    full,
    is_cut,
    jsonable,
    preview,
    size,
    write_json,
)
from everstep.errors import ValueUnreadable


@dataclass
class Point:
    x: int
    y: object


class Colour(Enum):
    RED = "r"


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Sly:
    def __repr__(self) -> str:
        return "\x1b[31mred\nline"


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": (1, None, True)}, {"a": [1, None, True]}),
        ({1: "a"}, {"$type": "dict", "items": [[1, "a"]]}),
        ({"$type": "mine"}, {"$type": "dict", "items": [["$type", "mine"]]}),
        (b"\xff", {"$type": "bytes", "base64": "/w=="}),
        (float("nan"), {"$type": "float", "text": "nan"}),
        ({3}, {"$type": "set", "items": [3]}),
        (datetime(2026, 1, 2, tzinfo=UTC), {"$type": "datetime", "text": "2026-01-02T00:00:00+00:00"}),
        (Point(1, b""), {"$type": f"{__name__}.Point", "x": 1, "y": {"$type": "bytes", "base64": ""}}),
        (Colour.RED, {"$type": f"{__name__}.Colour", "text": "RED", "value": "r"}),
        (Unreadable("gone"), {"$type": "unreadable", "text": "gone"}),
    ],
)
def test_value_without_a_json_form_is_tagged(value: object, shown: object) -> None:
    assert jsonable(value) == shown


@pytest.mark.parametrize("value", [Rude(), Sly(), LOOP, object(), lambda: 1, "\ud800", [10**5000]])
def test_nothing_breaks_the_json(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="utf-8", write_through=True))
    write_json({"value": value})
    assert json.loads(out.getvalue()).keys() == {"value"}


def test_json_survives_a_stream_that_knows_only_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii", write_through=True))
    write_json(["é", "→", "🎉", "\x80"])
    assert json.loads(out.getvalue()) == ["é", "→", "🎉", "\x80"]


@pytest.mark.parametrize("value", [Rude(), Sly(), LOOP, object(), "\ud800", "a\nb", "\x1b[2J", b"\x1b"])
def test_preview_is_one_line_that_a_terminal_does_not_obey(value: object) -> None:
    shown = preview(value)
    assert "\n" not in shown
    assert "\x1b" not in shown


@given(
    st.recursive(
        st.text() | st.binary() | st.integers(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_preview_is_never_long(value: object) -> None:
    assert len(preview(value, 40)) <= 40 + len(" (1,000,000 characters)")


@pytest.mark.parametrize(
    ("value", "end"),
    [
        ("x" * 5000, "… (5,000 characters)"),
        (b"x" * 2048, "… (2.0 KiB)"),
        (list(range(1000)), " (1,000 items)"),
        ({str(k): k for k in range(300)}, " (300 items)"),
    ],
)
def test_preview_of_something_long_gives_its_size(value: object, end: str) -> None:
    assert preview(value).endswith(end)


def test_preview_keeps_the_order_of_the_keys_and_counts_one_item_as_one() -> None:
    assert preview({"b": 1, "a": {"d": 2, "c": 3}}) == "{'b': 1, 'a': {'d': 2, 'c': 3}}"
    assert preview(["x" * 500]).endswith("… (1 item)")


def test_whole_value_is_shown_on_lines_of_its_own_where_one_is_too_short() -> None:
    rows = [{"b": k, "a": "x" * 30} for k in range(4)]
    assert full({"b": 1, "a": 2}, 40) == "{'b': 1, 'a': 2}"
    first, *lines = full(rows, 60, 2).split("\n")
    assert (first, len(lines)) == ("", 4)
    assert eval("\n".join(lines).strip()) == rows
    assert "\x1b" not in full(Sly(), 40) + full([Sly()] * 20, 40)
    assert (is_cut(rows, 40), is_cut(rows, 400)) == (True, False)


def test_value_of_an_unknown_class_says_how_to_load_it() -> None:
    error = ValueUnreadable("its class `a:B` is not loaded.", fix="Import it.")
    assert preview(Unreadable(error)) == (
        "<unreadable: its class `a:B` is not loaded. Name the file that defines it with --load.>"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00004, "40 µs"),
        (0.0012, "1.2 ms"),
        (0.25, "250 ms"),
        (3.2, "3.20 s"),
        (125, "2 min 05 s"),
        (7260, "2 h 01 min"),
    ],
)
def test_duration_is_written_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == duration(timedelta(seconds=seconds)) == text


def test_size_and_cut() -> None:
    assert [size(n) for n in (0, 1023, 1536, 3 << 20, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 MiB",
        "5.0 GiB",
    ]
    assert (cut("abc", 3), cut("abcd", 3)) == ("abc", "ab…")
