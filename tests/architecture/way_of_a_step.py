"""Follow a step from "its node returned" to "the store has it": which of our functions are called on the way.

Counted is every call of a named function of the package on a warm step of a chain of small steps that are
made durable one by one, until the store's put has returned. Not counted is what happens behind a port, which
is the store's or the system's own affair (inside the put; clock and ids), what a function of the codec does
inside itself (the call into the codec counts), and the frames that Python makes for comprehensions. The way
is that of most of the steps: now and then a put is timed, or a keyframe written.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import everstep
from everstep import Flow, Host, Node, node
from everstep.testing import ManualClock

PACKAGE = str(Path(everstep.__file__).parent) + "/"
SYSTEM = ("runtime/system.py", "testing/clock.py")
STEPS, COLD = 40, 10
PUT = "put_blocking"


class Called(NamedTuple):
    """A call of one of our functions."""

    file: str
    function: str
    lines: int
    cells: tuple[str, ...] = ()
    """Its local names that a closure in it uses: each is made anew whenever it is called."""


@node(output="out")
def step(previous: Any) -> dict[str, Any]:
    return {"k": 1, "text": "a small value"}


def chain(count: int) -> Flow:
    """Return the sequential workload of the benchmarks: each step reads what the one before it wrote."""

    def link(k: int) -> Node:
        return step.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}")

    return Flow("chain", [link(k) for k in range(count)], durability="strong")


def ways(url: str) -> list[tuple[Called, ...]]:
    """Run the chain and return the way of each of its warm steps."""
    tracer = Tracer(step.fn.__code__)
    with Host(url, clock=ManualClock()) as host:  # by it no put is slow, however busy the machine is
        sys.setprofile(tracer)
        try:
            assert host.run(chain(STEPS), {"v0": 0}).status == "completed"
        finally:
            sys.setprofile(None)
    return tracer.ways[COLD:-1]


def usual_way(url: str) -> tuple[Called, ...]:
    """Return the way that most steps take."""
    [(way, count)] = Counter(ways(url)).most_common(1)
    assert count > STEPS // 2
    return way


class Tracer:
    """Notes our calls between the return of a node's function and the return of the put."""

    def __init__(self, of: CodeType) -> None:
        self._of = of
        self._called: list[Called] | None = None
        self._is_putting = False
        self.ways: list[tuple[Called, ...]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "return" and code is self._of:
            self._called = []
        elif self._called is None or not code.co_filename.startswith(PACKAGE):
            return
        elif code.co_name == PUT:
            if event == "call":
                self._is_putting = True
            elif event == "return":
                self._is_putting = False
                self.ways.append(tuple(self._called))
                self._called = None
        elif event == "call" and not self._is_putting and self._counts(frame):
            lines = [line for _, _, line in code.co_lines() if line is not None]
            size = max(lines) - min(lines) + 1
            self._called.append(Called(_file(frame), code.co_qualname, size, code.co_cellvars))

    def _counts(self, frame: FrameType) -> bool:
        caller = frame.f_back
        inside = _file(caller) if caller is not None else ""
        file = _file(frame)
        is_hidden = file in SYSTEM or frame.f_code.co_name.startswith("<")
        is_within_codec = file.startswith("codec/") and inside.startswith("codec/")
        return not (is_hidden or is_within_codec)


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(PACKAGE)
