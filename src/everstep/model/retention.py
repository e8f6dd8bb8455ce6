"""How long runs are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from everstep.errors import BadRequest
from everstep.model.durability import Durability
from everstep.model.durations import Span, span_of, spell


@dataclass(init=False, frozen=True)
class Retention:
    """How long runs are kept, and how much of them. `Retention()` keeps everything.

    Each rule removes what it names, and a run goes if one of them says so. Counts are by flow, the newest
    run first. Nothing that a live run, a fork, a pin or an open wait needs is ever removed.
    """

    keep_for: timedelta | None
    """Runs that have ended are removed so long after their end, or after their result was acknowledged."""
    completed_for: timedelta | None
    """The same for those that completed."""
    keep_last: int | None
    """Only so many runs of a flow are kept."""
    whole: int | None
    """Only so many of them keep all their checkpoints; older ones keep the last."""
    abandoned_for: timedelta | None
    """Unfinished runs without an owner are removed after so long."""
    tombstones_for: timedelta | None
    """For so long a removed run's id stays taken and its summary can be read; none for ever."""

    def __init__(
        self,
        *,
        keep_for: Span | None = None,
        completed_for: Span | None = None,
        keep_last: int | None = None,
        whole: int | None = None,
        abandoned_for: Span | None = None,
        tombstones_for: Span | None = None,
    ) -> None:
        spans = {
            "keep_for": keep_for,
            "completed_for": completed_for,
            "abandoned_for": abandoned_for,
            "tombstones_for": tombstones_for,
        }
        for field, span in spans.items():
            object.__setattr__(self, field, None if span is None else span_of(span, field))
        for field, count in (("keep_last", keep_last), ("whole", whole)):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
                raise BadRequest(f"{field} is {count!r}.", fix="Give a whole number from 1 on.")
            object.__setattr__(self, field, count)
        if self.whole is not None and self.keep_last is not None and self.whole > self.keep_last:
            raise BadRequest(
                f"whole is {whole}, but only {keep_last} runs are kept.",
                fix="Let keep_last be the larger one.",
            )

    @classmethod
    def tiers(cls, whole: int = 10, last_checkpoint: int = 50) -> Retention:
        """Keep the newest runs of a flow whole, of the next ones the last checkpoint, of older a summary."""
        return cls(whole=whole, keep_last=last_checkpoint)

    @property
    def keeps_all(self) -> bool:
        """True if it removes nothing."""
        return self == KEEP_ALL

    @property
    def counts(self) -> bool:
        """True if it asks how many runs of a flow there are."""
        return self.whole is not None or self.keep_last is not None

    def with_durability(self, durability: Durability) -> Retention:
        """Return it with what a flow's durability says of completed runs, unless it says something itself."""
        if self.completed_for is not None or durability.retain_completed_for is None:
            return self
        return self.changed(completed_for=durability.retain_completed_for)

    def changed(self, **fields: Any) -> Retention:
        """Return it with other rules."""
        return replace(self, **fields)

    def to_wire(self) -> dict[str, Any]:
        """Return its rules as JSON, spans as text."""
        return {
            field: spell(value) if isinstance(value, timedelta) else value
            for field, value in vars(self).items()
            if value is not None
        }

    @classmethod
    def of_wire(cls, told: Mapping[str, Any]) -> Retention:
        """Read what `to_wire` wrote; rules that a newer everstep knows are left out."""
        return cls(**{field: value for field, value in told.items() if field in cls.__dataclass_fields__})


KEEP_ALL: Final = Retention()


def checked_retention(given: object) -> Retention | None:
    """Return a policy, or raise if it is none."""
    if given is None or isinstance(given, Retention):
        return given
    raise BadRequest(f"retention is {given!r}.", fix="Give a Retention, such as Retention(keep_last=50).")
