"""Run one recorded step again, alone, on the values it read.

Nothing is written: no lease, no record, no artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from everstep.codec.compare import Change, Pair, compare
from everstep.codec.tags import Unreadable
from everstep.codec.values import Values
from everstep.engine.scope import Scope
from everstep.errors import (
    BadRequest,
    EverstepError,
    FlowChanged,
    RunNotFound,
    ValueNotStorable,
    ValueUnreadable,
)
from everstep.graph.author.channel import Channel
from everstep.graph.author.context import Context, Spent
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.graph.compile.plan import Child
from everstep.model.address import Address, find, plain_of
from everstep.model.enums import Persist, Status, ValueForm
from everstep.model.records import CHANNEL, CheckpointRecord, ErrorInfo, StepRecord, unit_of
from everstep.model.shapes import Value, called, shown
from everstep.on_demand import on_demand
from everstep.runtime.drive.apply import TASK, Lists
from everstep.runtime.drive.channel import ChannelDesk
from everstep.runtime.drive.invoke import (
    Call,
    Overdue,
    call_async,
    call_here,
    call_in_thread,
    describe_error,
    give_context,
)
from everstep.runtime.drive.prepare import Arguments
from everstep.runtime.preflight import check_flow
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.services import Services
from everstep.runtime.travel.recall import TASKS, RecalledChain, chain_of

if TYPE_CHECKING:
    from everstep.runtime.travel.recorded_calls import Past, RecordedUnits, Unwritten
else:
    Past = on_demand("everstep.runtime.travel.recorded_calls:Past")
    RecordedUnits = on_demand("everstep.runtime.travel.recorded_calls:RecordedUnits")
    Unwritten = on_demand("everstep.runtime.travel.recorded_calls:Unwritten")

_ENDED = (Status.COMPLETED, Status.FAILED)


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did when it was run again, beside what was recorded of it."""

    run_id: str
    path: str = msgspec.field(name="node")
    visit: int
    sequence: int = msgspec.field(name="checkpoint")
    """The checkpoint that holds the step."""
    inputs: dict[str, Value]
    """The values it read, by name."""
    outputs: Annotated[tuple[Pair, ...], called(before="recorded", after="now")]
    """The values it wrote: `before` as recorded, `after` as it wrote them now."""
    decision: tuple[str, ...] | None
    """What a gate chose now."""
    recorded_decision: tuple[str, ...] | None
    error: ErrorInfo | None
    """What it raised now."""
    recorded_error: ErrorInfo | None
    changed: tuple[str, ...] = ()
    """Durable calls in it that it asked for with other arguments now, such as `$search@1`. They gave what is
    recorded."""
    unasked: tuple[str, ...] = ()
    """Recorded ones that it did not ask for now, if it completed then and now."""
    made: tuple[str, ...] = ()
    """Ones that are not recorded, and were made now."""

    @shown
    def address(self) -> str:
        """The step as commands name it."""
        return str(Address.of(self.path, self.visit))

    @shown
    def is_equal(self) -> bool | None:
        """Whether it came out as recorded; none if that cannot be told, since an output cannot be read."""
        if self.decision != self.recorded_decision or not _is_same_error(self.error, self.recorded_error):
            return False
        if self.changed or self.unasked or self.made:
            return False
        found = {pair.is_equal for pair in self.outputs}
        return False if False in found else None if None in found else True


class _Recorded(NamedTuple):
    run_id: str
    record: CheckpointRecord
    step: StepRecord


