"""What differs between two moments of runs. Pure but for the values that are read to be compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from everstep.client.views import RunState
from everstep.codec.compare import Change, Unreadable, compare
from everstep.codec.values import Values
from everstep.model.enums import Status
from everstep.model.records import ErrorInfo, NodeState

_UNTOUCHED = NodeState()


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that was visited more often, or stands elsewhere."""

    path: str
    visits: tuple[int, int]
    status: tuple[Status | None, Status | None]


@dataclass(frozen=True, slots=True)
class Moment:
    """A run at one checkpoint."""

    run_id: str
    sequence: int
    status: Status
    error: ErrorInfo | None


@dataclass(frozen=True, slots=True)
class Diff:
    """What differs between two moments; false if nothing does."""

    before: Moment
    after: Moment
    values: tuple[Change, ...]
    nodes: tuple[NodeChange, ...]

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
        _moment(before), _moment(after), tuple(_values(before, after, values)), tuple(_nodes(before, after))
    )


def _moment(state: RunState) -> Moment:
    return Moment(state.run_id, state.sequence, state.status, state.error)


def _spelled(error: ErrorInfo | None) -> tuple[str, str, str] | None:
    return None if error is None else (error.type, error.code, error.message)


def _values(before: RunState, after: RunState, values: Values) -> Iterator[Change]:
    old, new = before.digests, after.digests
    was, became = _names(before), _names(after)
    for name in dict.fromkeys([*was, *became]):
        if name not in became:
            yield Change(name, "removed", _read(before, name), None)
        elif name not in was:
            yield Change(name, "added", None, _read(after, name))
        elif old.get(name) != new.get(name):
            yield from compare(values, name, _read(before, name), _read(after, name)).changes


def _names(state: RunState) -> dict[str, None]:
    """Return what there is, and what there was and was not kept."""
    return dict.fromkeys([*state, *state.versions])


def _read(state: RunState, name: str) -> object:
    if name not in state:
        return Unreadable("it was not kept")
    try:
        return state[name]
    except Exception as error:  # whatever is wrong with one value, the others can be compared
        return Unreadable(error)


def _nodes(before: RunState, after: RunState) -> Iterator[NodeChange]:
    old, new = before.nodes, after.nodes
    for path in dict.fromkeys([*old, *new]):
        was, became = old.get(path, _UNTOUCHED), new.get(path, _UNTOUCHED)
        if (was.visits, was.status) != (became.visits, became.status):
            yield NodeChange(path, (was.visits, became.visits), (was.status, became.status))
