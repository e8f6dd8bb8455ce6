"""What a finished call becomes: the values it leaves, and its step record."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from everstep.engine import decide
from everstep.engine.state import RunState
from everstep.errors import (
    BadRequest,
    EverstepError,
    GateError,
    NodeTimeout,
    OutputError,
    ProbeFailed,
    ValueNotStorable,
)
from everstep.graph.author.node import Node
from everstep.graph.author.wait_options import Wait
from everstep.graph.compile.plan import may_be_transient
from everstep.model.enums import Persist, Status, ValueForm
from everstep.model.records import WAITED, ErrorInfo, QueuedTask, StepRecord, Undo, UnitFacts
from everstep.model.waits import SETTLE
from everstep.on_demand import on_demand
from everstep.runtime.drive.apply import TASK
from everstep.runtime.drive.invoke import Call, describe_error
from everstep.runtime.drive.values import Slot, ValueSpace

if TYPE_CHECKING:
    from everstep.graph.check.undoing import name_of_undo
    from everstep.runtime.drive.attributes import draft_attributes
    from everstep.runtime.drive.channel import ChannelDesk
else:
    name_of_undo = on_demand("everstep.graph.check.undoing:name_of_undo")
    draft_attributes = on_demand("everstep.runtime.drive.attributes:draft_attributes")


_NODES_FAULT = (GateError, OutputError, ValueNotStorable)
"""Errors of ours that a node causes by what it returns. Any other is the host's trouble, not the node's."""


LONGEST_ASKED = 3600.0
"""Seconds that an error may ask for before another attempt."""
MOST_OUTCOME = 64
"""Characters of a step's own word for how it ended."""


def draft_outputs(call: Call, space: ValueSpace) -> tuple[Slot, ...]:
    """Read a node's answer and encode its outputs; a node at fault gets the error as its own."""
    node = call.node
    if call.error is not None:
        return ()
    try:
        if node.is_gate:
            call.decision = node.decide(call.returned)
            return ()
        if isinstance(call.returned, Wait):
            raise OutputError(
                f"{call.path!r} returned a Wait, but does not halt.", fix="Declare it with @node(halts=True)."
            )
        names = node.outputs
        if node.inner is not None:
            return _draft_lifted(call, space)
        if len(names) == 1:
            return (_draft(call, space, names[0], call.returned),)
        values = zip(names, node.spread(call.returned), strict=True)
        return _lent([_draft(call, space, name, value) for name, value in values])
    except _NODES_FAULT as error:
        call.error = error
        return ()


def _draft_lifted(call: Call, space: ValueSpace) -> tuple[Slot, ...]:
    """Encode what an atomic flow gives, kept as the nodes inside it say. What they need not keep is kept all
    the same if it can be, as the flow is not called again for it; else it is an object of this process only.
    """
    node, child = call.node, call.scope.plan.children[call.index]
    values = dict(zip(node.outputs, node.spread(call.returned), strict=True))
    inner_names = {outer: inner for inner, outer in node.exports.items()}
    drafts = []
    for name, value in values.items():
        inner = inner_names[name]
        try:
            draft = space.draft(call.scope, name, value, child.persists.get(inner, node.persist))
        except ValueNotStorable:
            if not may_be_transient(child.plan, inner):
                raise
            draft = space.draft(call.scope, name, value, Persist.NO)
        drafts.append(draft)
    return _lent(drafts)


def _lent(drafts: list[Slot]) -> tuple[Slot, ...]:
    """Return what one node wrote; the values may share an object, which would be handed to two readers."""
    if sum(not d.is_frozen for d in drafts) > 1:
        for draft in drafts:
            draft.is_lent = True
    return tuple(drafts)


