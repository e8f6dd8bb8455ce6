"""Processes made of phases, killed wherever they write: gates that iterate, ask a person and go on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from everstep import Context, Flow, node
from everstep.phases import Phase, ScoredGate, phases
from examples import ten_phases
from tests.acceptance.crash.flows.waits import answering
from tests.acceptance.crash.scenarios import Bodies, Scenario


class PhaseScenario(Scenario):
    """A list of phases, run to its end by a person who answers its questions."""

    def __init__(self, stages: Callable[[Bodies], list[Any]], inputs: dict[str, Any], *answers: str) -> None:
        super().__init__(stages, inputs, "strong", program=answering(lambda asked: answers[asked.visit - 1]))

    def flow(self, name: str, bodies: Bodies) -> Flow:
        stages: Any = self._parts(bodies)
        return phases(name, stages, lessons=["be brief"])


def gated(body: Bodies) -> list[Any]:
    scores = {1: 70, 2: 40, 3: 85}

    def discover(topic: str, ctx: Context) -> dict[str, Any]:
        with body("discover", ctx):
            return {"topic": topic}

    def draft(discover: dict[str, Any], ctx: Context) -> dict[str, Any]:
        with body("draft", ctx):
            return {"of": discover["topic"], "version": ctx.visit}

    def score(draft: dict[str, Any], ctx: Context) -> int:
        with body("draft.gate", ctx):
            return scores[draft["version"]]

    def publish(draft: dict[str, Any], ctx: Context) -> str:
        with body("publish", ctx):
            return f"{draft['of']} {draft['version']}"

    risks = {"type": "object", "properties": {"risks": {"default": []}}, "required": ["risks"]}
    return [
        Phase("discover", discover, gives={"discover": risks}),
        Phase("draft", draft, takes={"discover": risks}, gate=ScoredGate(score)),
        Phase("publish", publish),
    ]


def holding_a_flow(body: Bodies) -> list[Any]:
    @node(output="page")
    def read(topic: str, ctx: Context) -> str:
        with body("read", ctx):
            return topic * 2

    @node(output="facts")
    def sort(page: str, ctx: Context) -> dict[str, Any]:
        with body("sort", ctx):
            return {"page": page, "first": "@" not in ctx.path}

    def score(facts: dict[str, Any], ctx: Context) -> int:
        with body("reading.gate", ctx):
            return 65 if facts["first"] else 90

    def finish(facts: dict[str, Any], ctx: Context) -> str:
        with body("finish", ctx):
            return f"{facts['page']} {facts['size']}"

    size = {"type": "object", "properties": {"size": {"default": 1}}, "required": ["size"]}
    inner = Flow("reading", [read, sort])
    return [
        Phase("reading", inner, takes={"topic": str}, gives={"facts": size}, gate=ScoredGate(score)),
        Phase("finish", finish),
    ]


def told(body: Bodies, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the example that tells the killer where it is."""
    own = inspect.signature(fn)
    wants_context = "ctx" in own.parameters

    def wrapped(*, ctx: Context, **given: Any) -> Any:
        with body(fn.__name__, ctx):
            return fn(**given, **({"ctx": ctx} if wants_context else {}))

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY)
    others = [p for p in own.parameters.values() if p.name != "ctx"]
    wrapped.__signature__ = own.replace(parameters=[*others, context])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {**fn.__annotations__, "ctx": Context}
    wrapped.__name__ = fn.__name__
    return wrapped


class ExampleScenario(PhaseScenario):
    """The ten phases of the example, as their data describes them."""

    def flow(self, name: str, bodies: Bodies) -> Flow:
        process = ten_phases.PROCESS
        functions = {key: told(bodies, fn) for key, fn in ten_phases.FUNCTIONS.items()}
        return phases(name, process["phases"], functions=functions, lessons=process["lessons"])


PHASED = {
    "phases": PhaseScenario(gated, {"topic": "tea"}, "iterate"),
    "phases-flow": PhaseScenario(holding_a_flow, {"topic": "tea"}),
}
MORE_PHASED = {"phases-aborted": PhaseScenario(gated, {"topic": "tea"}, "abort")}
EXAMPLES = {"ten-phases": ExampleScenario(lambda body: [], {"goal": "a shed"}, "proceed")}
"""What is killed at every node, and at every write by those who have time."""
