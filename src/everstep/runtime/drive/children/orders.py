"""What a record says of a run that a node has started: all that who takes over needs to admit it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.model.commits import ChildRun, Labels, OnParentCancel, StartedBy, Tag, Traits
from everstep.model.enums import Status
from everstep.model.records import STARTED, STARTS, UnitAt
from everstep.on_demand import on_demand
from everstep.runtime.drive.apply import units_prefix
from everstep.runtime.drive.values import ValueSpace
from everstep.runtime.inputs import Given

if TYPE_CHECKING:
    from everstep.runtime.drive.timed.times import times_kept
else:
    times_kept = on_demand("everstep.runtime.drive.timed.times:times_kept")


class ChildOrder(msgspec.Struct, frozen=True):
    """A run that a node wants to have started."""

    run_id: str
    flow: str
    by: str
    """The run that started it. A fork that has the record does not become that."""
    path: str
    visit: int
    inputs: Mapping[str, Any]
    on_parent_cancel: str = OnParentCancel.CANCEL
    priority: int = 0
    group: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    times: Mapping[str, str | float] | None = None
    """When it begins and is ended, if that was said."""

    def kept(self) -> dict[str, Any]:
        """Return it as a plain value for the record, without what was not said."""
        said = {name: getattr(self, name) for name in _OPTIONS}
        more = {name: given for name, given in said.items() if given != _UNSAID[name]}
        if "tags" in more:
            more["tags"] = [list(tag) for tag in self.tags]
        if self.times is not None:
            more["times"] = dict(self.times)
        return {
            "run_id": self.run_id,
            "flow": self.flow,
            "started_by": self.by,
            "inputs": dict(self.inputs),
            **more,
        }

    @property
    def child(self) -> ChildRun:
        """What the node is given."""
        return ChildRun(self.run_id, self.flow)

    @property
    def given(self) -> Given:
        """What the run is admitted with."""
        return Given(
            self.inputs,
            None,
            Traits(priority=self.priority, group=self.group),
            None,
            Labels(tuple(Tag(name, value) for name, value in self.tags)),
            StartedBy(self.by, self.path, self.visit, OnParentCancel(self.on_parent_cancel)),
            None if self.times is None else times_kept(self.times),
        )


_OPTIONS = ("on_parent_cancel", "priority", "group", "tags")
_UNSAID: Mapping[str, Any] = dict(zip(_OPTIONS, ChildOrder.__struct_defaults__, strict=False))


def order_of(kept: Mapping[str, Any], path: str, visit: int) -> ChildOrder:
    """Return what a record of a visit says that it has started."""
    more = {name: kept[name] for name in _OPTIONS if name in kept}
    if "tags" in more:
        more["tags"] = tuple((name, value) for name, value in more["tags"])
    if "times" in kept:
        more["times"] = kept["times"]
    return ChildOrder(kept["run_id"], kept["flow"], kept["started_by"], path, visit, kept["inputs"], **more)


def recorded_starts(state: RunState, space: ValueSpace) -> list[ChildOrder]:
    """Return the runs that visits under way have started, as their records say."""
    return [
        order_of(space.peek(label, units_prefix(scope, i)), scope.path_of(i), scope.visits[i] + 1)
        for scope, i, label in _labels(state)
    ]


def _labels(state: RunState) -> list[tuple[Scope, int, str]]:
    return [
        (scope, i, label)
        for scope in state.scopes()
        for i, units in scope.units.items()
        for label, unit in units.at.items()
        if label.startswith(STARTS) and _is_start(unit)
    ]


def _is_start(unit: UnitAt) -> bool:
    """True unless a call of a function has the name of a start; a digest alone has eight bytes."""
    is_one = unit.arguments[:1] == STARTED and len(unit.arguments) != _DIGEST
    return is_one and unit.status is Status.COMPLETED


_DIGEST = 8