def _draft(call: Call, space: ValueSpace, name: str, value: object) -> Slot:
    """Encode an output. What a node that cannot be checkpointed writes need not be storable, nor what a
    node without outputs returns, if no node reads it: such a value is an object of this process only.
    """
    node, scope = call.node, call.scope
    try:
        return space.draft(scope, name, value, node.persist)
    except ValueNotStorable:
        is_unread = node.result_name is not None and name not in scope.plan.readers
        if not is_unread and node.checkpointable is not False:
            raise
        return space.draft(scope, name, value, Persist.NO)


def draft_asked(call: Call, space: ValueSpace, state: RunState, desk: ChannelDesk) -> tuple[Slot, ...]:
    """Encode what a node did to the channel, and the arguments of the tasks it asked for.

    Of one that failed that is what it did to the channel, if it said that this is to be kept.
    """
    context = call.context
    if context is None or (call.error is not None and not context.keeps_changes):
        return ()
    try:
        drafts: list[Slot] = []
        channel = context.used_channel
        if channel is not None and channel.ops:
            drafts += desk.drafts(channel.ops, call.ended_at)
        if context.new_attributes is not None:
            drafts += draft_attributes(space, context.new_attributes, desk.plain_attributes())
        if call.error is not None:
            return tuple(drafts)
        tasks: list[QueuedTask] = []
        asked_by = _origin(call)
        for number, asked in enumerate(context.asked, state.task_count + 1):
            prefix = f"{TASK}{number}/"
            drafts += [
                space.change(prefix + name, 1, value, ValueForm.WHOLE)
                for name, value in asked.arguments.items()
            ]
            names = tuple(asked.arguments)
            tasks.append(QueuedTask(asked.node, number, names, asked.priority, asked_by=asked_by))
            if call.scope.is_hidden:
                space.hidden.add(prefix)
        call.queued = tuple(tasks)
        call.goto = any(asked.goto for asked in context.asked)
        return tuple(drafts)
    except (*_NODES_FAULT, BadRequest) as error:
        call.error = call.error or error
        return ()


def _origin(call: Call) -> str:
    """Return who is behind a task: for one that a task asks for, the node that asked for that task."""
    scope, i = call.scope, call.index
    if call.task is not None and i in scope.plan.tasks:
        for task in scope.queue.get(i, ()):
            if task.number == call.task:
                return task.asked_by
    return call.node.name


def step_of(call: Call, drafts: tuple[Slot, ...], chance: float, ahead: timedelta) -> StepRecord:
    """Return the record of a finished call, with who answered the wait that it takes up.

    `chance` picks the jitter of the pause before a retry, which ends by the store's clock: that is `ahead`.
    """
    step = _step_of(call, drafts, chance, ahead)
    if call.node.undo is not None and step.status is Status.COMPLETED:
        step = with_undo(step, call.node)
    if call.units is not None or call.scope.units:
        step = _with_units(call, step)
    return step if call.act is None else msgspec.structs.replace(step, act=call.act)


def with_undo(step: StepRecord, node: Node) -> StepRecord:
    """Return the step with how it is undone."""
    assert node.undo is not None
    return msgspec.structs.replace(step, undo=Undo(by=name_of_undo(node.undo)))


def _skipped(call: Call) -> StepRecord:
    """Return the record of an undo that a person called off."""
    reason = ErrorInfo(type="UndoSkipped", message=call.skipped, code="undo.skipped")
    step = decide.cancelled(call.scope, call.index, reason=reason, now=call.ended_at)
    return msgspec.structs.replace(step, key=call.key, wait=call.answers)


