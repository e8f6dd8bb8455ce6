"""What is wrong, or odd, about the edges of a pipeline: conditions, labels of choices, ways for failures.
Apart as one of the parts of `rules`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Final

from everstep.errors import DotError, close_matches
from everstep.frontends.dot.attributes import Attributes
from everstep.frontends.dot.conditions import (
    Comparison,
    Condition,
    Constant,
    Every,
    Expression,
    Key,
    Not,
    Some,
    parse_condition,
)
from everstep.frontends.dot.judging import MISSING, evaluate
from everstep.frontends.dot.resolve import Digraph, Edge, ResolvedNode
from everstep.frontends.dot.source import Passage, problems_of
from everstep.frontends.pipelines.choice import Way, with_statuses
from everstep.frontends.pipelines.findings import Findings
from everstep.frontends.pipelines.interviewers import choices_of, default_of, split_label
from everstep.frontends.pipelines.kinds import KINDS, Kinds
from everstep.frontends.pipelines.outcome import StageStatus
from everstep.frontends.pipelines.vocabulary import ROUTES

_STRING: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_STATUS_KEYS: Final = frozenset({"outcome", "status", "outcome.status"})
_MOST_ATOMS: Final = 10
_OPPOSITES: Final = {"!=": "=", ">=": "<", ">": "<="}
"""Comparisons that are taken for the contrary of others."""
_CAN_FAIL: Final = frozenset({"task", "tool", "subpipeline"})


def lint_ways(digraph: Digraph, kinds: Kinds, findings: Findings) -> None:
    """Check the edges, and what they make of the nodes they leave."""
    leaving: dict[str, list[Edge]] = {}
    routed: set[str] = set()
    for edge in digraph.edges:
        leaving.setdefault(edge.tail, []).append(edge)
        if _lint_condition(edge, findings) or kinds[edge.head] == "conditional":
            routed.add(edge.tail)
    has_route = any(digraph.attributes.text(key, "").strip() for key in ROUTES)
    for node in digraph.nodes.values():
        if kinds[node.id] == "human":
            _lint_choices(node, leaving.get(node.id, []), findings)
        elif kinds[node.id] != "parallel" and not has_route:
            _lint_cover(node, leaving.get(node.id, []), findings)
    _lint_failures(digraph, kinds, routed, findings)


def _lint_condition(edge: Edge, findings: Findings) -> bool:
    """Check an edge; return whether a failed stage may take it."""
    if "condition" not in edge.attributes:
        return Way(edge.head, edge.attributes.text("label", "")).is_for_failure
    passage = edge.attributes.passage("condition")
    try:
        condition = with_statuses(parse_condition(passage))
    except DotError as error:
        findings.take(problems_of(error), edge, code="pipeline.condition")
        return True
    for part in _parts(condition.root):
        if isinstance(part, Comparison):
            _lint_not(part, edge, passage, findings)
            _lint_status(part, edge, passage, findings)
            _lint_bare_word(part, edge, passage, findings)
    return _may_hold_for_failure(condition)


def _parts(root: Expression | None) -> Iterator[Expression]:
    left = [] if root is None else [root]
    while left:
        part = left.pop()
        yield part
        match part:
            case Every(parts=parts) | Some(parts=parts):
                left += parts
            case Not(operand=operand):
                left.append(operand)
            case Comparison(left=one, right=other):
                left += [one, other]


def _lint_not(comparison: Comparison, edge: Edge, passage: Passage, findings: Findings) -> None:
    if not isinstance(comparison.left, Not):
        return
    between = _STRING.sub("", passage.text[comparison.left.at : comparison.at])
    if between.count(")") > between.count("("):
        return
    message = f"`{_cut(between.strip())} {comparison.operator} ...` compares the NOT, not what is behind it."
    fix = "Write `NOT (a == b)` or `a != b`; or `(NOT a) == b` if it is meant so."
    problem = passage.problem(comparison.left.at, "", message, fix, severity="warning")
    findings.take([problem], edge, code="pipeline.not_first")


def _lint_status(comparison: Comparison, edge: Edge, passage: Passage, findings: Findings) -> None:
    for key, side in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
        if not (isinstance(key, Key) and key.name in _STATUS_KEYS and isinstance(side, Constant)):
            continue
        for value in side.value if isinstance(side.value, tuple) else (side.value,):
            if value == "" or StageStatus.read(value) is not None:
                continue
            known = [status.value for status in StageStatus]
            close = close_matches(str(value).lower(), known, n=1)
            fix = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(known)}."
            message = f"No stage ends with the status {_cut(str(value))!r}."
            problem = passage.problem(side.at, "", message, fix, severity="warning")
            findings.take([problem], edge, code="pipeline.unknown_status")


def _lint_bare_word(comparison: Comparison, edge: Edge, passage: Passage, findings: Findings) -> None:
    """Say so if text was probably meant: in the long grammar a word without quotes is a key."""
    word = comparison.right
    if not (isinstance(word, Key) and isinstance(comparison.left, Key)) or "." in word.name:
        return
    message = f"`{_cut(word.name)}` is a key here, not text: this holds only if the context has that key."
    fix = f"Write '{_cut(word.name)}' if text is meant, or context.{_cut(word.name)} if the key is."
    problem = passage.problem(word.at, "", message, fix, severity="warning")
    findings.take([problem], edge, code="pipeline.bare_word")


def _lint_cover(node: ResolvedNode, edges: list[Edge], findings: Findings) -> None:
    """Say so if a stage can succeed and then have no edge to take."""
    said = [edge.attributes for edge in edges]
    if not said or any(node.attributes.text(key, "").strip() for key in ROUTES):
        return
    if any(not a.text("condition", "").strip() and not _is_for_failure(a) for a in said):
        return
    try:
        conditions = [
            with_statuses(parse_condition(a.passage("condition"))) for a in said if "condition" in a
        ]
    except DotError:
        return  # told where it stands
    if conditions and _may_none_hold(conditions):
        message = f"If {node.id!r} succeeds and none of the conditions of its edges holds, the run fails."
        fix = "Draw an edge without a condition for every other case."
        findings.warning("pipeline.no_edge", node, message, fix)


def _is_for_failure(said: Attributes) -> bool:
    return Way("", said.text("label", "")).is_for_failure


def _may_none_hold(conditions: list[Condition]) -> bool:
    """True if after a success all these can be false. What they ask of the context may be so or otherwise."""
    atoms: dict[str, bool] = {}
    for condition in conditions:
        _holds(condition.root, atoms)
    names = list(atoms)
    if len(names) > _MOST_ATOMS:
        return False
    for values in product((False, True), repeat=len(names)):
        so = dict(zip(names, values, strict=True))
        if not any(_holds(condition.root, so) for condition in conditions):
            return True
    return False


def _holds(part: Expression | None, so: dict[str, bool]) -> bool:
    """Judge a condition after a success, with what is `so` in the context; what is not in there is noted."""
    match part:
        case None:
            return True
        case Every(parts=parts):
            judged = [_holds(inner, so) for inner in parts]  # all of them, so that all are noted
            return all(judged)
        case Some(parts=parts):
            judged = [_holds(inner, so) for inner in parts]
            return any(judged)
        case Not(operand=operand):
            return not _holds(operand, so)
        case Key(name=name) if name in _STATUS_KEYS:
            return True
        case Comparison(left=Key(name=name), right=Constant()) if name in _STATUS_KEYS:
            return evaluate(part, lambda key: StageStatus.SUCCESS.value)
        case Comparison(operator=operator, left=left, right=right):
            usual = _OPPOSITES.get(operator)
            sign = usual or operator.replace("==", "=")
            told = so.setdefault(f"{_spelled(left)} {sign} {_spelled(right)}", False)
            return not told if usual else told
        case Constant(value=value):
            return bool(value)
    return so.setdefault(_spelled(part), False)


def _spelled(part: Expression) -> str:
    match part:
        case Key(name=name):
            return name.removeprefix("context.")
        case Constant(value=value):
            return repr(str(value))
    return repr(part)


def _may_hold_for_failure(condition: Condition) -> bool:
    """False only if the condition asks for nothing but the status, and is false for a failure."""
    if not _STATUS_KEYS.issuperset(condition.keys):
        return True
    status = StageStatus.FAIL.value
    return evaluate(condition, lambda key: status if key in _STATUS_KEYS else MISSING)


def _lint_choices(node: ResolvedNode, edges: list[Edge], findings: Findings) -> None:
    """Check that each choice of a person has a key and a label of its own."""
    keys: dict[str, str] = {}
    for edge in edges:
        label = edge.attributes.text("label", "").strip() or edge.head
        key, text = split_label(label)
        for what, said in (("key", key.lower()), ("text", text.lower())):
            taken = keys.setdefault(f"{what} {said}", edge.head) if said else edge.head
            if taken != edge.head:
                message = (
                    f"Two choices of {node.id!r} have the {what} {said!r:.60}: {taken!r} and {edge.head!r}."
                )
                fix = "Begin each label with a key of its own, such as `[A] Approve`."
                findings.warning("pipeline.accelerators", edge, message, fix, "label")
                break
    default = node.attributes.text("human.default_choice", "").strip()
    choices = choices_of((edge.attributes.text("label", ""), edge.head) for edge in edges)
    is_free = len(edges) < 2 and not any(edge.attributes.text("label", "").strip() for edge in edges)
    if default and not is_free and default_of(default, choices) is None:
        message = f"human.default_choice of {node.id!r} is {default!r:.60}, which no edge leads to."
        fix = "Name the node that an edge leads to, or the label of the edge."
        findings.error("pipeline.default_choice", node, message, fix, "human.default_choice")


def _lint_failures(digraph: Digraph, kinds: Kinds, routed: set[str], findings: Findings) -> None:
    """Say once which stages end the run if they fail."""
    if any(digraph.attributes.text(key, "").strip() for key in ROUTES):
        return
    unrouted = [
        node
        for node in digraph.nodes.values()
        if (kinds[node.id] in _CAN_FAIL or kinds[node.id] not in KINDS)
        and node.id not in routed
        and not any(node.attributes.text(key, "").strip() for key in ROUTES)
    ]
    if unrouted:
        names = ", ".join(repr(node.id) for node in unrouted[:3])
        more = f" and {len(unrouted) - 3} more" if len(unrouted) > 3 else ""
        message = f"If {names}{more} fails, the run fails."
        fix = 'Draw an edge with condition="outcome=fail", or set retry_target.'
        findings.info("pipeline.no_failure_route", unrouted[0], message, fix)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
