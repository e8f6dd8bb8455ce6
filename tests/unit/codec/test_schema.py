"""The shape of an answer: its schema, what is wrong with a value, and the value as a type."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Required, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from everstep.codec.schema import complaints, schema_of, shaped
from everstep.errors import AnswerInvalid
from tests.unit.codec.fuzzing import IS_SOAK


class Receipt(msgspec.Struct):
    amount: float
    note: str | None = None


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    how_many: int


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = "x"


class Pair(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    a: int
    b: str = "x"


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class One(msgspec.Struct, tag=1):
    a: int


class Two(msgspec.Struct, tag=2):
    a: str


class Chain(msgspec.Struct):
    next: Chain | None = None


class Tree(msgspec.Struct):
    leaf: int | None = None
    left: Tree | None = None
    right: Tree | None = None


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Form(TypedDict, total=False):
    a: Required[int]
    b: str


class Point(NamedTuple):
    x: int
    y: str = "q"


@dataclasses.dataclass
class Order:
    receipts: list[Receipt]
    on: dt.date
    colour: Colour = Colour.RED


KINDS: dict[Any, list[Any]] = {
    int: [1, 1.0, True, 2**70],
    float: [1, 1.5, 10**400],
    bool: [True, 0],
    str: ["", "x"],
    type(None): [None],
    list[int]: [[], [1, 2], [1, "x"]],
    dict[str, int]: [{}, {"a": 1}],
    dict[Annotated[str, Meta(min_length=2)], int]: [{"ab": 1}, {"a": 1}],
    Annotated[dict[str, int], Meta(min_length=1)]: [{}, {"a": 1}],
    tuple[int, str]: [[1, "a"], [1], [1, "a", 2]],
    tuple[int, ...]: [[1, 2, 3]],
    Receipt: [{"amount": 1}, {"amount": 1, "note": "x"}, {"note": "x"}, {"amount": "1"}],
    Strict: [{"howMany": 1}, {"how_many": 1}, {"howMany": 1, "more": 2}],
    Row: [[1], [1, "a"], [1, "a", 3], []],
    Pair: [[1], [1, "a"], [1, "a", 3], []],
    Cat | Dog: [{"type": "Cat", "lives": 9}, {"type": "Dog", "name": "Rex"}, {"type": "Cow"}, {"lives": 9}],
    Cat | Dog | None: [None, {"type": "Cat", "lives": 9}, {"type": "Dog", "lives": 9}],
    One | Two: [
        {"type": 1, "a": 1},
        {"type": 2, "a": "x"},
        {"type": 1, "a": "x"},
        {"type": 3},
        {"type": "1", "a": 1},
    ],
    Chain: [{"next": {"next": {"next": None}}}, {"next": {"next": 1}}],
    Tree: [{"left": {"leaf": 1}, "right": {"left": {}}}, {"left": {"right": {"leaf": "x"}}}],
    Colour: ["red", "green"],
    Level: [1, 3, True, 1.0],
    Form: [{"a": 1}, {"b": "x"}, {"a": 1, "b": 2}],
    Point: [[1], [1, "a"], [1, "a", 2]],
    Order: [
        {"receipts": [{"amount": 1}], "on": "2030-01-31"},
        {"receipts": [{"amount": 1, "note": None}], "on": "2030-02-31", "colour": "blue"},
    ],
    Literal[1, 2, "x"]: [1, 2, "x", 3, True, 1.0],
    Literal[None, "a"]: [None, "a", "b"],
    Annotated[dt.datetime, Meta(tz=True)]: ["2030-01-31T09:00:00Z", "2030-01-31T09:00:00", "2030-01-31"],
    dt.date: ["2030-01-31", "2030-02-31", "x"],
    dt.timedelta: ["PT5S", "P1Y", "x"],
    UUID: ["6f9619ff-8b86-4011-b42d-00cf4fc964ff", "6f9619ff"],
    bytes: ["aGk=", "aGk", "!!"],
    Decimal: ["1.5", "x", 1, 2.5],
    Annotated[int, Meta(ge=1, lt=9, multiple_of=2)]: [0, 1, 2, 8, 9, 10],
    Annotated[float, Meta(gt=0, le=1)]: [0, 0.5, 1, 1.5],
    Annotated[float, Meta(multiple_of=0.5)]: [0, 0.5, 0.7, 3],
    Annotated[str, Meta(min_length=2, max_length=3, pattern="^a")]: [
        "a",
        "ab",
        "abcd",
        "ba",
        "añ",
        "a\U0001f600",
    ],
    Annotated[list[int], Meta(min_length=1, max_length=2)]: [[], [1], [1, 2, 3]],
    int | str | None: [1, "x", None, 1.5],
    float | int: [1, 1.5, 10**400],
    Receipt | list[int] | None: [None, [1], {"amount": 2}, {"amount": None}],
    dict[str, list[Receipt | None]]: [{"a": [{"amount": 1}, None]}, {"a": [{"amount": "1"}]}],
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.sampled_from(["red", "Cat", "a", "amount", "2030-01-31", "PT1H", "aGk="])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "amount", "type", "next"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def changed(value: Any, draw: Callable[[Any], Any]) -> Any:
    """Return a value with something in it replaced, left out or added."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        rest = {k: v for k, v in value.items() if k != name}
        return rest if draw(st.booleans()) else {**rest, name: changed(value[name], draw)}
    if isinstance(value, list) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], changed(value[at], draw), *value[at + 1 :]]
    if isinstance(value, dict) and draw(st.booleans()):
        return {**value, draw(st.sampled_from(["more", "note", "a"])): draw(values)}
    return draw(values)


