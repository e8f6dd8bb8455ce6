"""Bodies of nodes that are edited between two lives of a run, at random.

Whatever is renamed, moved, added, removed or called with something else: no value is ever given to another
call than the one that recorded it, and every call that differs is reported.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from everstep import Context, Host
from everstep.errors import StepChanged
from tests.integration.runtime.drive.durable_calls import MODES, Asking, World, ask, die, steps_of

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
Identity = tuple[str, Any]
"""A name with a key or an occurrence."""


class Line(NamedTuple):
    """One line of a body: what it asks for."""

    name: str
    key: str | None
    argument: int | None
    kind: str
    """A call that returns, one that fails, or what is no call of a function."""
    on_change: str


class Known(NamedTuple):
    """What the records must say of a call."""

    kind: str
    text: str
    argument: int | None


NAMES = ("look", "think", "uuid")
LINES = st.builds(
    Line,
    st.sampled_from(NAMES),
    st.sampled_from((None, None, "k", "l")),
    st.sampled_from((None, 1, 2)),
    st.sampled_from(("returns", "returns", "returns", "fails", "uuid")),
    st.sampled_from(("warn", "warn", "warn", "fail", "again")),
)
BODIES = st.lists(LINES, max_size=7)


@st.composite
def edited(draw: st.DrawFn, body: list[Line]) -> list[Line]:
    """Edit a body, in up to four places."""
    body = list(body)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(body)))
        edit = draw(st.sampled_from(("add", "remove", "move", "rename", "other argument", "replace")))
        if edit == "add" or at == len(body):
            body.insert(at, draw(LINES))
        elif edit == "remove":
            del body[at]
        elif edit == "move":
            body.insert(draw(st.integers(0, len(body) - 1)), body.pop(at))
        elif edit == "rename":
            body[at] = body[at]._replace(name=draw(st.sampled_from(NAMES)))
        elif edit == "other argument":
            body[at] = body[at]._replace(argument=draw(st.sampled_from((None, 1, 2, 3))))
        else:
            body[at] = draw(LINES)
    return body


@st.composite
def lives(draw: st.DrawFn) -> list[list[Line]]:
    """Make the bodies that a node has in each life of its run; all but the last die at their end."""
    found = [draw(BODIES)]
    for _ in range(draw(st.integers(1, 3))):
        found.append(draw(edited(found[-1])))
    return found


class Model:
    """What the records should hold, and what each life should see of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.known: dict[Identity, Known] = {}
        self.begin_life([], is_last=False)

    def begin_life(self, body: list[Line], *, is_last: bool) -> None:
        self.body, self.is_last = body, is_last
        self.asked: set[Identity] = set()
        self.differing: set[Identity] = set()
        self.counts: dict[str, int] = {}
        self.made: list[Identity] = []
        self.troubles: list[str] = []

    def run(self, ctx: Context) -> Generator[Asking, Any, None]:
        """Be the body of the node: ask for every line, and compare what comes with what should."""
        for line in self.body:
            identity = self._identity(line)
            expected = self._expected(identity, line)
            made = len(self.made)
            try:
                found = yield self._asking(line, identity)
            except StepChanged:
                text, kind = "", "refused"
            except LookupError as error:
                text, kind = str(error.args[0]), "fails"
            else:
                text, kind = str(found), "uuid" if line.kind == "uuid" else "returns"
            if expected is None:
                if kind != "refused" or made != len(self.made):
                    self.troubles.append(f"{line} was not refused: {text!r}")
                continue
            if expected.text and (text, kind) != (expected.text, expected.kind):
                self.troubles.append(f"{line} gave {text!r}, which is not {expected}")
            self.known[identity] = expected._replace(text=text)
        if not self.is_last:
            yield ask("die", self.world.fn(self._die))

    def _identity(self, line: Line) -> Identity:
        if line.key is not None and line.kind != "uuid":
            return line.name, line.key
        name = "uuid" if line.kind == "uuid" else line.name
        self.counts[name] = self.counts.get(name, 0) + 1
        return name, self.counts[name]

    def _expected(self, identity: Identity, line: Line) -> Known | None:
        """Return what a line should get, with no text if only it can know; none if it is refused."""
        self.asked.add(identity)
        old = self.known.get(identity)
        argument = None if line.kind == "uuid" else line.argument
        new = Known(line.kind, "" if line.kind == "uuid" else f"{identity} with {argument}", argument)
        if old is None:
            return new
        on_change = "warn" if line.kind == "uuid" else line.on_change
        if (old.kind == "uuid") != (line.kind == "uuid"):
            return new if on_change == "again" else None
        if old.argument == argument:
            return old
        if on_change == "warn":
            self.differing.add(identity)
            return old
        return new if on_change == "again" else None

    def _asking(self, line: Line, identity: Identity) -> Asking:
        if line.kind == "uuid":
            return self._uuid

        def work(*given: Any) -> str:
            self.made.append(identity)
            text = f"{identity} with {given[0] if given else None}"
            if line.kind == "fails":
                raise LookupError(text)
            return text

        args = () if line.argument is None else (line.argument,)
        return ask(line.name, self.world.fn(work), *args, key=line.key, on_change=line.on_change)

    def _uuid(self, ctx: Context) -> Any:
        found = ctx.uuid()
        if self.world.mode == "sync":
            return found

        async def soon() -> str:
            return found

        return soon()

    def _die(self) -> None:
        raise KeyboardInterrupt


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.warnings.append(record.getMessage())


@contextmanager
def listening() -> Iterator[list[str]]:
    log, heard = logging.getLogger("everstep"), Heard()
    log.addHandler(heard)
    try:
        yield heard.warnings
    finally:
        log.removeHandler(heard)


@pytest.mark.slow
@given(lives(), st.sampled_from(MODES))
@settings(max_examples=4_000 if IS_SOAK else 120, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_call_gets_what_another_recorded_and_every_difference_is_told(
    bodies: list[list[Line]], mode: str
) -> None:
    world = World(mode)
    model = Model(world)
    flow = world.flow(model.run)
    with Host("memory:") as host:
        for number, body in enumerate(bodies):
            is_last = number == len(bodies) - 1
            model.begin_life(body, is_last=is_last)
            before = len(host.history("r")) if number else 0
            with listening() as warnings:
                if is_last:
                    assert host.run(flow, run_id="r").status == "completed"
                else:
                    die(host, flow)
            assert not model.troubles
            assert len(warnings) == len(set(warnings)) == len(model.differing), warnings
        new = [step for record in host.history("r", after=before) for step in record.steps]
        told = [label for step in new if step.unit is not None for label in step.unit.changed]
        assert len(told) == len(set(told)) == len(model.differing), "each difference is in the records, once"
        [*_, last] = steps_of(host, path="agent")
        unasked = last.unit.unasked if last.unit is not None else ()
        assert len(unasked) == len(model.known.keys() - model.asked)
        event(f"differing: {bool(model.differing)}, unasked: {bool(unasked)}")
