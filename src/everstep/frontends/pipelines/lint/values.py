"""What is wrong, or odd, about the attributes of a pipeline: their values, and those that are missing. Apart
as one of the parts of `rules`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from everstep.errors import BadRequest, DotError, close_matches
from everstep.frontends.dot.conditions import parse_condition
from everstep.frontends.dot.resolve import Digraph, Edge, ResolvedNode
from everstep.frontends.dot.source import problems_of
from everstep.frontends.dot.stylesheet import is_inline, parse_stylesheet
from everstep.frontends.pipelines.findings import Findings
from everstep.frontends.pipelines.kinds import Dialect, Kinds
from everstep.frontends.pipelines.outcome import StageStatus
from everstep.frontends.pipelines.vocabulary import (
    BUDGET,
    CHILD,
    EDGE_ATTRIBUTES,
    FIDELITIES,
    GRAPH_ATTRIBUTES,
    GRAPHVIZ,
    NODE_ATTRIBUTES,
    ROUTES,
    AttributeRule,
    value_of,
)
from everstep.model.budgets import Budget

MOST_RETRIES: Final = 5
LONGEST_PROMPT: Final = 1024 * 1024
"""Bytes."""

_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_][\w.]*)\}|([A-Za-z_][\w.]*\w|[A-Za-z_]))")
_SPOKEN: Final = ("prompt", "goal", "label", "tool_command")
"""Attributes in which `$variables` are filled in."""


def lint_values(
    digraph: Digraph, kinds: Kinds, findings: Findings, *, handlers: frozenset[str], has_tools: bool
) -> None:
    """Check every attribute, and that those are there without which a node cannot do its work."""
    values = _Values(digraph, findings)
    values.check()
    branches = Counter(edge.tail for edge in digraph.edges)
    for node in digraph.nodes.values():
        _lint_node(node, kinds, digraph, findings)
        if not handlers & {node.id, kinds[node.id], node.attributes.text("type", "")}:
            _lint_work(node, kinds[node.id], findings, has_tools=has_tools)
        if kinds[node.id] == "parallel":
            _lint_join(node, branches[node.id], findings)
    _lint_stylesheet(digraph, findings)
    _lint_variables(digraph, findings)


class _Values:
    """Each attribute read as what it is meant to be."""

    def __init__(self, digraph: Digraph, findings: Findings) -> None:
        self._digraph = digraph
        self._findings = findings
        self._seen: set[tuple[int, int]] = set()
        """Places of defaults: what is wrong with one is said once, not for each node that has it."""
        self._meant: dict[tuple[int, str], str] = {}

    def check(self) -> None:
        self._check(None, GRAPH_ATTRIBUTES)
        for node in self._digraph.nodes.values():
            self._check(node, NODE_ATTRIBUTES)
        for edge in self._digraph.edges:
            self._check(edge, EDGE_ATTRIBUTES)

    def _check(self, about: ResolvedNode | Edge | None, known: Mapping[str, AttributeRule]) -> None:
        attributes = self._digraph.attributes if about is None else about.attributes
        for key in attributes:
            wanted = known.get(key)
            if about is None and key.startswith(BUDGET):
                self._check_budget(key)
            elif wanted is None:
                self._check_name(about, key, known)
            elif key in ("fidelity", "default_fidelity"):
                self._check_fidelity(about, key)
            elif wanted.reads not in ("text", "node"):
                self._check_value(about, key, wanted)

    def _check_budget(self, key: str) -> None:
        try:
            Budget(key.removeprefix(BUDGET), self._digraph.attributes.text(key, ""))
        except BadRequest as error:
            said = error.message[:1].upper() + error.message[1:]
            self._findings.error("pipeline.value", None, said, error.fix, key)

    def _check_value(self, about: ResolvedNode | Edge | None, key: str, wanted: AttributeRule) -> None:
        attributes = self._digraph.attributes if about is None else about.attributes
        try:
            value = value_of(attributes, key, wanted)
        except DotError as error:
            if self._is_new(about, key):
                self._findings.take(problems_of(error), about, code="pipeline.value")
            return
        number = value.total_seconds() if isinstance(value, timedelta) else value
        if wanted.least is not None and number < wanted.least:
            bound = f"less than {wanted.least:g}"
        elif wanted.most is not None and number > wanted.most:
            bound = f"more than {wanted.most:g}"
        elif wanted.reads == "duration" and not number:
            bound = "no time at all"
        else:
            if key in ("max_retries", "default_max_retries", "default_max_retry") and number > MOST_RETRIES:
                self._say_high(about, key, number)
            return
        if self._is_new(about, key):
            message = f"{key} is {attributes[key].plain:.40}, {bound}."
            self._findings.error(
                "pipeline.value", about, message, "Write another value, or leave it out.", key
            )

    def _say_high(self, about: ResolvedNode | Edge | None, key: str, number: float) -> None:
        if self._is_new(about, key):
            message = f"{key} is {number:g}: a stage that always fails is run {number + 1:g} times."
            fix = "Leave it if that is meant."
            self._findings.info("pipeline.high_retry_count", about, message, fix, key)

    def _check_fidelity(self, about: ResolvedNode | Edge | None, key: str) -> None:
        attributes = self._digraph.attributes if about is None else about.attributes
        said = attributes.text(key, "").strip()
        if said and said not in FIDELITIES and self._is_new(about, key):
            message = f"{key} is {said!r:.60}, which is not known."
            fix = f"Write one of {', '.join(FIDELITIES)}."
            self._findings.warning("pipeline.fidelity", about, message, fix, key)

    def _check_name(
        self, about: ResolvedNode | Edge | None, key: str, known: Mapping[str, AttributeRule]
    ) -> None:
        if key.lower() in GRAPHVIZ and key.lower() not in known:
            return
        if (id(known), key) not in self._meant:
            close = close_matches(key.lower(), known, n=1, cutoff=0.8)
            self._meant[id(known), key] = close[0] if close else ""
        meant = self._meant[id(known), key]
        if meant and self._is_new(about, key):
            message = f"The attribute {key!r:.60} is not known, and nothing reads it."
            self._findings.warning(
                "pipeline.unknown_attribute", about, message, f"Did you mean {meant!r}?", key
            )

    def _is_new(self, about: ResolvedNode | Edge | None, key: str) -> bool:
        attributes = self._digraph.attributes if about is None else about.attributes
        place = attributes.place(key)
        is_new = place not in self._seen
        self._seen.add(place)
        return is_new


def _lint_node(node: ResolvedNode, kinds: Kinds, digraph: Digraph, findings: Findings) -> None:
    attributes = node.attributes
    for key in _SPOKEN:
        if key in attributes and len(attributes[key].text) > LONGEST_PROMPT // 4:
            size = len(attributes.text(key, "").encode())
            if size > LONGEST_PROMPT:
                message = f"The {key} of {node.id!r} has {size:,} bytes, more than {LONGEST_PROMPT:,}."
                fix = "Put the text into a file, and let the prompt name it."
                findings.error("pipeline.prompt_size", node, message, fix, key)
    _lint_simulation(node, findings)
    is_gate = attributes.text("goal_gate", "").strip().lower() == "true"
    is_routed = any(a.text(key, "").strip() for a in (attributes, digraph.attributes) for key in ROUTES)
    if is_gate and kinds.dialect is Dialect.SQUARE and not is_routed:
        message = f"The goal gate {node.id!r} has no retry_target: a run that did not pass it fails."
        fix = "Say with retry_target where the work begins again."
        findings.warning("pipeline.gate_retry", node, message, fix, "goal_gate")


def _lint_simulation(node: ResolvedNode, findings: Findings) -> None:
    said = node.attributes.text("simulate", "")
    for word in re.split("[,/]", said) if said.strip() else ():
        if StageStatus.read(word) is None:
            known = ", ".join(status.value for status in StageStatus)
            message = f"simulate says {word.strip()!r:.60}, which is no status."
            findings.error("pipeline.value", node, message, f"Known are {known}.", "simulate")
            return


def _lint_work(node: ResolvedNode, kind: str, findings: Findings, *, has_tools: bool) -> None:
    """Check that a node without a handler of the caller's own says what it does."""
    attributes = node.attributes
    has_words = any(attributes.text(key, "").strip() for key in ("prompt", "goal", "label"))
    if kind == "task" and not has_words and node.declared_at is not None:
        message = f"The task {node.id!r} has neither a prompt nor a goal nor a label."
        findings.warning("pipeline.missing_prompt", node, message, "Say in prompt=... what is to be done.")
    if kind == "subpipeline" and not any(attributes.text(key, "").strip() for key in CHILD):
        message = f"The sub-pipeline {node.id!r} names no file."
        fix = f'Set "{CHILD[0]}" to the file with the pipeline.'
        findings.error("pipeline.no_child", node, message, fix)
    stop = "manager.stop_condition"
    if kind == "subpipeline" and attributes.text(stop, "").strip():
        try:
            parse_condition(attributes.passage(stop))
        except DotError as error:
            findings.take(problems_of(error), node, code="pipeline.condition")
    if kind == "tool":
        _lint_tool(node, findings, has_tools=has_tools)


