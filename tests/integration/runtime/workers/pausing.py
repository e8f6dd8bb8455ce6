"""Flows whose steps tests can watch, hold up and count, for what is paused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import monotonic

from everstep import Context, Flow, node, route

PATIENCE = 20.0


def wait_for(what: Callable[[], object]) -> None:
    """Return once something holds."""
    ends = monotonic() + PATIENCE
    while not what():
        assert monotonic() < ends, "it never came to that"
        threading.Event().wait(0.005)


class Watched:
    """Notes when steps begin, and holds each up until it is let go."""

    def __init__(self) -> None:
        self.began: list[tuple[float, str, str]] = []
        """When, of which run, and which step."""
        self.gate = threading.Event()
        """Open: no step waits."""

    def begin(self, run_id: str, step: str) -> None:
        self.began.append((monotonic(), run_id, step))

    async def held(self) -> None:
        while not self.gate.is_set():
            await asyncio.sleep(0.002)

    def steps(self) -> list[str]:
        return [step for _, _, step in self.began]


def looping(watched: Watched, name: str = "f", *, seconds: float = 0.02, rounds: int = 100_000) -> Flow:
    """Return a flow of many short steps."""

    @node(output="n")
    async def tick(n: int, ctx: Context) -> int:
        watched.begin(ctx.run_id, "tick")
        await asyncio.sleep(seconds)
        return n + 1

    @node(output="end")
    def done(n: int) -> int:
        return n

    @route("tick", "done")
    def more(n: int) -> str:
        return "tick" if n < rounds else "done"

    return Flow(name, [tick, more, done], entry="tick")
