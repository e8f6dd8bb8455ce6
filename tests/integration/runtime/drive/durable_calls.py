"""Nodes that make durable calls, written once and run as sync and as async ones, and lives that end early."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import Any

import pytest

from everstep import Context, Flow, Host, node
from everstep.graph.author.node import Node
from everstep.results import RunResult, StepRecord

Asking = Callable[[Context], Any]
Body = Callable[[Context], Generator[Asking, Any, Any]]
MODES = ("sync", "async", "mixed")
"""A sync node; an async one that awaits async functions; an async one whose functions are sync."""


class World:
    """What the calls of nodes did, and where the process dies next."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.calls: list[Any] = []
        self.dies_at: set[Any] = set()

    def fn(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function as the nodes of this world call it."""
        if self.mode != "async":
            return work

        @wraps(work)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return work(*args, **kwargs)

        return awaited

    def look(self, what: Any) -> str:
        """Say something that is known, having noted that it was asked."""
        self.calls.append(what)
        if what in self.dies_at:
            raise KeyboardInterrupt
        return f"known of {what}"

    def ask(self, name: str, what: Any, **options: Any) -> Asking:
        """Return what makes `look` a durable call."""
        return ask(name, self.fn(self.look), what, **options)

    def node(self, body: Body, **options: Any) -> Node:
        """Return a node whose body yields what it asks for, and gets it."""
        if self.mode == "sync":

            def work(ctx: Context) -> Any:
                return _driven(body(ctx), ctx)

            return node(name="agent", output="answer", **options)(work)

        async def work_async(ctx: Context) -> Any:
            return await _driven_async(body(ctx), ctx)

        return node(name="agent", output="answer", **options)(work_async)

    def flow(self, body: Body, *, durability: Any = "strong", **options: Any) -> Flow:
        return Flow("agents", [self.node(body, **options)], durability=durability)


def ask(name: str, fn: Callable[..., Any], *args: Any, **options: Any) -> Asking:
    """Return what makes a durable call, given a context."""
    return lambda ctx: ctx.step(name, fn, *args, **options)


def die(host: Host, flow: Flow, run_id: str = "r") -> None:
    """Begin or go on with a run whose process dies in it."""
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, run_id=run_id)


def calls_of(host: Host, run_id: str = "r") -> list[tuple[str, int, str, int]]:
    """Return the recorded calls of a run: path, occurrence, status, attempts."""
    return [(s.path, s.visit, s.status.value, s.attempts) for s in steps_of(host, run_id) if "/$" in s.path]


def steps_of(host: Host, run_id: str = "r", path: str = "") -> list[StepRecord]:
    """Return the recorded steps of a run, or those of a path."""
    return [s for record in host.history(run_id) for s in record.steps if not path or s.path == path]


def error_of(result: RunResult) -> str:
    """Return what a run failed of."""
    assert result.status == "failed", result.status
    assert result.error is not None
    return f"{result.error.type}: {result.error.message}"


def _driven(asking: Generator[Asking, Any, Any], ctx: Context) -> Any:
    go_on: Callable[[], Asking] = partial(next, asking)
    while True:
        try:
            asked = go_on()
        except StopIteration as end:
            return end.value
        try:
            go_on = partial(asking.send, asked(ctx))
        except Exception as error:
            go_on = partial(asking.throw, error)


async def _driven_async(asking: Generator[Asking, Any, Any], ctx: Context) -> Any:
    go_on: Callable[[], Asking] = partial(next, asking)
    while True:
        try:
            asked = go_on()
        except StopIteration as end:
            return end.value
        try:
            go_on = partial(asking.send, await asked(ctx))
        except Exception as error:
            go_on = partial(asking.throw, error)
