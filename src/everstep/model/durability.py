"""How a flow wants to be kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal, TypeVar

from everstep.errors import BadRequest
from everstep.model.durations import Span, span_of
from everstep.model.enums import Flush, Mode

KIB = 1024
MIB = 1024 * KIB
RECORD_BYTES = 16 * MIB
"""What the values in one record should not exceed. More is written in several, or beside them: a record that
outgrows what a store takes could never be written, however often its run is resumed."""
RECORD_STEPS = 10_000
"""Nor the steps in one record."""
VALUE_BYTES = 256 * MIB
"""What no value in a record may exceed, even if its node wants it there."""
BLOB_THRESHOLD = 512 * KIB
"""Values whose bytes exceed this are kept as artifacts, where a flow says nothing else."""
E = TypeVar("E", bound=StrEnum)
DurabilityMode = Mode | Literal["off", "partial", "strong"]
Interval = int | timedelta | str | tuple[int, timedelta | str] | None


@dataclass(init=False, frozen=True)
class Durability:
    """When a run writes checkpoints, and how it is leased.

    `off` writes nothing, and drives no run that is recorded. `partial` writes when the run is accepted,
    before and after effectful steps, when a node asks for it, and at the end. `strong` writes after every
    step, or every `interval` steps or seconds, or, with `flush="before_effects"`, after each step that is
    not declared pure; and before effects, too.
    """

    mode: Mode
    interval: Interval
    flush: Flush
    blob_threshold: int
    """Values whose bytes exceed this are kept beside the record, as artifacts."""
    lease_ttl: timedelta
    checkpoint_ttl: timedelta | None
    """Kept with the run, for clean-up."""
    retain_completed_for: timedelta | None
    """For clean-up; without one everything is kept."""
    retry_on_lease_conflict: int
    """How many times to wait for another owner's lease before giving up."""
    max_resume_attempts: int
    """Takeovers without progress after which the run is abandoned."""
    on_store_failure: str
    """`required` stops the run when the store fails; `best_effort` goes on, and keeps its checkpoints on this
    machine until the store can take them."""

    def __init__(
        self,
        mode: DurabilityMode = Mode.PARTIAL,
        *,
        interval: Interval = None,
        flush: Flush | Literal["every_step", "before_effects"] = Flush.EVERY_STEP,
        blob_threshold: int = BLOB_THRESHOLD,
        lease_ttl: Span = timedelta(seconds=30),
        checkpoint_ttl: Span | None = None,
        retain_completed_for: Span | None = None,
        retry_on_lease_conflict: int = 0,
        max_resume_attempts: int = 10,
        on_store_failure: Literal["required", "best_effort"] = "required",
    ) -> None:
        given = dict(locals())
        del given["self"]
        given["mode"] = mode_of(mode)
        given["flush"] = _enum(Flush, flush, "flush")
        given["interval"] = _interval(interval)
        for field in ("lease_ttl", "checkpoint_ttl", "retain_completed_for"):
            if given[field] is not None:
                given[field] = span_of(given[field], field)
        for field, value in given.items():
            object.__setattr__(self, field, value)
        self._check()

    def _check(self) -> None:
        every, span = self.interval_parts()
        if every is not None and every < 1:
            raise BadRequest(f"interval is {every}.", fix="Give at least 1 step.")
        if span is not None and span <= timedelta(0):
            raise BadRequest(f"interval is {span}.", fix="Give a span above zero, such as '5s'.")
        if self.interval is not None and self.mode is not Mode.STRONG:
            raise BadRequest(
                f"interval has no meaning with mode {self.mode.value!r}.", fix="Use mode 'strong'."
            )
        if self.interval is not None and self.flush is not Flush.EVERY_STEP:
            raise BadRequest(
                "interval and flush='before_effects' exclude each other.", fix="Drop one of them."
            )
        if self.flush is not Flush.EVERY_STEP and self.mode is not Mode.STRONG:
            raise BadRequest(
                f"flush='before_effects' has no meaning with mode {self.mode.value!r}.",
                fix="Use mode 'strong'.",
            )
        for field in ("retry_on_lease_conflict", "max_resume_attempts", "blob_threshold"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise BadRequest(
                    f"{field} is {value!r}.", fix="Give a whole number from 0 on, not a negative one."
                )
        if self.lease_ttl <= timedelta(0):
            raise BadRequest("lease_ttl must be positive.", fix="Give some seconds, or a span such as '30s'.")
        if self.on_store_failure not in ("required", "best_effort"):
            raise BadRequest(
                f"on_store_failure is {self.on_store_failure!r}.", fix="Use 'required' or 'best_effort'."
            )

    def interval_parts(self) -> tuple[int | None, timedelta | None]:
        """Return the interval as (steps, time), either of which may be none."""
        match self.interval:
            case int() as steps:
                return steps, None
            case timedelta() as span:
                return None, span
            case (int() as steps, timedelta() as span):
                return steps, span
            case None:
                return None, None
            case _:
                raise BadRequest(
                    f"interval is {self.interval!r}.",
                    fix="Give a number of steps, a span such as '5s', or a pair of both.",
                )

    def meets(self, asked: Durability) -> bool:
        """True if a flow that is kept like this is kept as often as one inside it asks for.

        What says no more than the default asks for nothing. `off` inside is asked for only where all is off.
        """
        if asked.mode is Mode.PARTIAL:
            return True
        if asked.mode is Mode.OFF or self.mode is not Mode.STRONG:
            return self.mode is asked.mode
        is_every_step = self.interval is None and self.flush is Flush.EVERY_STEP
        return is_every_step or (self.interval, self.flush) == (asked.interval, asked.flush)

    def shares_limits(self, asked: Durability) -> bool:
        """True if what another says of leases, times and limits is the default, or the same as here."""
        return all(
            getattr(asked, name) in (getattr(_DEFAULT, name), getattr(self, name)) for name in _PER_RUN
        )

    @classmethod
    def of(cls, wanted: DurabilityMode | Durability) -> Durability:
        """Read a mode's name, or pass an object on."""
        if isinstance(wanted, Durability):
            return wanted
        if wanted in list(Mode):
            return cls(Mode(wanted))
        raise BadRequest(
            f"durability is {wanted!r}.", fix="Use 'off', 'partial', 'strong', or a Durability object."
        )


def mode_of(given: DurabilityMode) -> Mode:
    """Read the name of a mode."""
    return _enum(Mode, given, "mode")


def _interval(given: Any) -> Any:
    """Return an interval with its span read; a number counts steps."""
    match given:
        case str():
            return span_of(given, "interval")
        case (steps, str() as span):
            return steps, span_of(span, "interval")
    return given


def _enum(kind: type[E], value: str, field: str) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(k)) for k in kind)
        raise BadRequest(f"{field} is {value!r}.", fix=f"Use one of {known}.") from None


_DEFAULT = Durability()
_PER_RUN = (
    *("blob_threshold", "lease_ttl", "checkpoint_ttl", "retain_completed_for", "retry_on_lease_conflict"),
    *("max_resume_attempts", "on_store_failure"),
)
"""What a durability says of a run as a whole."""