def _step_of(call: Call, drafts: tuple[Slot, ...], chance: float, ahead: timedelta) -> StepRecord:
    if call.halt is not None:
        return decide.halted(
            call.scope,
            call.index,
            wait=call.halt,
            reads=call.reads,
            writes=tuple([d.written for d in drafts]),
            key=call.key,
            started_at=call.started_at,
            ended_at=call.ended_at,
            task=call.task,
        )
    if call.settled is not None:
        return _answered(call, drafts)
    if call.skipped:
        return _skipped(call)
    if call.is_again:
        return decide.again(
            call.scope, call.index, wait=call.answers, key=call.key, now=call.ended_at, guards=call.guards
        )
    if call.error is None:
        return decide.completed(
            call.scope,
            call.index,
            reads=call.reads,
            writes=tuple([d.written for d in drafts]),
            decision=call.decision,
            key=call.key,
            started_at=call.started_at,
            ended_at=call.ended_at,
            queued=call.queued,
            task=call.task,
            goto=call.goto,
            ends=call.context is not None and call.context.ends,
            wait=call.answers,
            outcome=_outcome(call),
        )
    return decide.failed(
        call.scope,
        call.index,
        error=describe_error(call.error),
        can_retry=can_retry(call),
        chance=chance,
        reads=call.reads,
        key=call.key,
        started_at=call.started_at,
        ended_at=call.ended_at,
        task=call.task,
        wait=call.answers,
        has_reported=has_reported(call),
        at_least=asked_pause(call.error),
        ahead=ahead,
        writes=tuple([d.written for d in drafts]),
        outcome=_outcome(call) if call.context is not None and call.context.keeps_changes else "",
    )


def _answered(call: Call, drafts: tuple[Slot, ...]) -> StepRecord:
    """Return the record of an answer that is taken in the middle of a node."""
    assert call.answers is not None
    name, _, occurrence = call.answers.unit.rpartition("@")
    return decide.unit(
        call.scope,
        call.index,
        name,
        int(occurrence),
        status=Status.COMPLETED if call.late is None else Status.FAILED,
        attempts=1,
        facts=UnitFacts(WAITED),
        error=None if call.late is None else describe_error(call.late),
        writes=tuple([d.written for d in drafts]),
        started_at=call.started_at,
        ended_at=call.ended_at,
        wait=call.answers,
    )


def _with_units(call: Call, step: StepRecord) -> StepRecord:
    """Return the step with what it says of durable calls: which differ, which were not asked for."""
    open_ones = call.scope.units.get(call.index)
    if open_ones is None or step.status is Status.HALTED or call.settled is not None:
        return step
    changed: tuple[str, ...] = () if call.units is None else call.units.take_changed()
    ends = step.status is Status.COMPLETED
    unasked = open_ones.at.keys() - (call.units.seen if call.units is not None else ()) if ends else ()
    is_fresh = step.error is not None and call.node.retry.units == "fresh"
    if not (changed or unasked or is_fresh):
        return step
    facts = UnitFacts(is_fresh=is_fresh, changed=changed, unasked=tuple(sorted(unasked)))
    return msgspec.structs.replace(step, unit=facts)


def asked_pause(error: BaseException | None) -> timedelta:
    """Return how long an error asks to wait before another attempt: its `retry_after`, in seconds."""
    said = vars(error).get("retry_after") if error is not None else None
    if not isinstance(said, (int, float)) or isinstance(said, bool) or not said > 0:
        return timedelta()
    return timedelta(seconds=min(said, LONGEST_ASKED))


def _outcome(call: Call) -> str:
    """Return how a node says that it ended, in its own words."""
    said = call.context.outcome if call.context is not None else ""
    return said[:MOST_OUTCOME] if isinstance(said, str) else ""


def has_reported(call: Call) -> bool:
    """False if what a failed call did to the world is as unknown as it was before."""
    if call.answers is not None and call.answers.kind == SETTLE:
        return False  # what an operator said could not be used
    is_known = call.is_made and not isinstance(call.error, (NodeTimeout, ProbeFailed))
    return is_known or call.index not in call.scope.begun


def can_retry(call: Call) -> bool:
    """True if the policy covers this error. Our own would only come again, but for a time-out."""
    error: BaseException | None = call.error
    if isinstance(error, ProbeFailed):
        error = error.__cause__
    if isinstance(error, EverstepError) and not isinstance(error, NodeTimeout):
        return False
    return isinstance(error, call.node.retry.on)
