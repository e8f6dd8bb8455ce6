"""Random flows that crash at random writes, on a store in memory and a clock that is moved.

`EVERSTEP_SOAK=1` tries many more of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from everstep import END, Context, Durability, Flow, Host, Node, Retry, ifelse
from everstep.graph.author.node_options import EffectsName
from everstep.model.enums import Flush, Mode
from everstep.registry import Opened
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests import inside_memory

RUN = "run-1"
EXAMPLES = 3000 if os.environ.get("EVERSTEP_SOAK") == "1" else 240
LEASE = timedelta(seconds=30)
DURABILITIES: dict[str, Durability] = {
    "partial": Durability(),
    "strong": Durability(Mode.STRONG),
    "every 2": Durability(Mode.STRONG, interval=2),
    "every 3 or 1 s": Durability(Mode.STRONG, interval=(3, timedelta(seconds=1))),
    "before effects": Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS),
}


@dataclass(frozen=True)
class Shape:
    """One node of a random flow."""

    reads: tuple[int, ...]
    """The values it reads: 0 is the input, k what node k writes."""
    effects: EffectsName
    mutates: bool
    failures: int


@dataclass(frozen=True)
class Design:
    """A random flow: nodes that read what came before them, and perhaps a loop after them."""

    shapes: tuple[Shape, ...]
    rounds: int
    """How often the loop goes round; 0 leaves it out."""
    durability: str


class Log:
    """Which attempts one life began."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int, str]] = []
        self._lock = threading.Lock()

    def note(self, ctx: Context) -> None:
        with self._lock:
            self.begun.append((ctx.node, ctx.visit, ctx.attempt, ctx.idempotency_key))


def work(k: int, shape: Shape, log: Log) -> Callable[..., list[int]]:
    def body(ctx: Context, **values: list[int]) -> list[int]:
        log.note(ctx)
        if shape.mutates:
            for value in values.values():
                value.append(k)
        if ctx.attempt <= shape.failures:
            raise ConnectionError(f"attempt {ctx.attempt}")
        taken = sum(sum(value) for value in values.values())
        return [taken % 1009, k, len(values)]

    return body


def build(design: Design, log: Log) -> Flow:
    nodes = [
        Node(
            work(k, shape, log),
            name=f"n{k}",
            inputs=[f"v{i}" for i in shape.reads],
            output=f"v{k}",
            effects=shape.effects,
            idempotency_key="auto" if shape.effects == "effectful" else None,
            retry=Retry(3, first=1, jitter=0.5),
        )
        for k, shape in enumerate(design.shapes, start=1)
    ]
    if design.rounds:
        nodes += loop(design, log)
    entry = ("grow",) if design.rounds else ()
    return Flow("random", nodes, entry=entry, durability=DURABILITIES[design.durability])


def loop(design: Design, log: Log) -> list[Node]:
    def grow(acc: list[int], ctx: Context) -> list[int]:
        log.note(ctx)
        acc.append(ctx.visit * 7)
        return acc

    def goes_on(acc: list[int], ctx: Context) -> bool:
        log.note(ctx)
        return len(acc) < design.rounds

    def weigh(acc: list[int], ctx: Context, **values: list[int]) -> int:
        log.note(ctx)
        return sum(acc) + sum(sum(value) for value in values.values())

    gate = ifelse(when_true="grow", when_false=END)(goes_on)
    last = f"v{len(design.shapes)}"
    return [Node(grow, output="acc"), gate, Node(weigh, output="weight", inputs=[last])]


class World:
    """What outlives a process: the data and the time."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.clock = ManualClock(auto=True)
        self.data = MemoryData()

    def host(self, killer: Killer) -> Host:
        store = MemoryStore(self.clock, self.data)
        return Host(killing(Opened(store, store.artifacts, "memory:"), by=killer), clock=self.clock)

    def live(self, log: Log, at: int | None = None) -> dict[str, Any] | None:
        """Run or resume; none if the process crashed."""
        inputs: dict[str, Any] = {"v0": [3, 1, 2]}
        if self.design.rounds:
            inputs["acc"] = []
        with self.host(Killer(at, act=crash)) as host:
            try:
                result = host.run(build(self.design, log), inputs, run_id=RUN)
            except Crashed:
                self.clock.advance(LEASE * 2)
                return None
            return {"status": result.status.value, **dict(result), **dict(host.state(RUN))}

    def recorded(self) -> set[tuple[str, int, int]]:
        """Return the attempts that are in the chain."""
        if not inside_memory.has_run(self.data, RUN):
            return set()
        with self.host(Killer()) as host:
            return {(s.path, s.visit, s.attempts) for r in host.history(RUN) for s in r.steps if s.ended_at}


def designs() -> st.SearchStrategy[Design]:
    def shape(k: int) -> st.SearchStrategy[Shape]:
        return st.builds(
            Shape,
            reads=st.lists(st.integers(0, k - 1), min_size=1, max_size=3, unique=True).map(tuple),
            effects=st.sampled_from(["undeclared", "pure", "read_only", "effectful"]),
            mutates=st.booleans(),
            failures=st.sampled_from([0, 0, 0, 1, 2]),
        )

    return st.integers(1, 5).flatmap(
        lambda count: st.builds(
            Design,
            shapes=st.tuples(*(shape(k) for k in range(1, count + 1))),
            rounds=st.sampled_from([0, 0, 1, 3]),
            durability=st.sampled_from(list(DURABILITIES)),
        )
    )


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(design=designs(), deaths=st.lists(st.integers(1, 16), min_size=1, max_size=4))
def test_a_random_flow_that_crashes_ends_like_one_that_does_not(design: Design, deaths: list[int]) -> None:
    expected = World(design).live(Log())
    assert expected is not None
    assert expected["status"] == "completed"
    world = World(design)
    keys: dict[tuple[str, int], str] = {}
    crashes = 0
    for at in [*deaths, None]:
        recorded, log = world.recorded(), Log()
        outcome = world.live(log, at)
        crashes += outcome is None
        assert recorded.isdisjoint(begun[:3] for begun in log.begun)
        for path, visit, _, key in log.begun:
            assert keys.setdefault((path, visit), key) == key
        assert outcome in (None, expected)
    assert outcome == expected
    event(f"{design.durability}: {crashes} crashes")


@pytest.mark.parametrize("at", [1, 2])
def test_a_crash_is_a_crash_for_the_rest_of_that_life(at: int) -> None:
    killer = Killer(at, act=crash)
    with pytest.raises(Crashed), killer.write("put"):
        pass
    with pytest.raises(Crashed), killer.write("put"):
        pass
    assert killer.points == ["before put 1", "after put 1"][:at]
