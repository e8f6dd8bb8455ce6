"""Pipelines to test with, and what a run left."""

from __future__ import annotations

from typing import Any

from everstep import Flow, Host
from everstep.results import RunResult

SQUARE = 'start [shape=Mdiamond]; exit [shape=Msquare]; goal="ship it";'
ROUND = 'begin [shape=ellipse]; done [shape=ellipse]; goal="ship it";'


def square(body: str, **options: Any) -> Flow:
    return Flow.from_dot(f"digraph p {{ {SQUARE} {body} }}", **options)


def round_(body: str, **options: Any) -> Flow:
    return Flow.from_dot(f"digraph p {{ {ROUND} {body} }}", **options)


def context(host: Host, result: RunResult) -> dict[str, Any]:
    state = host.state(result.run_id)
    return {name.removeprefix("@channel/"): state[name] for name in state if name.startswith("@channel/")}


def trace(host: Host, result: RunResult) -> list[str]:
    """The stages in order, each with its status if that is not success."""
    steps = [step for record in host.history(result.run_id) for step in record.steps if step.outcome]
    names = [step.path.rpartition("/")[2].removesuffix(".next").removesuffix(".join") for step in steps]
    statuses = ["" if step.outcome in ("success", "retry") else f":{step.outcome}" for step in steps]
    return [name + status for name, status in zip(names, statuses, strict=True)]


def edge(host: Host, result: RunResult, node: str) -> dict[str, Any]:
    found = context(host, result)[f"stages.{node}"]["edge"]
    assert isinstance(found, dict)
    return found
