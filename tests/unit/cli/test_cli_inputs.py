"""Inputs given on the command line become values by the hints of the flow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from everstep import Flow, node
from everstep.cli.args.inputs import gather_inputs, read_value
from everstep.client.shaping import shaped
from everstep.codec.schema import shaped as answer_shaped
from everstep.errors import BadRequest, InputError


@node(output="out")
def use(count: int, name: str, share: float = 0.0, items: list[int] | None = None) -> int:
    return count


FLOW = Flow("flow", [use])


@dataclass
class Item:
    name: str
    price: float = 1.0


@dataclass
class Order:
    id: str
    items: list[Item]


@node(output="out")
def sell(order: Order) -> int:
    return 1


SHOP = Flow("shop", [sell])


def test_object_becomes_the_dataclass_that_the_flow_wants() -> None:
    order = gather_inputs(SHOP, ['order={"id": "A", "items": [{"name": "tea", "price": 2}]}'], None)
    assert order == {"order": Order("A", [Item("tea", 2)])}


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ('{"id": "A"}', "'order' cannot be Order: order.items: missing.* items: list"),
        ('{"id": "A", "items": [], "qty": 2}', "order.qty: not expected"),
        ('{"id": 7, "items": []}', "order.id: expected text, got a whole number. It takes Order.* id: str"),
        ('{"id": "A", "items": [{"price": 1}]}', r"order.items\[0\].name: missing"),
    ],
)
def test_object_that_does_not_make_the_dataclass_is_refused(order: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gather_inputs(SHOP, [f"order={order}"], None)


@pytest.mark.parametrize(
    ("text", "hints", "value"),
    [
        ("5", [str], "5"),
        ("5", [Annotated[str, "a name"]], "5"),
        ("null", [str, Any], "null"),
        ("5", [int], 5),
        ("5", [float], 5.0),
        ("yes", [bool], True),
        ("false", [bool], False),
        ("5", [Any], 5),
        ("5", [], 5),
        ("five", [Any], "five"),
        ("", [Any], ""),
        ("[1, 2]", [list[int]], [1, 2]),
        ('{"a": 1}', [dict], {"a": 1}),
        ("five", [int | str], "five"),
        ('"5"', [int | str], "5"),
        ("null", [int | None], None),
        ("a=b", [str], "a=b"),
    ],
)
def test_value_is_read_by_its_hint(text: str, hints: list[Any], value: object) -> None:
    read = read_value("x", text, hints)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(("text", "hint"), [("x", int), ("1.5", int), ("x", float), ("maybe", bool)])
def test_value_that_cannot_be_what_is_wanted_is_refused(text: str, hint: type) -> None:
    with pytest.raises(InputError, match=f"--input x={text} is not"):
        read_value("x", text, [hint])


@pytest.mark.parametrize(("text", "hint"), [("5", int | str), ("null", str | None), ("true", str | bool)])
def test_value_that_can_be_read_in_two_ways_is_refused(text: str, hint: Any) -> None:
    with pytest.raises(InputError, match="--inputs-file"):
        read_value("x", text, [hint])


class Colour(Enum):
    RED = "red"
    TEN = "10"


class Parcel(BaseModel):
    weight: Decimal
    sent: date


@node(output="out")
def ship(
    day: date,
    amount: Decimal,
    colour: Colour | None = None,
    folder: Path | None = None,
    parcel: Parcel | None = None,
    days: list[date] | None = None,
    span: timedelta | None = None,
) -> int:
    return 1


@node(output="other")
def look(day: date | None, amount: Any = None) -> int:
    return 1


SHIPPING = Flow("shipping", [ship, look])


def test_dates_decimals_enums_paths_and_models_are_read_as_the_flow_declares_them() -> None:
    pairs = ["day=2026-01-01", "amount=1.10", "colour=10", "folder=a/b.txt", "span=PT2H"]
    pairs += ['parcel={"weight": "2.50", "sent": "2026-01-02"}', 'days=["2026-01-03"]']
    found = gather_inputs(SHIPPING, pairs, None)
    assert found == {
        "day": date(2026, 1, 1),
        "amount": Decimal("1.10"),
        "colour": Colour.TEN,
        "folder": Path("a/b.txt"),
        "span": timedelta(hours=2),
        "parcel": Parcel(weight=Decimal("2.50"), sent=date(2026, 1, 2)),
        "days": [date(2026, 1, 3)],
    }
    assert str(found["amount"]) == "1.10"  # not by way of a float
    SHIPPING.check_inputs(found)


def test_what_is_no_null_of_its_own_is_read_as_none() -> None:
    assert gather_inputs(SHIPPING, ["colour=null"], None) == {"colour": None}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("day=tomorrow", "'day' cannot be date: day: expected a date such as 2030-01-31. It takes date"),
        ("amount=much", "'amount' cannot be Decimal: amount: expected a decimal number"),
        ("colour=green", "'colour' cannot be .*Colour.*: colour: expected one of '10', 'red', got 'green'"),
        ('parcel={"weight": "1"}', "'parcel' cannot be .*Parcel.*: parcel.sent: missing"),
        ('days=["2026-01-03", "x"]', r"days\[1\]: expected a date"),
    ],
)
def test_an_input_that_cannot_be_what_the_flow_declares_is_refused_by_name(pair: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gather_inputs(SHIPPING, [pair], None)


@pytest.mark.parametrize(
    ("value", "hint", "found"),
    [
        (5, float, 5),
        ({"id": "A", "items": []}, Order | Item, Order("A", [])),
        ({"name": "tea"}, Order | Item, Item("tea")),
        ("2026-01-01", date | str, date(2026, 1, 1)),
        ("2026-01-01", str | date, "2026-01-01"),
        ({"a": 1}, dict[str, Any], {"a": 1}),
        ("x", Any, "x"),
        ("10.0.0.1", IPv4Address, IPv4Address("10.0.0.1")),
        (["2026-01-01"], list[date] | tuple[date, ...], [date(2026, 1, 1)]),
    ],
)
def test_json_becomes_what_the_readers_of_an_input_declare(value: Any, hint: Any, found: Any) -> None:
    made = shaped("x", value, [hint])
    assert (made, type(made)) == (found, type(found))


def test_a_dataclass_whose_hints_cannot_be_resolved_is_made_all_the_same() -> None:
    @dataclass
    class Odd:
        name: str
        kind: OnlyForTypeCheckers  # type: ignore[name-defined]  # noqa: F821

    assert shaped("odd", {"name": "a", "kind": 1}, [Odd]) == Odd("a", 1)
    with pytest.raises(InputError, match="'odd' cannot be Odd: missing 1 required"):
        shaped("odd", {"name": "a"}, [Odd])


def test_answers_and_inputs_are_converted_alike() -> None:
    for value, kind in [("2026-01-01", date), ("1.10", Decimal), ("red", Colour), ("a/b", Path)]:
        assert shaped("x", value, [kind]) == answer_shaped(value, kind)


def test_nothing_given_is_not_the_same_as_no_inputs(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text("{}")
    assert gather_inputs(FLOW, [], None) is None
    assert gather_inputs(FLOW, [], str(tmp_path / "none.json")) == {}


def test_pair_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"count": 1, "name": "a"}')
    assert gather_inputs(FLOW, ["count=2"], str(tmp_path / "in.json")) == {"count": 2, "name": "a"}


@pytest.mark.parametrize("pairs", [["count"], ["=1"], ["a b=1"], ["count=1", "count=2"]])
def test_pair_that_is_no_pair_or_comes_twice_is_refused(pairs: list[str]) -> None:
    with pytest.raises(BadRequest):
        gather_inputs(FLOW, pairs, None)


@pytest.mark.parametrize("text", ["[1]", "{", "\x00", None])
def test_inputs_file_must_hold_a_json_object(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "in.json").write_text(text)
    with pytest.raises(BadRequest, match="--inputs-file"):
        gather_inputs(FLOW, [], str(tmp_path / "in.json"))


def test_every_input_that_cannot_be_what_the_flow_declares_is_told_at_once() -> None:
    @node(output="out")
    def bill(day: date, net: Decimal) -> int:
        return 1

    with pytest.raises(InputError) as caught:
        gather_inputs(Flow("bill", [bill]), ["day=tomorrow", "net=much"], None)
    assert (
        "'day' cannot be date" in caught.value.message and "'net' cannot be Decimal" in caught.value.message
    )
    assert caught.value.fix == "'day' takes date. 'net' takes Decimal."
