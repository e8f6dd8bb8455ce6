"""What is wrong, or odd, about the edges of a pipeline: conditions, labels of choices, ways for failures."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final

from everstep.dot.conditions import (
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
from everstep.dot.judging import MISSING, evaluate
from everstep.dot.resolve import Digraph, Edge, Node
from everstep.dot.source import Passage, problems_of
from everstep.errors import DotError
from everstep.graph.pipelines.choice import Way, with_statuses
from everstep.graph.pipelines.findings import Findings
from everstep.graph.pipelines.interviewers import choices_of, default_of, split_label
from everstep.graph.pipelines.kinds import KINDS, Kinds
from everstep.graph.pipelines.outcome import StageStatus
from everstep.graph.pipelines.vocabulary import ROUTES

_STRING: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_STATUS_KEYS: Final = frozenset({"outcome", "status", "outcome.status"})
_CAN_FAIL: Final = frozenset({"task", "tool", "subpipeline"})


def lint_ways(digraph: Digraph, kinds: Kinds, findings: Findings) -> None:
    """Check the edges, and what they make of the nodes they leave."""
    leaving: dict[str, list[Edge]] = {}
    routed: set[str] = set()
    for edge in digraph.edges:
        leaving.setdefault(edge.tail, []).append(edge)
        if _lint_condition(edge, findings) or kinds[edge.head] == "conditional":
            routed.add(edge.tail)
    for node in digraph.nodes.values():
        if kinds[node.id] == "human":
            _lint_choices(node, leaving.get(node.id, []), findings)
    _lint_failures(digraph, kinds, routed, findings)


def _lint_condition(edge: Edge, findings: Findings) -> bool:
    """Check an edge; return whether a failed stage may take it."""
    if "condition" not in edge.attributes:
        return Way(edge.head, edge.attributes.text("label", "")).is_for_failure
    passage = edge.attributes.passage("condition")
    try:
        condition = parse_condition(passage)
    except DotError as error:
        findings.take(problems_of(error), edge, code="pipeline.condition")
        return True
    for part in _parts(condition.root):
        if isinstance(part, Comparison):
            _lint_not(part, edge, passage, findings)
            _lint_status(part, edge, passage, findings)
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
            close = difflib.get_close_matches(str(value).lower(), known, n=1)
            fix = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(known)}."
            message = f"No stage ends with the status {_cut(str(value))!r}."
            problem = passage.problem(side.at, "", message, fix, severity="warning")
            findings.take([problem], edge, code="pipeline.unknown_status")


def _may_hold_for_failure(condition: Condition) -> bool:
    """False only if the condition asks for nothing but the status, and is false for a failure."""
    if not _STATUS_KEYS.issuperset(condition.keys):
        return True
    status = StageStatus.FAIL.value
    return evaluate(with_statuses(condition), lambda key: status if key in _STATUS_KEYS else MISSING)


def _lint_choices(node: Node, edges: list[Edge], findings: Findings) -> None:
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
