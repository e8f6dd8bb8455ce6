"""Values of the standard library, attrs and pydantic, and of subclasses of str and list, are kept."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import attrs
import pydantic
import pytest

from everstep.codec.classes import as_stored
from everstep.codec.compare import changes, is_same
from everstep.codec.tags import Tag
from everstep.codec.values import Values
from everstep.errors import ValueNotStorable


class Slug(str):
    """A text with a class of its own, and more."""


class Rows(list[int]):
    def __init__(self, *items: int) -> None:
        raise AssertionError("it is not called when a value is read")

    def __iter__(self) -> Any:
        raise AssertionError("nor is this")


class Slotted(list[int]):
    __slots__ = ("more",)
    more: int


class Account(pydantic.BaseModel):
    site: pydantic.HttpUrl
    database: pydantic.PostgresDsn
    password: pydantic.SecretStr
    salt: pydantic.SecretBytes


def slug(text: str, **more: object) -> Slug:
    made = Slug(text)
    vars(made).update(more)
    return made


def rows(*items: int) -> Rows:
    made = list.__new__(Rows)
    list.extend(made, items)
    return made


def test_counters_and_defaultdicts_come_back_as_they_were() -> None:
    values = Values()
    counted = Counter("abracadabra")
    grouped = defaultdict(list, {1: ["a"], (2, 3): []})
    kept: list[Any] = [counted, Counter(), grouped, defaultdict(None, {"a": 1}), defaultdict(Counter)]
    for value in kept:
        back = values.decode(values.encode({"v": value}, "value"))["v"]
        assert back == value and type(back) is type(value) and list(back) == list(value)
        assert getattr(back, "default_factory", None) is getattr(value, "default_factory", None)
    assert values.canonical(Counter(a=1, b=2)) == values.canonical(Counter(b=2, a=1))
    assert values.canonical(defaultdict(int, a=1, b=2)) == values.canonical(defaultdict(int, b=2, a=1))
    assert values.canonical(defaultdict(int)) != values.canonical(defaultdict(float))
    assert not is_same(values, defaultdict(int), defaultdict(float))
    assert not values.is_frozen(counted) and not values.is_frozen(grouped)
    with pytest.raises(ValueNotStorable, match=r"`value\.v`: its default_factory .* has no data-only form"):
        values.encode({"v": defaultdict(lambda: 1)}, "value")


def test_a_counter_may_still_have_a_serializer_of_the_users() -> None:
    values = Values()
    values.register(Counter, name="shop.counter", encode=dict, decode=Counter)
    assert values.decode(values.encode(Counter("aab"), "value")) == Counter("aab")


def test_subclasses_of_str_and_list_come_back_with_what_they_hold() -> None:
    values = Values()
    back = values.decode(values.encode([slug("a b", of=rows(1, 2)), Slug("")], "value"))
    assert back == ["a b", ""] and {type(one) for one in back} == {Slug}
    assert type(back[0].of) is Rows and list.__eq__(back[0].of, [1, 2])
    assert not is_same(values, slug("a"), slug("a", of=1)) and not is_same(values, slug("a"), "a")
    made = Slotted([1])
    made.more = 2
    with pytest.raises(ValueNotStorable, match="keeps something in slots"):
        values.encode(made, "value")


def test_urls_and_secrets_of_pydantic_come_back() -> None:
    values = Values()
    account = Account.model_validate(
        {
            "site": "https://example.org/a?b=c",
            "database": "postgres://u:p@one:1,two:2/db",
            "password": "pass word",
            "salt": b"\x00",
        }
    )
    back = values.decode(values.encode(account, "value"))
    assert back == account and type(back.site) is pydantic.HttpUrl
    assert back.password.get_secret_value() == "pass word" and "pass word" not in repr(back)


def test_a_secret_whose_class_is_not_at_hand_is_not_shown() -> None:
    assert "pass" not in repr(as_stored(Tag.SECRET, ["pydantic.types:SecretStr", ["pass"]]))


def test_classes_of_attrs_come_back() -> None:
    for slots in (True, False):
        made = attrs.make_class("Attrs", {"a": attrs.field(), "b": attrs.field(factory=list)}, slots=slots)
        made.__module__, made.__qualname__ = __name__, "Attrs"
        globals()["Attrs"] = made
        values = Values()
        stored = values.encode([made(1), made(2, ["x"])], "value")
        back = values.decode(stored)
        assert back == [made(1), made(2, ["x"])] and type(back[0]) is made
        assert [change.path for change in changes(values, "v", made(1), made(2))] == ["v.a"]
