"""Editors and type checkers see the functions that nodes are made of, and typos in options.

mypy reads this file with all others: `assert_type` fails there, and so does an ignore that nothing needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, assert_type, get_args

import pytest

from everstep import AsyncHost, Flow, Host, Node, ifelse, node, route, wait
from everstep.errors import BadRequest, EverstepError
from everstep.model.enums import Mode
from everstep.model.retry import Retry, RetryPreset
from everstep.results import RunResult, SentSignal


@node
def plain(x: int) -> str:
    return "x" * x


@node(output="total", effects="pure", retry="standard")
def add(a: int, b: int = 1) -> int:
    return a + b


@node(output="page")
async def fetch(url: str) -> bytes:
    return url.encode()


@node(output="words")
def stream(text: str) -> Iterator[str]:
    yield from text.split()


@ifelse(when_true="add", when_false="fetch")
def is_big(total: int) -> bool:
    return total > 9


@route("add", "fetch")
def choose(total: int) -> str:
    return "add"


class Agent:
    @node(output="thought")
    def think(self, question: str) -> list[str]:
        return [question]


def test_a_node_has_the_signature_of_its_function() -> None:
    assert_type(plain(2), str)
    assert_type(add(1, b=2), int)
    assert_type(stream("a b"), Iterator[str])
    assert_type(is_big(3), bool)
    assert_type(choose(3), str)
    page = fetch("x")
    _ = assert_type(page, Coroutine[Any, Any, bytes])
    page.close()
    with pytest.raises(TypeError):
        add("1", c=2)  # type: ignore[arg-type, call-arg]
    with pytest.raises(TypeError):
        plain()  # type: ignore[call-arg]


def test_a_changed_copy_keeps_it() -> None:
    assert_type(add.with_name("sum")(1, 2), int)
    assert_type(is_big.with_inputs(total="x")(12), bool)


def test_a_method_has_that_of_the_method_without_its_object() -> None:
    assert_type(Agent().think("why"), list[str])
    assert_type(Agent.think(Agent(), "why"), list[str])


def test_a_node_alone_is_any_node() -> None:
    nodes: list[Node] = [add, fetch, is_big, Agent().think]
    called: Callable[..., Any] = nodes[0]
    assert called(1) == 2
    several = [add, fetch]  # a list that says nothing of its nodes does for a flow, too
    assert Flow("f", several).name == Flow("f", [add, add.with_name("more").with_outputs("m") >> fetch]).name


def test_what_is_no_node_is_found() -> None:
    with pytest.raises(EverstepError):
        Flow("f", [1, 2])  # type: ignore[list-item]
    with pytest.raises(EverstepError):
        Flow("f", [len])  # type: ignore[list-item]
    with pytest.raises(EverstepError):
        Flow("f", [add, len])  # type: ignore[list-item]
    numbers = [1, 2]
    with pytest.raises(EverstepError):
        Flow("f", numbers)  # type: ignore[arg-type]
    Flow("f", (add, fetch))
    Flow("f", add >> fetch)
    Flow.draft("f")


def test_typos_in_options_of_a_node_are_found() -> None:
    made = Node(add.fn, name="sum", retry="standard", output="x")
    assert made.name == "sum"
    with pytest.raises(TypeError):
        Node(add.fn, retyr=3)  # type: ignore[call-arg]
    with pytest.raises(BadRequest):
        Node(add.fn, retry="patiently")  # type: ignore[arg-type]


def test_typos_in_words_are_found() -> None:
    with pytest.raises(BadRequest):
        Flow("f", [add], durability="stong")  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        node(retry="patiently")(add.fn)  # type: ignore[call-overload]
    with pytest.raises(BadRequest):
        node(effects="none")(add.fn)  # type: ignore[call-overload]
    with pytest.raises(BadRequest):
        ifelse(when_true="a", when_false="b", retry="patiently")(add.fn)  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        route("a", "b", timeouts=3)(add.fn)  # type: ignore[call-arg]
    with pytest.raises(BadRequest):
        Host("memory:", max_durability_mode="weak")  # type: ignore[arg-type]
    assert Flow("f", [add], durability=Mode.STRONG).durability.mode is Mode.STRONG


def test_every_preset_of_retries_is_a_word_that_checkers_know() -> None:
    assert [Retry.of(preset).times for preset in get_args(RetryPreset)] == [0, 4, 4, 2, 2]


def test_calls_of_hosts_are_typed() -> None:
    with Host("memory:") as host:
        assert_type(host.retention.gc().dry_run, bool)
        assert_type([run.run_id for run in host.runs()], list[str])
        with pytest.raises(AttributeError):
            host.rnu(Flow("f", [add]))  # type: ignore[attr-defined]
    assert callable(AsyncHost.worker)


def test_what_is_sent_is_a_signal_and_what_is_driven_has_a_result() -> None:
    flow = Flow("f", [wait.signal("x"), wait.signal("y")])

    async def awaited() -> None:
        async with AsyncHost("memory:") as host:
            assert_type(await host.send("r", "x", 1, drive=flow, inputs={}), RunResult)
            assert_type(await host.send("r", "y", 1), SentSignal)

    asyncio.run(awaited())
    with Host("memory:") as sync:
        assert_type(sync.send("r", "x", 1, drive=flow, inputs={}), RunResult)
        assert_type(sync.send("r", "y", 1), SentSignal)
        with pytest.raises(BadRequest):
            sync.send("r", "y", drive="flow")  # type: ignore[call-overload]
