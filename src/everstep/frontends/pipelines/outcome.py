"""How a stage of a pipeline ended, and what it asks for next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from everstep.errors import OutputError


class StageStatus(StrEnum):
    """How a stage ended."""

    SUCCESS = "success"
    PARTIAL = "partial_success"
    RETRY = "retry"
    """It wants to be tried again."""
    FAIL = "fail"
    SKIPPED = "skipped"

    @property
    def is_good(self) -> bool:
        return self in (StageStatus.SUCCESS, StageStatus.PARTIAL)

    @classmethod
    def read(cls, text: Any) -> StageStatus | None:
        """Read a status as either dialect spells it, in any case; none if it is none."""
        return _SPELLINGS.get(str(text).strip().lower().replace("-", "_"))


_SPELLINGS: Final = {
    **{status.value: status for status in StageStatus},
    "partial": StageStatus.PARTIAL,
    "failure": StageStatus.FAIL,
    "failed": StageStatus.FAIL,
    "skip": StageStatus.SKIPPED,
    "ok": StageStatus.SUCCESS,
}


@dataclass(frozen=True, kw_only=True)
class StageError:
    """What went wrong in a stage."""

    type: str
    message: str
    retryable: bool | None = None
    """Whether another attempt may help; none leaves it to the node."""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a handler returns: how its stage ended, what it adds to the context, where it would go next."""

    status: StageStatus = StageStatus.SUCCESS
    context_updates: Mapping[str, Any] = field(default_factory=dict)
    preferred_label: str = ""
    """The label of the edge to take."""
    suggested_next: tuple[str, ...] = ()
    """Nodes to go to, the best first."""
    notes: str = ""
    failure_reason: str = ""
    response: str | None = None
    """What was answered to the prompt."""
    artifacts: tuple[str, ...] = ()
    """Where files that it made are found."""
    error: StageError | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception behind it, while it is at hand."""

    def __post_init__(self) -> None:
        status = StageStatus.read(self.status)
        if status is None:
            known = ", ".join(s.value for s in StageStatus)
            raise OutputError(f"{self.status!r:.60} is no status of a stage.", fix=f"Known are {known}.")
        object.__setattr__(self, "status", status)
        for name in ("suggested_next", "artifacts"):
            object.__setattr__(self, name, _texts(getattr(self, name), name))
        for name in ("context_updates", "metadata"):
            object.__setattr__(self, name, _named(getattr(self, name), name))

    @classmethod
    def fail(cls, reason: str, *, retryable: bool | None = None, type: str = "StageFailed") -> Outcome:
        """Return the outcome of a stage that failed for this reason."""
        error = StageError(type=type, message=reason, retryable=retryable)
        return cls(status=StageStatus.FAIL, failure_reason=reason, error=error)

    @classmethod
    def of(cls, returned: Any, node: str) -> Outcome:
        """Read what a handler returned: an outcome, its fields in either dialect, a text, or nothing."""
        if isinstance(returned, Outcome):
            return returned
        if returned is None:
            return cls()
        if isinstance(returned, str):
            return cls(response=returned)
        if isinstance(returned, bool):
            return cls() if returned else cls.fail(f"{node} said no.")
        if isinstance(returned, Mapping):
            return _from_fields(returned, node)
        raise OutputError(
            f"stage {node!r} returned {returned!r:.80} ({type(returned).__name__}).",
            fix="Return an Outcome, a dict with a status, a text, or nothing.",
        )

    @classmethod
    def kept(cls, record: Mapping[str, Any]) -> Outcome:
        """Read what is kept of an outcome in the record of its stage."""
        found = {key: value for key, value in record.items() if key in _FIELDS}
        return _from_fields(found, str(record.get("node", "")))

    def but(self, **changes: Any) -> Outcome:
        """Return the outcome with other fields."""
        return replace(self, **changes)

    def plain(self) -> dict[str, Any]:
        """Return the outcome as JSON may hold it, without what is empty; the status is always there."""
        found: dict[str, Any] = {"status": self.status.value}
        for name in ("preferred_label", "notes", "failure_reason", "response"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        for name in ("suggested_next", "artifacts"):
            if getattr(self, name):
                found[name] = list(getattr(self, name))
        for name in ("context_updates", "metadata"):
            if getattr(self, name):
                found[name] = dict(getattr(self, name))
        if self.error is not None:
            found["error"] = {
                "type": self.error.type,
                "message": self.error.message,
                "retryable": self.error.retryable,
                "details": dict(self.error.details),
            }
        return found


_ALIASES: Final = {
    "outcome": "status",
    "suggested_next_ids": "suggested_next",
    "preferred_next_label": "preferred_label",
}
_FIELDS: Final = frozenset(
    {
        *("status", "context_updates", "preferred_label", "suggested_next", "notes", "failure_reason"),
        *("response", "artifacts", "error", "metadata"),
    }
)


def _from_fields(given: Mapping[Any, Any], node: str) -> Outcome:
    found = {_ALIASES.get(str(key), str(key)): value for key, value in given.items()}
    status = StageStatus.read(found.get("status", StageStatus.SUCCESS))
    unknown = sorted(found.keys() - _FIELDS)
    if status is None or unknown:
        what = f"the status {found.get('status')!r:.60}" if status is None else f"{', '.join(unknown)!s:.120}"
        known = ", ".join(s.value for s in StageStatus) if status is None else ", ".join(sorted(_FIELDS))
        raise OutputError(f"stage {node!r} returned an outcome with {what}.", fix=f"Known are {known}.")
    found["status"] = status
    for name in ("preferred_label", "notes", "failure_reason"):
        found[name] = str(found.get(name) or "")
    if found.get("response") is not None:
        found["response"] = str(found["response"])
    found["error"] = _error(found.get("error"), node)
    return Outcome(**found)


def _named(value: Any, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OutputError(f"the {name} of a stage are {value!r:.80}.", fix="Give names and values.")
    return dict(value)


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if value is None:
        return ()
    if isinstance(value, Sequence) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise OutputError(f"{name} of a stage is {value!r:.80}.", fix="Give a list of texts.")


def _error(value: Any, node: str) -> StageError | None:
    if value is None or isinstance(value, StageError):
        return value
    if isinstance(value, str):
        return StageError(type="StageFailed", message=value)
    if isinstance(value, Mapping):
        retryable, details = value.get("retryable"), value.get("details") or {}
        if (retryable is None or isinstance(retryable, bool)) and isinstance(details, Mapping):
            return StageError(
                type=str(value.get("type", "StageFailed")),
                message=str(value.get("message", "")),
                retryable=retryable,
                details=dict(details),
            )
    raise OutputError(f"stage {node!r}: error is {value!r:.80}.", fix="Give type, message and retryable.")
