"""Values come back equal and of the same exact types, or are refused by name; bytes are never trusted."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import io
import ipaddress
import math
import os
import pathlib
import struct
import subprocess
import sys
import threading
import types
import uuid
import zoneinfo
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from everstep.codec.tags import Tag
from everstep.codec.values import Values, is_plain
from everstep.errors import BadRequest, ValueNotStorable, ValueUnreadable

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
T = TypeVar("T")


class Colour(enum.Enum):
    RED = "r"
    GREEN = (0, 255, 0)
    ROUGE = RED


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class IntRights(enum.IntFlag):
    READ = 1


class Outer:
    class Mood(enum.Enum):
        GOOD = 1


class Point(NamedTuple):
    x: int
    y: object = 0


class LabelledPoint(Point):
    pass


@dataclasses.dataclass
class Base:
    made: ClassVar[int] = 0
    name: str

    def __post_init__(self) -> None:
        type(self).made += 1


@dataclasses.dataclass
class Order(Base):
    items: list[object] = dataclasses.field(default_factory=list)
    total: object = dataclasses.field(init=False, default=None)

    @functools.cached_property
    def count(self) -> int:
        return len(self.items)


@dataclasses.dataclass(frozen=True, slots=True)
class Money:
    amount: decimal.Decimal
    currency: str = "EUR"


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


@dataclasses.dataclass
class Never:
    set: int = dataclasses.field(init=False)


@dataclasses.dataclass
class Words(dict[str, str]):
    language: str = "en"


class Plain:
    pass


class Text(str):
    __slots__ = ()


class Event(msgspec.Struct):
    made: ClassVar[int] = 0
    name: str
    when: object = None
    tags: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        Event.made += 1


class Quiet(msgspec.Struct, frozen=True, kw_only=True, tag=True, rename="camel", gc=False):
    some_name: str
    more: object = msgspec.UNSET


class Loose(msgspec.Struct, dict=True):
    name: str


@pytest.fixture
def values() -> Values:
    return Values()


def same(a: object, b: object) -> bool:
    """Compare by exact type, bit for bit, and in order."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack(">d", a) == struct.pack(">d", b)
    if isinstance(a, dict) and isinstance(b, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (list, tuple, collections.deque)) and isinstance(b, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (set, frozenset)) and isinstance(b, (set, frozenset)):
        return len(a) == len(b) and all(any(same(one, other) for other in b) for one in a)
    if isinstance(a, decimal.Decimal):
        return str(a) == str(b)
    return a == b and (isinstance(a, int) or repr(a) == repr(b))


def kind_of(value: object) -> str:
    return value[:20] if type(value) is str and value.startswith("total") else type(value).__name__


def there_and_back(values: Values, value: object) -> Any:
    return values.decode(values.encode(value, "value"))


def tagged(tag: int, payload: object) -> bytes:
    return msgspec.msgpack.encode(Ext(int(tag), msgspec.msgpack.encode(payload)))


def refusal(values: Values, value: object, where: str = "total") -> ValueNotStorable:
    with pytest.raises(ValueNotStorable) as caught:
        values.encode(value, where)
    return caught.value


def unreadable(values: Values, data: bytes) -> ValueUnreadable:
    with pytest.raises(ValueUnreadable) as caught:
        values.decode(data, "total")
    assert "`total`" in str(caught.value)
    return caught.value


def nested(depth: int, wrap: Any, value: object) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


def module_of(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> Any:
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(source, vars(module))
    return module


PLAIN: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**63 - 1, -(2**63), 2**64 - 1),
    *(0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 5e-324),
    *("", "hello", "ümläut €", "\0", "😀", b"", b"\0\xff"),
    *([], {}, [[]], {"": {}}, {"b": 1, "a": [1, {"c": None}]}, [[1, 2], {"x": [3.5, b"y"]}, None]),
]
TAGGED: list[Any] = [
    *(2**64, -(2**63) - 1, 10**5000, [2**64], {"big": -(2**64)}),
    *((), (1, 2.0, "x"), ((1,), [(2,)]), [1, ()], {"a": (1,)}),
    *(set(), {1, "1", 1.5, None, (1, 2)}, {True}, {1}, {1.0}, frozenset({frozenset({1}), 2})),
    *({1: "a", "1": "b"}, {True: 1}, {None: 1, (1, "x"): {2: 3}}, {1.5: [], b"k": {}}, {frozenset({1}): 2}),
    *(bytearray(b"\0\xff"), complex(-0.0, math.inf), complex(1, -2), range(3), range(10, -(2**70), -3), ...),
    *(collections.OrderedDict(b=1, a=2), collections.deque([1, (2,)]), collections.deque([1, 2], maxlen=3)),
    *(dt.date(1, 1, 1), dt.time(1, 2, 3, 4), dt.time(1, fold=1, tzinfo=dt.UTC)),
    *(dt.timedelta(-1, 3, 5), dt.timedelta.max, dt.timedelta.min, dt.UTC, BERLIN),
    *(dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.datetime.min, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=-90), "odd")),
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=1, microseconds=7))),
    *(uuid.UUID(int=7), fractions.Fraction(-(2**70), 3)),
    *(decimal.Decimal(text) for text in ("1.10", "-0", "0E+5", "NaN", "-sNaN12", "Infinity", "1E-99999")),
    *(
        pathlib.PurePosixPath("a/../b"),
        pathlib.PureWindowsPath("C:\\x"),
        pathlib.Path("/tmp/x"),
        pathlib.Path(),
    ),
    *(ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("fe80::1%eth0")),
    *(ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::/0")),
    *(ipaddress.ip_interface("10.0.0.1/8"), ipaddress.ip_interface("::1/128")),
    *(Colour.RED, Colour.GREEN, Level.LOW, Word.YES, Outer.Mood.GOOD, {Word.YES: Level.LOW}),
    *(Rights.READ, Rights.READ | Rights.RUN, Rights(0), IntRights(9), IntRights.READ),
    *(Point(1, (2,)), LabelledPoint(1), Money(decimal.Decimal("1.0")), {Money(decimal.Decimal(1)): 1}),
    *(Order("o", [1, (2,)]), [Order("o", [Order("p")])], Box((1,)), Box[int](1)),
    *(
        Event("e", dt.date(2026, 1, 1), ["x"]),
        Quiet(some_name="q"),
        Quiet(some_name="q", more=None),
        Loose("l"),
    ),
]