async def replay(
    runs: RunReader, services: Services, run_id: str, step: str, flow: Flow, *, allow_effects: bool
) -> Replay:
    """Call the node of a recorded step with the values that it read, and compare what comes of it.

    Its durable calls give what is recorded of them; one that is not is made only with `allow_effects`.
    """
    check_flow(flow)
    _check_is_no_call(step)
    row = await runs.row(run_id)
    if row.flow_id != flow.name:
        raise FlowChanged(
            f"run {run_id!r} belongs to flow {row.flow_id!r}, not {flow.name!r}.",
            fix="Replay it with its own flow.",
        )
    chain = await chain_of(runs, run_id)
    recorded = find_step(run_id, chain.records, step)
    node = _node_at(flow, recorded.step.path)
    if recorded.step.wait is not None:
        raise BadRequest(
            f"{recorded.step.path!r} waited for an answer, so there is nothing to run again.",
            fix="Compare what it was told, or replay a step that read it.",
        )
    if node.is_effectful and not allow_effects:
        raise BadRequest(
            f"node {node.name!r} is effectful: a replay would do it to the world again.",
            fix="If that is what you want, pass allow_effects=True, or --effects.",
        )
    folded = await _moment_before(runs, recorded)
    call = await _call_of(folded, services, chain, recorded, node)
    inputs = {
        p.source: _copy(services.values, p.source, call.kwargs[p.name])
        for p in node.params
        if p.name in call.kwargs
    }
    desk = None
    if node.context_param is not None or Context.marks is not None:  # a helper of it may ask for one
        journal = Unwritten(run_id, await chain.key_run(recorded.record.sequence))
        past = Past(services, flow, journal, folded.state, folded.space)
        is_cut = folded.head.sequence >= recorded.record.sequence
        says = _Says(call, past, allow_effects=allow_effects, is_cut=is_cut)
        desk = await _give_context(runs, services, recorded, call, flow, journal.key_run, says)
    await _make(call, services)
    calls: RecordedUnits | None = call.units
    if calls is not None and calls.refusal is not None:
        raise calls.refusal
    now = _outputs(call, services.values)
    if desk is not None and call.error is None:
        now.update(desk.changed(call))
    if call.context is not None:
        call.context.close()
    is_over = recorded.step.status is Status.COMPLETED and call.error is None
    return Replay(
        run_id=run_id,
        path=recorded.step.path,
        visit=recorded.step.visit,
        sequence=recorded.record.sequence,
        inputs=inputs,
        outputs=(
            *await _compared(chain, recorded, now, services.values),
            *await _compared_tasks(chain, recorded, call, services.values),
        ),
        decision=call.decision,
        recorded_decision=recorded.step.decision,
        error=None if call.error is None else describe_error(call.error),
        recorded_error=recorded.step.error,
        changed=() if calls is None else calls.changed,
        unasked=_unasked(recorded.step, call) if is_over else (),
        made=() if calls is None else tuple(calls.made),
    )


def _check_is_no_call(step: str) -> None:
    found = unit_of(step)
    if found is not None:
        node, visit, _ = found
        raise BadRequest(
            f"{step!r} is a durable call inside a node, and is not made again alone.",
            fix=f"Replay its node, {Address.of(node, visit)}: the call gives what is recorded.",
        )


def _unasked(step: StepRecord, call: Call) -> tuple[str, ...]:
    """Return the recorded calls that a node did not ask for now, less those that it did not then."""
    at = call.scope.units.get(call.index)
    if at is None:
        return ()
    then = () if step.unit is None else step.unit.unasked
    seen = () if call.units is None else call.units.seen
    return tuple(sorted(at.at.keys() - {*then, *seen}))


def find_step(run_id: str, records: Sequence[CheckpointRecord], wanted: str) -> _Recorded:
    """Return the step that an address means; a visit that it leaves out is the last finished one."""
    steps = [
        _Recorded(run_id, record, step)
        for record in records
        for step in record.steps
        if not step.path.startswith("@") and step.status is not Status.RUNNING and unit_of(step.path) is None
    ]
    # An attempt that was to be tried again is better than nothing: the process may have died in the pause.
    for known in ([at for at in steps if at.step.status in _ENDED], steps):
        found = find(((at.step.path, at.step.visit) for at in known), wanted)
        if found is not None:
            return [at for at in known if (at.step.path, at.step.visit) == found][-1]
    names = dict.fromkeys(plain_of(at.step.path) for at in steps)
    raise RunNotFound(
        f"run {run_id!r} has no finished step {wanted!r}.",
        fix=f"It has steps of {', '.join(names) or 'no node'}; name one visit as node@2, one item as node#7.",
    )


def _node_at(flow: Flow, path: str) -> Node:
    """Return the node at a path, in the flow or in a flow inside it."""
    plan = flow.plan
    *outer, last = plain_of(path).split("/")
    for name in outer:
        child = plan.children.get(plan.index.get(name, -1))
        if child is None:
            raise _no_node(flow, path)
        plan = child.plan
    i = plan.index.get(last)
    if i is None:
        raise _no_node(flow, path)
    child = plan.children.get(i)
    if child is not None and child.is_leaf and "#" not in path.rpartition("/")[2]:
        raise BadRequest(f"{path!r} goes over items.", fix=f"Name one of them, such as {path}#0.")
    if child is not None and not child.is_leaf:
        raise BadRequest(
            f"{path!r} is a flow, not a step of one node.",
            fix=f"Name a node inside it, such as {path}{_any_item(child, path)}/{child.plan.paths[0]}.",
        )
    return plan.nodes[i] if child is None else child.plan.nodes[0]


def _any_item(child: Child, path: str) -> str:
    return "#0" if child.over is not None and "#" not in path.rpartition("/")[2] else ""