def accepts(kind: Any, value: Any) -> bool:
    try:
        shaped(value, kind)
    except AnswerInvalid:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_msgspec_accepts_an_example_exactly_when_there_is_no_complaint(kind: Any) -> None:
    schema = schema_of(kind)
    verdicts = [(value, accepts(kind, value), complaints(value, schema)) for value in KINDS[kind]]
    assert [v for v in verdicts if v[1] == bool(v[2])] == []
    assert any(fits for _, fits, _ in verdicts)


@settings(max_examples=1_500 if IS_SOAK else 300, deadline=None, database=None)
@given(data=st.data())
def test_msgspec_accepts_a_value_exactly_when_there_is_no_complaint(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    value = changed(data.draw(st.sampled_from(KINDS[kind])), data.draw)
    found = complaints(value, schema_of(kind))
    assert accepts(kind, value) == (not found), (kind, value, found)


json_schemas = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(
                ["string", "integer", "number", "object", "array", "null", "boolean", "odd"]
            )
            | st.lists(st.sampled_from(["string", "null", 3]), max_size=2)
            | values,
            "$ref": st.sampled_from(["#", "#/$defs/a", "#/anyOf/0", "http://elsewhere", "#/a~1b", ""])
            | values,
            "enum": values,
            "const": values,
            "minimum": values,
            "multipleOf": values,
            "minLength": values,
            "maxItems": values,
            "pattern": values | st.sampled_from(["(", "^a$", "*"]),
            "format": values | st.sampled_from(["date", "uuid", "decimal", "ipv6"]),
            "required": values,
            "uniqueItems": values,
            "nullable": values,
        },
    )
    | values,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "anyOf": st.lists(inner, max_size=3) | values,
            "oneOf": st.lists(inner, max_size=3),
            "allOf": st.lists(inner, max_size=2),
            "items": inner | st.lists(inner, max_size=2),
            "prefixItems": st.lists(inner, max_size=2),
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2) | values,
            "patternProperties": st.dictionaries(st.sampled_from(["a", "("]), inner, max_size=2),
            "propertyNames": inner,
            "additionalProperties": inner,
            "discriminator": values
            | st.just({"propertyName": "type", "mapping": {"Cat": "#/$defs/a", "red": 5}}),
            "$defs": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
        },
    ),
    max_leaves=6,
)