@pytest.mark.parametrize("value", PLAIN, ids=kind_of)
def test_plain_value_comes_back_exactly(values: Values, value: object) -> None:
    assert is_plain(value)
    assert same(there_and_back(values, value), value)
    assert values.encode(value, "value") == msgspec.msgpack.encode(value)


@pytest.mark.parametrize("value", TAGGED, ids=kind_of)
def test_tagged_value_comes_back_exactly(values: Values, value: object) -> None:
    assert not is_plain(value)
    assert same(there_and_back(values, value), value)
    assert same(there_and_back(values, {"deep": [{"in": value}]}), {"deep": [{"in": value}]})


@pytest.mark.parametrize("value", TAGGED, ids=kind_of)
def test_payload_decodes_standalone(values: Values, value: object) -> None:
    raw = msgspec.msgpack.decode(values.encode([value], "value"), ext_hook=lambda code, data: bytes(data))
    for payload in (one for one in raw if isinstance(one, bytes)):
        values.decode(payload)


scalars = st.one_of(
    *(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.decimals(),
        st.uuids(),
    ),
    *(st.complex_numbers(), st.dates(), st.datetimes(), st.times(), st.timedeltas(), st.fractions()),
    st.datetimes(timezones=st.just(BERLIN)),
    st.sampled_from([Colour.RED, Level.LOW, Word.YES, Rights.READ | Rights.WRITE, ...]),
)
hashable = scalars.filter(lambda value: not (isinstance(value, decimal.Decimal) and value.is_snan()))
keys = st.recursive(
    hashable, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=4),
        st.builds(Point, st.integers(), inner),
        st.builds(Order, st.text(), st.lists(inner, max_size=3)),
        st.builds(Event, st.text(), inner),
    ),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None, database=None)
@given(anything)
def test_any_value_gives_the_same_bytes_after_a_round_trip(value: object) -> None:
    values = Values()
    data = values.encode(value, "value")
    back = values.decode(memoryview(data))
    assert type(back) is type(value)
    assert values.encode(back, "value") == data


@settings(max_examples=150, deadline=None, database=None)
@given(st.binary(max_size=60))
@example(b"")
@example(b"\xc1")
@example(b"\x01\x01")
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xc9\xff\xff\xff\xff\x01")
@example(b"\x91" * 5000 + b"\x01")
@example(b"\xd6\xff\x01\x02\x03\x04")
def test_hostile_bytes_give_a_value_or_value_unreadable(data: bytes) -> None:
    try:
        Values().decode(data)
    except ValueUnreadable as refused:
        assert "`value`" in refused.message


FOREVER = Ext(Tag.RANGE.value, msgspec.msgpack.encode([0, 2**62, 1]))
payloads = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=9,
)


