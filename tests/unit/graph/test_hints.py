"""Types that certainly do not fit are found when a flow is built; what may fit is let through."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar

import pytest

from everstep import END, Flow, ItemError, Node, ifelse, route, validate, wait
from everstep.errors import InputError
from everstep.graph.check.hints import accepts


class Row(TypedDict):
    x: int


class Pair(NamedTuple):
    a: int
    b: int


class Readable(Protocol):
    def read(self) -> str: ...


Key = NewType("Key", int)
T = TypeVar("T")


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        *((Row, dict[str, int]), (dict[str, Any], Row), (Mapping[str, int], dict[str, int])),
        *((Pair, tuple[int, int]), (tuple[int, ...], Pair), (Sequence[int], list[int])),
        *((Readable, Path), (Key, int), (int, Key), (T, str)),
        *((int | None, int), (int, int | None), (int | None, None), (list[int], list[int | None])),
        *((Annotated[int | None, "x"], None), (Annotated[int | str, "x"], str), (str, Annotated[str, "x"])),
        *((float, int), (float, bool), (list[float], list[int]), (Literal["a"], str), (str, Literal["a"])),
        *((os.PathLike[str], Path), (Any, int), (int, Any), (object, int), ("int", str)),
    ],
)
def test_what_may_fit_is_let_through(wanted: Any, given: Any) -> None:
    assert accepts(wanted, given)


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        *((int, str), (int, float), (int, None), (None, int), (list[str], list[int]), (set[int], list[int])),
        *((Annotated[int | None, "x"], str), (Annotated[int, "x"], Annotated[str, "y"]), (bytes, str)),
        *((list[str] | None, list[int]), (dict[str, int], dict[str, str])),
    ],
)
def test_what_cannot_fit_is_not(wanted: Any, given: Any) -> None:
    assert not accepts(wanted, given)


def count() -> Iterator[int]:
    yield 1


async def count_later() -> AsyncIterator[int]:
    yield 1


def count_somehow() -> Any:
    yield 1


def one() -> int:
    return 1


def both() -> tuple[int, str]:
    return 1, "a"


def many() -> tuple[int, ...]:
    return 1, 2


def wants_numbers(x: list[int]) -> int:
    return sum(x)


def wants_texts(x: list[str]) -> str:
    return "".join(x)


def wants_number(x: int) -> int:
    return x


def wants_text(x: str) -> str:
    return x


def mismatches(*nodes: Node) -> list[str]:
    return [d.message for d in validate(Flow.draft("f", nodes)) if d.code == "flow.type_mismatch"]


@pytest.mark.parametrize("fn", [count, count_later, count_somehow])
def test_a_generator_gives_a_list_of_what_it_yields(fn: Any) -> None:
    stream = Node(fn, output="x")
    assert mismatches(stream, Node(wants_numbers)) == []
    assert len(mismatches(stream, Node(wants_texts))) == (fn is not count_somehow)
    assert len(mismatches(stream, Node(wants_number))) == (fn is not count_somehow)


def test_each_of_several_outputs_has_its_own_type() -> None:
    pair = Node(both, output=("n", "x"))
    assert mismatches(pair, Node(wants_text)) == []
    assert mismatches(pair, Node(wants_number)) == [
        "'both' returns str as 'x', but 'wants_number' wants int."
    ]
    assert mismatches(Node(many, output=("n", "x")), Node(wants_text)) == []


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_what_a_flow_gives_is_what_its_node_returns(durability: Any) -> None:
    inner = Flow("inner", [Node(one, output="y")]).as_node(durability=durability).with_outputs("x")
    assert mismatches(inner, Node(wants_number)) == []
    assert mismatches(inner, Node(wants_text)) == ["'inner' returns int as 'x', but 'wants_text' wants str."]


def test_a_map_goes_over_a_list_and_gives_one() -> None:
    twice = Node(wants_number, output="y").map_over("x")
    assert mismatches(Node(one, output="x"), twice) == [
        "'one' returns int as 'x', but 'wants_number' wants list[int] | tuple[int, ...]."
    ]
    assert mismatches(Node(many, output="x"), twice, Node(wants_numbers).with_inputs(x="y")) == []
    assert len(mismatches(twice, Node(wants_text).with_inputs(x="y"))) == 1
    with pytest.raises(InputError, match="wants list"):
        Flow("f", [twice]).check_inputs({"x": 5})
    Flow("f", [twice]).check_inputs({"x": (1, 2)})


def test_the_answer_to_a_wait_has_its_type() -> None:
    ask = wait.question("x", kind="text", answer_type=str)
    assert mismatches(ask, Node(wants_text)) == []


def test_what_a_map_gives_is_a_list_of_what_its_node_returns() -> None:
    def numbers(n: int) -> int:
        return n

    def texts(values: list[str]) -> int:
        return len(values)

    def either(values: list[int | ItemError]) -> int:
        return len(values)

    each = Node(numbers, output="values").map_over("n")
    [message] = mismatches(each, Node(texts, output="count"))
    assert "returns list[int] as 'values', but 'texts' wants list[str]" in message
    collecting = Node(numbers, output="values").map_over("n", on_error="collect")
    flow = Flow.draft("f", [collecting, Node(either, output="count")])
    assert not list(validate(flow))


def test_a_gate_whose_function_returns_no_choice_is_refused() -> None:
    def by_name(n: int) -> str:
        return "even"

    def by_truth(n: int) -> bool:
        return True

    even = Node(lambda: None, name="even")
    wrong = ifelse(when_true="even", when_false=END)(by_name)
    [message] = mismatches(even, wrong)
    assert "'by_name' returns str, but an @ifelse function returns a bool" in message
    assert not mismatches(even, ifelse(when_true="even", when_false=END)(by_truth))
    [message] = mismatches(even, route("even", END)(by_truth))
    assert "returns bool, but a @route function names a target" in message
    assert not mismatches(even, route("even", END)(by_name))
