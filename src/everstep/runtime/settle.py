"""From a finished call to its step record and the values it leaves."""

from __future__ import annotations

from everstep.engine import decide
from everstep.engine.state import RunState
from everstep.errors import EverstepError, GateError, NodeTimeout, OutputError, ValueNotStorable
from everstep.model.records import StepRecord
from everstep.runtime.invoke import Call, describe_error
from everstep.runtime.values import Slot, ValueSpace

_NODES_FAULT = (GateError, OutputError, ValueNotStorable)
"""Errors of ours that a node causes by what it returns. Any other is the host's trouble, not the node's."""


def draft_outputs(call: Call, space: ValueSpace) -> tuple[Slot, ...]:
    """Read a node's answer and encode its outputs; a node at fault gets the error as its own."""
    node = call.node
    if call.error is not None:
        return ()
    try:
        if node.is_gate:
            call.decision = node.decide(call.returned)
            return ()
        names = node.outputs
        if len(names) == 1:
            return (space.draft(names[0], call.returned, node.persist),)
        values = zip(names, node.spread(call.returned), strict=True)
        drafts = tuple([space.draft(name, value, node.persist) for name, value in values])
        if sum(not d.is_frozen for d in drafts) > 1:
            # They may share an object, which would then be handed to two readers.
            for draft in drafts:
                draft.is_lent = True
        return drafts
    except _NODES_FAULT as error:
        call.error = error
        return ()


def step_of(call: Call, drafts: tuple[Slot, ...], state: RunState, chance: float) -> StepRecord:
    """Return the record of a finished call. `chance` picks the jitter of the pause before a retry."""
    if call.error is None:
        return decide.completed(
            state,
            call.index,
            reads=call.reads,
            writes=tuple([d.written for d in drafts]),
            decision=call.decision,
            key=call.key,
            started_at=call.started_at,
            ended_at=call.ended_at,
        )
    return decide.failed(
        state,
        call.index,
        error=describe_error(call.error),
        can_retry=_can_retry(call),
        chance=chance,
        reads=call.reads,
        key=call.key,
        started_at=call.started_at,
        ended_at=call.ended_at,
    )


def _can_retry(call: Call) -> bool:
    """True if the policy covers this error. Our own would only come again, but for a time-out."""
    error = call.error
    if isinstance(error, EverstepError) and not isinstance(error, NodeTimeout):
        return False
    return isinstance(error, call.node.retry.on)