@settings(max_examples=150, deadline=None, database=None)
@given(st.sampled_from([*Tag, -2, 0, 21, 127]), payloads)
@example(Tag.MAP, [1, 2, 3])
@example(Tag.MAP, [[], 1])
@example(Tag.MAP, [1, 2, True, 3])
@example(Tag.SET, [[]])
@example(Tag.TUPLE, "abc")
@example(Tag.FRACTION, [1, 0])
@example(Tag.FRACTION, ["1e999999999"])
@example(Tag.FRACTION, ["1e999999999", 1])
@example(Tag.DEQUE, [None, FOREVER])
@example(Tag.ARRAY, ["<f8", FOREVER, "C", b""])
@example(Tag.DATACLASS, FOREVER)
@example(Tag.NAMEDTUPLE, [f"{__name__}:Point", FOREVER])
@example(Tag.SET, [Ext(Tag.TEXT.value, b"\x92\xa7Decimal\xac1e9999999999")])
@example(Tag.DATETIME, [2026, 13, 1, 0, 0, 0, 0, 0, None])
@example(Tag.ZONEINFO, "../../../etc/passwd")
@example(Tag.TEXT, ["eval", "1"])
@example(Tag.ENUM, [f"{__name__}:Colour", "MAUVE"])
@example(Tag.ENUM, [f"{__name__}:Colour", 3])
@example(Tag.ENUM, [f"{__name__}:Rights", 64])
@example(Tag.NAMEDTUPLE, [f"{__name__}:Point", {}])
@example(Tag.DATACLASS, [f"{__name__}:Money", {"amount": 1, "__class__": 2}])
@example(Tag.DATACLASS, ["os:system", {}])
@example(Tag.ARRAY, ["|O", [1], "C", b"12345678"])
@example(Tag.ARRAY, ["<f8", [10**9], "C", b"12345678"])
@example(Tag.ARRAY_SCALAR, ["<f8", b"1"])
def test_hostile_payload_gives_a_value_or_value_unreadable(tag: int, payload: object) -> None:
    try:
        Values().decode(tagged(tag, payload))
    except ValueUnreadable as refused:
        assert "`value`" in refused.message


def test_truncated_bytes_are_unreadable_at_every_length(values: Values) -> None:
    data = values.encode([Order("o", [(1, 2)]), {1: dt.date(2026, 1, 1)}], "value")
    for length in range(len(data)):
        unreadable(values, data[:length])


def test_deeply_nested_tags_are_unreadable(values: Values) -> None:
    data = b"\x01"
    for _ in range(5000):
        data = msgspec.msgpack.encode(Ext(Tag.TUPLE.value, b"\x91" + data))
    unreadable(values, data)


def test_unknown_tag_fails_closed(values: Values) -> None:
    assert "unknown tag 99" in str(unreadable(values, tagged(99, 1)))


def test_order_of_a_dict_is_kept_and_order_of_a_set_is_not_seen(values: Values) -> None:
    assert list(there_and_back(values, {"b": 1, "a": 2})) == ["b", "a"]
    assert list(there_and_back(values, {2: 1, 1: 2})) == [2, 1]
    up, down = set(range(0, 4000, 8)), set(range(3992, -1, -8))
    assert list(up) != list(down)
    assert values.encode(up, "value") == values.encode(down, "value")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([{"a": 1, "b": {"c": 1, "d": 2}}], [{"b": {"d": 2, "c": 1}, "a": 1}]),
        (({"a": 1, "b": 2},), ({"b": 2, "a": 1},)),
        ({1: {"a": 1, "b": ()}, "x": 2}, {"x": 2, 1: {"b": (), "a": 1}}),
        (Order("o", [{2: 1, 1: 2}]), Order("o", [{1: 2, 2: 1}])),
        ({(1, frozenset({1, 9, 17}))}, {(1, frozenset({17, 9, 1}))}),
    ],
)
def test_canonical_bytes_do_not_see_the_order_of_a_dict(values: Values, one: object, other: object) -> None:
    assert values.canonical(one) == values.canonical(other)


def test_canonical_bytes_see_every_other_difference(values: Values) -> None:
    pairs: list[tuple[object, object]] = [
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": True}),
        ((), []),
        ({1: 2}, {2: 1}),
    ]
    ordered = collections.OrderedDict
    for one, other in [*pairs, (ordered(a=1, b=2), ordered(b=2, a=1)), ({"a": 0.0}, {"a": -0.0})]:
        assert values.canonical(one) != values.canonical(other)


def test_one_and_true_are_different_keys_and_members(values: Values) -> None:
    for one, other in [({1}, {True}), ({1: 0}, {True: 0}), ((1,), (1.0,)), ([0.0, ()], [-0.0, ()])]:
        assert values.encode(one, "value") != values.encode(other, "value")


def test_nan_equals_itself(values: Values) -> None:
    assert values.encode((math.nan,), "value") == values.encode((float("nan"),), "value")
    [back] = there_and_back(values, {math.nan})
    assert math.isnan(back)


@pytest.mark.parametrize(
    "value",
    [
        *({1: 2}, {Text("a"): 1}, {Word.YES: 1}, {None: 1}, {b"k": 1}, {(): 1}),
        *(Text("a"), Level.LOW, Word.YES, (), set(), bytearray(), 2**64, dt.date(2026, 1, 1), "\ud800"),
    ],
    ids=kind_of,
)
def test_value_that_msgpack_would_flatten_is_not_plain_at_any_depth(value: object) -> None:
    for wrapped in (value, [value], {"a": value}, [{"a": 1}, value], {"a": [{"b": value}]}, [[[value]]]):
        assert not is_plain(wrapped)