@settings(max_examples=500 if IS_SOAK else 100, deadline=None, database=None)
@given(values, json_schemas)
def test_no_value_and_no_schema_make_it_raise(value: Any, schema: Any) -> None:
    found = complaints(value, schema)
    assert all(complaint.partition(": ")[2] for complaint in found)


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ({"amount": "12"}, Receipt, "answer.amount: expected a number, got text"),
        ({"amount": True}, Receipt, "answer.amount: expected a number, got true or false"),
        ({}, Receipt, "answer.amount: missing"),
        ({"amount": 1, "note": 3}, Receipt, "answer.note: expected text or null, got a whole number"),
        ("red", Receipt, "answer: expected an object, got text"),
        ({"howMany": 1, "odd key": 2}, Strict, "answer['odd key']: not expected"),
        (
            {"receipts": [{"amount": 1}, {"amount": []}], "on": "2030-01-31"},
            Order,
            "answer.receipts[1].amount: ",
        ),
        ({"receipts": [], "on": "soon"}, Order, "answer.on: expected a date such as 2030-01-31"),
        ("green", Colour, "answer: expected one of 'blue', 'red', got 'green'"),
        (7, Annotated[int, Meta(le=5)], "answer: expected at most 5, got 7"),
        ("x", Annotated[str, Meta(min_length=2)], "answer: expected at least 2 characters, got 1"),
        ([], Annotated[list[int], Meta(min_length=1)], "answer: expected at least 1 items, got 0"),
        ({"type": "Dog"}, Cat | Dog, "answer.name: missing"),
        ({"type": "Cow"}, Cat | Dog, "answer.type: expected one of 'Cat', 'Dog', got 'Cow'"),
        ({"lives": 9}, Cat | Dog | None, "answer.type: missing"),
        (1.5, int | str | None, "answer: expected a whole number or text or null, got a number"),
    ],
)
def test_a_complaint_names_the_path_what_was_expected_and_what_came(value: Any, kind: Any, said: str) -> None:
    [complaint] = complaints(value, schema_of(kind))
    assert complaint.startswith(said)


def test_only_so_many_complaints_are_made() -> None:
    assert len(complaints(["x"] * 1_000, schema_of(list[int]))) == 20


def test_a_set_holds_nothing_twice() -> None:
    schema = schema_of(set[int])
    assert complaints([1, 2], schema) == []
    assert complaints([1, 1], schema) == ["answer: expected no item twice"]
    assert shaped([1, 2], set[int]) == {1, 2}


def test_deep_nesting_is_a_complaint_and_not_a_crash() -> None:
    deep: Any = None
    for _ in range(50_000):
        deep = {"next": deep}
    [complaint] = complaints(deep, schema_of(Chain))
    assert complaint.endswith("nested too deeply to be checked")
    assert complaints(deep, {"type": "object"}) == []
    assert complaints([deep, deep], {"uniqueItems": True}) == []
    assert complaints(deep, {"const": deep}) != []


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    assert complaints(1, {"$ref": "#"}) != []
    assert complaints([], {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "$defs": {}}) != []


