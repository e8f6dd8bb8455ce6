"""A flow that is killed, what it is given, and how it is run."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from everstep import Context, Durability, Flow, Host, Node, Retry
from everstep.graph.author.wiring import Chain, Group
from everstep.model.durability import DurabilityMode
from everstep.results import RunResult
from everstep.runtime.system import SystemClock
from everstep.testing.killing import Killer

RUN = "run-1"
AT_ONCE = Retry(3, first=0, jitter=0)
ONCE_MORE = Retry(1, first=0, jitter=0)
Facts = dict[str, Any]
Parts = Sequence[Node | Chain | Group] | Facts
"""The nodes of a flow, or everything it is made with."""


class Hurry(SystemClock):
    """The real time without waiting for it; how far it was moved on outlives every process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where the process lives, for programs that leave something there."""
        self._ahead = timedelta(days=int((folder / "a-day-later").exists()))

    @property
    def has_moved_on(self) -> bool:
        """True once a day has passed."""
        return bool(self._ahead)

    def now(self) -> datetime:
        return super().now() + self._ahead

    def move_on(self) -> None:
        """Let a day pass, once."""
        (self.folder / "a-day-later").touch()
        self._ahead = timedelta(days=1)

    async def sleep_until(self, at: datetime) -> None:
        await asyncio.sleep(0)


def clock_of(host: Host) -> Hurry:
    """Return the clock of a host whose program is killed."""
    assert isinstance(host.clock, Hurry)
    return host.clock


class Bodies:
    """What the nodes of these flows do besides their work: tell the killer where they are."""

    def __init__(self, killer: Killer, *, is_first_life: bool, folder: Path) -> None:
        self.killer = killer
        self.is_first_life = is_first_life
        self.folder = folder
        """What the effects of nodes change, and outlives every process."""
        self._both = threading.Barrier(2)

    def __call__(self, path: str, ctx: Context | None = None) -> AbstractContextManager[None]:
        if ctx is None:
            return self.killer.body(path, visit=1)
        path = ctx.path if ctx.run_id == RUN else f"{ctx.run_id}:{ctx.path}"
        return self.killer.body(path, visit=ctx.visit, attempt=ctx.attempt, key=ctx.idempotency_key)

    def meet(self) -> None:
        """Let two branches be in their bodies at the same time."""
        if self.is_first_life:
            self._both.wait(30)

    def wait_for(self, point: str) -> None:
        if self.is_first_life:
            self.killer.wait_for(point)

    async def wait_for_async(self, point: str) -> None:
        if self.is_first_life:
            await asyncio.to_thread(self.killer.wait_for, point)


Program = Callable[[Host, Flow, Facts], RunResult]


def run_to_its_end(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    return host.run(flow, inputs, run_id=RUN)


def run_after_an_interrupt(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    try:
        return host.run(flow, inputs, run_id=RUN)
    except KeyboardInterrupt:
        return host.run(flow, inputs, run_id=RUN)


def cancel_after_an_interrupt(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    try:
        host.run(flow, inputs, run_id=RUN)
    except KeyboardInterrupt:
        host.cancel(RUN)
    return host.run(flow, inputs, run_id=RUN)


class Scenario:
    """A flow, what it is given, and how it is run.

    `atomic` are the names of its atomic flows, whose bodies run again until the flow's own step is recorded.
    `runs` are all the runs that the program makes; if it reopens failed ones, failed steps run again. If it
    `stops` for an operator whenever a process died in an effect, it does so more often the more it is killed.
    One that `moves_clock` can only be killed on stores that go by the clock of their host.
    One that `is_chancy` comes out otherwise in every life but the first, as far as it may.
    """

    def __init__(
        self,
        parts: Callable[[Bodies], Parts],
        inputs: Facts,
        durability: DurabilityMode | Durability = "partial",
        *,
        program: Program = run_to_its_end,
        atomic: tuple[str, ...] = (),
        runs: tuple[str, ...] = (RUN,),
        reopens: bool = False,
        stops: bool = False,
        is_chancy: bool = False,
        moves_clock: bool = False,
        **options: Any,
    ) -> None:
        self._parts = parts
        self._inputs = inputs
        self.durability = durability
        self.program = program
        self.atomic = atomic
        self.runs = runs
        self.reopens = reopens
        self.stops = stops
        self.is_chancy = is_chancy
        self.moves_clock = moves_clock
        self._options = options

    @property
    def inputs(self) -> Facts:
        """The inputs as a new process would make them."""
        return copy.deepcopy(self._inputs)

    @property
    def final(self) -> tuple[str, ...]:
        """What a recorded step that is never tried again may have come to."""
        return ("completed", "cancelled") if self.reopens else ("completed", "cancelled", "failed")

    @property
    def commits_every_step(self) -> bool:
        """True if a step that has ended is in the next put, whatever happens."""
        interrupts = (run_after_an_interrupt, cancel_after_an_interrupt)
        return self.durability == "strong" and self.program not in interrupts

    def flow(self, name: str, bodies: Bodies) -> Flow:
        parts = self._parts(bodies)
        given = parts if isinstance(parts, dict) else {"nodes": parts}
        if self.durability == "partial":
            return Flow(name, **given, **self._options)
        return Flow(name, **given, durability=self.durability, **self._options)