def test_dict_of_an_object_is_looked_into() -> None:
    thing = Plain()
    thing.when = dt.date(2026, 1, 1)  # type: ignore[attr-defined]
    assert not is_plain([vars(thing), {1: 2}])
    assert not is_plain([{"a": 1}, [vars(thing)]])
    thing.when = 1  # type: ignore[attr-defined]
    assert is_plain([vars(thing), {"a": 1}])


def test_dict_that_once_had_another_key_is_plain_again() -> None:
    table: dict[object, object] = {1: 1, "a": 2}
    del table[1]
    assert is_plain([table])
    table["b"] = {1: 1}
    assert not is_plain([table])


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}, lambda value: (value,)])
@pytest.mark.parametrize("leaf", [1, dt.date(2026, 1, 1)], ids=kind_of)
def test_two_hundred_levels_work(values: Values, wrap: Any, leaf: object) -> None:
    value = nested(200, wrap, leaf)
    assert there_and_back(values, value) == value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}, lambda value: (value,)])
@pytest.mark.parametrize("leaf", [1, dt.date(2026, 1, 1)], ids=kind_of)
def test_five_thousand_levels_are_refused(values: Values, wrap: Any, leaf: object) -> None:
    assert "nested too deeply" in refusal(values, nested(5000, wrap, leaf)).message


def test_value_that_refers_to_itself_is_refused(values: Values) -> None:
    loop: list[object] = [1]
    loop.append(loop)
    twice: list[object] = []
    twice += [twice, twice]
    table: dict[str, object] = {"when": dt.date(2026, 1, 1)}
    table["self"] = (table,)
    order = Order("o")
    order.items.append(order)
    for value in (loop, twice, table, order):
        assert "refers to itself" in refusal(values, value).message


def test_long_text_and_long_list_work(values: Values) -> None:
    text = "x" * 2**20
    assert there_and_back(values, text) == text
    assert there_and_back(values, (text,)) == (text,)
    rows = [{"i": number, "t": [number]} for number in range(5000)]
    assert there_and_back(values, rows) == rows


def a_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    "value",
    [
        *(object(), Plain(), Plain, len, lambda: 0, a_generator(), iter([]), threading.Lock(), io.StringIO()),
        *(
            sys,
            ValueError("x"),
            NotImplemented,
            memoryview(b"x"),
            functools.partial(len),
            slice(1),
            {}.keys(),
        ),
        *(type("I", (int,), {})(1), type("D", (dict,), {})()),
        *(types.SimpleNamespace(a=1), os.times()),
        *(msgspec.Raw(b"\x01"), Ext(2, b"\x90"), types.MappingProxyType({})),
    ],
    ids=kind_of,
)
def test_value_without_a_data_only_form_is_refused_with_its_path(values: Values, value: object) -> None:
    refused = refusal(values, {"items": [1, (2,), {"a": 0}, {"when": value}]})
    assert refused.message.startswith("cannot store `total.items[3].when`: ")
    assert "data-only form" in refused.message
    assert "host.values.register" in refused.fix
    assert 'persist="no"' in refused.fix
    assert refused.details["where"] == "total.items[3].when"


def test_refusal_names_the_type(values: Values) -> None:
    assert "`_thread.lock`" in refusal(values, threading.Lock()).message
    assert "exception (`ValueError`)" in refusal(values, ValueError()).message


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([1, object()], "total[1]"),
        ({"a b": object()}, "total['a b']"),
        ({1: object()}, "total[1]"),
        ({(1,): object()}, "total.values()[0]"),
        ({"x": 1, object(): 2}, "total.keys()[1]"),
        ({1, Plain}, "total{item}"),
        (collections.deque([object()]), "total[0]"),
        (Point(1, [object()]), "total.y[0]"),
        (Order("o", [Order("p", [object()])]), "total.items[0].items[0]"),
        (Event("e", {"x": object()}), "total.when.x"),
        (dt.datetime(2026, 1, 1, tzinfo=type("Odd", (dt.tzinfo,), {})()), "total.tzinfo"),
        ({"a": ["ok", "\ud800"]}, "total.a[1]"),
        ([type("L", (list,), {})([object()])], "total[0]"),
        (nested(100, lambda value: [0, (value,)], object()), "total" + "[1][0]" * 100),
        ({"\ud800": 1}, "total.keys()[0]"),
    ],
    ids=kind_of,
)
def test_path_names_the_smallest_part_to_blame(values: Values, value: object, path: str) -> None:
    assert f"cannot store `{path}`: " in refusal(values, value).message


def test_lone_surrogate_is_refused_as_text(values: Values) -> None:
    assert "lone surrogate" in refusal(values, ["\ud800"]).message
    assert "lone surrogate" in refusal(values, (pathlib.PurePosixPath("\udcff"),)).message


def test_local_class_is_refused(values: Values) -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    refused = refusal(values, {"a": Local(1)})
    assert "`total.a`" in refused.message
    assert "local to a function" in refused.message
    assert "top level of a module" in refused.fix


