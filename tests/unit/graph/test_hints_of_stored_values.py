"""What can never be stored is said by its hint, before a node has run."""

from __future__ import annotations

import dataclasses
import enum
import io
import socket
import threading
import typing
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everstep import Flow, Host, node, validate
from everstep.errors import ValueNotStorable
from everstep.model.enums import Mode


class Agent:
    """Of no kind that is stored."""


class Shape:
    """Stored if it is a circle."""


@dataclasses.dataclass
class Circle(Shape):
    radius: int


class Colour(enum.Enum):
    RED = 1


class Row(typing.TypedDict):
    number: int


class Speaks(typing.Protocol):
    def speak(self) -> str: ...


class Broken(Exception):
    """No data."""


NEVER = [
    *(Agent, list[Agent], dict[str, Agent], tuple[int, Agent], Agent | threading.Thread, Broken),
    *(threading.Lock, threading.RLock, threading.Thread, socket.socket, io.TextIOWrapper, typing.TextIO),
    *(Generator[int, None, None], memoryview, type, np.matrix, typing.Annotated[Agent, "x"]),
]
PERHAPS = [
    *(Any, object, None, int, str, list, list[int], Agent | None, Agent | int, tuple[int, ...], Row, Speaks),
    *(
        Shape,
        Circle,
        Colour,
        Path,
        np.ndarray,
        np.float64,
        Iterator[int],
        Sequence[Agent],
        Callable[..., Any],
    ),
    *(typing.Literal["a"], typing.TypeVar("T"), "Unknown"),
]


def made(hint: Any, **options: Any) -> Any:
    def make(x: int) -> Any:
        return x

    make.__annotations__["return"] = hint
    return node(output="made", **options)(make)


def name_of(hint: Any) -> str:
    """Name a hint alike in every process; the text of a function has its address."""
    return getattr(hint, "__qualname__", None) or str(hint)


@pytest.mark.parametrize("hint", NEVER, ids=name_of)
def test_a_flow_whose_node_returns_what_no_codec_takes_does_not_start(hint: Any) -> None:
    called: list[int] = []
    spy = node(output="x")(lambda: called.append(1)).with_name("spy")
    flow = Flow("f", [spy, made(hint)])
    assert [(d.code, d.severity) for d in validate(flow)] == [("value.not_storable", "warning")]
    with Host("memory:") as host, pytest.raises(ValueNotStorable, match="which cannot be stored") as caught:
        host.run(flow)
    assert "host.values.register" in caught.value.fix or "top level" in caught.value.fix
    assert called == []


@pytest.mark.parametrize("hint", PERHAPS, ids=name_of)
def test_of_a_hint_that_leaves_a_doubt_nothing_is_said(hint: Any) -> None:
    with Host("memory:") as host:
        assert list(validate(Flow("f", [made(hint)]), host)) == []


def test_a_class_with_a_serializer_or_on_a_host_that_pickles_may_be_returned() -> None:
    flow = Flow("f", [made(Agent)])
    with Host("memory:") as host:
        assert validate(flow, host).errors
        host.values.register(Agent, name="agent", encode=lambda agent: 1, decode=lambda one: Agent())
        assert not validate(flow, host).errors
    with Host("memory:", allow_pickle=True) as host:
        assert not validate(flow, host).errors


@pytest.mark.parametrize(
    "options", [{"persist": "no"}, {"checkpointable": False, "reason": "a feed"}], ids=str
)
def test_what_is_not_kept_need_not_be_storable(options: dict[str, Any]) -> None:
    with Host("memory:") as host:
        assert "value.not_storable" not in [
            d.code for d in validate(Flow("f", [made(Agent, **options)]), host)
        ]
        assert not validate(Flow("f", [made(Agent)], durability=Mode.OFF), host).errors
    with Host("none:") as host:
        assert not validate(Flow("f", [made(Agent)]), host).errors


def test_inside_an_atomic_flow_only_what_is_lifted_must_be_storable() -> None:
    @node(output="name")
    def name(made: Agent) -> str:
        return "x"

    inner = Flow("inner", [made(Agent), name]).as_node(durability="atomic")
    with Host("memory:") as host:
        assert not validate(Flow("f", [inner.lift("name")]), host).errors
        [found] = validate(Flow("f", [inner.lift("made", "name")]), host).errors
        assert (found.code, found.node) == ("value.not_storable", "inner/make")
