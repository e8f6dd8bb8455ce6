"""Opening and ending flows inside a run, in the same loop and the same chain as everything else. Apart from
the loop as what nested flows add to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from everstep.engine import decide, meetings
from everstep.engine.fold import enter, is_parked
from everstep.engine.scope import OpenedVisit, Scope
from everstep.errors import EverstepError, ItemsFailed, LiftError, MapInputError, StoreUnavailable
from everstep.graph.author.node import Node
from everstep.graph.compile.loops import bits
from everstep.graph.compile.plan import Child
from everstep.model.enums import OnError, Persist, Status
from everstep.model.records import ErrorInfo, StepRecord
from everstep.on_demand import on_demand
from everstep.runtime.drive.apply import FAILED_ITEM, Lists, lift
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.finish import with_undo
from everstep.runtime.drive.invoke import Call, InnerFailed, describe_error
from everstep.runtime.drive.values import Slot

if TYPE_CHECKING:
    from everstep.engine.undo.stack import is_to_end
else:
    is_to_end = on_demand("everstep.engine.undo.stack:is_to_end")

_NAMED = 5
"""How many failed items of a map its error names."""


class Inner:
    """The flows inside one run."""

    def __init__(
        self, run: RunContext, finish: Callable[[Call], None], fail_run: Callable[[ErrorInfo], None]
    ) -> None:
        self._journal = run.journal
        self._state = run.state
        self._space = run.space
        self._clock = run.clock
        self._teller = run.teller
        self._finish = finish
        """Takes the call of an atomic flow that has ended, as of any node."""
        self._fail_run = fail_run
        self._lists = Lists(run.space)
        self.fans: dict[OpenedVisit, tuple[Scope, int]] = {}
        """Maps that may have items to open."""
        self.has_announced = False
        """True if a record that an atomic flow is about to make effects is to be written first."""
        self.unkept: list[tuple[Scope, StoreUnavailable]] = []
        """Atomic items that have ended, and gave what the store could not take."""

    def read_lists(self) -> None:
        """Give what was open when the records end its inputs; may be tried again if one is out of reach."""
        for scope in tuple(self._state.scopes()):
            if scope.parent is not None:
                self._lists.fill(scope)

    def take_up(self) -> None:
        """Look at what was open when the records end."""
        state = self._state
        for scope, i, visit in state.fans():
            self.fans[visit] = (scope, i)
        for scope in tuple(state.scopes()):
            for i, visit in tuple(scope.opened.items()):
                if visit.is_map:
                    self._end_visit_if_over(scope, i, visit)
                elif not visit.done and not visit.failed:
                    self._enter(scope, i, 0)
            if scope.parent is not None:
                self.end_if_at_rest(scope)

    def note(self, scope: Scope, step: StepRecord, drafts: tuple[Slot, ...]) -> None:
        """Record a step, unless it is inside an atomic flow, of which nothing is kept."""
        if scope.is_hidden:
            self._journal.pass_by(step, drafts)
            if self._journal.meter is not None:
                self._journal.meter.passed(step)
        else:
            self._journal.add(step, drafts)
        if self._teller.is_heard:
            self._teller.step_ended(step)

    def cancel_others(self, scope: Scope, join: int, drop: Callable[[Scope, int], None]) -> None:
        """The first success is enough: call off what the other branches still do."""
        meeting = scope.plan.meetings[join]
        if not meeting.cancels or scope.statuses[join] is not Status.COMPLETED:
            return
        for i in tuple(bits(scope.active & meeting.everyone)):
            drop(scope, i)
            visit = scope.opened.get(i)
            if visit is not None:
                self.forget(visit)
            self.note(scope, decide.cancelled(scope, i, reason=None, now=self._clock.now()), ())

    # -- opening ------------------------------------------------------------------------------------------

    def open(self, scope: Scope, i: int) -> Exception | None:
        """Begin a visit to an inner flow; returns why it cannot begin."""
        child = scope.plan.children[i]
        try:
            items = self._lists.count(scope, i)
        except MapInputError as error:
            return error
        sources = [p.source for p in scope.plan.nodes[i].params]
        reads = {
            name: scope.versions[name]
            for name in sources
            if name in scope.versions and not meetings.is_left_out(scope, i, name)
        }
        step = decide.opened(scope, i, reads=reads, items=items, now=self._clock.now())
        is_kept = not scope.is_hidden and (items is not None or not child.is_atomic)
        if scope.plan.nodes[i].undo is not None and not (is_kept or scope.is_hidden):
            self.has_announced = True
            if i not in scope.begun:
                self._journal.add(with_undo(decide.announced(scope, i, None), scope.plan.nodes[i]), ())
        if is_kept:
            self._journal.add(step, ())
        else:
            self._journal.pass_by(step, ())
        if self._teller.is_heard:
            self._teller.step_ended(step)
        visit = scope.opened[i]
        if visit.is_map:
            self.fans[visit] = (scope, i)
            self._end_visit_if_over(scope, i, visit)
        else:
            self._enter(scope, i, 0)
        return None

    def fill(self, scope: Scope) -> None:
        """Give a flow its inputs, which a fold has none of."""
        if scope.parent is not None:
            self._lists.fill(scope)

    def refill(self, *, is_hidden: bool = False) -> None:
        """Open items of maps as far as their limits allow; or only of those inside atomic flows."""
        for visit, (scope, i) in tuple(self.fans.items()):
            if is_hidden and not scope.is_hidden:
                continue
            over = scope.plan.children[i].over
            assert over is not None
            is_read = False
            parked = self._parked(visit)  # what is opened from here on is not
            while len(visit.scopes) - len(visit.failed & visit.scopes.keys()) - parked < over.max_concurrency:
                if scope.error is not None or self.fans.get(visit) is None:
                    break
                if not is_read and visit.next < visit.count:
                    self._lists.read(scope, i)  # before an item is taken that would be passed over
                    is_read = True
                item = visit.next_item()
                if item is None:
                    self.fans.pop(visit, None)
                    break
                if self._journal.meter is not None and not scope.plan.children[i].is_leaf:
                    self._journal.meter.step_began(scope.path_of(i))  # that of a node's item is its call
                node = scope.plan.nodes[i]
                if node.undo is not None and scope.plan.children[i].is_atomic and not scope.is_hidden:
                    self.has_announced = True
                    if item not in visit.begun:
                        self._journal.add(with_undo(decide.item_begun(visit, item), node), ())
                self._enter(scope, i, item)

    def go_on_inside(self) -> None:
        """Let atomic flows that can be undone come to their ends, though their run goes on no more."""
        for scope, i, visit in tuple(self._state.fans()):
            for item in sorted(visit.begun - visit.scopes.keys()):
                self.fill(scope)
                self._lists.read(scope, i)
                self._enter(scope, i, item)
        for scope in tuple(self._state.scopes()):
            if is_to_end(scope):
                self._state.stir(scope)
                self.end_if_at_rest(scope)

    def _parked(self, visit: OpenedVisit) -> int:
        """Return how many items of a map only wait for answers; those take no other's place."""
        if not self._state.waits:
            return 0
        return sum(is_parked(inside) for inside in visit.scopes.values())

    def _enter(self, scope: Scope, i: int, item: int) -> None:
        inside = enter(scope, i, item)
        self._lists.fill(inside)
        self._state.stir(inside)
        self.end_if_at_rest(inside)

    # -- ending -------------------------------------------------------------------------------------------

    def after(self, scope: Scope, step: StepRecord) -> None:
        """See what a recorded step means for the flows around it."""
        if scope.parent is None:
            if step.status is Status.FAILED and scope.error is not None:
                self._fail_run(scope.error)
            return
        if scope.parent.plan.children[scope.place].is_leaf:
            self._after_item(scope.parent, scope.place, scope.item, step)
        elif scope.error is not None and self._is_doomed(scope):
            self._spread(scope)
        else:
            self.end_if_at_rest(scope)

    def _after_item(self, scope: Scope, i: int, item: int, step: StepRecord) -> None:
        visit = scope.opened.get(i)
        if visit is None:
            return
        is_tolerated = item in visit.failed
        if item in visit.scopes and visit.scopes[item].error is not None and not is_tolerated:
            if self._is_doomed(visit.scopes[item]):
                self._spread(visit.scopes[item])
            else:
                self._fail_visit(scope, i, visit, visit.scopes[item].error)
            return
        self._end_visit_if_over(scope, i, visit)
        self._end_if_failed(scope)

    def _is_doomed(self, scope: Scope) -> bool:
        """True if nothing between a failed flow and the root tolerates the failure."""
        while scope.parent is not None:
            over = scope.parent.plan.children[scope.place].over
            if over is not None and over.on_error is not OnError.STOP:
                return False
            if meetings.tolerates(scope.parent, scope.place):
                return False
            scope = scope.parent
        return True

    def _spread(self, scope: Scope) -> None:
        """Fail every flow around a failed one, up to the run."""
        error = scope.error
        while scope.parent is not None:
            parent, i = scope.parent, scope.place
            if parent.statuses[i] is Status.FAILED and parent.error is not None:
                return
            self._record_end(parent, i, parent.opened[i], error)
            scope = parent
        if error is not None:
            self._fail_run(error)

    def end_if_at_rest(self, scope: Scope) -> None:
        """End the visit, or the item, if nothing more will happen in an inner flow."""
        if scope.parent is None or not scope.is_at_rest:
            return
        parent, i, item = scope.parent, scope.place, scope.item
        visit = parent.opened.get(i)
        if visit is None or visit.scopes.get(item) is not scope or item in visit.failed:
            return  # an item that failed may stay open, to go on where it failed
        if visit.is_map:
            self._end_item(parent, i, visit, scope)
        elif parent.plan.children[i].is_atomic:
            self._end_atomic(parent, i, visit, scope)
        elif scope.error is not None:
            self._fail_visit(parent, i, visit, scope.error)
        else:
            visit.done.add(item)
            self._end_visit(parent, i, visit)

    async def end_again(self, scope: Scope) -> None:
        """End an item once more whose values could not be kept; raises if they still cannot."""
        self.end_if_at_rest(scope)
        if self.unkept and self.unkept[-1][0] is scope:
            raise self.unkept.pop()[1]

    def _end_item(self, parent: Scope, i: int, visit: OpenedVisit, scope: Scope) -> None:
        child = parent.plan.children[i]
        error: ErrorInfo | None = scope.error
        drafts: tuple[Slot, ...] = ()
        if error is None and child.is_atomic:
            try:
                drafts = self._kept_of(scope, parent.plan.nodes[i], child, is_kept=not parent.is_hidden)
            except StoreUnavailable as away:  # no item is to blame: it ends when the store is back
                if all(waiting is not scope for waiting, _ in self.unkept):
                    self.unkept.append((scope, away))
                return
            except EverstepError as refused:
                error = describe_error(refused)
        over = child.over
        if error is not None and (over is None or over.on_error is OnError.STOP):
            scope.error = error
            self._fail_visit(parent, i, visit, error)
            return
        step = decide.item_ended(visit, scope.item, error, self._clock.now())
        if drafts:
            step = _with_writes(step, drafts)
        if error is None and parent.plan.nodes[i].undo is not None:
            step = with_undo(step, parent.plan.nodes[i])
        self._abandon(scope)
        self.note(parent, step, drafts)
        self._end_visit_if_over(parent, i, visit)
        self._end_if_failed(parent)

    def _kept_of(self, scope: Scope, node: Node, child: Child, *, is_kept: bool) -> tuple[Slot, ...]:
        """Encode what an atomic item gives; nothing else of it is ever encoded."""
        area = self._space.area(scope.prefix)
        given = [inner for inner in node.exports if inner in area]
        error = _not_given(scope.prefix[:-1], node, given)
        if error is not None:
            raise error
        drafts = []
        for inner in given:
            value = self._space.peek(inner, scope.prefix)
            persist = child.persists.get(inner, Persist.AUTO)
            draft = self._space.draft(scope, inner, value, persist, is_kept=is_kept)
            if draft.spill is not None:
                self._space.write_aside(draft)
            drafts.append(draft)
        return tuple(drafts)

    def _end_visit_if_over(self, scope: Scope, i: int, visit: OpenedVisit) -> None:
        if scope.opened.get(i) is not visit:
            return
        if visit.is_over:
            self._end_visit(scope, i, visit)
        elif _stops(scope, i):
            failed = next((s.error for s in visit.scopes.values() if s.error is not None), None)
            if failed is not None:
                self._fail_visit(scope, i, visit, failed)

    def _end_if_failed(self, scope: Scope) -> None:
        """End a flow that failed while items of a map inside it were under way: the others never start."""
        if scope.error is not None:
            self.end_if_at_rest(scope)

    def _end_visit(self, scope: Scope, i: int, visit: OpenedVisit) -> None:
        over = scope.plan.children[i].over
        if visit.failed and over is not None and over.on_error is OnError.FINISH:
            self._fail_visit(scope, i, visit, self._items_failed(scope, i, visit))
            return
        try:
            drafts = lift(self._space, scope, i)
        except LiftError as error:
            self._fail_visit(scope, i, visit, describe_error(error))
            return
        self.forget(visit)
        now = self._clock.now()
        writes = tuple(d.written for d in drafts)
        step = decide.closed(scope, i, visit, writes=writes, error=None, now=now)
        node = scope.plan.nodes[i]
        if node.undo is not None and not visit.is_map:  # of a map, each item is undone
            step = with_undo(step, node)
        self.note(scope, step, drafts)
        self.after(scope, step)

    def _items_failed(self, scope: Scope, i: int, visit: OpenedVisit) -> ErrorInfo:
        """Say which items of a map failed, the first of them with its reason."""
        path = scope.path_of(i)
        failed = sorted(visit.failed)
        inside = visit.scopes.get(failed[0])  # nothing is left of an atomic one but its error
        first = (
            inside.error if inside is not None else self._space.peek(FAILED_ITEM, visit.prefix_of(failed[0]))
        )
        assert first is not None
        named = ", ".join(f"#{item}" for item in failed[:_NAMED]) + ", ..." * (len(failed) > _NAMED)
        message = (
            f"{len(failed)} of {visit.count} items of {path!r} failed ({named}), "
            f"the first with {first.type}: {first.message}."
        )
        again = "the atomic flow around them begins anew" if scope.is_hidden else "only these items run again"
        return describe_error(ItemsFailed(message, fix=f"Resume the run: {again}."))

    def _end_atomic(self, scope: Scope, i: int, visit: OpenedVisit, inside: Scope) -> None:
        """Hand an atomic flow's answer over like that of any node: it is one step."""
        node = scope.plan.nodes[i]
        call = Call(scope, i, node, visit.visit, scope.attempts[i] + 1, {}, dict(visit.reads))
        call.task = visit.task
        call.started_at = visit.started_at or self._clock.now()
        scope.hold()
        if inside.error is not None:
            call.error = InnerFailed(inside.error)
        else:
            area = self._space.area(inside.prefix)
            given = {inner: outer for inner, outer in node.exports.items() if inner in area}
            if len(given) < len(node.exports):
                call.error = _not_given(scope.path_of(i), node, given)
                call.node = node._copy(outputs=tuple(given.values()))
            values = tuple(self._space.peek(inner, inside.prefix) for inner in given)
            call.returned = values[0] if len(values) == 1 else values
        visit.scopes.pop(0, None)
        self._abandon(inside)
        self._finish(call)

    def _fail_visit(self, scope: Scope, i: int, visit: OpenedVisit, error: ErrorInfo | None) -> None:
        if self._must_wait(scope, i, visit, error):
            return
        if not self._record_end(scope, i, visit, error):
            return
        if scope.error is not None and scope.parent is not None and self._is_doomed(scope):
            self._spread(scope)
        elif scope.parent is None and scope.error is not None:
            self._fail_run(scope.error)
        else:
            self.end_if_at_rest(scope)

    def _must_wait(self, scope: Scope, i: int, visit: OpenedVisit, error: ErrorInfo | None) -> bool:
        """True if a failed map does not end the run and items of it still run: they are recorded first."""
        if not any(inside.busy for inside in visit.scopes.values()):
            return False
        if not meetings.tolerates(scope, i) and self._is_doomed(scope):
            return False
        self.fans.pop(visit, None)
        for inside in visit.scopes.values():  # nothing more starts in them
            inside.error = inside.error or error
        return True

    def _record_end(self, scope: Scope, i: int, visit: OpenedVisit, error: ErrorInfo | None) -> bool:
        if scope.statuses[i] is Status.FAILED and scope.visits[i] == visit.visit:
            return False
        self.forget(visit)
        step = decide.closed(scope, i, visit, writes=(), error=error, now=self._clock.now())
        self.note(scope, step, ())
        return True

    def forget(self, visit: OpenedVisit) -> None:
        """Look no more at a visit that is over, nor at anything inside it."""
        self.fans.pop(visit, None)
        self._lists.forget(visit)
        for inside in visit.scopes.values():
            self._abandon(inside)

    def _abandon(self, inside: Scope) -> None:
        """Look no more at a flow, nor at the maps inside it, which may have items left to open."""
        self._state.forget(inside)
        for deeper in inside.opened.values():
            self.forget(deeper)

    def fail(self, scope: Scope, error: ErrorInfo) -> None:
        """Fail an inner flow that can go no further."""
        scope.error = error
        if self._is_doomed(scope):
            self._spread(scope)
        else:
            self.end_if_at_rest(scope)


def _stops(scope: Scope, i: int) -> bool:
    """True for a map that fails with its first item."""
    over = scope.plan.children[i].over
    return over is not None and over.on_error is OnError.STOP


def _not_given(path: str, node: Node, given: Collection[str]) -> LiftError | None:
    """Return what is wrong if an atomic flow ended without something that it was to give for certain."""
    absent = next((inner for inner in node.exports if inner not in given), None)
    if absent is None or not node.must_lift:
        return None
    return LiftError(
        f"{path!r} was to give {absent!r}, but ended without writing it.",
        fix="Write it on every path of the flow, or lift it with .lift(..., required=False).",
    )


def _with_writes(step: StepRecord, drafts: tuple[Slot, ...]) -> StepRecord:
    return msgspec.structs.replace(step, writes=tuple(d.written for d in drafts))