def test_class_that_its_name_does_not_lead_to_is_refused(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Point(1)
    monkeypatch.setattr(sys.modules[__name__], "Point", LabelledPoint)
    refused = refusal(values, [old])
    assert f"not the one that is found as `{__name__}:Point`" in refused.message
    assert "top level" in refusal(values, enum.Enum("Made", "A").A).fix  # type: ignore[attr-defined]


def test_attribute_that_is_not_a_field_is_refused(values: Values) -> None:
    order = Order("o")
    order.extra = 1  # type: ignore[attr-defined]
    point, loose = LabelledPoint(1), Loose("l")
    point.extra = loose.extra = 1  # type: ignore[attr-defined]
    for value in (order, point, loose):
        assert "the attribute `extra`, which is not one of its fields" in refusal(values, value).message


def test_cached_property_is_not_taken_for_an_attribute(values: Values) -> None:
    order = Order("o", [1])
    assert order.count == 1
    assert "count" not in vars(there_and_back(values, order))


def test_dataclass_with_a_field_never_set_is_refused(values: Values) -> None:
    assert "field `set` of a `Never` was never set" in refusal(values, Never()).message


def test_dataclass_with_hidden_contents_is_refused(values: Values) -> None:
    refusal(values, Words("de"))


def test_reading_runs_neither_init_nor_post_init(values: Values) -> None:
    order, event = Order("o", [1]), Event("e")
    order.total, event.when = (3,), 4
    orders, events = Order.made, Event.made
    assert there_and_back(values, order) == order
    back = there_and_back(values, event)
    assert (type(back), back) == (Event, event)
    assert (Order.made, Event.made) == (orders, events)


def test_field_newer_than_the_value_takes_a_constant_default(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import dataclasses, msgspec, typing\n{}"
    kinds = {
        "@dataclasses.dataclass(slots=True)\nclass C:\n a: int\n": "dataclasses.field(default_factory={})",
        "class C(msgspec.Struct):\n a: int\n": "msgspec.field(default_factory={})",
        "class C(typing.NamedTuple):\n a: int\n": "",
    }
    for old, factory in kinds.items():
        module = module_of(monkeypatch, "shop", source.format(old))
        data = values.encode(module.C(1), "value")
        module = module_of(monkeypatch, "shop", source.format(f"{old} b: object = 7\n"))
        assert values.decode(data) == module.C(1, 7)
        if factory:
            module = module_of(
                monkeypatch, "shop", source.format(f"{old} b: object = {factory.format('list')}\n")
            )
            assert values.decode(data).b == []
            module_of(monkeypatch, "shop", source.format(f"{old} b: object = {factory.format('object')}\n"))
            assert "`b` was not stored" in str(unreadable(values, data))
        module_of(monkeypatch, "shop", source.format(old.replace("a: int", "b: int")))
        assert "no longer has the field `a`" in str(unreadable(values, data))


def test_class_that_is_not_loaded_is_unreadable_and_not_imported(values: Values) -> None:
    assert "antigravity" not in sys.modules
    refused = unreadable(values, tagged(Tag.DATACLASS, ["antigravity:Kite", {}]))
    assert "`antigravity:Kite` is not loaded" in refused.message
    assert "Import the module `antigravity`" in refused.fix
    assert "register" in refused.fix
    assert "antigravity" not in sys.modules


def test_a_class_that_was_renamed_is_read_by_an_alias(
    monkeypatch: pytest.MonkeyPatch, values: Values
) -> None:
    source = "import dataclasses\n@dataclasses.dataclass\nclass {}:\n    a: int\n"
    module_of(monkeypatch, "shop", source.format("Order"))
    data = values.encode(sys.modules["shop"].Order(1), "value")
    module_of(monkeypatch, "shop", source.format("Purchase"))
    refused = unreadable(values, data)
    assert "`shop:Order` is gone" in refused.message
    assert "`Order = TheNewName`" in refused.fix
    module_of(monkeypatch, "shop", source.format("Purchase") + "Order = Purchase\n")
    assert values.decode(data).a == 1


@pytest.mark.parametrize(
    ("tag", "noun", "right", "payload"),
    [
        (Tag.ENUM, "enum", "Colour", "RED"),
        (Tag.NAMEDTUPLE, "named tuple", "Point", {"x": 1, "y": 2}),
        (Tag.DATACLASS, "dataclass", "Order", {"name": "n", "items": [], "total": 1}),
        (Tag.STRUCT, "Struct", "Event", {"name": "n", "when": 1, "tags": []}),
        (Tag.MODEL, "pydantic model", "", None),
    ],
)
def test_class_must_be_of_the_kind_its_tag_says(
    values: Values, tag: Tag, noun: str, right: str, payload: object
) -> None:
    for name in {"Colour", "Point", "Order", "Event", "Plain", "BERLIN", "a_generator"} - {right}:
        refused = unreadable(values, tagged(tag, [f"{__name__}:{name}", payload]))
        assert f"is not a {noun}" in refused.message or "is gone" in refused.message
    if right:
        values.decode(tagged(tag, [f"{__name__}:{right}", payload]))


def test_lookup_runs_no_module_getattr(values: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(monkeypatch, "lazy", "asked = []\ndef __getattr__(name): asked.append(name)")
    unreadable(values, tagged(Tag.DATACLASS, ["lazy:Kite", {}]))
    assert module.asked == []


SCRIPT = """
import dataclasses, enum, sys
from everstep.codec.values import Values

@dataclasses.dataclass
class Parcel:
    weight: int

if __name__ == "__main__":
    if sys.argv[1] == "write":
        sys.stdout.write(Values().encode([Parcel(3)], "value").hex())
    else:
        [parcel] = Values().decode(bytes.fromhex(sys.argv[1]))
        assert type(parcel) is Parcel, type(parcel)
        sys.stdout.write(str(parcel.weight))
"""


def test_class_of_a_script_is_stored_under_the_name_of_the_script(tmp_path: pathlib.Path) -> None:
    (tmp_path / "parcels.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(tmp_path)])}

    def run(*command: str) -> str:
        return subprocess.run(
            [sys.executable, *command],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        ).stdout

    written = run("parcels.py", "write")
    assert b"parcels:Parcel" in bytes.fromhex(written)
    assert run("-m", "parcels", written) == "3"
    code = "import parcels; print(parcels.Values().decode(bytes.fromhex('{}')))"
    assert run("-c", code.format(written)) == "[Parcel(weight=3)]\n"


@pytest.mark.parametrize(
    ("spec_name", "file", "stem"),
    [
        (None, "/x/shop.py", "shop"),
        ("pkg.shop", "/x/pkg/shop.py", "pkg.shop"),
        ("__main__", "/x/app.zip/__main__.py", "__main__"),
        (None, None, "__main__"),
    ],
)
@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_main_module_goes_by_its_spec_or_its_file(
    values: Values,
    monkeypatch: pytest.MonkeyPatch,
    spec_name: str | None,
    file: str | None,
    stem: str,
    name: str,
) -> None:
    main = module_of(monkeypatch, name, "import enum\nclass Size(enum.Enum):\n BIG = 1\n")
    monkeypatch.setitem(sys.modules, "__main__", main)
    main.__spec__ = types.SimpleNamespace(name=spec_name) if spec_name else None
    if file:
        main.__file__ = file
    data = values.encode(main.Size.BIG, "value")
    assert f"{stem}:Size".encode() in data
    assert values.decode(data) is main.Size.BIG


def test_name_of_a_script_means_the_loaded_module_first(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import enum\nclass Size(enum.Enum):\n BIG = 1\n"
    main = module_of(monkeypatch, "__main__", source)
    main.__file__, main.__spec__ = "/x/shop.py", None
    data = values.encode(main.Size.BIG, "value")
    shop = module_of(monkeypatch, "shop", source)
    assert values.decode(data) is shop.Size.BIG
    refusal(values, main.Size.BIG)
    del shop.Size
    assert values.decode(data) is main.Size.BIG


class Socket:
    def __init__(self, port: int) -> None:
        self.port = port


def test_registered_class_is_stored_under_its_name(values: Values) -> None:
    values.register(
        Socket, name="socket", encode=lambda one: (one.port,), decode=lambda parts: Socket(*parts)
    )
    data = values.encode({"a": [Socket(80)]}, "value")
    assert values.decode(data)["a"][0].port == 80
    assert b"Socket" not in data
    refused = unreadable(Values(), data)
    assert "no serializer named `socket`" in refused.message
    assert "name='socket'" in refused.fix


def test_registered_class_is_exact_and_goes_before_its_kind(values: Values) -> None:
    values.register(Point, name="point", encode=lambda point: [point.x], decode=lambda parts: Point(*parts))
    assert same(there_and_back(values, Point(3)), Point(3))
    assert b"point" in values.encode(Point(3), "value")
    assert b"LabelledPoint" in values.encode(LabelledPoint(3), "value")


def test_registered_class_that_does_not_come_back_is_refused(values: Values) -> None:
    values.register(Socket, name="socket", encode=lambda one: one.port, decode=lambda port: Socket(port + 1))
    refused = refusal(values, {"a": [Socket(80)]})
    assert "`total.a[0]`" in refused.message
    assert "does not come back equal" in refused.message


def test_registered_class_whose_serializer_fails_is_refused(values: Values) -> None:
    values.register(Socket, name="socket", encode=lambda one: one.missing, decode=Socket)
    assert "`total[0]`" in refusal(values, [Socket(80)]).message
    values.register(Socket, name="socket", encode=lambda one: [object()], decode=Socket)
    assert "cannot store `total[0][0]`: a value of type `object`" in refusal(values, [Socket(80)]).message
    values.register(Socket, name="socket", encode=lambda one: one, decode=Socket)
    assert "refers to itself" in refusal(values, [Socket(80)]).message


def test_class_registered_under_a_new_name_is_read_under_both(values: Values) -> None:
    values.register(Socket, name="old", encode=lambda one: one.port, decode=Socket)
    data = values.encode(Socket(1), "value")
    values.register(Socket, name="new", encode=lambda one: one.port, decode=Socket)
    assert values.decode(data).port == 1
    assert b"new" in values.encode(Socket(1), "value")


def test_registered_class_is_found_for_values_stored_before(values: Values, monkeypatch: Any) -> None:
    data = values.encode(Point(1, 2), "value")
    values.register(Point, name="point", encode=list, decode=lambda parts: Point(*parts))
    monkeypatch.delattr(sys.modules[__name__], "Point")
    assert values.decode(data) == (1, 2)


def test_registration_that_cannot_mean_anything_is_refused(values: Values) -> None:
    for cls in (str, dict, tuple, dt.datetime):
        with pytest.raises(BadRequest, match="stores it itself"):
            values.register(cls, name="x", encode=str, decode=str)
    values.register(Socket, name="x", encode=str, decode=str)
    with pytest.raises(BadRequest, match="`x` already stands for"):
        values.register(Plain, name="x", encode=str, decode=str)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 2**99, 1.5, "x", b"x", 1j, ..., (), (1, ("x", None)), frozenset({(1,), "x"})),
        *(dt.date.min, dt.datetime.min, dt.datetime(2026, 1, 1, tzinfo=BERLIN), (dt.time(1, tzinfo=dt.UTC),)),
        *(uuid.UUID(int=1), decimal.Decimal(1), fractions.Fraction(1), pathlib.Path("x"), range(3), dt.UTC),
        *(Colour.RED, (Level.LOW, Rights.READ), ipaddress.ip_address("::1"), nested(50, lambda v: (v, v), 1)),
    ],
    ids=kind_of,
)
def test_frozen_value_may_be_shared(values: Values, value: object) -> None:
    assert values.is_frozen(value)


@pytest.mark.parametrize(
    "value",
    [
        *(
            [],
            {},
            set(),
            bytearray(),
            ([],),
            (1, ({},)),
            collections.deque(),
            Text("x"),
            object(),
            (Plain(),),
        ),
        *(Order("o"), Money(decimal.Decimal(1)), Event("e"), Point(1), (Point(1),), Plain, math.sqrt),
        dt.datetime(2026, 1, 1, tzinfo=type("Odd", (dt.tzinfo,), {})()),
    ],
    ids=kind_of,
)
def test_value_that_could_change_is_not_frozen(values: Values, value: object) -> None:
    assert not values.is_frozen(value)


MODELS = """
import functools, typing
from pydantic import BaseModel, ConfigDict, PrivateAttr, RootModel, field_validator
T = typing.TypeVar("T")
class Line(BaseModel):
    item: str
    count: int = 1
class Cart(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    lines: tuple[Line, ...] = ()
    when: typing.Any = None
    _seen: set = PrivateAttr(default_factory=set)
    @field_validator("lines")
    def check(cls, lines): checked.append(1); return lines
    @functools.cached_property
    def size(self): return len(self.lines)
class Numbers(RootModel[list[int]]): pass
class Crate(BaseModel, typing.Generic[T]):
    content: T
IntCrate = Crate[int]
checked = []
"""


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("pydantic")
    return module_of(monkeypatch, "shop_models", MODELS)


def test_pydantic_model_comes_back_exactly_and_unvalidated(values: Values, models: Any) -> None:
    cart = models.Cart(lines=(models.Line(item="x"),), note=(1, 2))
    cart._seen.add(1)
    assert cart.size == 1
    checked = len(models.checked)
    back = there_and_back(values, cart)
    assert len(models.checked) == checked
    assert type(back) is models.Cart
    assert back.model_dump() == cart.model_dump()
    assert back.model_fields_set == {"lines", "note"}
    assert back.lines[0].model_fields_set == {"item"}
    assert (back.note, back._seen, back.size) == ((1, 2), {1}, 1)
    assert back == models.Cart(lines=(models.Line(item="x"),), note=(1, 2)) or back._seen == {1}


def test_root_and_generic_models_come_back(values: Values, models: Any) -> None:
    for value in (models.Numbers([1, 2]), models.IntCrate(content=3)):
        back = there_and_back(values, value)
        assert (type(back), back) == (type(value), value)


def test_pydantic_model_is_refused_by_path(values: Values, models: Any) -> None:
    assert "`total[0].when.a`" in refusal(values, [models.Cart(when={"a": object()})]).message
    assert "`total.note`" in refusal(values, models.Cart(note=object())).message


def test_pydantic_field_newer_than_the_value_takes_its_default(values: Values, monkeypatch: Any) -> None:
    pytest.importorskip("pydantic")
    source = "from pydantic import BaseModel, Field\nclass C(BaseModel):\n a: int\n{}"
    data = values.encode(module_of(monkeypatch, "shop", source.format("")).C(a=1), "value")
    new = module_of(monkeypatch, "shop", source.format(" b: int | None = None\n c: list = []\n"))
    assert values.decode(data) == new.C.model_construct(_fields_set={"a"}, a=1, b=None, c=[])
    module_of(monkeypatch, "shop", source.format(" b: int\n"))
    assert "`b` was not stored" in str(unreadable(values, data))


def test_numpy_array_comes_back_with_dtype_order_and_shape(values: Values) -> None:
    np = pytest.importorskip("numpy")
    grid = np.arange(24, dtype="<i2").reshape(2, 3, 4)
    arrays = [
        *(grid, np.asfortranarray(grid), grid[:, ::2], grid.T, np.array(5.5), np.zeros((0, 3)), np.array([])),
        *(np.array([1, 2], dtype=">f8"), np.array(["ab", "ç"]), np.array([b"x"]), np.array([True])),
        *(np.array(["2026-01-01", "NaT"], dtype="M8[D]"), np.array([1 + 2j]), np.array([np.nan, -0.0])),
        np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8", (1,))]),
        np.array([(1, 2.5)], dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    ]
    for array in arrays:
        [back] = there_and_back(values, [array])
        assert (type(back), back.dtype, back.shape) == (np.ndarray, array.dtype, array.shape)
        assert back.tobytes() == array.tobytes()
        assert back.flags.writeable
        if array.flags.contiguous:
            assert back.flags.f_contiguous == array.flags.f_contiguous


def test_numpy_scalar_comes_back_with_its_type(values: Values) -> None:
    np = pytest.importorskip("numpy")
    scalars = [
        *(np.float64(1.5), np.float32(-0.0), np.int8(3), np.uint64(2**63), np.bool_(True), np.complex64(1j)),
        *(
            np.str_("x"),
            np.bytes_(b"x"),
            np.datetime64("2026-01-01"),
            np.timedelta64(3, "s"),
            np.longdouble(1.5),
        ),
    ]
    for scalar in scalars:
        back = there_and_back(values, (scalar,))[0]
        assert (type(back), back, back.dtype) == (type(scalar), scalar, scalar.dtype)


def test_numpy_objects_and_subclasses_are_refused(values: Values) -> None:
    np = pytest.importorskip("numpy")
    hidden = np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")])
    for array in (np.array([object()]), hidden, np.ma.array([1]), np.rec.array([(1,)]), np.str_("x\0")):
        assert "`total[0]`" in refusal(values, [array]).message
    assert "never read" in str(unreadable(values, tagged(Tag.ARRAY, ["|O", [1], "C", b"12345678"])))


def test_numpy_array_is_unreadable_until_numpy_is_loaded(values: Values, monkeypatch: Any) -> None:
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    refused = unreadable(values, tagged(Tag.ARRAY, ["<f8", [0], "C", b""]))
    assert "numpy is not loaded" in refused.message


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (tagged(Tag.DATACLASS, ["gone:Page", {"url": "x", "size": 3}]), "Page(url='x', size=3)"),
        (tagged(Tag.STRUCT, ["gone:Outer.Page", {"url": "x"}]), "Outer.Page(url='x')"),
        (tagged(Tag.NAMEDTUPLE, ["gone:Pair", {"a": 1}]), "Pair(a=1)"),
        (tagged(Tag.ENUM, ["gone:Tone", "KIND"]), "Tone.KIND"),
        (tagged(Tag.ENUM, ["gone:Rights", 3]), "Rights(value=3)"),
        (
            tagged(Tag.MODEL, ["gone:User", [{"name": "a"}, ["name"], {"more": 1}, None]]),
            "User(name='a', more=1)",
        ),
        (tagged(Tag.REGISTERED, ["money/1", [5, "EUR"]]), "money/1(value=[5, 'EUR'])"),
        (tagged(Tag.DATACLASS, [f"{__name__}:Colour", {"url": "x"}]), "Colour(url='x')"),
    ],
)
def test_loose_values_show_the_fields_of_a_class_that_is_not_at_hand(data: bytes, shown: str) -> None:
    loose = Values(loose=True)
    value = loose.decode(data)
    assert repr(value) == shown
    assert loose.seen_without_class == {value.type_name}
    with pytest.raises(ValueUnreadable):
        Values().decode(data)
    with pytest.raises(ValueNotStorable):
        loose.encode(value, "value")


def test_loose_values_import_nothing_and_still_refuse_damage() -> None:
    before = set(sys.modules)
    assert (
        repr(Values(loose=True).decode(tagged(Tag.DATACLASS, ["antigravity:Page", {"a": 1}]))) == "Page(a=1)"
    )
    assert set(sys.modules) == before
    for data in (tagged(Tag.DATACLASS, ["gone:Page"]), tagged(Tag.MODEL, ["gone:User", {}]), b"\xc1"):
        with pytest.raises(ValueUnreadable):
            Values(loose=True).decode(data)


def test_loose_values_use_the_classes_that_are_loaded(values: Values) -> None:
    loose = Values(loose=True)
    assert loose.decode(values.encode({"c": Colour.RED}, "value")) == {"c": Colour.RED}
    assert loose.seen_without_class == set()
