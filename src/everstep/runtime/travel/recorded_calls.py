"""The durable calls of a node that is run again: each gives what is recorded of it, and none is made twice.
Apart from `replay`, as only nodes that make such calls need it.

Nothing is recorded. What is not in the records ends the replay by name, unless it does nothing to the world
or its effects are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn, cast

from everstep.engine.state import RunState
from everstep.errors import BadRequest, EverstepError, ValueUnreadable
from everstep.graph.author.context import Leave
from everstep.graph.author.flow import Flow
from everstep.graph.author.wait_options import Wait
from everstep.graph.compile.plan import Plan
from everstep.model.enums import Status
from everstep.model.records import STARTED, UNIT, WAITED, UnitAt, visit_path
from everstep.ports.system import wait_until
from everstep.runtime.drive.invoke import Call
from everstep.runtime.drive.midway import Midway
from everstep.runtime.drive.units.calls import TAKES, Asked, Units, kind_of
from everstep.runtime.drive.units.kept_errors import ErrorClasses
from everstep.runtime.drive.values import ValueSpace
from everstep.runtime.services import Services

_NOWHERE = Wait(kind="callback")
"""What a node is left for that goes on no more."""


class Unwritten:
    """Stands for the writer of a run that is only looked at: it takes nothing."""

    writes = has_ended_steps = False
    steps = ()

    def __init__(self, run_id: str, key_run: str) -> None:
        self.run_id, self.key_run = run_id, key_run


class Past:
    """A run as one of its steps found it, and what its calls go through: nothing is kept of what they say."""

    is_on_loop = True
    """What is noted needs no other thread."""
    is_paused = False
    """A pause of the run does not hold up who looks at its past."""
    is_guarded = False
    """No guard stands before what is done again."""
    own_task = None

    def __init__(
        self, services: Services, flow: Flow, journal: Unwritten, state: RunState, space: ValueSpace
    ) -> None:
        self.services, self.flow, self.journal = services, flow, journal
        self.state, self.space, self.clock = state, space, services.clock

    @property
    def run(self) -> Past:
        return self

    async def nap(self, until: datetime) -> None:
        """Let time pass before a call is tried again."""
        await self.clock.sleep_until(until)

    def nap_blocking(self, until: datetime) -> None:
        """Hold this thread up for as long."""
        wait_until(self.clock, self.services.system, until)

    def buffer(self, _: object) -> None:
        """Keep nothing."""


class RecordedUnits(Units):
    """The durable calls of a step that is run again."""

    def __init__(self, past: Past, call: Call, *, allow_effects: bool, is_cut: bool) -> None:
        super().__init__(cast(Midway, past), call)
        self._flow = past.flow
        self._allow_effects = allow_effects
        self._is_cut = is_cut
        """True if what lies before the step's checkpoint was removed, and its calls with that."""
        self._prefix = f"{UNIT}{visit_path(call.path, call.visit)}/"
        self.made: list[str] = []
        """What was made, as it is not recorded."""
        self.refusal: EverstepError | None = None
        """Why the node cannot be run again to its end."""

    @property
    def changed(self) -> tuple[str, ...]:
        """The calls that are recorded with other arguments."""
        return tuple(self._changed)

    def refuse(self, why: EverstepError) -> NoReturn:
        """Leave the node: it cannot be run again to its end. No `except Exception` of it stops that."""
        self.refusal = self.refusal or why
        self.leaving = self.leaving or (_NOWHERE, self._call.node)
        raise Leave(str(why))

    def conclude(self) -> None:
        """See why the function has ended, if it was left."""
        if self.leaving is None:
            super().conclude()
        elif self.refusal is None:
            self.refusal = BadRequest(
                f"node {self._call.path!r} waits at {self._call.waits_at!r}, and no answer is recorded.",
                fix="Fork the run before the node to have it asked.",
            )

    def _at(self) -> dict[str, UnitAt]:
        found = self._call.scope.units.get(self._call.index)
        return {} if found is None else found.at

    def _check_current(self) -> None:
        if self._call.is_dropped:
            super()._check_current()

    def _recorded(self, unit: Asked) -> UnitAt | None:
        found = super()._recorded(unit)
        if found is not None and found.status is not Status.RETRYING:
            self._check_readable(unit)
            return found
        if unit.arguments == WAITED:
            return None
        if unit.arguments == TAKES:
            self.refuse(self._not_recorded(unit, "takes signals, which is"))
        if kind_of(unit.arguments) == STARTED:
            self.refuse(self._not_recorded(unit, "starts a run, which is"))
        if unit.options.is_effect and not self._allow_effects:
            self.refuse(self._not_recorded(unit, "would make a call that is"))
        self.made.append(unit.label)
        return None

    def start(
        self, wanted: object, inputs: Mapping[str, Any] | None, key: Any, said: Mapping[str, Any]
    ) -> Any:
        """Return the run that is recorded as started: none is started again."""
        _, unit = self._begin_start(wanted, dict(inputs or {}), key)
        self._end(unit)
        self._recorded(unit)
        child = self._started(unit).child
        return _at_once(child) if self._call.node.is_async else child

    def _check_readable(self, unit: Asked) -> None:
        try:
            self._space.peek(unit.label, self._prefix)
        except EverstepError as error:
            self.refuse(
                ValueUnreadable(
                    f"{self._call.path!r} cannot be replayed: what step {unit.label[1:]!r} gave cannot be "
                    f"read: {error.message}",
                    fix="Import the module of its class, or register its serializer.",
                )
            )

    def _not_recorded(self, unit: Asked, does: str) -> BadRequest:
        known = self._at().get(unit.label)
        what = "not recorded"
        if self._is_cut:
            what = "not there: the records before this step were removed"
        elif known is not None:
            what = "recorded without a result"
            if known.status is not Status.RETRYING:
                what = "recorded with other arguments and on_change='again'"
        fix = "If that is what you want, pass allow_effects=True, or --effects."
        if unit.arguments == TAKES or kind_of(unit.arguments) == STARTED:
            fix = "Replay it with the code that the run was made with."
        return BadRequest(
            f"node {self._call.path!r} {does} {what}: step {unit.label[1:]!r}.",
            fix=fix,
        )

    def _error_classes(self, unit: Asked) -> ErrorClasses:
        return ErrorClasses([unit.fn, self._call.node.fn, *_functions(self._flow.plan)])


async def _at_once(value: Any) -> Any:
    return value


def _functions(plan: Plan) -> Iterator[Any]:
    yield from (node.fn for node in plan.nodes)
    for child in plan.children.values():
        yield from _functions(child.plan)