@pytest.mark.parametrize(
    ("value", "schema", "fits"),
    [
        (None, {"type": "string", "nullable": True}, True),
        (None, {"type": "string"}, False),
        ("x", {"type": ["string", "null"]}, True),
        (1, {"type": ["string", "null"]}, False),
        (3, {"const": 3}, True),
        (True, {"const": 1}, False),
        ([1, {"a": 2}], {"const": [1, {"a": 2}]}, True),
        ([1, {"a": True}], {"const": [1, {"a": 1}]}, False),
        (1, {"enum": [1.0]}, True),
        (5, {"allOf": [{"minimum": 1}, {"maximum": 4}]}, False),
        (5, {"oneOf": [{"minimum": 1}, {"maximum": 6}]}, False),
        (5, {"oneOf": [{"minimum": 1}, {"maximum": 4}]}, True),
        ({"a1": "x"}, {"patternProperties": {"^a": {"type": "integer"}}}, False),
        ({"b1": "x"}, {"patternProperties": {"^a": {"type": "integer"}}}, True),
        ({"b": 1}, {"patternProperties": {"^a": {}}, "additionalProperties": False}, False),
        ({"b": 1}, {"maxProperties": 0}, False),
        ("10.0.0.1", {"format": "ipv4"}, True),
        ("10.0.0.1", {"format": "ipv6"}, False),
        ("09:00:00", {"format": "time"}, True),
        ("nine", {"format": "time"}, False),
        ("anything", {"format": "of its own"}, True),
        ("x", {"$ref": "#/$defs/gone"}, True),
        ("x", {"pattern": "("}, True),
        (1, False, False),
        (1, True, True),
        (1, None, True),
        ([1, "x"], {"items": [{"type": "integer"}], "additionalItems": False}, False),
    ],
)
def test_the_words_of_json_schema_mean_what_they_say(value: Any, schema: Any, fits: bool) -> None:
    assert (complaints(value, schema) == []) == fits


class Item(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1)
    count: int = pydantic.Field(1, ge=1)
    price: Decimal | None = None


class Basket(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    items: list[Item]
    at: dt.datetime | None = None
    colour: Colour = Colour.RED
    inner: Basket | None = None

    @pydantic.field_validator("items")
    @classmethod
    def few(cls, items: list[Item]) -> list[Item]:
        if len(items) > 2:
            raise ValueError("too many items")
        return items


class Held(msgspec.Struct):
    basket: Basket
    item: Item | None = None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"items": [{"name": "a"}]}, None),
        ({"items": [{"name": "a", "count": 2, "price": "1.5"}], "at": "2030-01-31T09:00:00Z"}, None),
        ({"items": [], "inner": {"items": [{"name": "a"}], "inner": None}}, None),
        ({"items": [{"name": ""}]}, "items[0].name: expected at least 1 characters, got 0"),
        ({"items": [{"name": "a", "count": 0}]}, "items[0].count: expected at least 1, got 0"),
        (
            {"items": [{"name": "a", "count": True}]},
            "items[0].count: expected a whole number, got true or false",
        ),
        ({"items": [], "at": "soon"}, "at: expected a time with an offset"),
        ({"items": [], "more": 1}, "more: not expected"),
        ({"items": [], "inner": {}}, "inner.items: missing"),
        ({"items": [], "colour": "green"}, "colour: expected one of 'red', 'blue', got 'green'"),
    ],
)
def test_a_pydantic_model_is_checked_alone_and_inside_other_types(value: Any, said: str | None) -> None:
    assert [
        c.removeprefix("answer.").startswith(str(said)) for c in complaints(value, schema_of(Basket))
    ] == ([True] if said else [])
    held = complaints([{"basket": value}], schema_of(list[Held]))
    assert [c.removeprefix("answer[0].basket.").startswith(str(said)) for c in held] == (
        [True] if said else []
    )
    if not said:
        assert shaped(value, Basket) == Basket.model_validate(value)
        assert shaped([{"basket": value}], list[Held]) == [Held(Basket.model_validate(value))]


@pytest.mark.parametrize("kind", [Basket, list[Basket], Basket | None])
def test_what_a_model_finds_is_said_without_the_answer_itself(kind: Any) -> None:
    basket = {"items": [{"name": "secret"}] * 3}
    with pytest.raises(AnswerInvalid, match="items: Value error, too many items") as caught:
        shaped([basket] if kind == list[Basket] else basket, kind)
    assert "secret" not in str(caught.value)
    assert "http" not in str(caught.value)


def test_an_answer_that_does_not_fit_names_the_type() -> None:
    with pytest.raises(
        AnswerInvalid, match=r"the answer is no Receipt: Expected `float`, got `str` - at `\$.amount`"
    ):
        shaped({"amount": "1"}, Receipt)


