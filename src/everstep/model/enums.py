"""The fixed words of the records."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """Where a run or a step stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRYING = "retrying"
    """A step whose last attempt failed and which will be tried again."""
    HALTED = "halted"
    """Waiting for a person, a clock or a callback."""
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    """Taken over too often without progress; no worker drives it until an operator resumes it."""

    @property
    def is_final(self) -> bool:
        """True when no worker will drive the run any more, unless it is resumed or reopened."""
        return self in FINAL


FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.ABANDONED})


class Trigger(StrEnum):
    """Why a checkpoint was taken."""

    ADMISSION = "admission"
    STEP = "step"
    INTERVAL = "interval"
    BEFORE_EFFECT = "before_effect"
    EFFECT = "effect"
    RETRY = "retry"
    MANUAL = "manual"
    """A node asked for it with `ctx.checkpoint()`."""
    AUTO = "auto"
    """So many steps have passed, as `auto_checkpoint` says."""
    HALT = "halt"
    """A node waits: for a person, a clock or a callback."""
    INTERRUPTED = "interrupted"
    """The process was told to stop and kept what had finished."""
    RESUME = "resume"
    FORK = "fork"
    """The first of a fork: it goes on from a checkpoint of another run."""
    MIGRATION = "migration"
    """The run goes on with another version of its flow."""
    TRIM = "trim"
    """Where an ended run stands, so that what lies before can be removed."""
    PHASE_COMPLETE = "phase_complete"
    """A phase has finished, and its gate has not decided yet."""
    GATE_DECISION = "gate_decision"
    """A scored gate has decided."""
    ESCALATION = "escalation"
    """A gate leaves the decision to a person."""
    ITERATION = "iteration"
    """A phase begins once more: a fork from here goes back to before it."""
    UNDO = "undo"
    """The run begins to undo what it did."""
    UNIT = "unit"
    """A durable call inside a node has ended."""
    SPENT = "spent"
    """A node said what it has cost."""
    COST_THRESHOLD = "cost_threshold"
    """Most of a budget is spent."""
    CIRCUIT_BREAKER = "circuit_breaker"
    """A breaker has opened: what it guards waits for a person."""
    EXPENSIVE_OP = "expensive_op"
    """A node declared `expensive` has finished."""
    DESTRUCTIVE_OP = "destructive_op"
    """A node declared `destructive` is about to start: a fork from here goes back to before it."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


PRIORITIES: Mapping[Trigger, str] = {
    Trigger.CIRCUIT_BREAKER: "critical",
    Trigger.ITERATION: "medium",
    Trigger.EXPENSIVE_OP: "medium",
    **dict.fromkeys(
        (Trigger.PHASE_COMPLETE, Trigger.GATE_DECISION, Trigger.ESCALATION, Trigger.COST_THRESHOLD), "high"
    ),
    Trigger.DESTRUCTIVE_OP: "high",
}
"""How much a checkpoint matters that was taken for its own sake; its metadata says so."""


def with_priority(trigger: Trigger, metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the metadata of a checkpoint with how much it matters, if that is known."""
    known = PRIORITIES.get(trigger)
    return metadata if known is None else {**(metadata or {}), "priority": known}


class Mode(StrEnum):
    """How much of a run survives a crash."""

    OFF = "off"
    PARTIAL = "partial"
    STRONG = "strong"


class Flush(StrEnum):
    """When `strong` writes: after every step, or only before something leaves the process."""

    EVERY_STEP = "every_step"
    BEFORE_EFFECTS = "before_effects"


class Effects(StrEnum):
    """What calling a node does to the world. Undeclared counts as pure, but is not trusted to be."""

    UNDECLARED = "undeclared"
    PURE = "pure"
    READ_ONLY = "read_only"
    EFFECTFUL = "effectful"


class Determinism(StrEnum):
    """Whether a rerun with the same inputs gives the same outputs."""

    STRICT = "strict"
    STABLE = "stable"
    BEST_EFFORT = "best_effort"
    NONDETERMINISTIC = "nondeterministic"


class ValueForm(StrEnum):
    """How the bytes of a write relate to the version before it."""

    WHOLE = "whole"
    APPEND = "append"
    """The items added to the list that the version before held."""
    TRANSIENT = "transient"
    """No bytes at all: the value lives in the process that made it, and is made again where it is missed."""
    LIFTED = "lifted"
    """No bytes of its own: a value that an inner flow wrote, or the list of what the items of a map wrote."""
    PREPEND = "prepend"
    """The items put before the list that the version before held."""
    ADD = "add"
    """A number to add to the one that the version before held."""
    DELETED = "deleted"
    """The value is gone."""


class OnError(StrEnum):
    """What a map does when one of its items fails for good."""

    STOP = "stop"
    """The run fails; items that are done stay done."""
    FINISH = "finish"
    """The other items are done first, then the run fails; a resume runs the failed ones again."""
    COLLECT = "collect"
    """An `ItemError` takes the place of the item's outputs."""
    SKIP = "skip"
    """The item is left out of the lists."""


class Persist(StrEnum):
    """How a node's outputs are kept."""

    AUTO = "auto"
    """In the record, or beside it as an artifact, by size."""
    INLINE = "inline"
    REF = "ref"
    NO = "no"
