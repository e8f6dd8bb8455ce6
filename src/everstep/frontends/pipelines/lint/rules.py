"""What is wrong, or odd, about a pipeline before it runs: the rules of both dialects, each once.
Apart from building, which goes on only when nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Final

from everstep.errors import close_matches
from everstep.frontends.dot.resolve import Digraph, ResolvedNode
from everstep.frontends.pipelines.findings import Findings
from everstep.frontends.pipelines.kinds import KINDS, TYPES, Dialect, Kinds
from everstep.frontends.pipelines.lint.branches import lint_branches
from everstep.frontends.pipelines.lint.values import lint_values
from everstep.frontends.pipelines.lint.ways import lint_ways
from everstep.frontends.pipelines.reading import name_of
from everstep.frontends.pipelines.vocabulary import ROUTES
from everstep.graph.check.diagnostics import Diagnostic
from everstep.graph.check.structure import NAME

_MOST_COMPARED: Final = 200_000
"""Pairs of names that are compared to find out which one was meant; then no more is said of that."""


def lint(
    digraph: Digraph, kinds: Kinds, *, handlers: Collection[str] = (), has_tools: bool = False
) -> list[Diagnostic]:
    """Return everything that can be said of a pipeline before it runs, in the order of its text.

    `handlers` are the ids, types and kinds that the caller has handlers for; `has_tools` says whether
    commands may run.
    """
    findings = Findings(digraph)
    findings.found.extend(kinds.problems)
    _Ends(digraph, kinds, findings).check()
    own = frozenset(handlers)
    _Names(digraph, kinds, findings, own).check()
    lint_ways(digraph, kinds, findings)
    lint_values(digraph, kinds, findings, handlers=own, has_tools=has_tools)
    lint_branches(digraph, kinds, findings)
    return sorted(findings.found, key=lambda found: (found.line, found.column))


class _Ends:
    """One start, an exit that can be reached, and nothing that cannot."""

    def __init__(self, digraph: Digraph, kinds: Kinds, findings: Findings) -> None:
        self._digraph = digraph
        self._kinds = kinds
        self._findings = findings

    def check(self) -> None:
        self._check_start()
        self._check_exit()
        for edge in self._digraph.edges:
            if self._kinds[edge.head] == "start":
                message = f"An edge leads to the start {edge.head!r}."
                fix = "Let it lead to the first node after the start."
                self._findings.error("pipeline.start_incoming", edge, message, fix)
            if self._kinds[edge.tail] == "exit":
                message = f"An edge leads away from the exit {edge.tail!r}."
                self._findings.error(
                    "pipeline.exit_outgoing", edge, message, "Nothing follows an exit: remove it."
                )
        if len(self._kinds.starts) == 1:
            self._check_reach(self._kinds.starts[0])

    def _check_start(self) -> None:
        starts = self._kinds.starts
        if not starts:
            fix = "Give one node shape=Mdiamond, shape=ellipse without edges to it, or the id start."
            self._findings.error("pipeline.single_start", None, "It has no start.", fix)
        for name in starts[1:]:
            message = f"{name!r} is a second start beside {starts[0]!r}."
            node = self._digraph.nodes[name]
            self._findings.error(
                "pipeline.single_start", node, message, "Keep one, and branch behind it.", "shape"
            )

    def _check_exit(self) -> None:
        exits = self._kinds.exits
        if not exits:
            fix = "Give one node shape=Msquare, shape=ellipse without edges away from it, or the id exit."
            self._findings.error("pipeline.single_exit", None, "It has no exit.", fix)
        if self._kinds.dialect is Dialect.ROUND:
            for name in exits[1:]:
                message = f"{name!r} is a second exit beside {exits[0]!r}."
                node = self._digraph.nodes[name]
                fix = "Let everything lead to one exit."
                self._findings.error("pipeline.single_exit", node, message, fix, "shape")

    def _check_reach(self, start: str) -> None:
        reached = _walk([start], self._after)
        exits = self._kinds.exits
        is_stuck = bool(exits) and reached.isdisjoint(exits)
        if is_stuck:
            message = f"From the start {start!r} no exit can be reached."
            node = self._digraph.nodes[start]
            self._findings.error("pipeline.exit_unreachable", node, message, "Draw the edge that is missing.")
        for node in self._digraph.nodes.values():
            if node.id not in reached and not (is_stuck and node.id in exits):
                message = f"No edge leads from the start to {node.id!r}."
                fix = "Draw one, or remove the node."
                self._findings.error("pipeline.unreachable", node, message, fix)
        leaving = _walk(exits, self._before)
        for edge in self._digraph.edges:
            if edge.tail in reached and edge.tail in leaving and edge.head not in leaving:
                message = f"From {edge.head!r} no exit can be reached, so the run ends without one."
                fix = "Draw an edge that leads on to the exit."
                self._findings.warning("pipeline.dead_end", edge, message, fix)

    @cached_property
    def _links(self) -> list[tuple[str, str]]:
        """Edges, and the ways that failures and goal gates take."""
        links = [(edge.tail, edge.head) for edge in self._digraph.edges]
        for node in self._digraph.nodes.values():
            links += [
                (node.id, node.attributes.text(key, "").strip()) for key in ROUTES if key in node.attributes
            ]
        # A failure anywhere can lead there.
        shared = {self._digraph.attributes.text(key, "").strip() for key in ROUTES}
        links += [(start, target) for start in self._kinds.starts for target in shared]
        return [(tail, head) for tail, head in links if head in self._digraph.nodes]

    @cached_property
    def _after(self) -> Mapping[str, list[str]]:
        return _grouped(self._links)

    @cached_property
    def _before(self) -> Mapping[str, list[str]]:
        return _grouped((head, tail) for tail, head in self._links)


class _Names:
    """Ids that can be names, each given once, and types that have a handler."""

    def __init__(self, digraph: Digraph, kinds: Kinds, findings: Findings, handlers: frozenset[str]) -> None:
        self._digraph = digraph
        self._kinds = kinds
        self._findings = findings
        self._handlers = handlers
        self._compared = 0

    def check(self) -> None:
        declared = [node.id for node in self._digraph.nodes.values() if node.declared_at is not None]
        for node in self._digraph.nodes.values():
            self._check_name(node)
            if node.declared_at is None and self._kinds[node.id] == "task":
                message = f"Only edges mention {node.id!r}, so it is a task without a prompt."
                fix = f"Declare it: {node.id} [prompt=...].{self._meant(node.id, declared)}"
                self._findings.warning("pipeline.undeclared_node", node, message, fix)
            if node.declared_again_at is not None:
                self._say_again(node)
            kind = self._kinds[node.id]
            if kind not in KINDS and not {kind, node.id} & self._handlers:
                message = f"Nothing handles the type {kind!r:.80} of {node.id!r}."
                known = (*TYPES, *self._handlers)
                fix = f"Register a handler of that name.{self._meant(kind, known)}"
                self._findings.error("pipeline.unknown_handler", node, message, fix, "type")
        self._check_targets()

    def _check_name(self, node: ResolvedNode) -> None:
        if not NAME.fullmatch(name_of(node.id)):
            message = f"{node.id!r:.80} cannot be the name of a step."
            fix = "Use letters, digits, . _ - in an id, and put words for people into a label."
            self._findings.error("pipeline.bad_id", node, message, fix)

    def _say_again(self, node: ResolvedNode) -> None:
        place = self._digraph.source.place(node.declared_again_at or 0)
        message = f"{node.id!r} is declared again in line {place.line}, with another value for an attribute."
        fix = "Give the second one an id of its own, or put everything into one statement."
        self._findings.error("pipeline.duplicate_node", node, message, fix)

    def _check_targets(self) -> None:
        for about in (None, *self._digraph.nodes.values()):
            attributes = self._digraph.attributes if about is None else about.attributes
            for key in ROUTES:
                target = attributes.text(key, "").strip()
                if target and target not in self._digraph.nodes:
                    message = f"{key} names {target!r:.80}, which is no node."
                    fix = f"Name a node.{self._meant(target, self._digraph.nodes)}"
                    self._findings.warning("pipeline.retry_target", about, message, fix, key)

    def _meant(self, name: str, known: Collection[str]) -> str:
        self._compared += len(known)
        close = close_matches(name, known, n=1) if self._compared <= _MOST_COMPARED else []
        return f" Did you mean {close[0]!r}?" if close else ""


def _walk(first: Iterable[str], links: Mapping[str, list[str]]) -> set[str]:
    reached = set(first)
    todo = list(reached)
    while todo:
        for name in links.get(todo.pop(), ()):
            if name not in reached:
                reached.add(name)
                todo.append(name)
    return reached


def _grouped(links: Iterable[tuple[str, str]]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one, other in links:
        found.setdefault(one, []).append(other)
    return found