def _lint_tool(node: ResolvedNode, findings: Findings, *, has_tools: bool) -> None:
    if not node.attributes.text("tool_command", "").strip():
        message = f"The tool {node.id!r} has no command."
        findings.error("pipeline.no_command", node, message, "Set tool_command.")
    elif not has_tools:
        message = f"The tool {node.id!r} would run a command, and commands are not allowed."
        fix = "Read the commands, then say --allow-tools, or give tools= to Flow.from_dot."
        findings.error("pipeline.tools", node, message, fix, "tool_command")


def _lint_join(node: ResolvedNode, branches: int, findings: Findings) -> None:
    policy = node.attributes.text("join_policy", "").strip()
    try:
        k = node.attributes.integer("k", None)
    except DotError:
        return
    if policy == "k_of_n" and k is None:
        message, fix, key = (
            f"{node.id!r} joins k_of_n without k.",
            "Set k to how many branches have to succeed.",
            policy,
        )
    elif k is not None and k > branches:
        message, fix, key = (
            f"{node.id!r} waits for {k} branches and has {branches}.",
            f"Set k to at most {branches}.",
            "k",
        )
    else:
        return
    findings.error("pipeline.join", node, message, fix, "join_policy" if key == policy else key)


def _lint_stylesheet(digraph: Digraph, findings: Findings) -> None:
    if not is_inline(digraph.attributes.text("model_stylesheet", "")):
        return
    if "model_stylesheet" not in digraph.attributes:
        return
    try:
        sheet = parse_stylesheet(digraph.attributes.passage("model_stylesheet"))
    except DotError as error:
        findings.take(problems_of(error), None, code="pipeline.stylesheet")
        return
    findings.take(sheet.warnings, None, code="pipeline.style_property")


