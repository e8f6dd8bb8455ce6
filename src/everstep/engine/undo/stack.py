"""What a run has to undo: a stack of what it has completed, and the step that undoes the last of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cache

from everstep.engine.fold import activate, ask_again
from everstep.engine.scope import Scope
from everstep.errors import FlowError
from everstep.graph.author.node import Node
from everstep.graph.compile.plan import Plan
from everstep.model.commits import StopRequest
from everstep.model.enums import Effects, Status
from everstep.model.records import UNDOING, ErrorInfo, NodeState, StepRecord, Undoable, UndoState
from everstep.model.waits import SETTLE

ASK = "ask"
"""Behind how a run ends: a person says first whether it is undone."""


class Undoing:
    """The stack of a run, and how far it has come with undoing it."""

    __slots__ = ("asks", "done", "ends", "error", "is_declined", "scope", "skipped", "stack")

    def __init__(self, kept: UndoState | None = None) -> None:
        kept = UndoState() if kept is None else kept
        self.stack = list(kept.stack)
        """The last one is undone first."""
        self.ends = kept.ends
        """How the run ends then, as the word of a status; empty until it begins to undo."""
        self.error: ErrorInfo | None = kept.error
        """Why it failed."""
        self.asks = kept.asks
        """True until a person has said whether it is undone."""
        self.is_declined = kept.is_declined
        """True if that person said no."""
        self.done, self.skipped = kept.done, kept.skipped
        self.scope: Scope | None = None
        """Where the step stands that undoes the last one: a flow of one hidden node, which is ready only for
        who asks for it."""
        self._open()

    def kept(self, at: NodeState | None) -> UndoState:
        """Return it as a keyframe holds it, with where the hidden node stands."""
        return UndoState(
            stack=tuple(self.stack),
            ends=self.ends,
            error=self.error,
            asks=self.asks,
            is_declined=self.is_declined,
            done=self.done,
            skipped=self.skipped,
            at=at,
        )

    def next_retry(self, scopes: Iterator[Scope]) -> datetime | None:
        """Return when the earliest pause before an attempt ends."""
        every = list(scopes)
        places = unsettled(iter(every))
        if self.scope is not None:
            places.append((self.scope, 0))
        places += [(scope, i) for scope in every if is_to_end(scope) for i in scope.retry_at]
        return min((scope.retry_at[i] for scope, i in places if i in scope.retry_at), default=None)

    @property
    def has_begun(self) -> bool:
        """True once the records say that the run is undoing."""
        return self.ends != ""

    def needs_past(self, status: Status) -> bool:
        """True of a run that may still be undone: what an undo is given lies in its older checkpoints."""
        return status is not Status.COMPLETED and bool(self.stack)

    @property
    def is_under_way(self) -> bool:
        """True from when it begins until there is nothing left to do."""
        return self.has_begun and self.scope is not None

    @property
    def is_over(self) -> bool:
        """True if there is nothing left to do."""
        return self.has_begun and self.scope is None

    @property
    def came_to(self) -> str:
        """What is told of it: `undoing`, and in the end `complete`, `2 skipped` or `declined`."""
        if not self.is_over:
            return "undoing"
        if self.is_declined:
            return "declined"
        return f"{self.skipped} skipped" if self.skipped else "complete"

    # -- the fold -----------------------------------------------------------------------------------------

    def note(self, step: StepRecord) -> None:
        """Take a step into account that says how it is undone: one that is completed goes onto the stack.

        What was done inside it is undone with it, by what it says.
        """
        if step.undo is None or step.status is not Status.COMPLETED:
            return
        entry = Undoable(sequence=0, path=step.path, visit=step.visit, key=step.key, by=step.undo.by)
        inside = (f"{entry.address}/", f"{entry.address}#")
        self.stack = [
            one
            for one in self.stack
            if not one.path.startswith(inside) and (one.path, one.visit) != (step.path, step.visit)
        ]
        self.stack.append(entry)
        if self.has_begun:
            self._open()

    def number(self, sequence: int) -> None:
        """Note which checkpoint holds what was completed since the one before."""
        for k in range(len(self.stack) - 1, -1, -1):
            entry = self.stack[k]
            if entry.sequence:
                break
            self.stack[k] = Undoable(sequence, entry.path, entry.visit, entry.key, entry.by, entry.was)

    def begin(self, step: StepRecord) -> None:
        """Begin to undo."""
        ends, *more = step.decision or (Status.FAILED.value,)
        self.ends, self.error, self.asks, self.is_declined = ends, step.error, ASK in more, False
        self.done = self.skipped = 0
        self._open()

    def after(self, step: StepRecord) -> None:
        """Follow a step of the hidden node that was taken: once it has ended, the next one is the last."""
        if step.status not in (Status.COMPLETED, Status.CANCELLED):
            return
        is_done = step.status is Status.COMPLETED
        if self.asks:
            self.asks, self.is_declined = False, not is_done
        else:
            self.stack.pop()
            self.done += is_done
            self.skipped += not is_done
        self._open()

    def on_fork(self, step: StepRecord) -> Undoing | None:
        """Return what a fork has to undo: nothing of what its parent did, unless it goes on in its place."""
        if step.undo is None or not step.undo.is_kept:
            return None
        if self.scope is not None:
            ask_again(self.scope)
        return self

    # -- the hidden node ----------------------------------------------------------------------------------

    def _open(self) -> None:
        """Let the hidden node stand for what is to be done next."""
        self.scope = None
        if not self.has_begun or self.is_declined or not (self.asks or self.stack):
            return
        prefix = "" if self.asks else f"{self.stack[-1].address}/"
        self.scope = Scope(_blank(), prefix=prefix)
        activate(self.scope, 0, 0)

    @property
    def entry(self) -> Undoable | None:
        """What the hidden node undoes; none while a person is asked whether it may."""
        return None if self.asks or not self.stack else self.stack[-1]


def is_undone(undo: Undoing | None, when: str, stop: StopRequest, scopes: Iterator[Scope]) -> bool:
    """True if a run that was asked to stop is undone before it ends; `when` is what its flow says."""
    if undo is None or undo.has_begun:
        return undo is not None
    is_wanted = stop is StopRequest.UNDO or when in ("both", "cancel", "ask")
    return is_wanted and bool(undo.stack or unsettled(scopes))


def unsettled(scopes: Iterator[Scope]) -> list[tuple[Scope, int]]:
    """Return the nodes that can be undone, and of which it is not known whether they have done anything."""
    return [
        (scope, i)
        for scope in scopes
        if not scope.is_hidden
        for i in sorted({*scope.begun, *scope.units, *scope.opened, *scope.waiting})
        if (i in scope.due or i in scope.running) and _is_unknown(scope, i)
    ]


def _is_unknown(scope: Scope, i: int) -> bool:
    halted = scope.waiting.get(i)
    is_asked = halted is not None and halted.wait is not None and halted.wait.kind == SETTLE
    is_begun = (is_asked or i in scope.begun) and scope.plan.nodes[i].undo is not None
    return is_begun or bool(unknown_calls(scope, i)) or _has_begun_items(scope, i)


def _has_begun_items(scope: Scope, i: int) -> bool:
    """True of a map of atomic flows of which one may have made effects, and has not failed."""
    visit = scope.opened.get(i)
    if visit is None or not visit.begun:
        return False
    return any(item not in visit.scopes or visit.scopes[item].error is None for item in visit.begun)


def is_to_end(scope: Scope) -> bool:
    """True inside an atomic flow, or an item that is one, which can be undone once it has ended."""
    if not scope.is_hidden or scope.error is not None:
        return False
    around, place = scope, 0
    while around.is_hidden:
        assert around.parent is not None
        around, place = around.parent, around.place
    return around.plan.nodes[place].undo is not None


def unknown_calls(scope: Scope, i: int) -> frozenset[str]:
    """Return the durable calls of a visit that can be undone, and of which no record says what they did."""
    units = scope.units.get(i)
    at = {} if units is None else units.at
    return frozenset(label for label, unit in at.items() if unit.status is Status.RUNNING)


def plan_of_undo(node: Node) -> Plan:
    """Return the flow that the hidden node is in."""
    return Plan([node])


@cache
def _blank() -> Plan:
    """Return that flow for a fold, which calls nothing."""
    return plan_of_undo(Node(_no_body, name=UNDOING, effects=Effects.EFFECTFUL))


def _no_body() -> None:
    raise FlowError("what undoes this step is not known here.")