class Meeting(msgspec.Struct):
    at: dt.datetime
    times: list[dt.time | None] = []
    by_day: dict[dt.date, dt.datetime] = {}
    next: Meeting | None = None


class Slot(msgspec.Struct, array_like=True, tag=True):
    at: dt.datetime


class Spot(msgspec.Struct, array_like=True, tag=True):
    at: dt.time


WITH_ZONE, WITHOUT = "2030-01-31T09:00:00Z", "2030-01-31T09:00:00"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (dt.datetime, WITH_ZONE, "soon"),
        (dt.datetime | None, WITH_ZONE, "soon"),
        (dt.datetime | int | list[int], WITH_ZONE, "soon"),
        (dt.time, "09:00:00", "nine"),
        (list[dt.datetime], [WITH_ZONE], ["soon"]),
        (tuple[int, dt.datetime], [1, WITH_ZONE], [1, "soon"]),
        (dict[str, dt.datetime] | None, {"a": WITH_ZONE}, {"a": "soon"}),
        (dict[int, str], {"1": "a", "-2": "b"}, {"x": "a"}),
        (dict[int, str], {"1": "a"}, {"1\n": "a"}),
        (dict[Colour, int], {"red": 1}, {"green": 1}),
        (dict[Level, int], {"1": 1}, {"3": 1}),
        (dict[Literal["a", "b"], int], {"a": 1}, {"c": 1}),
        (dict[UUID, int], {"6f9619ff-8b86-4011-b42d-00cf4fc964ff": 1}, {"x": 1}),
        (Meeting, {"at": WITH_ZONE}, {"at": "soon"}),
        (Meeting, {"at": WITH_ZONE, "times": ["09:00:00", None]}, {"at": WITH_ZONE, "times": ["nine"]}),
        (
            Meeting,
            {"at": WITH_ZONE, "by_day": {"2030-01-31": WITH_ZONE}},
            {"at": WITH_ZONE, "by_day": {"x": WITH_ZONE}},
        ),
        (
            list[Meeting | None],
            [{"at": WITH_ZONE, "next": {"at": WITH_ZONE}}],
            [{"at": WITH_ZONE, "next": {"at": "x"}}],
        ),
        (Slot, ["Slot", WITH_ZONE], ["Slot", "soon"]),
        (Slot | Spot, ["Spot", "09:00:00"], ["Spot", "nine"]),
        (dict[str, Slot | None], {"a": ["Slot", WITH_ZONE]}, {"a": ["Slot", "soon"]}),
        (Annotated[dt.datetime | None, Meta(title="when")], WITH_ZONE, "soon"),
    ],
    ids=str,
)
def test_times_and_keys_are_checked_before_an_answer_counts(kind: Any, good: Any, bad: Any) -> None:
    schema = schema_of(kind)
    assert complaints(good, schema) == []
    assert accepts(kind, good)
    assert complaints(bad, schema) != []
    assert not accepts(kind, bad)


def test_a_time_without_a_zone_is_ambiguous_in_an_answer() -> None:
    assert "an offset" in complaints(WITHOUT, schema_of(dt.datetime))[0]
    assert complaints(WITHOUT, schema_of(Annotated[dt.datetime, Meta(tz=False)])) == []


class Unknown:
    pass


@pytest.mark.parametrize(
    "kind", [Any, None, object, Unknown, list[Unknown], msgspec.Raw, Unknown | None, "text"]
)
def test_a_type_that_no_one_knows_has_no_schema_and_takes_anything(kind: Any) -> None:
    assert schema_of(kind) is None
    assert shaped({"a": [1]}, kind) == {"a": [1]}


def test_a_schema_can_be_kept_as_json() -> None:
    for kind in [*KINDS, Basket, list[Held]]:
        schema = schema_of(kind)
        assert msgspec.json.decode(msgspec.json.encode(schema)) == schema
