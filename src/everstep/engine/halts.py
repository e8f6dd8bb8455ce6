"""Nodes that wait for an answer: they are active, and no process works on them."""

from __future__ import annotations

from everstep.engine.scope import Scope
from everstep.graph.author.unknown_effects import SETTLE
from everstep.model.enums import Status
from everstep.model.records import StepRecord


def halt(scope: Scope, i: int, step: StepRecord) -> None:
    """A node waits for an answer; it is under way until that comes."""
    scope.statuses[i] = Status.HALTED
    scope.reads[i] = step.reads
    scope.waiting[i] = step
    scope.running.add(i)
    scope.retry_at.pop(i, None)
    if step.key is not None:
        scope.keys[i] = step.key


def ask_again(scope: Scope) -> None:
    """Forget what is waited for: the nodes that halted are to run once more."""
    for i, step in scope.waiting.items():
        scope.running.discard(i)
        if step.wait is not None and step.wait.kind == SETTLE:
            scope.begun.add(i)
        scope.statuses[i] = Status.COMPLETED if scope.visits[i] else None
    scope.waiting.clear()


def is_parked(scope: Scope) -> bool:
    """True if a flow only waits for answers."""
    if scope.busy:
        return False
    return bool(scope.waiting) or any(
        is_parked(inner) for visit in scope.opened.values() for inner in visit.scopes.values()
    )
