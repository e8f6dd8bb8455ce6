"""What is known of one resumption of a run, for events, responses and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.graph.author.flow import Flow
from everstep.graph.author.subflow import Subflow
from everstep.graph.compile.plan import deep_nodes
from everstep.model.budgets import spelled
from everstep.model.enums import Status
from everstep.model.records import CHANNEL, FlowFrontier
from everstep.on_demand import on_demand
from everstep.ports.store import RunRow
from everstep.runtime.drive.chain_writer import Journal
from everstep.runtime.drive.values import ValueSpace
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.model.address import plain_of
    from everstep.runtime.drive.undo.rules import check_goes_on
else:
    check_goes_on = on_demand("everstep.runtime.drive.undo.rules:check_goes_on")
    plain_of = on_demand("everstep.model.address:plain_of")


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """One resumption: where the run stood, and the number of this resume attempt."""

    run_id: str
    resume_id: str
    """Another one for each resumption."""
    checkpoint_id: str
    frontier: FlowFrontier
    attempt: int
    """1, or more if owners before this one died without progress."""
    resumed_at: datetime
    spent: dict[str, Decimal] = {}
    """What the run had spent by then."""
    progress: Mapping[str, Any] = {}
    """How far it had come in the words of the front end that made its flow, by the name of that."""

    @property
    def labels(self) -> dict[str, str]:
        """The ids under the names that traces and logs know them by."""
        return {
            "everstep.run_id": self.run_id,
            "everstep.resume_id": self.resume_id,
            "everstep.checkpoint_id": self.checkpoint_id,
        }

    def to_wire(self) -> dict[str, Any]:
        """Return the labels, and the rest under `resume`, as JSON has it."""
        rest: dict[str, Any] = {
            "frontier": self.frontier,
            "attempt": self.attempt,
            "resumed_at": self.resumed_at,
            "spent": spelled(self.spent),
        }
        rest |= self.progress
        encoded = msgspec.json.encode({"labels": self.labels, "resume": rest})
        wire: dict[str, Any] = msgspec.json.decode(encoded)
        return wire


def resumed_of(
    services: Services,
    journal: Journal,
    flow: Flow,
    state: RunState,
    space: ValueSpace,
    start: str | None = None,
) -> Resumed:
    """Say where a run stands that is about to go on, at the node where it is to start if one is given."""
    lease = journal.lease
    return Resumed(
        run_id=journal.run_id,
        resume_id=services.ids.new_id(),
        checkpoint_id=journal.head.checkpoint_id or "",
        frontier=state.frontier(),
        attempt=max(1, lease.takeovers if lease is not None else 1),
        resumed_at=services.clock.now(),
        spent=dict(state.books.spent),
        progress=flow.extension.progress(flow, state, _reader(space), start),
    )


def resume_points(
    row: RunRow, flow: Flow, state: RunState, space: ValueSpace, start: str | None
) -> tuple[str, ...]:
    """Return the nodes at which a run begins again; none to go on where it stands. Raises if it may not."""
    if state.undo is not None:
        check_goes_on(row, state, start)
    read = _reader(space)
    for scope, its_flow in _under_way(flow, state):
        its_flow.extension.check_resume(scope.prefix, read)
    return (start,) if start is not None else begins_again_at(row, flow, state, space)


def begins_again_at(row: RunRow, flow: Flow, state: RunState, space: ValueSpace) -> tuple[str, ...]:
    """Return the paths at which a run that failed begins again, by the rules of what failed in it."""
    if row.status is not Status.FAILED:
        return ()
    found, read = [], _reader(space)
    for scope, its_flow in _under_way(flow, state):
        failed = [scope.plan.nodes[i].name for i in scope.due if scope.statuses[i] is Status.FAILED]
        if not failed:
            continue
        name = its_flow.extension.resumes_at(scope.prefix, failed[0], read)
        if name is not None and name in scope.plan.index and name != failed[0]:
            found.append(scope.prefix + name)
    return tuple(found)


def start_marks(flow: Flow, starts: Sequence[str], *, is_told: bool) -> dict[str, Any]:
    """Return what the channel is told when a run begins again at nodes, which a person named or a rule."""
    flows = _flows(flow)
    marks: dict[str, Any] = {}
    for path in starts:
        its_flow = flows[plain_of(path.rpartition("/")[0])]
        marks |= its_flow.extension.start_marks(path, is_told=is_told)
    return marks


def choice_rule(flow: Flow, space: ValueSpace, starts: Sequence[str]) -> Callable[[Scope, int, int], bool]:
    """Return what says of a visit that a resume, which begins at these nodes, does not call what it works
    with, as that is done, and only lets it choose."""
    flows, read = _flows(flow), _reader(space)
    marks = start_marks(flow, starts, is_told=False)

    def told(key: str) -> Any:
        return marks[key] if key in marks else read(key)

    def only_chooses(scope: Scope, i: int, visit: int) -> bool:
        around: Scope | None = scope if scope.plan.nodes[i].is_gate else None
        while around is not None:
            its_flow = flows[plain_of(around.prefix[:-1])]
            path = scope.path_of(i).removeprefix(around.prefix)
            verdict = its_flow.extension.only_chooses(around.prefix, path, visit, told)
            if verdict is not None:
                return verdict
            around = around.parent
        return False

    return only_chooses


def _reader(space: ValueSpace) -> Callable[[str], Any]:
    area = space.areas.get(CHANNEL, {})
    return lambda key: space.peek(key, CHANNEL) if key in area else None


def _flows(flow: Flow) -> dict[str, Flow]:
    """Return a flow and those inside it, by where they stand in it."""
    if not flow.plan.children:
        return {"": flow}
    inside = {path: n.flow for path, n in deep_nodes(flow.plan) if isinstance(n, Subflow)}
    return {"": flow} | inside


def _under_way(flow: Flow, state: RunState) -> Iterator[tuple[Scope, Flow]]:
    """Yield what is open of a run, outer flows first, each with its definition."""
    flows = _flows(flow)
    for scope in state.scopes():
        found = flows.get(plain_of(scope.prefix[:-1]) if scope.prefix else "")
        if found is not None:
            yield scope, found
