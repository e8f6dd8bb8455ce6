"""A result tells the same of an atomic flow whether the run was driven now or was read from its records."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import END, Flow, Host, ifelse, node


@node(output="words")
def split(text: str) -> list[str]:
    return text.split()


@node(output="count")
def count(words: list[str]) -> int:
    return len(words)


MEASURE = Flow("measure", [split, count])


def test_recorded_result_shows_what_an_atomic_flow_gave() -> None:
    flow = Flow("f", [MEASURE.as_node(durability="atomic").lift("count")], durability="strong")
    with Host("memory:") as host:
        driven = host.run(flow, {"text": "a b c"}, run_id="r")
        recorded = host.run(flow, {"text": "a b c"}, run_id="r")
        state = host.state("r")
    assert dict(driven["measure"]) == dict(recorded["measure"]) == {"count": 3}
    assert state["measure/count"] == 3


def test_steps_inside_an_atomic_flow_are_not_counted() -> None:
    flow = Flow("f", [MEASURE.as_node(durability="atomic")], durability="strong")
    with Host("memory:") as host:
        driven = host.run(flow, {"text": "a b c"}, run_id="r")
        recorded = host.run(flow, {"text": "a b c"}, run_id="r")
    assert driven.steps == recorded.steps == 1


def test_recorded_result_shows_the_last_visit_to_an_atomic_flow() -> None:
    @node(output="text")
    def grow(text: str = "") -> str:
        return f"{text} x"

    @ifelse(when_true="grow", when_false=END)
    def more(count: int) -> bool:
        return count < 3

    inner = MEASURE.as_node(durability="atomic").lift("count")
    flow = Flow("f", [grow, inner, more], entry="grow", durability="strong")
    with Host("memory:") as host:
        host.run(flow, run_id="r").raise_for_status()
        recorded = host.run(flow, run_id="r")
        inside = [name for name in host.state("r") if "/" in name]
    assert recorded["measure"]["count"] == 3
    assert inside == ["measure@3/count"]


def test_nothing_is_left_of_a_flow_inside_an_atomic_one() -> None:
    @node(output="report")
    def report(count: int) -> str:
        return f"{count} words"

    inner = Flow("inner", [MEASURE.as_node(), report]).as_node(durability="atomic").lift("report")
    for flow, inputs in ((inner, {"text": "a b"}), (inner.map_over("text"), {"text": ["a b", "c"]})):
        with Host("memory:") as host:
            driven = host.run(Flow("f", [flow], durability="strong"), inputs, run_id="r")
            recorded = host.run(Flow("f", [flow], durability="strong"), inputs, run_id="r")
        assert dict(driven["inner"]) == dict(recorded["inner"]) == {"report": driven["report"]}


class Connection:
    port = 3


@pytest.mark.parametrize(
    "says", [{"persist": "no"}, {"checkpointable": False, "reason": "it is open"}], ids=["persist", "profile"]
)
@pytest.mark.parametrize("depth", [1, 2])
def test_an_atomic_flow_gives_what_cannot_be_stored_if_its_node_says_so(
    says: dict[str, Any], depth: int
) -> None:
    @node(output="link", **says)
    def connect(x: int) -> Connection:
        return Connection()

    fails = [True]

    @node(output="port")
    def use(link: Connection) -> int:
        if fails.pop():
            raise ValueError("busy")
        return link.port

    inner = Flow("inner", [connect])
    for _ in range(depth - 1):
        inner = Flow("inner", [inner.as_node(durability="atomic")])
    flow = Flow("f", [inner.as_node(durability="atomic"), use], durability="partial")
    with Host("memory:") as host:
        fails[:] = [False]
        assert host.run(flow, {"x": 1})["port"] == 3
        fails[:] = [False, True]
        assert host.run(flow, {"x": 1}, run_id="r").status == "failed"
        lost = host.resume("r", flow)
    assert lost.error is not None and lost.error.code == "value.unreadable"
    assert (
        "'inner' is not called again" in lost.error.message and "Fork the run before it" in lost.error.message
    )
