"""Nodes that are methods."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from everstep import END, Context, Flow, Host, Node, ifelse, node
from everstep.errors import FlowError


@dataclass
class Agent:
    rate: int
    rounds: int = 3

    @node(output="draft")
    def write(self, topic: str, draft: str = "") -> str:
        return draft + topic * self.rate

    @ifelse(when_true="write", when_false=END)
    def is_short(self, draft: str) -> bool:
        return len(draft) < self.rounds * self.rate

    @node(output="said")
    async def say(self, draft: str, ctx: Context) -> str:
        return f"{ctx.node}: {draft}"

    @node(output="parts")
    def parts(self, draft: str) -> Iterator[str]:
        yield from draft

    @staticmethod
    @node(output="apart")
    def apart(draft: str) -> int:
        return len(draft)


class Bare:
    __slots__ = ()

    @node(output="n")
    def count(self, x: int) -> int:
        return x + 1


def test_methods_of_an_object_are_nodes_and_self_is_no_input() -> None:
    agent = Agent(rate=2)
    nodes = [agent.write, agent.is_short, agent.say, agent.parts, agent.apart]
    flow = Flow("f", nodes, entry="write")
    assert flow.inputs["topic"] and "self" not in flow.inputs
    with Host("memory:") as host:
        result = host.run(flow, {"topic": "a"}, run_id="r")
    assert (result["said"], result["parts"], result["apart"]) == ("say: aaaaaa", list("aaaaaa"), 6)
    assert agent.write("b") == "bb" and Agent.write(agent, "b") == "bb"


def test_two_objects_have_nodes_of_their_own() -> None:
    one, two = Agent(1), Agent(2)
    assert one.write is one.write and one.write is not two.write
    flow = Flow("f", [one.say.with_name("a"), two.say.with_name("b").with_outputs("other")])
    with Host("memory:") as host:
        result = host.run(flow, {"draft": "x"})
    assert (result["said"], result["other"]) == ("a: x", "b: x")


def test_the_same_method_may_stand_in_a_flow_twice() -> None:
    for agent in (Agent(1), Bare()):
        first = agent.say if isinstance(agent, Agent) else agent.count
        last = agent.say if isinstance(agent, Agent) else agent.count
        other = node(name="other")(lambda: None)
        assert [n.name for n in Flow("f", [other >> first, last]).nodes] == ["other", first.name]


def test_a_copy_of_an_object_has_nodes_of_its_own() -> None:
    agent = Agent(1)
    kept = agent.write
    other = copy.copy(agent)
    other.rate = 3
    assert other.write("a") == "aaa" and kept("a") == "a"


def test_a_node_does_not_keep_its_object_alive() -> None:
    agent = Agent(1)
    gone = weakref.ref(agent)
    flow = Flow("f", [agent.say, agent.parts])
    del agent, flow
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("taken", [Agent.write, Bare.count])
def test_a_method_without_its_object_is_refused_and_the_fix_is_named(taken: Node) -> None:
    with pytest.raises(FlowError, match=r"is a method, and nothing says of which.*give the flow agent\."):
        Flow("f", [taken])
