"""What is wrong, or odd, about a flow: where, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, overload

from everstep.errors import (
    EverstepError,
    FlowError,
    HaltNeedsDurability,
    KeyMissing,
    NotCheckpointable,
    NotReplayable,
    ServiceMissing,
    UnknownNotifier,
    UnknownScheduler,
    ValueNotStorable,
)


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """The flow does not start."""
    WARNING = "warning"
    """It runs, but perhaps not as meant."""
    INFO = "info"


class Diagnostic(NamedTuple):
    """One finding: what it is called, where it is, and how to fix it."""

    code: str
    severity: str = Severity.ERROR
    node: str = ""
    """The path of the node, such as `rag/embed`; empty if it is about the flow."""
    edge: tuple[str, str] | None = None
    """From which node to which, if it is about what lies between two."""
    message: str = ""
    fix: str = ""
    services: tuple[str, ...] = ()
    """The services that the host lacks, as `durability::resume_scheduler`."""
    file: str = ""
    line: int = 0
    """Counted from 1, as is the column; 0 if it is about no text."""
    column: int = 0

    def __str__(self) -> str:
        place = f"{self.place}: " if self.line else ""
        return f"[{self.code}] {place}{self.message} {self.fix}".rstrip()

    @property
    def place(self) -> str:
        """Where in a text it is, as `FILE:3:14`; empty if it is about none."""
        if not self.line:
            return ""
        return f"{self.file}:{self.line}:{self.column}" if self.file else f"line {self.line}:{self.column}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        plain = self._asdict()
        plain["severity"] = str(self.severity)
        plain["edge"] = None if self.edge is None else list(self.edge)
        plain["services"] = list(self.services)
        if not self.line:
            del plain["file"], plain["line"], plain["column"]
        return plain


_RAISED: dict[str, type[EverstepError]] = {
    **{
        error.code: error
        for error in (
            *(NotCheckpointable, HaltNeedsDurability, ServiceMissing, KeyMissing, NotReplayable),
            *(UnknownScheduler, UnknownNotifier, ValueNotStorable),
        )
    },
}
"""What is raised for a code; a `FlowError` for any other."""


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Diagnostics(Sequence[Diagnostic]):
    """Everything found about one flow, the errors among it first."""

    def __init__(self, flow: str, found: Iterable[Diagnostic] = ()) -> None:
        self.flow = flow
        self._found = tuple(sorted(found, key=lambda d: _RANKS[Severity(d.severity)]))

    @overload
    def __getitem__(self, index: int) -> Diagnostic: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Diagnostic]: ...
    def __getitem__(self, index: int | slice) -> Diagnostic | Sequence[Diagnostic]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found)

    def __repr__(self) -> str:
        return f"<diagnostics of {self.flow}: {len(self.errors)} errors, {len(self.warnings)} warnings>"

    def __str__(self) -> str:
        return "\n".join(f"{d.severity} {d}" for d in self._found)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """What keeps the flow from starting."""
        return self._of(Severity.ERROR)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """What may not be as it was meant."""
        return self._of(Severity.WARNING)

    def _of(self, severity: Severity) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self._found if d.severity == severity)

    def raise_for_errors(self, *, tells_all: bool = False) -> None:
        """Raise if there are errors, all of them in one; its class is that of the first.

        With `tells_all` the error also carries the warnings, for those who ask with `Diagnostics.of`.
        """
        found = self.errors
        if not found:
            return
        kind = _RAISED.get(found[0].code, FlowError)
        carried = self._found if tells_all else found
        details: dict[str, Any] = {"flow": self.flow, "problems": [d.to_json() for d in carried]}
        services = sorted({name for d in found for name in d.services})
        if services:
            details["services"] = services
        if len(found) == 1 and kind is not FlowError:
            raise kind(found[0].message, fix=found[0].fix, **details)
        raise kind(f"flow {self.flow!r} cannot run: " + " ".join(map(str, found)), **details)

    @classmethod
    def of(cls, error: EverstepError, flow: str = "") -> Diagnostics:
        """Read the findings that an error carries; an error without any is one itself."""
        problems = error.details.get("problems")
        if not isinstance(problems, list):
            return cls(flow, [Diagnostic(error.code, message=error.message, fix=error.fix)])
        return cls(flow, [_read(problem) for problem in problems])

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "flow": self.flow,
            "errors": len(self.errors),
            "warnings": len(self.warnings),
            "diagnostics": [d.to_json() for d in self._found],
        }


def _read(problem: dict[str, Any]) -> Diagnostic:
    edge, path = problem.get("edge"), problem.get("path")
    known = {field: problem[field] for field in Diagnostic._fields if field in problem}
    return Diagnostic(
        **{
            **known,
            "edge": None if edge is None else (edge[0], edge[1]),
            "services": tuple(problem.get("services", ())),
            "message": f"{path}: {problem['message']}" if path else problem["message"],
        }
    )
