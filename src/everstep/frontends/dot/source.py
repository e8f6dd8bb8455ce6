"""A text with its lines and columns, and what is wrong with it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from everstep.errors import DotError

_LINE_END: Final = re.compile(r"\r\n?|\n")
_WIDEST: Final = 100
"""Of a longer line only the part around the place is shown."""
MOST_SAID: Final = 100
"""After so many problems reading stops."""


class Position(NamedTuple):
    """Where something stands: both count from 1, columns in characters."""

    line: int
    column: int


class Problem(NamedTuple):
    """One thing that is wrong, or odd, where it is, and how to fix it."""

    code: str
    message: str
    fix: str = ""
    file: str = ""
    line: int = 1
    column: int = 1
    excerpt: str = ""
    """The line it is in, and a caret below the place."""
    severity: str = "error"

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}:{self.column}" if self.file else f"line {self.line}:{self.column}"
        said = f"{at}: {self.message} {self.fix}".rstrip()
        return f"{said}\n{self.excerpt}" if self.excerpt else said


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything a text may ask for; beyond it is an error, never a hang."""

    characters: int = 64 * 1024 * 1024
    tokens: int = 4_000_000
    """Words, strings, signs; a prompt is one, however long."""
    depth: int = 200
    """Subgraphs inside one another."""
    nodes: int = 100_000
    edges: int = 500_000
    groups: int = 100_000
    """Subgraphs."""
    entries: int = 4_000_000
    """Attributes of all nodes and edges with those they take over from defaults, and nodes in subgraphs."""


class Source:
    """A text that can say where in it something is."""

    def __init__(self, text: str, file: str = "") -> None:
        self.text = text
        self.file = file
        self._starts: list[int] = []

    def __repr__(self) -> str:
        return f"<source {self.file or 'text'}: {len(self.text)} characters>"

    def place(self, at: int) -> Position:
        """Return the line and the column of an offset."""
        starts = self._line_starts()
        line = bisect_right(starts, at)
        return Position(line, at - starts[line - 1] + 1)

    def problem(self, at: int, code: str, message: str, fix: str = "", *, severity: str = "error") -> Problem:
        """Return a problem at an offset."""
        line, column = self.place(at)
        return Problem(code, message, fix, self.file, line, column, self._excerpt(line, column), severity)

    def _line_starts(self) -> list[int]:
        if not self._starts:
            self._starts = [0, *(end.end() for end in _LINE_END.finditer(self.text))]
        return self._starts

    def _excerpt(self, line: int, column: int) -> str:
        starts = self._line_starts()
        start, stop = starts[line - 1], starts[line] if line < len(starts) else len(self.text)
        left = max(start, start + column - 1 - _WIDEST // 2)
        shown = self.text[left : min(stop, left + _WIDEST)].rstrip("\r\n")
        before = shown[: start + column - 1 - left]
        blank = "".join("\t" if c == "\t" else " " for c in before)
        plain = "".join(c if c.isprintable() or c == "\t" else "?" for c in shown)
        number = str(line)
        return f"  {number} | {plain}\n  {' ' * len(number)} | {blank}^"


class Passage:
    """A text inside another, such as a condition in an attribute; its problems have their place there."""

    def __init__(self, text: str, source: Source | None = None, offsets: Iterable[int] = ()) -> None:
        self.text = text
        self._source = Source(text) if source is None else source
        self._offsets = offsets
        self._is_whole = source is None

    def problem(self, at: int, code: str, message: str, fix: str = "", *, severity: str = "error") -> Problem:
        """Return a problem at an index of the text."""
        return self._source.problem(self._offset(at), code, message, fix, severity=severity)

    def place(self, at: int) -> Position:
        """Return where an index of the text lies in the file."""
        return self._source.place(self._offset(at))

    def _offset(self, at: int) -> int:
        if self._is_whole:
            return at
        self._offsets = offsets = list(self._offsets)
        return offsets[at]


class Problems:
    """Everything that is wrong, collected before anything is raised."""

    def __init__(self, source: Source) -> None:
        self.found: list[Problem] = []
        self._source = source
        self._seen: set[int] = set()

    @property
    def are_enough(self) -> bool:
        return len(self.found) >= MOST_SAID

    def add(self, at: int, code: str, message: str, fix: str = "") -> None:
        """Note a problem, unless one is noted at the same place."""
        if at not in self._seen and not self.are_enough:
            self._seen.add(at)
            self.found.append(self._source.problem(at, code, message, fix))

    def take(self, problem: Problem) -> None:
        """Note a problem that was found elsewhere, a warning too."""
        self.found.append(problem)

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Note what a `DotError` raised inside says, and go on after it."""
        try:
            yield
        except DotError as error:
            self.found.extend(problems_of(error))

    def raise_if_any(self) -> None:
        """Raise one `DotError` with every error noted so far; warnings pass."""
        raise_for(self.found, self._source.file)


def problems_of(error: DotError) -> list[Problem]:
    """Return the problems that an error lists."""
    listed: Any = error.details.get("problems", ())
    return [Problem(**problem) for problem in listed]


def raise_for(found: Iterable[Problem], file: str = "", what: str = "the DOT text") -> None:
    """Raise a `DotError` with all errors among the problems, in the order of the text; warnings pass."""
    errors = sorted((p for p in found if p.severity == "error"), key=lambda p: (p.line, p.column))
    if errors:
        raise dot_error(errors, file, what)


def dot_error(errors: list[Problem], file: str = "", what: str = "the DOT text") -> DotError:
    """Return one error that says all of these."""
    said = "\n".join(map(str, errors))
    more = "\nand perhaps more." if len(errors) >= MOST_SAID else ""
    problems: list[dict[str, Any]] = [problem._asdict() for problem in errors]
    return DotError(f"{file or what} cannot be read:\n{said}{more}", file=file, problems=problems)
