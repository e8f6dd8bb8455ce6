"""Columns follow from the fields of a struct, and rows go there and back."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from everstep.stores.tables import Converts, Rows, RowTable

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """A row of every kind of field."""

    name: str
    made_at: datetime
    parent: str | None
    colour: Colour = Colour.RED
    size: int = 7
    is_big: bool = False
    body: bytes | None = None
    group: str | None = None
    key: int = 0


TABLE = RowTable(Thing, without=("key",), named={"group": "thing_group"}, blank=("group",))
SHOUTED: Converts = {str: str.upper}
ROWS = Rows(TABLE, keep=SHOUTED, read={str: str.lower})
FULL = Thing(
    name="a", made_at=NOON, parent="p", colour=Colour.BLUE, size=1, is_big=True, body=b"x", group="g", key=3
)
BARE = Thing(name="a", made_at=NOON, parent=None)


def test_columns_have_the_names_and_the_order_of_the_fields() -> None:
    assert TABLE.names == (
        *("name", "made_at", "parent", "colour"),
        *("size", "is_big", "body", "thing_group"),
    )


def test_values_are_kept_as_the_store_keeps_their_kind() -> None:
    kept = ROWS.kept(FULL)
    assert tuple(kept) == TABLE.names
    assert (kept["name"], kept["thing_group"], kept["colour"]) == ("A", "G", "blue")
    assert (kept["made_at"], kept["is_big"], kept["body"]) == (1777896000000000, True, b"x")
    nothing = ROWS.kept(BARE)
    assert (nothing["parent"], nothing["body"], nothing["thing_group"]) == (None, None, "")


@pytest.mark.parametrize("row", [FULL, BARE])
def test_a_row_comes_back_as_it_was(row: Thing) -> None:
    assert ROWS.row(ROWS.kept(row).values(), key=row.key) == row


def test_nothing_in_a_column_is_the_default_of_its_field() -> None:
    values: list[Any] = ["A", 0, *[None] * 6]
    found = ROWS.row(values)
    assert (found.colour, found.size, found.is_big, found.parent) == (Colour.RED, 7, False, None)


def test_a_column_that_must_have_something_is_named_if_it_has_nothing() -> None:
    with pytest.raises(ValueError, match="nothing where made_at belongs"):
        ROWS.row(["A", *[None] * 7])


def test_an_unknown_member_is_refused() -> None:
    with pytest.raises(ValueError, match="green"):
        ROWS.row(["A", 0, None, "green", *[None] * 4])