def _no_node(flow: Flow, path: str) -> FlowChanged:
    return FlowChanged(
        f"flow {flow.name!r} has no node {path!r}.", fix=f"It has {', '.join(flow.plan.paths)}."
    )


async def _moment_before(runs: RunReader, recorded: _Recorded) -> Rehydrated:
    """Fold the chain up to the step, as the step found it."""
    row, sequence = await runs.find(recorded.run_id, recorded.record.sequence)
    if sequence - 1 < (await runs.lineage.home(row, sequence - 1)).trimmed_before:
        # What lies before it was removed; what it read may still be there after it.
        return await runs.look_back(recorded.run_id, sequence)
    folded = await runs.look_back(recorded.run_id, sequence - 1)
    _, opened = await runs.lineage.read(row, sequence)
    folded.approach(opened, recorded.record.steps.index(recorded.step))
    return folded


async def _call_of(
    folded: Rehydrated, services: Services, chain: RecalledChain, recorded: _Recorded, node: Node
) -> Call:
    step = recorded.step
    state, space = folded.state, folded.space
    scope, i, _ = state.locate(step.path)
    if scope.parent is not None:
        Lists(space).fill(scope)
    _check_reads(recorded, node, chain, scope)
    desk = ChannelDesk(state, space, services.system)
    try:
        call = Arguments(space, lambda: desk).call_of(scope, i, node)
    except EverstepError as error:
        raise ValueUnreadable(
            f"{step.path!r} cannot be replayed: {error.message}",
            fix="Import the module of its class, or register its serializer.",
        ) from error
    await _correct(chain, recorded, call)
    call.visit, call.attempt, call.key, call.reads = step.visit, step.attempts, step.key, step.reads
    return call


def _check_reads(recorded: _Recorded, node: Node, chain: RecalledChain, scope: Scope) -> None:
    step = recorded.step
    lost = sorted(
        name
        for name, version in step.reads.items()
        if (write := chain.writes.get((step.whole_name(name), version))) is not None
        and write.form is ValueForm.TRANSIENT
    )
    if lost:
        raise ValueUnreadable(
            f"{step.path!r} cannot be replayed: {', '.join(lost)} was not kept.",
            fix='The node that wrote it says persist="no".',
        )
    for param in node.params:
        is_given = (
            param.source in step.reads or param.source in scope.plan.channelled[scope.plan.index[node.name]]
        )
        if param.required and not is_given and step.task is None:
            raise FlowChanged(
                f"node {node.name!r} reads {param.source!r} now, which it did not when the run was made.",
                fix="Give the parameter a default, or replay with the code that the run was made with.",
            )


async def _correct(chain: RecalledChain, recorded: _Recorded, call: Call) -> None:
    """Put the version that the step read in the place of one that a step beside it has written since."""
    step = recorded.step
    wanted = {
        (step.whole_name(name), version): name
        for name, version in step.reads.items()
        if call.reads.get(name) != version
    }
    found = await chain.values(recorded.record.sequence, list(wanted))
    for version, name in wanted.items():
        value = found[version]
        if isinstance(value, Unreadable):
            raise ValueUnreadable(
                f"{step.path!r} cannot be replayed: {name!r} cannot be read: {value.why}",
                fix="Import the module of its class, or register its serializer.",
            )
        for param in call.node.params:
            if param.source == name:
                call.kwargs[param.name] = value


class _Desk:
    """The channel as a step found it, and what a call does to it."""

    def __init__(self, folded: Rehydrated, services: Services) -> None:
        self._folded = folded
        self._clock = services.clock
        self._desk = ChannelDesk(folded.state, folded.space, services.system)

    def channel_for(self, call: Call, types: Mapping[str, Any] | None) -> Callable[[], Channel]:
        view = self._desk.seen_from(call.scope)
        return lambda: Channel(view, call, types)

    def changed(self, call: Call) -> dict[str, Any]:
        """Return the entries that a call changed, as they are now; a deleted one is not there."""
        channel = None if call.context is None else call.context.used_channel
        if channel is None or not channel.ops:
            return {}
        space, names = self._folded.space, []
        try:
            for draft in self._desk.drafts(channel.ops, self._clock.now()):
                names.append(draft.written.name)
                space.place("", draft.written.name, draft)
        except EverstepError as error:
            call.error = error
            return {}
        area = space.area(CHANNEL)
        return {
            name: space.peek(name.removeprefix(CHANNEL), CHANNEL)
            for name in names
            if name.removeprefix(CHANNEL) in area
        }


