"""What undoes a run while it is driven: which undo comes next, and its call. Apart from the loop, as most
runs undo nothing.

It takes the last entry of the stack and makes a call of it as of any node; the drive does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from everstep.engine.keys import automatic_key, declared_key
from everstep.engine.readiness import Place
from everstep.engine.scope import Scope
from everstep.engine.undo.stack import plan_of_undo, unknown_calls, unsettled
from everstep.errors import BadRequest, EverstepError
from everstep.graph.author.unknown_effects import for_an_operator
from everstep.graph.author.wait_options import Wait
from everstep.graph.check.undoing import KEY
from everstep.model.records import ErrorInfo, StepRecord, Undoable
from everstep.model.waits import SETTLE
from everstep.runtime.drive.apply import Lists
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.finish import can_retry, has_reported
from everstep.runtime.drive.invoke import Call, describe_error
from everstep.runtime.drive.parallel import Beside
from everstep.runtime.drive.prepare import Preparer
from everstep.runtime.drive.rest import Pauses
from everstep.runtime.drive.undo.arguments import undo_of
from everstep.runtime.integrity.run_check import newest_valid
from everstep.runtime.reader import RunReader

UNDOES: Final = "undoes"
"""What the context of a question calls the step that is undone."""
_SHOWN = 20
"""How many steps a question names."""


class Undoer:
    """The undoing of one run that is driven."""

    def __init__(self, run: RunContext, preparer: Preparer, pauses: Pauses) -> None:
        self._run = run
        self._state = run.state
        self._preparer = preparer
        self._pauses = pauses
        self._reader = RunReader(run.services, newest_valid)
        self._tried: dict[Place, frozenset[str]] = {}
        """Nodes that were entered again to tell of these durable calls."""
        self._reruns: set[Place] = set()
        """Effects that are to be made again, as a person said who was asked what had become of them."""

    # -- which comes next ---------------------------------------------------------------------------------

    def pick(self, beside: Beside, *, is_busy: bool) -> list[Place]:
        """Return what may start: effects of unknown fate to settle, and once there are none, one undo."""
        undo = self._state.undo
        assert undo is not None
        if undo.scope is not None and undo.asks:
            return self._startable([(undo.scope, 0)], beside)
        open_ones = unsettled(self._state.scopes())
        if open_ones:
            return self._startable(open_ones, beside)
        if undo.scope is None or is_busy:
            return []
        return self._startable([(undo.scope, 0)], beside)

    def _startable(self, places: list[Place], beside: Beside) -> list[Place]:
        now = self._pauses.now() if any(scope.retry_at for scope, _ in places) else None
        found = []
        for scope, i in places:
            if i in scope.running:
                continue
            if i in scope.retry_at and now is not None and scope.retry_at[i] > now:
                continue
            found.append((scope, i))
        return beside.apart_from_overdue(found) if beside.overdue else found

    # -- its call -----------------------------------------------------------------------------------------

    async def prepare(self, scope: Scope, i: int) -> Call | None:
        """Return the call of the hidden node; none for any other, which is prepared as always."""
        undo = self._state.undo
        assert undo is not None
        if scope is not undo.scope:
            return self._settling(scope, i)
        entry = undo.entry
        if entry is None:
            call = self._call(scope, {})
            call.asks = _whether_to_undo([one.address for one in undo.stack], undo.error)
            return call
        try:
            return await self._call_of(scope, entry)
        except EverstepError as error:
            call = self._call(scope, {})
            call.error, call.is_made = error, False
            return call

    def _settling(self, scope: Scope, i: int) -> Call | None:
        """Let a node tell what became of its effect; a person is asked about one that was left without."""
        if scope.parent is not None:
            Lists(self._run.space).fill(scope)
        if (scope, i) in self._reruns:
            self._reruns.discard((scope, i))
            scope.begun.discard(i)  # it is announced once more, and no one is asked again
        calls = unknown_calls(scope, i)
        if not calls or self._tried.get((scope, i)) != calls:
            self._tried[scope, i] = calls
            return None
        call = Call(scope, i, scope.plan.nodes[i], scope.visits[i] + 1, scope.attempts[i] + 1, {}, {})
        call.asks, call.is_made = for_an_operator(call.path, ", ".join(sorted(calls)), call.attempt), False
        return call

    def _call(self, scope: Scope, kwargs: dict[str, Any]) -> Call:
        return Call(scope, 0, scope.plan.nodes[0], scope.visits[0] + 1, scope.attempts[0] + 1, kwargs, {})

    async def _call_of(self, scope: Scope, entry: Undoable) -> Call:
        run = self._run
        node, kwargs = await undo_of(self._reader, run.services, run.flow, run.run_id, entry)
        if scope.plan.nodes[0] is not node:
            scope.plan = plan_of_undo(node)
        call = self._call(scope, kwargs)
        journal = self._run.journal
        call.key = scope.keys.get(0) or declared_key(
            node, journal.key_run, call.path, call.visit, kwargs, fork=self._state.key_run
        )
        if call.key is None:
            call.key = automatic_key(journal.key_run, call.path, call.visit)
        if any(p.name == KEY for p in node.params):
            call.kwargs.setdefault(KEY, call.key)
        await self._preparer.announce(call, is_unknown=0 in scope.begun)
        if node.context_param is not None:
            self._preparer.with_context(call, call.visit)
        return call

    def _is_unknown(self, call: Call) -> bool:
        """True if a call that has failed leaves it unknown what it, or a durable call of it, has done."""
        scope, i = call.scope, call.index
        is_unknown = not has_reported(call) and scope.plan.nodes[i].undo is not None
        return is_unknown or bool(unknown_calls(scope, i))

    def again(self, call: Call, step: StepRecord) -> StepRecord:
        """Return the record of an effect that is to be made again: until then it is as unknown as before."""
        if call.answers is None or call.answers.kind != SETTLE:
            return step
        self._tried.pop((call.scope, call.index), None)
        if call.node.undo is None:
            return step
        self._reruns.add((call.scope, call.index))
        return msgspec.structs.replace(step, unknown=True)

    # -- what becomes of it -------------------------------------------------------------------------------

    def judge(self, call: Call) -> None:
        """See what an attempt means while a run undoes: after one that failed for good a person is asked."""
        undo, scope = self._state.undo, call.scope
        assert undo is not None
        is_hidden = scope is undo.scope
        context = call.context if is_hidden and call.error is None else None
        if context is not None and (context.asked or context.ends):
            call.error = BadRequest(
                f"{call.path!r} asks for tasks, or for the end of its flow.",
                fix="An undo is no place in the flow: do there what undoes the step, and no more.",
            )
        error = call.error
        if error is None:
            if is_hidden and undo.asks and call.answers is not None and not call.returned.approved:
                call.skipped = call.returned.comment or "a person said no"
            return
        failures, policy = scope.attempts[call.index] + 1, scope.plan.nodes[call.index].retry
        if can_retry(call) and failures <= policy.times:
            return
        if is_hidden and undo.entry is not None:
            call.asks = _how_to_go_on(undo.entry.address, undo.entry.by, describe_error(error), failures)
        elif not is_hidden and self._is_unknown(call):
            key = call.key or scope.keys.get(call.index) or ""
            call.asks = for_an_operator(call.path, key, call.attempt)
        else:
            return
        call.error = None
        if call.context is not None:
            self._run.desk.release(call)
            call.context.close()
            call.context = None


def _how_to_go_on(address: str, by: str, error: ErrorInfo, failures: int) -> Wait:
    """Return the wait after an undo has failed for good: again, done by hand, or skipped with a reason."""
    return Wait(
        kind=SETTLE,
        prompt=f"{address} cannot be undone: {error.type}: {error.message.rstrip('.')}. "
        "Try again, say that it was done by hand, or skip it and say why.",
        context={
            UNDOES: address,
            "undo": by,
            "error": f"{error.type}: {error.message}",
            "attempts": failures,
        },
    )


def _whether_to_undo(addresses: Sequence[str], error: ErrorInfo | None) -> Wait:
    """Return the wait in which a person says whether a run is undone at all."""
    why = "it was cancelled" if error is None else f"{error.type}: {error.message}"
    named = list(reversed(addresses))[:_SHOWN]
    return Wait(
        kind="approval",
        prompt=f"Undo what the run has done? {len(addresses)} steps can be undone. Why: {why}",
        context={UNDOES: named, "steps": len(addresses)},
    )