def _lint_variables(digraph: Digraph, findings: Findings) -> None:
    """Check that what the graph sets is used, and that what is used can have been set."""
    used: set[str] = set()
    said_goal = bool(digraph.attributes.text("goal", "").strip())
    for node in digraph.nodes.values():
        for key in _SPOKEN:
            text = node.attributes.text(key, "")
            names = {one or other for one, other in _VARIABLE.findall(text)} if "$" in text else set()
            used |= names
            if names & {"goal", "graph.goal"} and not said_goal:
                message = f"The {key} of {node.id!r} names $goal, and the pipeline has no goal."
                findings.warning("pipeline.missing_goal", node, message, "Set goal=... in the graph.", key)
                said_goal = True
    for edge in digraph.edges:
        used.update(re.findall(r"[\w.]+", edge.attributes.text("condition", "")))
    for key in digraph.attributes:
        is_known = key in GRAPH_ATTRIBUTES or key.lower() in GRAPHVIZ or key.startswith(("_", BUDGET))
        if not is_known and not used & {key, f"graph.{key}", f"context.graph.{key}"}:
            message = f"The graph sets {key!r:.60}, and nothing uses it."
            fix = f"Use it as ${key} in a prompt, or remove it."
            findings.warning("pipeline.unused_variable", None, message, fix, key)