class _Says:
    """What a node speaks through that is run again: nothing of it is kept."""

    def __init__(self, call: Call, past: Past, *, allow_effects: bool, is_cut: bool) -> None:
        self._call = call
        self._past = past
        self._lock = past.services.system.lock()
        self._allow_effects = allow_effects
        self._is_cut = is_cut

    def spend(self, _: dict[str, Decimal]) -> Spent:
        """Count nothing: it was counted."""
        return Spent()

    @property
    def units(self) -> RecordedUnits:
        """Its durable calls."""
        with self._lock:  # threads of a node may ask at once
            if self._call.units is None:
                self._call.units = RecordedUnits(
                    self._past, self._call, allow_effects=self._allow_effects, is_cut=self._is_cut
                )
        found: RecordedUnits = self._call.units
        return found


async def _give_context(
    runs: RunReader,
    services: Services,
    recorded: _Recorded,
    call: Call,
    flow: Flow,
    key_run: str,
    says: _Says,
) -> _Desk:
    folded = await _moment_before(runs, recorded)  # another one, as what is done to the channel changes it
    desk = _Desk(folded, services)
    step, run_id = recorded.step, recorded.record.run_id
    channel = desk.channel_for(call, flow.channel)

    def refused() -> Channel:
        says.units.refuse(
            BadRequest(
                f"run {run_id!r} keeps its channel beside its records, which know no past of it.",
                fix="Replay steps that do not use the channel.",
            )
        )

    if folded.space.has_channel_elsewhere:
        channel = refused
    give_context(call, run_id, key_run, step.path, step.visit, channel, says=says)
    return desk


async def _make(call: Call, services: Services) -> None:
    if call.node.is_async:
        await call_async(call, None)
    elif services.owns_loop and call.node.timeout is None:
        call_here(call, None)  # on the caller's thread, where a debugger expects it
    else:
        try:
            await call_in_thread(call, services.pool, None)
        except Overdue as overdue:
            call.error = overdue.error
            call.is_dropped = True  # its thread may still run, and asks for no call any more


def _outputs(call: Call, values: Values) -> dict[str, Any]:
    """Return what a node wrote as a run would have kept it; a node at fault gets the error as its own."""
    node = call.node
    if call.error is not None:
        return {}
    try:
        if node.is_gate:
            call.decision = node.decide(call.returned)
            return {}
        written = dict(zip(node.outputs, node.spread(call.returned), strict=True))
        if node.persist is Persist.NO:
            return written
        return {name: _kept(values, node, name, value) for name, value in written.items()}
    except EverstepError as error:
        call.error = error
        return {}


async def _compared(
    chain: RecalledChain, recorded: _Recorded, now: dict[str, Any], values: Values
) -> tuple[Pair, ...]:
    step = recorded.step
    versions = {
        w.name: w.version
        for w in step.writes
        if not w.name.startswith(TASK) and w.form is not ValueForm.DELETED
    }
    whole = {name: (step.whole_name(name), version) for name, version in versions.items()}
    found = await chain.values(recorded.record.sequence, list(whole.values()))
    pairs = []
    for name in dict.fromkeys([*versions, *now]):
        if name not in versions:
            pairs.append(Pair(name, None, now[name], (Change(name, "added", None, now[name]),)))
        elif name not in now:
            before = found[whole[name]]
            pairs.append(Pair(name, before, None, (Change(name, "removed", before, None),)))
        else:
            pairs.append(compare(values, name, found[whole[name]], now[name]))
    return tuple(pairs)


async def _compared_tasks(
    chain: RecalledChain, recorded: _Recorded, call: Call, values: Values
) -> tuple[Pair, ...]:
    """Compare the tasks that a step asked for with those it asks for now."""
    asked = [] if call.context is None or call.error is not None else call.context.asked
    if not asked and not recorded.step.queued:
        return ()
    now = [
        {
            "node": task.node,
            "priority": task.priority,
            "arguments": {name: _copy(values, name, value) for name, value in task.arguments.items()},
        }
        for task in asked
    ]
    before = await chain.tasks(recorded.record.sequence, recorded.step)
    return (compare(values, TASKS, before, now),)


def _kept(values: Values, node: Node, name: str, value: Any) -> Any:
    """Return a value as a run would keep it; a result that cannot be stored is kept by no run."""
    try:
        return _copy(values, name, value)
    except ValueNotStorable:
        if name != node.result_name:
            raise
        return value


def _copy(values: Values, name: str, value: Any) -> Any:
    return values.decode(values.encode(value, name), name)


def _is_same_error(one: ErrorInfo | None, other: ErrorInfo | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.type, one.message) == (other.type, other.message)
