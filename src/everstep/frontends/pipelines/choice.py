"""Which edge a pipeline takes: five steps, and none of them for a stage that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from everstep.frontends.dot.conditions import (
    Comparison,
    Condition,
    Constant,
    Every,
    Expression,
    Key,
    Not,
    Some,
)
from everstep.frontends.dot.judging import evaluate
from everstep.frontends.pipelines.interviewers import split_label
from everstep.frontends.pipelines.outcome import Outcome, StageStatus

_FAILING: Final = frozenset({"fail", "failure", "failed", "error", "on failure", "on_failure"})
"""Labels of edges that a failed stage takes."""
_STATUS_KEYS: Final = frozenset({"outcome", "status", "outcome.status"})


@dataclass(frozen=True)
class Way:
    """An edge that leads on from a node."""

    target: str
    """The id of the node it leads to."""
    label: str = ""
    condition: Condition | None = None
    weight: float = 0
    fidelity: str = ""
    thread_id: str = ""
    restarts: bool = False
    """True if the pipeline begins anew with it: its context and its counters are as at the start."""
    order: int = 0
    is_judged: bool = False
    """True if it leads to a conditional node, which looks at failures too."""

    @property
    def is_for_failure(self) -> bool:
        return self.condition is None and plain_label(self.label) in _FAILING


class Choice(NamedTuple):
    """The edge that was chosen, and why."""

    way: Way
    reason: str
    """`condition`, `preferred_label`, `suggested_next`, `weight`, `lexical`, `failure_label` or `judged`."""


def choose(
    ways: Sequence[Way],
    outcome: Outcome,
    lookup: Callable[[str], Any],
    *,
    by_specificity: bool,
    judges: bool = False,
) -> Choice | None:
    """Return the edge to take: by condition, preferred label, suggestion, weight, name; none if none may.

    A failed stage follows only an edge whose condition holds, one that is labelled for failures, or one to a
    conditional node, which `judges`: its own ways are open whatever the outcome that it looks at. Among
    conditions that hold, the most specific wins (`by_specificity`), or the heaviest and then the first by
    name.
    """
    held = [w for w in ways if w.condition is not None and evaluate(w.condition, lookup)]
    if held:
        if by_specificity:
            best = min(held, key=lambda w: (-_specificity(w), -w.weight, w.order))
        else:
            best = min(held, key=lambda w: (-w.weight, w.target, w.order))
        return Choice(best, "condition")
    if outcome.status is StageStatus.FAIL and not judges:
        marked = [w for w in ways if w.is_for_failure]
        judged = [w for w in ways if w.condition is None and w.is_judged]
        if marked:
            return Choice(_first(marked), "failure_label")
        return Choice(_first(judged), "judged") if judged else None
    plain = [w for w in ways if w.condition is None]
    if outcome.preferred_label:
        wanted = plain_label(outcome.preferred_label)
        named = [w for w in plain if plain_label(w.label) == wanted]
        if named:
            return Choice(_first(named), "preferred_label")
    for target in outcome.suggested_next:
        suggested = [w for w in plain if w.target == target]
        if suggested:
            return Choice(_first(suggested), "suggested_next")
    free = [w for w in plain if not w.is_for_failure]
    if not free:
        return None
    best = _first(free)
    is_heavier = any(w.weight < best.weight for w in free)
    return Choice(best, "weight" if is_heavier else "lexical")


def _first(ways: Iterable[Way]) -> Way:
    return min(ways, key=lambda w: (-w.weight, w.target, w.order))


def _specificity(way: Way) -> int:
    return way.condition.specificity if way.condition is not None else 0


def plain_label(label: str) -> str:
    """Return a label as labels are compared: without its key, in lower case."""
    return split_label(label)[1].lower() if label else ""


def with_statuses(condition: Condition) -> Condition:
    """Return the condition with statuses spelled as outcomes have them, whichever its dialect."""
    if condition.root is None:
        return condition
    root = _respelled(condition.root)
    named = _keys(root)
    keys = tuple(key for key in condition.keys if key in named)
    return msgspec.structs.replace(condition, root=root, keys=keys)


def _keys(root: Expression) -> set[str]:
    found: set[str] = set()
    left = [root]
    while left:
        match left.pop():
            case Every(parts=parts) | Some(parts=parts):
                left += parts
            case Not(operand=operand):
                left.append(operand)
            case Comparison(left=one, right=other):
                left += [one, other]
            case Key(name=name):
                found.add(name)
    return found


def _respelled(expression: Expression) -> Expression:
    match expression:
        case Every(parts=parts) | Some(parts=parts):
            return msgspec.structs.replace(expression, parts=tuple(_respelled(part) for part in parts))
        case Not(operand=operand):
            return msgspec.structs.replace(expression, operand=_respelled(operand))
        case Comparison(left=left, right=right):
            if isinstance(left, Key) and left.name in _STATUS_KEYS:
                return msgspec.structs.replace(expression, right=_status(right))
            if isinstance(right, Key) and right.name in _STATUS_KEYS:
                return msgspec.structs.replace(expression, left=_status(left))
    return expression


def _status(side: Expression) -> Expression:
    if isinstance(side, Key):
        # No status is compared with a key of that name: `outcome == success` means the word.
        meant = StageStatus.read(side.name)
        return side if meant is None else Constant(meant.value, side.at)
    if not isinstance(side, Constant):
        return side
    value = side.value
    if isinstance(value, tuple):
        return msgspec.structs.replace(side, value=tuple(_canonical(v) for v in value))
    return msgspec.structs.replace(side, value=_canonical(value))


def _canonical(value: Any) -> Any:
    known = StageStatus.read(value) if isinstance(value, str) else None
    return value if known is None else known.value
