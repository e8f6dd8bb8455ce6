"""What differs between two moments of runs. Pure but for the values that are read to be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from everstep.client.views import RunState
from everstep.codec.compare import Change, compare
from everstep.codec.tags import Unreadable
from everstep.codec.values import Values
from everstep.model.address import Part, unvisited
from everstep.model.enums import Status
from everstep.model.records import BY_CHANCE, STREAM, UNIT, WAIT, WAITED, ErrorInfo, NodeState
from everstep.model.shapes import HIDDEN, shown

_UNTOUCHED = NodeState()
_LAST_VISIT = re.compile(r"@\d+\Z")


class NodeChange(msgspec.Struct, frozen=True):
    """A node that was visited more often, or stands elsewhere."""

    path: str = msgspec.field(name="node")
    visits: tuple[int, int]
    status: tuple[Status | None, Status | None]


class Moment(msgspec.Struct, frozen=True):
    """A run at one checkpoint."""

    run_id: str
    sequence: int = msgspec.field(name="checkpoint")
    status: Status
    error: ErrorInfo | None
    part: Annotated[Part | None, HIDDEN] = None
    """What is compared of it; none for all."""

    @classmethod
    def of(cls, state: RunState) -> Moment:
        """Describe where a run stands."""
        return cls(state.run_id, state.sequence, state.status, state.error, state.part)

    @shown
    def path(self) -> str | UnsetType:
        """The path of that part; left out for all of the run."""
        return UNSET if self.part is None else self.part.base


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two moments; false if nothing does."""

    before: Moment
    after: Moment
    values: tuple[Change, ...]
    nodes: tuple[NodeChange, ...]

    @shown
    def is_equal(self) -> bool:
        """True if nothing differs."""
        return not self

    @property
    def status(self) -> tuple[Status, Status]:
        """Where the run stood before and after."""
        return self.before.status, self.after.status

    def __bool__(self) -> bool:
        was, became = self.before, self.after
        is_elsewhere = was.status is not became.status or _spelled(was.error) != _spelled(became.error)
        return bool(self.values or self.nodes or is_elsewhere)


def compare_states(before: RunState, after: RunState, values: Values) -> Diff:
    """Return what differs between two states; a value is read only if its digest differs."""
    return Diff(
        before=Moment.of(before),
        after=Moment.of(after),
        values=tuple(change for _, change in value_changes(before, after, values)),
        nodes=tuple(node_changes(before, after)),
    )


def _spelled(error: ErrorInfo | None) -> tuple[str, str, str] | None:
    return None if error is None else (error.type, error.code, error.message)


def differing(before: RunState, after: RunState) -> dict[str, tuple[str | None, str | None]]:
    """Return the values that differ, by the name they are compared under, as each side calls them.

    None of them is read: digests tell. One that a side does not have is none there.
    """
    old, new = before.digests, after.digests
    was, became = _names(before), _names(after)
    names = dict.fromkeys([*was, *became])
    return {
        name: (was.get(name), became.get(name))
        for name in names
        if name not in was or name not in became or old.get(was[name]) != new.get(became[name])
    }


def value_changes(
    before: RunState, after: RunState, values: Values, *, largest: int | None = None
) -> Iterator[tuple[str, Change]]:
    """Yield what differs, value by value, each read when its turn comes; those that are larger are not."""
    for name, (was, became) in differing(before, after).items():
        one = None if was is None else _read(before, was, largest)
        other = None if became is None else _read(after, became, largest)
        if became is None:
            yield name, Change(name, "removed", one, None)
        elif was is None:
            yield name, Change(name, "added", None, other)
        else:
            for change in compare(values, name, one, other).changes:
                yield name, change
    yield from _call_changes(before, after, values, largest)


def _call_changes(
    before: RunState, after: RunState, values: Values, largest: int | None
) -> Iterator[tuple[str, Change]]:
    """Yield what differs of durable calls in visits under way; what gives time and chance always would."""
    old, new = before.digests, after.digests
    was, became = _calls(before), _calls(after)
    for name in dict.fromkeys([*was, *became]):
        here, there = was.get(name), became.get(name)
        one = None if here is None else _given(before, here, largest)
        other = None if there is None else _given(after, there, largest)
        if here is None or there is None:
            yield name, Change(name, "added" if here is None else "removed", one, other)
        elif here not in old or old[here] != new.get(there):
            for change in compare(values, name, one, other).changes:
                yield name, change


def _given(state: RunState, name: str, largest: int | None) -> object:
    """Return what a durable call gave: of a wait its answer, of one that failed what it raised."""
    at = state.calls[name]
    if at.error is not None:
        return f"{at.error.type}: {at.error.message}"
    found = _read(state, name, largest)
    return found.get("answer") if at.arguments == WAITED and isinstance(found, dict) else found


def _calls(state: RunState) -> dict[str, str]:
    """Return the names of what durable calls of visits under way gave, by those they are compared under."""
    found = {}
    for name, at in state.calls.items():
        visit, _, label = name.removeprefix(UNIT).rpartition("/")
        if at.arguments not in BY_CHANCE:
            found[f"{unvisited(_from(state.part, _LAST_VISIT.sub('', visit)))}/{label}"] = name
    return found


def _names(state: RunState) -> dict[str, str]:
    """Return what there is, and what there was and was not kept, by the name it is compared under."""
    names = [*state, *(name for name in state.versions if name not in state)]
    # What a wait asked for, and a stream under way, are kept under ids of their own: never equal. Durable
    # calls are compared apart.
    return _by_last_visit((name for name in names if not name.startswith((WAIT, STREAM, UNIT))), state.part)


def _by_last_visit(names: Iterable[str], part: Part | None, itself: str = "") -> dict[str, str]:
    """Name what is inside a flow without the visit: two runs may have come there by another round.

    What is inside a part is named from there, so that it can be compared with another.
    """
    found: dict[str, str] = {}
    for name in names:
        short = name if name[0] == "@" else unvisited(_from(part, name))
        if itself and part is not None and name == part.path:
            short = itself
        if short in found:  # the visit before is still there while the next is under way
            found[found[short]] = found[short]
        found[short] = name
    return found


def _from(part: Part | None, name: str) -> str:
    """Name something as it is called inside a part; what it is itself keeps its last name."""
    if part is None:
        return name
    return name[len(part.base) :].removeprefix("/") if part.has_inside(name) else name.rpartition("/")[2]


def _read(state: RunState, name: str, largest: int | None) -> object:
    if name not in state:
        return Unreadable("it was not kept")
    if largest is not None and (size := state.size_of(name)) > largest:
        return Unreadable(f"it has {size:,} bytes, which is too much to be compared here")
    try:
        return state[name]
    except Exception as error:  # whatever is wrong with one value, the others can be compared
        return Unreadable(error)


def node_changes(before: RunState, after: RunState) -> Iterator[NodeChange]:
    """Yield the nodes that were visited more often, or stand elsewhere."""
    old, new = before.nodes, after.nodes
    there, here = _by_last_visit(old, before.part, "."), _by_last_visit(new, after.part, ".")
    for path in dict.fromkeys([*there, *here]):
        was = old.get(there.get(path, ""), _UNTOUCHED)
        became = new.get(here.get(path, ""), _UNTOUCHED)
        if (was.visits, was.status) != (became.visits, became.status):
            yield NodeChange(path, (was.visits, became.visits), (was.status, became.status))
