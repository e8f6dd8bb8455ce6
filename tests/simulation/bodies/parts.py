"""What random bodies of nodes are made of, and what each part of one checks by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from everstep import Context, Retry, wait
from everstep.testing.simulation.hub import SECOND, current_thread
from everstep.testing.simulation.process import SimProcess

SECONDS = (0.0, 0.0, 0.0, 0.001, 0.01, 0.01, 0.02, 0.05, 0.3, 2.0)
LIMITS = (None, None, None, 0.005, 0.15)
"""None of them is as long as a call takes: which of both is over first is to be no matter of chance."""
ERRORS = (None, None, None, None, ValueError, KeyError, OSError)
LEAVES = (*("call",) * 10, "helper", "chance", "ask", "sleep", "signal", "inbox", "trip")
NOTES = "notes"
"""The signals that bodies take from their inbox."""
AGAIN = Retry(2, first=0.01, jitter=0)
"""That of a node: the attempts behind the first do not trip."""


class Part(NamedTuple):
    """A part of a body: one call, or what is done with several parts."""

    kind: str
    number: int
    parts: tuple[Part, ...] = ()
    seconds: float = 0.0
    limit: float | None = None
    error: type[Exception] | None = None
    retries: int = 0
    is_sync: bool = False
    is_pure: bool = False


class Parts:
    """Draws the parts of a body, as they follow from a seed."""

    def __init__(self, seed: int, ways: tuple[str, ...]) -> None:
        self._chance = Random(seed)
        self._ways = ways
        self._count = 0

    def draw(self, depth: int = 3) -> Part:
        chance = self._chance
        is_leaf = not depth or chance.random() < 2 / (2 + len(self._ways))
        kind = chance.choice(LEAVES if is_leaf else self._ways)
        self._count += 1
        number = self._count
        if not is_leaf:
            parts = [self.draw(depth - 1) for _ in range(chance.randint(2, 4))]
            return Part(kind, number, tuple(parts))
        return Part(
            kind,
            number,
            seconds=chance.choice(SECONDS),
            limit=chance.choice(LIMITS),
            error=chance.choice(ERRORS),
            retries=chance.choice((0, 0, 1)),
            is_sync=chance.random() < 0.3,
            is_pure=chance.random() < 0.3,
        )


def random_body(seed: int, ways: tuple[str, ...]) -> Part:
    """Return a body, as it follows from a seed."""
    parts = Parts(seed, ways)
    return Part("in_turn", 0, tuple(parts.draw(depth) for depth in (2, 3, 1)))


def kinds_of(part: Part) -> Iterator[str]:
    """Yield what is in a body."""
    yield part.kind
    for inner in part.parts:
        yield from kinds_of(inner)


class Tripped(Exception):
    """What an attempt at a node fails with, between its calls."""


class WrongValue(Exception):
    """A call was given what is not its own."""


class Calls:
    """What one life of a body asks for, and whether what it is given is its own."""

    def __init__(self, ctx: Context, wrong: list[str]) -> None:
        self._ctx = ctx
        self._wrong = wrong
        self._notes: list[str] = []

    def ask(self, part: Part, call: Callable[[str], Any]) -> Any:
        """Make a durable call."""
        return self._ctx.step(
            f"c{part.number}",
            call,
            f"{part.number}",
            retry=Retry(part.retries, first=0.01, jitter=0),
            timeout=part.limit,
            effects="pure" if part.is_pure else "effectful",
        )

    def wait(self, part: Part) -> Any:
        """Wait for an answer, or for a signal."""
        name = f"w{part.number}"
        return self._ctx.wait(
            wait.signal(name) if part.kind == "signal" else wait.question(name, kind="text")
        )

    def drawn(self) -> list[str]:
        """Return what chance and the time give: what is made with it is made with the same after a crash."""
        ctx = self._ctx
        return [ctx.uuid(), str(ctx.random()), str(ctx.now())]

    def trip(self) -> None:
        """Fail, if this is the first attempt at the node."""
        if self._ctx.attempt == 1:
            raise Tripped

    def own(self, part: Part, value: object) -> str:
        """Return what a part was given, once it is sure that this is its own."""
        if value != own_value(part.kind, part.number):
            self._wrong.append(f"{part.kind} {part.number} was given {value!r}")
        return str(value)

    def noted(self, notes: list[str]) -> str:
        """Return what came of notes that were taken: each once, in the order in which they were sent."""
        self._notes += notes
        if self._notes != sorted(set(self._notes)):
            self._wrong.append(f"the notes came as {self._notes}")
        return " ".join(notes)


def own_value(kind: str, number: int) -> object:
    """Return what a part is given if all is well."""
    return {"call": f"{number}", "helper": f"{number}", "sleep": None}.get(kind, f"answer to w{number}")


def let_pass(seconds: float) -> None:
    """Let time pass on a thread."""
    thread = current_thread()
    assert thread is not None and isinstance(thread.owner, SimProcess)
    thread.owner.hub.pass_time(round(seconds * SECOND))
