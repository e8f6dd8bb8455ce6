"""Reading what a finished call has answered, before it becomes a step."""

from __future__ import annotations

from everstep.engine import decide
from everstep.engine.state import RunState
from everstep.errors import RunCancelled
from everstep.graph.author.waits import Wait
from everstep.runtime.drive.channel import ChannelDesk
from everstep.runtime.drive.invoke import Call, describe_error
from everstep.runtime.drive.step_records import draft_asked, draft_outputs
from everstep.runtime.drive.streams import Streams
from everstep.runtime.drive.subflows import Inner
from everstep.runtime.drive.values import Slot, ValueSpace
from everstep.runtime.waits.open import Waiting


class Reading:
    """Reads the answers of one drive's calls."""

    def __init__(
        self,
        waiting: Waiting,
        desk: ChannelDesk,
        inner: Inner,
        streams: Streams,
        space: ValueSpace,
        state: RunState,
    ) -> None:
        self._waiting = waiting
        self._desk = desk
        self._inner = inner
        self._streams = streams
        self._space = space
        self._state = state

    def read(self, call: Call) -> tuple[Slot, ...] | None:
        """Read a finished call's answer; none if nobody wants it any more."""
        scope = call.scope
        if scope.parent is None:
            scope.busy -= 1
        else:
            scope.let_go()
        may_be_off = scope.parent is not None or scope.plan.meetings
        if call.is_dropped or (may_be_off and not scope.awaits(call.index)):
            self._desk.release(call)
            return None
        if call.error is not None and isinstance(call.error, RunCancelled) and call.context is not None:
            reason = describe_error(call.error)
            self._inner.note(scope, decide.cancelled(scope, call.index, reason=reason, now=call.ended_at), ())
            raise call.error
        asked = call.asks or (call.returned if call.node.halts else None)
        if call.error is None and isinstance(asked, Wait):
            if scope.ended:  # nobody is to be asked for a flow that is over
                step = decide.cancelled(scope, call.index, reason=None, now=call.ended_at)
                self._inner.note(scope, step, ())
                return None
            return self._waiting.open(call, asked, self._desk)
        if call.is_again:
            return ()
        if call.stream is not None and call.error is not None:
            self._streams.keep_rest(call)
        drafts = draft_outputs(call, self._space)
        if call.context is not None:
            asked = draft_asked(call, self._space, self._state, self._desk)
            drafts = drafts + asked if call.error is None else asked
        return drafts
