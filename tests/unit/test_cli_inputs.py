"""Inputs given on the command line become values by the hints of the flow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from everstep import Flow, node
from everstep.cli.inputs import gather_inputs, read_value
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
        ('{"id": "A"}', "missing 1 required positional argument: 'items'.* items: list"),
        ('{"id": "A", "items": [], "qty": 2}', "'qty'"),
        ('{"id": 7, "items": []}', "order.id is 7. It takes str"),
        ('{"id": "A", "items": [{"price": 1}]}', r"order.items\[0\] does not make Item: missing 1"),
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
