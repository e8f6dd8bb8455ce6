"""What is wrong with a pipeline, as diagnostics with their place in the text."""

from __future__ import annotations

from collections.abc import Iterable

from everstep.frontends.dot.resolve import Digraph, Edge, ResolvedNode
from everstep.frontends.dot.source import Position, Problem
from everstep.graph.check.diagnostics import Diagnostic, Severity


class Findings:
    """Diagnostics of one digraph, in the order they were found."""

    def __init__(self, digraph: Digraph) -> None:
        self.found: list[Diagnostic] = []
        self._digraph = digraph

    def error(
        self, code: str, about: ResolvedNode | Edge | None, message: str, fix: str, key: str = ""
    ) -> None:
        """Note what keeps the pipeline from running; `key` is the attribute it is about."""
        self._add(code, Severity.ERROR, about, message, fix, key)

    def warning(
        self, code: str, about: ResolvedNode | Edge | None, message: str, fix: str, key: str = ""
    ) -> None:
        """Note what may not be as it was meant."""
        self._add(code, Severity.WARNING, about, message, fix, key)

    def info(
        self, code: str, about: ResolvedNode | Edge | None, message: str, fix: str, key: str = ""
    ) -> None:
        """Note what is worth knowing."""
        self._add(code, Severity.INFO, about, message, fix, key)

    def take(
        self,
        problems: Iterable[Problem],
        about: ResolvedNode | Edge | None,
        *,
        code: str,
        severity: Severity | None = None,
    ) -> None:
        """Note what reading an attribute found, under a code of pipelines."""
        for problem in problems:
            said = problem.message
            if problem.code != "dot.value":  # that begins with the name of an attribute
                said = said[:1].upper() + said[1:]
            place = Position(problem.line, problem.column)
            self._note(code, severity or Severity(problem.severity), about, said, problem.fix, place)

    def _add(
        self,
        code: str,
        severity: Severity,
        about: ResolvedNode | Edge | None,
        message: str,
        fix: str,
        key: str,
    ) -> None:
        self._note(code, severity, about, message, fix, self._place(about, key))

    def _note(
        self,
        code: str,
        severity: Severity,
        about: ResolvedNode | Edge | None,
        message: str,
        fix: str,
        place: Position,
    ) -> None:
        self.found.append(
            Diagnostic(
                code,
                severity,
                about.id
                if isinstance(about, ResolvedNode)
                else about.tail
                if isinstance(about, Edge)
                else "",
                (about.tail, about.head) if isinstance(about, Edge) else None,
                message,
                fix,
                file=self._digraph.source.file,
                line=place.line,
                column=place.column,
            )
        )

    def _place(self, about: ResolvedNode | Edge | None, key: str) -> Position:
        """Return where the attribute stands, or else the node's declaration or the edge's arrow."""
        attributes = self._digraph.attributes if about is None else about.attributes
        if key and key in attributes:
            return attributes.place(key)
        if isinstance(about, ResolvedNode):
            return self._digraph.source.place(about.at if about.declared_at is None else about.declared_at)
        return Position(1, 1) if about is None else self._digraph.place(about)
