"""What can be wrong with what is kept of a run, and what a check of it came to."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from everstep.codec.wire import to_wire as _to_wire
from everstep.model.enums import Effects, Status
from everstep.model.shapes import OrNull, shown


class FlawKind(StrEnum):
    """What is wrong."""

    ALTERED = "altered"
    """A checkpoint, or what the store says of it, is not as it was written."""
    CUT_SHORT = "cut_short"
    """A checkpoint ends too early."""
    MISSING = "missing"
    REORDERED = "reordered"
    """A checkpoint lies in the place of another."""
    DUPLICATED = "duplicated"
    """A checkpoint is there twice."""
    FOREIGN = "foreign"
    """A checkpoint belongs to another run."""
    STUB = "stub"
    """The digest that is left of a removed checkpoint is not the one that the next was hashed onto."""
    KEYFRAME = "keyframe"
    """A keyframe tells another state than the checkpoints before it, or one that does not fit the flow."""
    VALUE = "value"
    """The bytes of a value are not those that its checkpoint names."""
    ARTIFACT_MISSING = "artifact_missing"
    ARTIFACT_ALTERED = "artifact_altered"
    ARTIFACT_CUT_SHORT = "artifact_cut_short"
    ROW = "row"
    """What the store says of the run disagrees with its checkpoints."""
    WAIT = "wait"
    """What the store says that the run waits for disagrees with its checkpoints."""
    BLUEPRINT = "blueprint"
    """The structure of the flow is missing or altered."""
    NEWER = "newer"
    """Written by a newer everstep, or with a codec that is not known here: it cannot be checked."""


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    kind: FlawKind
    message: str
    run_id: str
    """The run it lies in: the one that is checked, or one that it was forked from."""
    sequence: int | None = None
    """The checkpoint, if it is about one."""


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one run."""

    run_id: str
    checkpoints: int = 0
    """How many there are, those that a fork shares included."""
    removed: int = 0
    """How many of them clean-up has left only the digests of."""
    artifacts: int = 0
    """How many values of its own are artifacts that were read, and are as they were written."""
    newest_valid: int | None = None
    """The newest checkpoint that a run can go on from: all that a resume would read is as it was written."""
    flaws: tuple[Flaw, ...] = ()
    """What is wrong, in the order of the checkpoints; at most a hundred."""
    locked: int = 0
    """Checkpoints whose values could not be checked, only their digests: the key is not at hand."""
    locked_by: tuple[str, ...] = ()
    """The ids of the keys that were missing."""
    spooled: int = 0
    """Checkpoints that wait on this machine, and are as they were written."""
    spool_problem: OrNull = ""
    """What is wrong with those; empty if nothing is."""

    @shown
    def problem(self) -> OrNull:
        """What is wrong first; empty if nothing is."""
        return self.flaws[0].message if self.flaws else ""

    @shown
    def is_sound(self) -> bool:
        """True if nothing is wrong."""
        return not self.flaws and not self.spool_problem


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """A step behind the checkpoint that a run falls back to: what it did to the world may be done again."""

    path: str
    visit: int
    sequence: int
    """The checkpoint that tells of it; it may be damaged, and what it tells be wrong."""
    status: Status
    effects: Effects
    key: str | None = None
    """Its idempotency key. The fork uses the same one."""


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """How a damaged run goes on."""

    run_id: str
    """The damaged run. It stays as it is, and workers leave it alone."""
    fork: str
    """The run that goes on in its place."""
    at: int
    """The checkpoint that it goes on from."""
    reason: str
    """What is wrong with the damaged run."""
    may_repeat: tuple[Repeated, ...] = ()
    """Steps behind that checkpoint that are not declared to be without effects."""
    unread: tuple[int, ...] = ()
    """Checkpoints behind it that cannot be read: what was done there is unknown. At most a hundred."""
    lost_signals: tuple[str, ...] = ()
    """Ids of signals that were taken behind it and whose values are gone: they are to be sent again."""

    to_wire = _to_wire
