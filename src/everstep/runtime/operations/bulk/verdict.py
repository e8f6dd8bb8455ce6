"""What an act over many runs does to one of them: does it, skips the run, or refuses it. Decided here alone.

Pure. A dry run asks the same, of the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from everstep.engine.query.labels import tagged
from everstep.errors import BadRequest, CheckpointPinned, RunNotFound, RunPaused
from everstep.model.bundles import moved_to
from everstep.model.commits import OWN_FLOWS, RunRow, Tag
from everstep.model.enums import Status


class BulkAct(StrEnum):
    """What can be done to many runs."""

    CANCEL = "cancel"
    RESUME = "resume"
    """Let workers drive an unfinished run again that they leave alone, as it was found damaged."""
    RETRY = "retry"
    """Reopen a run that failed or was abandoned, and leave it to workers."""
    FORK = "fork"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    TAG = "tag"
    PIN = "pin"
    UNPIN = "unpin"
    ERASE = "erase"


class BulkOutcome(StrEnum):
    """What comes of an act for one run."""

    DONE = "done"
    SKIPPED = "skipped"
    """Nothing is to be done, or the run changed while the act came to it."""
    REFUSED = "refused"
    """The act alone would be an error."""


class BulkVerdict(NamedTuple):
    """What comes of an act for one run, and why."""

    outcome: BulkOutcome
    why: str = ""
    """Of a run that is skipped a word, of one that is refused the code of the error."""


DO: Final = BulkVerdict(BulkOutcome.DONE)
ENDED: Final = BulkVerdict(BulkOutcome.SKIPPED, "ended")
NOT_FAILED: Final = BulkVerdict(BulkOutcome.SKIPPED, "not_failed")
NOTHING: Final = BulkVerdict(BulkOutcome.SKIPPED, "nothing_to_do")
CHANGED: Final = BulkVerdict(BulkOutcome.SKIPPED, "changed")
GONE: Final = BulkVerdict(BulkOutcome.SKIPPED, "gone")
_INVALID: Final = BulkVerdict(BulkOutcome.REFUSED, BadRequest.code)
_NO_CHECKPOINT: Final = BulkVerdict(BulkOutcome.REFUSED, RunNotFound.code)
_PINNED: Final = BulkVerdict(BulkOutcome.REFUSED, CheckpointPinned.code)
_PAUSED: Final = BulkVerdict(BulkOutcome.REFUSED, RunPaused.code)
_RESTING = (Status.FAILED, Status.ABANDONED)


class TagChange(NamedTuple):
    """What an act does to tags."""

    add: Sequence[Tag] = ()
    remove: Collection[str] = ()


def judge(
    act: BulkAct,
    row: RunRow,
    tags: Sequence[Tag] = (),
    change: TagChange | None = None,
    at: int | None = None,
) -> BulkVerdict:
    """Say what an act does to a run that stands like this; tags count only where they are changed, and `at`
    where a fork is made.

    A lease that holds, forks that go on from a run, and damage are found out by the act itself.
    """
    if act in (BulkAct.CANCEL, BulkAct.RESUME, BulkAct.RETRY) and moved_to(row.needs_repair) is not None:
        return _INVALID
    # A run that acts on many would do again, or with another order, what who orders this may not.
    if act in (BulkAct.RESUME, BulkAct.RETRY, BulkAct.FORK) and row.flow_id.startswith(OWN_FLOWS):
        return _INVALID
    match act:
        case BulkAct.PAUSE:
            if row.status.is_final or row.is_paused:
                return ENDED if row.status.is_final else NOTHING
            return DO if row.stop_request is None and row.needs_repair is None else _INVALID
        case BulkAct.UNPAUSE:
            return ENDED if row.status.is_final else DO if row.is_paused else NOTHING
        case BulkAct.CANCEL:
            return ENDED if row.status.is_final else NOTHING if row.stop_request is not None else DO
        case BulkAct.RESUME:
            if row.is_paused:
                return _PAUSED
            return ENDED if row.status.is_final else NOTHING if row.needs_repair is None else DO
        case BulkAct.RETRY:
            return DO if row.status in _RESTING else NOT_FAILED
        case BulkAct.TAG:
            wanted = tagged(tags, (change or TagChange()).add, (change or TagChange()).remove)
            return _INVALID if wanted is None else NOTHING if set(wanted) == set(tags) else DO
        case BulkAct.PIN:
            return NOTHING if row.pinned is not None else DO
        case BulkAct.UNPIN:
            return NOTHING if row.pinned is None else DO
        case BulkAct.ERASE:
            return _INVALID if not row.status.is_final else _PINNED if row.pinned is not None else DO
        case BulkAct.FORK:
            return _NO_CHECKPOINT if at is not None and at > row.checkpoints else DO
