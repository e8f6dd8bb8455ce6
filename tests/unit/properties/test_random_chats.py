"""Flows as builders of agents write them: one list of messages that nodes behind `>>` read and write.

Each is made from a seed and run beside a few lines of plain Python that say what must come of it.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from everstep import END, Flow, Host, Node, ifelse, node, route, wait
from tests.unit.codec.fuzzing import IS_SOAK

SEEDS = range(2_000 if IS_SOAK else 60)
TURNS = 3


class Chat:
    """One random chat: its shape, and what is decided at which length of the list."""

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        self.chance = chance
        self.tools = chance.randint(1, 4)
        self.groups = chance.randint(1, 2)
        """With two, a gate chooses the group and a second gate, behind it, the tool."""
        self.thinks = chance.random() < 0.5
        """An answer of a model stands between what was heard, or what a tool gave, and the choice."""
        self.audits = chance.random() < 0.5
        """A node that stands in no chain reads the list, too."""
        self.begins_empty = chance.random() < 0.5
        self.is_inner = chance.random() < 0.3
        """What a tool does is a flow of its own, which gets the list and gives it back."""
        self.script = [chance.choice(("tool", "said", "tool", "end")) for _ in range(400)]
        self.picks = [chance.randrange(self.tools) for _ in range(400)]
        self.kills: set[int] = set()
        self.calls = 0

    def call(self) -> None:
        """A node is called; some calls never come back."""
        self.calls += 1
        if self.calls in self.kills:
            raise KeyboardInterrupt

    def choice(self, messages: list[str]) -> str:
        heard = sum(m.startswith("user") for m in messages)
        told = self.script[len(messages)]
        return "end" if told == "said" and heard >= TURNS else told

    def expected(self) -> list[str]:
        """Say what the list must be in the end."""
        messages = [] if self.begins_empty else ["system"]
        turn = 0
        is_heard = True
        while True:
            if is_heard:
                messages.append(f"user {turn}")
                turn += 1
            if self.thinks:
                messages.append(f"model {len(messages)}")
            match self.choice(messages):
                case "tool":
                    messages.append(f"tool {self.picks[len(messages)]}")
                    is_heard = False
                case "said":
                    is_heard = True
                case _:
                    return messages

    def flow(self) -> Flow:
        @node(output="messages")
        def hear(said: wait.CallbackOutput, messages: list[str] = []) -> list[str]:  # noqa: B006
            self.call()
            return [*messages, str(said.payload)]

        @node(output="messages")
        def think(messages: list[str]) -> list[str]:
            self.call()
            messages.append(f"model {len(messages)}")
            return messages

        @route("use", "said", END)
        def choose(messages: list[str]) -> str:
            self.call()
            return {"tool": "use", "said": "said", "end": END}[self.choice(messages)]

        said = wait.callback("said")
        after: Node = think if self.thinks else choose
        chains: list[Any] = [said >> hear >> (think >> choose if self.thinks else choose)]
        chains += [use >> take >> after for use, take in map(self.tool, range(self.tools))]
        loose: list[Any] = [*self.gates(), *([node(name="audit", output="seen")(_audit)] * self.audits)]
        return Flow("chat", [*chains, *loose], entry="said", durability="strong")

    def gates(self) -> list[Node]:
        def pick(messages: list[str]) -> int:
            self.call()
            return self.picks[len(messages)]

        if self.groups == 1 or self.tools < 2:
            names = [f"tool{k}" for k in range(self.tools)]

            def use(messages: list[str]) -> str:
                return names[pick(messages)]

            return [route(names)(use)]
        halves = [[f"tool{k}" for k in range(self.tools) if k % 2 == side] for side in (0, 1)]
        inner = [
            route(half, name=f"use{side}")(lambda messages: f"tool{pick(messages)}")
            for side, half in enumerate(halves)
        ]
        choose_half = ifelse(when_true="use1", when_false="use0", name="use")(
            lambda messages: pick(messages) % 2 == 1
        )
        return [choose_half, *inner]

    def tool(self, k: int) -> tuple[Node, Node]:
        @node(output=f"got{k}", name=f"tool{k}")
        def use(messages: list[str]) -> str:
            self.call()
            return f"tool {k}"

        def add(messages: list[str], got: str) -> list[str]:
            self.call()
            return [*messages, got]

        taken = node(name=f"take{k}", output="messages")(add)
        if self.is_inner:
            inner = Flow(f"inner{k}", [taken.with_outputs("grown")])
            given = inner.as_node(name=f"take{k}").with_inputs(got=f"got{k}").with_outputs(grown="messages")
            return use, given
        return use, taken.with_inputs(got=f"got{k}")


def _audit(messages: list[str]) -> int:
    return len(messages)


def talk(chat: Chat, host: Host) -> Any:
    """Drive a chat to its end: answer what it asks, take it up again when it was killed."""
    flow = chat.flow()
    inputs = {} if chat.begins_empty else {"messages": ["system"]}
    turn = 0
    result: Any = None
    for _ in range(1_000):
        try:
            result = host.run(flow, inputs, run_id="r") if result is None else host.resume("r", flow)
        except KeyboardInterrupt:
            result = "killed"
            continue
        if result.status != "halted":
            return result
        (asked,) = host.waits("r")
        host.answer(asked.id, f"user {turn}")
        turn += 1
    raise AssertionError("the chat does not end")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_chat_with_one_list_of_messages_builds_and_comes_to_the_right_end(seed: int) -> None:
    chat = Chat(seed)
    with Host("memory:") as host:
        result = talk(chat, host)
        assert (result.status, result["messages"]) == ("completed", chat.expected())
        assert not chat.audits or result["seen"] == len(result["messages"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_chat_that_is_killed_comes_to_the_same_end(seed: int) -> None:
    chat = Chat(seed)
    chat.kills = {chat.chance.randrange(1, 30) for _ in range(4)}
    with Host("memory:") as host:
        result = talk(chat, host)
        assert (result.status, result["messages"]) == ("completed", chat.expected())
        (checked,) = host.storage.verify("r")
        assert not checked.problem
